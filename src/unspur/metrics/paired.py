"""How much better one set of answers is than another on the same rows, with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from unspur._reading import brief
from unspur._typing import Array, BoolArray
from unspur.exceptions import InputError
from unspur.metrics.groups import GroupAccuracy
from unspur.metrics.proportions import combined


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Share right in the second set − share right in the first, and the bounds of its interval."""

    value: float
    low: float
    high: float


def paired_difference(before: Array, after: Array, group: Array | None = None, level: float = 0.95) -> PairedDifference:
    """Difference of two accuracies on the same rows, over all rows alike or as the mean over groups.

    Rows that are right in both sets, or in neither, say nothing about the difference; what is left are b rows that only
    the second set has right and c that only the first has. The bounds of ``(b − c) / n`` are Tango's (1998) with a
    correction for continuity: all Δ that a score test does not reject,

    ::

        |b − c − nΔ| ≤ h + z √(n (2q + Δ − Δ²)),    q the most likely share of c-rows if the difference is Δ,
                                                    h = ½ (1 + (b + c) / n)

    b − c goes in steps of one where most rows say nothing, and of two where all differ; h is half a step. With it the
    interval covers at least at its level for any shares and two rows or more; without it a 95 % one covers 93 % where
    few rows differ. It is not empty where b = c = 0. With groups, each has such bounds l, u around its difference d,
    and those of the mean over k groups are ``mean ∓ √Σ a² / k`` with a = d − l below and u − d above (Zou and Donner,
    2008), neither less than half of u − l.

    Parameters
    ----------
    before, after : whether each answer is right, shape (n,).
    group : number of each row's group, shape (n,); groups count the same then. Without it, rows do.
    """
    first, second = _answers(before, after)
    if not 0 < level < 1:
        raise InputError(f"level is a probability between 0 and 1, such as 0.95; got {level}.")
    z = float(norm.ppf(0.5 + level / 2))
    if group is None:
        return PairedDifference(*_tango(int(np.sum(second & ~first)), int(np.sum(first & ~second)), len(first), z))
    numbers = np.unique(np.asarray(group), return_inverse=True)[1].reshape(-1)
    if numbers.shape != first.shape:
        raise InputError(f"group has {len(numbers)} values for {len(first)} rows; every row needs one.")
    better, worse, rows = (
        np.bincount(numbers, weights=counted).astype(int)
        for counted in (second & ~first, first & ~second, np.ones(len(first)))
    )
    bounds = [_tango(int(b), int(c), int(n), z) for b, c, n in zip(better, worse, rows, strict=True)]
    value, low, high = np.array(bounds).T
    mean, (below, above) = float(value.mean()), combined(value, low, high)
    return PairedDifference(mean, max(-1.0, mean - below), min(1.0, mean + above))


def worst_difference(before: GroupAccuracy, after: GroupAccuracy, level: float = 0.95) -> PairedDifference:
    """Change of the accuracy of the worst group, which may be another one afterwards.

    From the intervals l, u of the two, ``low = d − √((after − l')² + (u − before)²)`` and likewise above (Zou and
    Donner, 2008), which holds for independent accuracies. Those of the same rows go up and down together, so that the
    interval is rather too wide. Only where the second set is right on just those rows of the worst group that the first
    has wrong it can be too narrow: a 95 % interval then covers 91 % at worst.
    """
    (low, high), (lower, higher) = before.worst_interval(level), after.worst_interval(level)
    change = after.worst - before.worst
    below, above = (
        math.hypot(after.worst - lower, high - before.worst),
        math.hypot(higher - after.worst, before.worst - low),
    )
    return PairedDifference(change, max(-1.0, change - below), min(1.0, change + above))


def _tango(better: int, worse: int, n: int, z: float) -> tuple[float, float, float]:
    """(b − c) / n and the two Δ at which the score statistic is z and −z, corrected for continuity."""
    value = (better - worse) / n
    step = (1 + (better + worse) / n) / 2

    def statistic(delta: float, toward: float) -> float:
        linear = (2 * n - better + worse) * delta - better - worse
        root = np.sqrt(max(0.0, linear**2 + 8 * n * worse * delta * (1 - delta)))
        q = (root - linear) / (4 * n)
        variance = max(n * (2 * q + delta * (1 - delta)), 1e-300)  # zero where nothing but Δ itself is possible
        return float((better - worse - n * delta - toward) / np.sqrt(variance))

    # The statistic falls from +∞ to −∞, so each bound is the one root on its side.
    edge = 1 - 1e-12
    low = -1.0 if statistic(-edge, step) <= z else float(brentq(lambda at: statistic(at, step) - z, -edge, value))
    high = 1.0 if statistic(edge, -step) >= -z else float(brentq(lambda at: statistic(at, -step) + z, value, edge))
    return value, low, high


def _answers(before: Array, after: Array) -> tuple[BoolArray, BoolArray]:
    given = [np.asarray(answers) for answers in (before, after)]
    for answers in given:
        if answers.dtype.kind not in "biuf" or not np.all((answers == 0) | (answers == 1)):
            raise InputError(
                f"Answers are right or wrong: booleans, or zeros and ones; got {answers.dtype} such as "
                f"{brief(answers.ravel()[0], 40)!r}. Pass predicted == y."
            )
    first, second = (answers.astype(bool) for answers in given)
    if first.ndim != 1 or first.shape != second.shape or not len(first):
        raise InputError(
            f"Two sets of answers to the same rows, one at least, are compared; got {first.shape} and {second.shape}."
        )
    return first, second
