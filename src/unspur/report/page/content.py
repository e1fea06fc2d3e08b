"""What a page holds of rows: scores, names, texts and pictures, and the rows that show what a direction means.

All of it fits a budget. Every picture is loaded once. Sizes and qualities are tried from large to small; where even the
smallest are too many, some rows get none, and the page says how many have one.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from unspur._typing import Array, FloatArray
from unspur.embed.examples import Content
from unspur.report.colours import MAP_COLOURS, full_colour_value, overlay_map
from unspur.report.page import formatting
from unspur.report.page.charts import group_path
from unspur.report.results import Boundary, Findings, PixelView

#: Characters that scores, ids and texts may take.
MAX_SCORE_CHARACTERS, MAX_ID_CHARACTERS, MAX_TEXT_CHARACTERS = 600_000, 300_000, 1_000_000
#: Where scores in 16 bits end.
_MAX_SCORE_CODE = 65_535
#: Code of rows without a known group.
UNKNOWN_GROUP = 65_535
#: Characters that would end a script element or a line of a script, or cannot be written in UTF-8 (surrogates).
_UNSAFE = {code: f"\\u{code:04x}" for code in (*map(ord, "<>&\u2028\u2029"), *range(0xD800, 0xE000))}
#: Sides in pixels and qualities that are tried for thumbnails, best first.
SHEET_SIZES = ((64, 70), (64, 50), (48, 60), (48, 45), (40, 45), (40, 30), (32, 35), (32, 22), (24, 25), (24, 12))
#: The same for single pictures.
PICTURE_SIZES = ((192, 75), (160, 70), (128, 65), (96, 60), (96, 40), (72, 40), (48, 40))
#: Sides in pixels up to which a picture is enlarged without smoothing.
MAX_COARSE_SIDE = 48
#: Pictures from which the size of a sheet is predicted.
_SAMPLED_PICTURES = 300
#: Pictures with a longer side are reduced before they are copied.
_MAX_COPIED_SIDE = 1024
#: Longest side of a sheet in pixels, which takes 100 MB while it is made.
_MAX_SHEET_SIDE = 5_000
#: Characters that pictures of extreme rows, those under maps, rows as pixels, and directions as pixels may take.
MAX_EXTREME_CHARACTERS, MAX_MAP_CHARACTERS, MAX_PIXEL_CHARACTERS, MAX_DIRECTION_CHARACTERS = (
    600_000,
    450_000,
    300_000,
    150_000,
)
#: Longest sides that are tried for rows and directions as pictures, until they fit.
PICTURE_SIDES = (128, 96, 64, 48, 32)
#: Longest text of an extreme row.
MAX_EXAMPLE_TEXT = 320
#: Directions of each role that are shown at once; the others are folded away.
DIRECTIONS_SHOWN_FIRST = 2


def safe_json(value: Any) -> str:
    """JSON that is safe inside a script element."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_UNSAFE)


def axes_that_fit(findings: Findings) -> list[int]:
    """Numbers of the axes whose scores fit the budget, the first of each role in turn."""
    axes, each = findings.view.axes, len(findings.drawn_rows) * 2 * 2 * 4 / 3
    most = max(2, int(MAX_SCORE_CHARACTERS / max(each, 1.0)))
    kept: list[int] = []
    roles = {role: [k for k, axis in enumerate(axes) if axis.role == role] for role in ("spurious", "main", "head")}
    while len(kept) < min(most, len(axes)):
        for numbers in roles.values():
            if numbers and len(kept) < most:
                kept.append(numbers.pop(0))
    return sorted(kept)


def first_pair(findings: Findings, axes: Sequence[int]) -> tuple[int, int]:
    """Places in `axes` of the first pair to show: a spurious and a main-task direction, or those of heads."""
    by_role: dict[str, list[int]] = {"spurious": [], "main": [], "head": []}
    for place, k in enumerate(axes):
        by_role[findings.view.axes[k].role].append(place)
    x = next(iter(by_role["spurious"] + by_role["head"] + by_role["main"]), 0)
    others = [place for place in by_role["main"] + by_role["head"] + by_role["spurious"] if place != x]
    return x, next(iter(others), x)


