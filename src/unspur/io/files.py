"""Tables read from files, folders of them and embedding stores, and written to files.

::

    .npy .npz .csv .tsv .csv.gz .parquet ─┐
                                          ├─ read_table ──▶ Table ── write_rows ──▶ .npy .npz .csv .parquet
    embedding store ──────────────────────┘
"""

from __future__ import annotations

import csv
import glob
import math
import shlex
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from lzma import LZMAError
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np

from unspur._arrays import is_missing
from unspur._extras import require
from unspur._files import atomic
from unspur._reading import (
    PARQUET,
    TEXT_TABLES,
    column_faults,
    csv_table,
    first_names,
    quoted,
    require_distinct,
    require_labels,
    require_npy,
    suffix_of,
)
from unspur._text import brief
from unspur._typing import Array, FloatArray
from unspur.embed.examples import column_with_missing
from unspur.embed.store import EmbeddingStore, is_store
from unspur.embed.tables import IMAGE, PICTURE_SUFFIXES, TEXT, require_memory
from unspur.exceptions import InputError, NotFiniteError
from unspur.io.parquet import label_like_fields, read_parquet
from unspur.io.table import (
    WHOLE_NUMBER,
    Table,
    as_strings,
    as_text,
    labels_inside,
    load_npy,
    name_of_rows_array,
    not_features_advice,
    require_known,
)
from unspur.rows import MemoryRows, RowLabels
from unspur.rows.backends import ARRAY_READERS, find_files, parquet_below
from unspur.rows.stored import NO_MEMORY_LIMIT
from unspur.solvers.statistics import count_not_finite

#: Files that are read as a whole; rows of `ARRAY_READERS` and of Parquet files can stay where they are.
IN_MEMORY_SUFFIXES = (".npz", *TEXT_TABLES)
#: Files that can be written. More kinds can be read: see `ARRAY_READERS`.
WRITABLE_FILES = (".npy", ".npz", ".csv", *PARQUET)
#: How pandas, R and spreadsheets write a missing value, besides an empty cell.
MISSING_VALUE_WORDS = frozenset(
    ("NA", "<NA>", "#NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None")
)
#: Characters of a field that a message shows.
MAX_VALUE_SHOWN = 40
#: Largest compression ratio of each method; a larger one means that the stated size is wrong.
MAX_COMPRESSION = {ZIP_STORED: 1, ZIP_DEFLATED: 1100}
#: What unpacking a damaged archive raises; an encrypted member raises RuntimeError.
_ZIP_ERRORS = (ValueError, EOFError, OSError, RuntimeError, NotImplementedError, BadZipFile, zlib.error, LZMAError)


def read_table(
    paths: str | Path | Sequence[str | Path],
    labels: tuple[str, ...] = (),
    ignore: tuple[str, ...] = (),
) -> Table:
    """Read rows and labels; `labels` and `ignore` name columns that are not features.

    A folder with a manifest is an embedding store: its rows stay in their file, and its ids and labels become columns.
    Parquet files may be several, a folder of them or a pattern.
    """
    given = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    path = given[0]
    if len(given) == 1 and path.is_dir() and not _holds_parquet(path):
        return _read_store(path, ignore)
    files = _files(given)
    path = files[0]
    kind = suffix_of(path)
    if kind in IN_MEMORY_SUFFIXES:
        table = (_read_npz if kind == ".npz" else _read_csv)(path, labels, ignore)
    elif kind in ARRAY_READERS:
        table = _read_single(path, ignore)
    else:
        table = read_parquet(files, labels, ignore)
    if table.Z.ndim == 2 and len(table.Z) == 0:
        raise InputError(f"{path} has no rows.")
    if table.Z.ndim != 2 or table.Z.dtype.kind not in "biuf" or table.Z.shape[1] == 0:
        raise InputError(
            f"{path} holds {table.Z.dtype} of shape {table.Z.shape}; rows must be numbers of shape (n, d)."
        )
    if table.features is not None:
        none = np.zeros(len(table.Z), dtype=np.intp)
        counts = count_not_finite(MemoryRows(table.Z, RowLabels.of(none, none)))
        if counts.any():
            found = column_faults(counts, table.features)
            raise NotFiniteError(f"{path} must be finite; found {found}. Drop those rows or fill the values in.")
    return table


