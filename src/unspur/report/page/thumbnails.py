"""Small pictures of rows that fit a budget: one sheet of thumbnails for hovering, and larger ones of a few rows.

Every row is loaded once. Sizes and qualities are tried from large to small; where even the smallest are too many, some
rows get none, and the page says how many have one.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unspur._extras import require
from unspur.report.results import Content

#: Sides in pixels and qualities that are tried for the sheet, best first.
SHEETS = ((64, 70), (64, 50), (48, 60), (48, 45), (40, 45), (40, 30), (32, 35), (32, 22), (24, 25), (24, 12))
#: The same for single pictures.
SINGLE = ((192, 75), (160, 70), (128, 65), (96, 60), (96, 40), (72, 40), (48, 40))
#: Sides in pixels up to which a picture is enlarged without smoothing.
COARSE = 48
#: Rows of which the size of a sheet is foretold.
_SAMPLE = 300
#: Longest side of a picture that is copied as it is.
_LARGE = 1024
#: Longest side of a sheet, in pixels: one of 100 MB while it is made.
_LONGEST = 5_000


@dataclass(frozen=True, slots=True)
class Sheet:
    """Thumbnails side by side, row by row: `size` pixels each, in so many columns, of the first `count` rows asked.

    `coarse` says that the pictures themselves are as small, so that enlarging need not smooth them.
    """

    source: str
    size: int
    columns: int
    count: int
    coarse: bool


def shrunk(content: Content, rows: Iterable[int], large: Iterable[int]) -> dict[int, Any]:
    """Pictures of rows by number, no larger than needed: those in `large` as big as a page shows single ones."""
    most = dict.fromkeys(rows, SHEETS[0][0]) | dict.fromkeys(large, SINGLE[0][0])
    return {row: _small(content[row], side) for row, side in most.items()}


def _small(picture: Any, side: int) -> Any:
    """A picture in RGB, of at most `side` × `side` pixels; the one that was passed can go then."""
    return _fitted(picture if picture.mode == "RGB" else picture.convert("RGB"), side)


def sheet(pictures: Sequence[Any], budget: int) -> Sheet | None:
    """The best sheet whose text is no longer than `budget` characters; None where there are no pictures."""
    if not pictures:
        return None
    native = max(max(picture.size) for picture in pictures)
    every = max(1, len(pictures) // _SAMPLE)
    choices = dict.fromkeys((min(side, native), quality) for side, quality in SHEETS)
    for side, quality in choices:
        if _columns(len(pictures)) * side > _LONGEST:
            continue
        sample = [_square(picture, side) for picture in pictures[::every]]
        if len(_encoded(sample, side, quality)) * len(pictures) / len(sample) > 1.1 * budget:
            continue
        text = _encoded([_square(picture, side) for picture in pictures], side, quality)
        if len(text) <= budget:
            return Sheet(text, side, _columns(len(pictures)), len(pictures), native <= COARSE and side == native)
    side, quality = min(SHEETS[-1][0], native), SHEETS[-1][1]
    tiles = [_square(picture, side) for picture in pictures[: (_LONGEST // side) ** 2]]
    while len(text := _encoded(tiles, side, quality)) > budget and len(tiles) > 1:
        tiles = tiles[: max(1, int(0.95 * len(tiles) * budget / len(text)))]
    return Sheet(text, side, _columns(len(tiles)), len(tiles), native <= COARSE and side == native)


def sources(pictures: Sequence[Any], budget: int) -> list[str]:
    """Each picture as a data address, as large as their sum within `budget` allows; "" where nothing is left of it."""
    texts: list[str] = []
    for side, quality in SINGLE:
        texts = [_address(_fitted(picture, side), quality) for picture in pictures]
        if sum(map(len, texts)) <= budget:
            return texts
    left = budget - np.cumsum([len(text) for text in texts])
    return [text if rest >= 0 else "" for text, rest in zip(texts, left, strict=True)]


def require_pillow() -> None:
    """An error that says how to get it where it is missing."""
    require("A page with pictures needs", "PIL")


def _fitted(picture: Any, side: int) -> Any:
    """A copy of at most `side` × `side` pixels."""
    # A large one is not copied before it is reduced.
    small = picture.copy() if max(picture.size) <= _LARGE else picture.reduce(max(picture.size) // _LARGE + 1)
    small.thumbnail((side, side))
    return small


def _square(picture: Any, side: int) -> Any:
    """A square of `side` pixels with the whole picture in it, on grey."""
    from PIL import Image

    small = picture.copy()
    scale = side / max(small.size)
    small = small.resize(tuple(max(1, round(scale * length)) for length in small.size), Image.Resampling.LANCZOS)
    if small.size == (side, side):
        return small
    square = Image.new("RGB", (side, side), (128, 128, 128))
    square.paste(small, ((side - small.width) // 2, (side - small.height) // 2))
    return square


def _columns(number: int) -> int:
    return math.ceil(math.sqrt(number))


def _encoded(tiles: Sequence[Any], side: int, quality: int) -> str:
    from PIL import Image

    columns = _columns(len(tiles))
    whole = Image.new("RGB", (columns * side, -(-len(tiles) // columns) * side), (128, 128, 128))
    for k, tile in enumerate(tiles):
        whole.paste(tile, (k % columns * side, k // columns * side))
    return _address(whole, quality)


def _address(picture: Any, quality: int) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, "WEBP", quality=quality, method=4)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()


def lossless(values: Any) -> str:
    """An array (h, w) or (h, w, 3) of bytes as a data address, pixel by pixel."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.asarray(values, dtype=np.uint8)).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
