"""Charts of the page: key figures, accuracies by group, penalties, strengths, what probes find, the ladder of tests.

A chart is a function of the findings that returns positions and texts; the template draws them.

Positions are percent of the width, so that a chart fits any screen. Statistics of the ladder reach from some −600 to
some +20, and thresholds lie at ±1.6: their scale is ``asinh(t / z)``, linear around zero and logarithmic far out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from scipy.special import ndtri

from unspur.auditing import Estimate
from unspur.criteria import TTest
from unspur.metrics import GroupAccuracy, Leakage, PairedDifference
from unspur.report.colours import GROUP_MARKERS, Marker, group_look, in_the_dark, method_colours
from unspur.report.page import formatting
from unspur.report.page.verdict import points
from unspur.report.results import Findings, MethodResult
from unspur.trace import Step, Trace

#: SVG paths of markers, all of about the same area.
MARKER_PATHS: dict[Marker, str] = {
    "circle": "M4 0A4 4 0 1 1-4 0A4 4 0 1 1 4 0Z",
    "square": "M-3.5-3.5H3.5V3.5H-3.5Z",
    "triangle": "M0-4.8L4.5 3.2H-4.5Z",
    "diamond": "M0-5L5 0L0 5L-5 0Z",
    "cross": "M-4.4-2.6L-2.6-4.4L0-1.8L2.6-4.4L4.4-2.6L1.8 0L4.4 2.6L2.6 4.4L0 1.8L-2.6 4.4L-4.4 2.6L-1.8 0Z",
    "plus": "M-1.5-4.8H1.5V-1.5H4.8V1.5H1.5V4.8H-1.5V1.5H-4.8V-1.5H-1.5Z",
    "down": "M0 4.8L4.5-3.2H-4.5Z",
    "hexagon": "M2.2-3.9L4.5 0L2.2 3.9H-2.2L-4.5 0L-2.2-3.9Z",
}
#: Largest changes, in points, that a scale may show.
_REACHES = (5, 10, 20, 30, 50, 100)
#: Pixels between the whiskers of two methods in one line.
METHOD_STEP = 13.0
#: Larger statistics are drawn at the edge, as an arrow: without any variation t is as large as rounding allows.
MAX_T = 2000.0
#: Columns of the audit that the page shows.
MAX_AUDIT_LINES = 20
#: A ladder of more steps has a second table, of the spurious directions alone.
MAX_SINGLE_TABLE_STEPS = 14
#: Width of a character of a label and of the gap between two labels, in percent of the chart.
_CHARACTER, _GAP = 3.3, 5.0
_CANDIDATES = (10.0, 100.0, 1000.0, 3.0, 30.0, 300.0)

#: Where the curves over the strength lie: in pixels from the top, and in percent of the width.
_CURVE_TOP, _CURVE_BOTTOM, _CURVE_LEFT, _CURVE_RIGHT = 16.0, 196.0, 10.0, 97.0

Side: TypeAlias = Literal["below", "above", "none"]
#: A share and the bounds of its interval.
Measured: TypeAlias = tuple[float, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear scale from `low` to `high`."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Position of a value in percent of the width; values outside are at the edge."""
        share = (value - self.low) / (self.high - self.low)
        return round(100 * min(1.0, max(0.0, share)), 3)


