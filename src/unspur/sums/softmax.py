"""Logistic loss of a label of two or more classes, and its gradient: one visit of a block.

Two classes have one logit t, K > 2 classes have K::

    ℓ(t, y) = log(1 + eᵗ) − y t                 two classes, shape (1, m)
    ℓ(t, y) = log Σ_c exp(t_c) − t_y            K classes, shape (K, m)

The label is line `MAIN` of a block's targets, as the code of its class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unspur._arrays import cast, counting, empty64, like, matching, namespace, sum_by
from unspur._products import backward, forward
from unspur._typing import Array, FloatArray
from unspur.rows import MAIN, Block, Weighting
from unspur.sums.logistic import loss_and_probability


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
