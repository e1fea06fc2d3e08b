"""Read untrusted files (.npy, JSON, text), and name their columns in messages.

A file that cannot be read raises a `ValueError` with a short reason, which the caller turns into an error that names
the file. Nothing here trusts what a file says about its size, waits for a pipe, overflows the stack on nested brackets,
or runs what it finds.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import re
import stat
import tokenize
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import IO, Any, TextIO

import numpy as np

from unspur._text import brief
from unspur._typing import Array, FloatArray
from unspur.exceptions import InputError

#: Largest text file that is read; ours have a few thousand bytes.
MAX_TEXT_BYTES = 64 * 2**20
#: Most values in a JSON text (each takes up to 200 bytes), and deepest nesting (repr is recursive).
MAX_JSON_VALUES, MAX_JSON_DEPTH = 500_000, 50
#: Largest header of a .npy file; NumPy writes a hundred bytes, and long ones overwhelm Python's parser.
MAX_NPY_HEADER_BYTES = 4_000
#: Axes of an array; NumPy has no more.
MAX_AXES = 64
#: How names of Parquet files end.
PARQUET = (".parquet", ".pq")
#: How names of tables of text end. Those in .gz are unpacked while they are read.
TEXT_TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
#: Most bytes that a packed table may unpack to: so many, or so many times its size. Tables shrink to a tenth or so.
MAX_UNPACKED_BYTES, MAX_UNPACKED_SHARE = 64 * 2**20, 100
#: Columns that a message lists; more are counted.
MAX_COLUMNS_LISTED = 20
#: Characters of a name that a message shows.
MAX_NAME_CHARACTERS = 60
#: Characters of the first line of a table.
MAX_HEADER_CHARACTERS = 2 * 2**20
#: Names among which a similar one is looked for: among a million that takes seconds.
MAX_NAMES_COMPARED = 10_000
#: Kinds of values for `require_kinds`.
NUMBER, MAYBE_NUMBER = (int, float), (int, float, type(None))
#: What NumPy raises for a damaged header.
_HEADER_ERRORS = (ValueError, TypeError, OverflowError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError)


def require_regular(path: str | PathLike[str]) -> int:
    """Size of a regular file in bytes; folders, pipes and devices are refused."""
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is not a plain file")
    return found.st_size


def read_text(path: str | PathLike[str], most: int = MAX_TEXT_BYTES) -> str:
    """The content of a UTF-8 file."""
    if (size := require_regular(path)) > most:
        raise ValueError(f"it has {size:,} bytes, more than the {most:,} that are read")
    with open(path, "rb") as file:
        content = file.read(most)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text (byte {error.start})") from error


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text, unless it is too large or nested too deeply."""
    marks: tuple[Any, ...] = (",", "[", "{") if isinstance(text, str) else (b",", b"[", b"{")
    if (count := sum(text.count(mark) for mark in marks)) > MAX_JSON_VALUES:
        raise ValueError(f"it has some {count:,} values, more than the {MAX_JSON_VALUES:,} that are read")
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text (byte {error.start})") from error
    _require_shallow(value)
    return value


def _require_shallow(value: Any) -> None:
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        holders = [one for one in level if isinstance(one, dict | list)]
        level = [inner for one in holders for inner in (one.values() if isinstance(one, dict) else one)]
        if not level:
            return
    raise ValueError("it is nested too deeply")


def read_json(path: str | PathLike[str], kind: Any = object) -> Any:
    """The value of a small JSON file of the given kind (see `require_kinds`)."""
    value = parse_json(read_text(path))
    if kind is not object:
        require_kinds(value, kind)
    return value


def require_kinds(value: Any, kind: Any, place: str = "it") -> None:
    """Raise ValueError unless a JSON value is of the given kind; messages call it `place`.

    A kind is a type or a tuple of types (booleans are not numbers, and integers have 64 bits); ``[kind]`` for a list;
    or a mapping from keys to kinds, with ``...`` for all other keys.
    """
    if isinstance(kind, list):
        require_kinds(value, list, place)
        for number, item in enumerate(value):
            require_kinds(item, kind[0], f"{place}[{number}]")
    elif isinstance(kind, Mapping):
        require_kinds(value, dict, place)
        for key in kind:
            if key is not ... and key not in value:
                raise ValueError(f"{place} has no {key!r}")
        for key, item in value.items():
            if (wanted := kind.get(key, kind.get(...))) is not None:
                require_kinds(item, wanted, f"{brief(key, 40)!r} of {place}")
    elif not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{place} is {brief(repr(value), 40)}, which is of another type than it should be")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"{place} is a number of {len(str(abs(value)))} digits, which is too large")


