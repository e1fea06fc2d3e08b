"""Two-scalar logistic models ``t = γ x + b`` along one-dimensional scores, many at once.

A *score* turns a block of projected rows into x of shape (q, m), one line per model. Two are needed: a linear
one (`LinearScore`), and one that takes for each row the column of the fold that row is held out in (`FoldScore`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from unspur._typing import FloatArray, IntArray
from unspur.rows import Block, Weighting
from unspur.sums.logistic import loss_and_probability

Score: TypeAlias = Callable[[Block], FloatArray]


@dataclass(frozen=True, slots=True)
class LinearScore:
    """``x = directions @ z``, with `directions` of shape (q, width)."""

    directions: FloatArray

    def __call__(self, block: Block) -> FloatArray:
        """Scores of shape (q, m)."""
        return np.asarray(self.directions @ block.z.T)


@dataclass(frozen=True, slots=True)
class FoldScore:
    """Column ``offset + fold − 1`` of each row, for q = `copies` models; rows of fold 0 get column `offset`."""

    offset: int
    copies: int = 2

    def __call__(self, block: Block) -> FloatArray:
        """Scores of shape (copies, m)."""
        column = self.offset + np.maximum(block.fold - 1, 0)
        return np.broadcast_to(block.z[np.arange(len(column)), column], (self.copies, len(column)))


@dataclass(frozen=True, slots=True)
class Standardisation:
    """Weighted mean and standard deviation of each score, shape (q,); deviation 1 for a constant score."""

    mean: FloatArray
    deviation: FloatArray

    def __call__(self, scores: FloatArray) -> FloatArray:
        """Scores with mean zero and unit variance."""
        return (scores - self.mean[:, None]) / self.deviation[:, None]


@dataclass(frozen=True, slots=True)
class ScoreMoments:
    """Moments of each score and its label (0 or 1): Σω, Σω x, Σω x², Σω y and Σω y x, shape (5, q)."""

    score: Score
    label: IntArray
    weighting: Weighting

    def __call__(self, block: Block) -> FloatArray:
        """Moments over one block."""
        x, omega = self.score(block), self.weighting(block)
        positive = block.targets * omega  # (2, m)
        moments = np.empty((5, len(x)))
        moments[0] = omega.sum()
        moments[1] = x @ omega
        moments[2] = (x * x) @ omega
        moments[3] = positive.sum(axis=1)[self.label]
        moments[4] = (x @ positive.T)[np.arange(len(x)), self.label]
        return moments


@dataclass(frozen=True, slots=True)
class ScalarLoss:
    """Loss, gradient and Hessian of each model in (γ, b) on standardised scores; a call returns shape (6, q).

    The rows of the result: loss, ∂γ, ∂b, ∂γγ, ∂γb, ∂bb.
    """

    gamma: FloatArray
    intercept: FloatArray
    score: Score
    standardise: Standardisation
    label: IntArray
    weighting: Weighting

    def __call__(self, block: Block) -> FloatArray:
        """Sums over one block."""
        x, omega = self.standardise(self.score(block)), self.weighting(block)
        logits = self.gamma[:, None] * x
        logits += self.intercept[:, None]
        targets = block.targets[self.label]
        losses, p = loss_and_probability(logits, targets)
        sums = np.empty((6, len(x)))
        sums[0] = losses @ omega
        curvature = p * (1.0 - p)
        residual = np.subtract(p, targets, out=p)
        sums[2] = residual @ omega
        sums[5] = curvature @ omega
        residual *= x
        sums[1] = residual @ omega
        curvature *= x
        sums[4] = curvature @ omega
        curvature *= x
        sums[3] = curvature @ omega
        return sums
