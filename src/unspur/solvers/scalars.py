"""Fit ``t = γ x + b`` along given scores: Newton's method on sums, all models at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unspur._typing import BoolArray, FloatArray, IntArray
from unspur.rows import RowSource, Weighting
from unspur.sums.scalars import ScalarLoss, Score, ScoreMoments, Standardisation

#: Penalty on ½γ² per unit variance of the score, in rows: a prior on γ with a standard deviation of 100, which no
#: test can feel. A score that separates the classes has nothing else to hold γ once one of the few rows beside the gap
#: is left out, and one Newton step from there would end anywhere.
RIDGE_ROWS = 1e-4
#: The least of it, as a share of all rows: keeps γ finite however many there are.
RIDGE = 1e-8
#: Least curvature in b: all rows far out on the flat part of the loss leave less than rounding error.
FLAT = 1e-12


@dataclass(frozen=True, slots=True)
class ScalarFit:
    """Scalars of q models on standardised scores, their penalised objectives, and the penalties on ½γ², each (q,)."""

    gamma: FloatArray
    intercept: FloatArray
    objective: FloatArray
    penalty: FloatArray
    standardise: Standardisation
    converged: bool


def fit_scalars(
    rows: RowSource,
    score: Score,
    label: IntArray,
    weighting: Weighting,
    *,
    decay: float = 0.0,
    tol: float = 1e-5,
    max_iter: int = 50,
) -> ScalarFit:
    """Minimise ``Σω ℓ(γ x + b, label) + (decay / 2) γ²`` for every model (γ in units of the raw score).

    Steps that do not lower the objective are halved. `tol` bounds the last step; convergence is quadratic, so the
    error is of the order of its square.
    """
    total, squares, first, second, positive, positive_x = rows.sum(ScoreMoments(score, label, weighting))
    mean = first / total
    variance = np.maximum(second / total - mean**2, 0.0)
    constant = variance <= 1e-24 * np.maximum(second / total, np.finfo(np.float64).tiny)
    standardise = Standardisation(mean, np.where(constant, 1.0, np.sqrt(variance)))
    ridge = np.maximum(RIDGE, RIDGE_ROWS * squares / total**2)  # Σω² / (Σω)²: the weight of one row
    penalty = ridge + decay / standardise.deviation**2

    def evaluate(theta: FloatArray) -> FloatArray:
        sums = rows.sum(ScalarLoss(theta[0], theta[1], score, standardise, label, weighting))
        sums[0] += 0.5 * penalty * theta[0] ** 2
        sums[1] += penalty * theta[0]
        sums[3] += penalty
        return sums

    theta = np.zeros((2, len(label)))
    sums = _at_zero(total, positive, (positive_x - mean * positive) / standardise.deviation, penalty, constant)
    converged = False
    # Newton's step from zero is that of linear regression, which falls short of Gaussian classes by 1 − R².
    explained = (_newton_step(sums)[0] / 2.0) ** 2
    size = 1.0 / np.maximum(1.0 - explained, 0.1)
    for _ in range(max_iter):
        step = size * _newton_step(sums)
        trial = theta - step
        there = evaluate(trial)
        better = there[0] <= sums[0] + 1e-15 * np.abs(sums[0])
        theta, sums = np.where(better, trial, theta), np.where(better, there, sums)
        size = np.where(better, 1.0, size / 2.0)
        converged = bool(np.max(np.abs(step), initial=0.0) <= tol)
        if converged:
            break
    return ScalarFit(theta[0], theta[1], sums[0], penalty, standardise, converged)


def _newton_step(sums: FloatArray) -> FloatArray:
    """H⁻¹ g for every model, shape (2, q)."""
    g, b, gg, gb, bb = sums[1:]
    bb = np.maximum(bb, FLAT)
    return np.asarray(np.stack([bb * g - gb * b, gg * b - gb * g]) / (gg * bb - gb**2))


def _at_zero(
    total: FloatArray, positive: FloatArray, positive_x: FloatArray, penalty: FloatArray, constant: BoolArray
) -> FloatArray:
    """What `evaluate` gives at γ = b = 0, where p = ½, from moments of the standardised scores alone."""
    spread = np.where(constant, 0.0, total)
    zero = np.zeros_like(total)
    return np.stack(
        [np.log(2.0) * total, -positive_x, total / 2.0 - positive, spread / 4.0 + penalty, zero, total / 4.0]
    )