def scatter_data(findings: Findings, axes: Sequence[int], sheet: Sheet | None) -> dict[str, Any]:
    """Data of the scatter: rows in `drawn_rows`, and the given axes."""
    view, shown = findings.view, np.asarray(findings.drawn_rows)
    before, after = (scores[shown][:, list(axes)] for scores in (view.before, view.after))
    low, high = (bound(np.vstack([before, after]), axis=0, initial=0.0) for bound in (np.min, np.max))
    group = np.where(findings.group[shown] < 0, UNKNOWN_GROUP, findings.group[shown])
    flags = findings.correct_before[shown] + 2 * findings.correct_after[shown]
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
        "ids": clip_texts([findings.ids[i] for i in shown.tolist()], 80, MAX_ID_CHARACTERS),
        "texts": _texts(findings),
        "sheet": None if sheet is None else asdict(sheet),
        "boundary": [_boundary(b, axes) for b in (view.boundary_before, view.boundary_after)],
        "gram": [_seven_figures(line) for line in view.gram[np.ix_(list(axes), list(axes))]],
        "means": group_means(findings, axes),
        "method": findings.method,
    }


def score_digits(findings: Findings, axes: Sequence[int]) -> list[int | None]:
    """Decimals of scores along each axis (`formatting.score`)."""
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


def clip_texts(texts: Sequence[str], most: int, budget: int) -> list[str]:
    """Texts on one line each, cut to `most` characters, or to fewer if that takes more than the budget."""
    while most > 8:
        cut = [formatting.clipped(text, most) for text in texts]
        if len(safe_json(cut).encode()) <= budget:
            return cut
        most = int(0.8 * most)
    return [formatting.clipped(text, 8) for text in texts]


def text_of(content: Any) -> str:
    """One text, or two with a separator."""
    return content if isinstance(content, str) else " ∥ ".join(map(str, content))


def _texts(findings: Findings) -> list[str] | None:
    if findings.content is None or findings.content.kind != "text":
        return None
    return clip_texts([text_of(findings.content[i]) for i in findings.drawn_rows.tolist()], 160, MAX_TEXT_CHARACTERS)


def _boundary(boundary: Boundary | None, axes: Sequence[int]) -> dict[str, Any] | None:
    if boundary is None:
        return None
    return {"offset": float(boundary.offset), "along": _seven_figures(np.asarray(boundary.along)[list(axes)])}


def _sixteen_bits(scores: FloatArray, low: FloatArray, high: FloatArray) -> str:
    """Scores (n, m) as integers from 0 (`low`) to 65,535 (`high`), axis by axis, in Base64."""
    width = np.where(high > low, high - low, 1.0)
    return _bytes(np.round((scores - low) / width * _MAX_SCORE_CODE).T, "<u2")


def _bytes(values: Array, kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode()


def _seven_figures(values: Any) -> list[float | None]:
    """Numbers for JSON to seven figures; None for those that are not finite."""
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in np.asarray(values).tolist()]


@dataclass(frozen=True, slots=True)
class Sheet:
    """Thumbnails of the first `count` rows in a grid of so many columns, `size` pixels each.

    If the pictures themselves are as small (`coarse`), they are enlarged without smoothing.
    """

    source: str
    size: int
    columns: int
    count: int
    coarse: bool


def thumbnails(content: Content, rows: Iterable[int], large: Iterable[int]) -> dict[int, Any]:
    """Pictures of rows by number, of the size of thumbnails, or (those in `large`) of single pictures."""
    most = dict.fromkeys(rows, SHEET_SIZES[0][0]) | dict.fromkeys(large, PICTURE_SIZES[0][0])
    return {row: _fitted(content[row], side) for row, side in most.items()}


def thumbnail_sheet(pictures: Sequence[Any], budget: int) -> Sheet | None:
    """The best sheet of at most `budget` characters; None without pictures."""
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
    """Pictures as data addresses, as large as `budget` allows for all; "" for those that do not fit."""
    texts: list[str] = []
    for side, quality in PICTURE_SIZES:
        texts = [_address(_fitted(picture, side), "webp", quality=quality, method=4) for picture in pictures]
        if sum(map(len, texts)) <= budget:
            return texts
    left = budget - np.cumsum([len(text) for text in texts])
    return [text if rest >= 0 else "" for text, rest in zip(texts, left, strict=True)]


def _fitted(picture: Any, side: int) -> Any:
    """A copy in RGB of at most `side` × `side` pixels."""
    picture = picture if picture.mode == "RGB" else picture.convert("RGB")
    # A large picture is reduced instead of copied.
    times = max(picture.size) // _MAX_COPIED_SIDE + 1 if max(picture.size) > _MAX_COPIED_SIDE else 1
    small = picture.copy() if times == 1 else picture.reduce(times)
    small.thumbnail((side, side))
    return small


def _square(picture: Any, side: int) -> Any:
    """The whole picture on a grey square of `side` pixels."""
    from PIL import Image

    scale = side / max(picture.size)
    small = picture.resize(tuple(max(1, round(scale * length)) for length in picture.size), Image.Resampling.LANCZOS)
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
    return _address(whole, "webp", quality=quality, method=4)


