"""Charts of results: accuracy of every group, what probes find, the ladder of tests, and curves of methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from scipy.special import ndtri

from unspur._typing import Array, FloatArray
from unspur.exceptions import InputError
from unspur.metrics import GroupAccuracy, Leakage
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

#: Bars: inches of a bar with its share of the gaps, and of a gap between groups.
_BAR, _GAP = 0.125, 0.085
_AVERAGES = ("average over groups", "average over rows")
#: (x, mean) or (x, mean, low, high), each of shape (k,).
Series: TypeAlias = Sequence[Array]
#: Inches a panel of curves needs from left to right, and its height.
_MIN_PANEL_WIDTH, _HEIGHT = 2.1, 1.65
_DOTTED: dict[str, Any] = {"color": "0.25", "linestyle": (0, (1, 1.6)), "linewidth": 1.0}
_DASHED: dict[str, Any] = {"color": "0.25", "linestyle": (0, (4, 2)), "linewidth": 0.9}
#: Curves with more points have no markers.
_MAX_MARKED_POINTS = 25
#: Inches of a rung of the ladder, and of the figure from which on there is room for reasons beside the rungs.
_RUNG, _WIDE = 0.19, 5.0
#: The scale of the ladder is linear up to about this t, and logarithmic beyond.
_LINEAR = 2.0
_TICKS = (-1000, -300, -100, -30, -10, -3, 0, 3, 10, 30, 100, 300, 1000, 10**4, 10**5, 10**6, 10**9, 10**12, 10**15)
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
    if isinstance(results, Findings):
        groups = results.groups if groups is None else groups
        results = {result.name: result.accuracy for result in results.results if result.accuracy is not None}
    names = _group_names(results, groups) + list(_AVERAGES if averages else ())
    bars = {name: measured(result, averages) for name, result in results.items()}
    size = inches(width)
    figure = new_figure(size, len(names) * (_BAR * len(bars) + _GAP) + 0.4)
    axis = figure.subplots()
    draw_bars(axis, bars, names, wrap=int(6 * size))
    axis.set_xlabel("accuracy, % (95 % interval)")
    add_legend(figure, entries(bars), size)
    return figure


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars of one method, in %: shares (k,), their intervals (k, 2), and the number of the one in bold."""

    share: FloatArray
    interval: FloatArray
    worst: int = -1


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
        axis.barh(at, bars.share, 0.9 * pitch, xerr=reach, **area, error_kw={"elinewidth": 0.8, "ecolor": "black"})
        for i, (y, share, high) in enumerate(zip(at, bars.share, bars.interval[:, 1], strict=True)):
            look: dict[str, Any] = {"fontsize": size, "va": "center_baseline"}
            if np.isnan(share):
                axis.text(1.5, y, "no rows", color=GREY, **look)
                continue
            weight = "bold" if i == bars.worst else "normal"
            axis.text(high + 1.5, y, f"{share:.1f}", fontweight=weight, **look)
    axis.set_yticks(range(len(names)), [literal(name, wrap, 2) for name in names])
    axis.tick_params(axis="y", length=0)
    axis.set(xlim=(0, 112), xticks=range(0, 101, 20), ylim=(len(names) - 0.5, -0.5))


def entries(methods: Iterable[str]) -> list[Any]:
    """Entries of a legend, in the order of the bars."""
    from matplotlib.patches import Patch

    return [Patch(**area, label=literal(name, 30)) for name, area in method_areas(methods).items()]


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


@styled
def probes(findings: Findings, *, width: Width = "column") -> Any:
    """How well fresh probes find the concept and the task before and after each removal, with 95 % intervals.

    Dotted lines mark chance.

    Examples
    --------
    >>> from unspur import JSE
    >>> from unspur.datasets import make_toy
    >>> from unspur.report import figures, measure
    >>> train, test = make_toy(1000, rho=0.8, random_state=0), make_toy(1000, rho=0.0, random_state=1)
    >>> jse = JSE(random_state=0).fit(train.Z, train.y, concept=train.concept)
    >>> figures.probes(measure(jse, (train.Z, train.y, train.concept), (test.Z, test.y, test.concept)))
    <Figure size ...>
    """
    lines = probe_lines(findings)
    looks = method_looks(method for found in lines.values() for method in found)
    size, pitch = inches(width), 1 / (len(looks) + _GAP / _BAR)
    figure = new_figure(size, len(lines) * (_BAR * len(looks) + _GAP) + 0.4)
    axis = figure.subplots()
    for y, found in enumerate(lines.values()):
        for k, (name, look) in enumerate(looks.items()):
            if (leak := found.get(name)) is not None:
                at, share = y + (k - (len(looks) - 1) / 2) * pitch, 100 * leak.accuracy
                reach = [[share - 100 * leak.low], [100 * leak.high - share]]
                axis.errorbar([share], [at], xerr=reach, **{**look, "linestyle": ""}, elinewidth=1.2)
        axis.vlines(100 * next(iter(found.values())).chance, y - 0.45, y + 0.45, **_DOTTED, zorder=1)
    axis.set_yticks(range(len(lines)), [literal(name, int(6 * size), 2) for name in lines])
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x", color="0.92", linewidth=0.5)
    axis.set_ylim(len(lines) - 0.5, -0.5)
    axis.set_xlim(right=100.5)
    axis.set_xlabel("balanced accuracy, % (95 % interval)")
    marks = [handle(literal(name, 30), **{**look, "linestyle": ""}) for name, look in looks.items()]
    add_legend(figure, [*marks, handle("chance", **_DOTTED)], size)
    return figure


