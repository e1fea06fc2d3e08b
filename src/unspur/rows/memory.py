"""Rows held in an array in memory."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from unspur._arrays import forward
from unspur._typing import Array
from unspur.exceptions import InputError
from unspur.rows.source import MAX_UNCENTRED_DISTANCE, Block, Columns, RowSource, S, Weighting

#: A block is read twice per evaluation (forward, then transposed product), so it should stay in the
#: cache in between; smaller ones cost more in overhead than they save.
BLOCK_BYTES = 6 * 2**20
#: What is summed over a block may be as large as d × d, and should not cost more than the block itself.
MIN_BLOCK_ROWS = 1024
#: Narrow rows would make blocks of 100,000 rows and temporaries to match.
MAX_BLOCK_ROWS = 8192


class ArrayRows(RowSource):
    """What rows of one array of shape (n, d) share, whichever library it is of."""

    _z: Array
    _columns: Columns

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self._z.shape[0])

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self._z.shape[1])

    @property
    def n_folds(self) -> int:
        """Number of folds that are held out in turn."""
        return self._columns.n_folds


class MemoryRows(ArrayRows):
    """Rows of an array of shape (n, d); the array is never copied.

    float16 has no fast products: its rows become float32 block by block.
    """

    def __init__(self, z: Array, columns: Columns, *, block_rows: int | None = None):
        if z.ndim != 2 or len(z) != len(columns):
            raise InputError(f"Z of shape {z.shape} does not go with {len(columns)} labels.")
        self._z = z
        self._columns = columns
        if block_rows is None:
            copied = z.dtype != self.dtype  # what has a copy of its own should be the smaller
            row_bytes = max(1, z.shape[1] * self.dtype.itemsize) * (2 if copied else 1)
            block_rows = min(MAX_BLOCK_ROWS, max(MIN_BLOCK_ROWS, BLOCK_BYTES // row_bytes))
        self._block_rows = block_rows

    @property
    def dtype(self) -> np.dtype[Any]:
        """Floating-point type of the rows of a block."""
        return np.promote_types(self._z.dtype, np.float32)

    def _slices(self) -> Iterator[slice]:
        for start in range(0, self.n_rows, self._block_rows):
            yield slice(start, min(start + self._block_rows, self.n_rows))

    def _read(self, rows: Any) -> Array:
        return self._z[rows].astype(self.dtype, copy=False)

    def sum(self, statistic: Callable[[Block], S]) -> S:
        """Sum of `statistic` over blocks of rows, in row order."""
        blocks = (self._columns.block(self._read(rows), rows) for rows in self._slices())
        return functools.reduce(operator.add, map(statistic, blocks))

    def project(self, directions: Array, centre: Array) -> MemoryRows:
        """Rows ``(z − centre) @ directions`` in float64, in memory."""
        projected = np.empty((directions.shape[1], self.n_rows))
        if directions.shape[1]:
            vectors = np.ascontiguousarray(directions.T, dtype=self.dtype)
            offset, shift = (directions.T @ centre)[:, None], centre.astype(self.dtype)
            far = None
            for rows in self._slices():
                z, out = self._read(rows), projected[:, rows]
                if not far:
                    forward(z, vectors, out)
                    out -= offset
                if far is None:
                    far = bool(np.any(np.abs(directions.T) @ np.abs(centre) > MAX_UNCENTRED_DISTANCE * out.std(axis=1)))
                if far:  # a large common offset has taken digits of the product with it: centre the rows first
                    forward(z - shift, vectors, out)
        return MemoryRows(projected.T, self._columns)

    def minibatches(self, size: int, rng: np.random.Generator, weighting: Weighting) -> Iterator[Block]:
        """One epoch of random blocks (see :class:`RowSource`)."""
        weight = self._columns.weight * weighting.factor[self._columns.cell]
        order = np.flatnonzero(weight > 0)
        if not len(order):
            raise InputError("No row has a positive weight, so there are no minibatches.")
        chosen = weight[order]
        if np.ptp(chosen) > 1e-12 * chosen.max():
            order = rng.choice(order, size=len(order), p=chosen / chosen.sum())
        else:
            order = rng.permutation(order)
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            yield self._columns.block(self._read(rows), rows)