def load_npy(path: str | PathLike[str], *, mapped: bool = False) -> Array:
    """The array of a .npy file, in memory or as a read-only memory map."""
    size = require_regular(path)
    with open(path, "rb") as file:
        require_npy(file, size)
    try:
        array: Array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except _HEADER_ERRORS as error:
        raise ValueError(brief(error)) from error
    return array


def require_npy(file: IO[bytes], size: int) -> None:
    """Raise ValueError unless a file of `size` bytes is a complete .npy file of plain values."""
    magic = file.read(8)
    if magic[:6] != b"\x93NUMPY" or len(magic) < 8:
        raise ValueError("it is not a .npy file written by numpy.save" if magic else "it is empty")
    measure = file.read(2 if magic[6] == 1 else 4)
    length = int.from_bytes(measure, "little")
    if magic[6] not in (1, 2, 3) or length > min(MAX_NPY_HEADER_BYTES, size):
        raise ValueError(f"its header, of version {magic[6]}, would have {length:,} bytes")
    header = magic + measure + file.read(length)
    shape, dtype = _parsed_header(header)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are not read. Write plain arrays, of numbers")
    wanted = math.prod(shape) * dtype.itemsize
    if wanted > size - len(header):
        raise ValueError(f"it is cut off: {size - len(header):,} bytes where shape {brief(shape, 60)} takes {wanted:,}")


def _parsed_header(header: bytes) -> tuple[tuple[int, ...], Any]:
    file = BytesIO(header)
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    except _HEADER_ERRORS as error:
        raise ValueError(f"its header is damaged ({brief(error) or type(error).__name__})") from error
    if not all(type(length) is int and 0 <= length < 2**63 for length in shape) or len(shape) > MAX_AXES:
        raise ValueError(f"its shape is {brief(shape, 60)}")
    return shape, dtype


# Columns of tables


def quoted(names: Sequence[str]) -> str:
    """The first five names, quoted, and the number of others."""
    first = ", ".join(repr(brief(name, MAX_NAME_CHARACTERS)) for name in names[:5])
    return first + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def first_names(names: Collection[str]) -> str:
    """The first twenty names, and the number of others."""
    more = f" and {len(names) - MAX_COLUMNS_LISTED} more" if len(names) > MAX_COLUMNS_LISTED else ""
    return ", ".join(brief(name, MAX_NAME_CHARACTERS) for name in list(names)[:MAX_COLUMNS_LISTED]) + more


def column_faults(counts: FloatArray, names: Sequence[str] | None = None) -> str:
    """Counts (2, d) of NaN and of infinity by column, as ``3 NaN in column 7; 1 infinity in column 'age'``."""
    parts = []
    for kind, per_column in zip(("NaN", "infinity"), counts, strict=True):
        bad = np.flatnonzero(per_column)
        for j in bad[:5]:
            name = repr(brief(names[j], MAX_NAME_CHARACTERS)) if names else j
            parts.append(f"{int(per_column[j])} {kind} in column {name}")
        if len(bad) > 5:
            parts.append(f"{kind} in {len(bad) - 5} more columns")
    return "; ".join(parts)


def did_you_mean(name: str, names: Collection[str]) -> str:
    """The question " Did you mean …?" if a similar name exists, else ""."""
    if len(names) > MAX_NAMES_COMPARED:
        return ""
    by_small = {known.strip().lower(): known for known in names if len(known) <= MAX_NAME_CHARACTERS}
    near = get_close_matches(name.strip().lower(), by_small, n=1, cutoff=0.7)
    return f" Did you mean {by_small[near[0]]!r}?" if near else ""


def suffix_of(path: str | PathLike[str]) -> str:
    """How the name of a file ends, in lower case, such as ".npy" or ".csv.gz"."""
    *_, before, last = ("", "", *Path(path).suffixes)
    both = f"{before}{last}".lower()
    return both if both in TEXT_TABLES else last.lower()


