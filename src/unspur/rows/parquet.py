"""Rows in Parquet files: one column of lists, or one column per feature.

A file is a sequence of row groups, each of which holds its columns one after the other, in pages. Pages are read
through small buffers and decoded a chunk at a time, so that a row group may be far larger than memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from unspur._extras import require
from unspur._reading import index_columns, quoted, require_distinct, require_labels
from unspur._text import brief
from unspur._typing import Array
from unspur.exceptions import InputError, Parameter
from unspur.rows.stored import (
    MAX_CHUNK_BYTES,
    Budget,
    RowChunks,
    StoredRows,
    enough_memory,
    file_names,
    format_size,
    parse_size,
)

#: Bytes read from a column at once; without a buffer pyarrow reads a whole column of a row group.
COLUMN_BUFFER_BYTES = 2**16
#: Bytes held of a column besides its values: a page of data and one of its dictionary, which writers keep to a
#: megabyte each, one of them compressed as well.
MAX_PAGES_BYTES = 3 * 2**20
#: Integers beyond this are not exact in float64.
MAX_EXACT_INTEGER = 2**53


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group: its file, its number there, its rows, and the number of its first row among those of all files."""

    path: Path
    number: int
    rows: int
    start: int

    def __str__(self) -> str:
        return f"{self.path}, row group {self.number}"


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns hold the features, in order, and the type of their values."""

    columns: tuple[str, ...]
    lists: bool
    kind: str
    width: int
    dtype: np.dtype[Any]


def opened(path: Path) -> Any:
    """A file to be read page by page through small buffers, with checksums if it has any; closed after the block."""
    require("Parquet files need", "pyarrow")
    from pyarrow.parquet import ParquetFile

    options = {"buffer_size": COLUMN_BUFFER_BYTES, "pre_buffer": False, "page_checksum_verification": True}
    with readable(path):
        return closing(ParquetFile(path, **options))


@contextmanager
def readable(path: Path, kind: str = "Parquet") -> Iterator[None]:
    """Turn what pyarrow raises for a damaged file into an InputError that names it."""
    try:
        yield
    except InputError:
        raise
    except _unreadable() as error:
        raise InputError(f"{path} cannot be read as {kind}: {_error_text(error)} Is it complete?") from error


def _unreadable() -> tuple[type[Exception], ...]:
    """Exceptions that pyarrow raises for a damaged file."""
    import pyarrow as pa

    return (pa.ArrowException, ValueError, OSError, MemoryError, TypeError, LookupError, OverflowError)


def _error_text(error: BaseException) -> str:
    """The message of an error of pyarrow, shortened."""
    return f"{brief(error) or type(error).__name__}."


def batches(file: Any, group: RowGroup, columns: list[str], rows: int) -> Iterator[Any]:
    """Record batches of a row group; InputError if it is damaged or has another number of rows than its footer says."""
    seen = 0
    try:
        for batch in file.iter_batches(rows, row_groups=[group.number], columns=columns, use_threads=False):
            seen += batch.num_rows
            if seen > group.rows:
                break
            yield batch
    except _unreadable() as error:
        raise InputError(f"{group} is damaged (column {quoted(columns)}): {_error_text(error)}") from error
    if seen != group.rows:
        more = "more" if seen > group.rows else f"only {seen}"
        raise InputError(f"{group} is damaged: its footer counts {group.rows} rows, and there are {more}.")


def plain_schema(schema: Any) -> dict[str, Any]:
    """Types by column name, without differences that do not matter: dictionaries, names of list items."""
    import pyarrow as pa

    def plain(kind: Any) -> Any:
        if pa.types.is_dictionary(kind):
            return plain(kind.value_type)
        if pa.types.is_fixed_size_list(kind):
            return pa.list_(pa.field("item", kind.value_type), kind.list_size)
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return pa.list_(pa.field("item", kind.value_type))
        return pa.string() if pa.types.is_large_string(kind) else kind

    return {field.name: plain(field.type) for field in schema}


def is_number(kind: Any) -> bool:
    """Whether a type of Arrow is one of numbers."""
    import pyarrow as pa

    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _is_feature(kind: Any) -> bool:
    """Whether a type is one of numbers or booleans."""
    import pyarrow as pa

    return is_number(kind) or bool(pa.types.is_boolean(kind))


def is_list(kind: Any, of: Callable[[Any], bool] = is_number) -> bool:
    """Whether a type is one of lists of numbers, or `of` others."""
    from pyarrow import types

    return any(test(kind) for test in (types.is_list, types.is_large_list, types.is_fixed_size_list)) and of(
        kind.value_type
    )


def feature_columns_of(
    path: Path, schema: dict[str, Any], features: str | Sequence[str] | None, labels: Sequence[str], apart: set[str]
) -> tuple[tuple[str, ...], bool]:
    """Names of the feature columns, and whether it is one column of lists; columns `apart` must be named."""
    there = ", ".join(f"{name} ({kind})" for name, kind in list(schema.items())[:20])
    if features is None:
        there_are = {name: kind for name, kind in schema.items() if name not in apart}
        # Beside lists of numbers, lists of booleans are masks; a file may name them with features= all the same.
        lists = [name for name, kind in there_are.items() if is_list(kind)]
        lists = lists or [name for name, kind in there_are.items() if is_list(kind, _is_feature)]
        if len(lists) > 1:
            raise InputError(f"{path} has several columns of lists: {', '.join(lists)}. Name one with features=.")
        if not lists and not labels:
            raise InputError(
                f"{path} has no column of lists, so it does not say which columns are features (it has: {there}). Name "
                "them with features=, or name the other columns with labels=."
            )
        features = lists or [name for name in schema if name not in apart]
    names = (features,) if isinstance(features, str) else tuple(features)
    missing = [name for name in names if name not in schema]
    if missing:
        raise InputError(f"{path} has no column {missing[0]!r} to take as a feature (it has: {there}).")
    if not names or len(set(names)) < len(names):
        raise InputError(f"{path}: features must be different columns, at least one; got {list(names)[:20]}.")
    if len(names) == 1 and is_list(schema[names[0]], _is_feature):
        return names, True
    odd = [name for name in names if not _is_feature(schema[name])]
    if odd:
        raise InputError(
            f"{path}: column {odd[0]!r} is of type {schema[odd[0]]}; features are numbers or booleans, a column each, "
            "or one column of lists of them. Name other columns as labels, or leave them out."
        )
    return names, False


def require_same(path: Path, schema: dict[str, Any], first: dict[str, Any], example: Path) -> None:
    """Raise InputError unless a file has the feature columns of the first, of the same types."""
    for name, kind in first.items():
        if name not in schema:
            raise InputError(f"{path} has no column {name!r}, which {example} has. All files need the same features.")
        if schema[name] != kind:
            raise InputError(
                f"{path}: column {name!r} is of type {schema[name]}; in {example} it is {kind}. All files need "
                "features of the same width and type."
            )


def leaves_of(file: Any, columns: tuple[str, ...]) -> list[int]:
    """Indices of the stored columns that belong to the features."""
    wanted = set(columns)
    paths = [file.schema.column(i).path for i in range(len(file.schema))]
    return [i for i, path in enumerate(paths) if path in wanted or path.split(".", 1)[0] in wanted]


def pages_of(group: Any, leaves: list[int]) -> int:
    """Bytes of pages and buffers that reading a row group takes besides the values.

    Columns are not asked one by one: where a footer is damaged, pyarrow ends the process instead of raising an error.
    """
    pages = min(MAX_PAGES_BYTES * len(leaves), 2 * max(0, int(group.total_byte_size)))
    return pages + COLUMN_BUFFER_BYTES * len(leaves)


def width_of(file: Any, group: RowGroup, columns: tuple[str, ...], lists: bool, schema: dict[str, Any]) -> int:
    """Number of features; for lists of variable size, the length of the first one."""
    import pyarrow as pa

    if not lists:
        return len(columns)
    kind = schema[columns[0]]
    if pa.types.is_fixed_size_list(kind):
        width = int(kind.list_size)
    else:
        first = next(iter(batches(file, group, list(columns), 1))).column(0)
        if first.null_count:
            raise InputError(f"{group}: column {columns[0]!r} is null in its first row. Drop such rows.")
        width = len(first[0])
    if not width:
        raise InputError(f"{group}: column {columns[0]!r} holds empty lists; at least one feature is needed.")
    return width


def layout_of(columns: tuple[str, ...], lists: bool, schema: dict[str, Any], width: int) -> Layout:
    """Layout of the features, with the dtype that holds their values."""
    names = _kinds(columns, lists, schema)
    single = names <= {"halffloat", "float"}
    return Layout(columns, lists, ", ".join(sorted(names)), width, np.dtype(np.float32 if single else np.float64))


def _kinds(columns: tuple[str, ...], lists: bool, schema: dict[str, Any]) -> set[str]:
    """Names of the types of the features."""
    return {str(schema[name].value_type if lists else schema[name]) for name in columns}


def read_groups(groups: Sequence[RowGroup], layout: Layout) -> Array:
    """Rows (m, d) of some row groups; InputError if they have changed since they were found."""
    z = np.empty((sum(group.rows for group in groups), layout.width), layout.dtype)
    step = max(1, MAX_CHUNK_BYTES // (layout.width * layout.dtype.itemsize))
    start = 0
    for path, here in itertools.groupby(groups, key=lambda group: group.path):
        with opened(path) as file:
            schema = plain_schema(file.schema_arrow)
            for group in here:
                _require_as_found(file, schema, group, layout)
                for batch in batches(file, group, list(layout.columns), step):
                    part = values_of(batch, layout, group)
                    z[start : start + len(part)] = part
                    start += len(part)
    return z


def _require_as_found(file: Any, schema: dict[str, Any], group: RowGroup, layout: Layout) -> None:
    """Raise InputError if the file was rewritten since its columns and row groups were found."""
    metadata = file.metadata
    there = all(name in schema and is_list(schema[name], _is_feature) == layout.lists for name in layout.columns)
    if there:
        there = ", ".join(sorted(_kinds(layout.columns, layout.lists, schema))) == layout.kind
    sized = [getattr(schema[name], "list_size", layout.width) for name in layout.columns if there and layout.lists]
    if not there or any(size != layout.width for size in sized):
        raise InputError(
            f"{group} has other features than when it was found: {layout.width} of type {layout.kind}. "
            "Open the rows again."
        )
    rows = metadata.row_group(group.number).num_rows if group.number < metadata.num_row_groups else 0
    if rows != group.rows:
        raise InputError(f"{group} has {rows} rows; it had {group.rows} when it was found. Open the rows again.")


def values_of(batch: Any, layout: Layout, group: RowGroup) -> Array:
    """Rows (m, d) of a record batch; lists of float32 or float64 are not copied."""
    if not layout.lists:
        out = np.empty((layout.width, batch.num_rows), dtype=layout.dtype)
        # In the order asked for, which need not be that of the file.
        for line, name in zip(out, layout.columns, strict=True):
            line[:] = _numbers(batch.column(name), name, group)
        return out.T
    column, name = batch.column(layout.columns[0]), layout.columns[0]
    if column.null_count:
        raise InputError(f"{group}: column {name!r} is null in {column.null_count} rows. Drop them or fill them in.")
    if not hasattr(column.type, "list_size"):
        lengths = np.diff(column.offsets.to_numpy())
        if np.any(lengths != layout.width):
            other = int(lengths[lengths != layout.width][0])
            raise InputError(
                f"{group}: column {name!r} has a list of {other} numbers; the first row has {layout.width}. All rows "
                "need the same length."
            )
    values = _numbers(column.flatten(), name, group)
    if len(values) != batch.num_rows * layout.width:
        raise InputError(f"{group} is damaged: column {name!r} has {len(values)} numbers in {batch.num_rows} rows.")
    return values.reshape(batch.num_rows, layout.width).astype(layout.dtype, copy=False)


def _numbers(column: Any, name: str, group: RowGroup) -> Array:
    if column.null_count:
        raise InputError(
            f"{group}: column {name!r} has {column.null_count} nulls among its numbers. Drop those rows or fill "
            "them in."
        )
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8 and len(values):
        largest = max(int(values.max()), -int(values.min()))
        if largest > MAX_EXACT_INTEGER:
            raise InputError(
                f"{group}: column {name!r} holds the whole number {largest}, which float64 cannot tell from its "
                "neighbours. Is it an identifier? Name it as a label, or rescale it."
            )
    return values


def decoded(column: Any) -> Any:
    """A label column as plain values; texts as a dictionary, which stays small for many rows."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode() if not pa.types.is_string(column.type.value_type) else column
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    if pa.types.is_dictionary(column.type):
        return column.cast(pa.dictionary(pa.int32(), pa.string()))
    return column


