"""Fit ``t = γ x + b`` along given scores: Newton's method on sums, all models at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unspur._typing import FloatArray, IntArray
from unspur.rows import RowSource, Weighting
from unspur.sums.scalars import ScalarLoss, Score, ScoreMoments, Standardisation

#: Penalty on γ² per unit variance of the score: keeps γ finite when the score separates the classes, and is
#: far below what any test can feel otherwise.
RIDGE = 1e-8


@dataclass(frozen=True, slots=True)
class ScalarFit:
    """Scalars of q models on standardised scores, their penalised objectives, and inverse Hessians (q, 2, 2)."""

    gamma: FloatArray
    intercept: FloatArray
    objective: FloatArray
    inverse_hessian: FloatArray
    standardise: Standardisation


def fit_scalars(
    rows: RowSource,
    score: Score,
    label: IntArray,
    weighting: Weighting,
    *,
    decay: float = 0.0,
    tol: float = 1e-9,
    max_iter: int = 50,
) -> ScalarFit:
    """Minimise ``Σω ℓ(γ x + b, label) + (decay / 2) γ²`` for every model (γ in units of the raw score).

    Convergence is quadratic and the problem convex; steps that do not lower the objective are halved.
    """
    total, first, second = rows.sum(ScoreMoments(score, weighting))
    mean = first / total
    variance = np.maximum(second / total - mean**2, 0.0)
    constant = variance <= 1e-24 * np.maximum(second / total, np.finfo(np.float64).tiny)
    standardise = Standardisation(mean, np.where(constant, 1.0, np.sqrt(variance)))
    penalty = RIDGE + decay / standardise.deviation**2

    def evaluate(theta: FloatArray) -> FloatArray:
        sums = rows.sum(ScalarLoss(theta[0], theta[1], score, standardise, label, weighting))
        sums[0] += 0.5 * penalty * theta[0] ** 2
        sums[1] += penalty * theta[0]
        sums[3] += penalty
        return sums

    theta = np.zeros((2, len(label)))
    sums = evaluate(theta)
    size = np.ones(len(label))
    for _ in range(max_iter):
        step = np.einsum("qij,jq->iq", _inverse(sums), sums[1:3])
        trial = theta - size * step
        there = evaluate(trial)
        better = there[0] <= sums[0] + 1e-15 * np.abs(sums[0])
        theta, sums = np.where(better, trial, theta), np.where(better, there, sums)
        size = np.where(better, 1.0, size / 2.0)
        if np.max(np.abs(step), initial=0.0) <= tol:
            break
    return ScalarFit(theta[0], theta[1], sums[0], _inverse(sums), standardise)


def _inverse(sums: FloatArray) -> FloatArray:
    """Inverse of the Hessians [[∂γγ, ∂γb], [∂γb, ∂bb]], shape (q, 2, 2)."""
    gg, gb, bb = sums[3], sums[4], np.maximum(sums[5], 1e-12)
    return np.moveaxis(np.stack([[bb, -gb], [-gb, gg]]) / (gg * bb - gb**2), -1, 0)