def probe_lines(findings: Findings) -> dict[str, dict[str, Leakage]]:
    """What was probed -> method -> result: linear probes and the small network for concepts, then those of the task."""
    before, after = findings.before.name, findings.after.name
    lines: dict[str, dict[str, Leakage]] = {}
    for name, pair in findings.certificate.probe.items():
        name = concept_name(findings, name)
        lines[name] = {before: pair[0], after: pair[1]}
        lines[name] |= {one.name: one.leakage[name] for one in findings.results[2:] if name in one.leakage}
    for name, leak in findings.nonlinear.items():
        earlier = {before: findings.nonlinear_before[name]} if name in findings.nonlinear_before else {}
        lines[f"{name}, small network"] = {**earlier, after: leak}
    if findings.certificate.task is not None:
        lines[f"task: {findings.main}"] = dict(zip((before, after), findings.certificate.task, strict=True))
    return lines


def concept_name(findings: Findings, name: str) -> str:
    """The name of the concept, where a certificate calls it "concept"."""
    if len(findings.concepts) == 1 and name not in findings.concepts and name.startswith("concept"):
        return findings.concepts[0] + name.removeprefix("concept")
    return name


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
    parts = trace.traces if isinstance(trace, Findings) else parts_of(trace)
    steps = [step for part in parts.values() for step in part]
    if not steps:
        what = f"{trace.method} tested no directions" if isinstance(trace, Findings) else f"got {type(trace).__name__}"
        raise InputError(f"A ladder needs the tests of a fit: `trace_` of JSE or INLP, or findings of one; {what}.")
    level = steps[0].verdict.level if significance_level is None else significance_level
    if not 0 < level < 0.5:
        raise InputError(f"significance_level is a probability between 0 and 0.5, such as 0.05; got {level}.")
    threshold, size = -float(ndtri(level)), inches(width)
    rungs: list[tuple[str, Step | None]] = []
    for name, part in parts.items():
        rungs += [(name, None)] if len(parts) > 1 else []
        rungs += [(f"{'task' if step.verdict.role == 'main' else 'concept'}  {step.place}", step) for step in part]
    # Methods that know one label (INLP) accept by the first test.
    accepted = [step.verdict.reason for step in steps if step.verdict.proper]
    tests = _TESTS if all("better than the" in reason for reason in accepted) else _TESTS[:1]
    figure = new_figure(size, 0.4 + _RUNG * len(rungs) * (1.25 if size >= _WIDE else 1.0))
    axis = figure.subplots()
    _draw_statistics(axis, [step for _, step in rungs], level, threshold, tests)
    axis.set_xscale("asinh", linear_width=_LINEAR)
    low, high = axis.get_xlim()
    low, high = min(low, -_LINEAR), max(high, 2 * threshold)
    ticks = [tick for tick in _TICKS if low <= tick <= high]
    axis.set_xticks(ticks, [f"{tick:,}".replace("-", "−") if tick < 1e5 else f"{tick:.0e}" for tick in ticks])
    axis.minorticks_off()
    axis.set(xlim=(low, high), ylim=(len(rungs) - 0.45, -0.55), xlabel="standard errors in its favour")
    axis.axvline(0, color="0.85", linewidth=0.6, zorder=0.5)
    axis.axvline(threshold, **_DASHED, zorder=1)
    axis.axvspan(threshold, high, color="0.95", linewidth=0, zorder=0)
    axis.set_yticks(range(len(rungs)), [label if step else "" for label, step in rungs])
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    for y, ((label, step), tick) in enumerate(zip(rungs, axis.get_yticklabels(), strict=True)):
        _write_decision(axis, y, label, step, tick, size)
    marks = [handle(words, linestyle="", **look) for words, look in tests]
    marks.append(handle("open: does not pass", marker="o", color=GREY, markerfacecolor="white", linestyle=""))
    add_legend(figure, [*marks, handle(f"threshold {threshold:.2f} ({100 * level:g} % level)", **_DASHED)], size)
    return figure


