"""Keep SciPy's linear algebra from fighting NumPy's, and the threads of either from fighting each other.

The wheels of NumPy and SciPy each bring an OpenBLAS with a thread pool of its own, and idle threads of one spin while
the other works: alternating between the two (an optimiser and its objective) was measured six times slower on two
cores.
An optimiser's own vectors are short, so its library gets one thread while it runs. So does what makes many small
products, on rows of few features: on busy cores its threads wait for each other most of the time.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import scipy.optimize  # noqa: F401 — loads the library that is to be limited
from threadpoolctl import ThreadpoolController, threadpool_limits

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
