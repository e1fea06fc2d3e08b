"""Rows in memory, in files, on a device or on a cluster, behind one protocol."""

from unspur.rows.backends import Backend, backend_of, open_rows, persisted, rows_of, to_host
from unspur.rows.source import (
    CONCEPT,
    MAIN,
    MAX_UNCENTRED_DISTANCE,
    Block,
    GroupedRows,
    MappedRows,
    MemoryRows,
    RowLabels,
    RowSource,
    StackedRows,
    Summable,
    Weighting,
    training_part,
    validation_part,
)
from unspur.rows.stored import ConcatenatedRows, FileRows, MemmapRows, StoredRows

__all__ = [
    "CONCEPT",
    "MAIN",
    "MAX_UNCENTRED_DISTANCE",
    "Backend",
    "Block",
    "ConcatenatedRows",
    "FileRows",
    "GroupedRows",
    "MappedRows",
    "MemmapRows",
    "MemoryRows",
    "RowLabels",
    "RowSource",
    "StackedRows",
    "StoredRows",
    "Summable",
    "Weighting",
    "backend_of",
    "open_rows",
    "persisted",
    "rows_of",
    "to_host",
    "training_part",
    "validation_part",
]
