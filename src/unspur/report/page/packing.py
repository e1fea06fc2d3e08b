"""What the script of a page needs, as JSON: scores in 16 bits, names and texts cut to a budget, thumbnails."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from unspur._typing import Array, FloatArray
from unspur.report.page import words
from unspur.report.page.marks import group_path
from unspur.report.page.thumbnails import Sheet
from unspur.report.results import Boundary, Findings

#: Characters that scores, ids and texts may take.
SCORES, IDS, TEXTS = 600_000, 300_000, 1_000_000
#: Where scores in 16 bits end.
_STEPS = 65_535
#: Stands for a group that is not known.
UNKNOWN = 65_535
#: Would end the element that holds it, or a line of a script; or cannot be written in UTF-8 (half a character).
_UNSAFE = {code: f"\\u{code:04x}" for code in (*map(ord, "<>&\u2028\u2029"), *range(0xD800, 0xE000))}


def safe_json(value: Any) -> str:
    """JSON that may stand inside of a script element: nothing in it can end that."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_UNSAFE)


def axes_that_fit(findings: Findings) -> list[int]:
    """Numbers of the axes whose scores fit the budget: the first of every role."""
    axes, each = findings.view.axes, len(findings.shown) * 2 * 2 * 4 / 3
    most = max(2, int(SCORES / max(each, 1.0)))
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
    group = np.where(findings.group[shown] < 0, UNKNOWN, findings.group[shown])
    flags = findings.right_before[shown] + 2 * findings.right_after[shown]
    x, y = first_pair(findings, axes)
    return {
        "rows": len(shown),
        "axes": [{"name": view.axes[k].name, "role": view.axes[k].role} for k in axes],
        "first": [x, y],
        "digits": score_digits(findings, axes),
        "low": _plain(low),
        "high": _plain(high),
        "before": _sixteen_bits(before, low, high),
        "after": _sixteen_bits(after, low, high),
        "group": _bytes(group, "<u2"),
        "right": _bytes(flags, "u1"),
        "groups": [{"name": name, "path": group_path(k)} for k, name in enumerate(findings.groups)],
        "ids": within([findings.ids[i] for i in shown.tolist()], 80, IDS),
        "texts": _texts(findings),
        "sheet": None if sheet is None else {
            "source": sheet.source, "size": sheet.size, "columns": sheet.columns, "count": sheet.count,
            "coarse": sheet.coarse,
        },
        "boundary": [_boundary(b, axes) for b in (view.boundary_before, view.boundary_after)],
        "gram": [_plain(line) for line in view.gram[np.ix_(list(axes), list(axes))]],
        "means": group_means(findings, axes),
        "method": findings.method,
    }  # fmt: skip


def score_digits(findings: Findings, axes: Sequence[int]) -> list[int | None]:
    """Decimals that scores along each axis are written with (`words.score`)."""
    view = findings.view
    return [words.digits_for(max(float(np.abs(s[:, k]).max()) for s in (view.before, view.after))) for k in axes]


def group_means(findings: Findings, axes: Sequence[int]) -> list[list[list[float | None]]]:
    """Mean scores of all test rows: before and after, by group, by axis; None for a group without rows."""
    found = []
    for scores in (findings.view.before, findings.view.after):
        lines: list[list[float | None]] = []
        for number in range(len(findings.groups)):
            rows = scores[findings.group == number][:, list(axes)]
            lines.append(_plain(rows.mean(axis=0)) if len(rows) else [None] * len(axes))
        found.append(lines)
    return found


def within(texts: Sequence[str], most: int, budget: int) -> list[str]:
    """Texts in one line, cut to `most` characters each, or to fewer so that all of them fit the budget."""
    while most > 8:
        cut = [words.clipped(text, most) for text in texts]
        if len(safe_json(cut).encode()) <= budget:
            return cut
        most = int(0.8 * most)
    return [words.clipped(text, 8) for text in texts]


def text_of(content: Any) -> str:
    """One text, or two with a stroke between them."""
    return content if isinstance(content, str) else " ∥ ".join(map(str, content))


def _texts(findings: Findings) -> list[str] | None:
    if findings.content is None or findings.content.kind != "text":
        return None
    return within([text_of(findings.content[i]) for i in findings.shown.tolist()], 160, TEXTS)


def _boundary(boundary: Boundary | None, axes: Sequence[int]) -> dict[str, Any] | None:
    if boundary is None:
        return None
    return {"offset": float(boundary.offset), "along": _plain(np.asarray(boundary.along)[list(axes)])}


def _sixteen_bits(scores: FloatArray, low: FloatArray, high: FloatArray) -> str:
    """Scores (n, m) as whole numbers from 0 (`low`) to 65,535 (`high`), axis by axis."""
    width = np.where(high > low, high - low, 1.0)
    return _bytes(np.round((scores - low) / width * _STEPS).T, "<u2")


def _bytes(values: Array, kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode()


def _plain(values: Any) -> list[float | None]:
    """Numbers for JSON, to seven figures; None where one is not finite."""
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in np.asarray(values).tolist()]
