"""Rows in a Dask array: summed where their chunks are, on the cores of this machine or on a cluster.

One task visits one chunk, and sums are added in a tree that depends on the chunks alone. Chunks and labels have recipes
that Dask keeps. So what is lost with a worker is computed again, to the same bits.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np

from unspur._resources import available_memory
from unspur._typing import Array, IntArray
from unspur.exceptions import ClusterLostError, InputError
from unspur.rows.source import Block, MemoryRows, RowLabels, RowSource, S, add_up

#: Neighbouring chunks are put together up to this many bytes: each costs a task in every pass.
MIN_CHUNK_BYTES = 2**26
#: Sums that are added in one task.
FAN_IN = 16
#: Projected rows of up to this many bytes are brought to this process, where visiting them is quicker.
MAX_LOCAL_PROJECTION_BYTES = 64 * 2**20


class DaskRows(RowSource):
    """Rows of a `dask.array` of shape (n, d), as `persist_rows` prepares it; labels live beside their chunks.

    Runs on whatever Dask would use: a cluster where a `distributed.Client` is open, else the cores of this process.
    """

    def __init__(self, z: Array, labels: RowLabels):
        super().__init__(z.shape, labels, np.promote_types(z.dtype, np.float32))
        self._z = z = _persist(_whole_rows(z))
        chunks, ends = z.to_delayed(optimize_graph=False)[:, 0], np.cumsum(z.chunks[0])
        parts = [
            (chunk, labels.select(slice(end - size, end)))
            for chunk, end, size in zip(chunks, ends, z.chunks[0], strict=True)
            if size
        ]
        if _on_a_cluster():  # labels are made from their chunk, so that they are made where it is
            beside = _persist_all([_task(_unpacked)(_packed(own), chunk) for chunk, own in parts])
        else:
            beside = tuple(dask.delayed(own, traverse=False) for _, own in parts)
        self._parts = [(chunk, own) for (chunk, _), own in zip(parts, beside, strict=True)]

    def sum(self, statistic: Callable[[Block], S]) -> S:
        """Sum of `statistic` over the blocks of each chunk, then over chunks in a fixed tree.

        `statistic` is pickled by cloudpickle for a cluster. It should hold no row source.
        """
        sent = dask.delayed(_parcel(statistic), traverse=False)  # to one worker, and by workers to each other
        tasks = [_task(_summed)(chunk, labels, sent) for chunk, labels in self._parts]
        while len(tasks) > FAN_IN:
            tasks = [_task(_added)(*tasks[i : i + FAN_IN]) for i in range(0, len(tasks), FAN_IN)]
        result: S = _added(*compute_together(tasks))
        return result

    def project(self, directions: Array, centre: Array) -> RowSource:
        """Rows ``(z − centre) @ directions`` in float64, each chunk where it is; small ones are brought here."""
        k = directions.shape[1]
        if not k:
            return MemoryRows(np.empty((self.n_rows, 0)), self.labels)
        chunks = (self._z.chunks[0], (k,))
        sent, meta = _parcel((directions, centre)), np.empty((0, 0))
        projected = self._z.map_blocks(_projected, sent, dtype=np.float64, chunks=chunks, meta=meta)
        if projected.nbytes > MAX_LOCAL_PROJECTION_BYTES:
            return DaskRows(projected, self.labels)
        (z,) = compute_together([projected])
        return MemoryRows(np.asfortranarray(z), self.labels)

    def _take(self, rows: IntArray, labels: RowLabels) -> RowSource:
        """Some rows, brought here."""
        (z,) = compute_together([self._z[rows]])
        return MemoryRows(z, labels)


def persist_rows(z: Array) -> Array:
    """The array with whole rows in chunks that are not too small, computed once and kept while the result is alive.

    Without a cluster, an array that would take more than half of the free memory is computed again in every pass.
    """
    if not isinstance(z, da.Array) or z.ndim != 2 or z.nbytes != z.nbytes:
        return z  # to be refused where rows are checked
    z = _whole_rows(z)
    sizes: list[int] = []
    most = MIN_CHUNK_BYTES // max(1, z.shape[1] * z.dtype.itemsize)
    for size in z.chunks[0]:
        if sizes and sizes[-1] + size <= most:
            sizes[-1] += size
        else:
            sizes.append(size)
    return _persist(z.rechunk((tuple(sizes), -1)))


def _persist(z: Array) -> Array:
    free = None if _on_a_cluster() else available_memory()
    with _cluster_errors():
        return z if free is not None and z.nbytes > free / 2 else z.persist()


def map_removal(z: Array, function: Callable[[Array], Array]) -> Array:
    """Lazily apply `function` to every chunk of rows; shape, dtype and chunks stay."""
    return _whole_rows(z).map_blocks(function, dtype=z.dtype, meta=z._meta).rechunk(z.chunks)


def map_logits(z: Array, function: Callable[[Array], Array], width: int | None, dtype: np.dtype[Any]) -> Array:
    """Lazily apply `function` to every chunk of rows; shape (n, width), or (n,) if `width` is None."""
    if width is None:
        return _whole_rows(z).map_blocks(function, drop_axis=1, dtype=dtype, meta=np.empty(0, dtype))
    shape = (z.chunks[0], (width,))
    return _whole_rows(z).map_blocks(function, chunks=shape, dtype=dtype, meta=np.empty((0, 0), dtype))


def per_chunk(z: Array, function: Callable[[Array], S]) -> list[S]:
    """Results of `function` on each chunk (m, d), in order, computed where the chunks are."""
    return list(compute_together([_task(function)(chunk) for chunk in _whole_rows(z).to_delayed()[:, 0]]))


def compute_together(given: Sequence[Any]) -> tuple[Any, ...]:
    """Values with Dask collections among them computed together; others unchanged."""
    with _cluster_errors():
        return tuple(dask.compute(*given, traverse=False))


def _whole_rows(z: Array) -> Array:
    if type(z._meta) is not np.ndarray:
        kind = f"{type(z._meta).__module__.partition('.')[0]}.{type(z._meta).__name__}"
        raise InputError(f"X has chunks of type {kind}; NumPy arrays are needed: X.map_blocks(…) can turn them.")
    return z if z.numblocks[1] == 1 else z.rechunk({1: -1})


def _on_a_cluster() -> bool:
    """Whether Dask would use a `distributed.Client`, and not a scheduler of this process."""
    return getattr(dask.base.get_scheduler(), "__self__", None) is not None


@functools.cache
def _task(function: Callable[..., Any]) -> Callable[..., Any]:
    """A delayed function; not pure, so that Dask does not hash its arguments."""
    task: Callable[..., Any] = dask.delayed(function, pure=False)
    return task


def _persist_all(tasks: Sequence[Any]) -> tuple[Any, ...]:
    with _cluster_errors():
        return tuple(dask.persist(*tasks))


def _parcel(value: Any) -> Any:
    """A value that tasks need: for a cluster pickled here, once, and unpickled by each, so that it is aligned."""
    return cloudpickle.dumps(value) if _on_a_cluster() else value


def _packed(labels: RowLabels) -> RowLabels:
    """The labels as they travel, and as the scheduler keeps them should a worker be lost: in one byte if they fit."""

    def small(numbers: Array) -> Array:
        with np.errstate(invalid="ignore"):
            short = numbers.astype(np.uint8)
        return short if np.array_equal(short, numbers) else numbers

    return replace(labels, targets=small(labels.targets), cell=small(labels.cell), weight=small(labels.weight))


# What workers do


@functools.cache
def _keep_small_blocks() -> None:
    """Let glibc keep 64 MB of freed blocks below 16 MB.

    Dask has its workers give all freed memory back at once, so every temporary array would begin with page faults: a
    fit of 200,000 rows took 1.6 times the processor time.
    """
    if "MALLOC_TRIM_THRESHOLD_" in os.environ:
        with suppress(AttributeError, OSError):  # another C library
            for name, size in ((-3, 16 * 2**20), (-1, 64 * 2**20)):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
                ctypes.CDLL(None).mallopt(name, size)


def _unpacked(labels: RowLabels, chunk: Array) -> RowLabels:  # noqa: ARG001
    targets, weight = labels.targets.astype(np.float64), labels.weight.astype(np.float64)
    return RowLabels(targets, labels.cell.astype(np.intp), weight, labels.n_folds)


def _source(chunk: Array, labels: RowLabels) -> MemoryRows:
    """The rows in aligned memory: those that were sent may not be, and NumPy's sums would differ in the last bits."""
    _keep_small_blocks()
    given: tuple[Any, ...] = labels.targets, labels.cell, labels.weight, chunk
    targets, cell, weight, z = (np.require(one, requirements="A") for one in given)
    return MemoryRows(z, RowLabels(targets, cell, weight, labels.n_folds))


def _opened(sent: Any) -> Any:
    return cloudpickle.loads(sent) if isinstance(sent, bytes) else sent


def _summed(chunk: Array, labels: RowLabels, statistic: Any) -> Any:
    return _source(chunk, labels).sum(_opened(statistic))


def _added(*values: Any) -> Any:
    # Sums add up in place. These are results that Dask keeps, and may hand out again when a worker is lost.
    return add_up([copy.deepcopy(values[0]), *values[1:]])


def _projected(chunk: Array, onto: Any) -> Array:
    return _source(chunk, RowLabels.none(len(chunk))).project(*_opened(onto)).z


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
