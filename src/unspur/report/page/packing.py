"""What a page holds of rows, within a budget: scores in 16 bits, names and texts, thumbnails.

Every picture is loaded once. Sizes and qualities are tried from large to small; where even the smallest are too many,
some rows get none, and the page says how many have one.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unspur._extras import require
from unspur._typing import Array, FloatArray
from unspur.report.page import formatting
from unspur.report.page.charts import group_path
from unspur.report.results import Boundary, Content, Findings

#: Characters that scores, ids and texts may take.
MAX_SCORE_CHARACTERS, MAX_ID_CHARACTERS, MAX_TEXT_CHARACTERS = 600_000, 300_000, 1_000_000
#: Where scores in 16 bits end.
_MAX_SCORE_CODE = 65_535
#: Stands for a group that is not known.
UNKNOWN_GROUP = 65_535
#: Would end the element that holds it, or a line of a script; or cannot be written in UTF-8 (half a character).
_UNSAFE = {code: f"\\u{code:04x}" for code in (*map(ord, "<>&\u2028\u2029"), *range(0xD800, 0xE000))}
#: Sides in pixels and qualities that are tried for the sheet, best first.
SHEET_SIZES = ((64, 70), (64, 50), (48, 60), (48, 45), (40, 45), (40, 30), (32, 35), (32, 22), (24, 25), (24, 12))
#: The same for single pictures.
PICTURE_SIZES = ((192, 75), (160, 70), (128, 65), (96, 60), (96, 40), (72, 40), (48, 40))
#: Sides in pixels up to which a picture is enlarged without smoothing.
MAX_COARSE_SIDE = 48
#: Rows of which the size of a sheet is foretold.
_SAMPLED_PICTURES = 300
#: Longest side of a picture that is copied as it is.
_MAX_COPIED_SIDE = 1024
#: Longest side of a sheet, in pixels: one of 100 MB while it is made.
_MAX_SHEET_SIDE = 5_000


def safe_json(value: Any) -> str:
    """JSON that may stand inside of a script element: nothing in it can end that."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_UNSAFE)


def axes_that_fit(findings: Findings) -> list[int]:
    """Numbers of the axes whose scores fit the budget: the first of every role."""
    axes, each = findings.view.axes, len(findings.shown) * 2 * 2 * 4 / 3
    most = max(2, int(MAX_SCORE_CHARACTERS / max(each, 1.0)))
    kept: list[int] = []
    roles = {role: [k for k, axis in enumerate(axes) if axis.role == role] for role in ("spurious", "main", "layer")}
    while len(kept) < min(most, len(axes)):
        for numbers in roles.values():
            if numbers and len(kept) < most:
                kept.append(numbers.pop(0))
    return sorted(kept)


def first_pair(findings: Findings, axes: Sequence[int]) -> tuple[int, int]:
    """Places in `axes` to look along first: a spurious and a main-task direction, or else those of last layers."""
    by_role: dict[str, list[int]] = {"spurious": [], "main": [], "layer": []}
    for place, k in enumerate(axes):
        by_role[findings.view.axes[k].role].append(place)
    x = next(iter(by_role["spurious"] + by_role["layer"] + by_role["main"]), 0)
    others = [place for place in by_role["main"] + by_role["layer"] + by_role["spurious"] if place != x]
    return x, next(iter(others), x)


def packed(findings: Findings, axes: Sequence[int], sheet: Sheet | None) -> dict[str, Any]:
    """Everything the scatter draws, of the rows in `shown` and the given axes."""
    view, shown = findings.view, np.asarray(findings.shown)
    before, after = (scores[shown][:, list(axes)] for scores in (view.before, view.after))
    low, high = (bound(np.vstack([before, after]), axis=0, initial=0.0) for bound in (np.min, np.max))
    group = np.where(findings.group[shown] < 0, UNKNOWN_GROUP, findings.group[shown])
    flags = findings.right_before[shown] + 2 * findings.right_after[shown]
    x, y = first_pair(findings, axes)
    return {
        "rows": len(shown),
        "axes": [{"name": view.axes[k].name, "role": view.axes[k].role} for k in axes],
        "first": [x, y],
        "digits": score_digits(findings, axes),
        "low": _seven_figures(low),
        "high": _seven_figures(high),
        "before": _sixteen_bits(before, low, high),
        "after": _sixteen_bits(after, low, high),
        "group": _bytes(group, "<u2"),
        "right": _bytes(flags, "u1"),
        "groups": [{"name": name, "path": group_path(k)} for k, name in enumerate(findings.groups)],
        "ids": within([findings.ids[i] for i in shown.tolist()], 80, MAX_ID_CHARACTERS),
        "texts": _texts(findings),
        "sheet": None
        if sheet is None
        else {
            "source": sheet.source,
            "size": sheet.size,
            "columns": sheet.columns,
            "count": sheet.count,
            "coarse": sheet.coarse,
        },
        "boundary": [_boundary(b, axes) for b in (view.boundary_before, view.boundary_after)],
        "gram": [_seven_figures(line) for line in view.gram[np.ix_(list(axes), list(axes))]],
        "means": group_means(findings, axes),
        "method": findings.method,
    }


