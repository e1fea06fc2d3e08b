"""Tables from Parquet files: read into memory, or left in their files with a budget."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unspur._extras import require
from unspur._typing import Array
from unspur.embed.memory import available_memory
from unspur.exceptions import InputError
from unspur.io.table import Table, no_features, require_known
from unspur.rows.names import index_columns, listed, require_distinct, require_labels, some
from unspur.rows.parquet import ParquetRows, said, unreadable
from unspur.rows.stored import in_words


def read_parquet(files: Sequence[Path], labels: tuple[str, ...], ignore: tuple[str, ...]) -> Table:
    """All rows of some files in memory.

    A column of lists holds the features, if there is one that is not a label; the other columns then go with the rows.
    Else all columns are features that are neither labels nor ignored.
    """
    for path in files:
        schema = parquet_schema(path)
        require_labels(path, schema.names, labels_inside(schema, labels))
    _require_memory(files)
    parts = [_one(path, labels, ignore) for path in files]
    parts = [part for part in parts if len(part.Z)] or parts[:1]  # without rows nothing says how long lists are
    first = parts[0]
    if len(parts) == 1:
        return first
    for part in parts[1:]:
        if (part.features, part.Z.shape[1], list(part.columns)) != (
            first.features, first.Z.shape[1], list(first.columns),
        ):  # fmt: skip
            raise InputError(
                f"{part.path} has {part.Z.shape[1]} features and the columns {some(list(part.columns))}; {first.path} "
                f"has {first.Z.shape[1]} and {some(list(first.columns))}. All files need the same."
            )
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in first.columns}
    return Table(first.path, np.concatenate([part.Z for part in parts]), first.features, columns)


def stored_parquet(
    files: Sequence[Path], labels: tuple[str, ...], ignore: tuple[str, ...], memory: str, options: dict[str, Any]
) -> Table:
    """The same rows, read when they are needed; of other columns only labels are read."""
    schema = parquet_schema(files[0])
    named = labels_inside(schema, labels)
    require_labels(files[0], schema.names, named)
    require_known(files[0], list(schema.names), ignore)
    features = feature_columns(files[0], schema, (*named, *ignore))
    rows = ParquetRows(files, features=features, labels=named, memory=memory, **options)
    return Table(files[0], rows, rows.feature_names, {name: rows.column(name) for name in dict.fromkeys(named)})


def labels_inside(schema: Any, labels: Sequence[str]) -> list[str]:
    """Labels that a Parquet file must have: all but those that are .npy files of their own."""
    return [name for name in labels if name in schema.names or not name.endswith(".npy")]


def feature_columns(path: Path, schema: Any, apart: Sequence[str]) -> list[str]:
    """The only column of lists, or all columns that are not set apart and no index of pandas."""
    import pyarrow as pa

    features = [name for name in schema.names if name not in {*apart, *index_columns(schema)}]
    lists = [name for name in features if _is_list(schema.field(name).type)]
    if len(lists) > 1:
        raise InputError(f"{path} has several columns of lists: {some(lists)}. Name all but one with --ignore.")
    features = lists or features
    numbers = (pa.types.is_floating, pa.types.is_integer)
    text = [name for name in features if not lists and not any(is_one(schema.field(name).type) for is_one in numbers)]
    if text:
        are = "columns {} are not numbers" if len(text) > 1 else "column {} is not of numbers"
        raise InputError(f"{path}: {are.format(some(text))}. {no_features(text)}")
    if not features:
        raise InputError(f"{path} has no feature columns besides {listed(schema.names)}.")
    return features


def _one(path: Path, labels: tuple[str, ...], ignore: tuple[str, ...]) -> Table:
    parquet = _module()
    try:
        table = parquet.read_table(path, partitioning=None)
    except unreadable() as error:
        raise InputError(f"{path} cannot be read as Parquet: {said(error)}") from error
    require_known(path, table.column_names, ignore)
    index = index_columns(table.schema)
    features = feature_columns(path, table.schema, (*labels, *ignore))
    if _is_list(table.schema.field(features[0]).type):
        aside = [name for name in table.column_names if name not in {*features, *ignore, *index}]
        z: Array = _lists(path, features[0], table[features[0]])
        names = None
    else:
        aside = [name for name in table.column_names if name in labels]
        z, names = np.column_stack([table[name].to_numpy() for name in features]), features
    return Table(path, z, names, {name: _label(table[name]) for name in aside})


def _label(column: Any) -> Array:
    """A column that goes along with the rows as it is: whole numbers stay whole where some are missing (None)."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return np.asarray(column.to_pandas(integer_object_nulls=True))


def _lists(path: Path, name: str, column: Any) -> Array:
    """Rows (n, d) from a column of lists."""
    column = column.combine_chunks()
    if column.null_count:
        raise InputError(f"{path}: column {name!r} is null in {column.null_count} rows. Drop them or fill them in.")
    values = column.flatten()
    width = getattr(column.type, "list_size", len(values) // max(1, len(column)))
    lengths = np.full(len(column), width) if hasattr(column.type, "list_size") else np.diff(column.offsets.to_numpy())
    if len(column) and np.any(lengths != lengths[0]):
        raise InputError(
            f"{path}: column {name!r} has lists of {lengths.min()} to {lengths.max()} numbers. All rows need the same "
            "length."
        )
    if values.null_count:
        raise InputError(f"{path}: column {name!r} has {values.null_count} nulls. Drop those rows or fill them in.")
    z = values.to_numpy(zero_copy_only=False).reshape(len(column), width)
    return z.astype(np.float32) if z.dtype == np.float16 else z


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_one(kind) for is_one in lists) and bool(
        pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)
    )


def parquet_schema(path: Path) -> Any:
    """The columns of a file, of different names, with their types."""
    parquet = _module()
    try:
        schema = parquet.read_schema(path)
    except unreadable() as error:
        raise InputError(f"{path} cannot be read as Parquet: {said(error)}") from error
    require_distinct(path, schema.names)
    return schema


def _require_memory(files: Sequence[Path]) -> None:
    """Refuse what would take more than half of the memory there is, before it is read."""
    parquet = _module()
    size = 0
    for path in files:
        try:
            metadata = parquet.read_metadata(path)
        except unreadable() as error:
            raise InputError(f"{path} cannot be read as Parquet: {said(error)}") from error
        size += sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    free = available_memory()
    if free is not None and size > free / 2:
        raise InputError(
            f"{files[0]}{f' and {len(files) - 1} more' if len(files) > 1 else ''} would take {in_words(size)} of the "
            f"{in_words(free)} of memory that are free. Pass --memory 1GB to leave the rows in their files."
        )


def _module() -> Any:
    require("Parquet files need", "pyarrow", "pandas")
    from pyarrow import parquet

    return parquet
