"""Logistic loss of both labels at once, and its gradient: one visit of a block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unspur._products import backward, forward
from unspur._typing import Array, FloatArray
from unspur.rows import Block, Weighting

#: Largest logit for which ``log(1 + e⁻ᵗ) + t`` still gives the loss without overflow or visible cancellation.
LARGE = 300.0


def loss_and_probability(logits: FloatArray, targets: Array) -> tuple[FloatArray, FloatArray]:
    """``ℓ(t, y) = log(1 + eᵗ) − y t`` and ``p = 1 / (1 + e⁻ᵗ)`` elementwise, to an absolute 1e-13, without overflow."""
    if logits.size and max(logits.max(), -logits.min()) > LARGE:
        small = np.exp(-np.abs(logits))
        probability = np.where(logits >= 0, 1.0, small) / (1.0 + small)
        return np.maximum(logits, 0.0) + np.log1p(small) - targets * logits, probability
    # Half the work of the stable form: exp and log run at full width, log1p and a branch do not.
    inverse = np.exp(-logits)
    inverse += 1.0
    return np.log(inverse) + (1.0 - targets) * logits, 1.0 / inverse


@dataclass(frozen=True, slots=True)
class PairLoss:
    """Σ ω [ℓ(concept) + ℓ(main)] with its gradient; or of one of the two labels alone.

    Parameters
    ----------
    weights : shape (q, d), acting on centred rows: for concept and main label (q = 2), or for the label `only`.
    intercepts : shape (q,).
    centre : shape (d,).
    weighting : the row weights ω.
    centred : subtract `centre` from every block instead of from the logits; needed when rows lie so far from
        zero that their products would lose the signal.

    only : None for both labels, else CONCEPT or MAIN.

    A call returns a vector of length 1 + q + qd: loss, gradient in the intercepts, gradient in the weights.
    """

    weights: FloatArray
    intercepts: FloatArray
    centre: FloatArray
    weighting: Weighting
    centred: bool = False
    only: int | None = None

    def __call__(self, block: Block) -> FloatArray:
        """Value and gradient over one block."""
        z = block.z - self.centre.astype(block.z.dtype) if self.centred else block.z
        logits = np.empty((len(self.weights), len(z)))
        forward(z, self.weights.astype(z.dtype, copy=False), logits)
        logits += (self.intercepts if self.centred else self.intercepts - self.weights @ self.centre)[:, None]
        targets = block.targets if self.only is None else block.targets[[self.only]]
        losses, residual = loss_and_probability(logits, targets)
        omega = self.weighting(block)
        residual -= targets
        residual *= omega
        q = len(self.intercepts)
        out = np.empty(1 + q + self.weights.size)
        out[0] = (losses @ omega).sum()
        out[1 : q + 1] = residual.sum(axis=1)
        gradient = out[q + 1 :].reshape(self.weights.shape)
        backward(z, residual.astype(z.dtype, copy=False), gradient)
        if not self.centred:
            gradient -= out[1 : q + 1, None] * self.centre
        return out
