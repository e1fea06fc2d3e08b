"""What a direction means: rows that lie farthest out, the direction as a picture, and where a last layer looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unspur._typing import FloatArray
from unspur.report.colours import MAP_COLOURS, full_colour_value, overlay_map
from unspur.report.page import formatting
from unspur.report.page.packing import MAX_COARSE_SIDE, lossless, score_digits, sources, text_of
from unspur.report.results import Extremes, Findings, PixelView

#: Characters that pictures of extreme rows, those under maps, rows as pixels, and directions as pixels may take.
MAX_EXTREME_CHARACTERS, MAX_MAP_CHARACTERS, MAX_PIXEL_CHARACTERS, MAX_DIRECTION_CHARACTERS = (
    600_000,
    450_000,
    300_000,
    150_000,
)
#: Longest sides that pictures made of rows are reduced to, one after the other, until they fit.
PICTURE_SIDES = (128, 96, 64, 48, 32)
#: Longest text of an extreme row.
MAX_EXAMPLE_TEXT = 320
#: Directions of each role that are shown at once; more are shown on demand.
DIRECTIONS_SHOWN_FIRST = 2


@dataclass(frozen=True, slots=True)
class Example:
    """One row: what it is called, its group (-1: not known), its score, and its picture or text."""

    id: str
    group: int
    score: str
    source: str = ""
    text: str = ""
    coarse: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """One end of a direction."""

    title: str
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class Meaning:
    """A direction, the rows at both of its ends, and itself as a picture where rows are pictures."""

    name: str
    role: str
    ends: tuple[End, End]
    picture: str = ""


@dataclass(frozen=True, slots=True)
class Role:
    """Directions of one role: what they are called, the first, others on demand, and how many were found in all."""

    name: str
    first: tuple[Meaning, ...]
    rest: tuple[Meaning, ...]
    total: int

    @property
    def counted(self) -> str:
        """How many of them the page has, where that is not all: "the first 6 of 11 spurious directions"."""
        here = len(self.first) + len(self.rest)
        return (
            f"the first {here} of {formatting.plural(self.total, self.name + ' direction')}"
            if here < self.total
            else ""
        )

    @property
    def more(self) -> str:
        """What there is on demand: "4 more of the 11 spurious directions"."""
        if len(self.first) + len(self.rest) == self.total:
            return formatting.plural(len(self.rest), f"more {self.name} direction")
        return f"{len(self.rest)} more of the {self.total} {self.name} directions"


@dataclass(frozen=True, slots=True)
class Triple:
    """Pictures of one row side by side."""

    id: str
    group: int
    sources: tuple[tuple[str, str], ...]


def meanings(findings: Findings, pictures: Mapping[int, Any]) -> list[Meaning]:
    """One for each entry of `extremes`; `pictures` holds those of their rows."""
    rows = list(dict.fromkeys(row for extremes in findings.extremes for row in _rows(extremes) if row in pictures))
    found = (
        dict(zip(rows, sources([pictures[row] for row in rows], MAX_EXTREME_CHARACTERS), strict=True)) if rows else {}
    )
    drawn = {} if findings.pixels is None else findings.pixels.directions
    seen = dict(zip(drawn, _directions(list(drawn.values())), strict=True))
    return [
        Meaning(
            name=findings.view.axes[extremes.axis].name,
            role=findings.view.axes[extremes.axis].role,
            ends=(
                End("low end", _examples(findings, extremes.axis, extremes.low, found, pictures)),
                End("high end", _examples(findings, extremes.axis, extremes.high, found, pictures)),
            ),
            picture=seen.get(extremes.axis, ""),
        )
        for extremes in findings.extremes
    ]


def by_role(findings: Findings, found: Sequence[Meaning]) -> list[Role]:
    """Of each role the first `DIRECTIONS_SHOWN_FIRST` directions, and the others."""
    parts = []
    for role, what, total in (("spurious", "spurious", findings.removed), ("main", "main-task", findings.kept)):
        ones = tuple(one for one in found if one.role == role)
        if ones:
            parts.append(
                Role(what, ones[:DIRECTIONS_SHOWN_FIRST], ones[DIRECTIONS_SHOWN_FIRST:], max(total, len(ones)))
            )
    return parts


def choice_of_axes(findings: Findings, axes: Sequence[int]) -> str:
    """Which directions the scatter can show, where those are not all."""
    said = []
    for role, what, total in (("spurious", "spurious", findings.removed), ("main", "main-task", findings.kept)):
        here = sum(findings.view.axes[k].role == role for k in axes)
        if here < total:
            said.append(f"the first {here} of {formatting.plural(total, what + ' direction')}")
    return f"{formatting.capital(formatting.listed(said))} can be chosen, so that the page stays small." if said else ""


def extreme_rows(findings: Findings) -> list[int]:
    """Rows that `meanings` shows pictures of."""
    return [row for extremes in findings.extremes for row in _rows(extremes)]


def pixel_rows(findings: Findings) -> list[Triple]:
    """Rows that are pictures themselves: before, after, and the change."""
    pixels = findings.pixels
    if pixels is None:
        return []
    rows = np.asarray(pixels.rows).tolist()
    texts: list[list[str]] = []
    for side in PICTURE_SIDES:
        texts = _pixel_texts(pixels, side)
        if sum(len(text) for three in texts for text in three) <= MAX_PIXEL_CHARACTERS:
            break
    else:  # too many rows even so: some of them, from all groups alike
        fitting = MAX_PIXEL_CHARACTERS // max(1, max(sum(map(len, three)) for three in texts))
        kept = np.unique(np.linspace(0, len(rows) - 1, max(1, fitting)).astype(int)).tolist()
        rows, texts = [rows[k] for k in kept], [texts[k] for k in kept]
    return [
        Triple(
            formatting.clipped(str(findings.ids[row]), 80),
            int(findings.group[row]),
            tuple(zip(("before", "after", "difference"), three, strict=True)),
        )
        for row, three in zip(rows, texts, strict=True)
    ]


def saliency_rows(findings: Findings) -> list[Triple]:
    """Pictures, plain and under the map of each last layer; maps of one layer share a scale."""
    saliency = findings.saliency
    if saliency is None:
        return []
    full = {name: full_colour_value(maps) for name, maps in saliency.maps.items()}
    columns = ["picture", *saliency.maps]
    drawn = []
    for k in range(len(saliency.rows)):
        picture = saliency.pictures[k].convert("RGB")
        drawn += [
            picture,
            *(overlay_map(picture, np.asarray(maps)[k], full[name]) for name, maps in saliency.maps.items()),
        ]
    texts = iter(sources(drawn, MAX_MAP_CHARACTERS))
    return [
        Triple(
            formatting.clipped(str(findings.ids[row]), 80),
            int(findings.group[row]),
            tuple((name, next(texts)) for name in columns),
        )
        for row in np.asarray(saliency.rows).tolist()
    ]


def diverging(values: FloatArray, reach: float) -> Any:
    """Signed values as bytes: (h, w) from orange over white to blue; (h, w, 3) each channel around middle grey."""
    share = np.clip(np.asarray(values, dtype=np.float64) / reach, -1.0, 1.0)
    if share.ndim == 3:
        return np.uint8(np.round(127.5 + 127.5 * share))
    ends = np.where(share[:, :, None] < 0, *np.array(MAP_COLOURS, dtype=np.float64))
    strength = np.abs(share)[:, :, None]
    return np.uint8(np.round(255.0 * (1.0 - strength) + ends * strength))


def pooled(values: FloatArray, side: int) -> FloatArray:
    """Pictures (…, h, w, colours) of at most `side` pixels: means of squares of them."""
    step = -(-max(values.shape[-3:-1]) // side)
    for axis in (-3, -2) if step > 1 else ():
        edges = np.arange(0, values.shape[axis], step)
        sizes = np.diff([*edges, values.shape[axis]])
        values = np.add.reduceat(values, edges, axis=axis) / sizes.reshape(-1, *[1] * (-1 - axis))
    return values


def _small(values: Any, side: int) -> FloatArray:
    """Pictures (…, h, w) or (…, h, w, 3) as they are kept, reduced."""
    values = np.asarray(values, dtype=np.float64)
    return pooled(values, side) if values.ndim == 4 else pooled(values[..., None], side)[..., 0]


def _directions(drawn: Sequence[FloatArray]) -> list[str]:
    """Directions as pictures on one scale; the last ones are empty where not even small ones fit."""
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
    """Pictures as bytes, on the scale of the rows before removal: 0 to 1 or to 255 where they keep to that."""
    low, high = float(np.min(rows)), float(np.max(rows))
    if low >= 0.0:
        low, high = 0.0, 1.0 if high <= 1.0 else 255.0 if 1.5 < high <= 255.0 else high
    width = (high - low) or 1.0
    return np.uint8(np.round(255 * np.clip((values - low) / width, 0.0, 1.0)))


def _rows(extremes: Extremes) -> list[int]:
    return [*np.asarray(extremes.low).tolist(), *np.asarray(extremes.high).tolist()]


def _examples(
    findings: Findings, axis: int, rows: Any, found: Mapping[int, str], pictures: Mapping[int, Any]
) -> tuple[Example, ...]:
    texts = findings.content is not None and findings.content.kind == "text"
    (digits,) = score_digits(findings, [axis])
    return tuple(
        Example(
            id=formatting.clipped(str(findings.ids[row]), 80),
            group=int(findings.group[row]),
            score=formatting.score(float(findings.view.before[row, axis]), digits),
            source=found.get(row, ""),
            text=formatting.clipped(text_of(findings.content[row]), MAX_EXAMPLE_TEXT)
            if texts and findings.content
            else "",
            coarse=row in pictures and max(pictures[row].size) <= MAX_COARSE_SIDE,
        )
        for row in np.asarray(rows).tolist()
    )
