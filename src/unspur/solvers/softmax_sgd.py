"""The paper's solver for a last layer: minibatch SGD with momentum and early stopping.

Offered to explain published numbers; `solvers.softmax` solves the same problems exactly and faster. Weight decay is
absolute here, and applies to weights and intercepts, because the published values do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from unspur._typing import Array, FloatArray
from unspur.rows import MAIN, RowSource, Weighting
from unspur.solvers.sgd import SGDSettings
from unspur.solvers.softmax import FitOutcome, LinearModel
from unspur.sums.softmax import CellLosses, LinearLogits, loss_and_residual

#: Weights of the rows of a batch, from their losses and cells.
BatchWeights: TypeAlias = Callable[[FloatArray, Array], FloatArray]
#: What early stopping looks at.
Watch: TypeAlias = Callable[[LinearLogits], float]


def alike(losses: FloatArray, cell: Array) -> FloatArray:  # noqa: ARG001 — one signature for all
    """The mean of the batch: rows were drawn by weight, so within it they count alike."""
    return np.full(len(losses), 1.0 / len(losses))


@dataclass
class RunningGroupWeights:
    """Group DRO's adversary: ``q_g ← q_g exp(η (L_g + a_g))`` with L_g the mean loss of group g in each batch.

    Groups without a row in the batch have loss 0 there, as in the authors' program.
    """

    q: FloatArray
    adjustments: FloatArray
    step_size: float

    def __call__(self, losses: FloatArray, cell: Array) -> FloatArray:
        """Row weights q_g / n_g of the batch, after q has moved."""
        count = np.maximum(np.bincount(cell, minlength=len(self.q)), 1)
        mean = np.bincount(cell, weights=losses, minlength=len(self.q)) / count
        raised = self.step_size * (mean + self.adjustments)
        q = self.q * np.exp(raised - raised.max())  # only ratios count
        self.q = q / q.sum()
        return np.asarray((self.q / count)[cell])


def solve_softmax_by_sgd(
    rows: RowSource,
    weighting: Weighting,
    centre: FloatArray,
    n_logits: int,
    settings: SGDSettings,
    rng: np.random.Generator,
    *,
    watch: Watch | None,
    batch_weights: BatchWeights = alike,
    start: LinearModel | None = None,
) -> LinearModel:
    """Logits ``W (z − centre) + b`` by SGD on batches drawn by `weighting`.

    `watch` is measured after each epoch; the best weights are kept once it has not improved for `patience` epochs.
    Without it, all `max_epochs` epochs are run and the last weights returned.
    """
    theta = [np.zeros((n_logits, rows.n_features)), np.zeros((n_logits, 1))]
    if start is not None:
        theta = [start.weights, start.intercepts[:, None]]
    velocity = [np.zeros_like(part) for part in theta]

    def logits() -> LinearLogits:
        return LinearLogits(theta[0], theta[1][:, 0], centre, centred=True)

    first = best = logits()
    value, cells = np.inf, len(weighting.factor)
    waited = epoch = 0
    with np.errstate(over="ignore", invalid="ignore"):  # a learning rate that diverges is an outcome
        while epoch < settings.max_epochs and waited < settings.patience:
            epoch += 1
            for block in rows.minibatches(settings.batch_size, rng, weighting):
                current = logits()
                z = current.rows(block)
                losses, residual = loss_and_residual(current.of(z), block.targets[MAIN])
                residual *= batch_weights(losses, block.cell)
                gradients = [residual @ z, residual.sum(axis=1, keepdims=True)]
                for part in (0, 1):
                    slope = gradients[part] + settings.weight_decay * theta[part]
                    velocity[part] = settings.momentum * velocity[part] + slope
                    theta[part] = theta[part] - settings.learning_rate * velocity[part]
            if watch is None:
                best = logits()
                continue
            there = watch(logits())
            if there < value:
                best, value, waited = logits(), there, 0
            else:
                waited += 1
        ends = [float(rows.sum(CellLosses(t, cells)) @ weighting.factor) for t in (first, best)]
    ends.append(float(np.log(max(n_logits, 2))))
    if watch is None:
        outcome = FitOutcome(True, f"{epoch} epochs", ends[1], float("nan"), epoch)
    else:
        outcome = _outcome(epoch, waited, value, ends, settings)
    return LinearModel(best.weights, best.intercepts, centre, outcome)


def _outcome(epoch: int, waited: int, value: float, losses: list[float], settings: SGDSettings) -> FitOutcome:
    """Stopping at the last epoch is how the paper's schedule ends; a training loss above start and chance is a failure.

    (The loss that is watched may rise above chance without harm: that of a small group does while the rest is learnt.)
    """
    first, last, chance = losses
    reason = f"{epoch} epochs, still improving"
    if waited >= settings.patience:
        reason = f"no improvement for {settings.patience} epochs"
    # With nothing to learn it hovers about chance; group DRO gives some of the mean for its worst group.
    improved = bool(np.isfinite(value) and last <= 1.05 * max(first, chance))
    if not improved:
        reason = (
            f"diverged: training loss {last:.3g} after {epoch} epochs, {first:.3g} at the start, {chance:.3g} by chance"
        )
    return FitOutcome(improved, reason, value, float("nan"), epoch, "Lower learning_rate.")