@dataclass(frozen=True, slots=True)
class Whisker:
    """A dot and its interval: positions in percent, height in pixels, number of the method, tooltip."""

    at: float
    low: float
    high: float
    y: float
    series: int
    title: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick and its label."""

    at: float
    label: str


def share_scale(lows: Iterable[float], most: float = 1.0) -> Scale:
    """A scale from the multiple of 10 % below the smallest bound to `most`, at least 30 points wide."""
    known = [low for low in lows if not math.isnan(low)]
    start = math.floor(10 * min(known, default=0.0) + 1e-9) / 10
    return Scale(max(0.0, min(start, most - 0.3)), most)


def share_ticks(scale: Scale) -> list[Tick]:
    """At most five ticks, at whole percents."""
    wide = 100 * (scale.high - scale.low)
    step = next(step for step in (10, 20, 25, 50) if wide / step <= 4)
    first = math.ceil(100 * scale.low / step - 1e-9) * step
    values = range(first, round(100 * scale.high) + 1, step)
    return [Tick(scale.at(value / 100), f"{value}") for value in values]


def group_path(number: int) -> str:
    """SVG path of the marker of a group."""
    return MARKER_PATHS[group_look(number)[1]]


def series_path(number: int) -> str:
    """SVG path of the marker of a method, by its place in the comparison."""
    return MARKER_PATHS[GROUP_MARKERS[number % len(GROUP_MARKERS)]]


def palette(groups: int, methods: Sequence[str]) -> str:
    """Custom properties --g0, --m0, … for light and dark, and classes .g0, .m0, … that set --mark."""
    colours = method_colours(methods)
    light = {f"g{k}": group_look(k)[0] for k in range(groups)}
    light |= {f"m{k}": colours[name] for k, name in enumerate(methods)}
    dark = {name: in_the_dark(colour) for name, colour in light.items()}
    rules = [
        f":root{{{_properties(light)}}}",
        f"@media screen and (prefers-color-scheme:dark){{:root{{{_properties(dark)}}}}}",
        f":root[data-printing]{{{_properties(light)}}}",
    ]
    return "".join([*rules, *(f".{name}{{--mark:var(--{name})}}" for name in light)])


def _properties(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


_SHARES = Scale(0.0, 1.0)
_PERCENT = (Tick(0.0, "0"), Tick(50.0, "50"), Tick(100.0, "100 %"))


@dataclass(frozen=True, slots=True)
class Mark:
    """Positions of a figure and its interval in percent, and whether it is that of the original rows."""

    at: float
    low: float
    high: float
    before: bool


@dataclass(frozen=True, slots=True)
class Tile:
    """A key figure with its unit, a note, its interval as text, and marks of a small chart."""

    label: str
    figure: str
    unit: str
    note: str
    interval: str = ""
    marks: tuple[Mark, ...] = ()
    #: Position of chance, or of no change.
    rule: float | None = None
    #: Percent of all directions that are removed, and that belong to the task.
    shares: tuple[float, float] | None = None
    #: The scale of the chart.
    ticks: tuple[Tick, ...] = ()


def tiles(findings: Findings) -> list[Tile]:
    """Directions, worst group, average over rows, and the concept that a probe finds best, as far as known."""
    return [_directions(findings), *_worst(findings), *_average(findings), *_leak(findings)]


def _directions(findings: Findings) -> Tile:
    task = formatting.named(findings.main)
    kept = (
        f"1 more belongs to {task} and stays"
        if findings.n_main == 1
        else f"{findings.n_main} more belong to {task} and stay"
    )
    removed, of = formatting.count(findings.n_removed), f"of {formatting.count(findings.n_features)}"
    shares = (_SHARES.at(findings.n_removed / findings.n_features), _SHARES.at(findings.n_main / findings.n_features))
    ticks = (Tick(0.0, "0"), Tick(100.0, formatting.count(findings.n_features)))
    return Tile("directions removed", removed, of, kept if findings.n_main else "", shares=shares, ticks=ticks)


def _worst(findings: Findings) -> Iterator[Tile]:
    before, after = findings.before.accuracy, findings.headline.accuracy
    if before is not None and after is not None:
        was = f"was {formatting.percent(before.worst)} ({formatting.bounds(*before.worst_interval())})"
        interval = formatting.bounds(*after.worst_interval())
        marks = (
            _mark(_SHARES, before.worst, *before.worst_interval(), before=True),
            _mark(_SHARES, after.worst, *after.worst_interval()),
        )
        yield Tile("worst group", f"{100 * after.worst:.1f}", "%", was, interval, marks, ticks=_PERCENT)


def _average(findings: Findings) -> Iterator[Tile]:
    """The change on average, on a scale with zero in the middle."""
    change, after = findings.headline.average_change, findings.headline.accuracy
    if change is not None and after is not None:
        widest = 100 * max(abs(change.low), abs(change.high))
        reach = next((reach for reach in _REACHES if widest <= reach), 100)
        mark = _mark(Scale(-reach / 100, reach / 100), change.value, change.low, change.high)
        now = f"now {formatting.percent(after.average)} ({formatting.bounds(*after.average_interval())})"
        interval = formatting.signed_bounds(change.low, change.high)
        figure, unit = formatting.signed(change.value), points(change.value)
        ticks = (Tick(0.0, f"−{reach}"), Tick(50.0, "0"), Tick(100.0, f"+{reach}"))
        yield Tile("average over rows", figure, unit, now, interval, (mark,), 50.0, ticks=ticks)


def _leak(findings: Findings) -> Iterator[Tile]:
    """The concept that a probe finds best after removal."""
    leaks = findings.after.leakage
    if not leaks:
        return
    name, leak = max(leaks.items(), key=lambda item: item[1].accuracy - item[1].chance)
    note, marks = f"chance is {formatting.chance(leak.chance)}", [_mark(_SHARES, leak.accuracy, leak.low, leak.high)]
    if name in (earlier := findings.before.leakage):
        was = earlier[name]
        note = f"was {formatting.percent(was.accuracy, 0)} ({formatting.bounds(was.low, was.high, 0)}); {note}"
        marks.insert(0, _mark(_SHARES, was.accuracy, was.low, was.high, before=True))
    label, figure = f"linear probe for {formatting.named(name)}", f"{100 * leak.accuracy:.0f}"
    interval = formatting.bounds(leak.low, leak.high, 0)
    yield Tile(label, figure, "%", note, interval, tuple(marks), _SHARES.at(leak.chance), ticks=_PERCENT)


def _mark(scale: Scale, value: float, low: float, high: float, *, before: bool = False) -> Mark:
    return Mark(scale.at(value), scale.at(low), scale.at(high), before)


def penalty_table_data(findings: Findings) -> dict[str, Any] | None:
    """Worst group of the test rows by penalty, for heads before and after removal; None if no penalties were tried.

    Lines are (penalty, cells of (figure, whether chosen)).
    """
    heads = [
        (f"{result.name}{kind}", head)
        for result in (findings.before, findings.after)
        for kind, head in ((", unweighted", result), (", group-weighted", result.weighted))
        if head is not None and head.worst_by_penalty
    ]
    if not heads:
        return None
    lines = []
    for penalty in heads[0][1].worst_by_penalty:
        shares = [(head.worst_by_penalty.get(penalty), head.penalty == penalty) for _, head in heads]
        cells = [("–" if share is None else f"{100 * share:.1f}", chosen) for share, chosen in shares]
        lines.append((f"{penalty:g}", cells))
    return {"heads": [name for name, _ in heads], "lines": lines}


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A point of a curve: position in percent of the width, and in pixels from the top with its interval."""

    x: float
    y: float
    low: float
    high: float
    title: str


