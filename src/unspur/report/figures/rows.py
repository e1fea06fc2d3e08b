"""Rows before and after removal along two directions, and the figure of the demonstration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unspur._typing import Array, FloatArray, IntArray
from unspur.exceptions import InputError
from unspur.metrics import GroupAccuracy
from unspur.report.figures.charts import draw_bars, entries, measured
from unspur.report.figures.style import (
    Width,
    add_legend,
    group_style,
    handle,
    inches,
    literal,
    new_figure,
    styled,
)
from unspur.report.results import Axis, Boundary, Findings, View

#: Scatters of more rows are pixels in vector files, whose size would grow with every row.
MAX_VECTOR_ROWS = 20_000
_ROLES = {"spurious": " (concept)", "main": " (task)", "head": ""}
#: Parts of a panel, and how many of them a scatter takes; densities take the rest.
_PARTS, _SCATTER_PARTS, _COLLAPSED_PARTS = 13, 10, 3
#: A scatter whose rows lie within this share of the range is drawn as a line.
_COLLAPSED_SHARE = 0.02
_MAX_BINS, _SLICES = 36, 6
_BOUNDARY: dict[str, Any] = {"color": "black", "linestyle": (0, (4, 2)), "linewidth": 1.0}


@styled
def subspaces(
    findings: Findings, x: str | int | None = None, y: str | int | None = None, *, width: Width = "page"
) -> Any:
    """Test rows in the plane of two directions, before and after removal, and where each group lies along `y`.

    Groups differ in colour and marker. The dashed line is the decision boundary of the head, in the plane through
    the centre of the rows. Both panels have the same scale. Where removal leaves nothing along `x`, rows form a line,
    and densities get the room.

    Parameters
    ----------
    findings : results of `unspur.report.measure`.
    x, y : names or numbers of directions (`findings.view.axes`); by default the first spurious and main-task ones.
    width : "column" (panels under each other), "page", or inches.

    Examples
    --------
    >>> from unspur import JSE
    >>> from unspur.datasets import make_toy
    >>> from unspur.report import figures, measure
    >>> train, test = make_toy(1000, rho=0.8, random_state=0), make_toy(1000, rho=0.0, random_state=1)
    >>> jse = JSE(random_state=0).fit(train.Z, train.y, concept=train.concept)
    >>> found = measure(jse, (train.Z, train.y, train.concept), (test.Z, test.y, test.concept), concept="background")
    >>> figures.subspaces(found, x="background 1", y="main 1")
    <Figure size ...>
    """
    view, size = findings.view, inches(width)
    i, j = _chosen(view, x, y)
    points = [scores[findings.drawn_rows][:, [i, j]] for scores in (view.before, view.after)]
    group = np.asarray(findings.group)[findings.drawn_rows]
    limits = _limits(np.vstack(points))
    narrowest = _COLLAPSED_SHARE * (limits[0, 1] - limits[0, 0])
    parts = [_COLLAPSED_PARTS if np.ptp(part[:, 0]) < narrowest else _SCATTER_PARTS for part in points]
    boundaries = (view.boundary_before, view.boundary_after)
    figure = new_figure(size, 4.2 if size < 5 else 2.3)
    for k, (scatter, densities) in enumerate(_axes(figure, parts, stacked=size < 5)):
        draw_rows(scatter, points[k], group, _window(points[k][:, 0], limits[0], parts[k]))
        draw_densities(densities, points[k][:, 1], group, limits[1])
        _draw_boundary(scatter, boundaries[k], view.gram, i, j)
        scatter.set_title(literal(("original rows", f"after {findings.method}")[k], 40, 1))
        scatter.set_xlabel(_label(view.axes[i], 4 * parts[k]))
        scatter.set_ylabel(_label(view.axes[j], 28, 2))
        scatter.set_ylim(limits[1])
        if parts[k] == _COLLAPSED_PARTS:
            scatter.set_xticks([0])
        densities.set_xlabel("share of\neach group" if parts[k] == _SCATTER_PARTS else "share of each group")
    drawn = any(boundary is not None for boundary in boundaries)
    add_legend(figure, _legend(findings.groups, group, drawn), size)
    return figure


def _chosen(view: View, x: str | int | None, y: str | int | None) -> tuple[int, int]:
    """Numbers of two different axes."""
    if len(view.axes) < 2:
        names = ", ".join(repr(axis.name) for axis in view.axes) or "none"
        raise InputError(f"A plane needs two directions; the findings have {names}. Was anything removed?")
    default = view.first_pair()
    first = default[0] if x is None else _axis_number(view, x)
    second = default[1] if y is None else _axis_number(view, y)
    if first == second and y is None:
        second = default[0]
    elif first == second and x is None:
        first = default[1]
    if first == second:
        raise InputError(f"x and y are both {view.axes[first].name!r}; a plane needs two directions.")
    return first, second


def _axis_number(view: View, wanted: str | int) -> int:
    names = [axis.name for axis in view.axes]
    if isinstance(wanted, str) and wanted in names:
        return names.index(wanted)
    if isinstance(wanted, int) and 0 <= wanted < len(names):
        return wanted
    known = ", ".join(f"{k} {name!r}" for k, name in enumerate(names))
    raise InputError(f"There is no direction {wanted!r}; there are {known}.")


def _limits(points: FloatArray) -> FloatArray:
    """Lowest and highest value to show along each axis, shape (2, 2)."""
    low, high = points.min(axis=0), points.max(axis=0)
    room = 0.04 * (high - low) + 1e-12
    return np.column_stack([low - room, high + room])


def _window(values: FloatArray, limits: FloatArray, parts: int) -> tuple[float, float]:
    """Limits of a scatter along x: those of the rows, or those around a line that a narrow panel has room for."""
    if parts == _SCATTER_PARTS:
        return float(limits[0]), float(limits[1])
    middle, reach = float(values.mean()), float(limits[1] - limits[0]) * parts / _SCATTER_PARTS / 2
    return middle - reach, middle + reach


def _axes(figure: Any, parts: Sequence[int], *, stacked: bool) -> list[tuple[Any, Any]]:
    """Axes for scatter and densities of both panels, with widths that give both the same scale."""
    if stacked:
        grid = figure.add_gridspec(2, _PARTS)
        places = [(grid[k, :part], grid[k, part:]) for k, part in enumerate(parts)]
    else:
        ratios = [width for part in parts for width in (part, _PARTS - part)]
        grid = figure.add_gridspec(1, 4, width_ratios=ratios)
        places = [(grid[0, 0], grid[0, 1]), (grid[0, 2], grid[0, 3])]
    made = []
    for left, right in places:
        scatter = figure.add_subplot(left)
        made.append((scatter, figure.add_subplot(right, sharey=scatter)))
    return made


def draw_rows(
    axis: Any, points: FloatArray, group: IntArray, window: tuple[float, float], *, larger: float = 1.0
) -> None:
    """A scatter of rows, drawn in slices so that no group covers all others."""
    area = larger * float(np.clip(3200 / max(len(points), 1), 2.5, 9.0))
    number = np.arange(len(points))
    for k in range(_SLICES):
        for g in np.unique(group):
            chosen = (group == g) & (number % _SLICES == k)
            look = group_style(int(g))
            axis.scatter(
                *points[chosen].T,
                s=area,
                color=look["color"],
                marker=look["marker"],
                alpha=0.65,
                linewidths=0,
                rasterized=len(points) > MAX_VECTOR_ROWS,
                zorder=2,
            )
    axis.axhline(0, color="0.85", linewidth=0.6, zorder=0)
    axis.axvline(0, color="0.85", linewidth=0.6, zorder=0)
    axis.set_xlim(window)
    axis.locator_params(nbins=6)


def draw_densities(
    axis: Any, values: FloatArray, group: IntArray, limits: Sequence[float] | FloatArray, *, linewidth: float = 1.0
) -> None:
    """Histograms of the groups along y."""
    groups, sizes = np.unique(group, return_counts=True)
    bins = int(np.clip(3 * np.cbrt(np.median(sizes)), 8, _MAX_BINS))
    edges = np.linspace(limits[0], limits[1], bins + 1)
    for g in groups:
        look = group_style(int(g))
        share, _ = np.histogram(values[group == g], edges, density=True)
        inside = np.flatnonzero(share)
        first, last = inside[0], inside[-1]  # outside, the line would lie on the axis
        style = {"color": look["color"], "linestyle": look["linestyle"], "linewidth": linewidth}
        axis.stairs(share[first : last + 1], edges[first : last + 2], orientation="horizontal", **style)
    axis.axhline(0, color="0.85", linewidth=0.6, zorder=0)
    axis.set(xlim=(0, None), xticks=[])
    axis.tick_params(axis="y", labelleft=False, length=0)


def _draw_boundary(axis: Any, boundary: Boundary | None, gram: FloatArray, i: int, j: int) -> None:
    """The line ``offset + along · G⁻¹ (x, y) = 0``, unless the axes are parallel or predictions are constant."""
    part = gram[np.ix_([i, j], [i, j])]
    if boundary is None or np.linalg.cond(part) > 1e8:
        return
    normal = np.linalg.solve(part, boundary.along[[i, j]])
    length = float(normal @ normal)
    if length <= 1e-16 * float(boundary.along @ boundary.along):
        return
    foot = -boundary.offset * normal / length
    axis.axline(tuple(foot), tuple(foot + [-normal[1], normal[0]] / np.sqrt(length)), **_BOUNDARY, zorder=3)


def _label(axis: Axis, wrap: int, lines: int = 3) -> str:
    return literal(f"{axis.name}{_ROLES[axis.role]}", wrap, lines)


def _legend(names: Sequence[str], group: IntArray, boundary: bool) -> list[Any]:
    entries = []
    for g in sorted(np.unique(group).tolist(), key=lambda g: (g < 0, g)):
        words = literal(names[g], 34) if g >= 0 else "concept not known"
        entries.append(handle(words, **group_style(g), linewidth=1.0, markersize=4.0))
    return entries + ([handle("decision boundary", **_BOUNDARY)] if boundary else [])


@styled
def draw_demo(
    *,
    examples: Array,
    before: FloatArray,
    after: FloatArray,
    group: Array,
    group_names: Sequence[str],
    found: tuple[int, int],
    results: Mapping[str, GroupAccuracy],
) -> Any:
    """Four panels: the pictures, the rows before and after removal, and the accuracy of every group.

    `examples` holds one image per group (4, h, w, 3); `before` and `after` are scores (n, 2) along the first spurious
    and the first main-task direction; `group` is 2·main + concept of each row; `found` counts the directions of both.
    """
    figure = new_figure(12.8, 4.2)
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.06)
    columns = figure.add_gridspec(1, 4, width_ratios=[0.85, 1.1, 0.95, 1.0])
    pictures = columns[0].subgridspec(2, 2)
    for g, (place, image, name) in enumerate(zip(pictures, examples, group_names, strict=True)):
        axis = figure.add_subplot(place)
        axis.imshow(np.clip(image, 0, 1), interpolation="nearest")
        axis.set(xticks=[], yticks=[])
        axis.set_title(name, loc="center", fontsize=8.5)
        axis.spines[:].set(visible=True, edgecolor=group_style(g)["color"], linewidth=3)
    reach = 1.05 * np.abs(before).max(axis=0)
    plane, line, bars = (figure.add_subplot(place) for place in list(columns)[1:])
    draw_rows(plane, before, np.asarray(group), (-reach[0], reach[0]), larger=2.5)
    plane.set(ylim=(-reach[1], reach[1]), xticks=[], yticks=[])
    plane.set_title("embeddings, before", loc="center")
    plane.set_xlabel(f"first of {found[0]} directions of the photograph")
    plane.set_ylabel(f"first of {found[1]} directions of the digit")
    draw_densities(line, after[:, 1], np.asarray(group), (-reach[1], reach[1]), linewidth=1.8)
    line.set(ylim=(-reach[1], reach[1]), yticks=[])
    line.set_title("after JSE", loc="center")
    line.set_xlabel("share of each group")
    methods = {name: measured(result, averages=False) for name, result in results.items()}
    draw_bars(bars, methods, group_names, wrap=18, size=8.5)
    bars.set_title("accuracy, % (95 % interval)", loc="center")
    bars.legend(
        handles=entries(methods), loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=2, frameon=False, fontsize=9
    )
    for axis in (plane, line, bars):
        axis.title.set_fontsize(10)
        axis.xaxis.label.set_fontsize(10)
        axis.yaxis.label.set_fontsize(10)
    bars.tick_params(labelsize=9.5)
    return figure
