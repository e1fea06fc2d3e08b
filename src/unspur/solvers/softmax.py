"""Weighted logistic regression for two or more classes, solved exactly.

::

    minimise over W, b    Σ ω_i ℓ(W (z_i − c) + b, y_i)  +  λ/2 ‖W‖²,      λ = weight_decay · tr(C) / rank(C)

c and C are centre and second moment of the rows, so neither their scale nor their offset matters. W = A Tᵀ in the
coordinates of `solvers.whitening`, in which the Hessian is close to a multiple of the identity: L-BFGS needs a few
dozen passes over the rows however stretched they are. Weights stay in the span of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from unspur._threads import one_scipy_thread
from unspur._typing import FloatArray
from unspur.rows import RowSource, Weighting
from unspur.solvers.lbfgs import minimize
from unspur.solvers.outcome import Outcome, outcome_of, rounding_error, warn_not_converged
from unspur.solvers.whitening import Geometry, Whitening
from unspur.sums.moments import Moments
from unspur.sums.softmax import CellLosses, LinearLogits, SoftmaxLoss, n_logits

#: The Hessian in an intercept is at most ¼, as that in whitened coordinates is 1 when an intercept counts double.
INTERCEPT = 2.0
#: Gradient in whitened coordinates below which a label has no trace in the rows: what there is to gain, its square, is
#: below the rounding error of the objective.
TRACE = 1e-7


@dataclass(frozen=True, slots=True)
class FitOutcome(Outcome):
    """How the fit of a last layer ended; `gap` bounds how far a minimax is from its solution (0 for a plain fit)."""

    gap: float = 0.0

    def warn_unless_converged(self) -> None:
        """Issue a NotConvergedWarning with the reason and a remedy."""
        if not self.converged:
            warn_not_converged("layer", f"The last layer was not solved: {self.reason}. {self.remedy}")


@dataclass(frozen=True, slots=True)
class LinearModel:
    """Weights (k, d) and intercepts (k,) of logits ``W (z − centre) + b``, and how they were found."""

    weights: FloatArray
    intercepts: FloatArray
    centre: FloatArray
    outcome: FitOutcome

    def logits(self, *, centred: bool = True) -> LinearLogits:
        """The logits as a function of blocks."""
        return LinearLogits(self.weights, self.intercepts, self.centre, centred)

    @property
    def offset(self) -> FloatArray:
        """Intercepts for rows that are not centred, shape (k,)."""
        return np.asarray(self.intercepts - self.weights @ self.centre)


class CountedObjective(Protocol):
    """A smooth function of coordinates x that counts its evaluations."""

    evaluations: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type that products with rows are taken in."""

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Value and gradient."""


@dataclass
class SoftmaxObjective:
    """Value and gradient in the coordinates ``x = (A, b / 2)``, shape (k·r + k,)."""

    rows: RowSource
    weighting: Weighting
    whitening: Whitening
    n_logits: int
    precise: bool = False
    evaluations: int = field(default=0, init=False)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type that products with rows are taken in."""
        return np.dtype(np.float64) if self.precise else self.rows.dtype

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.n_logits * (int(self.whitening.transform.shape[1]) + 1)

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Objective and gradient at x."""
        self.evaluations += 1
        k, logits = self.n_logits, self.logits(x)
        sums = self.rows.sum(SoftmaxLoss(logits, self.weighting))
        decay = self.whitening.decay
        gradient = sums[1 + k :].reshape(logits.weights.shape) + decay * logits.weights
        value = float(sums[0]) + 0.5 * decay * float(np.sum(logits.weights**2))
        return value, np.append(gradient @ self.whitening.transform, INTERCEPT * sums[1 : 1 + k])

    def logits(self, x: FloatArray) -> LinearLogits:
        """Weights and intercepts at x."""
        k, geometry = self.n_logits, self.whitening.geometry
        weights = x[:-k].reshape(k, -1) @ self.whitening.transform.T
        return LinearLogits(weights, INTERCEPT * x[-k:], geometry.centre, geometry.far_from_zero, self.precise)

    def at(self, model: LinearModel) -> FloatArray:
        """The x whose logits are these (weights brought to the span of the rows)."""
        centre = self.whitening.geometry.centre
        intercepts = model.intercepts + model.weights @ (centre - model.centre)
        return np.append(self.whitening.coordinates(model.weights.T).T, intercepts / INTERCEPT)

    def start(self) -> tuple[FloatArray, float]:
        """Zero weights with the intercepts that fit the shares of the classes, and the gradient at x = 0 (a unit)."""
        k = self.n_logits
        x = np.zeros(self.size)
        gradient = self(x)[1]
        # At x = 0 the gradient in an intercept is 1/K − share; shares of zero have no finite intercept.
        share = np.clip(1.0 / max(k, 2) - gradient[-k:] / INTERCEPT, 1e-6, 1.0 - 1e-6)
        intercepts = np.log(share / (1.0 - share)) if k == 1 else np.log(share) - np.log(share).mean()
        x[-k:] = intercepts / INTERCEPT
        return x, float(np.linalg.norm(gradient))

    def model(self, x: FloatArray, outcome: FitOutcome) -> LinearModel:
        """The model at x."""
        logits = self.logits(x)
        return LinearModel(logits.weights, logits.intercepts, logits.centre, outcome)


def whitening_of(rows: RowSource, weighting: Weighting, weight_decay: float) -> Whitening:
    """Coordinates and penalty for the rows under these weights: two passes."""
    geometry = Geometry.of(Moments.of(rows, weighting), rows.dtype.itemsize)
    return Whitening.of(geometry, weight_decay)


def solve_softmax(
    rows: RowSource,
    weighting: Weighting,
    whitening: Whitening,
    n_classes: int,
    *,
    start: LinearModel | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> LinearModel:
    """Logistic regression of the main label on the rows.

    Parameters
    ----------
    weighting : row weights ω, summing to one.
    whitening : coordinates and penalty, for instance from `whitening_of`.
    start : a solution of a neighbouring problem.
    tol : bound on the gradient in whitened coordinates, relative to the one at zero weights and intercepts.

    Non-convergence is an outcome with a reason; the weights are then those of the last iterate.
    """
    objective = SoftmaxObjective(rows, weighting, whitening, n_logits(n_classes))
    x, scale = objective.start()
    x, outcome = minimise(objective, x if start is None else objective.at(start), scale, tol, max_iter)
    return objective.model(x, outcome)


def minimise(
    objective: CountedObjective, x: FloatArray, scale: float, tol: float, max_iter: int
) -> tuple[FloatArray, FitOutcome]:
    """Descend from x until the gradient norm is below ``tol · scale``; where that ended, and why."""
    scale = max(scale, TRACE)
    with one_scipy_thread():
        end = minimize(objective, x, tol * scale, max_iter, rounding_error(objective.dtype) * scale)
    judged = outcome_of(end, tol * scale, scale, objective.dtype, objective.evaluations)
    return end.x, FitOutcome(judged.converged, judged.reason, judged.objective, judged.gradient, judged.evaluations)


def cell_losses(rows: RowSource, logits: LinearLogits, totals: FloatArray) -> FloatArray:
    """Mean loss in each cell, shape (n_cells,), with `totals` the weight of each; 0 where a cell is empty."""
    sums = rows.sum(CellLosses(logits, len(totals)))
    return np.asarray(sums / np.where(totals > 0, totals, 1.0))


def average(models: list[LinearModel]) -> LinearModel:
    """Mean of the weights and intercepts of models with one centre; the outcome is that of the worst."""
    worst = min((m.outcome for m in models), key=lambda outcome: (outcome.converged, -outcome.gradient))
    return replace(
        models[0],
        weights=np.mean([m.weights for m in models], axis=0),
        intercepts=np.mean([m.intercepts for m in models], axis=0),
        outcome=replace(worst, evaluations=sum(m.outcome.evaluations for m in models)),
    )