def strength_chart(findings: Findings) -> dict[str, Any] | None:
    """Worst group, average over groups and the best linear probe for a concept; None without other strengths.

    Curves are drawn in a chart of `height` pixels, on which `y_ticks` lie. Lines of a table have the same figures:
    a strength, whether it is that of the removal, the cells (figure, interval), and a penalty.
    """
    if not findings.strengths:
        return None
    probe = "linear probe" if len(findings.concepts) == 1 else "linear probe, the best of all concepts"
    series: dict[str, list[Measured]] = {"worst group": [], "average over groups": []}
    for at in findings.strengths:
        series["worst group"].append(_of_worst(at.accuracy))
        series["average over groups"].append(_of_groups(at.accuracy))
        if at.leakage:
            leak = max(at.leakage.values(), key=lambda one: one.accuracy - one.chance)
            series.setdefault(probe, []).append((leak.accuracy, (leak.low, leak.high)))
    series = {name: values for name, values in series.items() if len(values) == len(findings.strengths)}
    scale = share_scale(low for values in series.values() for _, (low, _) in values)

    def height(share: float) -> float:
        return round(_CURVE_TOP + (100 - scale.at(share)) / 100 * (_CURVE_BOTTOM - _CURVE_TOP), 2)

    def across(strength: float) -> float:
        return round(_CURVE_LEFT + strength * (_CURVE_RIGHT - _CURVE_LEFT), 3)

    curves = []
    for name, values in series.items():
        points = []
        for at, (share, (low, high)) in zip(findings.strengths, values, strict=True):
            title = f"{name} at strength {at.strength:g}: {formatting.percent(share)} ({formatting.bounds(low, high)})"
            points.append(CurvePoint(across(at.strength), height(share), height(low), height(high), title))
        curves.append((name, points))
    lines = [
        (
            f"{at.strength:g}",
            at.strength == findings.strength,
            [(f"{100 * values[k][0]:.1f}", formatting.bounds(*values[k][1])) for values in series.values()],
            "–" if at.penalty is None else f"{at.penalty:g}",
        )
        for k, at in enumerate(findings.strengths)
    ]
    y_ticks = [
        Tick(height(scale.low + tick.at / 100 * (scale.high - scale.low)), tick.label) for tick in share_ticks(scale)
    ]
    x_ticks = [Tick(across(at.strength), f"{at.strength:g}") for at in findings.strengths]
    height_of_chart = _CURVE_BOTTOM + 22.0
    return {"curves": curves, "x_ticks": x_ticks, "y_ticks": y_ticks, "height": height_of_chart, "lines": lines}