def header_line(file: TextIO) -> str:
    """The first line of a CSV file, with the names of its columns; `csv.Error` if it is too long or has none."""
    line = file.readline(MAX_HEADER_CHARACTERS + 1)
    if len(line) > MAX_HEADER_CHARACTERS:
        raise csv.Error(f"its first line has more than the {MAX_HEADER_CHARACTERS:,} characters that are read")
    if re.fullmatch(r"\s*\"?sep=.?\"?\s*", line, re.IGNORECASE):
        raise csv.Error(f"its first line, {line.strip()}, is for Excel and has no names of columns; delete that line")
    return line


def separator(header: str) -> str:
    """Separator of a CSV file: a comma, a semicolon or a tab, whichever its first line has most of; else a comma."""
    return max(",;\t", key=re.sub('"[^"]*"', "", header).count)  # the first of those with as many


GZIP = b"\x1f\x8b"
#: First bytes of files that are not text, and what to do with them.
_NO_TEXT = {
    GZIP: "is compressed (gzip). Let its name end in .gz.",
    b"\x28\xb5\x2f\xfd": "is compressed (zstd). Unpack it first.",
    b"PK\x03\x04": "is a zip archive, or a spreadsheet. Unpack it, or save it as CSV.",
    b"PAR1": "is a Parquet file. Let its name end in .parquet.",
}


@contextmanager
def csv_table(path: Path) -> Iterator[tuple[list[str], Iterator[list[str]]]]:
    """The names of the columns of one of `TEXT_TABLES`, and its rows as lists of as many fields.

    InputError if the file is damaged, or a row has more or fewer fields. Empty lines are passed over.
    """
    kind = suffix_of(path)
    packed = kind.endswith(".gz")
    with path.open("rb") as binary:
        first = binary.read(4)
    for signature, advice in _NO_TEXT.items():
        if first.startswith(signature) and not (packed and signature == GZIP):
            raise InputError(f"{path} is not a CSV file: it {advice}")
    try:
        if packed:
            _require_unpackable(path)
        with (gzip.open if packed else open)(path, "rt", newline="", encoding="utf-8-sig") as file:
            header = header_line(file)
            file.seek(0)
            lines = filter(None, csv.reader(file, delimiter="\t" if kind.startswith(".tsv") else separator(header)))
            names = next(lines, [])
            yield names, _rows_of(path, names, lines)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be unpacked: {brief(error)}. Is it complete?") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start}). Save it as UTF-8.") from error
    except csv.Error as error:
        raise InputError(f"{path} cannot be read as CSV: {brief(error)}.") from error


def _rows_of(path: Path, names: list[str], lines: Iterator[list[str]]) -> Iterator[list[str]]:
    for number, line in enumerate(lines, 1):
        if len(line) != len(names):
            raise InputError(f"{path}: row {number} has {len(line)} fields; the header has {len(names)}.")
        yield line


def _require_unpackable(path: Path) -> None:
    """Raise InputError if a packed file is far larger than tables are: a few kilobytes may hold gigabytes of zeros."""
    from unspur._resources import available_memory  # which imports SciPy, too slow for completion

    free, most = available_memory(), max(MAX_UNPACKED_BYTES, MAX_UNPACKED_SHARE * require_regular(path))
    most = most if free is None else min(most, free // 2)
    with gzip.open(path) as file:
        while file.read1(2**20):
            if file.tell() > most:
                raise InputError(
                    f"{path} unpacks to more than {most:,} bytes, which no table of its size does, or which memory has "
                    "no room for. If it is yours, unpack it first."
                )


def index_columns(schema: Any) -> set[str]:
    """Columns in which pandas keeps an index, which are not features."""
    try:
        note = parse_json((schema.metadata or {}).get(b"pandas", b"{}"))
        require_kinds(note, {"index_columns": list})
    except ValueError:
        return set()
    return {name for name in note["index_columns"] if isinstance(name, str)}


def require_distinct(path: Path, header: Sequence[str]) -> None:
    """Raise InputError if a column has no name or two have the same."""
    if "" in header:
        raise InputError(f"{path}: column {header.index('') + 1} has no name; a row number? Drop it, or name it.")
    twice = sorted(name for name, times in Counter(header).items() if times > 1)
    if twice:
        raise InputError(f"{path} has several columns named {quoted(twice)}. Rename or drop them.")


def require_labels(path: Path, names: Collection[str], labels: Sequence[str]) -> None:
    """Raise InputError if a label is not among the columns `names`."""
    for name in labels:
        if name not in names:
            raise InputError(
                f"{path} has no column {name!r} (its columns: {first_names(names)}).{did_you_mean(name, names)}"
            )
