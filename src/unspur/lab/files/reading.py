"""Tables from files (``.npy``, ``.npz``, ``.csv``, ``.parquet``) and from embedding stores."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from unspur._typing import Array, FloatArray
from unspur.exceptions import InputError, NotFiniteError
from unspur.lab.datasets.examples import label_column
from unspur.lab.encoders.store import EmbeddingStore
from unspur.lab.files.table import DAMAGED, KINDS, Table, first_sentence, load_npy, some
from unspur.rows import Columns, MemoryRows
from unspur.sums.moments import ColumnFaults


def read_table(path: str | Path, labels: tuple[str, ...] = (), ignore: tuple[str, ...] = ()) -> Table:
    """Read rows and labels; `labels` and `ignore` name columns that are not features.

    A folder is an embedding store: its rows stay in their file, and its ids and labels become columns.
    """
    path = Path(path)
    if path.is_dir():
        return _read_store(path, ignore)
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty.")
    readers = {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_csv, ".parquet": _read_parquet}
    if path.suffix.lower() not in readers:
        raise InputError(f"{path}: unknown kind of file; known are {', '.join(KINDS)}.")
    table = readers[path.suffix.lower()](path, labels, ignore)
    if table.Z.ndim != 2 or table.Z.dtype.kind not in "biuf" or table.Z.shape[1] == 0:
        raise InputError(
            f"{path} holds {table.Z.dtype} of shape {table.Z.shape}; rows must be numbers of shape (n, d)."
        )
    if len(table.Z) == 0:
        raise InputError(f"{path} has no rows.")
    if table.features is not None:
        none = np.zeros(len(table.Z), dtype=np.intp)
        faults = ColumnFaults.of(MemoryRows(table.Z, Columns.of(none, none)))
        if faults:
            found = faults.describe(table.features)
            raise NotFiniteError(f"{path} must be finite; found {found}. Drop those rows or fill the values in.")
    return table


def _read_store(folder: Path, ignore: tuple[str, ...]) -> Table:
    store = EmbeddingStore.open(folder)
    columns = {"id": np.array(store.ids), **store.labels}
    _require_known(folder, list(columns), ignore)
    wanted = {
        name: _with_gaps(column.tolist()) if column.dtype.kind == "U" else column
        for name, column in columns.items()
        if name not in ignore
    }
    half = store.rows.dtype == np.float16  # kept in memory as float32; others stay on the disk
    return Table(folder, store.rows.astype(np.float32) if half else store.rows, None, wanted)


def _read_npy(path: Path, labels: tuple[str, ...], ignore: tuple[str, ...]) -> Table:
    if ignore:
        raise InputError(f"{path} has no named columns, so there is no {some(list(ignore))} to ignore.")
    del labels  # they are files of their own
    return Table(path, load_npy(path, "rows", mmap_mode="r"), None, {})


def _read_npz(path: Path, labels: tuple[str, ...], ignore: tuple[str, ...]) -> Table:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            _require_known(path, list(archive.files), ignore)
            arrays = {name: archive[name] for name in archive.files if name not in ignore}
    except DAMAGED as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read as a .npz file: {first_sentence(error)}") from error
    wide = [name for name, array in arrays.items() if array.ndim == 2 and name not in labels]
    rows = "Z" if "Z" in wide else wide[0] if len(wide) == 1 else None
    if rows is None:
        found = ", ".join(wide) or "none"
        raise InputError(f"{path} needs one two-dimensional array, or one named Z; found: {found}.")
    z = arrays.pop(rows)
    return Table(path, z, None, {name: _gaps_marked(array) for name, array in arrays.items()})


def _gaps_marked(array: Array) -> Array:
    """Texts of a .npz, which can hold no gaps, with empty ones as gaps."""
    if array.dtype.kind != "U" or not (empty := array == "").any():
        return array
    return np.where(empty, None, array.astype(object))


def _require_known(path: Path, names: list[str], ignore: tuple[str, ...]) -> None:
    """Names to ignore that are not there are slips of the pen."""
    strange = [name for name in ignore if name not in names]
    if strange:
        raise InputError(f"{path} has no {some(strange)} to ignore (it has: {', '.join(names[:20])}).")


def _require_distinct(path: Path, header: list[str]) -> None:
    if "" in header:
        raise InputError(f"{path}: column {header.index('') + 1} has no name; a row number? Drop it, or name it.")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise InputError(f"{path} has several columns named {some(twice)}. Rename or drop them.")


def _read_csv(path: Path, labels: tuple[str, ...], ignore: tuple[str, ...]) -> Table:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file)
            header = next(lines)
            _require_distinct(path, header)
            _require_known(path, header, ignore)
            return _csv_rows(path, header, lines, labels, ignore)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start}). Save it as UTF-8.") from error
    except (csv.Error, StopIteration) as error:
        raise InputError(f"{path} cannot be read as CSV: {str(error) or 'it has no lines'}.") from error


def _csv_rows(
    path: Path, header: list[str], lines: Iterable[list[str]], labels: tuple[str, ...], ignore: tuple[str, ...]
) -> Table:
    unknown = [name for name in labels if name not in header and not name.endswith(".npy")]
    if unknown:
        hint = " Fields are separated by commas." if len(header) == 1 else ""
        raise InputError(f"{path} has no label {unknown[0]!r} (its columns: {', '.join(header[:20])}).{hint}")
    aside = [i for i, name in enumerate(header) if name in labels]
    wanted = [i for i, name in enumerate(header) if name not in labels and name not in ignore]
    if not wanted:
        raise InputError(f"{path} has no feature columns besides {', '.join(header)}.")
    rows: list[FloatArray] = []
    texts: list[list[str]] = []
    for line in filter(None, lines):
        if len(line) != len(header):
            raise InputError(f"{path}: row {len(rows) + 1} has {len(line)} fields; the header has {len(header)}.")
        try:
            rows.append(np.array([line[i] for i in wanted], dtype=np.float64))
        except ValueError:  # an empty field, or none that is a number
            rows.append(np.array([_number(line[i], path, header[i]) for i in wanted]))
        texts.append([line[i] for i in aside])
    if not rows:
        raise InputError(f"{path} has a header but no rows.")
    columns = {header[i]: _with_gaps([text[k] for text in texts]) for k, i in enumerate(aside)}
    return Table(path, np.stack(rows), [header[i] for i in wanted], columns)


def _number(field: str, path: Path, name: str) -> float:
    try:
        return float(field) if field.strip() else float("nan")
    except ValueError:
        raise InputError(
            f"{path}: column {name!r} holds {field!r}, which is not a number. Name labels with --label, --main or "
            "--concept, and other columns of text with --ignore."
        ) from None


def _with_gaps(fields: list[str]) -> Array:
    """A label column read as text, with empty fields as gaps."""
    known = label_column([field for field in fields if field])
    if len(known) == len(fields):
        return known
    column = np.full(len(fields), None, dtype=object)
    column[[field != "" for field in fields]] = known.tolist()
    return column


def _read_parquet(path: Path, labels: tuple[str, ...], ignore: tuple[str, ...]) -> Table:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise InputError("Parquet files need pyarrow: pip install 'unspur[data]'.") from error
    try:
        table = parquet.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as Parquet: {str(error)[:200]}.") from error
    _require_distinct(path, table.column_names)
    _require_known(path, table.column_names, ignore)
    # What pandas adds to keep an index is not a feature.
    index = {name for name in (table.schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)}
    aside = [name for name in table.column_names if name in labels]
    features = [name for name in table.column_names if name not in {*labels, *ignore, *index}]
    text = [
        name
        for name in features
        if not (pa.types.is_floating(t := table.schema.field(name).type) or pa.types.is_integer(t))
    ]
    if text:
        raise InputError(f"{path}: columns {some(text)} are not numbers. Name them with --ignore, or as labels.")
    if not features:
        raise InputError(f"{path} has no feature columns besides {', '.join(table.column_names)}.")
    z = np.column_stack([table[name].to_numpy() for name in features])
    return Table(path, z, features, {name: np.asarray(table[name].to_pandas()) for name in aside})