def accuracy_table(findings: Findings) -> dict[str, Any]:
    """Accuracies by group, then averages, with a column for every method that could be evaluated.

    The others keep their name and their problem. Whiskers of all methods are drawn in a chart of `height` pixels.
    """
    known = [(k, result, result.accuracy) for k, result in enumerate(findings.results) if result.accuracy is not None]
    lows = [low for _, _, accuracy in known for low in accuracy.interval()[..., 0].ravel().tolist()]
    scale = share_scale([*lows, *(accuracy.worst_interval()[0] for _, _, accuracy in known)])
    methods = [
        {
            "name": result.name,
            "series": k,
            "problem": result.problem,
            "penalty": _penalty(result),
            "weighted_penalty": _penalty(result.weighted),
        }
        for k, result in enumerate(findings.results)
    ]
    groups, summaries = [], []
    if known:
        accuracy = known[0][2]
        for number, count in enumerate(accuracy.rows.ravel().tolist()):
            measured = partial(_of_group, number=number)
            groups.append(_line(findings.groups[number], number, formatting.count(count), known, scale, measured))
        in_groups, all_rows = formatting.count(int(accuracy.rows.sum())), formatting.count(accuracy.n_rows)
        summaries = [
            _line("worst group", -1, "", known, scale, _of_worst, "worst_change"),
            _line("average over groups", -1, in_groups, known, scale, _of_groups, "group_average_change"),
            _line("average over rows", -1, all_rows, known, scale, _of_rows, "average_change"),
        ]
    return {
        "methods": methods,
        "known": [result.name for _, result, _ in known],
        "groups": groups,
        "summaries": summaries,
        "ticks": share_ticks(scale),
        "height": METHOD_STEP * max(1, len(known)) + 5.0,
    }


def _penalty(result: MethodResult | None) -> str:
    """The penalty that was chosen, and whether it is at an end of the grid."""
    if result is None or result.penalty is None:
        return ""
    return f"{result.penalty:g}" + (f" ({result.grid_edge} tried)" if result.grid_edge else "")


def _of_group(accuracy: GroupAccuracy, number: int) -> Measured:
    low, high = accuracy.interval().reshape(-1, 2)[number].tolist()
    return float(accuracy.accuracy.ravel()[number]), (low, high)


def _of_worst(accuracy: GroupAccuracy) -> Measured:
    return accuracy.worst, accuracy.worst_interval()


