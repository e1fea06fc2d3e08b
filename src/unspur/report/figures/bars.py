"""Accuracy of every group as bars, one for each method, with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unspur._typing import FloatArray
from unspur.exceptions import InputError
from unspur.metrics import GroupAccuracy
from unspur.report.colours import contrast_of
from unspur.report.figures.style import (
    GREY,
    LINE,
    SMALL,
    Width,
    add_legend,
    inches,
    literal,
    method_areas,
    new_figure,
    styled,
)
from unspur.report.results import Findings

#: Height of a bar with its share of the gaps, and of a gap between groups.
_BAR, _GAP = 0.125, 0.085
_TWO = ("average over groups", "average over rows")


@styled
def group_bars(
    results: Mapping[str, GroupAccuracy] | Findings,
    *,
    groups: Sequence[str] | None = None,
    averages: bool = True,
    width: Width = "column",
) -> Any:
    """Accuracy of every group, one bar a method, with 95 % intervals; the worst group of each method in bold.

    Parameters
    ----------
    results : name of a method -> accuracy (`unspur.metrics.group_accuracy`), or findings, whose methods are all drawn.
    groups : what to call the groups, in the order of `GroupAccuracy.groups`.
    averages : also draw the average over groups, in which each counts the same, and the average over rows.
    width : "column", "page", or inches.

    Examples
    --------
    >>> from unspur.report import figures
    >>> from unspur.metrics import group_accuracy
    >>> bird, place = [0, 0, 0, 1, 1, 1] * 20, [0, 0, 1, 0, 1, 1] * 20
    >>> results = {"ERM": group_accuracy(bird, place, place), "JSE": group_accuracy(bird, bird, place)}
    >>> figures.group_bars(results, groups=["land/land", "land/water", "water/land", "water/water"])
    <Figure size ...>
    """
    lacking = []
    if isinstance(results, Findings):
        groups = results.groups if groups is None else groups
        lacking = [judged.name for judged in results.judged if judged.accuracy is None]
        results = {judged.name: judged.accuracy for judged in results.judged if judged.accuracy is not None}
    bars = [measured(result, averages) for result in _same_groups(results).values()]
    names = _names(results, groups) + list(_TWO if averages else ())
    size = inches(width)
    panel = len(names) * (_BAR * len(results) + _GAP)
    figure = new_figure(size, panel + 0.4 + (LINE if lacking else 0.0))
    axis = figure.subplots()
    draw_bars(axis, dict(zip(results, bars, strict=True)), names, wrap=int(6 * size))
    axis.set_xlabel("accuracy, % (95 % interval)")
    if lacking:
        figure.supxlabel(literal(f"no result: {', '.join(lacking)}", int(16 * size), 1), fontsize=SMALL, color=GREY)
    add_legend(figure, entries(results), size)
    return figure


@dataclass(frozen=True, slots=True)
class Bars:
    """What is drawn of one method, in %: shares (k,), their intervals (k, 2), and which of them is the worst group."""

    share: FloatArray
    interval: FloatArray
    worst: int


def measured(result: GroupAccuracy, averages: bool) -> Bars:
    """Numbers of one method; with both averages behind those of the groups."""
    share, interval = result.accuracy.ravel(), result.interval().reshape(-1, 2)
    worst = int(np.nanargmin(share))
    if averages:
        share = np.append(share, [result.group_average, result.average])
        interval = np.vstack([interval, result.group_average_interval(), result.average_interval()])
    return Bars(100 * share, 100 * interval, worst)


def draw_bars(axis: Any, methods: Mapping[str, Bars], names: Sequence[str], *, wrap: int, size: float = SMALL) -> None:
    """Bars of all methods in one panel, groups from top to bottom."""
    pitch = 1 / (len(methods) + _GAP / _BAR)
    for k, (bars, area) in enumerate(zip(methods.values(), method_areas(methods).values(), strict=True)):
        at = np.arange(len(names)) + (k - (len(methods) - 1) / 2) * pitch
        reach = np.abs(bars.interval - bars.share[:, None]).T
        ends = {"elinewidth": 0.8, "capsize": 0, "ecolor": "black"}
        axis.barh(at, bars.share, 0.9 * pitch, xerr=reach, **area, error_kw=ends)
        for i, (y, share, high) in enumerate(zip(at, bars.share, bars.interval[:, 1], strict=True)):
            weight = "bold" if i == bars.worst else "normal"
            _write_value(axis, y, share, high, area, {"fontsize": size, "fontweight": weight})
    axis.set_yticks(range(len(names)), [literal(name, wrap, 2) for name in names])
    axis.tick_params(axis="y", length=0)
    axis.set(xlim=(0, 100), ylim=(len(names) - 0.5, -0.5))


def entries(methods: Iterable[str]) -> list[Any]:
    """Of a legend, in the order of the bars."""
    from matplotlib.patches import Patch

    return [Patch(**area, label=literal(name, 30)) for name, area in method_areas(methods).items()]


def _write_value(
    axis: Any, y: float, share: float, high: float, area: Mapping[str, Any], look: Mapping[str, Any]
) -> None:
    """At the foot of the bar, or behind it where the bar is too short."""
    if np.isnan(share):
        axis.text(1.5, y, "no rows", va="center_baseline", color=GREY, **look)
    elif share < 20:
        axis.text(high + 1.5, y, f"{share:.1f}", va="center_baseline", color="black", **look)
    else:
        words = axis.text(1.5, y, f"{share:.1f}", va="center_baseline", color=_ink(area["facecolor"]), **look)
        if area["hatch"]:
            words.set_bbox({"facecolor": area["facecolor"], "linewidth": 0, "pad": 0.6})


def _ink(colour: str) -> str:
    """Black or white, whichever can be read on a colour."""
    return max("#000000", "#FFFFFF", key=lambda ink: contrast_of(ink, colour))


def _same_groups(results: Mapping[str, GroupAccuracy]) -> Mapping[str, GroupAccuracy]:
    if not results:
        raise InputError("There are no accuracies to draw; pass at least one method with its GroupAccuracy.")
    first, *others = results
    for other in others:
        if results[other].levels != results[first].levels:
            raise InputError(
                f"{first!r} and {other!r} were judged on other groups: {results[first].levels} and "
                f"{results[other].levels}. Judge both on the same labels."
            )
    return results


def _names(results: Mapping[str, GroupAccuracy], groups: Sequence[str] | None) -> list[str]:
    first = next(iter(results.values()))
    if groups is None:
        return first.labels()
    if len(groups) != first.rows.size:
        raise InputError(f"There are {first.rows.size} groups, and {len(groups)} names for them. Name each.")
    return list(groups)
