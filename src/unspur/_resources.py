"""Memory and BLAS threads of this process.

The wheels of NumPy and SciPy each bring an OpenBLAS with a thread pool of its own, and idle threads of one spin while
the other works: alternating between the two (an optimiser and its objective) was measured six times slower on two
cores. An optimiser's own vectors are short, so SciPy's BLAS gets one thread while it runs. Many small products, on rows
of few features, get one thread as well: on busy cores several would mostly wait for each other.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import scipy.optimize  # noqa: F401 — loads the library that is to be limited
from threadpoolctl import ThreadpoolController, threadpool_limits

#: Parameters of glibc's `mallopt`: how many blocks may come straight from the kernel, and how much is given back to it.
_MMAP_MAX, _TRIM_THRESHOLD = -4, -1


def keep_freed_memory() -> bool:
    """Make the C library keep large freed blocks for the next layer; return whether that worked.

    Feature maps are too large for its usual pools, so every layer begins with page faults on fresh memory, which take
    half of the time of a small convolutional network on two cores. Only on Linux with glibc.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1))


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


#: Features up to which one thread is quicker than several.
MAX_ONE_THREAD_FEATURES = 512

_lock = threading.Lock()
_users = 0
_limit: Any = None


@functools.cache
def _scipy_pools() -> Any:
    controller = ThreadpoolController()
    paths = [library.filepath for library in controller.lib_controllers if "scipy.libs" in library.filepath]
    return controller.select(filepath=paths)


@contextmanager
def one_scipy_thread() -> Iterator[None]:
    """Context in which SciPy's own BLAS has one thread; may be nested and shared between threads."""
    global _users, _limit
    with _lock:
        if _users == 0:
            _limit = _scipy_pools().limit(limits=1)
            _limit.__enter__()
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limit.__exit__(None, None, None)


def one_thread_if_narrow(features: int) -> Any:
    """Context with one BLAS thread for rows of few features, and with the usual number for others."""
    return threadpool_limits(1 if features <= MAX_ONE_THREAD_FEATURES else None, user_api="blas")