def _of_groups(accuracy: GroupAccuracy) -> Measured:
    return accuracy.group_average, accuracy.group_average_interval()


def _of_rows(accuracy: GroupAccuracy) -> Measured:
    return accuracy.average, accuracy.average_interval()


def _line(
    label: str,
    group: int,
    rows: str,
    known: Sequence[tuple[int, MethodResult, GroupAccuracy]],
    scale: Scale,
    measured: Callable[[GroupAccuracy], Measured],
    change: str = "",
) -> dict[str, Any]:
    """One line, of a group (by number) or of a summary (-1): what is `measured` of every method, with its `change`."""
    cells, whiskers = [], []
    for place, (series, result, accuracy) in enumerate(known):
        share, (low, high) = measured(accuracy)
        beside = None if result.weighted is None else result.weighted.accuracy
        weighted = None if beside is None else measured(beside)
        cells.append(_cell(share, (low, high), getattr(result, change) if change else None, weighted))
        if not math.isnan(share):
            title = f"{result.name}: {formatting.percent(share)} ({formatting.bounds(low, high)})"
            at = scale.at(share), scale.at(low), scale.at(high)
            whiskers.append(Whisker(*at, METHOD_STEP * place + 9.0, series, title))
    return {"label": label, "group": group, "rows": rows, "cells": cells, "whiskers": whiskers}


def _cell(
    share: float, interval: tuple[float, float], change: PairedDifference | None, weighted: Measured | None
) -> dict[str, Any]:
    """A figure, its change against the original rows, and the figure of a group-weighted head; "" if not known."""
    names = ("figure", "interval", "change", "change_interval", "is_clear", "weighted", "weighted_interval")
    if math.isnan(share):
        return dict.fromkeys(names, "") | {"figure": "no rows"}
    beside = ("", "") if weighted is None else (f"{100 * weighted[0]:.1f}", formatting.bounds(*weighted[1]))
    signed = ("", "", False)
    if change is not None:
        signed = formatting.signed(change.value), formatting.signed_bounds(change.low, change.high), change.clear
    return dict(zip(names, (f"{100 * share:.1f}", formatting.bounds(*interval), *signed, *beside), strict=True))


def leakage_sections(findings: Findings) -> dict[str, Any]:
    """Linear probes of the certificate, those of other methods, and the small network: sections on one scale."""
    before, after = ("original rows", 0), (f"after {findings.method}", 1)
    certified = [
        (concept_name(findings, name), *when, leak)
        for name, pair in findings.certificate.probe.items()
        for when, leak in zip((before, after), pair, strict=True)
    ]
    others = [
        (concept, f"after {result.name}", series, leak)
        for series, result in enumerate(findings.results[2:], 2)
        for concept, leak in result.leakage.items()
    ]
    nonlinear = [
        (concept, *when, found[concept])
        for concept in findings.nonlinear
        for when, found in ((before, findings.nonlinear_before), (after, findings.nonlinear))
        if concept in found
    ]
    task = [
        (findings.main, *when, leak)
        for when, leak in zip((before, after), findings.certificate.task or (), strict=False)
    ]
    every = [leak for part in (certified, task, others, nonlinear) for *_, leak in part]
    scale = share_scale([min(leak.low, leak.chance - 0.02) for leak in every])
    parts = (
        (
            "A linear probe for the concept",
            "Lower is better: at chance, a linear classifier learns nothing.",
            certified,
        ),
        ("A small network for the concept", _network(findings), nonlinear),
        ("A linear probe for the concept after other methods", "The same probe, for comparison.", others),
        ("A linear probe for the task", "Higher is better: this is what should stay.", task),
    )
    sections = [
        {"title": title, "says": says, "probes": [_probe(*one, scale) for one in lines]}
        for title, says, lines in parts
        if lines
    ]
    return {"parts": sections, "ticks": share_ticks(scale)}


def concept_name(findings: Findings, name: str) -> str:
    """The name of the concept, where a certificate calls it "concept"."""
    if len(findings.concepts) == 1 and name not in findings.concepts and name.startswith("concept"):
        return findings.concepts[0] + name.removeprefix("concept")
    return name


