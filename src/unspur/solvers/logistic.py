"""Logistic regression for one label, exactly: what INLP and RLACE ask for again and again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unspur._threads import one_scipy_thread
from unspur._typing import FloatArray
from unspur.rows import RowSource, Weighting
from unspur.solvers.lbfgs import minimize
from unspur.solvers.outcome import Outcome, outcome_of, rounding_error
from unspur.solvers.whitening import Whitening
from unspur.sums.logistic import LogisticLosses


@dataclass(frozen=True, slots=True)
class Logistic:
    """Weights (d,) on centred rows, intercept, and how the solver did."""

    weights: FloatArray
    intercept: float
    outcome: Outcome


def solve_logistic(
    rows: RowSource,
    weighting: Weighting,
    whitening: Whitening,
    label: int,
    *,
    start: Logistic | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> Logistic:
    """Minimise ``Σ ω ℓ(z·w + b, label) + λ/2 ‖w‖²`` over w in the subspace that `whitening` allows.

    Convex, so `start` only saves time. `tol` bounds the gradient in whitened coordinates, relative to zero weights.
    """
    geometry, evaluations = whitening.geometry, 0

    def at(x: FloatArray) -> tuple[float, FloatArray]:
        nonlocal evaluations
        evaluations += 1
        weights = whitening.weights(whitening.allow(x[:-1]))
        loss = LogisticLosses.of_one(
            weights[None], x[-1:], geometry.centre, weighting, centred=geometry.far_from_zero, only=label
        )
        sums = rows.sum(loss)[0, 0]
        gradient = sums[2:] + whitening.decay * weights
        value = float(sums[0]) + 0.5 * whitening.decay * float(weights @ weights)
        return value, np.append(whitening.pull_back(gradient), sums[1])

    zero = np.zeros(whitening.transform.shape[1] + 1)
    _, slope = at(zero)
    scale = max(float(np.hypot(np.linalg.norm(slope[:-1]), 2.0 * abs(slope[-1]))), float(np.finfo(np.float64).tiny))
    first = zero
    if start is not None:
        first = np.append(whitening.coordinates(start.weights), start.intercept)
    with one_scipy_thread():
        end = minimize(at, first, tol * scale, max_iter, rounding_error(rows.dtype) * scale)
    outcome = outcome_of(end, tol * scale, scale, rows.dtype, evaluations)
    return Logistic(whitening.weights(whitening.allow(end.x[:-1])), float(end.x[-1]), outcome)
