"""Groups by names that are short enough to read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unspur.lab.findings.values import Findings


def with_short_names(findings: Findings) -> Findings:
    """The same with groups called "waterbird · land" in place of "bird=waterbird, background=land".

    Only where every class has a name: numbers say nothing without that of their label, and names that were chosen stay.
    """
    accuracy = findings.before.accuracy
    if accuracy is None or findings.groups != tuple(accuracy.labels()):
        return findings
    if not all(_is_name(value) for level in accuracy.levels for value in level):
        return findings
    return replace(findings, groups=tuple(" · ".join(map(str, classes)) for _, classes in accuracy.groups()))


def _is_name(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return bool(value.strip())
    return False
