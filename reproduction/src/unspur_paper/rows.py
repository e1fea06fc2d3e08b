"""Embeddings with a binary main label and a concept, as the paper's experiments have them: arrays of codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

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

    def arguments(self, suffix: str = "") -> dict[str, Any]:
        """Arguments of `fit`; `suffix` is "_val" for validation rows."""
        return {f"X{suffix}": self.Z, f"y{suffix}": self.y, f"concept{suffix}": self.concept}

    @property
    def group(self) -> IntArray:
        """Number of the combination of main label and concepts of each row, shape (n,)."""
        group = np.zeros(len(self), dtype=np.intp)
        for column in (self.y, *np.reshape(self.concept, (len(self), -1)).T):
            group = group * (int(column.max()) + 1) + column
        return group
