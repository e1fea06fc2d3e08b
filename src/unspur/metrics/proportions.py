"""Intervals of proportions: one, several at once, the smallest of several, and their mean."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv
from scipy.stats import binom, norm

from unspur._typing import Array, FloatArray

#: No p-value is computed beyond this many standard errors: 1e-299 is small enough.
FARTHEST = 37.0


def wilson(share: Array, rows: Array, z: float) -> FloatArray:
    """Wilson's bounds ``(p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n)``, shape (..., 2); NaN without rows."""
    p, n = np.asarray(share, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return np.stack([np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)], axis=-1)


def simultaneous_bounds(correct: Array, rows: Array, level: float) -> FloatArray:
    """Bounds that hold for all of G independent proportions at once with probability `level`; shape (..., 2).

    Each is taken at the level ``level^(1/G)`` (Šidák): Wilson's bounds, or the exact ones of Clopper and Pearson where
    these are wider. Wilson's alone do not hold their level near 0 and 1, and over several groups that adds up: with
    four groups at an accuracy of 1 − 0.1/n they cover the smallest in 61 % of samples instead of 95 %.
    """
    x, n = np.asarray(correct, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    tail = (1 - level ** (1 / max(1, int(np.sum(n > 0))))) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = np.moveaxis(wilson(x / n, n, float(norm.isf(tail))), -1, 0)
    exact_low = np.where(x > 0, betaincinv(np.maximum(x, 1), n - x + 1, tail), 0.0)
    exact_high = np.where(x < n, betaincinv(x + 1, np.maximum(n - x, 1), 1 - tail), 1.0)
    return np.stack([np.minimum(low, exact_low), np.maximum(high, exact_high)], axis=-1)


def expected_minimum(share: FloatArray, rows: Array, points: int = 4096) -> float:
    """Mean of ``min_g X_g / n_g`` over independent ``X_g ~ Binomial(n_g, share_g)``: ∫ Π_g P(X_g / n_g > t) dt."""
    spread = np.sqrt(share * (1 - share) / rows)
    low = max(0.0, float((share - 9 * spread).min()))
    high = min(1.0, float((share + 9 * spread).min()))
    t = low + (np.arange(points) + 0.5) * (high - low) / points
    above = np.prod([binom.sf(np.floor(n * t), n, p) for n, p in zip(rows, share, strict=True)], axis=0)
    return low + (high - low) * float(above.mean())


def mean_interval(share: FloatArray, rows: FloatArray, z: float) -> tuple[float, float]:
    """Bounds of the plain mean of k independent proportions from Wilson's bounds l, u of each (Zou and Donner, 2008).

    ``mean − √Σ a² / k`` and ``mean + √Σ b² / k`` with ``a = p − l``, ``b = u − p`` (for two proportions Newcombe's
    hybrid score interval), neither below half the width of Wilson's interval: small shares are skewed, their mean
    hardly is.
    """
    low, high = wilson(share, rows, z).T
    mean, k, half = float(share.mean()), len(share), (high - low) / 2
    below, above = (float(np.linalg.norm(np.maximum(part, half))) / k for part in (share - low, high - share))
    return max(0.0, mean - below), min(1.0, mean + above)


def p_above(share: FloatArray, rows: FloatArray, value: float) -> float:
    """One-sided p-value of "the mean is above `value`": the level at which the bound of `mean_interval` reaches it."""
    mean = float(share.mean())
    if np.isclose(mean, value, rtol=0, atol=1e-12):
        return 0.5
    side = 0 if mean > value else 1

    def gap(z: float) -> float:
        return mean_interval(share, rows, z)[side] - value

    near, far = gap(0.0), gap(FARTHEST)
    z = FARTHEST if near * far > 0 else float(brentq(gap, 0.0, FARTHEST))
    return float(norm.sf(z) if side == 0 else norm.cdf(z))