def _address(picture: Any, kind: str, **options: Any) -> str:
    """A picture as a data address."""
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return f"data:image/{kind};base64," + base64.b64encode(buffer.getvalue()).decode()


def lossless(values: Any) -> str:
    """An array (h, w) or (h, w, 3) of bytes as a data address, pixel by pixel."""
    from PIL import Image

    return _address(Image.fromarray(np.asarray(values, dtype=np.uint8)), "png", optimize=True)


def direction_examples(findings: Findings, pictures: Mapping[int, Any]) -> list[dict[str, Any]]:
    """What directions mean, by role: the rows at both ends of each, and, if rows are pictures, the direction as one.

    `pictures` are those of rows by number. Some directions are shown at once, and the rest is folded away.
    """
    rows = list(dict.fromkeys(row for row in extreme_rows(findings) if row in pictures))
    found = dict(zip(rows, sources([pictures[row] for row in rows], MAX_EXTREME_CHARACTERS), strict=True))
    drawn = {} if findings.pixels is None else findings.pixels.directions
    seen = dict(zip(drawn, _directions(list(drawn.values())), strict=True))
    roles = []
    for role, name, total in _roles(findings):
        ones = [
            {
                "name": findings.view.axes[extremes.axis].name,
                "role": role,
                "ends": [
                    {"title": title, "examples": _examples(findings, extremes.axis, end, found, pictures)}
                    for title, end in (("low end", extremes.low), ("high end", extremes.high))
                ],
                "picture": seen.get(extremes.axis, ""),
            }
            for extremes in findings.extremes
            if findings.view.axes[extremes.axis].role == role
        ]
        first, rest = ones[:DIRECTIONS_SHOWN_FIRST], ones[DIRECTIONS_SHOWN_FIRST:]
        more = f"{len(rest)} more of the {total} {name} directions"
        if len(ones) >= total:
            more = formatting.plural(len(rest), f"more {name} direction")
        if ones:
            counted = _first_of(len(ones), total, name)
            roles.append({"name": name, "first": first, "rest": rest, "counted": counted, "more": more})
    return roles


def choice_of_axes(findings: Findings, axes: Sequence[int]) -> str:
    """A sentence about the directions that the scatter can show, if not all."""
    parts = [
        counted
        for role, name, total in _roles(findings)
        if (counted := _first_of(sum(findings.view.axes[k].role == role for k in axes), total, name))
    ]
    listed = formatting.capital(formatting.join_with_and(parts))
    return f"{listed} can be chosen, so that the page stays small." if parts else ""


def _roles(findings: Findings) -> tuple[tuple[str, str, int], ...]:
    """Roles that are shown, what they are called, and how many directions of each were found."""
    return ("spurious", "spurious", findings.n_removed), ("main", "main-task", findings.n_main)


def _first_of(here: int, total: int, name: str) -> str:
    """How many directions are here, where that is not all: "the first 6 of 11 spurious directions"."""
    return f"the first {here} of {formatting.plural(total, f'{name} direction')}" if here < total else ""


def extreme_rows(findings: Findings) -> list[int]:
    """Rows that `direction_examples` shows pictures of."""
    return [row for extremes in findings.extremes for end in (extremes.low, extremes.high) for row in end.tolist()]


def pixel_rows(findings: Findings) -> list[dict[str, Any]]:
    """Rows that are pictures themselves: before, after, and the difference."""
    pixels = findings.pixels
    if pixels is None:
        return []
    rows = pixels.rows.tolist()
    texts: list[list[str]] = []
    for side in PICTURE_SIDES:
        texts = _pixel_texts(pixels, side)
        if sum(len(text) for three in texts for text in three) <= MAX_PIXEL_CHARACTERS:
            break
    else:  # too many rows: keep some of them, evenly spread over the groups
        fitting = MAX_PIXEL_CHARACTERS // max(1, max(sum(map(len, three)) for three in texts))
        kept = np.unique(np.linspace(0, len(rows) - 1, max(1, fitting)).astype(int)).tolist()
        rows, texts = [rows[k] for k in kept], [texts[k] for k in kept]
    names = ("before", "after", "difference")
    return [
        _pictures_of(findings, row, dict(zip(names, three, strict=True)))
        for row, three in zip(rows, texts, strict=True)
    ]


