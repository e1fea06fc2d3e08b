"""Accuracy of every group under every method, as one table with a chart in each line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from unspur.metrics import GroupAccuracy
from unspur.report.page import words
from unspur.report.page.bars import Scale, Tick, Whisker, share_scale, share_ticks
from unspur.report.results import Change, Findings, Judged

#: Pixels between the whiskers of two methods in one line.
STEP = 13.0


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
            words.plural(judged.removed, "direction"),
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
        height=STEP * max(1, len(known)) + 5.0,
    )


def _penalty(judged: Judged | None) -> str:
    """The penalty that was chosen, and whether it is the last of those tried."""
    if judged is None or judged.penalty is None:
        return ""
    return f"{judged.penalty:g}" + (f" ({judged.edge} tried)" if judged.edge else "")


def _group(findings: Findings, number: int, known: Sequence[tuple[int, Judged]], scale: Scale) -> Line:
    shares, intervals = [], []
    for _, judged in known:
        accuracy = _accuracy(judged)
        shares.append(float(accuracy.accuracy.ravel()[number]))
        low, high = accuracy.interval().reshape(-1, 2)[number].tolist()
        intervals.append((low, high))
    beside = [_weighted(judged, number) for _, judged in known]
    cells = tuple(_cell(*one) for one in zip(shares, intervals, [None] * len(shares), beside, strict=True))
    rows = words.count(int(_accuracy(known[0][1]).rows.ravel()[number]))
    return Line(findings.groups[number], number, rows, cells, _whiskers(known, shares, intervals, scale))


def _summaries(known: Sequence[tuple[int, Judged]], scale: Scale) -> list[Line]:
    accuracies = [_accuracy(judged) for _, judged in known]
    rows = {
        "worst group": "",
        "average over groups": words.count(int(accuracies[0].rows.sum())),
        "average over rows": words.count(accuracies[0].n_rows),
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
        Line(label, -1, rows[label], tuple(map(_cell, shares, intervals, changes, beside)),
             _whiskers(known, shares, intervals, scale))
        for label, shares, intervals, changes, beside in parts
    ]  # fmt: skip


def _weighted(judged: Judged, number: int) -> tuple[float, tuple[float, float]] | None:
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
    beside = ("", "") if weighted is None else (f"{100 * weighted[0]:.1f}", words.bounds(*weighted[1]))
    figure, around = f"{100 * share:.1f}", words.bounds(*interval)
    if change is None:
        return Cell(figure, around, weighted=beside[0], weighted_interval=beside[1])
    signed = words.signed(change.value), words.signed_bounds(change.low, change.high)
    return Cell(figure, around, *signed, change.clear, *beside)


def _whiskers(
    known: Sequence[tuple[int, Judged]],
    shares: Sequence[float],
    intervals: Sequence[tuple[float, float]],
    scale: Scale,
) -> tuple[Whisker, ...]:
    drawn = []
    for place, ((series, judged), share, (low, high)) in enumerate(zip(known, shares, intervals, strict=True)):
        if not math.isnan(share):
            title = f"{judged.name}: {words.percent(share)} ({words.bounds(low, high)})"
            y = STEP * place + 9.0
            drawn.append(Whisker(scale.at(share), scale.at(low), scale.at(high), y, series, title))
    return tuple(drawn)


def _accuracy(judged: Judged) -> GroupAccuracy:
    assert judged.accuracy is not None
    return judged.accuracy
