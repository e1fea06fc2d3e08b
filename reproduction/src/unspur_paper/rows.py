"""Embeddings with a binary main label and a concept, as the paper's experiments have them: arrays of codes."""

from __future__ import annotations

from dataclasses import dataclass

from unspur._data import LabelledData, decode_rows
from unspur._typing import Array, IntArray


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows Z (n, d), main label y (n,), and concept, (n,) or (n, m) for several."""

    Z: Array
    y: Array
    concept: Array

    def __len__(self) -> int:
        return len(self.y)

    def select(self, rows: Array) -> Rows:
        """Some of the rows, by mask or index."""
        return Rows(self.Z[rows], self.y[rows], self.concept[rows])

    def labelled(self) -> LabelledData:
        """The rows as `unspur` takes them, labels decoded."""
        return decode_rows((self.Z, self.y, self.concept))

    @property
    def group(self) -> IntArray:
        """Number of the combination of main label and concept of each row, shape (n,)."""
        return self.labelled().group
