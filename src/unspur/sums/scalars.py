"""Two-scalar logistic models ``t = γ x + b`` along one-dimensional scores, many at once.

A *score* turns a block of projected rows into x of shape (q, m), one line per model. Two are needed: a linear
one (`LinearScore`), and one that takes for each row the column of the fold that row is held out in (`FoldScore`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from unspur._arrays import at_least, empty64, like, lines, namespace, one_of_each, place
from unspur._typing import Array, FloatArray, IntArray
from unspur.rows import Block, Weighting
from unspur.sums.logistic import loss_and_probability

Score: TypeAlias = Callable[[Block], Array]


@dataclass(frozen=True, slots=True)
class LinearScore:
    """``x = directions @ z``, with `directions` of shape (q, width)."""

    directions: FloatArray

    def __call__(self, block: Block) -> Array:
        """Scores of shape (q, m)."""
        return like(self.directions, block.z) @ block.z.T


@dataclass(frozen=True, slots=True)
class FoldScore:
    """Column ``offset + fold − 1`` of each row, for q = 2 models; rows of fold 0 get column `offset`.

    With `other`, the second model has columns of its own, from there on. `folds` columns belong to each.
    """

    offset: int
    folds: int
    other: int | None = None

    def __call__(self, block: Block) -> Array:
        """Scores of shape (2, m)."""
        xp = namespace(block.z)
        if self.other is None:
            return xp.broadcast_to(self._columns(block, self.offset), (2, len(block.z)))
        return xp.stack([self._columns(block, self.offset), self._columns(block, self.other)])

    def _columns(self, block: Block, offset: int) -> Array:
        if self.folds == 1:  # the same column for all
            return block.z[:, offset]
        return one_of_each(block.z, offset + at_least(block.fold - 1, 0))


@dataclass(frozen=True, slots=True)
class Standardisation:
    """Weighted mean and standard deviation of each score, shape (q,); deviation 1 for a constant score."""

    mean: FloatArray
    deviation: FloatArray

    def __call__(self, scores: Array) -> Array:
        """Scores with mean zero and unit variance."""
        return (scores - like(self.mean[:, None], scores)) / like(self.deviation[:, None], scores)


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
        moments = empty64((6, len(x)), omega)
        moments[0] = omega.sum()
        moments[1] = omega @ omega
        moments[2] = x @ omega
        moments[3] = (x * x) @ omega
        moments[4] = positive.sum(1)[label]
        moments[5] = one_of_each(x @ positive.T, label)
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
        logits = like(self.gamma[:, None], x) * x
        logits += like(self.intercept[:, None], x)
        targets = lines(block.targets, self.label)
        losses, p = loss_and_probability(logits, targets)
        sums = empty64((6, len(x)), omega)
        sums[0] = losses @ omega
        curvature = p * (1.0 - p)
        p -= targets
        residual = p
        sums[2] = residual @ omega
        sums[5] = curvature @ omega
        residual *= x
        sums[1] = residual @ omega
        curvature *= x
        sums[4] = curvature @ omega
        curvature *= x
        sums[3] = curvature @ omega
        return sums
