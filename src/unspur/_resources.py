"""Memory of this process: kept for a network on a CPU, measured, and what is still free. And its threads.

Keep SciPy's linear algebra from fighting NumPy's, and the threads of either from fighting each other.

The wheels of NumPy and SciPy each bring an OpenBLAS with a thread pool of its own, and idle threads of one spin while
the other works: alternating between the two (an optimiser and its objective) was measured six times slower on two
cores.
An optimiser's own vectors are short, so its library gets one thread while it runs. So does what makes many small
products, on rows of few features: on busy cores its threads wait for each other most of the time.
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
    """Have the C library keep large blocks for the next layer instead of returning them; whether it could be asked.

    Feature maps are too large for its usual pools, so every layer begins with page faults on fresh memory: half of the
    time of a small convolutional network on two cores. Linux with glibc only; elsewhere nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1))


def peak_memory() -> int | None:
    """Largest resident memory of this process so far, in bytes; None where the system does not tell (Windows)."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def available_memory() -> int | None:
    """Memory that this process can still have, in bytes, without others being pushed out; None if it cannot be told."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
        return min(free, _allowed())
    except (OSError, ValueError, StopIteration):
        return None


def _allowed() -> int:
    """What a limit of the process (``ulimit -v``) leaves of its address space."""
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
    """One thread for SciPy's own BLAS inside the block; the first to enter limits, the last to leave restores."""
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
    """A context of one BLAS thread for rows of few features; of as many as there are for others."""
    return threadpool_limits(1 if features <= MAX_ONE_THREAD_FEATURES else None, user_api="blas")
