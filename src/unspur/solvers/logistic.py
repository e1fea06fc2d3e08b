"""Logistic losses of binary labels, and logistic regression for one label, solved exactly.

Conventions
-----------
- t weightings, q labels, m rows of a block, d features.
- weights (t, q, d) act on centred rows: the logits of a row are ``w · (z − centre) + b``, shape (t, q, m).
- A sum over rows is (t, q, 2 + d): loss, gradient in the intercept, gradient in the weights.
- Labels are lines of a block's targets, CONCEPT or MAIN; their values are 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from unspur._arrays import backward, empty, empty64, forward, like, lines, matching, namespace, place, total
from unspur._threads import one_scipy_thread
from unspur._typing import Array, FloatArray, IntArray
from unspur.rows import CONCEPT, MAIN, Block, RowSource, Weighting
from unspur.solvers.lbfgs import minimize
from unspur.solvers.outcome import Outcome, outcome_of, rounding_error
from unspur.solvers.whitening import Whitening

#: Largest logit, by the size of its type, for which ``log(1 + e⁻ᵗ) + t`` gives the loss without overflow or visible
#: cancellation.
MAX_PLAIN_LOGIT = {4: 80.0, 8: 300.0}


def loss_and_probability(logits: Array, targets: Array) -> tuple[FloatArray, FloatArray]:
    """``ℓ(t, y) = log(1 + eᵗ) − y t`` and ``p = 1 / (1 + e⁻ᵗ)`` elementwise, without overflow.

    To an absolute 1e-13 for float64 logits, to the rounding of the logit for float32.
    """
    if not isinstance(logits, np.ndarray):  # a look at the largest would wait for the device
        xp = namespace(logits)
        return xp.logaddexp(logits, xp.zeros_like(logits)) - targets * logits, 1.0 / (1.0 + xp.exp(-logits))
    if logits.size and max(logits.max(), -logits.min()) > MAX_PLAIN_LOGIT[logits.itemsize]:
        small = np.exp(-np.abs(logits))
        probability = np.where(logits >= 0, 1.0, small) / (1.0 + small)
        return np.maximum(logits, 0.0) + np.log1p(small) - targets * logits, probability
    # Half the work of the stable form: exp and log run at full width, log1p and a branch do not.
    inverse = np.exp(-logits)
    inverse += 1.0
    return np.log(inverse) + (1.0 - targets) * logits, 1.0 / inverse


@dataclass(frozen=True, slots=True)
class LogisticLosses:
    """Σ ω ℓ(z·w + b, label) with its gradient, for several labels under several weightings, in one visit of the rows.

    Parameters
    ----------
    weights : shape (t, q, d), acting on centred rows: for each of t weightings and q labels.
    intercepts : shape (t, q).
    labels : shape (q,), CONCEPT or MAIN.
    factors : shape (t, cells), of the t weightings: ω = weight · factor[cell].
    centre : shape (d,).
    centred : subtract `centre` from every block instead of from the logits; needed when rows lie so far from
        zero that their products would lose the signal.

    precise : compute losses in float64, not in the type of the rows.

    A call returns shape (t, q, 2 + d): loss, gradient in the intercept, gradient in the weights. Losses are added up in
    float64 in any case.
    """

    weights: FloatArray
    intercepts: FloatArray
    labels: IntArray
    factors: FloatArray
    centre: FloatArray
    centred: bool = False
    precise: bool = False

    @classmethod
    def of_one(
        cls,
        weights: FloatArray,
        intercepts: FloatArray,
        centre: FloatArray,
        weighting: Weighting,
        *,
        centred: bool = False,
        only: int | None = None,
    ) -> Self:
        """Of one weighting, for weights (q, d): of both labels, or of the one label `only`."""
        labels = np.array([CONCEPT, MAIN] if only is None else [only])
        return cls(weights[None], intercepts[None], labels, weighting.factor[None], centre, centred, precise=True)

    @property
    def thin(self) -> bool:
        """Whether no copy of a block is made."""
        return not self.centred

    def fused(self, block: Block) -> FloatArray | None:
        """The same over all rows of a tensor, as they are stored, in one pass; None where there is no such way."""
        from unspur.solvers.fused import fused_losses, runs_on

        return fused_losses(self, block) if runs_on(block.z.device) else None

    @property
    def shift(self) -> FloatArray:
        """What is added to the products with the rows as they are, shape (t, q)."""
        return self.intercepts if self.centred else self.intercepts - self.weights @ self.centre

    def __call__(self, block: Block) -> FloatArray:
        """Values and gradients over one block."""
        t, q, d = self.weights.shape
        z = block.z - like(self.centre, block.z) if self.centred else block.z
        logits = (empty64 if self.precise else empty)((t * q, len(z)), z)
        forward(z, like(self.weights.reshape(t * q, d), z), logits)
        logits += like(self.shift.reshape(-1, 1), logits)
        targets = matching(lines(block.targets, self.labels), logits)  # (q, m)
        losses, residual = loss_and_probability(logits.reshape(t, q, -1), targets)
        omega = matching(place(self.factors, block.weight)[:, block.cell] * block.weight, logits)[:, None]  # (t, 1, m)
        residual -= targets
        residual *= omega
        losses *= omega
        out = empty64((t, q, 2 + d), z)
        out[..., 0] = total(losses, 2)
        out[..., 1] = total(residual, 2)
        gradient = empty64((t * q, d), z)
        backward(z, matching(residual.reshape(t * q, -1), z), gradient)
        out[..., 2:] = gradient.reshape(t, q, d)
        if not self.centred:
            out[..., 2:] -= out[..., 1, None] * like(self.centre, out)
        return out


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
