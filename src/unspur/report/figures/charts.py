"""Charts of results: accuracy of every group as bars, curves of methods with their bands, and the ladder of tests.

The ladder has every direction that a fit tested, its two statistics, and the decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from scipy.special import ndtri

from unspur._typing import Array, FloatArray
from unspur.exceptions import InputError
from unspur.metrics import GroupAccuracy
from unspur.report.colours import contrast_of
from unspur.report.figures.style import (
    GREY,
    LINE,
    MIN_FONT_SIZE,
    Width,
    add_legend,
    handle,
    inches,
    lines_of,
    literal,
    method_areas,
    method_looks,
    new_figure,
    styled,
)
from unspur.report.results import Findings
from unspur.trace import Step, Trace, Traces, parts_of

#: Bars: height of a bar with its share of the gaps, and of a gap between groups.
_BAR, _GAP = 0.125, 0.085
_AVERAGES = ("average over groups", "average over rows")
#: (x, mean) or (x, mean, low, high), each of shape (k,).
Series: TypeAlias = Sequence[Array]
#: Inches a panel needs from left to right, and its height.
_MIN_PANEL_WIDTH, _HEIGHT = 2.1, 1.65
#: Inches of a method that has a line of its own.
_METHOD_LINE = 0.22
_DOTTED: dict[str, Any] = {"color": "0.25", "linestyle": (0, (1, 1.6)), "linewidth": 1.0}
#: Curves with more points have no markers.
_MAX_MARKED_POINTS = 25
_EDGE = {"markeredgecolor": "white", "markeredgewidth": 0.3}
#: Look of published results.
_PUBLISHED: dict[str, Any] = {
    "linestyle": (0, (4, 2)),
    "linewidth": 0.8,
    "markerfacecolor": "white",
    "markeredgewidth": 0.7,
    "markersize": 3.2,
}
#: Inches of a rung of the ladder.
_ROW = 0.19
#: The scale is linear up to about this t, and logarithmic beyond.
_LINEAR = 2.0
_TICKS = tuple(sign * step * 10.0**power for power in range(16) for step in (3, 10) for sign in (-1, 1))
_ROLES = {"spurious": "spurious", "main": "main task"}
#: Inches from which on there is room for reasons beside the rungs.
_WIDE = 5.0
_TESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("informative: predicts its label better than chance", {"marker": "o", "color": "#0072B2"}),
    ("specific: … and better than the other label", {"marker": "D", "color": "#D55E00"}),
)


@styled
def group_bars(
    results: Mapping[str, GroupAccuracy] | Findings,
    *,
    groups: Sequence[str] | None = None,
    averages: bool = True,
    width: Width = "column",
) -> Any:
    """Accuracy of every group as bars with 95 % intervals, one for each method; worst groups in bold.

    Parameters
    ----------
    results : name of a method -> accuracy (`unspur.metrics.group_accuracy`), or findings, whose methods are all drawn.
    groups : names of the groups, in the order of `GroupAccuracy.groups`.
    averages : also draw the average over groups and the average over rows.
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
        lacking = [result.name for result in results.results if result.accuracy is None]
        results = {result.name: result.accuracy for result in results.results if result.accuracy is not None}
    names = _group_names(results, groups) + list(_AVERAGES if averages else ())
    bars = [measured(result, averages) for result in results.values()]
    size = inches(width)
    panel = len(names) * (_BAR * len(results) + _GAP)
    figure = new_figure(size, panel + 0.4 + (LINE if lacking else 0.0))
    axis = figure.subplots()
    draw_bars(axis, dict(zip(results, bars, strict=True)), names, wrap=int(6 * size))
    axis.set_xlabel("accuracy, % (95 % interval)")
    if lacking:
        figure.supxlabel(
            literal(f"no result: {', '.join(lacking)}", int(16 * size), 1), fontsize=MIN_FONT_SIZE, color=GREY
        )
    add_legend(figure, entries(results), size)
    return figure


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars of one method, in %: shares (k,), their intervals (k, 2), and the number of the worst group."""

    share: FloatArray
    interval: FloatArray
    worst: int


def measured(result: GroupAccuracy, averages: bool) -> Bars:
    """Bars of one method: those of the groups, then (with `averages`) both averages."""
    share, interval = result.accuracy.ravel(), result.interval().reshape(-1, 2)
    worst = int(np.nanargmin(share))
    if averages:
        share = np.append(share, [result.group_average, result.average])
        interval = np.vstack([interval, result.group_average_interval(), result.average_interval()])
    return Bars(100 * share, 100 * interval, worst)


def draw_bars(
    axis: Any, methods: Mapping[str, Bars], names: Sequence[str], *, wrap: int, size: float = MIN_FONT_SIZE
) -> None:
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
    """Entries of a legend, in the order of the bars."""
    from matplotlib.patches import Patch

    return [Patch(**area, label=literal(name, 30)) for name, area in method_areas(methods).items()]


def _write_value(
    axis: Any, y: float, share: float, high: float, area: Mapping[str, Any], look: Mapping[str, Any]
) -> None:
    """Write a value at the foot of its bar, or after a bar that is too short."""
    if np.isnan(share):
        axis.text(1.5, y, "no rows", va="center_baseline", color=GREY, **look)
    elif share < 20:
        axis.text(high + 1.5, y, f"{share:.1f}", va="center_baseline", color="black", **look)
    else:
        ink = max("#000000", "#FFFFFF", key=lambda ink: contrast_of(ink, area["facecolor"]))
        words = axis.text(1.5, y, f"{share:.1f}", va="center_baseline", color=ink, **look)
        if area["hatch"]:
            words.set_bbox({"facecolor": area["facecolor"], "linewidth": 0, "pad": 0.6})


def _group_names(results: Mapping[str, GroupAccuracy], groups: Sequence[str] | None) -> list[str]:
    """Names of the groups, which are the same for all methods."""
    if not results:
        raise InputError("There are no accuracies to draw; pass at least one method with its GroupAccuracy.")
    first, *others = results
    for other in others:
        if results[other].levels != results[first].levels:
            raise InputError(
                f"{first!r} and {other!r} were evaluated on different groups: {results[first].levels} and "
                f"{results[other].levels}. Evaluate both on the same labels."
            )
    if groups is None:
        return results[first].labels()
    if len(groups) != results[first].rows.size:
        raise InputError(f"There are {results[first].rows.size} groups, and {len(groups)} names for them. Name each.")
    return list(groups)


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves of one quantity: `series`, published ones to compare with (`beside`, dashed), and dotted lines by name."""

    title: str
    series: Mapping[str, FloatArray]
    beside: Mapping[str, FloatArray] = field(default_factory=dict)
    reference: Mapping[str, float] = field(default_factory=dict)
    #: Smallest range that the panel shows, so that noise does not look like an effect.
    least: float = 0.0


