"""Embeddings and labels from files: ``.npy``, ``.npz``, ``.csv`` and ``.parquet``; and rows written back."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from unspur._typing import Array
from unspur.exceptions import InputError
from unspur.io import atomic
from unspur.rows.memmap import open_npy

KINDS = (".npy", ".npz", ".csv", ".parquet")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows Z with the names of their features (None for unnamed arrays) and the columns that are not features."""

    path: Path
    Z: Array
    features: list[str] | None
    columns: dict[str, Array]

    def label(self, name: str) -> Array:
        """A label: a column or array of this file, or a one-dimensional ``.npy`` file of its own."""
        if name in self.columns:
            return self.columns[name]
        if name.endswith(".npy") and Path(name).is_file():
            return _load_npy_label(Path(name))
        known = ", ".join(self.columns) or "none"
        hint = "Labels of a .npy file are .npy files themselves." if self.path.suffix == ".npy" else ""
        raise InputError(f"{self.path} has no label {name!r} (it has: {known}). {hint}".rstrip())


def read_table(path: str | Path, labels: tuple[str, ...] = (), ignore: tuple[str, ...] = ()) -> Table:
    """Read rows and labels; `labels` and `ignore` name columns that are not features."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty.")
    readers = {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_csv, ".parquet": _read_parquet}
    if path.suffix not in readers:
        raise InputError(f"{path}: unknown kind of file; known are {', '.join(KINDS)}.")
    table = readers[path.suffix](path, labels, ignore)
    if len(table.Z) == 0:
        raise InputError(f"{path} has no rows.")
    return table


def _read_npy(path: Path, labels: tuple[str, ...], ignore: tuple[str, ...]) -> Table:  # noqa: ARG001
    return Table(path, open_npy(path), None, {})


def _load_npy_label(path: Path) -> Array:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{path} cannot be read as a .npy file of labels: {error}.") from error


def _read_npz(path: Path, labels: tuple[str, ...], ignore: tuple[str, ...]) -> Table:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files if name not in ignore}
    except (ValueError, EOFError, BadZipFile, OSError) as error:
        raise InputError(f"{path} cannot be read as a .npz file: {error}.") from error
    wide = [name for name, array in arrays.items() if array.ndim == 2 and name not in labels]
    rows = "Z" if "Z" in wide else wide[0] if len(wide) == 1 else None
    if rows is None:
        found = ", ".join(wide) or "none"
        raise InputError(f"{path} needs one two-dimensional array, or one named Z; found: {found}.")
    return Table(path, arrays.pop(rows), None, arrays)


def _read_csv(path: Path, labels: tuple[str, ...], ignore: tuple[str, ...]) -> Table:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.reader(file)
            header = next(lines)
            if next(lines, None) is None:
                raise InputError(f"{path} has a header but no rows.")
    except (UnicodeDecodeError, csv.Error, StopIteration) as error:
        raise InputError(f"{path} cannot be read as CSV: {error!r}.") from error
    aside = [name for name in header if name in labels]
    features = [name for name in header if name not in labels and name not in ignore]
    where = {name: i for i, name in enumerate(header)}

    def columns(names: list[str], dtype: Any) -> Array:
        return np.loadtxt(
            path, dtype=dtype, delimiter=",", skiprows=1, usecols=[where[name] for name in names], ndmin=2,
            quotechar='"', encoding="utf-8", comments=None,
        )  # fmt: skip

    if not features:
        raise InputError(f"{path} has no feature columns besides {', '.join(header)}.")
    try:
        z = columns(features, np.float64)
        texts = columns(aside, str) if aside else np.empty((len(z), 0), dtype=str)
    except ValueError as error:
        raise InputError(
            f"{path}: {error}. Name text columns with --ignore; every row needs {len(header)} fields."
        ) from error
    return Table(path, z, features, {name: _numbers_if_possible(texts[:, i]) for i, name in enumerate(aside)})


def _numbers_if_possible(texts: Array) -> Array:
    """A label column read as text: numbers where all of it is, with empty fields as gaps."""
    empty = texts == ""
    try:
        numbers = np.full(len(texts), np.nan)
        numbers[~empty] = texts[~empty].astype(np.float64)
    except ValueError:
        return np.where(empty, None, texts.astype(object)) if empty.any() else texts
    return numbers if empty.any() or not np.all(numbers == np.round(numbers)) else numbers.astype(np.int64)


def _read_parquet(path: Path, labels: tuple[str, ...], ignore: tuple[str, ...]) -> Table:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise InputError("Parquet files need pyarrow: pip install 'unspur[data]'.") from error
    try:
        table = parquet.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as Parquet: {error}.") from error
    aside = [name for name in table.column_names if name in labels]
    features = [name for name in table.column_names if name not in labels and name not in ignore]
    text = [
        name
        for name in features
        if not (pa.types.is_floating(t := table.schema.field(name).type) or pa.types.is_integer(t))
    ]
    if text:
        raise InputError(f"{path}: columns {', '.join(text)} are not numbers. Name them with --ignore, or as labels.")
    if not features:
        raise InputError(f"{path} has no feature columns besides {', '.join(table.column_names)}.")
    z = np.column_stack([table[name].to_numpy() for name in features])
    return Table(path, z, features, {name: np.asarray(table[name].to_pandas()) for name in aside})


def write_rows(table: Table, z: Array, output: str | Path, *, overwrite: bool = False) -> None:
    """Write rows `z` with the labels of `table` to a file of the kind its name says."""
    output = Path(output)
    if output.suffix not in KINDS:
        raise InputError(f"{output}: unknown kind of file; known are {', '.join(KINDS)}.")
    names = table.features or [f"z{i}" for i in range(z.shape[1])]
    written = replace(table, Z=z, features=names)
    writers = {".npy": _write_npy, ".npz": _write_npz, ".csv": _write_csv, ".parquet": _write_parquet}
    with atomic(output, overwrite=overwrite) as temporary:
        writers[output.suffix](written, temporary)


def _write_npy(table: Table, path: Path) -> None:
    np.save(path, table.Z, allow_pickle=False)


def _write_npz(table: Table, path: Path) -> None:
    labels = {name: column.astype(str) if column.dtype == object else column for name, column in table.columns.items()}
    np.savez(path, Z=table.Z, **labels)


def _write_csv(table: Table, path: Path) -> None:
    assert table.features is not None
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*table.columns, *table.features])
        labels = [np.asarray(column).tolist() for column in table.columns.values()]
        for i, row in enumerate(table.Z):
            writer.writerow([*(label[i] for label in labels), *row.tolist()])


def _write_parquet(table: Table, path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    assert table.features is not None
    columns = {name: pa.array(column) for name, column in table.columns.items()}
    columns |= {name: pa.array(np.ascontiguousarray(table.Z[:, i])) for i, name in enumerate(table.features)}
    parquet.write_table(pa.table(columns), path)
