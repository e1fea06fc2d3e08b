"""Examples on their way to a network, round after round: prepared in threads, one batch ahead, and kept if they fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from unspur._typing import IntArray
from unspur_paper.embedding.base import NetworkEncoder
from unspur_paper.embedding.examples import Examples, thread_count

#: Bytes of prepared examples that are kept in memory, unless said otherwise.
BUDGET = 4 * 2**30
#: Examples at a time where nothing is learned: when the network is judged, and when it embeds.
AT_ONCE = 64


class Prepared:
    """Prepared examples by number.

    As many as fit into `budget` bytes are kept after their first use; the others are loaded again each time.
    """

    #: Examples at a time where nothing is learned.
    at_once = AT_ONCE

    def __init__(
        self, examples: Examples, encoder: NetworkEncoder, workers: int | None = None, budget: int = BUDGET
    ) -> None:
        self._examples, self._encoder, self._left = examples, encoder, budget
        self.numbers = np.arange(len(examples))
        self._kept: dict[int, Any] = {}
        self._pool = ThreadPoolExecutor(thread_count(workers))

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)

    def batches(self, chunks: Sequence[IntArray]) -> Iterator[list[Any]]:
        """The examples of each chunk, the next chunk being prepared while one is in use."""
        coming = self._ask(chunks[0]) if len(chunks) else []
        for following in range(1, len(chunks) + 1):
            here, coming = coming, self._ask(chunks[following]) if following < len(chunks) else []
            yield [self._take(number, asked) for number, asked in here]

    def inputs(self, batch: Any) -> Any:
        """A batch as inputs of the network."""
        return self._encoder.batch(batch)

    def rows(self, chunk: IntArray) -> Any:
        """Numbers of examples as a tensor on the device of the network."""
        import torch

        return torch.from_numpy(chunk).to(self._encoder.where.device)

    def _ask(self, chunk: IntArray) -> list[tuple[int, Future[Any] | None]]:
        return [(i, None if i in self._kept else self._pool.submit(self._load, i)) for i in chunk.tolist()]

    def _load(self, number: int) -> Any:
        return self._encoder.prepare(self._examples[number])

    def _take(self, number: int, asked: Future[Any] | None) -> Any:
        if asked is None:
            return self._kept[number]
        made = asked.result()
        size = made.nbytes if isinstance(made, np.ndarray) else 8 * sum(map(len, made.values()))
        if size <= self._left and number not in self._kept:
            self._kept[number] = made
            self._left -= size
        return made
