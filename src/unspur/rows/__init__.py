"""Where numbers come from: rows in memory, in files, on a device or on a cluster."""

from unspur.rows.choose import Home, at_hand, fetched, home_of, rows_of
from unspur.rows.memmap import MemmapRows
from unspur.rows.memory import MemoryRows
from unspur.rows.opening import open_rows
from unspur.rows.source import CONCEPT, FAR, MAIN, Block, Columns, RowSource, Weighting
from unspur.rows.stacked import StackedRows, held_out, trained_on
from unspur.rows.stored import FileRows, StoredRows

__all__ = [
    "CONCEPT",
    "FAR",
    "MAIN",
    "Block",
    "Columns",
    "FileRows",
    "Home",
    "MemmapRows",
    "MemoryRows",
    "RowSource",
    "StackedRows",
    "StoredRows",
    "Weighting",
    "at_hand",
    "fetched",
    "held_out",
    "home_of",
    "open_rows",
    "rows_of",
    "trained_on",
]
