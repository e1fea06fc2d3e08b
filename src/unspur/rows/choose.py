"""Which row source serves a given array."""

from __future__ import annotations

from unspur._typing import Array
from unspur.rows.memmap import MemmapRows, file_behind
from unspur.rows.memory import MemoryRows
from unspur.rows.source import Columns, RowSource


def rows_of(z: Array, columns: Columns) -> RowSource:
    """Row source for an array: the file it maps where it maps one, else the array in memory."""
    path = file_behind(z)
    return MemoryRows(z, columns) if path is None else MemmapRows(path, columns, mapped=z)
