"""One Parquet file: its schema, its pages, and the values in them.

A file is a sequence of row groups, each of which holds its columns one after the other, in pages. Pages are read
through small buffers and decoded a piece at a time, so that a row group may be far larger than memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unspur._extras import require
from unspur._reading import brief
from unspur._typing import Array
from unspur.exceptions import InputError
from unspur.rows.budget import LARGEST_PIECE
from unspur.rows.names import some

#: Bytes read from a column at once. Without such a buffer pyarrow reads a whole column of a row group.
BUFFER = 2**16
#: Most that is held of a column besides its values: a page of data and one of its dictionary, which writers keep to a
#: megabyte each, one of them compressed as well.
PAGES = 3 * 2**20
#: Whole numbers beyond this are not all different as float64.
EXACT = 2**53


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


def _arrow() -> Any:
    require("Parquet files need", "pyarrow")
    from pyarrow import parquet

    return parquet


def open_file(path: Path) -> Any:
    """A file that is read through small buffers, page by page, with the checksums of its pages if it has any."""
    parquet = _arrow()
    try:
        return parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False, page_checksum_verification=True)
    except unreadable() as error:
        raise InputError(f"{path} cannot be read as Parquet: {said(error)}") from error


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A Parquet file, closed at the end."""
    _arrow()
    file = open_file(path)
    try:
        yield file
    finally:
        file.close()


def unreadable() -> tuple[type[Exception], ...]:
    """What pyarrow raises for a damaged file, besides errors of its own."""
    import pyarrow as pa

    return (pa.ArrowException, ValueError, OSError, MemoryError, TypeError, LookupError, OverflowError)


def said(error: BaseException) -> str:
    """What pyarrow says of a file that it cannot read."""
    return f"{brief(error) or type(error).__name__}."


def batches(file: Any, group: RowGroup, columns: list[str], rows: int) -> Iterator[Any]:
    """Record batches of a row group; what is damaged is named, also a footer that counts other rows than there are."""
    seen = 0
    try:
        for batch in file.iter_batches(rows, row_groups=[group.number], columns=columns, use_threads=False):
            seen += batch.num_rows
            if seen > group.rows:
                break
            yield batch
    except unreadable() as error:
        raise InputError(f"{group} is damaged (column {some(columns)}): {said(error)}") from error
    if seen != group.rows:
        more = "more" if seen > group.rows else f"only {seen}"
        raise InputError(f"{group} is damaged: its footer counts {group.rows} rows, and there are {more}.")


def plain_schema(schema: Any) -> dict[str, Any]:
    """Types by name; a dictionary is a way to write its values, and the name of a list's items is of no interest."""
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


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _is_feature(kind: Any) -> bool:
    """Numbers and, as in arrays and tables in memory, booleans: 0 and 1."""
    import pyarrow as pa

    return _is_number(kind) or bool(pa.types.is_boolean(kind))


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)) and _is_feature(kind.value_type)


def feature_columns_of(
    path: Path, schema: dict[str, Any], features: str | Sequence[str] | None, labels: Sequence[str], apart: set[str]
) -> tuple[tuple[str, ...], bool]:
    """Names of the feature columns, and whether it is one of lists; those set apart are features only by name."""
    there = ", ".join(f"{name} ({kind})" for name, kind in list(schema.items())[:20])
    if features is None:
        lists = [name for name, kind in schema.items() if _is_list(kind) and name not in apart]
        # Beside lists of numbers, lists of booleans are masks; a file may name them with features= all the same.
        lists = [name for name in lists if _is_number(schema[name].value_type)] or lists
        if len(lists) > 1:
            raise InputError(f"{path} has several columns of lists: {', '.join(lists)}. Name one with features=.")
        if not lists and not labels:
            raise InputError(
                f"{path} has no column of lists, so it does not say which columns are features (it has: {there}). Name "
                "them with features=, or those that are none with labels=."
            )
        features = lists or [name for name in schema if name not in apart]
    names = (features,) if isinstance(features, str) else tuple(features)
    missing = [name for name in names if name not in schema]
    if missing:
        raise InputError(f"{path} has no column {missing[0]!r} to take as a feature (it has: {there}).")
    if not names or len(set(names)) < len(names):
        raise InputError(f"{path}: features must be different columns, at least one; got {list(names)[:20]}.")
    if len(names) == 1 and _is_list(schema[names[0]]):
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
    """Numbers of the stored columns that belong to the features."""
    wanted = set(columns)
    paths = [file.schema.column(i).path for i in range(len(file.schema))]
    return [i for i, path in enumerate(paths) if path in wanted or path.split(".", 1)[0] in wanted]


