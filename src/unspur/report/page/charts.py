"""Figures with small charts: key figures, accuracy of every group under every method, and what a probe finds.

Positions are percent of the width, so that a chart fits any screen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from unspur.metrics import GroupAccuracy, Leakage
from unspur.report.colours import GROUP_MARKERS, Marker, group_look, in_the_dark, method_colours
from unspur.report.page import formatting
from unspur.report.page.verdict import leaks_of, points
from unspur.report.results import Change, Findings, MethodResult

#: All of about the same area.
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
#: Reaches of a change in points that a scale may have.
_REACHES = (5, 10, 20, 30, 50, 100)
#: Pixels between the whiskers of two methods in one line.
METHOD_STEP = 13.0


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear scale from `low` to `high`."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Where a value lies, in percent of the width; what lies outside is at the edge."""
        share = (value - self.low) / (self.high - self.low)
        return round(100 * min(1.0, max(0.0, share)), 3)


@dataclass(frozen=True, slots=True)
class Whisker:
    """A dot and its interval: positions in percent, height in pixels, number of the series, what to say of it."""

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
    """From the ten percent below the smallest bound up to `most`; at least thirty points wide."""
    known = [low for low in lows if not math.isnan(low)]
    start = math.floor(10 * min(known, default=0.0) + 1e-9) / 10
    return Scale(max(0.0, min(start, most - 0.3)), most)


def share_ticks(scale: Scale) -> list[Tick]:
    """Whole percents, no more than five: beside many methods there is little room."""
    wide = 100 * (scale.high - scale.low)
    step = next(step for step in (10, 20, 25, 50) if wide / step <= 4)
    first = math.ceil(100 * scale.low / step - 1e-9) * step
    values = range(first, round(100 * scale.high) + 1, step)
    return [Tick(scale.at(value / 100), f"{value}") for value in values]


def group_path(number: int) -> str:
    """Shape of a group."""
    return MARKER_PATHS[group_look(number)[1]]


def series_path(number: int) -> str:
    """Shape of a method, by its place in the comparison."""
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
    """A figure and its interval in percent of the width, and whether it is that of the rows as they are."""

    at: float
    low: float
    high: float
    before: bool


@dataclass(frozen=True, slots=True)
class Tile:
    """A key figure: what it is, the figure, what it was, its interval in words, and marks to draw it with."""

    label: str
    figure: str
    unit: str
    note: str
    interval: str = ""
    marks: tuple[Mark, ...] = ()
    #: Where chance, or no change, lies.
    rule: float | None = None
    #: Percent of all directions that are removed, and that are kept for the task.
    shares: tuple[float, float] | None = None
    #: The scale of the chart.
    ticks: tuple[Tick, ...] = ()


def tiles(findings: Findings) -> list[Tile]:
    """Directions, worst group, average over rows, and what is found best of the concepts; as far as they are known."""
    return [_directions(findings), *_worst(findings), *_average(findings), *_leak(findings)]


def _directions(findings: Findings) -> Tile:
    task = formatting.named(findings.main)
    kept = (
        f"1 more belongs to {task} and stays"
        if findings.kept == 1
        else f"{findings.kept} more belong to {task} and stay"
    )
    removed, of = formatting.count(findings.removed), f"of {formatting.count(findings.ambient)}"
    shares = (_SHARES.at(findings.removed / findings.ambient), _SHARES.at(findings.kept / findings.ambient))
    ticks = (Tick(0.0, "0"), Tick(100.0, formatting.count(findings.ambient)))
    return Tile("directions removed", removed, of, kept if findings.kept else "", shares=shares, ticks=ticks)


def _worst(findings: Findings) -> Iterator[Tile]:
    before, after = findings.before.accuracy, findings.after.accuracy
    if before is not None and after is not None:
        was = f"was {formatting.percent(before.worst)} ({formatting.bounds(*before.worst_interval())})"
        interval = formatting.bounds(*after.worst_interval())
        marks = (_of_worst(before, before=True), _of_worst(after, before=False))
        yield Tile("worst group", f"{100 * after.worst:.1f}", "%", was, interval, marks, ticks=_PERCENT)


