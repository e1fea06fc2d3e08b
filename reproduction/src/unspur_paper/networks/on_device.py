"""All examples of a training as tensors on the device of its network, so that a step needs their numbers only.

::

    numbers of examples ──rows──▶ places in the tables ──inputs──▶ batch of the network

Texts of a batch are padded to a multiple of `BLOCK` tokens, so that few shapes of a batch are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, ClassVar

import numpy as np

from unspur._typing import IntArray
from unspur_paper.embedding.base import NetworkEncoder, colour_scale, standardise
from unspur_paper.embedding.examples import Examples, loaded_batches

#: Tokens that the length of a batch of texts is a multiple of.
BLOCK = 32
#: Share of the device's free memory that examples may take.
SHARE = 0.25
#: Examples that are prepared at a time.
CHUNK = 256


class OnDevice:
    """Prepared examples `numbers` on the device of an encoder."""

    #: Examples at a time where nothing is learned.
    at_once: ClassVar[int] = 256

    def __init__(
        self, examples: Examples, encoder: NetworkEncoder, numbers: IntArray, workers: int | None = None
    ) -> None:
        self._place = np.full(len(examples), -1, dtype=np.int64)
        self._place[numbers] = np.arange(len(numbers))
        self.numbers, self.device = numbers, encoder.where.device
        loaded = loaded_batches(lambda i: encoder.prepare(examples[i]), numbers.tolist(), CHUNK, workers)
        with closing(loaded):
            self._fill(loaded, encoder)

    def _fill(self, loaded: Iterator[list[Any]], encoder: NetworkEncoder) -> None:
        raise NotImplementedError

    def shape(self, chunk: IntArray) -> tuple[int, ...]:
        """What the shapes of a batch depend on; the first is the number of its examples."""
        return (len(chunk),)

    def rows(self, chunk: IntArray) -> Any:
        """Places of examples in the tables, on the device."""
        import torch

        # Not blocking: else every step would wait for all that were launched before.
        return torch.from_numpy(self._place[chunk]).to(self.device, non_blocking=True)

    def gather(self, rows: Any, shape: tuple[int, ...]) -> Any:
        """Inputs of the network; on the device alone, so that it can be part of a CUDA graph."""
        raise NotImplementedError

    def batches(self, chunks: Sequence[IntArray]) -> Iterator[IntArray]:
        """The examples of each chunk, by their numbers."""
        yield from chunks

    def inputs(self, batch: Any) -> Any:
        """Inputs of the network for some examples, by their numbers."""
        return self.gather(self.rows(batch), self.shape(batch))

    def close(self) -> None:
        """Nothing is open."""


class PicturesOnDevice(OnDevice):
    """Pictures of one shape, as a table of bytes where the encoder says how to cut and scale them."""

    def _fill(self, loaded: Iterator[list[Any]], encoder: NetworkEncoder) -> None:
        import torch

        preparation = getattr(encoder, "preparation", None)
        self._colours = None if preparation is None else colour_scale(preparation, self.device)
        table: Any = None
        done = 0
        for batch in loaded:
            block = torch.from_numpy(np.stack(batch))
            if table is None:
                table = torch.empty((len(self.numbers), *block.shape[1:]), dtype=block.dtype, device=self.device)
            table[done : done + len(batch)] = block.to(self.device)
            done += len(batch)
        self._table = table

    def gather(self, rows: Any, shape: tuple[int, ...]) -> Any:  # noqa: ARG002
        """Pictures, channels last."""
        import torch

        found = self._table[rows]
        if self._colours is None:
            return found.contiguous(memory_format=torch.channels_last)
        return standardise(found, *self._colours)


class TextsOnDevice(OnDevice):
    """Tokens of texts, padded on the right to the longest of all."""

    def _fill(self, loaded: Iterator[list[Any]], encoder: NetworkEncoder) -> None:
        texts = [tokens for batch in loaded for tokens in batch]
        self._lengths = np.array([len(tokens["input_ids"]) for tokens in texts])
        self._limit = encoder.max_tokens or int(self._lengths.max())
        self._tables = encoder.batch(texts)

    def shape(self, chunk: IntArray) -> tuple[int, ...]:
        """Examples and tokens."""
        longest = int(self._lengths[self._place[chunk]].max())
        return len(chunk), min(-(-longest // BLOCK) * BLOCK, self._limit)

    def gather(self, rows: Any, shape: tuple[int, ...]) -> Any:
        """Tokens and their mask."""
        return {key: table[rows, : shape[1]] for key, table in self._tables.items()}


def on_device(
    examples: Examples, encoder: NetworkEncoder, numbers: IntArray, workers: int | None = None
) -> OnDevice | None:
    """The examples on the encoder's device; None if they would take too much of its memory."""
    import torch

    kind = PicturesOnDevice if encoder.kind == "image" else TextsOnDevice
    if encoder.kind == "image" and len(numbers):
        one = np.asarray(encoder.prepare(examples[int(numbers[0])])).nbytes
        free, _ = torch.cuda.mem_get_info(encoder.where.device)
        if one * len(numbers) > SHARE * free:
            return None
    return kind(examples, encoder, numbers, workers)