def label_like_columns(path: str | Path) -> list[str]:
    """Columns of a text or Parquet table that do not look like features: text, whole numbers, and with empty cells.

    Numbers that are written with a decimal point look like features, also if all are whole. Of other files, in which
    features are apart, none are returned. Of several Parquet files, in a folder or by a pattern, the first is looked
    at.
    """
    path = Path(path)
    if path.is_dir() and not _holds_parquet(path):
        return []
    first = _files([path])[0]
    if suffix_of(first) in TEXT_TABLES:
        with csv_table(first) as (names, lines):
            return _label_like(names, lines)
    return label_like_fields(first) if suffix_of(first) in PARQUET else []


def _label_like(names: list[str], lines: Iterator[list[str]]) -> list[str]:
    other, whole = set[int](), set(range(len(names)))
    for line in lines:
        for i, field in enumerate(line):
            if (number := _number(field)) is None or math.isnan(number):
                other.add(i)
            elif i in whole and not field.strip().lstrip("+-").isdigit():
                whole.discard(i)
    return [name for i, name in enumerate(names) if i in other or i in whole]


def with_missing_values(table: Table, classes: Sequence[str], others: Sequence[str] = ()) -> tuple[Table, list[str]]:
    """The table with words such as "NA", and blanks, as missing values in columns of classes and in others; and notes.

    `Table.as_in_file` undoes it. Other columns do not change. Whole numbers in a text file are numbers, also if they
    are written as 1.0, as some programs write a column with missing values. Notes say what was read as missing, and
    which classes differ by white space or case alone; names of clusters may.
    """
    columns, undecoded, notes = dict(table.columns), dict(table.undecoded), []
    for name in (*classes, *others):
        if name not in columns and name.endswith(".npy"):  # a file of labels
            columns[name] = table.label(name)
        column = columns.get(name)
        if isinstance(column, np.ndarray):
            undecoded[name] = column
            column = columns[name] = as_text(column)
        if not isinstance(column, np.ndarray) or column.ndim != 1 or column.dtype.kind not in "UO":
            continue
        values = column.tolist()
        words = {value for value in values if isinstance(value, str)}
        missing = {word for word in words if word in MISSING_VALUE_WORDS or not word.strip()}
        is_text = suffix_of(table.path) in TEXT_TABLES or table.path.is_dir()  # where words may be numbers
        whole = is_text and all(WHOLE_NUMBER.fullmatch(word) for word in words - missing)
        numbers = {word: int(word.split(".")[0]) for word in words - missing} if whole else {}
        if missing or numbers:
            is_known = [value not in missing and value is not None for value in values]
            known = [numbers.get(value, value) for value, keep in zip(values, is_known, strict=True) if keep]
            columns[name] = np.array(known) if all(is_known) else np.full(len(values), None, dtype=object)
            columns[name][is_known] = known
        if missing:
            count = sum(value in missing for value in values)
            missing_words = sorted({repr(word) if word.strip() else "blank" for word in missing})
            notes.append(
                f"{count:,} of {len(values):,} cells of {name} in {table.path} are {' or '.join(missing_words)}, which "
                f"was read as missing. If it is a {'class' if name in classes else 'cluster'}, give it another name."
            )
        if name not in classes:
            continue
        by_letters: dict[str, list[str]] = {}
        for word in sorted(words - missing):
            by_letters.setdefault("".join(word.casefold().split()), []).append(word)
        if alike := next((group for group in by_letters.values() if len(group) > 1), None):
            spellings = [repr(word[:MAX_VALUE_SHOWN]) for word in alike[:5]]
            by = "white space and case"
            if len({"".join(word.split()) for word in alike}) == 1:
                by = "white space"
            elif len({word.casefold() for word in alike}) == 1:
                by = "case"
            notes.append(f"{name} in {table.path} has {' and '.join(spellings)}, classes that differ by {by} alone.")
    return replace(table, columns=columns, undecoded=undecoded), notes