def _average(findings: Findings) -> Iterator[Tile]:
    """The change, around none, which is in the middle."""
    change, after = findings.after.average_change, findings.after.accuracy
    if change is not None and after is not None:
        widest = 100 * max(abs(change.low), abs(change.high))
        reach = next((reach for reach in _REACHES if widest <= reach), 100)
        mark = _mark(Scale(-reach / 100, reach / 100), change.value, change.low, change.high, before=False)
        now = f"now {formatting.percent(after.average)} ({formatting.bounds(*after.average_interval())})"
        interval = formatting.signed_bounds(change.low, change.high)
        figure, unit = formatting.signed(change.value), points(change.value)
        ticks = (Tick(0.0, f"−{reach}"), Tick(50.0, "0"), Tick(100.0, f"+{reach}"))
        yield Tile("average over rows", figure, unit, now, interval, (mark,), 50.0, ticks=ticks)


def _leak(findings: Findings) -> Iterator[Tile]:
    """The concept that is found best after removal."""
    leaks = leaks_of(findings.after)
    if not leaks:
        return
    name, leak = max(leaks.items(), key=lambda item: item[1].accuracy - item[1].chance)
    note, marks = f"chance is {formatting.chance(leak.chance)}", [_of_leak(leak, before=False)]
    if name in (earlier := leaks_of(findings.before)):
        was = earlier[name]
        note = f"was {formatting.percent(was.accuracy, 0)} ({formatting.bounds(was.low, was.high, 0)}); {note}"
        marks.insert(0, _of_leak(earlier[name], before=True))
    label, figure = f"linear probe for {formatting.named(name)}", f"{100 * leak.accuracy:.0f}"
    interval = formatting.bounds(leak.low, leak.high, 0)
    yield Tile(label, figure, "%", note, interval, tuple(marks), _SHARES.at(leak.chance), ticks=_PERCENT)


def _of_worst(accuracy: GroupAccuracy, *, before: bool) -> Mark:
    return _mark(_SHARES, accuracy.worst, *accuracy.worst_interval(), before=before)


def _of_leak(leak: Leakage, *, before: bool) -> Mark:
    return _mark(_SHARES, leak.accuracy, leak.low, leak.high, before=before)


def _mark(scale: Scale, value: float, low: float, high: float, *, before: bool) -> Mark:
    return Mark(scale.at(value), scale.at(low), scale.at(high), before)


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure, its change against the rows as they are, and their intervals, in words; empty where there is none."""

    figure: str
    interval: str = ""
    change: str = ""
    change_interval: str = ""
    #: Whether the interval of the change leaves zero out.
    clear: bool = False
    #: The figure under a group-weighted layer.
    weighted: str = ""
    weighted_interval: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: of a group (by number) or of a summary (-1)."""

    label: str
    group: int
    rows: str
    cells: tuple[Cell, ...]
    whiskers: tuple[Whisker, ...]


@dataclass(frozen=True, slots=True)
class Method:
    """A column: name, number among the colours, directions removed, what went wrong, if so, and penalties."""

    name: str
    series: int
    removed: str
    problem: str
    penalty: str = ""
    weighted_penalty: str = ""


@dataclass(frozen=True, slots=True)
class AccuracyTable:
    """All of it; `known` are the methods that have figures, `height` is that of a chart in pixels."""

    methods: tuple[Method, ...]
    known: tuple[str, ...]
    groups: tuple[Line, ...]
    summaries: tuple[Line, ...]
    ticks: tuple[Tick, ...]
    height: float


@dataclass(frozen=True, slots=True)
class PenaltyTable:
    """Worst group of the test rows at every penalty: layers, and lines of (penalty, cells) with which was chosen."""

    layers: tuple[str, ...]
    lines: tuple[tuple[str, tuple[tuple[str, bool], ...]], ...]


def penalty_table(findings: Findings) -> PenaltyTable | None:
    """Of the rows as they are and of the removal, plain and group-weighted; None where nothing is known."""
    layers = [
        (f"{judged.name}{kind}", layer)
        for judged in (findings.before, findings.after)
        for kind, layer in ((", plain", judged), (", group-weighted", judged.weighted))
        if layer is not None and layer.worst_at
    ]
    if not layers:
        return None
    lines = []
    for penalty in layers[0][1].worst_at:
        shares = [(layer.worst_at.get(penalty), layer.penalty == penalty) for _, layer in layers]
        cells = tuple(("–" if share is None else f"{100 * share:.1f}", chosen) for share, chosen in shares)
        lines.append((f"{penalty:g}", cells))
    return PenaltyTable(tuple(name for name, _ in layers), tuple(lines))


