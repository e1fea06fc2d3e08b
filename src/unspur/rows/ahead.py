"""The next piece is read while this one is worked on."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")

#: How long a thread waits before it looks whether anybody still wants what it has, in seconds.
PATIENCE = 0.05


def read_ahead(make: Callable[[], Generator[T, None, None]], depth: int = 1) -> Generator[T, None, None]:
    """The items of ``make()``, of which up to `depth` wait, made by a thread of their own.

    An error in the thread is raised where the items are asked for. The thread has ended when the iterator has: after
    the last item, an error on either side, or `close`.
    """
    waiting: Queue[tuple[T | None, BaseException | None]] = Queue(depth)
    unwanted = Event()

    def hand_over(item: tuple[T | None, BaseException | None]) -> bool:
        while not unwanted.is_set():
            try:
                waiting.put(item, timeout=PATIENCE)
            except Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            with closing(make()) as items:
                for item in items:
                    if not hand_over((item, None)):
                        return
                    del item  # while the next one is made, this one belongs to whoever took it
            hand_over((None, StopIteration()))
        except BaseException as error:
            hand_over((None, error))

    thread = Thread(target=work, name="unspur read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            item, error = waiting.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item  # type: ignore[misc]
            del item
    finally:
        unwanted.set()
        while thread.is_alive():
            try:
                waiting.get(timeout=PATIENCE)
            except Empty:
                continue
        thread.join()