def is_parquet(paths: Sequence[str | Path]) -> bool:
    """Whether names, folders and patterns stand for Parquet files."""
    given = [Path(path) for path in paths]
    if any(path.is_dir() and not _holds_parquet(path) for path in given):
        return False
    return _files(given)[0].suffix.lower() in PARQUET


def _files(given: Sequence[Path]) -> list[Path]:
    """The files that were named, with folders and patterns of Parquet files expanded."""
    alone = (*ARRAY_READERS, *IN_MEMORY_SUFFIXES)
    files: list[Path] = []
    for path in given:
        if path.is_file():
            if path.stat().st_size == 0:
                raise InputError(f"{path} is empty.")
            if suffix_of(path) not in (known := (*alone, *PARQUET)):
                raise InputError(f"{path}: unknown kind of file; known are {', '.join(known)}.")
            files.append(path)
        elif path.is_dir() or glob.has_magic(str(path)):
            files += find_files(path)
        else:
            raise InputError(f"There is no file {path}.")
    others = [path for path in files if suffix_of(path) in alone]
    if others and len(files) > 1:
        raise InputError(f"{others[0]} is one of {len(files)} files; only Parquet files can be read together.")
    return find_files(files)  # which refuses one that is named twice


def _holds_parquet(folder: Path) -> bool:
    """Whether a folder holds Parquet files, and not a store or an unfinished one."""
    return not is_store(folder) and any(True for _ in parquet_below(folder))


def _read_store(folder: Path, ignore: tuple[str, ...]) -> Table:
    store = EmbeddingStore.open(folder)
    columns = {"id": column_with_missing(store.ids), **store.labels}
    require_known(folder, list(columns), ignore)
    wanted = {name: column for name, column in columns.items() if name not in ignore}
    half = store.rows.dtype == np.float16  # kept in memory as float32; others stay on the disk
    return Table(folder, store.rows.astype(np.float32) if half else store.rows, None, wanted)


def _read_single(path: Path, ignore: tuple[str, ...]) -> Table:
    """The array of one of `ARRAY_READERS`; labels are files of their own."""
    if ignore:
        raise InputError(f"{path} has no named columns, so there is no {quoted(list(ignore))} to ignore.")
    kind = path.suffix.lower()
    if kind == ".npy":  # of which a map is an array
        return Table(path, load_npy(path, "rows", mapped=True), None, {})
    try:
        rows = ARRAY_READERS[kind](path, memory=NO_MEMORY_LIMIT)
    except OSError as error:
        raise InputError(f"{path} cannot be read as a {kind} file of rows: {brief(error)}.") from error
    size = len(rows) * rows.shape[1] * rows.dtype.itemsize
    require_memory(path, size, "Write the rows as .npy, which is memory-mapped.")
    return Table(path, rows.random_access_copy(), None, {})


def _read_npz(path: Path, labels: tuple[str, ...], ignore: tuple[str, ...]) -> Table:
    arrays = read_arrays(path, ignore)
    rows = name_of_rows_array(path, arrays, labels)
    z = arrays.pop(rows)
    for name, given in arrays.items():
        array = arrays[name] = as_text(given[:, 0] if given.shape == (len(z), 1) else given)
        if array.dtype.kind == "U" and (empty := array == "").any():  # the format has no missing values
            arrays[name] = np.where(empty, None, array.astype(object))
    return Table(path, z, None, arrays, array=rows)