def saliency_rows(findings: Findings) -> list[dict[str, Any]]:
    """Pictures alone and under the map of each head; maps of one head share a scale."""
    saliency = findings.saliency
    if saliency is None:
        return []
    full = {name: full_colour_value(maps) for name, maps in saliency.maps.items()}
    drawn = []
    for k, given in enumerate(saliency.pictures):
        picture = given.convert("RGB")
        overlaid = (overlay_map(picture, np.asarray(maps)[k], full[name]) for name, maps in saliency.maps.items())
        drawn += [picture, *overlaid]
    texts = iter(sources(drawn, MAX_MAP_CHARACTERS))
    return [
        _pictures_of(findings, row, {name: next(texts) for name in ("picture", *saliency.maps)})
        for row in saliency.rows.tolist()
    ]


def _pictures_of(findings: Findings, row: int, found: Mapping[str, str]) -> dict[str, Any]:
    """Pictures of one row side by side, by title."""
    name = formatting.clipped(str(findings.ids[row]), 80)
    return {"id": name, "group": int(findings.group[row]), "sources": list(found.items())}


def diverging(values: FloatArray, reach: float) -> Any:
    """Signed values as colours: (h, w) from orange over white to blue; (h, w, 3) around grey in each channel."""
    share = np.clip(np.asarray(values, dtype=np.float64) / reach, -1.0, 1.0)
    if share.ndim == 3:
        return np.uint8(np.round(127.5 + 127.5 * share))
    ends = np.where(share[:, :, None] < 0, *np.array(MAP_COLOURS, dtype=np.float64))
    strength = np.abs(share)[:, :, None]
    return np.uint8(np.round(255.0 * (1.0 - strength) + ends * strength))


def _small(pictures: Any, side: int) -> FloatArray:
    """Pictures (k, h, w) or (k, h, w, 3) of at most `side` pixels: means of squares of pixels."""
    values: FloatArray = np.asarray(pictures, dtype=np.float64)
    step = -(-max(values.shape[1:3]) // side)
    for axis in (1, 2) if step > 1 else ():
        edges = np.arange(0, values.shape[axis], step)
        sizes = np.diff([*edges, values.shape[axis]])
        values = np.add.reduceat(values, edges, axis=axis) / sizes.reshape(-1, *[1] * (values.ndim - 1 - axis))
    return values


def _directions(drawn: Sequence[FloatArray]) -> list[str]:
    """Directions as pictures on one scale; "" for those that do not fit."""
    texts: list[str] = []
    for side in PICTURE_SIDES if drawn else ():
        small = _small(np.stack(drawn), side)
        reach = float(np.abs(small).max()) or 1.0
        texts = [lossless(diverging(one, reach)) for one in small]
        if sum(map(len, texts)) <= MAX_DIRECTION_CHARACTERS:
            break
    left = MAX_DIRECTION_CHARACTERS - np.cumsum([len(text) for text in texts])
    return [text if rest >= 0 else "" for text, rest in zip(texts, left, strict=True)]


def _pixel_texts(pixels: PixelView, side: int) -> list[list[str]]:
    """Each row before, after, and the change."""
    small = _small(pixels.before, side), _small(pixels.after, side)
    before, after = (_seen(part, pixels.before) for part in small)
    change = small[1] - small[0]
    reach = float(np.abs(change).max()) or 1.0
    changes = [diverging(one, reach) for one in change]
    return [[lossless(part) for part in three] for three in zip(before, after, changes, strict=True)]


def _seen(values: FloatArray, rows: FloatArray) -> Any:
    """Pictures as bytes, on the scale of the rows before removal: 0 to 1 or 0 to 255 if they fit."""
    low, high = float(np.min(rows)), float(np.max(rows))
    if low >= 0.0:
        low, high = 0.0, 1.0 if high <= 1.0 else 255.0 if 1.5 < high <= 255.0 else high
    width = (high - low) or 1.0
    return np.uint8(np.round(255 * np.clip((values - low) / width, 0.0, 1.0)))


def _examples(
    findings: Findings, axis: int, rows: Any, found: Mapping[int, str], pictures: Mapping[int, Any]
) -> list[dict[str, Any]]:
    """Rows at one end of a direction: name, group (-1: not known), score, and picture or text."""
    texts = findings.content if findings.content is not None and findings.content.kind == "text" else None
    (digits,) = score_digits(findings, [axis])
    return [
        {
            "id": formatting.clipped(str(findings.ids[row]), 80),
            "group": int(findings.group[row]),
            "score": formatting.score(float(findings.view.before[row, axis]), digits),
            "source": found.get(row, ""),
            "text": "" if texts is None else formatting.clipped(text_of(texts[row]), MAX_EXAMPLE_TEXT),
            "coarse": row in pictures and max(pictures[row].size) <= MAX_COARSE_SIDE,
        }
        for row in np.asarray(rows).tolist()
    ]
