"""Two-scalar logistic models ``η = γ x + b`` along one-dimensional scores: their sums, and Newton's method, q at once.

Conventions
-----------
- q models, m rows of a block. A *score* turns a block of projected rows into x (q, m), one line per model, or (1, m) if
  all models have the same. There is a linear one (`LinearScore`), one that takes for each row the column of the fold
  that row is held out in (`FoldScore`), and one that takes the same columns for all rows (`ColumnScore`).
- γ and b are of shape (q,), on standardised scores. A sum is (6, q): loss, ∂γ, ∂b, ∂γγ, ∂γb, ∂bb.
- The rows of a block may share one cell, which is then an array of length 1 and broadcasts (`GroupedRows`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from unspur._arrays import at_least, empty64, like, lines, namespace, one_of_each, place, sum_by
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.rows import Block, Summable, Weighting
from unspur.solvers.logistic import loss_and_probability

Score: TypeAlias = Callable[[Block], Array]

#: Penalty on ½γ² per unit variance of the score, in rows: a prior on γ with a standard deviation of 100, which has no
#: effect on the tests. Without it, a score that separates the classes would leave γ undetermined once one of the few
#: rows beside the gap is left out, and one Newton step from there could end anywhere.
RIDGE_IN_ROWS = 1e-4
#: Least penalty, as a share of all rows: keeps γ finite for any number of rows.
MIN_RIDGE = 1e-8
#: Least curvature in b: rows on the flat part of the loss leave less than rounding error.
MIN_CURVATURE = 1e-12


@dataclass(frozen=True, slots=True)
class LinearScore:
    """``x = directions @ z``, with `directions` of shape (q, width)."""

    directions: FloatArray

    def __call__(self, block: Block) -> Array:
        """Scores of shape (q, m)."""
        return like(self.directions, block.z) @ block.z.T


@dataclass(frozen=True, slots=True)
class FoldScore:
    """Column ``offset + fold − 1`` of each row, one line for each of `offsets`; rows of fold 0 get column `offset`."""

    offsets: tuple[int, ...]
    folds: int

    def __call__(self, block: Block) -> Array:
        """Scores of shape (offsets, m)."""
        xp = namespace(block.z)
        return xp.stack([self._columns(block, offset) for offset in self.offsets])

    def _columns(self, block: Block, offset: int) -> Array:
        if self.folds == 1:  # the same column for all
            return block.z[:, offset]
        return one_of_each(block.z, offset + at_least(block.fold - 1, 0))


@dataclass(frozen=True, slots=True)
class ColumnScore:
    """Columns `first` to `last` of the rows."""

    first: int
    last: int

    def __call__(self, block: Block) -> Array:
        """Scores of shape (last − first + 1, m)."""
        return block.z[:, self.first : self.last + 1].T


@dataclass(frozen=True, slots=True)
class Standardisation:
    """Weighted mean and standard deviation of each score, shape (q,); deviation 1 for a constant score."""

    mean: FloatArray
    deviation: FloatArray

    def __call__(self, scores: Array) -> Array:
        """Scores, (q, m) or a common (1, m), with mean zero and unit variance."""
        own = slice(len(scores))
        return (scores - like(self.mean[own, None], scores)) / like(self.deviation[own, None], scores)


@dataclass(frozen=True, slots=True)
class ScoreMoments:
    """Moments of each score and its label (0 or 1): Σω, Σω², Σω x, Σω x², Σω y and Σω y x, shape (6, q)."""

    score: Score
    label: IntArray
    weighting: Weighting

    def __call__(self, block: Block) -> FloatArray:
        """Moments over one block."""
        x, omega = self.score(block), self.weighting(block)
        positive = block.targets * omega  # (2, m)
        label = place(self.label, omega)
        moments = empty64((6, len(self.label)), omega)
        moments[0] = omega.sum()
        moments[1] = omega @ omega
        moments[2] = x @ omega
        moments[3] = (x * x) @ omega
        moments[4] = positive.sum(1)[label]
        products = x @ positive.T  # (q or 1, 2)
        moments[5] = products[0][label] if len(x) == 1 else one_of_each(products, label)
        return moments


@dataclass(frozen=True, slots=True)
class ScalarLoss:
    """Loss, gradient and Hessian of each model in (γ, b) on standardised scores.

    A call returns loss, ∂γ, ∂b, ∂γγ, ∂γb and ∂bb, shape (6, q); shape (6, q, 4) if `by_group`, summed over the rows of
    each group 2·y + concept.
    """

    gamma: FloatArray
    intercept: FloatArray
    score: Score
    standardise: Standardisation
    label: IntArray
    weighting: Weighting
    by_group: bool = False

    def __call__(self, block: Block) -> FloatArray:
        """Sums over one block."""
        x, omega = self.standardise(self.score(block)), self.weighting(block)
        logits = like(self.gamma[:, None], x) * x
        logits += like(self.intercept[:, None], x)
        targets = lines(block.targets, self.label)
        losses, p = loss_and_probability(logits, targets)
        curvature = p * (1.0 - p)
        p -= targets
        residual = p
        terms = [losses, residual * x, residual, curvature * x * x, curvature * x, curvature]
        if self.by_group:
            weighted = namespace(omega).concat(terms) * omega
            sums: FloatArray = sum_by(block.cell & 3, weighted, 4).reshape(6, len(self.label), 4)
            return sums
        sums = empty64((6, len(self.label)), omega)
        for total, term in zip(sums, terms, strict=True):
            total[:] = term @ omega
        return sums


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
    rows: Summable,
    score: Score,
    label: IntArray,
    weighting: Weighting,
    *,
    tol: float = 1e-5,
    max_iter: int = 50,
) -> ScalarFit:
    """Minimise ``Σω ℓ(γ x + b, label)`` with a slight penalty on γ, for every model.

    Steps that do not lower the objective are halved. `tol` bounds the last step; convergence is quadratic, so the
    error is of the order of its square.
    """
    total, squares, first, second, positive, positive_x = rows.sum(ScoreMoments(score, label, weighting))
    mean = first / total
    variance = np.maximum(second / total - mean**2, 0.0)
    constant = variance <= 1e-24 * np.maximum(second / total, np.finfo(np.float64).tiny)
    standardise = Standardisation(mean, np.where(constant, 1.0, np.sqrt(variance)))
    penalty = np.maximum(MIN_RIDGE, RIDGE_IN_ROWS * squares / total**2)  # Σω² / (Σω)²: the weight of one row

    def evaluate(theta: FloatArray) -> FloatArray:
        sums = rows.sum(ScalarLoss(theta[0], theta[1], score, standardise, label, weighting))
        sums[0] += 0.5 * penalty * theta[0] ** 2
        sums[1] += penalty * theta[0]
        sums[3] += penalty
        return sums

    theta = np.zeros((2, len(label)))
    sums = _at_zero(total, positive, (positive_x - mean * positive) / standardise.deviation, penalty, constant)
    converged = False
    # Newton's step from zero is that of linear regression, too short by 1 − R² for Gaussian classes.
    explained = (_newton_step(sums)[0] / 2.0) ** 2
    size = 1.0 / np.maximum(1.0 - explained, 0.1)
    for _ in range(max_iter):
        step = size * _newton_step(sums)
        trial = theta - step
        there = evaluate(trial)
        better = there[0] <= sums[0] + 1e-13 * np.abs(sums[0])  # the last step gains less than a rounding error
        theta, sums = np.where(better, trial, theta), np.where(better, there, sums)
        size = np.where(better, 1.0, size / 2.0)
        converged = bool(np.max(np.abs(step), initial=0.0) <= tol)
        if converged:
            break
    return ScalarFit(theta[0], theta[1], sums[0], penalty, standardise, converged)


def _newton_step(sums: FloatArray) -> FloatArray:
    """H⁻¹ g for every model, shape (2, q)."""
    g, b, gg, gb, bb = sums[1:]
    bb = np.maximum(bb, MIN_CURVATURE)
    return np.asarray(np.stack([bb * g - gb * b, gg * b - gb * g]) / (gg * bb - gb**2))


def _at_zero(
    total: FloatArray, positive: FloatArray, positive_x: FloatArray, penalty: FloatArray, constant: BoolArray
) -> FloatArray:
    """The result of `evaluate` at γ = b = 0, where p = ½, from moments of the standardised scores."""
    spread = np.where(constant, 0.0, total)
    zero = np.zeros_like(total)
    return np.stack(
        [np.log(2.0) * total, -positive_x, total / 2.0 - positive, spread / 4.0 + penalty, zero, total / 4.0]
    )