def as_labels(column: Any) -> Array:
    """A label column as an array; missing values are NaN among fractions, NaT among times, and None elsewhere.

    Dates, and times with a zone, are objects, since NumPy has neither; so are lists and the like.
    """
    import pyarrow as pa

    if pa.types.is_nested(column.type):
        return np.fromiter(column.to_pylist(), dtype=object, count=len(column))
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
        words = [*column.chunk(0).dictionary.to_pylist(), None]
        codes = np.concatenate([chunk.indices.fill_null(-1).to_numpy() for chunk in column.chunks])
        return np.array(words, dtype=object)[codes]
    is_time = pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type)
    with_zone = pa.types.is_timestamp(column.type) and column.type.tz is not None
    has_nones = column.null_count and not (is_time or pa.types.is_floating(column.type))
    if pa.types.is_date(column.type) or with_zone or has_nones:
        return np.array(column.to_pylist(), dtype=object)
    return np.asarray(column.to_numpy())


class ParquetRows(StoredRows):
    """The rows of Parquet files, read in order within a memory budget.

    Parameters
    ----------
    paths : the files, in the order of their rows.
    features : name of a column of lists of equal length, or names of columns of numbers or booleans. None: the only
        column of lists of numbers or, if `labels` are named, all columns besides those and an index of pandas.
    labels : columns that must exist and are not features.
    memory : budget, such as "1GB".
    scratch : folder for a decoded copy, which later passes read instead.
    block_rows : rows to read at a time, instead of as many as the budget allows.

    `groups` are the row groups that have rows, and `layout` says how features are stored. What a look at the files
    shows (schemas, sizes, widths) is checked here, what only reading shows by `check`.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        features: str | Sequence[str] | None = None,
        labels: Sequence[str] = (),
        memory: int | str = "1GB",
        progress: bool = False,
        scratch: str | PathLike[str] | None = None,
        block_rows: int | None = None,
    ):
        groups: list[RowGroup] = []
        overhead, start, width, first = 0, 0, 0, None
        for path in paths:
            with opened(path) as file:
                arrow = file.schema_arrow
                require_distinct(path, arrow.names)
                schema = plain_schema(arrow)
                require_labels(path, schema, labels)
                if first is None:
                    apart = {*labels, *index_columns(arrow)}
                    columns, lists = feature_columns_of(path, schema, features, labels, apart)
                    first = {name: schema[name] for name in columns}
                    names = dict(schema)
                else:
                    require_same(path, schema, first, paths[0])
                    names = {name: kind for name, kind in names.items() if name in schema}
                leaves, before = leaves_of(file, columns), len(groups)
                for number in range(file.metadata.num_row_groups):
                    group = file.metadata.row_group(number)
                    overhead = max(overhead, pages_of(group, leaves))
                    if group.num_rows < 0:
                        raise InputError(f"{path} is damaged: its footer counts {group.num_rows} rows in a row group.")
                    groups.append(RowGroup(Path(path).absolute(), number, group.num_rows, start))
                    start += group.num_rows
                for any_row in [group for group in groups[before:] if group.rows][:1]:
                    found = width_of(file, any_row, columns, lists, first)
                    width = width or found
                    if found != width:
                        raise InputError(
                            f"{any_row}: column {columns[0]!r} has lists of {found} numbers; in files before it they "
                            f"have {width}. All files need features of the same width and type."
                        )
        if first is None or not start:
            raise InputError(f"{file_names(paths)} {'has' if len(paths) == 1 else 'have'} no rows.")
        self.groups = tuple(group for group in groups if group.rows)
        self.layout = layout_of(columns, lists, first, width)
        self.shape, self.dtype = (start, self.layout.width), self.layout.dtype
        self.feature_names = None if lists else list(columns)
        self.column_names = [name for name in names if name not in columns]
        self.budget = Budget(parse_size(memory), start, self.shape[1] * self.dtype.itemsize, overhead)
        self.budget.require_enough(file_names(paths))
        self._block_rows = block_rows
        super().__init__(paths, progress=progress, scratch=scratch)

    def _chunks(self) -> RowChunks:
        import pyarrow as pa

        size = self.budget.chunk_rows if self._block_rows is None else self._block_rows
        pool, chosen = pa.default_memory_pool(), self._selected
        before = pool.bytes_allocated()
        wanted = (one for one in self.groups if chosen is None or chosen[one.start : one.start + one.rows].any())
        for path, groups in itertools.groupby(wanted, key=lambda group: group.path):
            with opened(path) as file:
                for group in groups:
                    start = group.start
                    for batch in batches(file, group, list(self.layout.columns), size):
                        self._require_room(group, pool.bytes_allocated() - before)
                        z = values_of(batch, self.layout, group)
                        yield slice(start, start + len(z)), z
                        start += len(z)
                        del batch, z  # not held while the next is decoded

    def _require_room(self, group: RowGroup, used: int) -> None:
        """Raise InputError if pages are so large that reading exceeds the budget, which shows only now."""
        if used > self.budget.total:
            raise InputError(
                "{group} has pages so large that reading takes {used}, more than {memory}. Pass {enough}, or write "
                "smaller pages.",
                group=group,
                used=format_size(used),
                memory=Parameter("memory", format_size(self.budget.total)),
                enough=enough_memory(self.budget.total + used),
            )

    def location_of(self, row: int) -> str:
        """File, row group and row in it."""
        group = next(group for group in reversed(self.groups) if group.start <= row)
        return f"{group} (row {row - group.start} of it)"

    def _whole_column(self, name: str) -> Array:
        import pyarrow as pa

        parts: list[Any] = []
        kind, example = pa.null(), None
        for path, groups in itertools.groupby(self.groups, key=lambda group: group.path):
            with opened(path) as file:
                found = plain_schema([file.schema_arrow.field(name)])[name]
                if pa.types.is_null(kind):
                    kind, example = found, path
                elif found != kind and not pa.types.is_null(found):
                    raise InputError(
                        f"{path}: column {name!r} is of type {found}; in {example} it is {kind}. Write them alike."
                    )
                for group in groups:
                    parts += [decoded(batch.column(0)) for batch in batches(file, group, [name], 2**16)]
        kind = next((part.type for part in parts if not pa.types.is_null(part.type)), pa.null())
        # Where a column is missing in all rows of a file, nothing says what it is of.
        return as_labels(pa.chunked_array([part.cast(kind) if pa.types.is_null(part.type) else part for part in parts]))