@styled
def curves(
    series: Mapping[str, Series] | Mapping[str, Mapping[str, Series]],
    *,
    x_name: str = "",
    y_name: str = "",
    reference: Mapping[str, float] | None = None,
    width: Width = "column",
) -> Any:
    """Curves with bands, one for each method, in its own colour and with its own marker.

    Parameters
    ----------
    series : name of a method -> (x, mean) or (x, mean, low, high), each of shape (k,), low and high the bounds of the
        band. A mean that is NaN leaves a gap. For several panels side by side, title of a panel -> such a mapping.
    x_name, y_name : labels of the axes.
    reference : name -> value of dotted lines in every panel.
    width : "column", "page", or inches.

    Examples
    --------
    >>> from unspur.report import figures
    >>> strength = [0.5, 0.7, 0.9]
    >>> worst = {"JSE": (strength, [90, 89, 87], [89, 88, 85], [91, 90, 89]), "ERM": (strength, [90, 82, 61])}
    >>> figures.curves(worst, x_name="strength", y_name="worst group, %")
    <Figure size ...>
    """
    if not series:
        raise InputError("There are no curves to draw; pass at least one name with its (x, mean).")
    nested = isinstance(next(iter(series.values())), Mapping)
    by_title = cast(Mapping[str, Mapping[str, Series]], series if nested else {"": series})
    panels = [
        Panel(
            literal(title, 40, 2), {name: checked(name, one) for name, one in part.items()}, reference=reference or {}
        )
        for title, part in by_title.items()
    ]
    return draw_panels(panels, x_name, y_name, width)


def checked(name: str, series: Series) -> FloatArray:
    """A series as an array (4, k): x ascending, mean, low, high."""
    if len(series) not in (2, 4):
        raise InputError(f"{name!r} has {len(series)} columns; a curve is (x, mean) or (x, mean, low, high).")
    try:
        rows = np.array([np.asarray(column, dtype=np.float64).ravel() for column in series])
    except ValueError as error:
        lengths = ", ".join(str(np.size(column)) for column in series)
        raise InputError(f"{name!r}: x, mean, low and high must be numbers, equally many; got {lengths}.") from error
    rows = rows[:, np.argsort(rows[0], kind="stable")]
    x, mean, low, high = rows if len(rows) == 4 else (*rows, rows[1], rows[1])
    if np.any((low > mean) | (mean > high)):
        at = x[np.argmax((low > mean) | (mean > high))]
        raise InputError(f"{name!r}: at x = {at:g} the mean is not between low and high. Pass bounds, not half widths.")
    return np.array([x, mean, low, high])