def _network(findings: Findings) -> str:
    found = [name for name, leak in findings.nonlinear.items() if leak.low > leak.chance]
    able = "One hidden layer of 64 units, which can find what no linear classifier finds."
    if not found:
        return f"{able} Here it does not."
    linear = [name for name, leak in findings.after.leakage.items() if leak.low > leak.chance]
    if set(found) <= set(linear):
        return f"{able} It finds the concept, as the linear probe does."
    return "One hidden layer of 64 units: it finds what the linear probe does not, and removal does not hide that."


def _probe(of: str, rows: str, series: int, leak: Leakage, scale: Scale) -> dict[str, Any]:
    """One probe: the label it looks for, in which rows, its figures as text, and where to draw them."""
    figure, interval = f"{100 * leak.accuracy:.1f}", formatting.bounds(leak.low, leak.high)
    at = scale.at(leak.accuracy), scale.at(leak.low), scale.at(leak.high)
    return {
        "of": formatting.clipped(of, 80),
        "rows": rows,
        "series": series,
        "figure": figure,
        "interval": interval,
        "chance": f"{100 * leak.chance:.0f}",
        "p": formatting.p_value(leak.p),
        "whisker": Whisker(*at, 9.0, series, f"{rows}: {figure} % ({interval})"),
        "rule": scale.at(leak.chance),
    }


@dataclass(frozen=True, slots=True)
class TScale:
    """From t, scaled so that its critical value is z, to percent of the width."""

    z: float
    low: float
    high: float

    def at(self, t: float) -> float:
        """Position of t; values outside are at the edge, NaN is at zero."""
        t = 0.0 if math.isnan(t) else t
        start, end, here = (math.asinh(value / self.z) for value in (self.low, self.high, t))
        return round(100 * min(1.0, max(0.0, (here - start) / (end - start))), 3)


@dataclass(frozen=True, slots=True)
class Statistic:
    """One statistic as text, its position, the region that accepts (from, to), and whether it lies in it."""

    t: str
    p: str
    at: float
    region: tuple[float, float] | None
    threshold: float | None
    passed: bool
    beyond: bool


@dataclass(frozen=True, slots=True)
class Rung:
    """One direction that was tested."""

    place: str
    role: str
    outer: bool
    informative: Statistic
    specific: Statistic
    accepted: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Ladder:
    """All directions of one trace."""

    name: str
    rungs: tuple[Rung, ...]
    ticks: tuple[Tick, ...]
    zero: float
    #: Sentences: what was accepted, and why the search ended.
    passed: str
    stopped: str
    delta: str
    penalty: str
    short: bool
    #: Whether the second test, "specific", decides as well; INLP knows one label only.
    two_tests: bool
    #: What round 0 is for, if there is one.
    round_zero_note: str = ""

    @property
    def outer(self) -> tuple[Rung, ...]:
        """The spurious directions alone."""
        return tuple(rung for rung in self.rungs if rung.outer)


def ladders(findings: Findings) -> list[Ladder]:
    """One for each trace, all on the same scale."""
    z = -float(ndtri(findings.significance_level))
    steps = [step for trace in findings.traces.values() for step in trace]
    tests = [(test, step.verdict.level) for step in steps for test in (step.verdict.informative, step.verdict.specific)]
    scale = t_scale(z, [test.scaled(level, z) for test, level in tests])
    return [_ladder(name, trace, scale, findings.method) for name, trace in findings.traces.items()]


def t_scale(z: float, values: Iterable[float]) -> TScale:
    """A scale for all values (up to `MAX_T`) that shows both thresholds with some room."""
    inside = [max(-MAX_T, min(MAX_T, value)) for value in values if not math.isnan(value)]
    return TScale(z, 1.35 * min([-2.5 * z, *inside]), 1.35 * max([2.5 * z, *inside]))


