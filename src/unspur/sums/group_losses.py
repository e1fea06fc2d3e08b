"""Losses of both labels along one direction, summed per group: what the tests are made from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unspur._typing import FloatArray, IntArray
from unspur.rows import CONCEPT, MAIN, Block, Weighting
from unspur.sums.logistic import loss_and_probability
from unspur.sums.scalars import Score, Standardisation

#: The series that are averaged, in the order of the first axis of `GroupLosses.first`.
SERIES = ("concept", "main", "concept over chance", "main over chance", "concept over main")


@dataclass(frozen=True, slots=True)
class ScalarModel:
    """Fitted two-scalar models, one per label (q = 2), and how each row is judged by them.

    With `inverse_hessian` (q, 2, 2) and `group_gradient` (4, q, 2) the scalars are refitted without the row that is
    judged: one Newton step from the fit on all rows, exact up to the curvature's own change. The group's
    weight is spread over its remaining rows, so the gradient of the leave-one-out problem at the full fit is
    ``(π G_g − ω g_i) / (1 − π)`` with π the row's share of its group.
    """

    gamma: FloatArray
    intercept: FloatArray
    score: Score
    standardise: Standardisation
    label: IntArray
    weighting: Weighting | None = None
    inverse_hessian: FloatArray | None = None
    group_gradient: FloatArray | None = None
    group_weight: FloatArray | None = None

    def losses(self, block: Block) -> FloatArray:
        """Loss of each label for each row, shape (2, m)."""
        x = self.standardise(self.score(block))
        logits = self.gamma[:, None] * x + self.intercept[:, None]
        targets = block.targets[self.label]
        losses, p = loss_and_probability(logits, targets)
        if self.weighting is None or self.inverse_hessian is None:
            return losses
        assert self.group_gradient is not None
        assert self.group_weight is not None
        omega = self.weighting(block)
        group = block.cell & 3
        share = omega / self.group_weight[group]
        residual = p - targets
        h = self.inverse_hessian
        # Newton step in (γ, b), seen at x: x̃ᵀH⁻¹x̃ and x̃ᵀH⁻¹G_g with x̃ = (x, 1).
        to_gamma, to_b = x * h[:, 0, 0, None] + h[:, 0, 1, None], x * h[:, 0, 1, None] + h[:, 1, 1, None]
        leverage = to_gamma * x + to_b
        of_group = to_gamma * self.group_gradient[group, :, 0].T + to_b * self.group_gradient[group, :, 1].T
        shift = (share * of_group - omega * residual * leverage) / np.maximum(1.0 - share, 1e-12)
        shift /= np.maximum(1.0 - omega * p * (1.0 - p) * leverage, 1e-3)
        return loss_and_probability(logits - shift, targets)[0]


@dataclass(frozen=True, slots=True)
class GroupGradient:
    """Gradient of the weighted loss of each model, group by group, in (γ, b); a call returns shape (4, q, 2)."""

    model: ScalarModel
    weighting: Weighting

    def __call__(self, block: Block) -> FloatArray:
        """Sums over one block."""
        model = self.model
        x = model.standardise(model.score(block))
        targets = block.targets[model.label]
        _, p = loss_and_probability(model.gamma[:, None] * x + model.intercept[:, None], targets)
        residual = (p - targets) * self.weighting(block)
        group = np.eye(4)[block.cell & 3]
        return np.stack([(residual * x) @ group, residual @ group], axis=-1).transpose(1, 0, 2)


@dataclass(frozen=True, slots=True)
class GroupLosses:
    """Per-group sums of the series in `SERIES` over held-out rows.

    `weight` is (Σw, Σw²) per group, shape (2, 4); `first` and `second` are Σw d and Σw d², shape (5, 4). Groups are
    numbered 2·y + concept.
    """

    weight: FloatArray
    first: FloatArray
    second: FloatArray

    def __add__(self, other: GroupLosses) -> GroupLosses:
        return GroupLosses(self.weight + other.weight, self.first + other.first, self.second + other.second)

    def pooled(self) -> GroupLosses:
        """The same sums with all rows in one group, shapes (2, 1) and (5, 1)."""
        return GroupLosses(*(a.sum(axis=1, keepdims=True) for a in (self.weight, self.first, self.second)))

    @property
    def means(self) -> FloatArray:
        """Weighted mean of each series in each group, shape (5, groups); NaN for a group without rows."""
        present = np.broadcast_to(self.weight[0] > 0, self.first.shape)
        empty = np.full(self.first.shape, np.nan)
        return np.asarray(np.divide(self.first, self.weight[0], out=empty, where=present))

    @property
    def effective_rows(self) -> FloatArray:
        """Effective number of rows per group, (Σw)² / Σw²."""
        return np.asarray(self.weight[0] ** 2 / self.weight[1])

    @property
    def variances(self) -> FloatArray:
        """Unbiased variance of each series in each group, shape (5, groups); equals ddof = 1 for equal weights."""
        biased = np.maximum(self.second / self.weight[0] - self.means**2, 0.0)
        return np.asarray(biased * self.effective_rows / (self.effective_rows - 1.0))


@dataclass(frozen=True, slots=True)
class HeldOutLosses:
    """Statistic behind `GroupLosses`: rows of fold `fold` (all folds ≥ 1 when None) judged by `model`.

    `chance` is the loss of the chance classifier for each label and each of its two values, shape (2, 2).
    """

    model: ScalarModel
    chance: FloatArray
    fold: int | None = None

    def __call__(self, block: Block) -> GroupLosses:
        """Sums over one block."""
        held_out = block.fold >= 1 if self.fold is None else block.fold == self.fold
        weight = np.where(held_out, block.weight, 0.0)
        losses = self.model.losses(block)
        chance = self.chance[np.arange(2)[:, None], block.targets.astype(np.intp)]
        series = np.concatenate([losses, losses - chance, losses[[CONCEPT]] - losses[[MAIN]]])
        group = np.eye(4)[block.cell & 3]
        weighted = series * weight
        return GroupLosses(np.stack([weight, weight**2]) @ group, weighted @ group, (weighted * series) @ group)