def _draw_statistics(axis: Any, rungs: Sequence[Step | None], level: float, threshold: float, tests: Any) -> None:
    """The statistics of all rungs with the sign that favours each direction, filled where they pass."""
    for k, (_, look) in enumerate(tests):
        at, values = [], []
        for y, step in enumerate(rungs):
            if step is not None:
                verdict = step.verdict
                test, sign = (
                    (verdict.informative, -1) if k == 0 else (verdict.specific, 1 if verdict.role == "main" else -1)
                )
                at.append(y + (k - (len(tests) - 1) / 2) * 0.34)
                values.append(sign * test.scaled(level, threshold))
        places, found = np.array(at), np.array(values)
        axis.hlines(places, 0, found, color="0.75", linewidth=0.7, zorder=2)
        for passed, face in ((found > threshold, look["color"]), (~(found > threshold), "white")):
            shape = {**look, "linestyle": "", "markersize": 4.2, "markerfacecolor": face, "markeredgewidth": 0.9}
            axis.plot(found[passed], places[passed], **shape, zorder=3)


def _write_decision(axis: Any, y: int, label: str, step: Step | None, tick: Any, size: float) -> None:
    """Write the decision beside a rung, and its reason where there is room; or a heading on a line of its own."""
    if step is None:
        box = {"facecolor": "white", "linewidth": 0, "pad": 1.0}
        look: Any = {"transform": axis.get_yaxis_transform(), "va": "center", "bbox": box, "zorder": 4}
        words = literal(label, int(11 * size), 1)
        axis.text(0.0, y, words, **look, fontsize=MIN_FONT_SIZE, fontweight="bold").set_in_layout(False)
        return
    if not step.inner:  # a step of the outer loop
        tick.set(fontweight="bold")
    proper = step.verdict.proper
    beside = [(5, "✓ accepted" if proper else "✗ rejected", "black" if proper else GREY)]
    if size >= _WIDE:
        beside.append((56, literal(step.verdict.reason, 46, 2), GREY))
    at: Any = {"xycoords": axis.get_yaxis_transform(), "textcoords": "offset points", "va": "center"}
    for points, words, colour in beside:
        axis.annotate(words, (1.0, y), xytext=(points, 0), **at, fontsize=MIN_FONT_SIZE, color=colour)


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
    panels = cast(Mapping[str, Mapping[str, Series]], series if nested else {"": series})
    size, looks = inches(width), method_looks(name for panel in panels.values() for name in panel)
    columns = min(len(panels), max(1, int(size / _MIN_PANEL_WIDTH)))
    rows = -(-len(panels) // columns)
    below, beside = literal(x_name, int(15 * size / columns)), literal(y_name, 26, 2)
    figure = new_figure(size, rows * (_HEIGHT + LINE) + 0.2 + LINE * lines_of(below))
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True)
    for axis, (title, panel) in zip(grid.flat, panels.items(), strict=False):
        axis.set_title(literal(title, 40, 2))
        # Later lines are thinner, so that equal ones are all visible.
        for thick, (name, one) in zip(np.linspace(1.0, 0.0, len(panel)), panel.items(), strict=True):
            x, mean, low, high = _checked(name, one)
            marker = looks[name]["marker"] if len(x) <= _MAX_MARKED_POINTS else ""
            edge = {"markeredgecolor": "white", "markeredgewidth": 0.3, "markersize": 3.4 + 1.2 * thick}
            look = {**looks[name], "marker": marker, "linewidth": 1.1 + thick, **edge}
            axis.fill_between(x, low, high, color=look["color"], alpha=0.16, linewidth=0, zorder=1.5)
            reach = [(mean - low).tolist(), (high - mean).tolist()] if len(x) == 1 else None
            axis.errorbar(x, mean, reach, **look, elinewidth=1.0, zorder=2.5 - 0.1 * thick)
        for value in (reference or {}).values():
            axis.axhline(value, **_DOTTED, zorder=1.4)
        axis.grid(axis="y", color="0.92", linewidth=0.5)
    for axis in grid.flat[len(panels) :]:
        axis.set_axis_off()
    for column in range(columns):
        lowest = grid[(len(panels) - 1 - column) // columns, column]
        lowest.set_xlabel(below)
        lowest.tick_params(labelbottom=True)
    for row in grid:
        row[0].set_ylabel(beside)
    marks = [handle(literal(name, 30), **look) for name, look in looks.items()]
    marks += [handle(literal(f"{name}: {value:.4g}", 30), **_DOTTED) for name, value in (reference or {}).items()]
    add_legend(figure, marks, size)
    return figure


def _checked(name: str, series: Series) -> FloatArray:
    """A series as an array (4, k): x ascending, mean, low, high."""
    if len(series) not in (2, 4):
        raise InputError(f"{name!r} has {len(series)} columns; a curve is (x, mean) or (x, mean, low, high).")
    try:
        rows = np.array([np.asarray(column, dtype=np.float64).ravel() for column in series])
    except ValueError as error:
        raise InputError(f"{name!r}: x, mean, low and high must be numbers, equally many.") from error
    rows = rows[:, np.argsort(rows[0], kind="stable")]
    x, mean, low, high = rows if len(rows) == 4 else (*rows, rows[1], rows[1])
    if np.any((low > mean) | (mean > high)):
        at = x[np.argmax((low > mean) | (mean > high))]
        raise InputError(f"{name!r}: at x = {at:g} the mean is not between low and high. Pass bounds, not half widths.")
    return np.array([x, mean, low, high])
