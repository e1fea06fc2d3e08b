"""Logistic loss of a label of two or more classes, and weighted logistic regression, solved exactly.

::

    minimise over W, b    Σ ω_i ℓ(W (z_i − c) + b, y_i)  +  λ/2 ‖W‖²,      λ = weight_decay · tr(C) / rank(C)

    ℓ(t, y) = log(1 + eᵗ) − y t                 two classes, one logit
    ℓ(t, y) = log Σ_c exp(t_c) − t_y            K > 2 classes, K logits

c and C are centre and second moment of the rows, so neither their scale nor their offset matters. W = A Tᵀ in the
coordinates of `solvers.whitening`, in which the Hessian is close to a multiple of the identity: L-BFGS needs a few
dozen passes over the rows however stretched they are. Weights stay in the span of the rows.

Conventions
-----------
- k logits: 1 for two classes, else one per class; m rows of a block; d features; r ≤ d, the rank of the rows.
- weights (k, d), intercepts (k,), logits (k, m), whitened coordinates A (k, r).
- The label is line MAIN of a block's targets, as the code of its class.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from unspur._arrays import backward, cast, counting, empty64, forward, like, matching, namespace, sum_by
from unspur._threads import one_scipy_thread
from unspur._typing import Array, FloatArray
from unspur.rows import MAIN, Block, RowSource, Weighting
from unspur.solvers.lbfgs import minimize
from unspur.solvers.logistic import loss_and_probability
from unspur.solvers.outcome import MIN_LABEL_GRADIENT, Outcome, outcome_of, rounding_error, warn_not_converged
from unspur.solvers.statistics import Moments
from unspur.solvers.whitening import Geometry, Whitening

#: The Hessian in an intercept is at most ¼, as that in whitened coordinates is 1 when an intercept counts double.
INTERCEPT_SCALE = 2.0


def n_logits(n_classes: int) -> int:
    """Logits of a label of so many classes: 1 for two, else one per class."""
    return 1 if n_classes == 2 else n_classes


def loss_and_residual(logits: Array, codes: Array) -> tuple[FloatArray, FloatArray]:
    """Loss of each row, shape (m,), and its derivative in the logits ``p − [y = c]``, shape (k, m)."""
    if len(logits) == 1:
        loss, probability = loss_and_probability(logits, codes)
        return loss[0], probability - codes
    xp = namespace(logits)
    own = (cast(codes, np.int64), counting(logits.shape[1], logits))
    shifted = logits - xp.max(logits, axis=0)  # the largest exponential is one: no overflow
    residual = xp.exp(shifted)
    total = residual.sum(0)
    loss = xp.log(total) - shifted[own]
    residual /= total
    residual[own] -= 1.0
    return loss, residual


@dataclass(frozen=True, slots=True)
class LinearLogits:
    """``t = W (z − centre) + b`` for the rows of a block, shape (k, m).

    Parameters
    ----------
    weights : shape (k, d).
    intercepts : shape (k,).
    centre : shape (d,).
    centred : subtract `centre` from every block instead of from the logits; needed when rows lie so far from zero
        that their products would lose the signal.
    precise : take products in float64 whatever the rows are stored in.
    """

    weights: FloatArray
    intercepts: FloatArray
    centre: FloatArray
    centred: bool = False
    precise: bool = False

    def rows(self, block: Block) -> Array:
        """The rows that products are taken with, shape (m, d)."""
        z = cast(block.z, np.float64) if self.precise else block.z
        return z - like(self.centre, z) if self.centred else z

    def of(self, z: Array) -> Array:
        """Logits of what `rows` gave."""
        logits = empty64((len(self.weights), len(z)), z)
        forward(z, like(self.weights, z), logits)
        shift = self.intercepts if self.centred else self.intercepts - self.weights @ self.centre
        logits += like(shift[:, None], logits)
        return logits

    @property
    def thin(self) -> bool:
        """Whether rows are read as they are, so that no copy of a block is made."""
        return not self.centred and not self.precise


@dataclass(frozen=True, slots=True)
class SoftmaxLoss:
    """Σ ω ℓ with its gradient.

    A call returns a vector of length 1 + k + k·d: loss, gradient in the intercepts, gradient in the weights.
    """

    logits: LinearLogits
    weighting: Weighting

    def __call__(self, block: Block) -> FloatArray:
        """Value and gradient over one block."""
        z = self.logits.rows(block)
        losses, residual = loss_and_residual(self.logits.of(z), block.targets[MAIN])
        omega = self.weighting(block)
        residual *= omega
        k = len(residual)
        out = empty64(1 + k + self.logits.weights.size, z)
        out[0] = losses @ omega
        out[1 : 1 + k] = residual.sum(1)
        gradient = out[1 + k :].reshape(self.logits.weights.shape)
        backward(z, matching(residual, z), gradient)
        if not self.logits.centred:
            gradient -= out[1 : 1 + k, None] * like(self.logits.centre, out)
        return out

    @property
    def thin(self) -> bool:
        """Whether no copy of a block is made."""
        return self.logits.thin


@dataclass(frozen=True, slots=True)
class CellLosses:
    """Σ weight · ℓ over the rows of each cell, shape (n_cells,): every group's loss in one pass."""

    logits: LinearLogits
    n_cells: int

    def __call__(self, block: Block) -> Array:
        """Loss per cell over one block."""
        losses, _ = loss_and_residual(self.logits.of(self.logits.rows(block)), block.targets[MAIN])
        return sum_by(block.cell, (block.weight * losses)[None], self.n_cells)[0]


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
        return value, np.append(gradient @ self.whitening.transform, INTERCEPT_SCALE * sums[1 : 1 + k])

    def logits(self, x: FloatArray) -> LinearLogits:
        """Weights and intercepts at x."""
        k, geometry = self.n_logits, self.whitening.geometry
        weights = x[:-k].reshape(k, -1) @ self.whitening.transform.T
        return LinearLogits(weights, INTERCEPT_SCALE * x[-k:], geometry.centre, geometry.far_from_zero, self.precise)

    def at(self, model: LinearModel) -> FloatArray:
        """The x whose logits are these (weights brought to the span of the rows)."""
        centre = self.whitening.geometry.centre
        intercepts = model.intercepts + model.weights @ (centre - model.centre)
        return np.append(self.whitening.coordinates(model.weights.T).T, intercepts / INTERCEPT_SCALE)

    def start(self) -> tuple[FloatArray, float]:
        """Zero weights with the intercepts that fit the shares of the classes, and the gradient at x = 0 (a unit)."""
        k = self.n_logits
        x = np.zeros(self.size)
        gradient = self(x)[1]
        # At x = 0 the gradient in an intercept is 1/K − share; shares of zero have no finite intercept.
        share = np.clip(1.0 / max(k, 2) - gradient[-k:] / INTERCEPT_SCALE, 1e-6, 1.0 - 1e-6)
        intercepts = np.log(share / (1.0 - share)) if k == 1 else np.log(share) - np.log(share).mean()
        x[-k:] = intercepts / INTERCEPT_SCALE
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
    x, outcome = solve_whitened(objective, x if start is None else objective.at(start), scale, tol, max_iter)
    return objective.model(x, outcome)


def solve_whitened(
    objective: CountedObjective, x: FloatArray, scale: float, tol: float, max_iter: int
) -> tuple[FloatArray, FitOutcome]:
    """Descend from x until the gradient norm is below ``tol · scale``; where that ended, and why."""
    scale = max(scale, MIN_LABEL_GRADIENT)
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
