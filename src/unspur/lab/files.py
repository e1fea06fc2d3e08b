"""Embeddings and labels from files: ``.npy``, ``.npz``, ``.csv`` and ``.parquet``; and rows written back."""

from __future__ import annotations

import csv
import tokenize
import warnings
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from unspur._typing import Array, FloatArray
from unspur.exceptions import InputError, NotFiniteError
from unspur.io import atomic
from unspur.removers import Remover
from unspur.rows import Columns, MemoryRows
from unspur.sums.moments import ColumnFaults

KINDS = (".npy", ".npz", ".csv", ".parquet")
#: What reading a damaged or foreign NumPy file can raise.
DAMAGED = (ValueError, EOFError, OSError, TypeError, NotImplementedError, BadZipFile, zlib.error, tokenize.TokenError)


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
            return _load_npy(Path(name), "labels")
        known = ", ".join(self.columns) or "none"
        hint = "Labels of a .npy file are .npy files themselves." if self.path.suffix.lower() == ".npy" else ""
        raise InputError(f"{self.path} has no label {name!r} (it has: {known}). {hint}".rstrip())

    def like(self, names: Sequence[str] | None, n_features: int) -> Table:
        """The features that a removal was fitted on, in its order; by name where both sides have names."""
        if names is not None and self.features is not None:
            missing = [name for name in names if name not in self.features]
            if missing:
                raise InputError(f"{self.path} lacks the columns {_some(missing)} that the removal was fitted on.")
            strange = [name for name in self.features if name not in set(names)]
            if strange:
                raise InputError(
                    f"{self.path} has columns {_some(strange)} that the removal does not know. Name labels with "
                    "--label, and other columns with --ignore."
                )
            order = [self.features.index(name) for name in names]
            z = self.Z if order == list(range(len(order))) else self.Z[:, order]
            return replace(self, Z=z, features=list(names))
        if self.Z.shape[1] != n_features:
            raise InputError(f"{self.path} has {self.Z.shape[1]} features; the removal was fitted on {n_features}.")
        return self


def apply_removal(remover: Remover, table: Table) -> Table:
    """The table with its rows cleaned."""
    names = getattr(remover, "feature_names_in_", None)
    table = table.like(names, remover.n_features_in_)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")  # they were matched above
        return replace(table, Z=remover.transform(table.Z))


