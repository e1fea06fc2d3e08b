"""Where numbers come from: rows in memory, in a file, and (later) on a device or a cluster."""

from unspur.rows.choose import rows_of
from unspur.rows.memmap import MemmapRows
from unspur.rows.memory import MemoryRows
from unspur.rows.source import CONCEPT, FAR, MAIN, Block, Columns, RowSource, Weighting
from unspur.rows.stacked import StackedRows

__all__ = [
    "CONCEPT",
    "FAR",
    "MAIN",
    "Block",
    "Columns",
    "MemmapRows",
    "MemoryRows",
    "RowSource",
    "StackedRows",
    "Weighting",
    "rows_of",
]