def accuracy_table(findings: Findings) -> AccuracyTable:
    """Columns are the methods that could be judged; the others keep their name and their problem."""
    known = [(k, judged) for k, judged in enumerate(findings.judged) if judged.accuracy is not None]
    lows = [low for _, judged in known for low in _accuracy(judged).interval()[..., 0].ravel().tolist()]
    scale = share_scale([*lows, *(_accuracy(judged).worst_interval()[0] for _, judged in known)])
    methods = tuple(
        Method(
            judged.name,
            k,
            formatting.plural(judged.removed, "direction"),
            judged.problem,
            _penalty(judged),
            _penalty(judged.weighted),
        )
        for k, judged in enumerate(findings.judged)
    )
    return AccuracyTable(
        methods=methods,
        known=tuple(judged.name for _, judged in known),
        groups=tuple(_group(findings, number, known, scale) for number in range(len(findings.groups)) if known),
        summaries=tuple(_summaries(known, scale)) if known else (),
        ticks=tuple(share_ticks(scale)),
        height=METHOD_STEP * max(1, len(known)) + 5.0,
    )


def _penalty(judged: MethodResult | None) -> str:
    """The penalty that was chosen, and whether it is the last of those tried."""
    if judged is None or judged.penalty is None:
        return ""
    return f"{judged.penalty:g}" + (f" ({judged.edge} tried)" if judged.edge else "")


def _group(findings: Findings, number: int, known: Sequence[tuple[int, MethodResult]], scale: Scale) -> Line:
    shares, intervals = [], []
    for _, judged in known:
        accuracy = _accuracy(judged)
        shares.append(float(accuracy.accuracy.ravel()[number]))
        low, high = accuracy.interval().reshape(-1, 2)[number].tolist()
        intervals.append((low, high))
    beside = [_weighted(judged, number) for _, judged in known]
    cells = tuple(_cell(*one) for one in zip(shares, intervals, [None] * len(shares), beside, strict=True))
    rows = formatting.count(int(_accuracy(known[0][1]).rows.ravel()[number]))
    return Line(findings.groups[number], number, rows, cells, _whiskers(known, shares, intervals, scale))


def _summaries(known: Sequence[tuple[int, MethodResult]], scale: Scale) -> list[Line]:
    accuracies = [_accuracy(judged) for _, judged in known]
    rows = {
        "worst group": "",
        "average over groups": formatting.count(int(accuracies[0].rows.sum())),
        "average over rows": formatting.count(accuracies[0].n_rows),
    }
    weighted = [None if judged.weighted is None else judged.weighted.accuracy for _, judged in known]
    parts = (
        (
            "worst group",
            [a.worst for a in accuracies],
            [a.worst_interval() for a in accuracies],
            [judged.worst_change for _, judged in known],
            [None if a is None else (a.worst, a.worst_interval()) for a in weighted],
        ),
        (
            "average over groups",
            [a.group_average for a in accuracies],
            [a.group_average_interval() for a in accuracies],
            [judged.group_average_change for _, judged in known],
            [None if a is None else (a.group_average, a.group_average_interval()) for a in weighted],
        ),
        (
            "average over rows",
            [a.average for a in accuracies],
            [a.average_interval() for a in accuracies],
            [judged.average_change for _, judged in known],
            [None if a is None else (a.average, a.average_interval()) for a in weighted],
        ),
    )
    return [
        Line(
            label,
            -1,
            rows[label],
            tuple(map(_cell, shares, intervals, changes, beside)),
            _whiskers(known, shares, intervals, scale),
        )
        for label, shares, intervals, changes, beside in parts
    ]


def _weighted(judged: MethodResult, number: int) -> tuple[float, tuple[float, float]] | None:
    """Accuracy of a group under a group-weighted layer, and its interval."""
    if judged.weighted is None or judged.weighted.accuracy is None:
        return None
    accuracy = judged.weighted.accuracy
    low, high = accuracy.interval().reshape(-1, 2)[number].tolist()
    return float(accuracy.accuracy.ravel()[number]), (low, high)


