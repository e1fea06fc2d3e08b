"""Memory and BLAS threads of this process.

The wheels of NumPy and SciPy each bring an OpenBLAS with a thread pool of its own, and idle threads of one spin while
the other works: alternating between the two (an optimiser and its objective) was measured six times slower on two
cores. An optimiser's own vectors are short, so SciPy's BLAS gets one thread while it runs. Many small products, on rows
of few features, get one thread as well: on busy cores several would mostly wait for each other. Sums over many blocks
of rows use all cores by threads of our own (`map_blocks`), each with products of its own.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

S = TypeVar("S")
T = TypeVar("T")

#: Parameters of glibc's `mallopt`: how many blocks may come straight from the kernel, from which size on they do, and
#: how much may be free before it is given back.
_MMAP_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -4, -3, -1
#: Largest block that `keep_small_blocks` keeps, and how much in all.
SMALL_BLOCK_BYTES, MAX_KEPT_BYTES = 16 * 2**20, 64 * 2**20


def keep_freed_memory() -> bool:
    """Make the C library keep large freed blocks for the next layer; return whether that worked.

    Feature maps are too large for its usual pools, so every layer begins with page faults on fresh memory, which take
    half of the time of a small convolutional network on two cores. Only on Linux with glibc.
    """
    return _mallopt({_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1})


@functools.cache
def keep_small_blocks() -> bool:
    """Undo, for small blocks, an order to give all freed memory back at once; return whether there was one.

    Dask's workers get this order (``MALLOC_TRIM_THRESHOLD_``), so that memory of chunks is free when they are. It also
    makes every temporary array of a sum begin with page faults: second moments took two thirds longer.
    """
    return "MALLOC_TRIM_THRESHOLD_" in os.environ and _mallopt(
        {_MMAP_THRESHOLD: SMALL_BLOCK_BYTES, _TRIM_THRESHOLD: MAX_KEPT_BYTES}
    )


def _mallopt(settings: dict[int, int]) -> bool:
    """Set parameters of glibc's `malloc`; return whether that worked."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return False
    return all(mallopt(name, value) for name, value in settings.items())


def peak_memory() -> int | None:
    """Peak resident memory of this process in bytes; None on Windows, which does not tell."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def available_memory() -> int | None:
    """Memory that this process can still allocate without swapping, in bytes; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
        return min(free, _allowed())
    except (OSError, ValueError, StopIteration):
        return None


def _allowed() -> int:
    """Address space that is left under the limit of the process (``ulimit -v``)."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return sys.maxsize
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    return max(0, most - used)


#: Features, or rows if those are fewer, up to which products of one block are too small for several threads.
MAX_ONE_THREAD_FEATURES = 2048


#: Number of contexts that hold a BLAS library at one thread, and its threads before, by its path.
_held: dict[str, tuple[int, int]] = {}
_lock = threading.Lock()


class _OneThread:
    """Limits BLAS libraries to one thread for the time of a context, which may be nested and shared between threads."""

    def __init__(self, path: str):
        self._path = path

    @functools.cached_property
    def _libraries(self) -> list[Any]:
        import scipy.optimize  # noqa: F401 — loads the library that is to be limited

        controllers = ThreadpoolController().select(user_api="blas").lib_controllers
        return [library for library in controllers if self._path in library.filepath]

    @property
    def usual(self) -> int:
        """Number of threads outside of the context."""
        with _lock:
            return max((self._before(library) for library in self._libraries), default=1)

    @staticmethod
    def _before(library: Any) -> int:
        return _held[library.filepath][1] if library.filepath in _held else int(library.num_threads)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with _lock:
            for library in self._libraries:
                users, before = _held.get(library.filepath, (0, int(library.num_threads)))
                _held[library.filepath] = users + 1, before
                if not users:
                    library.set_num_threads(1)
        try:
            yield
        finally:
            with _lock:
                for library in self._libraries:
                    users, before = _held.pop(library.filepath)
                    if users > 1:
                        _held[library.filepath] = users - 1, before
                    else:
                        library.set_num_threads(before)


#: Context in which SciPy's own BLAS has one thread.
one_scipy_thread = _OneThread("scipy.libs")
#: Context in which every BLAS has one thread.
one_blas_thread = _OneThread("")


def one_thread_if_small(X: Any) -> AbstractContextManager[None]:
    """Context with one BLAS thread for rows of few features, or few rows, and with the usual number for others.

    Threads of a BLAS wait by spinning: on busy cores, products of small blocks were measured ten times slower with two
    threads than with one. `map_blocks` uses the other cores, and waits without spinning. With rows on a device the
    products on the host are few, and the device waits for them.
    """
    device = getattr(getattr(X, "device", None), "type", "cpu")  # objects of Dask have any attribute, lazily
    if isinstance(device, str) and device != "cpu":
        return nullcontext()
    shape = None
    with suppress(RuntimeError):  # nested tensors have none, and are refused later
        shape = getattr(X, "shape", None)
    if not isinstance(shape, tuple) or not all(isinstance(size, int) for size in shape):  # Dask may not know them
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
    number = min(one_blas_thread.usual, len(blocks))
    if number < 2 or threading.current_thread() is not threading.main_thread():
        yield from map(function, blocks)
        return
    workers, waiting = _workers(one_blas_thread.usual, os.getpid()), deque[Future[S]]()
    with one_blas_thread():
        for block in blocks:
            waiting.append(workers.submit(function, block))
            if len(waiting) > number:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
