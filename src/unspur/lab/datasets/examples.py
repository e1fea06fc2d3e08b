"""What a network can be shown: examples with their labels, each loaded when it is asked for.

::

    publisher's files ──▶ Examples ──(lab.encoders)──▶ embedding store ──▶ resampling to a strength ──▶ experiments

Labels are columns of 0 and 1 (or names, such as the split), known without loading anything.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from tqdm import tqdm

from unspur._extras import require
from unspur._reading import brief, require_regular
from unspur._typing import Array
from unspur.exceptions import InputError

Kind = Literal["image", "text"]
#: Characters that file systems allow for one name, and for names in a row; and of one that a message shows.
LONGEST_NAME, LONGEST_PATH, SHOWN = 255, 2000, 80


class Examples(Protocol):
    """Images or texts in a fixed order.

    An image is a `PIL.Image` in RGB; a text is a string or, for sentence pairs, a tuple of two.
    """

    @property
    def name(self) -> str:
        """Name of the dataset."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What it was made with: plain numbers and words."""

    @property
    def kind(self) -> Kind:
        """Images or texts."""

    @property
    def ids(self) -> Sequence[str]:
        """One name for each example, all different."""

    @property
    def labels(self) -> Mapping[str, Array]:
        """Column -> values, each of shape (n,)."""

    def __len__(self) -> int:
        """Number of examples."""

    def __getitem__(self, index: int) -> Any:
        """Load one example."""

    def digest(self) -> str:
        """16 hexadecimal digits of everything that decides the examples: settings, ids, labels, content of files."""


def digest_of(name: str, settings: Mapping[str, Any], labels: Mapping[str, Array], files: Iterable[Path]) -> str:
    """A digest of a dataset made of files: of their content in the given order, not of where they lie."""
    total = hashlib.sha256(json.dumps([name, settings], sort_keys=True, default=str).encode())
    for column in sorted(labels):
        total.update(f"{column}:{','.join(map(str, labels[column].tolist()))}\n".encode())
    for path in tqdm(files, desc="reading", unit=" files", delay=2, leave=False, disable=None):
        try:
            total.update(hashlib.sha256(path.read_bytes()).digest())
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}. Is the dataset complete?") from error
    return total.hexdigest()[:16]


def open_image(path: Path, mode: str = "RGB") -> Any:
    """Read an image file; a missing or damaged one is an error with its name."""
    require("Pictures need", "PIL")
    from PIL import Image, UnidentifiedImageError

    try:
        require_regular(path)
        with Image.open(path) as image:
            # Pillow cuts 16-bit grey off at 255 instead of scaling it.
            deep = image.mode.startswith("I;16")
            return (image.point(lambda grey: grey * (1 / 256)).convert("L") if deep else image).convert(mode)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist. Is the dataset complete?") from None
    except (OSError, UnidentifiedImageError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} cannot be read as an image: {brief(error)}.") from error


def inside(name: str, listing: Path) -> str:
    """A path that a list of files names, unless it leads out of the folder it is meant to be in, or nowhere."""
    path = Path(name)
    if not path.parts or path.anchor or ".." in path.parts:
        raise InputError(f"{listing} names {brief(name, SHOWN)!r}; it may only name files inside of its folder.")
    if "\0" in name or max(map(len, path.parts)) > LONGEST_NAME or len(name) > LONGEST_PATH:
        raise InputError(f"{listing} names {brief(name, SHOWN)!r}, which no file is called.")
    return name


def label_column(fields: Sequence[str]) -> Array:
    """A label that was read as text: whole numbers where all of it is, else words."""
    # Only what is written as str(int) would write it: 01 and 1 may be two classes, and so may 2**53 and 2**53 + 1.
    numbers = {field: _int(field) for field in set(fields)}  # few values, many rows
    if numbers and all(field == str(number) for field, number in numbers.items()):
        return np.array([numbers[field] for field in fields], dtype=np.int64)
    return np.array(fields, dtype=str)


def _int(field: str) -> int | None:
    try:
        value = int(field)
    except ValueError:
        return None
    return value if -(2**63) <= value < 2**63 else None


def required(root: Path, *parts: str, what: str) -> Path:
    """A file or folder of a dataset, or an error that says what is expected where."""
    path = root.joinpath(*parts)
    if not path.exists():
        raise InputError(f"{path} does not exist; it is where {what} is expected.")
    if not path.is_file() and not path.is_dir():
        raise InputError(f"{path} is neither a file nor a folder; it is where {what} is expected.")
    return path


def required_file(root: Path, *parts: str, what: str) -> Path:
    """A file of a dataset, or an error that says what is expected where."""
    path = required(root, *parts, what=what)
    if not path.is_file():
        raise InputError(f"{path} is a folder; it is where {what} is expected.")
    return path
