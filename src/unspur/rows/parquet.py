"""Rows in Parquet files: one column of lists, or one column per feature."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from unspur._typing import Array
from unspur.exceptions import InputError
from unspur.rows.budget import Budget, as_bytes, in_words
from unspur.rows.names import index_columns, require_distinct, require_labels
from unspur.rows.parquet_files import (
    RowGroup,
    as_labels,
    batches,
    decoded,
    feature_columns_of,
    layout_of,
    leaves_of,
    open_file,
    opened,
    pages_of,
    plain_schema,
    require_same,
    values_of,
    width_of,
)
from unspur.rows.stored import StoredRows, Stretches


class ParquetRows(StoredRows):
    """The rows of Parquet files, read in order within a memory budget.

    Parameters
    ----------
    paths : the files, in the order of their rows.
    features : name of a column of lists of equal length, or names of columns of numbers or booleans. None: the only
        column of lists of numbers or, if `labels` are named, all columns besides those and an index of pandas.
    labels : columns that must be there and are no features.
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
                require_distinct(path, file.schema_arrow.names)
                schema = plain_schema(file.schema_arrow)
                require_labels(path, schema, labels)
                if first is None:
                    apart = {*labels, *index_columns(file.schema_arrow)}
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
            raise InputError(f"{_files(paths)} no rows.")
        self.groups = tuple(group for group in groups if group.rows)
        self.layout = layout_of(columns, lists, first, width)
        self.shape, self.dtype = (start, self.layout.width), self.layout.dtype
        self.feature_names = None if lists else list(columns)
        self.column_names = [name for name in names if name not in columns]
        self.budget = Budget(as_bytes(memory), start, self.shape[1] * self.dtype.itemsize, overhead)
        self.budget.require_enough(f"{paths[0]}" + (f" and {len(paths) - 1} more" if len(paths) > 1 else ""))
        self._block_rows = block_rows
        super().__init__(paths, progress=progress, scratch=scratch)

    def _pieces(self) -> Stretches:
        import pyarrow as pa

        size = self.budget.piece_rows if self._block_rows is None else self._block_rows
        pool, path, file = pa.default_memory_pool(), None, None
        before = pool.bytes_allocated()
        try:
            for group in self.groups:
                if self._wanted is not None and not self._wanted[group.start : group.start + group.rows].any():
                    continue
                if path != group.path:
                    if file is not None:
                        file.close()
                    path, file = group.path, open_file(group.path)
                start = group.start
                for batch in batches(file, group, list(self.layout.columns), size):
                    self._require_room(group, pool.bytes_allocated() - before)
                    z = values_of(batch, self.layout, group)
                    yield slice(start, start + len(z)), z
                    start += len(z)
                    del batch, z  # not held while the next is decoded
                if start - group.start != group.rows:
                    raise InputError(f"{group} is damaged: it has {start - group.start} rows instead of {group.rows}.")
        finally:
            if file is not None:
                file.close()

    def _require_room(self, group: RowGroup, used: int) -> None:
        """Pages may be larger than writers usually make them, which nothing says before they are read."""
        if used > self.budget.total:
            needed = self.budget.total + used
            raise InputError(
                f"{group} has pages so large that reading takes {in_words(used)}, more than memory="
                f"{in_words(self.budget.total)}. Pass memory='{-(-needed // 10**6)}MB', or write smaller pages."
            )

    def place_of(self, row: int) -> str:
        """File, row group and row in it."""
        group = next(group for group in reversed(self.groups) if group.start <= row)
        return f"{group} (row {row - group.start} of it)"

    def _whole_column(self, name: str) -> Array:
        import pyarrow as pa

        parts: list[Any] = []
        kind = None
        for path, groups in itertools.groupby(self.groups, key=lambda group: group.path):
            with opened(path) as file:
                found = plain_schema(file.schema_arrow)[name]
                if kind is not None and found != kind:
                    raise InputError(
                        f"{path}: column {name!r} is of type {found}; in {self.groups[0].path} it is {kind}. Write "
                        "them alike."
                    )
                kind = found
                for group in groups:
                    parts += [decoded(batch.column(0)) for batch in batches(file, group, [name], 2**16)]
        column = pa.chunked_array(parts)
        if len(column) != self.budget.rows:
            raise InputError(f"{self.name}: column {name!r} has {len(column)} values for {self.budget.rows} rows.")
        return as_labels(column)


def _files(paths: Sequence[Path]) -> str:
    return f"{paths[0]} has" if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more have"
