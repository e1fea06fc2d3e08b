"""Threads and memory of this process.

Threads of a BLAS wait by spinning, so many small products are faster with one thread: the wheels of NumPy and SciPy
each bring an OpenBLAS, and alternating between two pools was measured six times slower on two cores. Sums over many
blocks of rows use the other cores by threads of our own (`map_blocks`), each with products of its own.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

S = TypeVar("S")
T = TypeVar("T")

#: Features, or rows if those are fewer, up to which products of one block are too small for several threads.
MAX_ONE_THREAD_FEATURES = 2048
#: Threads that BLAS libraries had before `one_blas_thread`, while one is open.
_usual: int | None = None


@functools.cache
def _blas() -> Any:
    import scipy.linalg  # noqa: F401 — loads the library that is to be limited

    return ThreadpoolController().select(user_api="blas")


def usual_threads() -> int:
    """Number of BLAS threads outside of `one_blas_thread`."""
    return _usual or max((library.num_threads for library in _blas().lib_controllers), default=1)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Context in which every BLAS has one thread; inside another one it does nothing."""
    global _usual
    if _usual is not None:
        yield
        return
    _usual = usual_threads()
    try:
        with _blas().limit(limits=1):
            yield
    finally:
        _usual = None


def one_thread_if_small(X: Any) -> AbstractContextManager[None]:
    """Context with one BLAS thread for rows of few features, or few rows, and with the usual number for others.

    With rows on a device the products on the host are few, and the device waits for them.
    """
    shape, device = getattr(X, "shape", None), getattr(getattr(X, "device", None), "type", "cpu")
    on_device = isinstance(device, str) and device != "cpu"  # objects of Dask have any attribute, lazily
    if on_device or not isinstance(shape, tuple) or not all(isinstance(size, int) for size in shape):
        return nullcontext()
    return one_blas_thread() if len(shape) == 2 and min(shape) <= MAX_ONE_THREAD_FEATURES else nullcontext()


@functools.cache
def _workers(number: int, process: int) -> ThreadPoolExecutor:  # noqa: ARG001 — threads do not survive a fork
    return ThreadPoolExecutor(number, thread_name_prefix="unspur")


def map_blocks(function: Callable[[T], S], blocks: Sequence[T]) -> Iterator[S]:
    """Results of a function for each block of rows, in order, from as many threads as a BLAS would use.

    In a thread other than the main one, blocks are handled one after the other: the program then has threads of its
    own for the other cores. Results wait for the caller, one for each thread and no more: a sum of products may be
    larger than a block.
    """
    number = min(usual_threads(), len(blocks))
    if number < 2 or threading.current_thread() is not threading.main_thread():
        yield from map(function, blocks)
        return
    workers, waiting = _workers(usual_threads(), os.getpid()), deque[Future[S]]()
    with one_blas_thread():
        for block in blocks:
            waiting.append(workers.submit(function, block))
            if len(waiting) > number:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def available_memory() -> int | None:
    """Memory that this process can still allocate without swapping, in bytes; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None
