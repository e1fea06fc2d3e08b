"""Groups, axes and rows by names that are short enough to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from unspur.metrics import GroupAccuracy
from unspur.report.page import words
from unspur.report.results import Findings

#: Longest name of a class or a label inside of the name of a group, and of an axis.
LONGEST, LONGEST_AXIS = 48, 80


def with_short_names(findings: Findings) -> Findings:
    """The same with groups called "waterbird · land" in place of "bird=waterbird, background=land".

    Only where every class has a name: numbers say nothing without that of their label, and names that were chosen stay.
    Names that nobody would read to the end are cut, and of paths only the end is kept.
    """
    axes = tuple(replace(axis, name=words.clipped(axis.name, LONGEST_AXIS)) for axis in findings.view.axes)
    groups, accuracy = findings.groups, findings.before.accuracy
    if accuracy is not None and groups == tuple(accuracy.labels()):
        groups = short_groups(accuracy)
    return replace(findings, groups=groups, ids=ends_of_paths(findings.ids), view=replace(findings.view, axes=axes))


def ends_of_paths(names: Sequence[str]) -> tuple[str, ...]:
    """Names of files without folders, or with as many as tell them apart; names that are no paths stay.

    So a page does not say where on a machine the pictures lie, either.
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
    """Short names of all groups, each its own."""
    return _told_apart(_named(accuracy))


def _named(accuracy: GroupAccuracy) -> list[str]:
    names = [words.clipped(name, LONGEST) for name in accuracy.names]
    classes = [[words.clipped(str(value), LONGEST) for value in values] for _, values in accuracy.groups()]
    if all(_is_name(value) for level in accuracy.levels for value in level):
        return [" · ".join(values) for values in classes]
    return [", ".join(f"{n}={v}" for n, v in zip(names, values, strict=True)) for values in classes]


def _told_apart(names: Sequence[str]) -> tuple[str, ...]:
    """Numbers behind names that are the same now that they are cut."""
    many, seen, found = Counter(names), Counter[str](), []
    for name in names:
        seen[name] += 1
        found.append(f"{name} ({seen[name]})" if many[name] > 1 else name)
    return tuple(found)


def _is_name(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return bool(value.strip())
    return False
