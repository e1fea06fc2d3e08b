"""Embeddings and labels from files and stores, and rows written back.

::

    .npy .npz .csv .parquet ─┐
                             ├─ reading.py ──▶ Table ── table.py: labels by name, some of the rows, a removal applied
    embedding store ─────────┘                   │
                                                 └──▶ writing.py ──▶ .npy .npz .csv .parquet
"""

from unspur.lab.files.reading import read_table
from unspur.lab.files.table import KINDS, Table, apply_removal
from unspur.lab.files.writing import write_rows

__all__ = ["KINDS", "Table", "apply_removal", "read_table", "write_rows"]
