"""What files and their columns are called, for all that read them."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from unspur._reading import brief, parse_json, require_kinds
from unspur._typing import FloatArray
from unspur.exceptions import InputError

#: How names of Parquet files end.
PARQUET = (".parquet", ".pq")
#: Columns that a message lists; more are counted.
MAX_COLUMNS_LISTED = 20
#: Characters of a name that a message shows.
MAX_NAME_CHARACTERS = 60
#: Characters of the first line of a table.
MAX_HEADER_CHARACTERS = 2 * 2**20
#: Names up to which the one that was meant is looked for: of a million it takes seconds.
MAX_NAMES_COMPARED = 10_000


def some(names: Sequence[str]) -> str:
    """The first few of many names."""
    first = ", ".join(repr(brief(name, MAX_NAME_CHARACTERS)) for name in names[:5])
    return first + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def listed(names: Collection[str]) -> str:
    """The columns that there are, as a message lists them."""
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


def nearest(name: str, names: Collection[str]) -> str:
    """A question after the name that was meant, if one is near; it starts with a space."""
    if len(names) > MAX_NAMES_COMPARED:
        return ""
    by_small = {known.lower(): known for known in names if len(known) <= MAX_NAME_CHARACTERS}
    near = get_close_matches(name.lower(), by_small, n=1, cutoff=0.7)
    return f" Did you mean {by_small[near[0]]!r}?" if near else ""


def first_line(file: TextIO) -> str:
    """The first line of a table, which has its columns; `csv.Error` if it is longer than they are, or has none."""
    line = file.readline(MAX_HEADER_CHARACTERS + 1)
    if len(line) > MAX_HEADER_CHARACTERS:
        raise csv.Error(f"its first line has more than the {MAX_HEADER_CHARACTERS:,} characters that are read")
    if re.fullmatch(r"\s*\"?sep=.?\"?\s*", line, re.IGNORECASE):
        raise csv.Error(f"its first line, {line.strip()}, is for Excel and has no names of columns; delete that line")
    return line


def separator(header: str) -> str:
    """What separates the fields of a CSV file, by its first line: commas, or what some spreadsheets write instead."""
    bare = re.sub('"[^"]*"', "", header)
    return next((mark for mark in ",;\t" if mark in bare), ",")


def index_columns(schema: Any) -> set[str]:
    """Columns that pandas adds to a file to keep an index, which are no features; none if its note is not readable."""
    try:
        note = parse_json((schema.metadata or {}).get(b"pandas", b"{}"))
        require_kinds(note, {"index_columns": list})
    except ValueError:
        return set()
    return {name for name in note["index_columns"] if isinstance(name, str)}


def require_distinct(path: Path, header: Sequence[str]) -> None:
    """Columns are known by their names."""
    if "" in header:
        raise InputError(f"{path}: column {header.index('') + 1} has no name; a row number? Drop it, or name it.")
    twice = sorted(name for name, times in Counter(header).items() if times > 1)
    if twice:
        raise InputError(f"{path} has several columns named {some(twice)}. Rename or drop them.")


def require_labels(path: Path, names: Collection[str], labels: Sequence[str]) -> None:
    """Columns that were named and are not there are slips of the pen."""
    for name in labels:
        if name not in names:
            raise InputError(f"{path} has no column {name!r} (its columns: {listed(names)}).{nearest(name, names)}")
