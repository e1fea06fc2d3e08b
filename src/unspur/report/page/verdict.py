"""The outcome of a removal in plain sentences with intervals.

A difference is called a change only if its interval excludes zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from unspur.metrics import GroupAccuracy, Leakage, PairedDifference
from unspur.report.page import formatting
from unspur.report.page.formatting import short_groups, with_short_names
from unspur.report.results import Findings, MethodResult

#: A piece of a sentence, and how it looks: plain words, a figure, its interval, or a command.
Part: TypeAlias = tuple[str, Literal["words", "figure", "interval", "command"]]
#: Angles this close to 90° are right angles, in degrees.
_RIGHT_ANGLE_DEGREES = 0.05


@dataclass(frozen=True, slots=True)
class Sentence:
    """Pieces that make one sentence."""

    parts: tuple[Part, ...]

    def __str__(self) -> str:
        return "".join(text for text, _ in self.parts)


def verdict(findings: Findings) -> list[str]:
    """The verdict as plain sentences; warnings come first."""
    short = with_short_names(findings)
    return [*findings.warnings, *(str(sentence) for sentence in (*sentences(short), *context_sentences(short)))]


def sentences(findings: Findings) -> list[Sentence]:
    """The recommendation, what was removed, what that does to accuracies, and what probes still find."""
    return [
        *_recommended(findings),
        _directions(findings),
        *_accuracies(findings.results, findings.groups),
        *_guessing(findings.results, findings.recommended),
        *_leaks(findings),
    ]


def context_sentences(findings: Findings) -> list[Sentence]:
    """Context of the figures: what does as well, the gap that remains, chance, and what to do next."""
    without_task = findings.method == "JSE" and not findings.n_main
    task = _sentence(
        f"No direction of {formatting.the(findings.main)} was found, so nothing protected the task from the removal"
        if findings.n_removed
        else f"No direction of {formatting.the(findings.main)} was found either"
    )
    return [
        *_others(findings.results),
        *_remaining_gap(findings.results, findings.groups, findings.recommended),
        *([task] if without_task else ()),
        *_oblique(findings),
        _next_step(findings),
    ]


def accuracy_verdict(results: Sequence[MethodResult]) -> list[str]:
    """Sentences about accuracies alone, of the original rows, the removal, and others, in this order."""
    accuracy = results[0].accuracy
    groups = () if accuracy is None else short_groups(accuracy)
    found = (
        *_accuracies(results, groups),
        *_guessing(results),
        *_remaining_gap(results, groups),
        *_others(results),
    )
    return [str(sentence) for sentence in found]


def worst_name(accuracy: GroupAccuracy, groups: Sequence[str]) -> str:
    """Name of the worst group."""
    return groups[int(np.nanargmin(accuracy.accuracy))]


def _recommended(findings: Findings) -> Iterator[Sentence]:
    """The default classifier of `unspur fit`, if it was measured here; without a removal, only the two heads."""
    result, before = findings.recommended, findings.before
    if result is None or result.accuracy is None:
        return
    accuracy = result.accuracy
    if findings.n_removed:
        yield _sentence(
            "Recommended: this removal, then a group-weighted head. It gets ",
            *_share(accuracy.worst, accuracy.worst_interval()),
            f" in its worst group ({worst_name(accuracy, findings.groups)}) and ",
            (f"{100 * accuracy.average:.1f} %", "figure"),
            " on average over rows",
        )
    if before.accuracy is not None and before.weighted is not None and before.weighted.accuracy is not None:
        yield _sentence(
            "Without a removal, an unweighted head has ",
            (formatting.percent(before.accuracy.worst), "figure"),
            " in its worst group and a group-weighted head ",
            (formatting.percent(before.weighted.accuracy.worst), "figure"),
        )


def _oblique(findings: Findings) -> Iterator[Sentence]:
    """What an oblique removal subtracts besides the directions that it reads."""
    if findings.oblique_angle > _RIGHT_ANGLE_DEGREES:
        concepts = formatting.join_with_and([formatting.the(name) for name in findings.concepts])
        them = "it" if len(findings.concepts) == 1 else "them"
        yield _sentence(
            f"The removal is oblique: it reads {concepts} along one direction and subtracts another, up to ",
            (f"{findings.oblique_angle:.0f}°", "figure"),
            f" away. Whatever is correlated with {concepts} in the training rows is removed with {them}, which is a "
            "loss if the two are uncorrelated later",
        )


def _directions(findings: Findings) -> Sentence:
    concepts = [formatting.the(name) for name in findings.concepts]
    if not findings.n_removed:
        why = "no direction passed its tests" if findings.traces else f"{findings.method} found no direction to remove"
        why = why if findings.strength else "its strength is 0"
        return _sentence(f"Nothing was removed for {formatting.join_with_and(concepts)}: {why}")
    share = f"{formatting.count(findings.n_removed)} of {formatting.plural(findings.n_features, 'direction')}"
    in_part = f" with a strength of {findings.strength:g}, so a part is left" if findings.strength < 1 else ""
    if len(concepts) == 1 and findings.traces:
        were = "was" if findings.n_removed == 1 else "were"
        return _sentence((share, "figure"), f" {were} removed for {concepts[0]}{in_part}")
    return _sentence(
        f"{findings.method} removed ", (share, "figure"), f" for {formatting.join_with_and(concepts)}{in_part}"
    )


def _accuracies(results: Sequence[MethodResult], groups: Sequence[str]) -> Iterator[Sentence]:
    (before, after), removed = (result.accuracy for result in results[:2]), results[1].n_removed
    if before is None or after is None:
        problem = results[1].problem or results[0].problem or "it was not measured"
        yield _sentence(f"What that does to accuracy is not known: {problem.rstrip('.')}")
        return
    worst, then = worst_name(before, groups), worst_name(after, groups)
    was, is_now = _share(before.worst, before.worst_interval()), _share(after.worst, after.worst_interval())
    if not removed:
        yield _sentence(f"The worst group ({worst}) stays at ", *was)
        return
    it = "it" if removed == 1 else "them"
    change = results[1].worst_change
    if change is not None and change.clear:
        verb = "raises" if change.value > 0 else "lowers"
        start = f"With an unweighted head, removing {it} {verb} the worst group ({worst}) from "
    else:
        start = f"With an unweighted head, removing {it} makes no clear change to the worst group ({worst}): from "
    another = f", the worst now being {then}" if then != worst else ""
    yield _sentence(start, *was, " to ", *is_now, another, *_average(results[1].average_change))


def _head(
    results: Sequence[MethodResult], recommended: MethodResult | None
) -> tuple[str, GroupAccuracy | None, GroupAccuracy | None]:
    """The head to judge, which is the recommended one if it was measured, and its accuracies before and after."""
    if recommended is None:
        return "an unweighted head", results[0].accuracy, results[1].accuracy
    weighted = results[0].weighted
    return "a group-weighted head", None if weighted is None else weighted.accuracy, recommended.accuracy


def _guessing(results: Sequence[MethodResult], recommended: MethodResult | None = None) -> list[Sentence]:
    """A sentence about a worst group for which guessing would do as well."""
    head, before, accuracy = _head(results, recommended)
    if accuracy is None:
        return []
    guess, removed = 1.0 / len(accuracy.classes), results[1].n_removed
    coin = "a coin flip" if len(accuracy.classes) == 2 else f"guessing among {len(accuracy.classes)} classes"
    start = f"With {head}{' after the removal' if removed else ''}, the worst group is"
    if accuracy.worst < guess:
        still, enough = (" still", " enough") if before is not None and before.worst < guess else ("", "")
        so = f"), so the removal has not helped{enough}" if removed else ")"
        return [_sentence(f"{start}{still} below {coin} (", (formatting.chance(guess), "figure"), so)]
    if accuracy.worst_interval()[0] <= guess:
        return [_sentence(f"{start} not clearly above {coin} (", (formatting.chance(guess), "figure"), ")")]
    return []


def _remaining_gap(
    results: Sequence[MethodResult], groups: Sequence[str], recommended: MethodResult | None = None
) -> Iterator[Sentence]:
    """The gap between groups that remains, with the recommended head if it was measured, and what guessing achieves."""
    head, before, after = _head(results, recommended)
    if after is None:
        return
    best, gap = int(np.nanargmax(after.accuracy)), _gap(after)
    yield _sentence(
        f"With {head}, the gap between the best group ({groups[best]}, ",
        (formatting.percent(float(np.nanmax(after.accuracy))), "figure"),
        ") and the worst group is ",
        (f"{gap:.1f} {points(gap / 100)}", "figure"),
        f" ({_gap(before):.1f} before the removal)" if results[1].n_removed and before is not None else "",
    )
    yield from _penalty(results[0])
    yield _sentence(
        f"Random guessing gets {formatting.chance(1 / len(after.classes))} in every group. Always predicting the most "
        f"frequent class gets {formatting.percent(after.majority)} of the rows right"
    )


def _gap(accuracy: GroupAccuracy) -> float:
    """Points between the best and the worst group."""
    return 100 * float(np.nanmax(accuracy.accuracy) - accuracy.worst)


def _penalty(result: MethodResult) -> Iterator[Sentence]:
    """Whether the unweighted head on the original rows might do better with another penalty."""
    if result.grid_edge and result.penalty is not None:
        yield _sentence(
            f"The unweighted head on the original rows has the {result.grid_edge} penalty that was tried, ",
            (f"{result.penalty:g}", "figure"),
            f"; a {'larger' if result.grid_edge == 'largest' else 'smaller'} one may be better",
        )
    penalty, worst = max(result.worst_by_penalty.items(), key=lambda pair: pair[1], default=(0.0, 0.0))
    if result.accuracy is not None and worst > result.accuracy.worst_interval()[1]:
        yield _sentence(
            f"With another penalty, {penalty:g}, the unweighted head on the original rows would reach ",
            (formatting.percent(worst), "figure"),
            " in the worst group. Only the test rows show this, and they are not used to choose",
        )


def _others(results: Sequence[MethodResult]) -> Iterator[Sentence]:
    """Simpler methods, each compared with the same kind of head after the removal."""
    weighted, removal = results[0].weighted, results[1]
    if not removal.n_removed or removal.accuracy is None:
        return
    if weighted is not None and weighted.accuracy is not None and weighted.worst_relative_to_removal is not None:
        start = "A group-weighted head on the original rows, without a removal, does "
        yield _sentence(start, *_compared_with_removal(weighted, "from the group-weighted head after the removal"))
    fewer = [result for result in results[2:] if 0 < result.n_removed < removal.n_removed and _as_well(result)]
    if fewer:
        simplest = min(fewer, key=lambda result: result.n_removed)
        instead = (
            f"with {formatting.plural(simplest.n_removed, 'direction')} instead of "
            f"{formatting.count(removal.n_removed)}"
        )
        other = _compared_with_removal(simplest, "both with an unweighted head")
        yield _sentence(f"{simplest.name}, {instead}, does ", *other)


def _as_well(result: MethodResult) -> bool:
    """Whether neither worst group nor average over groups is clearly worse than with the removal."""
    relative = (result.worst_relative_to_removal, result.average_relative_to_removal)
    return all(change is not None and change.high >= 0.0 for change in relative)


def _compared_with_removal(result: MethodResult, with_what: str) -> list[Part | str]:
    """How a result compares with the same kind of head after the removal."""
    accuracy, worst, average = result.accuracy, result.worst_relative_to_removal, result.average_relative_to_removal
    assert accuracy is not None
    assert worst is not None
    assert average is not None
    how = "less well" if not _as_well(result) else "better" if worst.low > 0.0 else "as well, as far as these rows tell"
    return [
        f"{how}: ",
        *_share(accuracy.worst, accuracy.worst_interval()),
        " in the worst group. The difference is ",
        *_difference(worst),
        ", and ",
        *_difference(average),
        f" on average over groups ({with_what})",
    ]


def _difference(change: PairedDifference) -> list[Part | str]:
    return [
        (f"{formatting.signed(change.value)} {points(change.value)}", "figure"),
        " ",
        (f"({formatting.signed_bounds(change.low, change.high)})", "interval"),
    ]


def _next_step(findings: Findings) -> Sentence:
    """A command to try next."""
    if not findings.cli_source:
        return _sentence(
            "Next, with rows of your own: ", ("unspur report FILE --task COLUMN --concept COLUMN", "command")
        )
    change = findings.after.worst_change
    gains = change is not None and change.low > 0.0 and not _guessing(findings.results, findings.recommended)
    weighted = findings.before.weighted
    less_without = weighted is not None and weighted.worst_relative_to_removal is not None and not _as_well(weighted)
    if gains and less_without and not any(result.n_removed > 0 and _as_well(result) for result in findings.results[2:]):
        what, command = "Next, use the removal", findings.next_command
    else:
        what, command = "Next, see whether another method is clearly better", f"unspur compare {findings.cli_source}"
    return _sentence(f"{what}: ", (command, "command"))


def _average(change: PairedDifference | None) -> list[Part | str]:
    if change is None:
        return []
    if not change.clear:
        return ["; there is no clear change on average over rows, ", *_difference(change)]
    verb = "costs" if change.value < 0 else "gains"
    low, high = sorted((abs(change.low), abs(change.high)))
    interval: Part = (f"({formatting.bounds(low, high, formatting.clear_digits(low, high))})", "interval")
    figure: Part = (f"{100 * abs(change.value):.1f} {points(change.value)}", "figure")
    return [f", and {verb} ", figure, " ", interval, " on average over rows"]


def _leaks(findings: Findings) -> Iterator[Sentence]:
    earlier: Mapping[str, Leakage] = findings.before.leakage if findings.n_removed else {}
    for k, (name, leak) in enumerate(findings.after.leakage.items()):
        yield _sentence(
            f"{'It' if k else 'A linear probe'} {'still ' if leak.low > leak.chance else ''}{_finds(name, leak)}",
            *_found(leak),
            *([", where it was ", *_found(earlier[name]), " before"] if name in earlier else []),
            f"; chance is {formatting.chance(leak.chance)}",
        )
    for k, (name, leak) in enumerate(findings.nonlinear.items()):
        start = f"{'It' if k else 'A small network, which is not linear,'} {_finds(name, leak)}"
        was = findings.nonlinear_before.get(name) if findings.n_removed else None
        yield _sentence(start, *_found(leak), *([", where it was ", *_found(was), " before"] if was else []))


def _found(leak: Leakage) -> list[Part | str]:
    return _share(leak.accuracy, (leak.low, leak.high), 0)


def _finds(name: str, leak: Leakage) -> str:
    found = leak.low > leak.chance
    return (
        f"finds {formatting.the(name)} at " if found else f"does not find {formatting.the(name)} better than chance: "
    )


def _share(share: float, interval: tuple[float, float], digits: int = 1) -> list[Part | str]:
    return [
        (formatting.percent(share, digits), "figure"),
        " ",
        (f"({formatting.bounds(*interval, digits)})", "interval"),
    ]


def points(change: float) -> str:
    """The unit of a difference of shares: "1.0 point", "1.1 points"."""
    return "point" if f"{100 * abs(change):.1f}" == "1.0" else "points"


def _sentence(*parts: Part | str) -> Sentence:
    pieces: list[Part] = [(part, "words") if isinstance(part, str) else part for part in parts]
    end: list[Part] = [] if pieces[-1][1] == "command" else [(".", "words")]  # commands are copied
    return Sentence((*(piece for piece in pieces if piece[0]), *end))


def subspaces(findings: Findings) -> list[str]:
    """Sentences about angles, shared variance, and the number of rows that are drawn."""
    found = []
    if findings.angles:
        found.append(_angle(findings))
    if findings.shared_variance is not None:
        share = formatting.percent(findings.shared_variance, 0 if findings.shared_variance >= 0.01 else 1)
        why = ": directions at right angles can still be correlated in the data" if _at_right_angles(findings) else ""
        found.append(f"In the test rows, scores along the two have {share} of their variance in common{why}.")
    rows, shown = len(findings.group), len(findings.drawn_rows)
    drawn = f"All {formatting.count(rows)} test rows are drawn."
    if shown < rows:
        drawn = f"Of {formatting.count(rows)} test rows {formatting.count(shown)} are drawn."
    unknown = int((findings.group < 0).sum())
    if unknown:
        drawn += f" In {formatting.count(unknown)} test rows the concept is not known; they are in no group."
    return [*found, drawn]


def _at_right_angles(findings: Findings) -> bool:
    return abs(min(findings.angles, default=0.0) - 90.0) < _RIGHT_ANGLE_DEGREES


def _angle(findings: Findings) -> str:
    smallest = min(findings.angles)
    concept, task = (
        formatting.join_with_and([formatting.named(name) for name in findings.concepts]),
        formatting.named(findings.main),
    )
    numbers = findings.n_removed, findings.n_main
    counted = ["direction" if n == 1 else formatting.plural(n, "direction") for n in numbers]
    pair = f"The {counted[0]} of {concept} and the {counted[1]} of {task}"
    if _at_right_angles(findings):
        return f"{pair} are at right angles (90°)."
    if len(findings.angles) == 1:
        return f"{pair} are at an angle of {smallest:.1f}°."
    return f"{pair} are at angles of {smallest:.1f}° to {max(findings.angles):.1f}° (principal angles)."
