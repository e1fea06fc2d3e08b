"""Load examples in threads, ahead of the network that they are for.

Pillow decodes and scales pictures without holding Python's lock, so a few threads use as many cores.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

#: Most threads unless more are asked for. Part of loading holds Python's lock: on 16 cores, 4 threads loaded 2,040
#: pictures a second, 8 threads 1,780 and 16 threads 1,570 (`benchmarks/embed_speed.py`).
MAX_THREADS = 4


def thread_count(workers: int | None = None) -> int:
    """Number of threads: what was asked for, or one for each core that the process may use, up to 4."""
    if workers is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(cores, MAX_THREADS)
    return max(1, workers)


def loaded_batches(
    load: Callable[[int], T], numbers: Sequence[int], batch: int, workers: int | None = None
) -> Generator[list[T], None, None]:
    """``load(number)`` of all numbers in their order, in lists of `batch`.

    While a list is in use, the next one is loaded, or two examples for each thread if those are more. An error is
    raised in its turn. Close the iterator to drop what was not begun.
    """
    threads = thread_count(workers)
    ahead = max(batch, 2 * threads)
    pool = ThreadPoolExecutor(threads)
    loading: deque[Future[T]] = deque()
    coming = iter(numbers)
    try:
        for start in range(0, len(numbers), batch):
            loading.extend(pool.submit(load, number) for number in islice(coming, batch + ahead - len(loading)))
            yield [loading.popleft().result() for _ in numbers[start : start + batch]]
    finally:
        pool.shutdown(cancel_futures=True)
