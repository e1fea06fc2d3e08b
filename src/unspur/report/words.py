"""Findings in words: numbers and names as they are written everywhere, and the verdict in plain sentences.

A difference is called a change only if its interval excludes zero.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from unspur._text import is_number
from unspur.metrics import GroupAccuracy, Leakage, PairedDifference
from unspur.report.results import Findings, MethodResult

#: Names that read well in a sentence without quotation marks: one to three words that start in lower case.
_WORDLIKE = re.compile(r"[^\W\d_A-Z]\w*([ -][^\W_]+){0,2}")
#: Characters that are not allowed on a page: surrogates (of file names that are not UTF-8), controls, and marks that
#: would change the direction of the text after a name.
_UNFIT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]|([\u202a-\u202e\u2066-\u2069])")
#: Longest name in a sentence, of a class or a label in the name of a group, and of an axis.
_MAX_NAME_IN_SENTENCE, MAX_CLASS_NAME, MAX_AXIS_NAME = 40, 48, 80
#: Angles this close to 90° are right angles, in degrees.
_RIGHT_ANGLE_DEGREES = 0.05
#: Most decimals of a bound in points.
_MAX_DIGITS = 4
#: What a removal does not guarantee.
CAVEAT = (
    "Linear removal hides a concept from linear classifiers on rows like these. A nonlinear network may still find it, "
    "and other rows may differ. A model whose inputs carry no information about an attribute is not necessarily fair."
)


def percent(share: float, digits: int = 1) -> str:
    """A share as "69.5 %"; NaN is "not known"."""
    return "not known" if math.isnan(share) else f"{100 * share:.{digits}f} %"


def chance(share: float) -> str:
    """A share without needless decimals: "50 %", "12.5 %", "33.3 %"."""
    return percent(share, 0 if math.isclose(100 * share, round(100 * share)) else 1)


def bounds(low: float, high: float, digits: int = 1) -> str:
    """Bounds of a share in percent, "64.9 – 73.7"."""
    return f"{100 * low:.{digits}f} – {100 * high:.{digits}f}"


def with_interval(share: float, interval: tuple[float, float], digits: int = 1) -> str:
    """A share and its interval, "69.5 % (64.9 – 73.7)"."""
    return f"{percent(share, digits)} ({bounds(*interval, digits)})"


def signed(share: float, digits: int = 1) -> str:
    """A difference of shares in points with its sign, "+1.2", "−0.4"; zero has no sign."""
    text = f"{100 * abs(share):.{digits}f}"
    if not float(text):
        return text
    return ("−" if share < 0 else "+") + text


def signed_bounds(low: float, high: float) -> str:
    """Bounds of a difference in points, "−0.7 to +0.1"; "+0.04 to +2.71" if zero lies outside."""
    digits = _clear_digits(low, high)
    return f"{signed(low, digits)} to {signed(high, digits)}"


def _clear_digits(low: float, high: float) -> int:
    """Decimals with which neither of two bounds on one side of zero is shown as zero."""
    digits, nearest = 1, 100 * min(abs(low), abs(high))
    while low * high > 0 and digits < _MAX_DIGITS and not float(f"{nearest:.{digits}f}"):
        digits += 1
    return digits


def number(value: float | None, digits: int = 3) -> str:
    """A number to so many figures with a proper minus sign: "−598", "12.3", "1.2e−05"; "–" where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    text = (
        f"{size:.{digits}g}"
        if size >= 1e5 or 0 < size < 1e-3
        else np.format_float_positional(float(f"{size:.{digits}g}"), min_digits=0, trim="-")
    )
    return (f"−{text}" if value < 0 else text).replace("e-", "e−")


def count(value: int) -> str:
    """A whole number with thin gaps between thousands."""
    return f"{value:,}".replace(",", "\u202f") if abs(value) >= 10_000 else str(value)


def p_value(p: float) -> str:
    """A p-value to two figures, or "< 0.0001"."""
    if math.isnan(p):
        return "–"
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def plural(n: int, one: str, many: str = "") -> str:
    """A number with its noun: "1 direction", "2 directions"."""
    return f"{count(n)} {one if n == 1 else many or one + 's'}"


