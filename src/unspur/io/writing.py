"""Rows and labels written to a file of the kind its name says."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from unspur._extras import require
from unspur._typing import Array
from unspur.exceptions import InputError
from unspur.io.artifact import atomic
from unspur.io.table import KINDS, Table, words_of
from unspur.rows.names import PARQUET, some


def write_rows(table: Table, output: str | Path, *, overwrite: bool = False) -> None:
    """Write rows and labels to a file of the kind its name says."""
    output = Path(output)
    kind = output.suffix.lower()
    if kind not in KINDS:
        raise InputError(f"{output}: unknown kind of file; known are {', '.join(KINDS)}.")
    written = replace(table, features=table.features or [f"z{i}" for i in range(table.Z.shape[1])])
    if kind in (".csv", *PARQUET):
        assert written.features is not None
        odd = [name for name, column in table.columns.items() if column.shape != (len(table.Z),)]
        if odd:
            raise InputError(f"{output}: {some(odd)} has not one value per row. Use --ignore, or write .npz.")
        clash = [name for name in table.columns if name in written.features]
        if clash:
            raise InputError(f"{output}: {some(clash)} is the name of a label and of a feature. Rename one.")
    if kind == ".npz" and table.array in table.columns:
        raise InputError(
            f"{output}: {table.array!r} is the name of a label and, in a .npz, of the rows. Rename the label, or write "
            ".csv or .parquet."
        )
    writers = {".npy": _write_npy, ".npz": _write_npz, ".csv": _write_csv, **dict.fromkeys(PARQUET, _write_parquet)}
    with atomic(output, overwrite=overwrite) as temporary:
        writers[kind](written, temporary)


def _write_npy(table: Table, path: Path) -> None:
    with path.open("wb") as file:  # a name would get .npy appended
        np.save(file, table.Z, allow_pickle=False)


def _write_npz(table: Table, path: Path) -> None:
    arrays = {table.array: table.Z, **{name: _without_objects(column) for name, column in table.columns.items()}}
    with ZipFile(path, "w") as archive:  # numpy.savez has names of its own that arrays cannot have
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)


def _without_objects(column: Array) -> Array:
    """A label column as .npz can hold it: numbers with gaps as NaN, others with gaps as texts, empty ones for gaps.

    Others are also whole numbers that floating-point ones cannot tell from their neighbours.
    """
    if column.dtype != object:
        return column
    gaps = [value is None or value != value for value in column]
    known = [value for value, gap in zip(column, gaps, strict=True) if not gap]
    if all(isinstance(value, int | float | np.number) and float(value) == value for value in known):
        return np.array([np.nan if gap else value for value, gap in zip(column, gaps, strict=True)], dtype=np.float64)
    return np.array(["" if gap else str(value) for value, gap in zip(column, gaps, strict=True)])


def _write_csv(table: Table, path: Path) -> None:
    assert table.features is not None
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*table.columns, *table.features])
        labels = [words_of(column) for column in table.columns.values()]
        for i, row in enumerate(table.Z):
            writer.writerow([*(label[i] for label in labels), *row.tolist()])


def _write_parquet(table: Table, path: Path) -> None:
    require("Parquet files need", "pyarrow")
    import pyarrow as pa
    from pyarrow import parquet

    assert table.features is not None
    columns = {name: pa.array(column, from_pandas=True) for name, column in table.columns.items()}
    columns |= {name: pa.array(np.ascontiguousarray(table.Z[:, i])) for i, name in enumerate(table.features)}
    parquet.write_table(pa.table(columns), path)
