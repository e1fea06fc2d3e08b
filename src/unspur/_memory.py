"""Memory of this process: kept for a network on a CPU, measured, and what is still free."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

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