def named(name: str) -> str:
    """A label in a sentence, in quotation marks unless it reads like a word; long names are cut."""
    if _WORDLIKE.fullmatch(name) and len(name) <= _MAX_NAME_IN_SENTENCE:
        return name
    return f"“{clipped(name, _MAX_NAME_IN_SENTENCE)}”"


def the(name: str) -> str:
    """A label with an article: "the background", or "the concept “Male”" if it is quoted."""
    return f"the {name}" if named(name) == name else f"the concept {named(name)}"


def join_with_and(parts: Sequence[str]) -> str:
    """Parts as in a sentence: "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else list(parts))


def clipped(text: str, most: int) -> str:
    """Text on one line, cut to `most` characters with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def fit(value: Any) -> Any:
    """Text without marks of direction, and with a sign for other unfit characters; rendered markup stays."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return _UNFIT.sub(lambda found: "" if found.group(1) else "\ufffd", value)


def with_short_names(findings: Findings) -> Findings:
    """Findings with groups named "waterbird · land" instead of "bird=waterbird, background=land".

    Groups keep their labels where a class is a number, and names that the user chose stay. Long names are cut, and
    paths lose the folders that they have in common.
    """
    axes = tuple(replace(axis, name=clipped(axis.name, MAX_AXIS_NAME)) for axis in findings.view.axes)
    groups, accuracy = findings.groups, findings.before.accuracy
    if accuracy is not None and groups == tuple(accuracy.labels()):
        groups = short_groups(accuracy)
    return replace(findings, groups=groups, ids=ends_of_paths(findings.ids), view=replace(findings.view, axes=axes))


def ends_of_paths(names: Sequence[str]) -> tuple[str, ...]:
    """Paths without folders, or with as many as tell them apart; other names stay.

    So a page does not disclose where pictures lie on a machine.
    """
    if not any("/" in name for name in names) or not all(PurePosixPath(name).suffix for name in names):
        return tuple(names)
    parts = [[part for part in name.split("/") if part] or [name] for name in names]
    different = len(set(names))
    for kept in range(1, max(map(len, parts)) + 1):
        ends = tuple("/".join(one[-kept:]) for one in parts)
        if len(set(ends)) == different:
            break
    return ends


def short_groups(accuracy: GroupAccuracy) -> tuple[str, ...]:
    """Short names of all groups; names that are equal after they are cut get a number."""
    labels = [clipped(name, MAX_CLASS_NAME) for name in accuracy.names]
    classes = [[clipped(str(value), MAX_CLASS_NAME) for value in values] for _, values in accuracy.groups()]
    if all(
        isinstance(value, str) and value.strip() and not is_number(value)
        for level in accuracy.levels
        for value in level
    ):
        names = [" · ".join(values) for values in classes]
    else:
        names = [", ".join(f"{n}={v}" for n, v in zip(labels, values, strict=True)) for values in classes]
    total, seen, found = Counter(names), Counter[str](), []
    for name in names:
        seen[name] += 1
        found.append(f"{name} ({seen[name]})" if total[name] > 1 else name)
    return tuple(found)


def verdict(findings: Findings) -> list[str]:
    """The verdict as plain sentences; warnings come first."""
    short = with_short_names(findings)
    return [*findings.warnings, *sentences(short), *context_sentences(short)]


def sentences(findings: Findings) -> list[str]:
    """The recommendation, what was removed, what that does to accuracies, and what probes still find."""
    return [
        *_recommended(findings),
        _directions(findings),
        *_accuracies(findings),
        *_guessing(findings),
        *_leaks(findings),
    ]


def context_sentences(findings: Findings) -> list[str]:
    """Context of the figures: what does as well, the gap that remains, chance, and what to do next."""
    task = []
    if findings.method == "JSE" and not findings.n_main:
        so = ", so nothing protected the task from the removal" if findings.n_removed else " either"
        task = [f"No direction of {the(findings.main)} was found{so}."]
    return [
        *_others(findings.results),
        *_remaining_gap(findings),
        *task,
        *_oblique(findings),
        _next_step(findings),
    ]


def worst_name(accuracy: GroupAccuracy, groups: Sequence[str]) -> str:
    """Name of the worst group."""
    return groups[int(np.nanargmin(accuracy.accuracy))]


def _recommended(findings: Findings) -> Iterator[str]:
    """The default classifier of `unspur fit`, if it was measured here; without a removal, only the two heads."""
    result, before = findings.recommended, findings.before
    if result is None or result.accuracy is None:
        return
    if findings.n_removed:
        yield (
            f"Recommended: this removal, then a group-weighted head. It gets {_worst(result.accuracy)} in its worst "
            f"group ({worst_name(result.accuracy, findings.groups)}) and {percent(result.accuracy.average)} on average "
            "over rows."
        )
    if before.accuracy is not None and before.weighted is not None and before.weighted.accuracy is not None:
        yield (
            f"Without a removal, an unweighted head has {percent(before.accuracy.worst)} in its worst group and a "
            f"group-weighted head {percent(before.weighted.accuracy.worst)}."
        )


def _directions(findings: Findings) -> str:
    concepts = join_with_and([the(name) for name in findings.concepts])
    if not findings.n_removed:
        why = "no direction passed its tests" if findings.traces else f"{findings.method} found no direction to remove"
        return f"Nothing was removed for {concepts}: {why if findings.strength else 'its strength is 0'}."
    share = f"{count(findings.n_removed)} of {plural(findings.n_features, 'direction')}"
    in_part = f" with a strength of {findings.strength:g}, so a part is left" if findings.strength < 1 else ""
    if len(findings.concepts) == 1 and findings.traces:
        return f"{share} {'was' if findings.n_removed == 1 else 'were'} removed for {concepts}{in_part}."
    return f"{findings.method} removed {share} for {concepts}{in_part}."


def _accuracies(findings: Findings) -> Iterator[str]:
    results, groups = findings.results, findings.groups
    (before, after), removed = (result.accuracy for result in results[:2]), results[1].n_removed
    if before is None or after is None:
        problem = results[1].problem or results[0].problem or "it was not measured"
        yield f"What that does to accuracy is not known: {problem.rstrip('.')}."
        return
    worst, then = worst_name(before, groups), worst_name(after, groups)
    if not removed:
        yield f"The worst group ({worst}) stays at {_worst(before)}."
        return
    it, change, average = "it" if removed == 1 else "them", results[1].worst_change, results[1].average_change
    does = "makes no clear change to"
    if change is not None and change.clear:
        does = "raises" if change.value > 0 else "lowers"
    another = f", the worst now being {then}" if then != worst else ""
    on_average = ""
    if average is not None and not average.clear:
        on_average = f"; there is no clear change on average over rows, {_difference(average)}"
    elif average is not None:
        low, high = sorted((abs(average.low), abs(average.high)))
        on_average = (
            f", and {'costs' if average.value < 0 else 'gains'} {100 * abs(average.value):.1f} {points(average.value)} "
            f"({bounds(low, high, _clear_digits(low, high))}) on average over rows"
        )
    yield (
        f"With an unweighted head, removing {it} {does} the worst group ({worst}){':' if 'no' in does else ''} from "
        f"{_worst(before)} to {_worst(after)}{another}{on_average}."
    )


def _head(findings: Findings) -> tuple[str, GroupAccuracy | None, GroupAccuracy | None]:
    """The head to judge, which is the recommended one if it was measured, and its accuracies before and after."""
    if findings.recommended is None:
        return "an unweighted head", findings.before.accuracy, findings.after.accuracy
    weighted = findings.before.weighted
    return "a group-weighted head", None if weighted is None else weighted.accuracy, findings.recommended.accuracy


def _guessing(findings: Findings) -> Iterator[str]:
    """A sentence about a worst group for which guessing would do as well."""
    head, before, accuracy = _head(findings)
    if accuracy is None:
        return
    classes, removed = len(accuracy.classes), findings.after.n_removed
    guess = 1.0 / classes
    coin = f"{'a coin flip' if classes == 2 else f'guessing among {classes} classes'} ({chance(guess)})"
    start = f"With {head}{' after the removal' if removed else ''}, the worst group is"
    if accuracy.worst < guess:
        still, enough = (" still", " enough") if before is not None and before.worst < guess else ("", "")
        so = f", so the removal has not helped{enough}" if removed else ""
        yield f"{start}{still} below {coin}{so}."
    elif accuracy.worst_interval()[0] <= guess:
        yield f"{start} not clearly above {coin}."


def _remaining_gap(findings: Findings) -> Iterator[str]:
    """The gap between groups that remains, with the recommended head if it was measured, and what guessing achieves."""
    head, before, after = _head(findings)
    if after is None:
        return
    gap, earlier = _gap(after), ""
    if findings.after.n_removed and before is not None:
        earlier = f" ({_gap(before):.1f} before the removal)"
    yield (
        f"With {head}, the gap between the best group ({findings.groups[int(np.nanargmax(after.accuracy))]}, "
        f"{percent(float(np.nanmax(after.accuracy)))}) and the worst group is {gap:.1f} {points(gap / 100)}{earlier}."
    )
    if (edge := findings.before.grid_edge) and (penalty := findings.before.penalty) is not None:
        yield (
            f"The unweighted head on the original rows has the {edge} penalty that was tried, {penalty:g}; a "
            f"{'larger' if edge == 'largest' else 'smaller'} one may be better."
        )
    yield (
        f"Random guessing gets {chance(1 / len(after.classes))} in every group. Always predicting the most frequent "
        f"class gets {percent(after.majority)} of the rows right."
    )


def _gap(accuracy: GroupAccuracy) -> float:
    """Points between the best and the worst group."""
    return 100 * float(np.nanmax(accuracy.accuracy) - accuracy.worst)


def _others(results: Sequence[MethodResult]) -> Iterator[str]:
    """Simpler methods, each compared with the same kind of head after the removal."""
    weighted, removal = results[0].weighted, results[1]
    if not removal.n_removed or removal.accuracy is None:
        return
    if weighted is not None and weighted.accuracy is not None and weighted.worst_relative_to_removal is not None:
        start = "Without a removal, a group-weighted head is "
        yield start + _compared_with_removal(weighted, "a group-weighted head")
    fewer = [result for result in results[2:] if 0 < result.n_removed < removal.n_removed and _as_well(result)]
    if fewer:
        simplest = min(fewer, key=lambda result: result.n_removed)
        instead = f"{plural(simplest.n_removed, 'direction')} instead of {count(removal.n_removed)}"
        yield f"{simplest.name}, with {instead}, is " + _compared_with_removal(simplest, "an unweighted head")


def _as_well(result: MethodResult) -> bool:
    """Whether neither worst group nor average over groups is clearly worse than with the removal."""
    relative = (result.worst_relative_to_removal, result.average_relative_to_removal)
    return all(change is not None and change.high >= 0.0 for change in relative)


def _compared_with_removal(result: MethodResult, head: str) -> str:
    """How a result compares with the same kind of head after the removal."""
    accuracy, worst, average = result.accuracy, result.worst_relative_to_removal, result.average_relative_to_removal
    assert accuracy is not None
    assert worst is not None
    assert average is not None
    how = "clearly worse" if not _as_well(result) else "better" if worst.low > 0.0 else "not clearly worse"
    return (
        f"{how}: {_worst(accuracy)} in the worst group. The difference to {head} after this removal is "
        f"{_difference(worst)}, and {_difference(average)} on average over groups."
    )


def _oblique(findings: Findings) -> Iterator[str]:
    """What an oblique removal subtracts besides the directions that it reads."""
    if findings.oblique_angle > _RIGHT_ANGLE_DEGREES:
        concepts = join_with_and([the(name) for name in findings.concepts])
        them = "it" if len(findings.concepts) == 1 else "them"
        yield (
            f"The removal is oblique: it reads {concepts} along one direction and subtracts another, up to "
            f"{findings.oblique_angle:.0f}° away. Whatever is correlated with {concepts} in the training rows is "
            f"removed with {them}, which is a loss if the two are uncorrelated later."
        )


def _next_step(findings: Findings) -> str:
    """A command to try next."""
    if not findings.cli_source:
        return "Next, with rows of your own: unspur report FILE --task COLUMN --concept COLUMN"
    change, weighted = findings.after.worst_change, findings.before.weighted
    gains = change is not None and change.low > 0.0 and not list(_guessing(findings))
    less_without = weighted is not None and weighted.worst_relative_to_removal is not None and not _as_well(weighted)
    if gains and less_without and not any(result.n_removed > 0 and _as_well(result) for result in findings.results[2:]):
        return f"Next, use the removal: {findings.next_command}"
    return f"Next, see whether another method is clearly better: unspur compare {findings.cli_source}"


def _leaks(findings: Findings) -> Iterator[str]:
    for k, (name, leak) in enumerate(findings.after.leakage.items()):
        was = findings.before.leakage.get(name) if findings.n_removed else None
        still = "still " if leak.low > leak.chance else ""
        found = _found(f"{'It' if k else 'A linear probe'} {still}", name, leak, was)
        yield f"{found}; chance is {chance(leak.chance)}."
    for k, (name, leak) in enumerate(findings.nonlinear.items()):
        was = findings.nonlinear_before.get(name) if findings.n_removed else None
        yield _found(f"{'It' if k else 'A small network, which is not linear,'} ", name, leak, was) + "."


def _found(start: str, name: str, leak: Leakage, was: Leakage | None) -> str:
    """What a probe finds, and what it found before."""
    finds = f"finds {the(name)} at " if leak.low > leak.chance else f"does not find {the(name)} better than chance: "
    earlier = "" if was is None else f", where it was {with_interval(was.accuracy, (was.low, was.high), 0)} before"
    return f"{start}{finds}{with_interval(leak.accuracy, (leak.low, leak.high), 0)}{earlier}"


def _worst(accuracy: GroupAccuracy) -> str:
    return with_interval(accuracy.worst, accuracy.worst_interval())


def _difference(change: PairedDifference) -> str:
    return f"{signed(change.value)} {points(change.value)} ({signed_bounds(change.low, change.high)})"


def points(change: float) -> str:
    """The unit of a difference of shares: "1.0 point", "1.1 points"."""
    return "point" if f"{100 * abs(change):.1f}" == "1.0" else "points"


def subspaces(findings: Findings) -> str:
    """Sentences about angles, shared variance, and the number of rows that are drawn."""
    found, right = [], abs(min(findings.angles, default=0.0) - 90.0) < _RIGHT_ANGLE_DEGREES
    if findings.angles:
        concepts = join_with_and([named(name) for name in findings.concepts])
        counted = ["direction" if n == 1 else plural(n, "direction") for n in (findings.n_removed, findings.n_main)]
        pair = f"The {counted[0]} of {concepts} and the {counted[1]} of {named(findings.main)}"
        smallest, largest = min(findings.angles), max(findings.angles)
        if right:
            found.append(f"{pair} are at right angles (90°).")
        elif len(findings.angles) == 1:
            found.append(f"{pair} are at an angle of {smallest:.1f}°.")
        else:
            found.append(f"{pair} are at angles of {smallest:.1f}° to {largest:.1f}° (principal angles).")
    if findings.shared_variance is not None:
        share = percent(findings.shared_variance, 0 if findings.shared_variance >= 0.01 else 1)
        why = ": directions at right angles can still be correlated in the data" if right else ""
        found.append(f"In the test rows, scores along the two have {share} of their variance in common{why}.")
    rows, shown = len(findings.group), len(findings.drawn_rows)
    found.append(
        f"All {count(rows)} test rows are drawn."
        if shown == rows
        else f"Of {count(rows)} test rows {count(shown)} are drawn."
    )
    if unknown := int((findings.group < 0).sum()):
        found.append(f"In {count(unknown)} test rows the concept is not known; they are in no group.")
    return " ".join(found)