def _cell(
    share: float,
    interval: tuple[float, float],
    change: Change | None = None,
    weighted: tuple[float, tuple[float, float]] | None = None,
) -> Cell:
    if math.isnan(share):
        return Cell("no rows")
    beside = ("", "") if weighted is None else (f"{100 * weighted[0]:.1f}", formatting.bounds(*weighted[1]))
    figure, around = f"{100 * share:.1f}", formatting.bounds(*interval)
    if change is None:
        return Cell(figure, around, weighted=beside[0], weighted_interval=beside[1])
    signed = formatting.signed(change.value), formatting.signed_bounds(change.low, change.high)
    return Cell(figure, around, *signed, change.clear, *beside)


def _whiskers(
    known: Sequence[tuple[int, MethodResult]],
    shares: Sequence[float],
    intervals: Sequence[tuple[float, float]],
    scale: Scale,
) -> tuple[Whisker, ...]:
    drawn = []
    for place, ((series, judged), share, (low, high)) in enumerate(zip(known, shares, intervals, strict=True)):
        if not math.isnan(share):
            title = f"{judged.name}: {formatting.percent(share)} ({formatting.bounds(low, high)})"
            y = METHOD_STEP * place + 9.0
            drawn.append(Whisker(scale.at(share), scale.at(low), scale.at(high), y, series, title))
    return tuple(drawn)


def _accuracy(judged: MethodResult) -> GroupAccuracy:
    assert judged.accuracy is not None
    return judged.accuracy


@dataclass(frozen=True, slots=True)
class Probe:
    """What one probe finds: of what, in which rows, the figures in words, and where to draw them."""

    of: str
    rows: str
    series: int
    figure: str
    interval: str
    chance: str
    p: str
    whisker: Whisker
    rule: float


@dataclass(frozen=True, slots=True)
class ProbeSection:
    """Probes that belong together: a title, what it means, and the lines."""

    title: str
    says: str
    probes: tuple[Probe, ...]


@dataclass(frozen=True, slots=True)
class Leaks:
    """All parts on one scale."""

    parts: tuple[ProbeSection, ...]
    ticks: tuple[Tick, ...]


def leaks(findings: Findings) -> Leaks:
    """Linear probes of the certificate, those of other methods, and the small network."""
    after = findings.method
    certified = [
        (f"{concept_name(findings, name)}", rows, series, leak)
        for name, pair in findings.certificate.probe.items()
        for rows, series, leak in (("as they are", 0, pair[0]), (f"after {after}", 1, pair[1]))
    ]
    task = findings.certificate.task
    kept = (
        []
        if task is None
        else [(findings.main, "as they are", 0, task[0]), (findings.main, f"after {after}", 1, task[1])]
    )
    others = [
        (concept, f"after {judged.name}", series, leak)
        for series, judged in enumerate(findings.judged)
        if series > 1
        for concept, leak in judged.leakage.items()
    ]
    nonlinear = [
        (concept, rows, series, found[concept])
        for concept in findings.nonlinear
        for rows, series, found in (
            ("as they are", 0, findings.nonlinear_before),
            (f"after {after}", 1, findings.nonlinear),
        )
        if concept in found
    ]
    every = [leak for part in (certified, kept, others, nonlinear) for *_, leak in part]
    scale = share_scale([min(leak.low, leak.chance - 0.02) for leak in every])
    parts = [
        (
            "A linear probe for the concept",
            "Lower is better: at chance, a linear classifier learns nothing.",
            certified,
        ),
        ("A small network for the concept", _network(findings), nonlinear),
        ("A linear probe for the concept after other methods", "The same probe, for comparison.", others),
        ("A linear probe for the task", "Higher is better: this is what should stay.", kept),
    ]
    return Leaks(
        tuple(
            ProbeSection(title, says, tuple(_probe(*one, scale) for one in lines))
            for title, says, lines in parts
            if lines
        ),
        tuple(share_ticks(scale)),
    )


def concept_name(findings: Findings, name: str) -> str:
    """What a certificate calls "concept" by its own name, where there is one."""
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


def _probe(of: str, rows: str, series: int, leak: Leakage, scale: Scale) -> Probe:
    figure, interval = f"{100 * leak.accuracy:.1f}", formatting.bounds(leak.low, leak.high)
    title = f"{rows}: {figure} % ({interval})"
    whisker = Whisker(scale.at(leak.accuracy), scale.at(leak.low), scale.at(leak.high), 9.0, series, title)
    chance = f"{100 * leak.chance:.0f}"
    return Probe(
        formatting.clipped(of, 80),
        rows,
        series,
        figure,
        interval,
        chance,
        formatting.p_value(leak.p),
        whisker,
        scale.at(leak.chance),
    )
