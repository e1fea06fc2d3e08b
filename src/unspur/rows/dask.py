"""Rows in a Dask array: summed where their chunks are, on the cores of this machine or on a cluster.

::

    chunk 0 ─ statistic ─┐
    chunk 1 ─ statistic ─┼─ + ─┐
    …                    │     ├─ + ──▶ one small result, here
    chunk 8 ─ statistic ─┼─ + ─┘
    chunk 9 ─ statistic ─┘

Everything is a task of a graph that Dask keeps: chunks, columns, the statistic itself. So what is lost with a worker is
computed again from its recipe, and since the tree of sums depends on the chunks alone, to the same bits.
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeAlias
from weakref import WeakValueDictionary

import cloudpickle
import dask
import dask.array as da
import numpy as np

from unspur._typing import Array
from unspur.exceptions import ClusterLostError, InputError
from unspur.rows.source import Block, Columns, LabelledRows, MemoryRows, RowSource, S, Weighting

#: Results that are added in one task.
FAN_IN = 8
#: Projected rows of up to this many bytes are brought to this process, where visiting them is quicker.
MAX_LOCAL_PROJECTION_BYTES = 4 * 2**20

Delayed: TypeAlias = Any
#: Persisted arrays by name and cluster, for as long as they are in use.
_persistent: WeakValueDictionary[tuple[str, str | None], Any] = WeakValueDictionary()


class DaskRows(LabelledRows):
    """Rows of a `dask.array` of shape (n, d), computed once and kept by their workers while this source lives.

    A chunk holds whole rows: an array that is cut along the features is put together first. Columns travel once, at
    two bytes a row where labels are binary and weights 0 or 1. Runs on whatever Dask would use: a cluster where a
    `distributed.Client` is open, else the cores of this process.
    """

    def __init__(self, z: Array, columns: Columns):
        super().__init__(z.shape, columns)
        z = persist_rows(z)
        self._dtype = z.dtype
        full, ends = np.flatnonzero(z.chunks[0]), np.cumsum(z.chunks[0])  # a chunk may be empty
        self._slices = [slice(int(ends[i] - z.chunks[0][i]), int(ends[i])) for i in full]
        chunks = z.to_delayed(optimize_graph=False)[full, 0]
        packed = [_Packed.of(columns, rows) for rows in self._slices]
        # Made from its chunk, so that it is made where the chunk is.
        beside = [_task(_unpacked)(own, chunk) for own, chunk in zip(packed, chunks, strict=True)]
        self._parts = list(zip(chunks, _persisted(beside), strict=True))
        self._z = z  # keeps `persist_rows` from computing the chunks again for another source

    @property
    def dtype(self) -> np.dtype[Any]:
        """Floating-point type of the rows of a block."""
        return np.promote_types(self._dtype, np.float32)

    def sum(self, statistic: Callable[[Block], S]) -> S:
        """Sum of `statistic` over the blocks of each chunk, then over chunks in a fixed tree.

        `statistic` is pickled (by cloudpickle where need be), travels to the cluster once and between workers from
        there. It should hold no row source.
        """
        sent = _parcel(statistic)
        sums = [_task(_summed)(chunk, columns, sent) for chunk, columns in self._parts]
        while len(sums) > 1:
            sums = [_task(_added)(*sums[i : i + FAN_IN]) for i in range(0, len(sums), FAN_IN)]
        result: S = _computed(sums)[0]
        return result

    def project(self, directions: Array, centre: Array) -> RowSource:
        """Rows ``(z − centre) @ directions`` in float64, each chunk where it is; small ones are brought here."""
        sent = _parcel((directions, centre))
        projected = [_task(_projected)(chunk, columns, sent) for chunk, columns in self._parts]
        if 8 * self.n_rows * max(1, directions.shape[1]) <= MAX_LOCAL_PROJECTION_BYTES:
            z = np.concatenate([chunk.T for chunk in _computed(projected)], axis=1)
            return MemoryRows(z.T, self._columns)
        return self._with(_persisted(projected), directions.shape[1])

    def _with(self, chunks: Sequence[Delayed], n_features: int) -> Self:
        """Other rows in float64, as many to a chunk, with the same columns."""
        other = copy.copy(self)
        other._n_features, other._dtype = n_features, np.dtype(np.float64)
        other._parts = [(chunk, columns) for chunk, (_, columns) in zip(chunks, self._parts, strict=True)]
        return other

    def minibatches(self, size: int, rng: np.random.Generator, weighting: Weighting) -> Iterator[Block]:
        """One epoch of random blocks (see :class:`RowSource`): drawn here, fetched from the chunks, many at a time."""
        return self._fetched_minibatches(size, rng, weighting, self._fetched)

    def _fetched(self, rows: Array) -> Array:
        """Some rows by number, in that order, shape (m, d)."""
        order = np.argsort(rows, kind="stable")
        cuts = np.searchsorted(rows[order], [part.start for part in self._slices[1:]])
        wanted = [
            (_task(operator.getitem)(chunk, rows[own] - part.start), own)
            for (chunk, _), part, own in zip(self._parts, self._slices, np.split(order, cuts), strict=True)
            if len(own)
        ]
        out = np.empty((len(rows), self.n_features), dtype=self.dtype)
        for taken, (_, own) in zip(_computed([task for task, _ in wanted]), wanted, strict=True):
            out[own] = taken
        return out


class _WeakArray(da.Array):
    """An array that can be referred to weakly; those of Dask before 2026 cannot."""


def persist_rows(z: Array) -> Array:
    """The array with whole rows in each chunk, persisted: workers keep the chunks while the result is alive.

    An array that is persisted already is returned, so that two sources share their chunks. Anything but a
    two-dimensional array is returned unchanged, to be refused where rows are checked.
    """
    if not isinstance(z, da.Array) or z.ndim != 2:
        return z
    cluster = _cluster()
    there = _persistent.get((z.name, cluster))
    if there is None:
        there = _whole_rows(z)
        if cluster is not None and not _has_futures(there):
            there = there.map_blocks(_aligned, dtype=z.dtype, meta=z._meta)
        with _cluster_errors():
            there = there.persist()
        there = _WeakArray(there.dask, there.name, there.chunks, meta=there._meta)
        _persistent[z.name, cluster] = _persistent[there.name, cluster] = there
    return there


def applied(z: Array, function: Callable[[Array], Array]) -> Array:
    """Lazily apply `function` to every chunk of rows; shape, dtype and chunks stay."""
    return _whole_rows(z).map_blocks(function, dtype=z.dtype, meta=z._meta).rechunk(z.chunks)


def answered(z: Array, function: Callable[[Array], Array], width: int | None, dtype: np.dtype[Any]) -> Array:
    """Lazily apply `function` to every chunk of rows; shape (n, width), or (n,) if `width` is None."""
    if width is None:
        return _whole_rows(z).map_blocks(function, drop_axis=1, dtype=dtype, meta=np.empty(0, dtype))
    shape = (z.chunks[0], (width,))
    return _whole_rows(z).map_blocks(function, chunks=shape, dtype=dtype, meta=np.empty((0, 0), dtype))


def computed(given: Sequence[Any]) -> tuple[Any, ...]:
    """Values with Dask collections among them computed together; others unchanged."""
    with _cluster_errors():
        return tuple(dask.compute(*given, traverse=False))


def per_chunk(z: Array, function: Callable[[Array], S]) -> list[S]:
    """Results of `function` on each chunk (m, d), in order, computed where the chunks are."""
    chunks = _whole_rows(_persistent.get((z.name, _cluster()), z)).to_delayed()[:, 0]
    return list(_computed([_task(function)(chunk) for chunk in chunks]))


def _whole_rows(z: Array) -> Array:
    if type(z._meta) is not np.ndarray:
        kind = f"{type(z._meta).__module__.partition('.')[0]}.{type(z._meta).__name__}"
        raise InputError(f"X has chunks of type {kind}; NumPy arrays are needed: X.map_blocks(…) can turn them.")
    return z if z.numblocks[1] == 1 else z.rechunk({1: -1})


def _cluster() -> str | None:
    """Id of the client that Dask would use; None for the schedulers of this process."""
    client = getattr(dask.base.get_scheduler(), "__self__", None)
    return getattr(client, "id", None)


def _has_futures(z: Array) -> bool:
    """Whether the cluster has computed the chunks already; a copy under another name would take memory twice."""
    from distributed.client import futures_of

    return bool(futures_of(z))


@dataclass(frozen=True, slots=True)
class _Packed:
    """The columns of one chunk as they travel, and as the scheduler keeps them should a worker be lost.

    `targets` is None where they are the two lowest bits of the cell.
    """

    cell: Array
    targets: Array | None
    weight: Array
    n_folds: int

    @classmethod
    def of(cls, columns: Columns, rows: slice) -> _Packed:
        """The columns of some rows."""
        cell, targets = columns.cell[rows], columns.targets[:, rows]
        known = np.array_equal(targets, _labels(cell))
        return cls(_small(cell), None if known else _small(targets), _small(columns.weight[rows]), columns.n_folds)

    def unpack(self) -> Columns:
        """The columns in the types that statistics count on."""
        cell = self.cell.astype(np.intp)
        targets = _labels(cell) if self.targets is None else self.targets
        return Columns(targets.astype(np.float64), cell, self.weight.astype(np.float64), self.n_folds)


def _labels(cell: Array) -> Array:
    """Concept and main label from ``4·fold + 2·y + concept``, shape (2, m)."""
    return np.stack([cell & 1, cell >> 1 & 1])


def _small(numbers: Array) -> Array:
    """The same numbers as uint8 if they fit."""
    with np.errstate(invalid="ignore"):
        short = numbers.astype(np.uint8)
    return short if np.array_equal(short, numbers) else numbers


@dataclass(frozen=True, slots=True)
class _Parcel:
    """Something pickled."""

    content: bytes


# What workers do


def _unpacked(packed: _Packed, chunk: Array) -> Columns:
    columns = packed.unpack()
    if len(chunk) != len(columns):
        raise InputError(f"A chunk of X has {len(chunk)} rows where the array says {len(columns)}.")
    return columns


def _aligned(chunk: Array) -> Array:
    """The chunk in aligned memory; a chunk that was sent may not be.

    NumPy handles unaligned arrays by slower code whose sums differ in the last bits.
    """
    return np.require(chunk, requirements="A")


def _source(chunk: Array, columns: Columns) -> MemoryRows:
    targets, cell, weight = (_aligned(column) for column in (columns.targets, columns.cell, columns.weight))
    return MemoryRows(_aligned(chunk), Columns(targets, cell, weight, columns.n_folds))


def _sent(value: Any) -> Any:
    return value


def _opened(sent: Any) -> Any:
    return cloudpickle.loads(sent.content) if isinstance(sent, _Parcel) else sent


def _summed(chunk: Array, columns: Columns, statistic: Any) -> Any:
    return _source(chunk, columns).sum(_opened(statistic))


def _added(first: Any, *others: Any) -> Any:
    # Sums may add up in place. The first is a result that Dask keeps, and may hand out again when a worker is lost.
    return functools.reduce(operator.add, others, copy.deepcopy(first))


def _projected(chunk: Array, columns: Columns, onto: Any) -> Array:
    return _source(chunk, columns).project(*_opened(onto))._z


# How they are asked to


def _parcel(value: Any) -> Delayed:
    """A value that many tasks need, as a task: it is sent to one worker, and by workers to each other.

    For a cluster it is pickled here, once, and unpickled by each task, so that its arrays are aligned.
    """
    return _task(_sent)(value if _cluster() is None else _Parcel(cloudpickle.dumps(value)))


@functools.cache
def _task(function: Callable[..., Any]) -> Callable[..., Delayed]:
    """A delayed function; not pure, so that Dask does not hash its arguments."""
    task: Callable[..., Delayed] = dask.delayed(function, pure=False)
    return task


def _persisted(tasks: Sequence[Delayed]) -> tuple[Delayed, ...]:
    with _cluster_errors():
        return tuple(dask.persist(*tasks))


def _computed(tasks: Sequence[Delayed]) -> tuple[Any, ...]:
    with _cluster_errors():
        return tuple(dask.compute(*tasks))


@contextmanager
def _cluster_errors() -> Iterator[None]:
    """Turn errors of the cluster into `ClusterLostError`; other errors pass."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, CancelledError) and type(error).__module__.partition(".")[0] != "distributed":
            raise
        what = str(error).partition("\n")[0].rstrip(".") or "no reason given"
        raise ClusterLostError(
            f"The Dask cluster did not finish ({type(error).__name__}: {what}). Single workers may be lost, not the "
            "scheduler, nor each worker that tries a chunk: see that it runs, and that a few chunks fit into the "
            "memory of a worker; then fit again."
        ) from error
