"""Rows in a Dask array: summed where their chunks are, on the cores of this machine or on a cluster.

::

    chunk 0 ─ statistic ─┐
    chunk 1 ─ statistic ─┴─ + ─┐
    chunk 2 ─ statistic ─┐     ├─ + ──▶ one small result, here
    chunk 3 ─ statistic ─┴─ + ─┘

Neighbours are added in pairs, so the tree of sums depends on the chunks alone. On a cluster one task visits all chunks
that a worker holds, up to `MAX_TASK_BYTES`, and adds the neighbours among them; the client adds the rest. Chunks,
columns and tasks have recipes that Dask keeps. So what is lost with a worker is computed again, to the same bits.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeAlias
from weakref import WeakValueDictionary

import cloudpickle
import dask
import dask.array as da
import numpy as np

from unspur._typing import Array, IntArray
from unspur.exceptions import ClusterLostError, InputError
from unspur.rows.source import Block, LabelledRows, MemoryRows, RowLabels, RowSource, S, Weighting

#: Bytes of chunks that one task visits, unless a single chunk has more. A task has all its chunks in memory at once,
#: also those that the worker had spilled to disk.
MAX_TASK_BYTES = 512 * 2**20
#: Bytes of a statistic, for all tasks together, that the scheduler sends.
MAX_SENT_BYTES = 16 * 2**20
#: Bytes of partial sums that are brought to this process. Larger ones are added on the cluster.
MAX_PARTIAL_SUM_BYTES = 32 * 2**20
#: Results that are added in one task, a power of two.
FAN_IN = 8
#: Projected rows of up to this many bytes are brought to this process, where visiting them is quicker.
MAX_LOCAL_PROJECTION_BYTES = 64 * 2**20

Delayed: TypeAlias = Any
#: Persisted arrays by name and cluster, for as long as they are in use.
_persistent: WeakValueDictionary[tuple[str, str | None], Any] = WeakValueDictionary()


class DaskRows(LabelledRows):
    """Rows of a `dask.array` of shape (n, d), computed once and kept by their workers while this source lives.

    A chunk holds whole rows: an array that is cut along the features is put together first. Columns travel once, at
    two bytes a row where labels are binary and weights 0 or 1. Runs on whatever Dask would use: a cluster where a
    `distributed.Client` is open, else the cores of this process.
    """

    def __init__(self, z: Array, labels: RowLabels):
        super().__init__(z.shape, labels, np.promote_types(z.dtype, np.float32))
        z = persist_rows(z)
        full, ends = np.flatnonzero(z.chunks[0]), np.cumsum(z.chunks[0])  # a chunk may be empty
        self._slices = [slice(int(ends[i] - z.chunks[0][i]), int(ends[i])) for i in full]
        chunks = z.to_delayed(optimize_graph=False)[full, 0]
        packed = [_Packed.of(labels, rows) for rows in self._slices]
        # Made from its chunk, so that it is made where the chunk is.
        beside = _persisted([_task(_unpacked)(own, chunk) for own, chunk in zip(packed, chunks, strict=True)])
        self._parts = list(zip(chunks, beside, strict=True))
        self._z = z  # keeps `persist_rows` from computing the chunks again for another source
        self._workers = _Workers.of(self._parts, [z, *beside], z.nbytes)
        self._large: set[str] = set()  # names of statistics with large sums

    def sum(self, statistic: Callable[[Block], S]) -> S:
        """Sum of `statistic` over the blocks of each chunk, then over chunks in a fixed tree.

        `statistic` is pickled by cloudpickle for a cluster. It should hold no row source.
        """
        sent, name = _parcel(statistic), getattr(statistic, "__qualname__", type(statistic).__qualname__)
        result: S
        if self._workers is not None and name not in self._large:
            sums = _partial_sums(self._workers, sent)
            if sums is not None:
                result = sums.total
                return result
            self._large.add(name)
        task = _task(_sent)(sent)  # sent to one worker, and by workers to each other
        tasks = [_task(_summed)(chunk, labels, task) for chunk, labels in self._parts]
        while len(tasks) > 1:
            tasks = [_task(_added)(*tasks[i : i + FAN_IN]) for i in range(0, len(tasks), FAN_IN)]
        (result,) = _computed(tasks)
        return result

    def project(self, directions: Array, centre: Array) -> RowSource:
        """Rows ``(z − centre) @ directions`` in float64, each chunk where it is; small ones are brought here."""
        k = directions.shape[1]
        sent, small = _parcel((directions, centre)), 8 * self.n_rows * max(1, k) <= MAX_LOCAL_PROJECTION_BYTES
        if small and not k:
            return MemoryRows(np.empty((self.n_rows, 0)), self.labels)
        if small:
            z = np.concatenate([chunk.T for chunk in _each(self._parts, self._workers, _projected, sent)], axis=1)
            return MemoryRows(z.T, self.labels)
        task = _task(_sent)(sent)
        return self._with(_persisted([_task(_projected)(*part, task) for part in self._parts]), k)

    def _with(self, chunks: Sequence[Delayed], n_features: int) -> Self:
        """Other rows in float64, as many to a chunk, with the same labels."""
        other = copy.copy(self)
        other.n_features, other.dtype = n_features, np.dtype(np.float64)
        other._parts = [(chunk, labels) for chunk, (_, labels) in zip(chunks, self._parts, strict=True)]
        other._workers, other._large = _Workers.of(other._parts, other._parts, 8 * n_features * self.n_rows), set()
        return other

    def _take(self, rows: IntArray, labels: RowLabels) -> RowSource:
        """Some rows, brought here."""
        return MemoryRows(self._fetched(rows), labels)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_workers": None}  # futures are bound to this process; Dask binds those of graphs anew

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
        # What the cluster has computed already is left alone: a copy under another name would take memory twice.
        if cluster is not None and not _futures(there):
            there = there.map_blocks(_aligned, dtype=z.dtype, meta=z._meta)
        with _cluster_errors():
            there = there.persist()
        there = _WeakArray(there.dask, there.name, there.chunks, meta=there._meta)
        _persistent[z.name, cluster] = _persistent[there.name, cluster] = there
    return there


def map_removal(z: Array, function: Callable[[Array], Array]) -> Array:
    """Lazily apply `function` to every chunk of rows; shape, dtype and chunks stay."""
    return _whole_rows(z).map_blocks(function, dtype=z.dtype, meta=z._meta).rechunk(z.chunks)


def map_logits(z: Array, function: Callable[[Array], Array], width: int | None, dtype: np.dtype[Any]) -> Array:
    """Lazily apply `function` to every chunk of rows; shape (n, width), or (n,) if `width` is None."""
    if width is None:
        return _whole_rows(z).map_blocks(function, drop_axis=1, dtype=dtype, meta=np.empty(0, dtype))
    shape = (z.chunks[0], (width,))
    return _whole_rows(z).map_blocks(function, chunks=shape, dtype=dtype, meta=np.empty((0, 0), dtype))


def compute_together(given: Sequence[Any]) -> tuple[Any, ...]:
    """Values with Dask collections among them computed together; others unchanged."""
    with _cluster_errors():
        return tuple(dask.compute(*given, traverse=False))


def per_chunk(z: Array, function: Callable[[Array], S]) -> list[S]:
    """Results of `function` on each chunk (m, d), in order, computed where the chunks are."""
    z = _whole_rows(_persistent.get((z.name, _cluster()), z))
    chunks = [(chunk,) for chunk in z.to_delayed()[:, 0]]
    return _each(chunks, _Workers.of(chunks, [z], z.nbytes), function)


def _whole_rows(z: Array) -> Array:
    if type(z._meta) is not np.ndarray:
        kind = f"{type(z._meta).__module__.partition('.')[0]}.{type(z._meta).__name__}"
        raise InputError(f"X has chunks of type {kind}; NumPy arrays are needed: X.map_blocks(…) can turn them.")
    return z if z.numblocks[1] == 1 else z.rechunk({1: -1})


def _cluster() -> str | None:
    """Id of the client that Dask would use; None for the schedulers of this process."""
    client = getattr(dask.base.get_scheduler(), "__self__", None)
    return getattr(client, "id", None)


def _futures(collections: Any) -> dict[Any, Any]:
    """Futures of what a cluster has computed, or computes, by their keys."""
    from distributed.client import futures_of

    return {future.key: future for future in futures_of(collections)}


@dataclass(frozen=True, slots=True)
class _Packed:
    """The labels of one chunk as they travel, and as the scheduler keeps them should a worker be lost.

    `targets` is None where they are the two lowest bits of the cell.
    """

    cell: Array
    targets: Array | None
    weight: Array
    n_folds: int

    @classmethod
    def of(cls, labels: RowLabels, rows: slice) -> _Packed:
        """The labels of some rows."""
        cell, targets = labels.cell[rows], labels.targets[:, rows]
        known = np.array_equal(targets, _labels(cell))
        return cls(_small(cell), None if known else _small(targets), _small(labels.weight[rows]), labels.n_folds)

    def unpack(self) -> RowLabels:
        """The labels in the types that statistics count on."""
        cell = self.cell.astype(np.intp)
        targets = _labels(cell) if self.targets is None else self.targets
        return RowLabels(targets.astype(np.float64), cell, self.weight.astype(np.float64), self.n_folds)


def _labels(cell: Array) -> Array:
    """Concept and main label from ``4·fold + 2·y + concept``, shape (2, m)."""
    return np.stack([cell & 1, cell >> 1 & 1])


def _small(numbers: Array) -> Array:
    """The same numbers as uint8 if they fit."""
    with np.errstate(invalid="ignore"):
        short = numbers.astype(np.uint8)
    return short if np.array_equal(short, numbers) else numbers


class _SumTree:
    """Sums over n chunks: neighbours are added in pairs, then the sums of neighbours, up to the sum of all.

    ``sums[level, k]`` is the sum over the 2^level chunks from number ``k · 2^level`` on, or over as many as there are.
    Sums that have been added to their neighbour are dropped. ``+`` may change its left operand.
    """

    def __init__(self, n: int, sums: Iterable[tuple[tuple[int, int], Any]] = ()):
        self.n = n
        self.sums: dict[tuple[int, int], Any] = {}
        for place, value in sums:
            self.add(place, value)

    def add(self, place: tuple[int, int], value: Any) -> None:
        """Put a sum into its place, and add it to its neighbour if that is there, as far up as possible."""
        level, k = place
        while (width := -(-self.n >> level)) > 1:
            neighbour = k ^ 1
            if neighbour < width:  # else it is the last of an odd number
                if (level, neighbour) not in self.sums:
                    break
                other = self.sums.pop((level, neighbour))
                value = value + other if k < neighbour else other + value
            level, k = level + 1, k >> 1
        self.sums[level, k] = value

    @property
    def total(self) -> Any:
        """The sum over all chunks, once all were added."""
        (value,) = self.sums.values()
        return value


class _Workers:
    """Which workers of a cluster hold the parts of a source.

    Parameters
    ----------
    parts : futures of each part, a chunk first.
    nbytes : size of all chunks together.
    """

    def __init__(self, parts: Sequence[tuple[Any, ...]], nbytes: int):
        self._parts, self.n_parts = parts, len(parts)
        self._mean_bytes = nbytes / len(parts)
        self._groups: dict[str, list[list[int]]] = {}

    @classmethod
    def of(cls, parts: Sequence[tuple[Delayed, ...]], collections: Any, nbytes: int) -> Self | None:
        """Where the parts are, which are among persisted `collections`; None unless they are on a cluster."""
        futures = {} if _cluster() is None else _futures(collections)
        if not parts or any(delayed.key not in futures for part in parts for delayed in part):
            return None
        return cls([tuple(futures[delayed.key] for delayed in part) for part in parts], nbytes)

    def groups(self) -> list[list[int]]:
        """Numbers of parts that one task visits: those of a worker, divided among its threads, in the order of rows."""
        chunks = [part[0] for part in self._parts]
        pending = [chunk for chunk in chunks if not chunk.done()]
        if pending or not self._groups:
            self._groups = self._placed(chunks, pending)
        return list(itertools.chain(*self._groups.values()))

    def _placed(self, chunks: Sequence[Any], pending: Sequence[Any]) -> dict[str, list[list[int]]]:
        """Groups by the address of their worker; a chunk that was lost, and is nowhere, has its own."""
        from distributed import wait

        client = chunks[0].client
        with _cluster_errors():
            if pending:
                wait(pending)
            held, threads = client.who_has(chunks), client.nthreads()
        numbers: dict[str, list[int]] = {}
        for number, chunk in enumerate(chunks):
            addresses = held.get(chunk.key) or [f"nowhere {number}"]
            fewest = min(addresses, key=lambda address: len(numbers.get(address, ())))  # of a chunk that has copies
            numbers.setdefault(fewest, []).append(number)
        groups = {}
        for address, own in numbers.items():
            tasks = max(threads.get(address, 1), math.ceil(len(own) * self._mean_bytes / MAX_TASK_BYTES))
            groups[address] = [part.tolist() for part in np.array_split(own, min(tasks, len(own)))]
        return groups

    def run(self, function: Callable[..., S], *same: Any) -> list[S]:
        """Results of ``function(numbers, parts, *same)`` for each of `groups`, one task each."""
        groups, addresses = self.groups(), [address for address, own in self._groups.items() for _ in own]
        parts = [[list(self._parts[number]) for number in numbers] for numbers in groups]
        client = self._parts[0][0].client
        with _cluster_errors():
            same = tuple(
                client.submit(_sent, value, pure=False)  # workers send it to each other
                if isinstance(value, _Parcel) and len(value.content) * len(groups) > MAX_SENT_BYTES
                else value
                for value in same
            )
            repeated = ([value] * len(groups) for value in (function, *same))
            found = client.gather(client.map(_with_address, groups, parts, *repeated, pure=False))
        if [address for address, _ in found] != addresses:  # a worker is gone, or busy
            self._groups = {}
        return [result for _, result in found]


@dataclass(frozen=True, slots=True)
class _Parcel:
    """Something pickled."""

    content: bytes


# What workers do


def _unpacked(packed: _Packed, chunk: Array) -> RowLabels:
    labels = packed.unpack()
    if len(chunk) != len(labels):
        raise InputError(f"A chunk of X has {len(chunk)} rows where the array says {len(labels)}.")
    return labels


def _aligned(chunk: Array) -> Array:
    """The chunk in aligned memory; a chunk that was sent may not be.

    NumPy handles unaligned arrays by slower code whose sums differ in the last bits.
    """
    return np.require(chunk, requirements="A")


def _source(chunk: Array, labels: RowLabels) -> MemoryRows:
    targets, cell, weight = (_aligned(column) for column in (labels.targets, labels.cell, labels.weight))
    return MemoryRows(_aligned(chunk), RowLabels(targets, cell, weight, labels.n_folds))


def _sent(value: Any) -> Any:
    return value


def _opened(sent: Any) -> Any:
    return cloudpickle.loads(sent.content) if isinstance(sent, _Parcel) else sent


def _summed(chunk: Array, labels: RowLabels, statistic: Any) -> Any:
    return _source(chunk, labels).sum(_opened(statistic))


def _sums_of_some(numbers: Sequence[int], parts: Sequence[Any], sent: Any, n: int, limit: int) -> _SumTree | None:
    """What can be added up of the sums over some of n chunks; None if a sum has more bytes than `limit`."""
    statistic, (chunk, labels) = _opened(sent), parts[0]
    if _size(_source(chunk[:1], labels.select(slice(1))).sum(statistic)) > limit:
        return None
    chunks = zip(numbers, parts, strict=True)
    return _SumTree(n, (((0, number), _source(*part).sum(statistic)) for number, part in chunks))


def _size(value: Any) -> int:
    """Bytes of a result that is sent."""
    sizes: list[int] = []
    rest = cloudpickle.dumps(value, protocol=5, buffer_callback=lambda array: sizes.append(array.raw().nbytes))
    return len(rest) + sum(sizes)


def _added(*values: Any) -> Any:
    # Sums may add up in place. These are results that Dask keeps, and may hand out again when a worker is lost.
    return _SumTree(len(values), (((0, number), copy.deepcopy(value)) for number, value in enumerate(values))).total


def _with_address(
    numbers: Sequence[int], parts: Sequence[Any], function: Callable[..., S], *same: Any
) -> tuple[str, S]:
    from distributed import get_worker

    return get_worker().address, function(numbers, parts, *same)


def _one_by_one(
    numbers: Sequence[int], parts: Sequence[Any], function: Callable[..., S], *same: Any
) -> list[tuple[int, S]]:
    return [(number, function(*part, *same)) for number, part in zip(numbers, parts, strict=True)]


def _projected(chunk: Array, labels: RowLabels, onto: Any) -> Array:
    return _source(chunk, labels).project(*_opened(onto)).z


# How they are asked to


def _parcel(value: Any) -> Any:
    """A value that many tasks need: for a cluster pickled here, once, and unpickled by each, so that it is aligned."""
    return value if _cluster() is None else _Parcel(cloudpickle.dumps(value))


def _partial_sums(workers: _Workers, sent: Any) -> _SumTree | None:
    """The sum over all chunks, from what each worker can add up; None if that is too large to be brought here."""
    n = workers.n_parts
    left = sum(len(_SumTree(n, (((0, number), 0) for number in numbers)).sums) for numbers in workers.groups())
    found = workers.run(_sums_of_some, sent, n, MAX_PARTIAL_SUM_BYTES // left)
    sums = [some.sums for some in found if some is not None]
    if len(sums) < len(found):
        return None
    # Copied, since results in this process may be Dask's own.
    return _SumTree(n, itertools.chain(*(copy.deepcopy(some).items() for some in sums)))


def _each(
    parts: Sequence[tuple[Delayed, ...]], workers: _Workers | None, function: Callable[..., S], *same: Any
) -> list[S]:
    """Results of ``function(*part, *same)`` for each part, in order."""
    if workers is None:
        return list(_computed([_task(function)(*part, *same) for part in parts]))
    results = dict(itertools.chain(*workers.run(_one_by_one, function, *same)))
    return [results[number] for number in range(len(parts))]


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
