"""The ladder of tests: every direction tried, with its two statistics against their thresholds.

Statistics reach from some −600 to some +20, and thresholds lie at ±1.6: the scale is ``asinh(t / z)``, linear around
zero and logarithmic far out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from scipy.special import ndtri

from unspur.criteria import TTest
from unspur.report.page import formatting
from unspur.report.page.charts import Tick
from unspur.report.results import Findings
from unspur.trace import Step, Trace

#: Statistics beyond are drawn at the edge, as an arrow: without any variation t is as large as rounding allows.
MAX_T = 2000.0
#: Steps up to which a ladder is one table; a longer one has another of the spurious directions alone.
MAX_SINGLE_TABLE_STEPS = 14
#: Percent of the width that a character of a tick's label takes, and the gap between two labels.
_CHARACTER, _GAP = 3.3, 5.0
_CANDIDATES = (10.0, 100.0, 1000.0, 3.0, 30.0, 300.0)

Side: TypeAlias = Literal["below", "above", "none"]


@dataclass(frozen=True, slots=True)
class TScale:
    """From t, scaled so that its critical value is z, to percent of the width."""

    z: float
    low: float
    high: float

    def at(self, t: float) -> float:
        """Where t lies; what lies outside is at the edge, what is not known at zero."""
        t = 0.0 if math.isnan(t) else t
        start, end, here = (math.asinh(value / self.z) for value in (self.low, self.high, t))
        return round(100 * min(1.0, max(0.0, (here - start) / (end - start))), 3)


@dataclass(frozen=True, slots=True)
class Statistic:
    """One statistic: in words, where it lies, the region that accepts (from, to), and whether it lies in it."""

    t: str
    p: str
    at: float
    region: tuple[float, float] | None
    threshold: float | None
    passed: bool
    beyond: bool


@dataclass(frozen=True, slots=True)
class Rung:
    """One direction that was tried."""

    place: str
    role: str
    outer: bool
    informative: Statistic
    own: Statistic
    accepted: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Ladder:
    """All directions of one trace; `main` of them are those of the outer loop where there are many."""

    name: str
    rungs: tuple[Rung, ...]
    ticks: tuple[Tick, ...]
    zero: float
    #: What was accepted, and why there was no more, in formatting.
    passed: str
    stopped: str
    delta: str
    weight_decay: str
    short: bool
    #: Whether the second test decides, too; INLP knows one label only.
    two_tests: bool
    #: What round 0 is, where there is one.
    needed_first: str = ""

    @property
    def outer(self) -> tuple[Rung, ...]:
        """The spurious directions alone."""
        return tuple(rung for rung in self.rungs if rung.outer)


def ladders(findings: Findings) -> list[Ladder]:
    """One for each trace, all on the same scale."""
    z = -float(ndtri(findings.significance_level))
    steps = [step for trace in findings.traces.values() for step in trace]
    tests = [(test, step.verdict.level) for step in steps for test in (step.verdict.informative, step.verdict.own)]
    scale = t_scale(z, [test.scaled(level, z) for test, level in tests])
    return [_ladder(name, trace, scale, findings.method) for name, trace in findings.traces.items()]


def t_scale(z: float, values: Iterable[float]) -> TScale:
    """A scale that holds all values (up to `MAX_T`) and shows both thresholds with some room."""
    inside = [max(-MAX_T, min(MAX_T, value)) for value in values if not math.isnan(value)]
    return TScale(z, 1.35 * min([-2.5 * z, *inside]), 1.35 * max([2.5 * z, *inside]))


def _ladder(name: str, trace: Trace, scale: TScale, method: str) -> Ladder:
    two = method != "INLP" and _two_tests(trace, scale.z)
    rungs = tuple(_rung(step, scale, two) for step in trace)
    return Ladder(
        name=formatting.clipped(name, 80),
        rungs=rungs,
        ticks=tuple(_ticks(scale)),
        zero=scale.at(0.0),
        passed=f"{trace.passed} were accepted" if len(trace) else "no direction was tried",
        stopped=trace.stopped,
        delta=f"{trace.delta:.3g}".replace("-", "−"),
        weight_decay=f"{trace.weight_decay:g}",
        short=len(rungs) <= MAX_SINGLE_TABLE_STEPS
        or all(rung.outer for rung in rungs)
        or not any(rung.outer for rung in rungs),
        two_tests=two,
        needed_first=trace.needed_first,
    )


def _two_tests(trace: Trace, z: float) -> bool:
    """Whether every accepted direction passed the second test: else it was not asked."""
    return all(_passes(step, z) for step in trace if step.verdict.proper)


def _passes(step: Step, z: float) -> bool:
    t = step.verdict.own.scaled(step.verdict.level, z)
    return t > z if step.verdict.role == "main" else t < -z


def _rung(step: Step, scale: TScale, two: bool) -> Rung:
    verdict = step.verdict
    side: Side = "none" if not two else "above" if verdict.role == "main" else "below"
    return Rung(
        place=f"{step.outer}.{step.inner}" if step.inner else f"{step.outer}",
        role="main task" if verdict.role == "main" else "spurious",
        outer=step.inner == 0,
        informative=_test(verdict.informative, verdict.level, scale, "below"),
        own=_test(verdict.own, verdict.level, scale, side),
        accepted=verdict.proper,
        reason=verdict.reason,
    )


def _test(test: TTest, level: float, scale: TScale, side: Side) -> Statistic:
    t = test.scaled(level, scale.z)  # where it lies; in words it is as it was computed
    threshold = None if side == "none" else scale.at(scale.z if side == "above" else -scale.z)
    region = None
    if threshold is not None:
        region = (threshold, 100.0) if side == "above" else (0.0, threshold)
    passed = {"below": t < -scale.z, "above": t > scale.z, "none": False}[side]
    told = formatting.statistic(test.t), formatting.p_value(test.p)
    return Statistic(*told, scale.at(t), region, threshold, passed, abs(t) > MAX_T)


def _ticks(scale: TScale) -> list[Tick]:
    """The thresholds first, then zero and round numbers where there is room."""
    chosen: list[Tick] = []
    values: Sequence[float] = (-scale.z, scale.z, 0.0, *(sign * c for c in _CANDIDATES for sign in (-1.0, 1.0)))
    for value in values:
        tick = Tick(scale.at(value), formatting.number(value, 0 if value == int(value) else 2))
        inside = scale.low < value < scale.high and 3.0 <= tick.at <= 97.0
        gap = _GAP if abs(value) != scale.z else 0.0  # the thresholds both, if that is possible at all
        if inside and all(abs(tick.at - other.at) >= _apart(tick, other) + gap for other in chosen):
            chosen.append(tick)
    return sorted(chosen, key=lambda tick: tick.at)


def _apart(one: Tick, other: Tick) -> float:
    """Percent of the width between two ticks at which their labels touch."""
    return _CHARACTER * (len(one.label) + len(other.label)) / 2
