"""Rows of (Z, y, concept) wherever they live, and sums over them.

A *statistic* is a function of one :class:`Block` whose values add up over blocks. Moments, losses, gradients, counts:
all are statistics, so the place where rows live (memory, a GPU, a cluster) shows up only in how a :class:`RowSource`
visits them. What :meth:`RowSource.sum` returns is small, float64 and on the host.

Splits, folds and weights are columns of a block, never a copied ``Z[idx]``: row i belongs to the *cell*
``4·fold + 2·y + concept``. Fold 0 holds the rows that are never held out; fold k ≥ 1 is held out in round k.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from unspur._arrays import forward, is_instance, is_tensor, to_device, to_numpy
from unspur._resources import map_blocks
from unspur._typing import Array, FloatArray, IntArray
from unspur.exceptions import InputError

S = TypeVar("S")
#: Where rows live: anything NumPy can see, a tensor and its device, or the chunks of a Dask array.
Backend: TypeAlias = Literal["memory", "torch", "dask"]

#: Position of each label in everything that carries both.
CONCEPT, MAIN = 0, 1
#: Rows further from zero than this many standard deviations are centred before a product with them, not after.
MAX_UNCENTRED_DISTANCE = 50.0
#: A block is read twice per evaluation (forward, then transposed product), so it should stay in the cache in between.
#: Blocks run in threads, so a few thousand rows should be several; smaller ones cost more in overhead than they save.
BLOCK_BYTES = 3 * 2**19
#: A d × d result must not cost more than the block, and temporaries of narrow rows not much more than the rows.
MIN_BLOCK_ROWS, MAX_BLOCK_ROWS = 1024, 8192
#: Bytes of a random sample of rows.
MAX_SAMPLE_BYTES = 2**28


@dataclass(frozen=True, slots=True)
class Block:
    """A few consecutive rows: all a statistic gets to see.

    Parameters
    ----------
    z : array of shape (m, d), as stored (not centred).
    targets : float array of shape (2, m), concept and task of each row as 0 or 1.
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
        return cls(
            np.array([concept, y], dtype=np.float64), 4 * fold + 2 * y + concept, weight, int(fold.max(initial=0))
        )

    @classmethod
    def none(cls, n: int) -> RowLabels:
        """Columns of n rows for statistics that look at no label: one number stands for all."""
        one = np.broadcast_to(np.ones(1), n)
        return cls(one[None], np.broadcast_to(np.zeros(1, np.intp), n), one, 0)

    def __len__(self) -> int:
        return len(self.cell)

    def select(self, rows: slice | IntArray) -> RowLabels:
        """The labels of some rows."""
        return RowLabels(self.targets[:, rows], self.cell[rows], self.weight[rows], self.n_folds)

    def block(self, z: Array, rows: Any) -> Block:
        """Block of the rows selected by a slice or an index array, with their `z`."""
        return Block(z, self.targets[:, rows], self.cell[rows], self.weight[rows])

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


@dataclass(frozen=True, slots=True)
class Weighting:
    """Row weight ω = weight · factor[cell]: which folds count, and how much each group does."""

    factor: FloatArray  # shape (4 · (n_folds + 1),)

    def __call__(self, block: Block) -> Array:
        """Weights ω of the rows of a block, shape (m,)."""
        return block.weight * to_device(self.factor, block.weight)[block.cell]


def add_up(parts: Iterable[S]) -> S:
    """Sum of `parts`, added in place to the first one, and each dropped before the next is computed."""
    rest = iter(parts)
    result: Any = next(rest)
    for part in rest:
        result += part
        del part
    return result  # type: ignore[no-any-return]


