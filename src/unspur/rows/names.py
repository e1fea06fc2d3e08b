"""What Parquet files and their columns are called, for all that read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from unspur.exceptions import InputError

#: How names of Parquet files end.
PARQUET = (".parquet", ".pq")


def some(names: Sequence[str]) -> str:
    """The first few of many names."""
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def index_columns(schema: Any) -> set[str]:
    """Columns that pandas adds to a file to keep an index, which are no features."""
    return {name for name in (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)}


def require_distinct(path: Path, header: Sequence[str]) -> None:
    """Columns are known by their names."""
    if "" in header:
        raise InputError(f"{path}: column {header.index('') + 1} has no name; a row number? Drop it, or name it.")
    twice = sorted(name for name, times in Counter(header).items() if times > 1)
    if twice:
        raise InputError(f"{path} has several columns named {some(twice)}. Rename or drop them.")


def require_labels(path: Path, names: Collection[str], labels: Sequence[str]) -> None:
    """Labels that are not there are slips of the pen."""
    for name in labels:
        if name not in names:
            there = ", ".join(list(names)[:20])
            raise InputError(f"{path} has no label {name!r} (its columns: {there}).")