def pages_of(group: Any, leaves: list[int]) -> int:
    """Bytes that reading a row group holds besides the values asked for: of pages not more than there are, packed too.

    Columns are not asked one by one: where a footer is damaged, pyarrow ends the process instead of raising an error.
    """
    pages = min(PAGES * len(leaves), 2 * max(0, int(group.total_byte_size)))
    return pages + BUFFER * len(leaves)


def width_of(file: Any, group: RowGroup, columns: tuple[str, ...], lists: bool, schema: dict[str, Any]) -> int:
    """Number of features; of lists that do not say it, that of the first row of a file."""
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
    """Where the features are, and the type that holds their values."""
    names = _kinds(columns, lists, schema)
    single = names <= {"halffloat", "float"}
    return Layout(columns, lists, ", ".join(sorted(names)), width, np.dtype(np.float32 if single else np.float64))


def _kinds(columns: tuple[str, ...], lists: bool, schema: dict[str, Any]) -> set[str]:
    """Types of the features' values, in words."""
    return {str(schema[name].value_type if lists else schema[name]) for name in columns}


def read_groups(groups: Sequence[RowGroup], layout: Layout) -> Array:
    """Rows (m, d) of some row groups, read as a whole; those that are not as they were found are named."""
    z = np.empty((sum(group.rows for group in groups), layout.width), layout.dtype)
    step = max(1, LARGEST_PIECE // (layout.width * layout.dtype.itemsize))
    start = 0
    for path, here in itertools.groupby(groups, key=lambda group: group.path):
        with opened(path) as file:
            schema = plain_schema(file.schema_arrow)
            for group in here:
                _require_as_found(file, schema, group, layout)
                before = start
                for batch in batches(file, group, list(layout.columns), step):
                    part = values_of(batch, layout, group)
                    z[start : start + len(part)] = part
                    start += len(part)
                if start - before != group.rows:
                    raise InputError(f"{group} is damaged: it has {start - before} rows instead of {group.rows}.")
    return z


def _require_as_found(file: Any, schema: dict[str, Any], group: RowGroup, layout: Layout) -> None:
    """A file may have been written anew since its columns and row groups were looked at."""
    metadata = file.metadata
    there = all(name in schema and _is_list(schema[name]) == layout.lists for name in layout.columns)
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
    """Rows (m, d) of a record batch: without a copy where they are lists of float32 or float64."""
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
        if largest > EXACT:
            raise InputError(
                f"{group}: column {name!r} holds the whole number {largest}, which float64 cannot tell from its "
                "neighbours. Is it an identifier? Name it as a label, or rescale it."
            )
    return values


def decoded(column: Any) -> Any:
    """Labels as plain values; texts as a dictionary, which is small however many rows there are."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode() if not pa.types.is_string(column.type.value_type) else column
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    if pa.types.is_dictionary(column.type):
        return column.cast(pa.dictionary(pa.int32(), pa.string()))
    return column


def as_labels(column: Any) -> Array:
    """A label column as an array: texts as objects with None for gaps, numbers with NaN for them."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
        words = [*column.chunk(0).dictionary.to_pylist(), None]
        codes = np.concatenate([chunk.indices.fill_null(-1).to_numpy() for chunk in column.chunks])
        return np.array(words, dtype=object)[codes]
    if column.null_count and not _is_number(column.type):
        return np.array(column.to_pylist(), dtype=object)
    return np.asarray(column.to_numpy())
