"""Losses of both labels along one direction, summed per group: what the tests are made from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unspur._arrays import at_least, cast, like, lines, namespace, one_hot, place
from unspur._typing import Array, FloatArray, IntArray
from unspur.rows import CONCEPT, MAIN, Block, Weighting
from unspur.sums.logistic import loss_and_probability
from unspur.sums.scalars import Score, Standardisation

#: The series that are averaged, in the order of the first axis of `GroupLosses.first`.
SERIES = (
    "concept", "main", "concept over chance", "main over chance", "concept over main", "concept over main beyond"
)  # fmt: skip

#: Smallest positive number: a determinant of zero leaves a row where it is.
TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """What it takes to refit two scalars without one row: derivatives of the loss at the fit on all rows.

    Parameters
    ----------
    weighting : weights ω under which the scalars were fitted.
    weight : shape (4,), total ω of the group of a row.
    group : shape (4, 5, q), that group's share of the derivatives: ∂γ, ∂b, ∂γγ, ∂γb, ∂bb.
    total : shape (5, q), the derivatives of the whole objective.

    Without row i its group's weight is spread over the rest of the group, so with π the row's share of it the gradient
    becomes ``(π G_g − ω g_i) / (1 − π)`` and the Hessian ``H − H_g + (H_g − ω h_i) / (1 − π)``. One Newton step from
    the fit on all rows is taken with these: nearly exact in groups of ten rows, some way short of it in groups of two.
    """

    weighting: Weighting
    weight: FloatArray
    group: FloatArray
    total: FloatArray

    def shift(self, x: Array, residual: Array, curvature: Array, block: Block) -> Array:
        """Change of the logits of each row, shape (q, m), when the scalars are refitted without it."""
        omega, group = self.weighting(block), block.cell & 3
        share = omega / place(self.weight, omega)[group]
        rest = 1.0 / at_least(1.0 - share, 1e-12)
        of_group = place(self.group.transpose(1, 2, 0), omega)[..., group]  # (5, q, m)
        of_all = place(self.total[:, :, None], omega)
        g, b = (rest * (share * of_group[0] - omega * residual * x), rest * (share * of_group[1] - omega * residual))
        own = omega * curvature
        gg, gb, bb = (
            total - mean + rest * (mean - row)
            for total, mean, row in zip(of_all[2:], of_group[2:], (own * x * x, own * x, own), strict=True)
        )
        determinant = at_least(gg * bb - gb**2, TINY)
        return -(x * (bb * g - gb * b) + gg * b - gb * g) / determinant


@dataclass(frozen=True, slots=True)
class ScalarModel:
    """Fitted two-scalar models, one per label (q = 2); with `without`, each row is judged by the fit without it."""

    gamma: FloatArray
    intercept: FloatArray
    score: Score
    standardise: Standardisation
    label: IntArray
    without: LeaveOneOut | None = None

    def logits(self, x: Array) -> Array:
        """Logits along standardised scores, shape (2, m)."""
        return like(self.gamma[:, None], x) * x + like(self.intercept[:, None], x)

    def losses(self, block: Block) -> Array:
        """Loss of each label for each row, shape (2, m)."""
        x = self.standardise(self.score(block))
        logits = self.logits(x)
        targets = lines(block.targets, self.label)
        losses, p = loss_and_probability(logits, targets)
        if self.without is None:
            return losses
        shift = self.without.shift(x, p - targets, p * (1.0 - p), block)
        return loss_and_probability(logits + shift, targets)[0]


@dataclass(frozen=True, slots=True)
class GroupDerivatives:
    """Derivatives of the weighted loss of each model, group by group; a call returns shape (4, 5, q)."""

    model: ScalarModel
    weighting: Weighting

    def __call__(self, block: Block) -> Array:
        """Sums of ∂γ, ∂b, ∂γγ, ∂γb and ∂bb over one block."""
        model = self.model
        x = model.standardise(model.score(block))
        targets = lines(block.targets, model.label)
        _, p = loss_and_probability(model.logits(x), targets)
        omega = self.weighting(block)
        residual, curvature = (p - targets) * omega, p * (1.0 - p) * omega
        xp = namespace(omega)
        rows = xp.stack([residual * x, residual, curvature * x * x, curvature * x, curvature])  # (5, q, m)
        return xp.moveaxis(rows @ one_hot(block.cell & 3, 4, omega), -1, 0)


@dataclass(frozen=True, slots=True)
class GroupLosses:
    """Per-group sums of the series in `SERIES` over held-out rows.

    `weight` is (Σw, Σw²) per group, shape (2, 4); `first` is Σw d, shape (6, 4); `squares` are Σw²d and Σw²d², shape
    (2, 6, 4). Groups are numbered 2·y + concept.
    """

    weight: FloatArray
    first: FloatArray
    squares: FloatArray
    #: Share of a cross-fitted direction that is noise, which the directions of different folds have in common.
    shared_noise: float = 0.0
    #: Whether the direction points, on held-out rows too, to the value 1 of the concept and of the main label.
    points: tuple[bool, bool] = (True, True)
    #: Where rows come in clusters: error of the average of each series over groups, and its degrees of freedom, (5,).
    error: tuple[float, ...] = ()
    degrees: tuple[float, ...] = ()

    def __add__(self, other: GroupLosses) -> GroupLosses:
        return replace(
            self,
            weight=self.weight + other.weight,
            first=self.first + other.first,
            squares=self.squares + other.squares,
        )

    def pooled(self) -> GroupLosses:
        """The same sums with all rows in one group."""
        weight, first, squares = (a.sum(axis=-1, keepdims=True) for a in (self.weight, self.first, self.squares))
        return replace(self, weight=weight, first=first, squares=squares)

    @property
    def means(self) -> FloatArray:
        """Weighted mean of each series in each group, shape (6, groups); NaN for a group without rows."""
        present = np.broadcast_to(self.weight[0] > 0, self.first.shape)
        empty = np.full(self.first.shape, np.nan)
        return np.asarray(np.divide(self.first, self.weight[0], out=empty, where=present))

    @property
    def effective_rows(self) -> FloatArray:
        """Effective number of rows per group, (Σw)² / Σw²."""
        return np.asarray(self.weight[0] ** 2 / self.weight[1])

    @property
    def variances_of_means(self) -> FloatArray:
        """Variance of each mean, ``Σw²(d − d̄)² / (Σw)² · n/(n − 1)`` with n effective rows, shape (6, groups).

        For equal weights var(d)/n with ddof = 1. Rows that weigh more may vary more, so it is their own deviations that
        count.
        """
        means, rows = self.means, self.effective_rows
        deviations = np.maximum(self.squares[1] - 2.0 * means * self.squares[0] + means**2 * self.weight[1], 0.0)
        return np.asarray(deviations / self.weight[0] ** 2 * rows / (rows - 1.0))


@dataclass(frozen=True, slots=True)
class ScoresWithinGroups:
    """Weights and k weighted scores, summed over each group, and products of scores, summed over all rows.

    A call returns shape (4 + k, 1 + k): [Σω, Σωx] of the groups, then [Σωx, Σωxx'].
    """

    weighting: Weighting

    def __call__(self, block: Block) -> Array:
        """Sums over one block of k scores."""
        omega, x = self.weighting(block), cast(block.z, np.float64)
        xp = namespace(omega)
        rows = xp.concat([one_hot(block.cell & 3, 4, omega), x], axis=1) * omega[:, None]
        return rows.T @ xp.concat([xp.ones_like(omega)[:, None], x], axis=1)

    @staticmethod
    def correlations(sums: FloatArray) -> FloatArray:
        """Correlations of the scores inside groups, shape (k, k); 0 for a score that is constant there."""
        weight, total, products = sums[:4, :1], sums[:4, 1:], sums[4:, 1:]
        mean = np.divide(total, weight, out=np.zeros_like(total), where=weight > 0)
        covariance = products - total.T @ mean
        deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        scale = np.outer(deviation, deviation)
        return np.asarray(np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 0))


@dataclass(frozen=True, slots=True)
class RowLosses:
    """Statistic that brings the loss of each label of each row to the host: a list of arrays, in order of the rows."""

    model: ScalarModel

    def __call__(self, block: Block) -> list[Array]:
        """Losses of one block, shape (2, m)."""
        return [self.model.losses(block)]


@dataclass(frozen=True, slots=True)
class HeldOutLosses:
    """Statistic behind `GroupLosses`: rows of fold `fold` (all folds ≥ 1 when None) judged by `model`.

    `chance` is the loss of the chance classifier for each label and each of its two values, shape (2, 2). `reference`
    is what a difference between the labels is compared with row by row: each label along a direction of its own.
    """

    model: ScalarModel
    chance: FloatArray
    fold: int | None = None
    reference: ScalarModel | None = None

    def __call__(self, block: Block) -> GroupLosses:
        """Sums over one block."""
        xp = namespace(block.weight)
        weight = block.weight * (block.fold >= 1 if self.fold is None else block.fold == self.fold)
        losses = self.model.losses(block)
        of_zero, of_one = place(self.chance[:, :1], losses), place(self.chance[:, 1:], losses)
        chance = xp.where(block.targets > 0.5, of_one, of_zero)
        compared = _concept_over_main(losses)
        beyond = compared if self.reference is None else compared - _concept_over_main(self.reference.losses(block))
        series = xp.concat([losses, losses - chance, compared, beyond])
        group = one_hot(block.cell & 3, 4, weight)
        weighted = series * weight
        squares = xp.stack([weighted * weight, weighted**2]) @ group
        return GroupLosses(xp.stack([weight, weight**2]) @ group, weighted @ group, squares)


def _concept_over_main(losses: Array) -> Array:
    return losses[CONCEPT : CONCEPT + 1] - losses[MAIN : MAIN + 1]
