"""The paper's solver for a pair: minibatch SGD with momentum and early stopping.

Offered to explain published numbers; `solvers.orthogonal_pair` solves the same problem exactly and faster. Weight
decay is absolute here, and applies to the parameters as in the paper's program, because its published values are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from unspur._typing import FloatArray
from unspur.rows import CONCEPT, MAIN, RowSource, Weighting
from unspur.solvers.orthogonal_pair import Pair
from unspur.solvers.outcome import Outcome
from unspur.subspace import Subspace
from unspur.sums.logistic import LogisticLosses

#: All weights start here. Zero would leave the projection off w_s undefined.
FIRST_WEIGHT = 1e-7


@dataclass(frozen=True, slots=True)
class SGDSettings:
    """Hyper-parameters, at the paper's values for Toy."""

    learning_rate: float = 1e-2
    momentum: float = 0.9
    weight_decay: float = 0.0
    batch_size: int = 128
    max_epochs: int = 50
    patience: int = 5


def solve_pair_by_sgd(
    rows: RowSource,
    weighting: Weighting,
    validation: Weighting,
    centre: FloatArray,
    away_from: Subspace,
    settings: SGDSettings,
    rng: np.random.Generator,
) -> Pair:
    """Orthogonal weights for both labels, orthogonal to `away_from`.

    Batches are drawn by `weighting`; after each epoch the loss of the rows weighted by `validation` is measured, and
    the best weights are kept once it has not improved for `patience` epochs. The main-task weights are those of
    ``(I − P_{w_s}) u``. The objective reported is the best validation loss.
    """
    first = np.tile(_first_weights(away_from), (2, 1))
    weights, intercepts, outcome = _train(
        rows, weighting, validation, centre, away_from, settings, rng, first, effective_weights, chain_to_parameters,
        None,
    )  # fmt: skip
    return Pair(weights, intercepts, outcome)


def solve_logistic_by_sgd(
    rows: RowSource,
    weighting: Weighting,
    validation: Weighting,
    centre: FloatArray,
    away_from: Subspace,
    settings: SGDSettings,
    rng: np.random.Generator,
    label: int,
) -> tuple[FloatArray, float, Outcome]:
    """Weights (d,) for one label, orthogonal to `away_from`, and intercept; trained like a pair."""
    weights, intercepts, outcome = _train(
        rows, weighting, validation, centre, away_from, settings, rng,
        _first_weights(away_from)[None], lambda parameters: parameters, lambda _, gradient: gradient, label,
    )  # fmt: skip
    return weights[0], float(intercepts[0]), outcome


def _train(
    rows: RowSource,
    weighting: Weighting,
    validation: Weighting,
    centre: FloatArray,
    away_from: Subspace,
    settings: SGDSettings,
    rng: np.random.Generator,
    parameters: FloatArray,
    effective: Callable[[FloatArray], FloatArray],
    chain: Callable[[FloatArray, FloatArray], FloatArray],
    only: int | None,
) -> tuple[FloatArray, FloatArray, Outcome]:
    """The loop: `effective` turns parameters (q, d) into weights, `chain` the weights' gradient into theirs."""
    q = len(parameters)
    intercepts = np.full(q, FIRST_WEIGHT)
    velocity, velocity_b = np.zeros_like(parameters), np.zeros(q)
    equal = Weighting(np.ones_like(weighting.factor))
    best = (np.inf, effective(parameters), intercepts)
    waited = epoch = 0
    while epoch < settings.max_epochs and waited < settings.patience:
        epoch += 1
        for block in rows.minibatches(settings.batch_size, rng, weighting):
            # Rows were drawn by weight, so within the batch they count alike.
            batch = replace(block, weight=np.full(len(block.cell), 1.0 / len(block.cell)))
            mean = LogisticLosses.of_one(effective(parameters), intercepts, centre, equal, centred=True, only=only)(
                batch
            )
            gradient = chain(parameters, mean[0, :, 2:])
            gradient = away_from.reject((gradient + settings.weight_decay * parameters).T).T
            velocity = settings.momentum * velocity + gradient
            velocity_b = settings.momentum * velocity_b + mean[0, :, 1] + settings.weight_decay * intercepts
            parameters = parameters - settings.learning_rate * velocity
            intercepts = intercepts - settings.learning_rate * velocity_b
        held_out = LogisticLosses.of_one(effective(parameters), intercepts, centre, validation, only=only)
        value = float(rows.sum(held_out)[0, :, 0].sum())
        if value < best[0]:
            best, waited = (value, effective(parameters), intercepts), 0
        else:
            waited += 1
    value, weights, intercepts = best
    stopped = waited >= settings.patience
    reason = f"no improvement for {settings.patience} epochs" if stopped else f"{epoch} epochs, still improving"
    # Stopping at the last epoch is how the paper's schedule ends, not a failure of it; never beating chance is one.
    nothing = LogisticLosses.of_one(np.zeros_like(weights), np.zeros(q), centre, validation, only=only)
    chance = float(rows.sum(nothing)[0, :, 0].sum())
    improved = bool(value <= 1.05 * chance)  # with nothing left to learn it hovers about chance
    if not improved:
        reason = f"diverged: the validation loss is {value:.3g} after {epoch} epochs, and {chance:.3g} at zero weights"
    return weights, intercepts, Outcome(improved, reason, value, float("nan"), epoch, "Lower learning_rate.")


def _first_weights(away_from: Subspace) -> FloatArray:
    """Equal small weights (d,), kept out of `away_from`; where none are left, along an axis."""
    ones = np.ones(away_from.ambient)
    rest = away_from.reject(ones)
    if np.linalg.norm(rest) < 1e-6 * np.linalg.norm(ones):
        axes = away_from.reject(np.eye(away_from.ambient))
        rest = axes[:, np.argmax(np.linalg.norm(axes, axis=0))]
    return FIRST_WEIGHT * rest


def effective_weights(parameters: FloatArray) -> FloatArray:
    """Weights (w_s, (I − P_{w_s}) u) of the parameters (w_s, u)."""
    w_s, u = parameters
    return np.stack([w_s, u - w_s * ((w_s @ u) / (w_s @ w_s))])


def chain_to_parameters(parameters: FloatArray, gradient: FloatArray) -> FloatArray:
    """Gradient in the parameters (w_s, u) from the gradient in the effective weights."""
    w_s, u = parameters
    g = gradient[MAIN]
    squared = float(w_s @ w_s)
    k, along = float(w_s @ u) / squared, float(w_s @ g) / squared
    return np.stack([gradient[CONCEPT] - k * g - along * (u - 2.0 * k * w_s), g - along * w_s])
