"""Intervals: of proportions (one, several at once, the smallest, their mean), and of differences on the same rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv
from scipy.stats import binom, norm

from unspur._reading import brief
from unspur._typing import Array, BoolArray, FloatArray
from unspur.exceptions import InputError

if TYPE_CHECKING:
    from unspur.metrics.groups import GroupAccuracy

#: No p-value is computed beyond this many standard errors: 1e-299 is small enough.
MAX_STANDARD_ERRORS = 37.0


def exact_bounds(correct: Array, rows: Array, tail: float) -> FloatArray:
    """Bounds that a proportion is beyond with probability `tail` each (Clopper and Pearson, 1934), shape (..., 2).

    Whatever the proportion and the number of rows. Score intervals (Wilson's) are narrower by a tenth at 30 rows and
    hold their level on average over proportions only: near 0 and 1 a 95 % interval covers 84 %, at 30 rows and an
    accuracy of 99.5 % 86 %. Numbers of rows need not be whole (effective rows of weighted ones); NaN without rows.
    """
    x, n = np.asarray(correct, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    return np.stack([_lower(x, n, tail), 1.0 - _lower(n - x, n, tail)], axis=-1)


def simultaneous_bounds(correct: Array, rows: Array, level: float) -> FloatArray:
    """Bounds that hold for all of G independent proportions at once with probability `level`; shape (..., 2).

    Each is exact at the level ``level^(1/G)`` (Šidák), G the number of those with rows.
    """
    groups = max(1, int(np.count_nonzero(np.asarray(rows) > 0)))
    return exact_bounds(correct, rows, (1 - level ** (1 / groups)) / 2)


def expected_minimum(share: FloatArray, rows: Array, points: int = 4096) -> float:
    """Mean of ``min_g X_g / n_g`` over independent ``X_g ~ Binomial(n_g, share_g)``: ∫ Π_g P(X_g / n_g > t) dt."""
    spread = np.sqrt(share * (1 - share) / rows)
    low = max(0.0, float((share - 9 * spread).min()))
    high = min(1.0, float((share + 9 * spread).min()))
    t = low + (np.arange(points) + 0.5) * (high - low) / points
    above = np.prod([binom.sf(np.floor(n * t), n, p) for n, p in zip(rows, share, strict=True)], axis=0)
    return low + (high - low) * float(above.mean())


def mean_interval(share: FloatArray, rows: FloatArray, z: float) -> tuple[float, float]:
    """Bounds of the plain mean of k independent proportions from the exact bounds l, u of each (Zou and Donner, 2008).

    ``mean ∓ √Σ a² / k`` with ``a = p − l`` below and ``u − p`` above, neither less than half of u − l: small shares are
    skewed, their mean hardly is.
    """
    low, high = exact_bounds(share * rows, rows, float(norm.sf(z))).T
    below, above = combined(share, low, high)
    mean = float(share.mean())
    return max(0.0, mean - below), min(1.0, mean + above)


def combined(value: FloatArray, low: FloatArray, high: FloatArray) -> tuple[float, float]:
    """How far the bounds of a mean of k independent estimates are below and above it, from the bounds of each."""
    half = (high - low) / 2
    below, above = (np.linalg.norm(np.maximum(part, half)) / len(value) for part in (value - low, high - value))
    return float(below), float(above)


def p_above(share: FloatArray, rows: FloatArray, value: float) -> float:
    """One-sided p-value of "the mean is above `value`": the level at which the bound of `mean_interval` reaches it.

    ½ where `value` lies between the bounds even at level zero: exact ones leave room there.
    """
    low, high = mean_interval(share, rows, 0.0)
    if low <= value <= high:
        return 0.5
    side = 0 if value < low else 1

    def gap(z: float) -> float:
        return mean_interval(share, rows, z)[side] - value

    z = MAX_STANDARD_ERRORS if gap(0.0) * gap(MAX_STANDARD_ERRORS) > 0 else float(brentq(gap, 0.0, MAX_STANDARD_ERRORS))
    return float(norm.sf(z) if side == 0 else norm.cdf(z))


def _lower(correct: FloatArray, rows: FloatArray, tail: float) -> FloatArray:
    """The proportion at which so many or more are right with probability `tail`; 0 for none, NaN without rows."""
    some = np.maximum(correct, np.finfo(np.float64).tiny)
    bound = np.where(correct > 0, betaincinv(some, rows - correct + 1.0, tail), 0.0)
    return np.where(rows > 0, bound, np.nan)


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
