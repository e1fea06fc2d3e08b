"""CelebA: aligned photographs of faces with forty attributes of yes or no.

Read as published: the folder ``img_align_celeba`` and the list ``list_attr_celeba.txt`` (or ``.csv``). Which attribute
is the main label, and which the concept, is chosen later, by name: `label(labels, "not Male")`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from unspur._text import brief
from unspur._typing import Array, BoolArray, IntArray
from unspur.exceptions import InputError
from unspur_paper.datasets.published import required
from unspur_paper.datasets.resampling import draw_splits
from unspur_paper.embedding.examples import Kind, digest_of, open_image

#: Main label and concepts. With two concepts, splits are drawn balanced in the main label and at strength p for the
#: first; the second comes as it is in the data, as in the paper (there P(blond | glasses) = 0.18 by itself).
PRESETS: dict[str, tuple[str, tuple[str, ...]]] = {
    # The paper's: few blond men, so that a model asked for hair learns sex.
    "blond-sex": ("Blond_Hair", ("not Male",)),
    # The paper's on raw pixels: the two lie in different places of the face, so that what is removed can be seen.
    "glasses-smiling": ("Eyeglasses", ("Smiling",)),
    # All four groups are large, also in a part of the data.
    "smiling-sex": ("Smiling", ("not Male",)),
    # The paper's with two concepts.
    "blond-sex-glasses": ("Blond_Hair", ("not Male", "Eyeglasses")),
    # The same where blond men are too few.
    "smiling-sex-glasses": ("Smiling", ("not Male", "Eyeglasses")),
}
#: Of the paper.
SIZES = {"train": 4500, "validation": 2000, "test": 2000}
#: Places of the aligned face as (top, left, bottom, right), in fractions of the picture: around what glasses and a
#: smile change in the mean picture, with a margin, and apart from each other.
EYES = (0.44, 0.22, 0.61, 0.78)
MOUTH = (0.63, 0.28, 0.80, 0.72)
ATTRIBUTES = 40
FOLDER = "img_align_celeba"
LISTS = ("list_attr_celeba.txt", "list_attr_celeba.csv")


@dataclass(frozen=True, slots=True)
class CelebA:
    """Faces in the order of the list. `labels` are the forty attributes, 0 or 1, under their published names."""

    listing: Path
    images: Path
    ids: Sequence[str]
    labels: Mapping[str, Array]
    settings: Mapping[str, Any]
    name: str = "celeba"
    kind: Kind = "image"

    @classmethod
    def read(cls, root: Path, limit: int | None = None) -> CelebA:
        """From the folder that holds ``celeba``, or that folder itself; of the list, the first `limit` (None: all)."""
        if limit is not None and limit < 1:
            raise InputError(f"limit is the number of images to read, 1 at least, or None for all; got {limit}.")
        root = Path(root)
        folder = root / "celeba" if (root / "celeba").is_dir() else root
        images = required(folder, FOLDER, what="the folder of aligned faces")
        # One archive in circulation has the folder twice, one inside the other.
        images = images / FOLDER if (images / FOLDER).is_dir() else images
        listing = next((folder / name for name in LISTS if (folder / name).is_file()), None)
        if listing is None:
            raise InputError(f"{folder} has neither {' nor '.join(LISTS)}; one of them is needed for the attributes.")
        ids, labels = read_attributes(listing)
        ids, labels = ids[:limit], {name: column[:limit] for name, column in labels.items()}
        there = {path.name for path in images.iterdir()}
        missing = [name for name in ids if name not in there]
        if missing:
            raise InputError(
                f"{len(missing)} of {len(ids)} images that {listing.name} lists are not in {images}, such as "
                f"{brief(missing[0], 80)}. Complete the folder, or pass --limit to read only the first of the list."
            )
        # The number and not the limit: the same examples have the same digest.
        return cls(listing, images, ids, labels, {"images": len(ids)})

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Any:
        """Load one face."""
        return open_image(self.images / self.ids[index])

    @staticmethod
    def mask(box: tuple[float, float, float, float], side: int = 256) -> Any:
        """A place of the aligned face, such as `MOUTH`: PIL, L, 255 inside and 0 outside."""
        from PIL import Image

        return Image.fromarray(np.where(box_mask(box, side), 255, 0).astype(np.uint8))

    def digest(self) -> str:
        """Of the list and the images."""
        files = (self.images / name for name in self.ids)
        return digest_of(self.name, self.settings, self.labels, chain((self.listing,), files))


def read_attributes(listing: Path) -> tuple[tuple[str, ...], dict[str, IntArray]]:
    """File names, and forty columns of 0 and 1 of shape (n,), from the published text or the .csv made of it.

    Text: the number of images, the names, and a line for each image of its file and forty values −1 or 1. The .csv:
    a header ``image_id,…`` and the lines, without the number.
    """
    lines = _cells(listing)
    stated = None
    if listing.suffix != ".csv":
        _, first = next(lines, (1, [""]))
        if len(first) != 1 or not re.fullmatch("[0-9]{1,9}", first[0]):
            raise InputError(f"The first line of {listing} must be the number of images; got {' '.join(first)[:40]!r}.")
        stated = int(first[0])
    _, header = next(lines, (1, []))
    names = header[1:] if listing.suffix == ".csv" else header
    if len(set(names)) != ATTRIBUTES or len(names) != ATTRIBUTES:
        raise InputError(f"{listing} must name {ATTRIBUTES} attributes, all different; got {len(names)}.")
    ids: list[str] = []
    values = bytearray()
    for number, cells in lines:
        if len(cells) != ATTRIBUTES + 1 or not set(cells[1:]) <= {"1", "-1"}:
            got = " ".join(cells)[:60]
            raise InputError(f"Line {number} of {listing} must be a file and {ATTRIBUTES} values −1 or 1; got {got!r}.")
        ids.append(cells[0])
        values += bytes(cell == "1" for cell in cells[1:])
    if stated is not None and stated != len(ids):
        raise InputError(f"{listing} says {stated} images and lists {len(ids)}. Is the file complete?")
    if not ids or len(set(ids)) != len(ids):
        raise InputError(f"{listing} must list images, each once; got {len(ids)} lines of {len(set(ids))} images.")
    table = np.frombuffer(values, dtype=np.uint8).reshape(len(ids), ATTRIBUTES).T.astype(np.int64)
    return tuple(ids), dict(zip(names, table, strict=True))


def _cells(listing: Path) -> Iterator[tuple[int, list[str]]]:
    """Numbered lines that are not empty, divided at commas or spaces."""
    comma = "," if listing.suffix == ".csv" else None
    try:
        with listing.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, [cell.strip() for cell in line.strip().split(comma)]
    except UnicodeDecodeError as error:
        raise InputError(f"{listing} is not text in UTF-8: {error.reason}.") from error


def draw(
    labels: Mapping[str, Array],
    main: str,
    concept: str,
    rng: np.random.Generator,
    *,
    p: float = 0.9,
    sizes: Mapping[str, int] | None = None,
) -> dict[str, IntArray]:
    """Rows of training, validation and test split, each balanced in the main label, no row in two.

    The concept agrees with the main label in a share `p` of training and validation rows, and in half of the test rows.
    Labels are names of attributes, such as those of `PRESETS`; `sizes` are the paper's unless given. Too few faces in
    a group are a GroupSizeError that says how many there are, and which sizes would fit.
    """
    strengths = {"train": p, "validation": p, "test": 0.5}
    wanted = dict(SIZES if sizes is None else sizes)
    return draw_splits(label(labels, main), label(labels, concept), wanted, strengths, rng, names=(main, concept))


def label(labels: Mapping[str, Array], name: str) -> IntArray:
    """A column by its name; ``not Male`` is 1 where `Male` is 0. A missing label (negative) stays missing."""
    attribute = name.removeprefix("not ").strip()
    if attribute not in labels:
        lower = {known.lower(): known for known in labels}
        close = [lower[match] for match in difflib.get_close_matches(attribute.lower(), lower, n=3)]
        hint = f"Did you mean {' or '.join(close)}?" if close else f"Known are {', '.join(sorted(labels))}."
        raise InputError(f"There is no attribute {attribute!r}. {hint}")
    column = np.asarray(labels[attribute])
    return np.where(column < 0, column, 1 - column) if name.startswith("not ") else column


def box_mask(box: tuple[float, float, float, float], side: int) -> BoolArray:
    """Pixels of a `side` × `side` picture whose centre lies in the box, shape (side, side).

    The box is (top, left, bottom, right) in fractions of the picture, such as `EYES`.
    """
    top, left, bottom, right = box
    if not (0.0 <= top < bottom <= 1.0 and 0.0 <= left < right <= 1.0):
        raise InputError(f"A box is (top, left, bottom, right) in fractions of the picture, in this order; got {box}.")
    centre = (np.arange(side) + 0.5) / side
    rows, columns = (top <= centre) & (centre < bottom), (left <= centre) & (centre < right)
    return rows[:, None] & columns[None, :]
