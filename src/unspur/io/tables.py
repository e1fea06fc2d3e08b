"""Embeddings and labels from files and stores, and rows written back.

::

    .npy .npz .csv .parquet ─┐
                             ├─ reading.py ──▶ Table ── table.py: labels by name, some of the rows, a removal applied
    embedding store ─────────┘                   │
                                                 └──▶ writing.py ──▶ .npy .npz .csv .parquet
    Parquet files ── streaming.py: a removal applied, a piece at a time ──▶ Parquet files
"""

from unspur.io.reading import NOT_THERE, is_parquet, read_table, with_gaps
from unspur.io.streaming import clean_parquet
from unspur.io.table import KINDS, Table, apply_removal, within
from unspur.io.writing import write_rows

__all__ = [
    "KINDS",
    "NOT_THERE",
    "Table",
    "apply_removal",
    "clean_parquet",
    "is_parquet",
    "read_table",
    "with_gaps",
    "within",
    "write_rows",
]