def _ladder(name: str, trace: Trace, scale: TScale, method: str) -> Ladder:
    # The second test was part of the decision if every accepted direction passed it.
    two = method != "INLP" and all(_passes(step, scale.z) for step in trace if step.verdict.proper)
    rungs = tuple(_rung(step, scale, two) for step in trace)
    return Ladder(
        name=formatting.clipped(name, 80),
        rungs=rungs,
        ticks=tuple(_t_ticks(scale)),
        zero=scale.at(0.0),
        passed=f"{trace.accepted_counts} were accepted" if len(trace) else "no direction was tried",
        stopped=trace.stopped,
        delta=f"{trace.delta:.3g}".replace("-", "−"),
        penalty=f"{trace.penalty:g}",
        short=len(rungs) <= MAX_SINGLE_TABLE_STEPS
        or all(rung.outer for rung in rungs)
        or not any(rung.outer for rung in rungs),
        two_tests=two,
        round_zero_note=trace.round_zero_note,
    )


def _passes(step: Step, z: float) -> bool:
    t = step.verdict.specific.scaled(step.verdict.level, z)
    return t > z if step.verdict.role == "main" else t < -z


def _rung(step: Step, scale: TScale, two: bool) -> Rung:
    verdict = step.verdict
    side: Side = "none" if not two else "above" if verdict.role == "main" else "below"
    return Rung(
        place=step.place,
        role="main task" if verdict.role == "main" else "spurious",
        outer=step.inner == 0,
        informative=_test(verdict.informative, verdict.level, scale, "below"),
        specific=_test(verdict.specific, verdict.level, scale, side),
        accepted=verdict.proper,
        reason=verdict.reason,
    )


def _test(test: TTest, level: float, scale: TScale, side: Side) -> Statistic:
    t = test.scaled(level, scale.z)  # for its position; the text has t as it was computed
    threshold = None if side == "none" else scale.at(scale.z if side == "above" else -scale.z)
    region = None
    if threshold is not None:
        region = (threshold, 100.0) if side == "above" else (0.0, threshold)
    passed = {"below": t < -scale.z, "above": t > scale.z, "none": False}[side]
    text = formatting.statistic(test.t), formatting.p_value(test.p)
    return Statistic(*text, scale.at(t), region, threshold, passed, abs(t) > MAX_T)


def _t_ticks(scale: TScale) -> list[Tick]:
    """Ticks at the thresholds, and at zero and round numbers where there is room."""
    chosen: list[Tick] = []
    values: Sequence[float] = (-scale.z, scale.z, 0.0, *(sign * c for c in _CANDIDATES for sign in (-1.0, 1.0)))
    for value in values:
        tick = Tick(scale.at(value), formatting.number(value, 0 if value == int(value) else 2))
        inside = scale.low < value < scale.high and 3.0 <= tick.at <= 97.0
        gap = _GAP if abs(value) != scale.z else 0.0  # both thresholds, if possible at all
        touch = {other: _CHARACTER * (len(tick.label) + len(other.label)) / 2 for other in chosen}
        if inside and all(abs(tick.at - other.at) >= distance + gap for other, distance in touch.items()):
            chosen.append(tick)
    return sorted(chosen, key=lambda tick: tick.at)


def audit_lines(findings: Findings) -> list[dict[str, Any]]:
    """The first columns of the audit as text: numbers with their intervals, and the verdict."""
    if findings.audit is None:
        return []

    def told(estimate: Estimate, unit: float, digits: int) -> tuple[str, str]:
        value, low, high = (
            formatting.number(unit * part, digits) for part in (estimate.value, estimate.low, estimate.high)
        )
        return value, f"{low} – {high}"

    return [
        {
            "name": formatting.clipped(column.name, 80),
            "flagged": column.flagged,
            "removed": column.name in findings.concepts,
            "association": told(column.association, 1.0, 2),
            "visible": ("–", "") if column.visibility is None else told(column.visibility, 100.0, 0),
            "gap": told(column.gap, 100.0, 1),
            "verdict": "; ".join((column.verdict, *column.notes)),
        }
        for column in findings.audit.columns[:MAX_AUDIT_LINES]
    ]
