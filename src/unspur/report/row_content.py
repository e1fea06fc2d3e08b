"""What rows are rows of: pictures or texts, each loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from unspur._extras import require
from unspur._typing import Array, IntArray
from unspur.embed.examples import Kind, open_image
from unspur.exceptions import InputError
from unspur.report.results import Content

#: Endings of files that are taken for pictures.
PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
#: Missing files that are named; more are counted.
MAX_FILES_NAMED = 3


@dataclass(frozen=True, slots=True)
class Pictures:
    """Arrays, PIL images or paths; as PIL images in RGB."""

    items: Any
    root: Path | None = None
    kind: Kind = "image"

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        """Load one picture."""
        item = self.items[index]
        if isinstance(item, str | PathLike):
            return open_image(self._path(item))
        if isinstance(item, np.ndarray):
            return _drawn(item)
        return item.convert("RGB")

    def _path(self, item: str | PathLike[str]) -> Path:
        return Path(item) if self.root is None else self.root / item

    @property
    def ids(self) -> list[str] | None:
        """Names of the files, where every row has one of its own."""
        if not all(isinstance(item, str | PathLike) for item in self.items):
            return None
        names = [str(item) for item in self.items]
        return names if len(set(names)) == len(names) else None

    def missing(self) -> list[str]:
        """Files that are not there."""
        paths = [item for item in self.items if isinstance(item, str | PathLike)]
        return [str(self._path(item)) for item in paths if not self._path(item).is_file()]


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts, or pairs of them."""

    items: Sequence[Any]
    kind: Kind = "text"

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        """One text, or a tuple of two."""
        return self.items[index]


@dataclass(frozen=True, slots=True)
class Part:
    """Some of what is there, by number."""

    whole: Any
    members: IntArray

    @property
    def kind(self) -> Kind:
        """Of the whole."""
        kind: Kind = self.whole.kind
        return kind

    @property
    def ids(self) -> Sequence[str]:
        """What they are called there."""
        return [self.whole.ids[int(i)] for i in self.members]

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, index: int) -> Any:
        """Load one."""
        return self.whole[int(self.members[index])]


def content_of(pictures: Any, texts: Any, n: int) -> Content | None:
    """What a user passed for n test rows, looked at as far as that is quick; None without anything."""
    if pictures is not None and texts is not None:
        raise InputError("Rows are pictures or texts; got both. Pass one of the two.")
    if pictures is None and texts is None:
        return None
    given, name = (pictures, "pictures") if texts is None else (texts, "texts")
    found = _pictures(given) if texts is None else _texts(given)
    if len(found) != n:
        raise InputError(f"There are {len(found)} {name} for {n} test rows. Each row needs one, in the same order.")
    return found


def _ready(given: Any, wanted: Kind) -> Content | None:
    """What was passed, if it is content already, of the kind that is wanted."""
    kind = getattr(given, "kind", None)
    if kind is None or isinstance(given, np.ndarray):
        return None
    if kind != wanted:
        right, wrong = ("pictures", "texts") if kind == "image" else ("texts", "pictures")
        raise InputError(f"{wrong} are a {type(given).__name__} of kind {kind!r}; pass it as {right}.")
    content: Content = given
    return content


def _pictures(given: Any) -> Content:
    if (ready := _ready(given, "image")) is not None:
        return ready
    if isinstance(given, np.ndarray) or hasattr(given, "__array__"):
        array = np.asarray(given)
        if array.dtype.kind not in "OU":
            return Pictures(_checked(array))
        given = array.tolist()
    found = Pictures(list(given))
    for item in found.items:
        if not isinstance(item, str | PathLike | np.ndarray) and not hasattr(item, "convert"):
            raise InputError(f"A picture is an array, a path or a PIL image; got a {type(item).__name__}.")
        if isinstance(item, np.ndarray):
            _checked(item[None])
    gone = found.missing()
    if gone:
        more = f" and {len(gone) - MAX_FILES_NAMED} more" if len(gone) > MAX_FILES_NAMED else ""
        raise InputError(
            f"{len(gone)} of {len(found)} pictures do not exist: {', '.join(gone[:MAX_FILES_NAMED])}{more}."
        )
    return found


def _checked(array: Array) -> Array:
    """Pictures of shape (n, h, w) or (n, h, w, 3), whole numbers up to 255 or shares up to 1."""
    if array.ndim not in (3, 4) or (array.ndim == 4 and array.shape[3] not in (1, 3)):
        raise InputError(f"Pictures have shape (n, h, w) or (n, h, w, 3); got {array.shape}.")
    if not array.size:
        raise InputError(f"Pictures of shape {array.shape} have no pixels.")
    low, high = (float(bound) for bound in (array.min(), array.max()))
    top = 1.0 if array.dtype.kind in "bf" else 255.0
    if not (low >= 0 and high <= top):  # also of NaN
        raise InputError(
            f"Pictures are whole numbers from 0 to 255 or numbers from 0 to 1; these are {array.dtype} from {low:g} to "
            f"{high:g}."
        )
    return array


def _drawn(array: Array) -> Any:
    require("Pictures need", "PIL")
    from PIL import Image

    if array.dtype.kind in "bf":
        array = np.round(np.asarray(array, dtype=np.float64) * 255.0)
    array = array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array
    return Image.fromarray(array.astype(np.uint8)).convert("RGB")


def _texts(given: Any) -> Content:
    if (ready := _ready(given, "text")) is not None:
        return ready
    if isinstance(given, str):
        raise InputError("texts are one for each test row; got a single string.")
    items = [tuple(item) if isinstance(item, list | tuple | np.ndarray) else item for item in given]
    for item in items:
        words = item if isinstance(item, tuple) else (item,)
        if len(words) not in (1, 2) or not all(isinstance(word, str) for word in words):
            raise InputError(f"A text is a string or a pair of strings; got {item!r:.60}.")
    return Texts(items)
