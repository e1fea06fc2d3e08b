"""What came of a removal, in plain sentences with their intervals.

A change is called one only where its interval leaves zero out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from unspur.lab.findings.values import Change, Findings, Judged
from unspur.lab.report.page import words
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


def verdict(findings: Findings) -> list[str]:
    """The verdict as plain sentences; warnings come first."""
    return [*findings.warnings, *(str(sentence) for sentence in sentences(with_short_names(findings)))]


def sentences(findings: Findings) -> list[Sentence]:
    """How much was removed, what that does to the worst group and on average, and what is still to be found."""
    return [_directions(findings), *_accuracies(findings), *_leaks(findings)]


def leaks_of(judged: Judged) -> dict[str, Leakage]:
    """What a linear probe finds, by concept."""
    return dict(judged.leakage)


def worst_name(accuracy: GroupAccuracy, groups: tuple[str, ...]) -> str:
    """What the worst group is called."""
    return groups[int(np.nanargmin(accuracy.accuracy))]


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
    change = findings.after.worst_change
    if change is not None and not change.low <= 0.0 <= change.high:
        verb = "raises" if change.value > 0 else "lowers"
        start = f"Removing {it} {verb} the worst group ({worst}) from "
    else:
        start = f"Removing {it} makes no clear change to the worst group ({worst}): from "
    another = f", the worst now being {then}" if then != worst else ""
    yield _sentence(start, *was, " to ", *is_now, another, *_average(findings.after.average_change))


def _average(change: Change | None) -> list[Part | str]:
    if change is None:
        return []
    if change.low <= 0.0 <= change.high:
        interval: Part = (f"({words.signed_bounds(change.low, change.high)})", "interval")
        figure: Part = (f"{words.signed(change.value)} {points(change.value)}", "figure")
        return ["; there is no clear change on average over rows, ", figure, " ", interval]
    verb = "costs" if change.value < 0 else "gains"
    low, high = sorted((abs(change.low), abs(change.high)))
    interval = (f"({words.bounds(low, high)})", "interval")
    figure = (f"{100 * abs(change.value):.1f} {points(change.value)}", "figure")
    return [f", and {verb} ", figure, " ", interval, " on average over rows"]


def _leaks(findings: Findings) -> Iterator[Sentence]:
    earlier = leaks_of(findings.before) if findings.removed else {}
    for k, (name, leak) in enumerate(leaks_of(findings.after).items()):
        yield _sentence(
            f"{'It' if k else 'A linear probe'} {'still ' if leak.low > leak.chance else ''}{_finds(name, leak)}",
            *_found(leak),
            *([", where it was ", *_found(earlier[name]), " before"] if name in earlier else []),
            f"; chance is {words.percent(leak.chance, 0)}",
        )
    for k, (name, leak) in enumerate(findings.nonlinear.items()):
        start = f"{'It' if k else 'A small network, which is not linear,'} {_finds(name, leak)}"
        yield _sentence(start, *_found(leak))


def _found(leak: Leakage) -> list[Part | str]:
    return _share(leak.accuracy, (leak.low, leak.high), 0)


def _finds(name: str, leak: Leakage) -> str:
    found = leak.low > leak.chance
    return f"finds {words.the(name)} at " if found else f"does not find {words.the(name)} better than chance: "


def _share(share: float, interval: tuple[float, float], digits: int = 1) -> list[Part | str]:
    return [(words.percent(share, digits), "figure"), " ", (f"({words.bounds(*interval, digits)})", "interval")]


def points(change: float) -> str:
    """The unit of a difference of shares as it is written: "1.0 point", "1.1 points"."""
    return "point" if f"{100 * abs(change):.1f}" == "1.0" else "points"


def _sentence(*parts: Part | str) -> Sentence:
    pieces: list[Part] = [(part, "words") if isinstance(part, str) else part for part in parts]
    return Sentence((*(piece for piece in pieces if piece[0]), (".", "words")))
