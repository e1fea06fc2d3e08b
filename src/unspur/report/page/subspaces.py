"""How the two subspaces lie to each other, in words."""

from __future__ import annotations

from unspur.report.page import words
from unspur.report.results import Findings

#: Degrees from a right angle that are rounding.
_RIGHT = 0.05


def subspaces(findings: Findings) -> list[str]:
    """Sentences about angle and shared variance, and how many rows are drawn."""
    said = []
    if findings.angles:
        said.append(_angle(findings))
    if findings.shared is not None:
        share = words.percent(findings.shared, 0 if findings.shared >= 0.01 else 1)
        why = ": directions at right angles can still go together in the data" if _right(findings) else ""
        said.append(f"In the test rows, scores along the two have {share} of their variance in common{why}.")
    rows, shown = len(findings.group), len(findings.shown)
    drawn = f"All {words.count(rows)} test rows are drawn." if shown == rows else (
        f"Of {words.count(rows)} test rows {words.count(shown)} are drawn."
    )  # fmt: skip
    unknown = int((findings.group < 0).sum())
    if unknown:
        drawn += f" In {words.count(unknown)} test rows the concept is not known; they are in no group."
    return [*said, drawn]


def _right(findings: Findings) -> bool:
    return abs(min(findings.angles, default=0.0) - 90.0) < _RIGHT


def _angle(findings: Findings) -> str:
    smallest = min(findings.angles)
    concept, task = words.listed([words.named(name) for name in findings.concepts]), words.named(findings.main)
    counted = ["direction" if n == 1 else words.plural(n, "direction") for n in (findings.removed, findings.kept)]
    pair = f"The {counted[0]} of {concept} and the {counted[1]} of {task}"
    if _right(findings):
        return f"{pair} are at right angles (90°)."
    if len(findings.angles) == 1:
        return f"{pair} are at an angle of {smallest:.1f}°."
    return f"{pair} are at angles of {smallest:.1f}° to {max(findings.angles):.1f}° (principal angles)."