def _read_csv(path: Path, labels: tuple[str, ...], ignore: tuple[str, ...]) -> Table:
    with csv_table(path) as (header, lines):
        if not header:
            raise InputError(f"{path} cannot be read as CSV: it has no lines.")
        require_distinct(path, header)
        require_known(path, header, ignore)
        require_labels(path, header, labels_inside(header, labels))
        aside = [i for i, name in enumerate(header) if name in labels]
        wanted = [i for i, name in enumerate(header) if name not in labels and name not in ignore]
        if not wanted:
            raise InputError(f"{path} has no feature columns besides {first_names(header)}.")
        rows: list[FloatArray] = []
        texts: list[list[str]] = []
        for line in lines:
            fields = [line[i] for i in wanted]
            try:
                rows.append(np.array(fields, dtype=np.float64))
            except ValueError:  # an empty field, or none that is a number
                rows.append(np.array([_number(field) for field in fields], dtype=np.float64))  # None becomes NaN
            if (np.isnan(rows[-1]).any() or "_" in "".join(fields)) and None in map(_number, fields):
                _refuse_text(path, {i: header[i] for i in wanted}, len(rows), chain([line], lines))
            texts.append([line[i] for i in aside])
    if not rows:
        raise InputError(f"{path} has a header but no rows.")
    columns = {header[i]: column_with_missing([text[k] for text in texts]) for k, i in enumerate(aside)}
    return Table(path, np.stack(rows), [header[i] for i in wanted], columns)


def _number(field: str) -> float | None:
    """A field as a number; NaN if it is empty, None if it is not a number."""
    if "_" in field:  # Python reads 1_000 as a number
        return None
    try:
        return float(field) if field.strip() else float("nan")
    except ValueError:
        return None


def _refuse_text(path: Path, names: dict[int, str], row: int, lines: Iterable[list[str]]) -> NoReturn:
    """Raise InputError that names the columns that hold text in `lines`, the first of which is `row`."""
    found: dict[str, str] = {}
    for line in lines:
        for i, name in names.items():
            if name not in found and _number(line[i]) is None:
                found[name] = line[i]
    (first, value), *others = found.items()
    shown = value if len(value) <= MAX_VALUE_SHOWN else f"{value[: MAX_VALUE_SHOWN - 1]}…"
    decimal = _number(value.replace(",", ".")) is not None
    names_of_others = quoted([name for name, _ in others])
    also = f" (column {names_of_others} also contains text)" if len(others) == 1 else ""
    also = f" (columns {names_of_others} also contain text)" if len(others) > 1 else also
    advice = "Write decimals with a point." if decimal else not_features_advice(list(found))
    if value.strip() in MISSING_VALUE_WORDS:
        advice = f"If it is a missing value, drop the row or fill it in. {advice}"
    elif first in (TEXT, IMAGE) or len(value.split()) > 3 or Path(value).suffix.lower() in PICTURE_SUFFIXES:
        advice = (
            "Texts and pictures are turned into numbers first, by the same network as all other rows: unspur embed "
            f"{shlex.quote(str(path))} --encoder NAME --output STORE. {advice}"
        )
    raise InputError(f"{path}: column {first!r} holds {shown!r} in row {row}, which is not a number{also}. {advice}")


def read_arrays(path: Path, ignore: tuple[str, ...]) -> dict[str, Array]:
    """Arrays of a .npz file by name, without those to ignore."""
    try:
        with ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            if len(members) < len(archive.infolist()):
                raise ValueError("it has several arrays of the same name")
            require_known(path, list(members), ignore)
            wanted = {name: info for name, info in members.items() if name not in ignore}
            largest = sorted(wanted.values(), key=lambda info: -info.file_size)
            require_memory(
                path,
                sum(info.file_size for info in largest),
                "Write its rows as .npy, which is memory-mapped.",
                f" (largest: {quoted([info.filename for info in largest[:2]])})",
            )
            return {name: _unpacked(archive, info) for name, info in wanted.items()}
    except InputError:
        raise
    except MemoryError as error:
        raise InputError(f"{path} does not fit into memory. Write its rows as .npy, which is memory-mapped.") from error
    except _ZIP_ERRORS as error:
        raise InputError(f"{path} cannot be read as a .npz file: {brief(error) or type(error).__name__}.") from error


