"""Rows of (Z, y, concept) on any backend: the protocol that the algorithms are written against.

A *statistic* is a function of one :class:`Block` whose values add up over blocks. Moments, losses, gradients,
counts: all are statistics, so the place where rows live (memory, a file, a GPU, a cluster) shows up only in
how a :class:`RowSource` visits them. What :meth:`RowSource.sum` returns is small, float64 and on the host.

Splits, folds and weights are columns of a block, never a copied ``Z[idx]``: row i belongs to the *cell*
``4·fold + 2·y + concept``. Fold 0 holds the rows that are never held out; fold k ≥ 1 is held out in round k.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from unspur._arrays import forward, to_device
from unspur._resources import map_blocks
from unspur._typing import Array, FloatArray, IntArray
from unspur.exceptions import InputError

S = TypeVar("S")

#: Position of each label in everything that carries both.
CONCEPT, MAIN = 0, 1
#: Rows further from zero than this many standard deviations are centred before a product with them, not after.
MAX_UNCENTRED_DISTANCE = 50.0


@dataclass(frozen=True, slots=True)
class Block:
    """A few consecutive rows: all a statistic gets to see.

    Parameters
    ----------
    z : array of shape (m, d), as stored (not centred).
    targets : float array of shape (2, m), concept and main label of each row as 0 or 1.
    cell : integer array of shape (m,), 4·fold + 2·y + concept.
    weight : float64 array of shape (m,), the user's row weights.
    """

    z: Array
    targets: Array
    cell: Array
    weight: Array

    @property
    def fold(self) -> Array:
        """Fold of each row, shape (m,)."""
        return self.cell >> 2


@dataclass(frozen=True)
class RowLabels:
    """What belongs to each row beside its features: labels (targets), cell and weight, n-long each."""

    targets: FloatArray
    cell: NDArray[np.intp]
    weight: FloatArray
    n_folds: int

    @classmethod
    def of(cls, y: Array, concept: Array, weight: Array | None = None, fold: Array | None = None) -> RowLabels:
        """Columns from labels coded 0 and 1, optional weights, and optional folds (default: none held out)."""
        y, concept = np.asarray(y, dtype=np.intp), np.asarray(concept, dtype=np.intp)
        n = len(y)
        weight = np.ones(n) if weight is None else np.array(weight, dtype=np.float64)
        fold = np.zeros(n, dtype=np.intp) if fold is None else np.asarray(fold, dtype=np.intp)
        lengths = {"y": n, "concept": len(concept), "weight": len(weight), "fold": len(fold)}
        if len(set(lengths.values())) > 1:
            raise InputError(f"Columns must be equally long; got {lengths}.")
        targets = np.empty((2, n))
        targets[CONCEPT], targets[MAIN] = concept, y
        cell = 4 * fold
        cell += y
        cell += y
        cell += concept
        return cls(targets, cell, weight, int(fold.max(initial=0)))

    def __len__(self) -> int:
        return len(self.cell)

    def select(self, rows: slice | IntArray) -> RowLabels:
        """The labels of some rows."""
        return RowLabels(self.targets[:, rows], self.cell[rows], self.weight[rows], self.n_folds)

    @functools.cached_property
    def held_out_by_group(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Held-out rows sorted by group, as places ``(fold − 1) · n + row``; where each group ends; their weights."""
        group = np.where(self.cell >= 4, self.cell & 3, 4).astype(np.uint8)  # so short that it is sorted by counting
        ends = np.cumsum(np.bincount(group, minlength=5)[:4])
        order = np.argsort(group, kind="stable")[: ends[-1]]
        return ((self.cell >> 2) - 1)[order] * len(self) + order, ends, self.weight[order]

    def sample(self, most: int, rng: np.random.Generator) -> tuple[IntArray, RowLabels] | None:
        """Random rows, in order, at most about `most` of each group, weighted to represent all; None if all are few.

        Folds of a group are sampled alike.
        """
        cells = 4 * (self.n_folds + 1)
        present = np.where(self.weight > 0, self.cell, cells)  # rows of no weight come last
        counts = np.bincount(present, minlength=cells + 1)[:cells]
        of_group = counts.reshape(-1, 4).sum(axis=0)
        if np.all(of_group <= most):
            return None
        order = np.argsort(present.astype(np.min_scalar_type(cells)), kind="stable")  # small integers are sorted fast
        kept, factor, start = [], np.ones(cells), 0
        for cell, count in enumerate(counts):
            number = -(-int(count) * most // max(most, int(of_group[cell & 3])))
            if number:
                kept.append(order[start + rng.choice(count, number, replace=False, shuffle=False)])
                factor[cell] = count / number
            start += count
        rows = np.sort(np.concatenate(kept))
        labels = self.select(rows)
        return rows, replace(labels, weight=labels.weight * factor[labels.cell])

    def block(self, z: Array, rows: Any) -> Block:
        """Block of the rows selected by a slice or an index array, with their `z`."""
        return Block(z, self.targets[:, rows], self.cell[rows], self.weight[rows])


@dataclass(frozen=True, slots=True)
class Weighting:
    """Row weight ω = weight · factor[cell]: which folds count, and how much each group does."""

    factor: FloatArray  # shape (4 · (n_folds + 1),)

    def __call__(self, block: Block) -> Array:
        """Weights ω of the rows of a block, shape (m,)."""
        return block.weight * to_device(self.factor, block.weight)[block.cell]


def add_up(parts: Iterable[S]) -> S:
    """Sum of `parts`, added in place to the first one, and each dropped before the next is computed.

    A part may have d × d numbers, so what is not held matters.
    """
    rest = iter(parts)
    result: Any = next(rest)
    for part in rest:
        result += part
        del part
    return result  # type: ignore[no-any-return]


class RowSource(Protocol):
    """Rows of (Z, y, concept) that can be visited any number of times.

    `n_folds` counts the folds that are held out in turn, without fold 0. `dtype` is the floating-point type of a block.
    """

    n_rows: int
    n_features: int
    n_folds: int
    dtype: np.dtype[Any]

    def sum(self, statistic: Callable[[Block], S]) -> S:
        """Sum of `statistic` over blocks that together hold every row once."""

    def project(self, directions: Array, centre: Array) -> RowSource:
        """Rows ``(z − centre) @ directions`` in float64, with the same columns, living where these rows live.

        One pass over Z; none when `directions` has no column (the labels alone).
        """

    def sample(self, most: int, rng: np.random.Generator) -> RowSource:
        """Random rows that represent all, in memory or where these rows live; see :meth:RowLabels.sample."""

    def minibatches(self, size: int, rng: np.random.Generator, weighting: Weighting) -> Iterator[Block]:
        """One epoch of random blocks of `size` rows drawn by `weighting`.

        Equal weights: every row with positive weight once, in random order. Otherwise: as many draws with
        replacement, with probability proportional to the weight.
        """


class StackedRows(RowSource):
    """Rows of `parts`, one after the other.

    Minibatches come from the first part alone: rows that are only ever held out are never trained on.
    """

    def __init__(self, *parts: RowSource):
        widths = {part.n_features for part in parts}
        if len(widths) != 1:
            raise InputError(f"Rows to be stacked must have the same number of features; got {sorted(widths)}.")
        self.parts = parts
        self.n_rows, (self.n_features,) = sum(part.n_rows for part in parts), widths
        self.n_folds = max(part.n_folds for part in parts)
        self.dtype = min((part.dtype for part in parts), key=lambda dtype: dtype.itemsize)  # the least precise

    def sum(self, statistic: Callable[[Block], S]) -> S:
        """Sum over all parts."""
        return add_up(part.sum(statistic) for part in self.parts)

    def project(self, directions: Array, centre: Array) -> StackedRows:
        """Every part projected where it lives."""
        return StackedRows(*(part.project(directions, centre) for part in self.parts))

    def sample(self, most: int, rng: np.random.Generator) -> StackedRows:
        """Every part sampled."""
        return StackedRows(*(part.sample(most, rng) for part in self.parts))

    def minibatches(self, size: int, rng: np.random.Generator, weighting: Weighting) -> Iterator[Block]:
        """One epoch over the first part."""
        return self.parts[0].minibatches(size, rng, weighting)


def training_part(rows: RowSource) -> RowSource:
    """The rows to estimate from: all of them, or the training set of a stack."""
    return rows.parts[0] if isinstance(rows, StackedRows) else rows


def validation_part(rows: RowSource) -> RowSource:
    """The rows to evaluate on: all of them, or the validation sets of a stack."""
    if not isinstance(rows, StackedRows):
        return rows
    return rows.parts[1] if len(rows.parts) == 2 else StackedRows(*rows.parts[1:])


#: A block is read twice per evaluation (forward, then transposed product), so it should stay in the cache in between.
#: Blocks run in threads, so a few thousand rows should be several; smaller ones cost more in overhead than they save.
BLOCK_BYTES = 3 * 2**19
#: A d × d result must not cost more than the block.
MIN_BLOCK_ROWS = 1024
#: Narrow rows would make blocks of 100,000 rows and temporaries to match.
MAX_BLOCK_ROWS = 8192
#: Bytes of a random sample of rows.
MAX_SAMPLE_BYTES = 2**28
#: Bytes of drawn rows that are fetched from elsewhere at once, so that not every minibatch costs a transfer.
MINIBATCH_FETCH_BYTES = 32 * 2**20


def slices(n: int, size: int) -> Iterator[slice]:
    """Rows 0, …, n − 1 in chunks of `size`."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


class LabelledRows(RowSource):
    """Base class of rows of shape (n, d) with their labels."""

    def __init__(self, shape: Sequence[int], labels: RowLabels, dtype: np.dtype[Any]):
        if len(shape) != 2 or shape[0] != len(labels):
            raise InputError(f"X of shape {tuple(shape)} does not go with {len(labels)} labels.")
        self.labels, self.dtype = labels, dtype
        self.n_rows, self.n_features, self.n_folds = len(labels), int(shape[1]), labels.n_folds

    def sample(self, most: int, rng: np.random.Generator) -> RowSource:
        """Random rows that represent all (see :class:`RowSource`); all of them if they are few.

        There are fewer than `most` of a group if they would take more than `MAX_SAMPLE_BYTES`.
        """
        fitting = MAX_SAMPLE_BYTES // (4 * self.dtype.itemsize * max(1, self.n_features))
        found = self.labels.sample(max(1, min(most, fitting)), rng)
        return self if found is None else self._take(*found)

    def _take(self, rows: IntArray, labels: RowLabels) -> RowSource:
        """Some rows, by increasing number, with labels of their own."""
        raise NotImplementedError

    def _fetched_minibatches(
        self, size: int, rng: np.random.Generator, weighting: Weighting, fetch: Callable[[IntArray], Array]
    ) -> Iterator[Block]:
        """One epoch of random blocks: drawn here, their rows fetched from elsewhere by number, many at a time."""
        numbers = MemoryRows(np.arange(self.n_rows, dtype=np.float64)[:, None], self.labels)
        drawn = numbers.minibatches(size, rng, weighting)
        at_once = max(1, MINIBATCH_FETCH_BYTES // max(1, size * self.n_features * self.dtype.itemsize))
        while blocks := list(islice(drawn, at_once)):
            rows = [block.z[:, 0].astype(np.int64) for block in blocks]
            z = fetch(np.concatenate(rows))
            for block, own in zip(blocks, np.split(z, np.cumsum([len(r) for r in rows])[:-1]), strict=True):
                yield replace(block, z=own)


class MemoryRows(LabelledRows):
    """Rows of an array of shape (n, d); the array is never copied.

    float16 has no fast products: its rows become float32 block by block.
    """

    def __init__(self, z: Array, labels: RowLabels, *, block_rows: int | None = None):
        super().__init__(z.shape, labels, np.promote_types(z.dtype, np.float32))
        self.z = z
        if block_rows is None:
            copied = z.dtype != self.dtype  # halve the block if it is converted, since the copy needs cache too
            row_bytes = max(1, z.shape[1] * self.dtype.itemsize) * (2 if copied else 1)
            block_rows = min(MAX_BLOCK_ROWS, max(MIN_BLOCK_ROWS, BLOCK_BYTES // row_bytes))
        self._block_rows = block_rows

    def _slices(self) -> Iterator[slice]:
        return slices(self.n_rows, self._block_rows)

    def _read(self, rows: Any) -> Array:
        return self.z[rows].astype(self.dtype, copy=False)

    def sum(self, statistic: Callable[[Block], S]) -> S:
        """Sum of `statistic` over blocks of rows, added up in row order."""

        def of_block(rows: slice) -> S:
            return statistic(self.labels.block(self._read(rows), rows))

        return add_up(map_blocks(of_block, list(self._slices())))

    def project(self, directions: Array, centre: Array) -> MemoryRows:
        """Rows ``(z − centre) @ directions`` in float64, in memory."""
        projected = np.empty((directions.shape[1], self.n_rows))
        vectors = np.ascontiguousarray(directions.T, dtype=self.dtype)
        offset, shift = (directions.T @ centre)[:, None], centre.astype(self.dtype)

        def fill(rows: slice, far: bool) -> None:
            z, out = self._read(rows), projected[:, rows]
            # A large common offset would take digits of the product with it: then the rows are centred first.
            forward(z - shift if far else z, vectors, out)
            if not far:
                out -= offset

        blocks = list(self._slices())
        if projected.size:
            fill(blocks[0], far=False)
            reach, spread = np.abs(directions.T) @ np.abs(centre), projected[:, blocks[0]].std(axis=1)
            far = bool(np.any(reach > MAX_UNCENTRED_DISTANCE * spread))
            deque(map_blocks(lambda rows: fill(rows, far), blocks if far else blocks[1:]), maxlen=0)
        return MemoryRows(projected.T, self.labels)

    def _take(self, rows: IntArray, labels: RowLabels) -> RowSource:
        return _SampledRows(self.z, rows, labels)

    def minibatches(self, size: int, rng: np.random.Generator, weighting: Weighting) -> Iterator[Block]:
        """One epoch of random blocks (see :class:`RowSource`)."""
        weight = self.labels.weight * weighting.factor[self.labels.cell]
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
            yield self.labels.block(self._read(rows), rows)


class _SampledRows(MemoryRows):
    """Some rows of an array, by number; gathered block by block when they are visited, so that there is no copy."""

    def __init__(self, z: Array, rows: IntArray, labels: RowLabels):
        super().__init__(np.broadcast_to(z[:1], (len(rows), z.shape[1])), labels)
        self._all, self._rows = z, rows

    def _read(self, rows: Any) -> Array:
        return self._all[self._rows[rows]].astype(self.dtype, copy=False)


class Summable(Protocol):
    """Rows whose statistics can be summed; all that most algorithms need."""

    def sum(self, statistic: Callable[[Block], S]) -> S:
        """Sum of `statistic` over blocks that together hold every row once."""


class GroupedRows(Summable):
    """Held-out rows with few features, in memory, sorted by group.

    Each block lies in one group, and its cell is an array of length 1. Whatever depends on the group is then one number
    instead of a look-up for every row, which takes longer than the arithmetic. Rows of fold 0 are left out, and all
    other folds count as fold 1.

    Projected rows z have shape (n, k · folds). Feature i of a row is the column of its own fold among those from i ·
    folds on.
    """

    def __init__(self, z: Array, labels: RowLabels, folds: int):
        places, self._ends, self._weight = labels.held_out_by_group
        lines = [z.T[start : start + folds].ravel().take(places) for start in range(0, z.shape[1], folds)]
        self._z = np.stack(lines).T

    def _blocks(self) -> Iterator[tuple[int, slice]]:
        for group, (start, stop) in enumerate(zip([0, *self._ends[:-1]], self._ends, strict=True)):
            for rows in slices(stop - start, MAX_BLOCK_ROWS):
                yield group, slice(start + rows.start, start + rows.stop)

    def sum(self, statistic: Callable[[Block], S]) -> S:
        """Sum of `statistic` over blocks of rows of one group."""

        def of_block(where: tuple[int, slice]) -> S:
            group, rows = where
            targets = np.array([[group & 1], [group >> 1]], dtype=np.float64)
            return statistic(Block(self._z[rows], targets, np.array([4 + group]), self._weight[rows]))

        return add_up(map_blocks(of_block, list(self._blocks())))


@dataclass(frozen=True, slots=True)
class MappedRows(Summable):
    """Rows whose features are computed from those of others, block by block, whenever they are visited."""

    rows: Summable
    function: Callable[[Block], Array]

    def sum(self, statistic: Callable[[Block], S]) -> S:
        """Sum of `statistic` over the computed rows."""
        function = self.function  # a local, since a statistic is sent to the rows, and `self` holds them all
        return self.rows.sum(lambda block: statistic(replace(block, z=function(block))))
