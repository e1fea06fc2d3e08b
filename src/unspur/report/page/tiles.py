"""Three or four key figures, each with a small chart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from unspur.metrics import GroupAccuracy, Leakage
from unspur.report.page import words
from unspur.report.page.bars import Scale, Tick
from unspur.report.page.verdict import leaks_of, points
from unspur.report.results import Findings

_SHARES = Scale(0.0, 1.0)
_PERCENT = (Tick(0.0, "0"), Tick(50.0, "50"), Tick(100.0, "100 %"))
#: Reaches of a change in points that a scale may have.
_REACHES = (5, 10, 20, 30, 50, 100)


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
    task = words.named(findings.main)
    kept = (
        f"1 more belongs to {task} and stays"
        if findings.kept == 1
        else f"{findings.kept} more belong to {task} and stay"
    )
    removed, of = words.count(findings.removed), f"of {words.count(findings.ambient)}"
    shares = (_SHARES.at(findings.removed / findings.ambient), _SHARES.at(findings.kept / findings.ambient))
    ticks = (Tick(0.0, "0"), Tick(100.0, words.count(findings.ambient)))
    return Tile("directions removed", removed, of, kept if findings.kept else "", shares=shares, ticks=ticks)


def _worst(findings: Findings) -> Iterator[Tile]:
    before, after = findings.before.accuracy, findings.after.accuracy
    if before is not None and after is not None:
        was = f"was {words.percent(before.worst)} ({words.bounds(*before.worst_interval())})"
        interval = words.bounds(*after.worst_interval())
        marks = (_of_worst(before, before=True), _of_worst(after, before=False))
        yield Tile("worst group", f"{100 * after.worst:.1f}", "%", was, interval, marks, ticks=_PERCENT)


def _average(findings: Findings) -> Iterator[Tile]:
    """The change, around none, which is in the middle."""
    change, after = findings.after.average_change, findings.after.accuracy
    if change is not None and after is not None:
        widest = 100 * max(abs(change.low), abs(change.high))
        reach = next((reach for reach in _REACHES if widest <= reach), 100)
        mark = _mark(Scale(-reach / 100, reach / 100), change.value, change.low, change.high, before=False)
        now = f"now {words.percent(after.average)} ({words.bounds(*after.average_interval())})"
        interval = words.signed_bounds(change.low, change.high)
        figure, unit = words.signed(change.value), points(change.value)
        ticks = (Tick(0.0, f"−{reach}"), Tick(50.0, "0"), Tick(100.0, f"+{reach}"))
        yield Tile("average over rows", figure, unit, now, interval, (mark,), 50.0, ticks=ticks)


def _leak(findings: Findings) -> Iterator[Tile]:
    """The concept that is found best after removal."""
    leaks = leaks_of(findings.after)
    if not leaks:
        return
    name, leak = max(leaks.items(), key=lambda item: item[1].accuracy - item[1].chance)
    note, marks = f"chance is {words.percent(leak.chance, 0)}", [_of_leak(leak, before=False)]
    if name in (earlier := leaks_of(findings.before)):
        was = earlier[name]
        note = f"was {words.percent(was.accuracy, 0)} ({words.bounds(was.low, was.high, 0)}); {note}"
        marks.insert(0, _of_leak(earlier[name], before=True))
    label, figure = f"linear probe for {words.named(name)}", f"{100 * leak.accuracy:.0f}"
    interval = words.bounds(leak.low, leak.high, 0)
    yield Tile(label, figure, "%", note, interval, tuple(marks), _SHARES.at(leak.chance), ticks=_PERCENT)


def _of_worst(accuracy: GroupAccuracy, *, before: bool) -> Mark:
    return _mark(_SHARES, accuracy.worst, *accuracy.worst_interval(), before=before)


def _of_leak(leak: Leakage, *, before: bool) -> Mark:
    return _mark(_SHARES, leak.accuracy, leak.low, leak.high, before=before)


def _mark(scale: Scale, value: float, low: float, high: float, *, before: bool) -> Mark:
    return Mark(scale.at(value), scale.at(low), scale.at(high), before)
