"""Rows with their labels, as users pass them."""

from typing import Any, NamedTuple

import numpy as np


class Rows(NamedTuple):
    """A tuple (Z, y, concept, clusters)."""

    Z: Any
    y: Any
    concept: Any
    clusters: Any = None

    def select(self, rows):
        return Rows(*(None if column is None else column[rows] for column in self))

    @property
    def group(self):
        """Number of the combination of labels, -1 where the concept is missing."""
        known = np.array([value is not None and value == value for value in self.concept])
        group = np.full(len(known), -1)
        pairs = [f"{y} {concept}" for y, concept in zip(self.y[known], np.asarray(self.concept)[known], strict=True)]
        group[known] = np.unique(pairs, return_inverse=True)[1]
        return group