def _unpacked(archive: ZipFile, info: ZipInfo) -> Array:
    size = info.file_size
    if size > MAX_COMPRESSION.get(info.compress_type, size) * max(1, info.compress_size):
        raise ValueError(f"{info.filename!r} claims {size:,} bytes, more than {info.compress_size:,} packed ones hold")
    try:
        with archive.open(info) as file:
            require_npy(file, size)
        with archive.open(info) as file:
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
    except ValueError as error:
        raise ValueError(f"{info.filename!r}: {error}") from error


def write_rows(table: Table, output: str | Path, *, overwrite: bool = False) -> None:
    """Write rows and labels to a file whose suffix says its kind."""
    output = Path(output)
    kind = output.suffix.lower()
    if kind not in WRITABLE_FILES:
        raise InputError(f"{output}: unknown kind of file; known are {', '.join(WRITABLE_FILES)}.")
    written = replace(table, features=table.features or [f"z{i}" for i in range(table.Z.shape[1])])
    if kind in (".csv", *PARQUET):
        assert written.features is not None
        odd = [name for name, column in table.columns.items() if column.shape != (len(table.Z),)]
        if odd:
            raise InputError(f"{output}: {quoted(odd)} does not have one value per row. Use --ignore, or write .npz.")
        clash = [name for name in table.columns if name in written.features]
        if clash:
            raise InputError(f"{output}: {quoted(clash)} is the name of a label and of a feature. Rename one.")
    if kind == ".npz" and table.array in table.columns:
        raise InputError(
            f"{output}: {table.array!r} is the name of a label and, in a .npz, of the rows. Rename the label, or write "
            ".csv or .parquet."
        )
    writers = {".npy": _write_npy, ".npz": _write_npz, ".csv": _write_csv, **dict.fromkeys(PARQUET, _write_parquet)}
    with atomic(output, overwrite=overwrite) as temporary:
        writers[kind](written, temporary)


def _write_npy(table: Table, path: Path) -> None:
    with path.open("wb") as file:
        # Into a file NumPy writes by `tofile`, whose errors do not say why; into anything else by `write`.
        stream: Any = SimpleNamespace(write=file.write)
        np.lib.format.write_array(stream, np.asanyarray(table.Z), allow_pickle=False)


def _write_npz(table: Table, path: Path) -> None:
    arrays = {table.array: table.Z, **{name: _without_objects(column) for name, column in table.columns.items()}}
    with ZipFile(path, "w") as archive:  # numpy.savez has names of its own that arrays cannot have
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)


def _without_objects(column: Array) -> Array:
    """A label column without objects, as .npz needs it; missing values become NaN among numbers, "" among texts.

    Integers that float64 cannot represent become texts.
    """
    if column.dtype != object:
        return column
    known = [value for value in column if not is_missing(value)]
    if all(isinstance(value, int | float | np.number) and float(value) == value for value in known):
        return np.array([np.nan if is_missing(value) else value for value in column], dtype=np.float64)
    return np.array(as_strings(column))


def _write_csv(table: Table, path: Path) -> None:
    assert table.features is not None
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*table.columns, *table.features])
        labels = [as_strings(column) for column in table.columns.values()]
        for i, row in enumerate(table.Z):
            writer.writerow([*(label[i] for label in labels), *row.tolist()])


def _write_parquet(table: Table, path: Path) -> None:
    require("Parquet files need", "pyarrow")
    import pyarrow as pa
    from pyarrow import parquet

    assert table.features is not None
    columns = {}
    for name, column in table.columns.items():
        try:
            columns[name] = pa.array(column, from_pandas=True)
        except pa.ArrowException as error:
            raise InputError(
                f"Parquet cannot hold {name!r} of {table.path}, which is {column.dtype}: {brief(error)}. Leave it out "
                f"with --ignore {shlex.quote(name)}, or write .npz."
            ) from error
    columns |= {name: pa.array(np.ascontiguousarray(table.Z[:, i])) for i, name in enumerate(table.features)}
    parquet.write_table(pa.table(columns), path)
