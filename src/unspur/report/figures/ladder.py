"""The ladder of tests: every direction that a fit tested, its two statistics, and the decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from unspur.exceptions import InputError
from unspur.report.figures.style import (
    GREY,
    MIN_FONT_SIZE,
    Width,
    add_legend,
    handle,
    inches,
    literal,
    new_figure,
    styled,
)
from unspur.report.results import Findings
from unspur.trace import Step, Trace, Traces

_ROW = 0.19
#: The scale is linear up to about this t, and logarithmic beyond.
_LINEAR = 2.0
_TICKS = tuple(sign * step * 10.0**power for power in range(16) for step in (3, 10) for sign in (-1, 1))
_ROLES = {"spurious": "spurious", "main": "main task"}
#: Inches from which on there is room for reasons beside the rungs.
_WIDE = 5.0
_TESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("informative: predicts its label better than chance", {"marker": "o", "color": "#0072B2"}),
    ("specific: … and better than the other label", {"marker": "D", "color": "#D55E00"}),
)


@styled
def ladder(
    trace: Trace | Traces | Findings, *, significance_level: float | None = None, width: Width = "column"
) -> Any:
    """Every direction tested, in order: its two statistics against the threshold, and whether it was accepted.

    Statistics are drawn with the sign that favours the direction to the right: those beyond the line pass, and have
    filled markers. The axis is linear around 0 and logarithmic far out. Wide figures have room for the reasons.

    Parameters
    ----------
    trace : `trace_` of a fitted JSE or INLP, or findings.
    significance_level : level of the threshold; by default that of the tests.
    width : "column", "page", or inches.

    Examples
    --------
    >>> from unspur import JSE
    >>> from unspur.datasets import make_toy
    >>> from unspur.report import figures
    >>> toy = make_toy(1000, rho=0.8, random_state=0)
    >>> figures.ladder(JSE(random_state=0).fit(toy.Z, toy.y, concept=toy.concept).trace_)
    <Figure size ...>
    """
    parts = _parts(trace)
    level = significance_level
    if level is None:
        level = next(step.verdict.level for part in parts.values() for step in part)
    if not 0 < level < 0.5:
        raise InputError(f"significance_level is a probability between 0 and 0.5, such as 0.05; got {level}.")
    rungs, both = _rungs(parts), _two_tests(parts)
    threshold, size = -float(ndtri(level)), inches(width)
    figure = new_figure(size, 0.4 + _ROW * len(rungs) * (1.25 if size >= _WIDE else 1.0))
    axis = figure.subplots()
    tests = _TESTS if both else _TESTS[:1]
    for y, rung in enumerate(rungs):
        if rung.step is not None:
            _draw_rung(axis, y, rung.step, level, threshold, tests)
    _finish(axis, rungs, threshold, size)
    entries = [handle(words, linestyle="", **look) for words, look in tests]
    line = {"color": "0.25", "linestyle": (0, (4, 2)), "linewidth": 0.9}
    entries.append(handle("open: does not pass", marker="o", color=GREY, markerfacecolor="white", linestyle=""))
    entries.append(handle(f"threshold {threshold:.2f} ({100 * level:g} % level)", **line))
    add_legend(figure, entries, size)
    return figure


@dataclass(frozen=True, slots=True)
class _Rung:
    """One line of the ladder: a step, or the name of the part that begins here."""

    label: str
    step: Step | None = None


def _parts(trace: Trace | Traces | Findings) -> Mapping[str, Trace]:
    if isinstance(trace, Findings):
        parts: Mapping[str, Trace] = trace.traces
    elif isinstance(trace, Traces):
        parts = trace.parts
    elif isinstance(trace, Trace):
        parts = {"": trace}
    else:
        parts = {}
    if not any(len(part) for part in parts.values()):
        what = f"{trace.method} tested no directions" if isinstance(trace, Findings) else f"got {type(trace).__name__}"
        raise InputError(f"A ladder needs the tests of a fit: `trace_` of JSE or INLP, or findings of one; {what}.")
    return parts


def _rungs(parts: Mapping[str, Trace]) -> list[_Rung]:
    rungs = []
    for name, trace in parts.items():
        if len(parts) > 1:
            rungs.append(_Rung(name))
        rungs += [_Rung(f"{_ROLES[step.verdict.role]}  {step.place}", step) for step in trace]
    return rungs


def _two_tests(parts: Mapping[str, Trace]) -> bool:
    """Whether the second test, "specific", decides too; methods that know one label (INLP) accept by the first."""
    accepted = [step.verdict for trace in parts.values() for step in trace if step.verdict.proper]
    return all("better than the" in verdict.reason for verdict in accepted)


def _draw_rung(axis: Any, y: int, step: Step, level: float, threshold: float, tests: Any) -> None:
    verdict = step.verdict
    informative, own = (test.scaled(level, threshold) for test in (verdict.informative, verdict.own))
    values = (-informative, own if verdict.role == "main" else -own)
    for k, (value, (_, look)) in enumerate(zip(values, tests, strict=False)):
        passed = value > threshold
        at = y + (k - (len(tests) - 1) / 2) * 0.34
        face = look["color"] if passed else "white"
        axis.plot([0, value], [at, at], color="0.75", linewidth=0.7, zorder=2)
        axis.plot([value], [at], **look, markersize=4.2, markerfacecolor=face, markeredgewidth=0.9, zorder=3)


def _finish(axis: Any, rungs: list[_Rung], threshold: float, size: float) -> None:
    axis.set_xscale("asinh", linear_width=_LINEAR)
    low, high = axis.get_xlim()
    low, high = min(low, -_LINEAR), max(high, 2 * threshold)
    ticks = _ticks(low, high)
    axis.set_xticks(ticks, [f"{tick:,.0f}".replace("-", "−") if abs(tick) < 1e5 else f"{tick:.0e}" for tick in ticks])
    axis.minorticks_off()
    axis.set(xlim=(low, high), ylim=(len(rungs) - 0.45, -0.55))
    axis.axvline(0, color="0.85", linewidth=0.6, zorder=0.5)
    axis.axvline(threshold, color="0.25", linestyle=(0, (4, 2)), linewidth=0.9, zorder=1)
    axis.axvspan(threshold, high, color="0.95", linewidth=0, zorder=0)
    axis.set_yticks(range(len(rungs)), [rung.label if rung.step else "" for rung in rungs])
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.set_xlabel("standard errors in its favour")
    for y, (rung, tick) in enumerate(zip(rungs, axis.get_yticklabels(), strict=True)):
        if rung.step is None:
            _write_heading(axis, y, literal(rung.label, int(11 * size), 1))
            continue
        if not rung.step.inner:  # a step of the outer loop
            tick.set(fontweight="bold")
        verdict = rung.step.verdict
        _write_beside(axis, y, 5, "✓ accepted" if verdict.proper else "✗ rejected", "black" if verdict.proper else GREY)
        if size >= _WIDE:
            _write_beside(axis, y, 56, literal(verdict.reason, 46, 2), GREY)


def _ticks(low: float, high: float) -> list[float]:
    """0, and those of 3, 10, 30, 100, … that are not too close to each other."""
    least = (np.arcsinh(high / _LINEAR) - np.arcsinh(low / _LINEAR)) / 9
    ticks = [0.0]
    for sign in (-1.0, 1.0):
        last = 0.0
        for tick in sorted((tick for tick in _TICKS if sign * tick > 0 and low <= tick <= high), key=abs):
            if abs(np.arcsinh(tick / _LINEAR) - np.arcsinh(last / _LINEAR)) >= least:
                ticks.append(tick)
                last = tick
    return sorted(ticks)


def _write_heading(axis: Any, y: int, words: str) -> None:
    """Write a heading on a line of its own, from the left end of the panel."""
    box = {"facecolor": "white", "linewidth": 0, "pad": 1.0}
    at: Any = {"transform": axis.get_yaxis_transform(), "va": "center", "bbox": box, "zorder": 4}
    axis.text(0.0, y, words, **at, fontsize=MIN_FONT_SIZE, fontweight="bold").set_in_layout(False)


def _write_beside(axis: Any, y: int, points: float, words: str, colour: str) -> None:
    """Write words so many points to the right of the panel, level with a rung."""
    at: Any = {"xycoords": axis.get_yaxis_transform(), "xytext": (points, 0), "textcoords": "offset points"}
    axis.annotate(words, (1.0, y), **at, va="center", fontsize=MIN_FONT_SIZE, color=colour)
