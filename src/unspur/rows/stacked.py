"""Several row sources seen as one: a training set and the validation set given beside it."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from unspur._typing import Array
from unspur.exceptions import InputError
from unspur.rows.source import Block, RowSource, S, Weighting


class StackedRows(RowSource):
    """Rows of `parts`, one after the other.

    Minibatches come from the first part alone: rows that are only ever held out are never trained on.
    """

    def __init__(self, *parts: RowSource):
        widths = {part.n_features for part in parts}
        if len(widths) != 1:
            raise InputError(f"Rows to be stacked must have the same number of features; got {sorted(widths)}.")
        self.parts = parts

    @property
    def n_rows(self) -> int:
        """Number of rows in all parts."""
        return sum(part.n_rows for part in self.parts)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.parts[0].n_features

    @property
    def n_folds(self) -> int:
        """Largest fold of any part."""
        return max(part.n_folds for part in self.parts)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Least precise type among the parts."""
        return min((part.dtype for part in self.parts), key=lambda dtype: dtype.itemsize)

    def sum(self, statistic: Callable[[Block], S]) -> S:
        """Sum over all parts."""
        return functools.reduce(operator.add, (part.sum(statistic) for part in self.parts))

    def project(self, directions: Array, centre: Array) -> StackedRows:
        """Every part projected where it lives."""
        return StackedRows(*(part.project(directions, centre) for part in self.parts))

    def minibatches(self, size: int, rng: np.random.Generator, weighting: Weighting) -> Iterator[Block]:
        """One epoch over the first part."""
        return self.parts[0].minibatches(size, rng, weighting)


def trained_on(rows: RowSource) -> RowSource:
    """Those of the rows that anything is estimated from: all, or the training set of a stack."""
    return rows.parts[0] if isinstance(rows, StackedRows) else rows


def held_out(rows: RowSource) -> RowSource:
    """Those of the rows that anything is judged on: all, or what was given beside a training set."""
    if not isinstance(rows, StackedRows):
        return rows
    return rows.parts[1] if len(rows.parts) == 2 else StackedRows(*rows.parts[1:])
