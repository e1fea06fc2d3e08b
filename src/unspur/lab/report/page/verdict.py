"""What came of a removal, in plain sentences with their intervals, and as a few key figures.

A change is called one only where its interval leaves zero out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from unspur.lab.findings.values import Change, Findings, Judged
from unspur.lab.report.page import words
from unspur.lab.report.page.bars import Scale
from unspur.lab.report.page.naming import with_short_names
from unspur.metrics import GroupAccuracy, Leakage

#: A piece of a sentence, and what it is to the eye: plain words, a figure, or the interval of one.
Part: TypeAlias = tuple[str, Literal["words", "figure", "interval"]]


@dataclass(frozen=True, slots=True)
class Sentence:
    """Pieces that make one sentence."""

    parts: tuple[Part, ...]

    def __str__(self) -> str:
        return "".join(text for text, _ in self.parts)


@dataclass(frozen=True, slots=True)
class Mark:
    """A share and its interval on a scale from 0 to 100, and whether it is that of the rows as they are."""

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


def verdict(findings: Findings) -> list[str]:
    """The verdict as plain sentences; warnings come first."""
    return [*findings.warnings, *(str(sentence) for sentence in sentences(with_short_names(findings)))]


def sentences(findings: Findings) -> list[Sentence]:
    """How much was removed, what that does to the worst group and on average, and what is still to be found."""
    return [_directions(findings), *_accuracies(findings), *_leaks(findings)]


def tiles(findings: Findings) -> list[Tile]:
    """Three or four key figures."""
    kept = f"{findings.kept} more belong to {words.named(findings.main)} and stay" if findings.kept else ""
    shares = (_PERCENT.at(findings.removed / findings.ambient), _PERCENT.at(findings.kept / findings.ambient))
    removed, of = words.count(findings.removed), f"of {words.count(findings.ambient)}"
    found = [Tile("directions removed", removed, of, kept, shares=shares)]
    before, after = findings.before.accuracy, findings.after.accuracy
    if before is not None and after is not None:
        marks = (_worst_mark(before, True), _worst_mark(after, False))
        was = f"was {words.percent(before.worst)} ({words.bounds(*before.worst_interval())})"
        interval = words.bounds(*after.worst_interval())
        found.append(Tile("worst group", f"{100 * after.worst:.1f}", "%", was, interval, marks))
    if (change := findings.after.average_change) is not None and after is not None:
        now = f"now {words.percent(after.average)}"
        interval = words.signed_bounds(change.low, change.high)
        marks = (_change_mark(change),)
        figure = words.signed(change.value)
        found.append(Tile("average over rows", figure, _points(change.value), now, interval, marks, 50.0))
    if leaks := leaks_of(findings.after):
        name, leak = max(leaks.items(), key=lambda item: item[1].accuracy - item[1].chance)
        was, marks = f"chance is {words.percent(leak.chance, 0)}", (_leak_mark(leak, False),)
        if name in (earlier := leaks_of(findings.before)):
            was = f"was {words.percent(earlier[name].accuracy, 0)}; {was}"
            marks = _leak_mark(earlier[name], True), *marks
        label = f"linear probe for {words.named(name)}"
        figure = f"{100 * leak.accuracy:.0f}"
        interval = words.bounds(leak.low, leak.high, 0)
        found.append(Tile(label, figure, "%", was, interval, marks, 100 * leak.chance))
    return found


def leaks_of(judged: Judged) -> dict[str, Leakage]:
    """What a linear probe finds, by concept."""
    return dict(judged.leakage)


def worst_name(accuracy: GroupAccuracy, groups: tuple[str, ...]) -> str:
    """What the worst group is called."""
    return groups[int(np.nanargmin(accuracy.accuracy))]


def apart(before: GroupAccuracy, after: GroupAccuracy) -> bool:
    """Whether the worst group has clearly changed.

    The two distances towards each other are added in squares, as for the difference of two independent shares; they
    are of the same rows, so the truth is rather narrower.
    """
    (low, high), (lower, higher) = before.worst_interval(), after.worst_interval()
    if after.worst >= before.worst:
        return after.worst - before.worst > math.hypot(after.worst - lower, high - before.worst)
    return before.worst - after.worst > math.hypot(before.worst - low, higher - after.worst)


def _directions(findings: Findings) -> Sentence:
    concepts = [words.the(name) for name in findings.concepts]
    if not findings.removed:
        why = "no direction passed its tests" if findings.traces else f"{findings.method} found no direction to remove"
        return _sentence(f"Nothing was removed for {words.listed(concepts)}: {why}")
    share = f"{words.count(findings.removed)} of {words.plural(findings.ambient, 'direction')}"
    if len(concepts) == 1 and findings.traces:
        return _sentence(f"{words.capital(concepts[0])} used ", (share, "figure"))
    return _sentence(f"{findings.method} removed ", (share, "figure"), f" for {words.listed(concepts)}")


def _accuracies(findings: Findings) -> Iterator[Sentence]:
    before, after = findings.before.accuracy, findings.after.accuracy
    if before is None or after is None:
        problem = findings.after.problem or findings.before.problem or "it was not measured"
        yield _sentence(f"What that does to accuracy is not known: {problem.rstrip('.')}")
        return
    worst, then = worst_name(before, findings.groups), worst_name(after, findings.groups)
    was, is_now = _share(before.worst, before.worst_interval()), _share(after.worst, after.worst_interval())
    if not findings.removed:
        yield _sentence(f"The worst group ({worst}) stays at ", *was)
        return
    it = "it" if findings.removed == 1 else "them"
    if apart(before, after):
        verb = "raises" if after.worst > before.worst else "lowers"
        start = f"Removing {it} {verb} the worst group ({worst}) from "
    else:
        start = f"Removing {it} makes no clear change to the worst group ({worst}): from "
    another = f", where the worst is {then}" if then != worst else ""
    yield _sentence(start, *was, " to ", *is_now, another, *_average(findings.after.average_change))


def _average(change: Change | None) -> list[Part | str]:
    if change is None:
        return []
    if change.low <= 0.0 <= change.high:
        interval: Part = (f"({words.signed_bounds(change.low, change.high)})", "interval")
        figure: Part = (f"{words.signed(change.value)} {_points(change.value)}", "figure")
        return ["; there is no clear change on average over rows, ", figure, " ", interval]
    verb = "costs" if change.value < 0 else "gains"
    interval = (f"({words.bounds(*sorted((abs(change.low), abs(change.high))))})", "interval")
    figure = (f"{100 * abs(change.value):.1f} {_points(change.value)}", "figure")
    return [f", and {verb} ", figure, " ", interval, " on average over rows"]


def _leaks(findings: Findings) -> Iterator[Sentence]:
    earlier = leaks_of(findings.before) if findings.removed else {}
    for name, leak in leaks_of(findings.after).items():
        was = f", where it was {words.percent(earlier[name].accuracy, 0)} before" if name in earlier else ""
        yield _sentence(
            f"A linear probe {'still ' if leak.low > leak.chance else ''}{_finds(name, leak)}",
            *_share(leak.accuracy, (leak.low, leak.high), 0),
            f"{was}; chance is {words.percent(leak.chance, 0)}",
        )
    for name, leak in findings.nonlinear.items():
        start = f"A small network, which is not linear, {_finds(name, leak)}"
        yield _sentence(start, *_share(leak.accuracy, (leak.low, leak.high), 0))


def _finds(name: str, leak: Leakage) -> str:
    found = leak.low > leak.chance
    return f"finds {words.the(name)} at " if found else f"does not find {words.the(name)} better than chance: "


def _share(share: float, interval: tuple[float, float], digits: int = 1) -> list[Part | str]:
    return [(words.percent(share, digits), "figure"), " ", (f"({words.bounds(*interval, digits)})", "interval")]


def _points(change: float) -> str:
    return "point" if f"{100 * abs(change):.1f}" == "1.0" else "points"


def _worst_mark(accuracy: GroupAccuracy, before: bool) -> Mark:
    low, high = accuracy.worst_interval()
    return Mark(*(_PERCENT.at(value) for value in (accuracy.worst, low, high)), before)


def _change_mark(change: Change) -> Mark:
    """Around no change, which is in the middle."""
    reach = 1.15 * max(abs(change.low), abs(change.high), 0.05)
    scale = Scale(-reach, reach)
    return Mark(*(scale.at(value) for value in (change.value, change.low, change.high)), False)


def _leak_mark(leak: Leakage, before: bool) -> Mark:
    return Mark(*(_PERCENT.at(value) for value in (leak.accuracy, leak.low, leak.high)), before)


def _sentence(*parts: Part | str) -> Sentence:
    pieces: list[Part] = [(part, "words") if isinstance(part, str) else part for part in parts]
    return Sentence((*(piece for piece in pieces if piece[0]), (".", "words")))


_PERCENT = Scale(0.0, 1.0)