def slices(n: int, size: int) -> Iterator[slice]:
    """Rows 0, …, n − 1 in blocks of `size`."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


class Summable(Protocol):
    """Rows whose statistics can be summed; all that most algorithms need."""

    def sum(self, statistic: Callable[[Block], S]) -> S:
        """Sum of `statistic` over blocks that together hold every row once."""


class RowSource(Summable):
    """Rows of shape (n, d) with their labels, which can be visited any number of times.

    `n_folds` counts the folds that are held out in turn, without fold 0. `dtype` is the floating-point type of a block.
    """

    def __init__(self, shape: Sequence[int], labels: RowLabels, dtype: np.dtype[Any]):
        if len(shape) != 2 or shape[0] != len(labels):
            raise InputError(f"X of shape {tuple(shape)} does not go with {len(labels)} labels.")
        self.labels, self.dtype = labels, dtype
        self.n_rows, self.n_features, self.n_folds = len(labels), int(shape[1]), labels.n_folds

    def project(self, directions: Array, centre: Array) -> RowSource:
        """Rows ``(z − centre) @ directions`` in float64, with the same labels, living where these rows live.

        One pass over Z; none when `directions` has no column (the labels alone).
        """
        raise NotImplementedError

    def sample(self, most: int, rng: np.random.Generator) -> RowSource:
        """Random rows that represent all (see :meth:`RowLabels.sample`); all of them if they are few.

        There are fewer than `most` of a group if they would take more than `MAX_SAMPLE_BYTES`.
        """
        fitting = MAX_SAMPLE_BYTES // (4 * self.dtype.itemsize * max(1, self.n_features))
        found = self.labels.sample(max(1, min(most, fitting)), rng)
        return self if found is None else self._take(*found)

    def _take(self, rows: IntArray, labels: RowLabels) -> RowSource:
        """A copy of some rows, by increasing number, with labels of their own."""
        raise NotImplementedError


class StackedRows(RowSource):
    """Rows of `parts`, one after the other: training rows, then rows that are only ever held out."""

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


def training_part(rows: RowSource) -> RowSource:
    """The rows to estimate from: all of them, or the training set of a stack."""
    return rows.parts[0] if isinstance(rows, StackedRows) else rows


def validation_part(rows: RowSource) -> RowSource:
    """The rows to evaluate on: all of them, or the validation sets of a stack."""
    if not isinstance(rows, StackedRows):
        return rows
    return rows.parts[1] if len(rows.parts) == 2 else StackedRows(*rows.parts[1:])


class MemoryRows(RowSource):
    """Rows of an array of shape (n, d), which may be a memory map; it is visited in blocks and never copied.

    float16 has no fast products, and whole numbers none: these rows become floats block by block.
    """

    def __init__(self, z: Array, labels: RowLabels, *, block_rows: int | None = None):
        least = np.float32 if z.dtype.kind == "f" else np.float64
        super().__init__(z.shape, labels, np.promote_types(z.dtype, least))
        self.z = np.asarray(z)  # slices of a memory map are slow to make
        if block_rows is None:
            copied = z.dtype != self.dtype  # halve the block if it is converted, since the copy needs cache too
            row_bytes = max(1, self.n_features * self.dtype.itemsize) * (2 if copied else 1)
            block_rows = min(MAX_BLOCK_ROWS, max(MIN_BLOCK_ROWS, BLOCK_BYTES // row_bytes))
        self._blocks = list(slices(self.n_rows, block_rows))

    def _read(self, rows: slice) -> Array:
        return self.z[rows].astype(self.dtype, copy=False)

    def sum(self, statistic: Callable[[Block], S]) -> S:
        """Sum of `statistic` over blocks of rows, added up in row order."""
        return add_up(map_blocks(lambda rows: statistic(self.labels.block(self._read(rows), rows)), self._blocks))

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

        if projected.size:
            fill(self._blocks[0], far=False)
            reach, spread = np.abs(directions.T) @ np.abs(centre), projected[:, self._blocks[0]].std(axis=1)
            far = bool(np.any(reach > MAX_UNCENTRED_DISTANCE * spread))
            deque(map_blocks(lambda rows: fill(rows, far), self._blocks[0 if far else 1 :]), maxlen=0)
        return MemoryRows(projected.T, self.labels)

    def _take(self, rows: IntArray, labels: RowLabels) -> MemoryRows:
        return MemoryRows(self.z[rows], labels)


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

    def sum(self, statistic: Callable[[Block], S]) -> S:
        """Sum of `statistic` over blocks of rows of one group."""
        blocks = [
            (group, slice(start + rows.start, start + rows.stop))
            for group, (start, stop) in enumerate(zip([0, *self._ends[:-1]], self._ends, strict=True))
            for rows in slices(stop - start, MAX_BLOCK_ROWS)
        ]

        def of_block(where: tuple[int, slice]) -> S:
            group, rows = where
            targets = np.array([[group & 1], [group >> 1]], dtype=np.float64)
            return statistic(Block(self._z[rows], targets, np.array([4 + group]), self._weight[rows]))

        return add_up(map_blocks(of_block, blocks))


@dataclass(frozen=True, slots=True)
class MappedRows(Summable):
    """Rows whose features are computed from those of others, block by block, whenever they are visited."""

    rows: Summable
    function: Callable[[Block], Array]

    def sum(self, statistic: Callable[[Block], S]) -> S:
        """Sum of `statistic` over the computed rows."""
        function = self.function  # a local, since a statistic is sent to the rows, and `self` holds them all
        return self.rows.sum(lambda block: statistic(replace(block, z=function(block))))


# Which source an array needs


def backend_of(z: Any) -> Backend:
    """Backend of an array, from its type alone, so that no library is imported."""
    return "torch" if is_tensor(z) else "dask" if is_instance(z, "dask") else "memory"


def rows_of(z: Array, labels: RowLabels) -> RowSource:
    """Row source for an array on its backend."""
    if backend_of(z) == "dask":
        from unspur.rows.dask import DaskRows

        return DaskRows(z, labels)
    if backend_of(z) == "torch" and not _numpy_sees(z):
        from unspur.rows.torch import TorchRows

        return TorchRows(z, labels)
    return MemoryRows(to_numpy(z), labels)


def _numpy_sees(z: Any) -> bool:
    """Whether NumPy can share a tensor's memory; NumPy is then quicker and needs no second thread pool."""
    return bool(z.device.type == "cpu" and str(z.dtype) != "torch.bfloat16")


def persisted(z: Array) -> Array:
    """The same rows; chunks of a Dask array are computed once and kept as long as the result is."""
    if backend_of(z) != "dask":
        return z
    from unspur.rows.dask import persist_rows

    return persist_rows(z)


def to_host(*given: Any) -> tuple[Any, ...]:
    """Labels or weights as NumPy arrays on the host; Dask collections are computed together, once."""
    given = tuple(
        dict(zip(value, to_host(*value.values()), strict=True)) if isinstance(value, Mapping) else value
        for value in given
    )
    if any(backend_of(value) == "dask" for value in given):
        from unspur.rows.dask import compute_together

        given = compute_together(given)
    return tuple(map(to_numpy, given))