def _some(names: list[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def read_table(path: str | Path, labels: tuple[str, ...] = (), ignore: tuple[str, ...] = ()) -> Table:
    """Read rows and labels; `labels` and `ignore` name columns that are not features."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file.")
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


def _read_npy(path: Path, labels: tuple[str, ...], ignore: tuple[str, ...]) -> Table:
    if ignore:
        raise InputError(f"{path} has no named columns, so there is no {_some(list(ignore))} to ignore.")
    del labels  # they are files of their own
    return Table(path, _load_npy(path, "rows", mmap_mode="r"), None, {})


def _load_npy(path: Path, what: str, **options: Any) -> Array:
    try:
        array = np.load(path, allow_pickle=False, **options)
    except DAMAGED as error:
        raise InputError(f"{path} cannot be read as a .npy file of {what}: {_first_sentence(error)}") from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path} is named .npy but is another kind of file. Write it with numpy.save.")
    return array


def _first_sentence(error: BaseException) -> str:
    """What NumPy says went wrong, without its advice to unpickle."""
    text = str(error).split("\n")[0]
    if "pickle" in text.lower():
        return "it holds Python objects, or is no NumPy file at all. Write plain arrays with numpy.save or numpy.savez."
    return text[:200].rstrip(".") + "."


def _read_npz(path: Path, labels: tuple[str, ...], ignore: tuple[str, ...]) -> Table:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            _require_known(path, list(archive.files), ignore)
            arrays = {name: archive[name] for name in archive.files if name not in ignore}
    except DAMAGED as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read as a .npz file: {_first_sentence(error)}") from error
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
        raise InputError(f"{path} has no {_some(strange)} to ignore (it has: {', '.join(names[:20])}).")


def _require_distinct(path: Path, header: list[str]) -> None:
    if "" in header:
        raise InputError(f"{path}: column {header.index('') + 1} has no name; a row number? Drop it, or name it.")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise InputError(f"{path} has several columns named {_some(twice)}. Rename or drop them.")


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
    columns = {header[i]: _label_column([text[k] for text in texts]) for k, i in enumerate(aside)}
    return Table(path, np.stack(rows), [header[i] for i in wanted], columns)


def _number(field: str, path: Path, name: str) -> float:
    try:
        return float(field) if field.strip() else float("nan")
    except ValueError:
        raise InputError(
            f"{path}: column {name!r} holds {field!r}, which is not a number. Name labels with --label, --main or "
            "--concept, and other columns of text with --ignore."
        ) from None


def _label_column(fields: list[str]) -> Array:
    """A label column read as text: whole numbers where all of it is, with empty fields as gaps."""
    gap = np.array([field == "" for field in fields])
    whole = [field for field in fields if field]
    # Only what is written as str(int) would write it: 01 and 1 may be two classes, and so may 2**53 and 2**53 + 1.
    if whole and all(field.lstrip("-").isascii() and field == str(_int(field)) for field in whole):
        return np.array([int(field) if field else None for field in fields], dtype=object if gap.any() else np.int64)
    texts = np.array(fields, dtype=object)
    texts[gap] = None
    return texts if gap.any() else texts.astype(str)


def _int(field: str) -> int | None:
    try:
        value = int(field)
    except ValueError:
        return None
    return value if -(2**63) <= value < 2**63 else None


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
        raise InputError(f"{path}: columns {_some(text)} are not numbers. Name them with --ignore, or as labels.")
    if not features:
        raise InputError(f"{path} has no feature columns besides {', '.join(table.column_names)}.")
    z = np.column_stack([table[name].to_numpy() for name in features])
    return Table(path, z, features, {name: np.asarray(table[name].to_pandas()) for name in aside})


def write_rows(table: Table, output: str | Path, *, overwrite: bool = False) -> None:
    """Write rows and labels to a file of the kind its name says."""
    output = Path(output)
    kind = output.suffix.lower()
    if kind not in KINDS:
        raise InputError(f"{output}: unknown kind of file; known are {', '.join(KINDS)}.")
    written = replace(table, features=table.features or [f"z{i}" for i in range(table.Z.shape[1])])
    if kind in (".csv", ".parquet"):
        assert written.features is not None
        odd = [name for name, column in table.columns.items() if column.shape != (len(table.Z),)]
        if odd:
            raise InputError(f"{output}: {_some(odd)} has not one value per row. Use --ignore, or write .npz.")
        clash = [name for name in table.columns if name in written.features]
        if clash:
            raise InputError(f"{output}: {_some(clash)} is the name of a label and of a feature. Rename one.")
    writers = {".npy": _write_npy, ".npz": _write_npz, ".csv": _write_csv, ".parquet": _write_parquet}
    with atomic(output, overwrite=overwrite) as temporary:
        writers[kind](written, temporary)


def _write_npy(table: Table, path: Path) -> None:
    with path.open("wb") as file:  # a name would get .npy appended
        np.save(file, table.Z, allow_pickle=False)


def _write_npz(table: Table, path: Path) -> None:
    arrays = {"Z": table.Z, **{name: _without_objects(column) for name, column in table.columns.items()}}
    with ZipFile(path, "w") as archive:  # numpy.savez has names of its own that arrays cannot have
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)


def _without_objects(column: Array) -> Array:
    """A label column as .npz can hold it: numbers with gaps as NaN, texts with gaps as empty texts."""
    if column.dtype != object:
        return column
    gaps = [value is None or value != value for value in column]
    known = [value for value, gap in zip(column, gaps, strict=True) if not gap]
    if all(isinstance(value, int | float | np.number) for value in known):
        return np.array([np.nan if gap else value for value, gap in zip(column, gaps, strict=True)], dtype=np.float64)
    return np.array(["" if gap else str(value) for value, gap in zip(column, gaps, strict=True)])


def _write_csv(table: Table, path: Path) -> None:
    assert table.features is not None
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*table.columns, *table.features])
        labels = [["" if v is None or v != v else v for v in column.tolist()] for column in table.columns.values()]
        for i, row in enumerate(table.Z):
            writer.writerow([*(label[i] for label in labels), *row.tolist()])


def _write_parquet(table: Table, path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    assert table.features is not None
    columns = {name: pa.array(column, from_pandas=True) for name, column in table.columns.items()}
    columns |= {name: pa.array(np.ascontiguousarray(table.Z[:, i])) for i, name in enumerate(table.features)}
    parquet.write_table(pa.table(columns), path)
