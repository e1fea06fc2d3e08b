"""Pictures scaled once to the square that networks cut their input from, for several networks on the same pictures.

::

    <name>-<key>-256.npy    bytes (n, 256, 256, 3), opened as a memory map
    <name>-<key>-256.json   digest of the pictures that it was made of; written last: squares that have one are whole

Networks see the same pixels as without, but for rounding: some differ by one of 255 levels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspur._files import atomic
from unspur._typing import Array
from unspur_paper.embedding.base import Preparation, resize_and_crop
from unspur_paper.embedding.examples import Examples, Kind, as_rgb, digest_of, loaded_batches
from unspur_paper.files import read_json


@dataclass(frozen=True, slots=True)
class Squares:
    """The pictures of `whole` as squares."""

    whole: Any
    pixels: NDArray[np.uint8]
    content: str

    @classmethod
    def of(cls, whole: Examples, folder: Path, side: int, workers: int | None = None) -> Squares:
        """Squares in a folder, made there unless they are."""
        path = squares_file(whole, folder, side)
        if not path.with_suffix(".json").exists():
            reserve(whole, path, side)
            fill(whole, path, range(len(whole)), workers)
            finish(whole.digest(), path)
        return cls(whole, np.load(path, mmap_mode="r"), read_json(path.with_suffix(".json"), {"digest": str})["digest"])

    @property
    def name(self) -> str:
        """Of the pictures."""
        return str(self.whole.name)

    @property
    def kind(self) -> Kind:
        """Images."""
        return "image"

    @property
    def ids(self) -> Sequence[str]:
        """Of the pictures."""
        ids: Sequence[str] = self.whole.ids
        return ids

    @property
    def labels(self) -> Mapping[str, Array]:
        """Of the pictures."""
        labels: Mapping[str, Array] = self.whole.labels
        return labels

    @property
    def settings(self) -> Mapping[str, Any]:
        """Of the pictures."""
        settings: Mapping[str, Any] = self.whole.settings
        return settings

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        """One square."""
        return np.asarray(self.pixels[index])

    def digest(self) -> str:
        """Of the pictures when the squares were made."""
        return self.content


def squares_file(whole: Examples, folder: Path, side: int) -> Path:
    """Where the squares of some pictures are, or would be."""
    key = digest_of(whole.name, whole.settings, whole.labels, ())
    return folder / f"{whole.name}-{key}-{side}.npy"


def reserve(whole: Examples, path: Path, side: int) -> None:
    """Make the file, without pictures in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(len(whole), side, side, 3))


def fill(whole: Examples, path: Path, numbers: Sequence[int], workers: int | None = None) -> None:
    """Put some of the pictures into the file; several processes may each put their own."""
    pixels = np.load(path, mmap_mode="r+")
    side = pixels.shape[1]
    every = Preparation(resize=side, crop=side, mean=(0.0,) * 3, scale=(1.0,) * 3)
    done = 0
    for batch in loaded_batches(lambda i: resize_and_crop(as_rgb(whole[i]), every), numbers, 64, workers):
        for picture in batch:
            pixels[numbers[done]] = picture
            done += 1


def finish(digest: str, path: Path) -> None:
    """Say that all pictures are there, and what they were made of."""
    with atomic(path.with_suffix(".json"), overwrite=True) as temporary:
        temporary.write_text(json.dumps({"digest": digest}) + "\n", encoding="utf-8")