def draw_panels(
    panels: Sequence[Panel], x_name: str, y_name: str, width: Width, ticks: Mapping[float, str] | None = None
) -> Any:
    """Panels side by side, or below each other in a narrow figure; `ticks` are labels where x is not a number.

    If there is a single x, methods stand below each other, and the quantity runs from left to right.
    """
    size, looks = inches(width), method_looks(name for panel in panels for name in (*panel.series, *panel.beside))
    places = {float(x) for panel in panels for points in panel.series.values() for x in points[0]}
    single = len(places) == 1
    columns = min(len(panels), max(1, int(size / _MIN_PANEL_WIDTH)))
    rows = -(-len(panels) // columns)
    where = f"at {x_name} = {places.pop():g}" if single and x_name else ""
    below, beside = (", ".join(filter(None, (y_name, where))), "") if single else (x_name, y_name)
    below, beside = literal(below, int(15 * size / columns)), literal(beside, 26, 2)
    head = LINE * max(lines_of(panel.title) for panel in panels)
    height = rows * (head + (0.3 + _METHOD_LINE * len(looks) if single else _HEIGHT))
    figure = new_figure(size, height + 0.2 + LINE * lines_of(below))
    grid = figure.subplots(rows, columns, squeeze=False, sharex=not single, sharey=single)
    for axis, panel in zip(grid.flat, panels, strict=False):
        (_draw_points if single else _draw_curves)(axis, panel, looks)
        axis.set_title(panel.title)
        if ticks and not single:
            axis.set_xticks(list(ticks), list(ticks.values()))
    for axis in grid.flat[len(panels) :]:
        axis.set_axis_off()
    for column in range(columns):
        lowest = grid[(len(panels) - 1 - column) // columns, column]
        lowest.set_xlabel(below)
        lowest.tick_params(labelbottom=True)
    for row in grid:
        row[0].set_ylabel(beside)
    add_legend(figure, _legend(panels, {} if single else looks), size)
    return figure


def _draw_curves(axis: Any, panel: Panel, looks: Mapping[str, Any]) -> None:
    # Later lines are thinner, so that equal ones are all visible.
    thinner = np.linspace(1.0, 0.0, len(panel.series)) if len(panel.series) > 1 else np.zeros(1)
    for thick, (name, (x, mean, low, high)) in zip(thinner, panel.series.items(), strict=True):
        look = {**looks[name], "linewidth": 1.1 + thick, "markersize": 3.4 + 1.2 * thick, **_EDGE}
        look["marker"] = look["marker"] if len(x) <= _MAX_MARKED_POINTS else ""
        axis.fill_between(x, low, high, color=look["color"], alpha=0.16, linewidth=0, zorder=1.5)
        if len(x) == 1:  # a band without width is invisible
            axis.errorbar(x, mean, _bars(mean, low, high), **look, elinewidth=1.0, zorder=2.4)
        else:
            axis.plot(x, mean, **look, zorder=2.5 - 0.1 * thick)
    for name, (x, mean, low, high) in panel.beside.items():
        axis.errorbar(x, mean, _bars(mean, low, high), **{**looks[name], **_PUBLISHED}, elinewidth=0.7, zorder=2.0)
    _finish_panel(axis, panel, "y")


def _bars(mean: FloatArray, low: FloatArray, high: FloatArray) -> list[list[float]]:
    """Lengths of error bars, as lists: older versions of matplotlib take an array of one point for a number."""
    return [(mean - low).tolist(), (high - mean).tolist()]


def _draw_points(axis: Any, panel: Panel, looks: Mapping[str, Any]) -> None:
    lines = {name: k for k, name in enumerate(looks)}
    for name, (_, mean, low, high) in panel.series.items():
        look = {**looks[name], "linestyle": "", "markersize": 4.5}
        axis.errorbar(mean, [lines[name]], xerr=_bars(mean, low, high), **look, elinewidth=1.2)
    for name, (_, mean, low, high) in panel.beside.items():
        look = {**looks[name], **_PUBLISHED, "linestyle": ""}
        axis.errorbar(mean, [lines[name] + 0.3], xerr=_bars(mean, low, high), **look, elinewidth=0.7)
    axis.set_yticks(list(lines.values()), [literal(name, 24, 2) for name in lines])
    axis.set_ylim(len(lines) - 0.4, -0.5)
    axis.tick_params(axis="y", length=0)
    _finish_panel(axis, panel, "x")


def _finish_panel(axis: Any, panel: Panel, which: Literal["x", "y"]) -> None:
    """Add dotted lines and a faint grid, and widen the range to the least that the panel shows."""
    for value in panel.reference.values():
        (axis.axhline if which == "y" else axis.axvline)(value, **_DOTTED, zorder=1.4)
    axis.grid(axis=which, color="0.92", linewidth=0.5)
    low, high = getattr(axis, f"get_{which}lim")()
    short = max(0.0, panel.least - (high - low)) / 2
    getattr(axis, f"set_{which}lim")(low - short, high + short)


def _legend(panels: Sequence[Panel], looks: Mapping[str, Any]) -> list[Any]:
    entries = [handle(literal(name, 30), **look) for name, look in looks.items()]
    if any(panel.beside for panel in panels):
        entries += [handle("ours", color=GREY), handle("published", **{"color": GREY, "marker": "o", **_PUBLISHED})]
    values = {name: value for panel in panels for name, value in panel.reference.items()}
    return entries + [handle(literal(f"{name}: {value:.4g}", 30), **_DOTTED) for name, value in values.items()]


@styled
def ladder(
    trace: Trace | Traces | Findings, *, significance_level: float | None = None, width: Width = "column"
) -> Any:
    """Every direction tested, in order: its two statistics against the threshold, and whether it was accepted.

    Statistics are drawn with the sign that favours the direction to the right: those beyond the line pass, and have
    filled markers. The axis is linear around 0 and logarithmic far out. Wide figures have room for the reasons.

    Parameters
    ----------
    trace : `trace_` of a fitted JSE or INLP, or findings.
    significance_level : level of the threshold; by default that of the tests.
    width : "column", "page", or inches.

    Examples
    --------
    >>> from unspur import JSE
    >>> from unspur.datasets import make_toy
    >>> from unspur.report import figures
    >>> toy = make_toy(1000, rho=0.8, random_state=0)
    >>> figures.ladder(JSE(random_state=0).fit(toy.Z, toy.y, concept=toy.concept).trace_)
    <Figure size ...>
    """
    parts = _parts(trace)
    level = significance_level
    if level is None:
        level = next(step.verdict.level for part in parts.values() for step in part)
    if not 0 < level < 0.5:
        raise InputError(f"significance_level is a probability between 0 and 0.5, such as 0.05; got {level}.")
    rungs, two_tests = _rungs(parts), _two_tests(parts)
    threshold, size = -float(ndtri(level)), inches(width)
    figure = new_figure(size, 0.4 + _ROW * len(rungs) * (1.25 if size >= _WIDE else 1.0))
    axis = figure.subplots()
    tests = _TESTS if two_tests else _TESTS[:1]
    for y, rung in enumerate(rungs):
        if rung.step is not None:
            _draw_rung(axis, y, rung.step, level, threshold, tests)
    _finish_ladder(axis, rungs, threshold, size)
    entries = [handle(words, linestyle="", **look) for words, look in tests]
    line = {"color": "0.25", "linestyle": (0, (4, 2)), "linewidth": 0.9}
    entries.append(handle("open: does not pass", marker="o", color=GREY, markerfacecolor="white", linestyle=""))
    entries.append(handle(f"threshold {threshold:.2f} ({100 * level:g} % level)", **line))
    add_legend(figure, entries, size)
    return figure


@dataclass(frozen=True, slots=True)
class _Rung:
    """One line of the ladder: a step, or the name of the part that begins here."""

    label: str
    step: Step | None = None


def _parts(trace: Trace | Traces | Findings) -> Mapping[str, Trace]:
    parts = trace.traces if isinstance(trace, Findings) else parts_of(trace)
    if not any(len(part) for part in parts.values()):
        what = f"{trace.method} tested no directions" if isinstance(trace, Findings) else f"got {type(trace).__name__}"
        raise InputError(f"A ladder needs the tests of a fit: `trace_` of JSE or INLP, or findings of one; {what}.")
    return parts


def _rungs(parts: Mapping[str, Trace]) -> list[_Rung]:
    rungs = []
    for name, trace in parts.items():
        if len(parts) > 1:
            rungs.append(_Rung(name))
        rungs += [_Rung(f"{_ROLES[step.verdict.role]}  {step.place}", step) for step in trace]
    return rungs


def _two_tests(parts: Mapping[str, Trace]) -> bool:
    """Whether the second test, "specific", decides too; methods that know one label (INLP) accept by the first."""
    accepted = [step.verdict for trace in parts.values() for step in trace if step.verdict.proper]
    return all("better than the" in verdict.reason for verdict in accepted)


def _draw_rung(axis: Any, y: int, step: Step, level: float, threshold: float, tests: Any) -> None:
    verdict = step.verdict
    informative, specific = (test.scaled(level, threshold) for test in (verdict.informative, verdict.specific))
    values = (-informative, specific if verdict.role == "main" else -specific)
    for k, (value, (_, look)) in enumerate(zip(values, tests, strict=False)):
        passed = value > threshold
        at = y + (k - (len(tests) - 1) / 2) * 0.34
        face = look["color"] if passed else "white"
        axis.plot([0, value], [at, at], color="0.75", linewidth=0.7, zorder=2)
        axis.plot([value], [at], **look, markersize=4.2, markerfacecolor=face, markeredgewidth=0.9, zorder=3)


def _finish_ladder(axis: Any, rungs: list[_Rung], threshold: float, size: float) -> None:
    axis.set_xscale("asinh", linear_width=_LINEAR)
    low, high = axis.get_xlim()
    low, high = min(low, -_LINEAR), max(high, 2 * threshold)
    ticks = _ticks(low, high)
    axis.set_xticks(ticks, [f"{tick:,.0f}".replace("-", "−") if abs(tick) < 1e5 else f"{tick:.0e}" for tick in ticks])
    axis.minorticks_off()
    axis.set(xlim=(low, high), ylim=(len(rungs) - 0.45, -0.55))
    axis.axvline(0, color="0.85", linewidth=0.6, zorder=0.5)
    axis.axvline(threshold, color="0.25", linestyle=(0, (4, 2)), linewidth=0.9, zorder=1)
    axis.axvspan(threshold, high, color="0.95", linewidth=0, zorder=0)
    axis.set_yticks(range(len(rungs)), [rung.label if rung.step else "" for rung in rungs])
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.set_xlabel("standard errors in its favour")
    for y, (rung, tick) in enumerate(zip(rungs, axis.get_yticklabels(), strict=True)):
        if rung.step is None:
            _write_heading(axis, y, literal(rung.label, int(11 * size), 1))
            continue
        if not rung.step.inner:  # a step of the outer loop
            tick.set(fontweight="bold")
        verdict = rung.step.verdict
        _write_beside(axis, y, 5, "✓ accepted" if verdict.proper else "✗ rejected", "black" if verdict.proper else GREY)
        if size >= _WIDE:
            _write_beside(axis, y, 56, literal(verdict.reason, 46, 2), GREY)


def _ticks(low: float, high: float) -> list[float]:
    """0, and those of 3, 10, 30, 100, … that are not too close to each other."""
    least = (np.arcsinh(high / _LINEAR) - np.arcsinh(low / _LINEAR)) / 9
    ticks = [0.0]
    for sign in (-1.0, 1.0):
        last = 0.0
        for tick in sorted((tick for tick in _TICKS if sign * tick > 0 and low <= tick <= high), key=abs):
            if abs(np.arcsinh(tick / _LINEAR) - np.arcsinh(last / _LINEAR)) >= least:
                ticks.append(tick)
                last = tick
    return sorted(ticks)


def _write_heading(axis: Any, y: int, words: str) -> None:
    """Write a heading on a line of its own, from the left end of the panel."""
    box = {"facecolor": "white", "linewidth": 0, "pad": 1.0}
    at: Any = {"transform": axis.get_yaxis_transform(), "va": "center", "bbox": box, "zorder": 4}
    axis.text(0.0, y, words, **at, fontsize=MIN_FONT_SIZE, fontweight="bold").set_in_layout(False)


def _write_beside(axis: Any, y: int, points: float, words: str, colour: str) -> None:
    """Write words so many points to the right of the panel, level with a rung."""
    at: Any = {"xycoords": axis.get_yaxis_transform(), "xytext": (points, 0), "textcoords": "offset points"}
    axis.annotate(words, (1.0, y), **at, va="center", fontsize=MIN_FONT_SIZE, color=colour)