def score_digits(findings: Findings, axes: Sequence[int]) -> list[int | None]:
    """Decimals that scores along each axis are written with (`formatting.score`)."""
    view = findings.view
    return [formatting.digits_for(max(float(np.abs(s[:, k]).max()) for s in (view.before, view.after))) for k in axes]


def group_means(findings: Findings, axes: Sequence[int]) -> list[list[list[float | None]]]:
    """Mean scores of all test rows: before and after, by group, by axis; None for a group without rows."""
    found = []
    for scores in (findings.view.before, findings.view.after):
        lines: list[list[float | None]] = []
        for number in range(len(findings.groups)):
            rows = scores[findings.group == number][:, list(axes)]
            lines.append(_seven_figures(rows.mean(axis=0)) if len(rows) else [None] * len(axes))
        found.append(lines)
    return found


def within(texts: Sequence[str], most: int, budget: int) -> list[str]:
    """Texts in one line, cut to `most` characters each, or to fewer so that all of them fit the budget."""
    while most > 8:
        cut = [formatting.clipped(text, most) for text in texts]
        if len(safe_json(cut).encode()) <= budget:
            return cut
        most = int(0.8 * most)
    return [formatting.clipped(text, 8) for text in texts]


def text_of(content: Any) -> str:
    """One text, or two with a stroke between them."""
    return content if isinstance(content, str) else " ∥ ".join(map(str, content))


def _texts(findings: Findings) -> list[str] | None:
    if findings.content is None or findings.content.kind != "text":
        return None
    return within([text_of(findings.content[i]) for i in findings.shown.tolist()], 160, MAX_TEXT_CHARACTERS)


def _boundary(boundary: Boundary | None, axes: Sequence[int]) -> dict[str, Any] | None:
    if boundary is None:
        return None
    return {"offset": float(boundary.offset), "along": _seven_figures(np.asarray(boundary.along)[list(axes)])}


def _sixteen_bits(scores: FloatArray, low: FloatArray, high: FloatArray) -> str:
    """Scores (n, m) as whole numbers from 0 (`low`) to 65,535 (`high`), axis by axis."""
    width = np.where(high > low, high - low, 1.0)
    return _bytes(np.round((scores - low) / width * _MAX_SCORE_CODE).T, "<u2")


def _bytes(values: Array, kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode()


def _seven_figures(values: Any) -> list[float | None]:
    """Numbers for JSON, to seven figures; None where one is not finite."""
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in np.asarray(values).tolist()]


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
    most = dict.fromkeys(rows, SHEET_SIZES[0][0]) | dict.fromkeys(large, PICTURE_SIZES[0][0])
    return {row: _small(content[row], side) for row, side in most.items()}


def _small(picture: Any, side: int) -> Any:
    """A picture in RGB, of at most `side` × `side` pixels; the one that was passed can go then."""
    return _fitted(picture if picture.mode == "RGB" else picture.convert("RGB"), side)


def sheet(pictures: Sequence[Any], budget: int) -> Sheet | None:
    """The best sheet whose text is no longer than `budget` characters; None where there are no pictures."""
    if not pictures:
        return None
    native = max(max(picture.size) for picture in pictures)
    every = max(1, len(pictures) // _SAMPLED_PICTURES)
    choices = dict.fromkeys((min(side, native), quality) for side, quality in SHEET_SIZES)
    for side, quality in choices:
        if _columns(len(pictures)) * side > _MAX_SHEET_SIDE:
            continue
        sample = [_square(picture, side) for picture in pictures[::every]]
        if len(_encoded(sample, side, quality)) * len(pictures) / len(sample) > 1.1 * budget:
            continue
        text = _encoded([_square(picture, side) for picture in pictures], side, quality)
        if len(text) <= budget:
            return Sheet(
                text, side, _columns(len(pictures)), len(pictures), native <= MAX_COARSE_SIDE and side == native
            )
    side, quality = min(SHEET_SIZES[-1][0], native), SHEET_SIZES[-1][1]
    tiles = [_square(picture, side) for picture in pictures[: (_MAX_SHEET_SIDE // side) ** 2]]
    while len(text := _encoded(tiles, side, quality)) > budget and len(tiles) > 1:
        tiles = tiles[: max(1, int(0.95 * len(tiles) * budget / len(text)))]
    return Sheet(text, side, _columns(len(tiles)), len(tiles), native <= MAX_COARSE_SIDE and side == native)


def sources(pictures: Sequence[Any], budget: int) -> list[str]:
    """Each picture as a data address, as large as their sum within `budget` allows; "" where nothing is left of it."""
    texts: list[str] = []
    for side, quality in PICTURE_SIZES:
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
    small = (
        picture.copy()
        if max(picture.size) <= _MAX_COPIED_SIDE
        else picture.reduce(max(picture.size) // _MAX_COPIED_SIDE + 1)
    )
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
