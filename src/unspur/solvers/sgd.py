"""The paper's solvers, for pairs and for heads: minibatch SGD with momentum and early stopping.

They explain published numbers; `solvers.orthogonal_pair` and `solvers.logistic` solve the same problems exactly and
faster. Penalty is absolute here, and applies to intercepts as well, as in the published runs.

Conventions
-----------
- q labels or k logits, d features. Parameters are two arrays, weights (q, d) and intercepts (q, 1).
- Batches are drawn by row weight, so within a batch rows count alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from unspur._typing import Array, FloatArray
from unspur.exceptions import InputError
from unspur.rows import CONCEPT, MAIN, Block, MemoryRows, RowSource, Weighting, training_part
from unspur.solvers.descent import Outcome
from unspur.solvers.logistic import CellLosses, FitOutcome, LinearLogits, LinearModel, LogisticLosses, loss_and_residual
from unspur.solvers.orthogonal_pair import Pair
from unspur.subspace import Subspace

#: First value of all weights of a pair; at zero the projection off w_s is undefined.
FIRST_WEIGHT = 1e-7
#: Largest loss, relative to chance, of a run that has not diverged: with nothing to learn it hovers about chance.
MAX_LOSS_OVER_CHANCE = 1.05

#: Weights (q, d) and intercepts (q, 1).
Parameters: TypeAlias = tuple[FloatArray, ...]
#: Weights of the rows of a batch, from their losses and cells.
BatchWeights: TypeAlias = Callable[[FloatArray, Array], FloatArray]
#: Held-out loss for early stopping of a head.
Watch: TypeAlias = Callable[[LinearLogits], float]


@dataclass(frozen=True, slots=True)
class SGDSettings:
    """Hyper-parameters, at the paper's values for Toy."""

    learning_rate: float = 1e-2
    momentum: float = 0.9
    penalty: float = 0.0
    batch_size: int = 128
    max_epochs: int = 50
    patience: int = 5


@dataclass(frozen=True, slots=True)
class _Run:
    """Parameters of the best epoch, what was watched there, epochs in all, and whether patience ended them."""

    parameters: Parameters
    value: float
    epochs: int
    stopped_early: bool

    def reason(self, settings: SGDSettings) -> str:
        """Why it ended. Stopping at the last epoch is part of the paper's schedule, not a failure."""
        if self.stopped_early:
            return f"no improvement for {settings.patience} epochs"
        return f"{self.epochs} epochs, still improving"


def _run(
    rows: RowSource,
    weighting: Weighting,
    settings: SGDSettings,
    rng: np.random.Generator,
    parameters: Parameters,
    gradient: Callable[[Parameters, Block], Parameters],
    watch: Callable[[Parameters], float] | None,
) -> _Run:
    """Run the epochs, and keep the parameters of the one with the smallest `watch`.

    Without `watch` all epochs are run and the last parameters are kept.
    """
    velocity: Parameters = tuple(map(np.zeros_like, parameters))
    best, value = parameters, np.inf
    waited = epoch = 0
    with np.errstate(over="ignore", invalid="ignore"):  # a learning rate that diverges is an outcome
        while epoch < settings.max_epochs and waited < settings.patience:
            epoch += 1
            for block in minibatches(rows, settings.batch_size, rng, weighting):
                slopes = gradient(parameters, block)
                velocity = tuple(settings.momentum * v + g for v, g in zip(velocity, slopes, strict=True))
                parameters = tuple(p - settings.learning_rate * v for p, v in zip(parameters, velocity, strict=True))
            there = -np.inf if watch is None else watch(parameters)
            if watch is None or there < value:
                best, value, waited = parameters, there, 0
            else:
                waited += 1
    return _Run(best, value, epoch, waited >= settings.patience)


def solve_pair_by_sgd(
    rows: RowSource,
    weighting: Weighting,
    validation: Weighting,
    centre: FloatArray,
    excluded: Subspace,
    settings: SGDSettings,
    rng: np.random.Generator,
    inverse_factor: FloatArray | None = None,
    *,
    only: int | None = None,
) -> Pair:
    """Orthogonal weights for both labels, orthogonal to `excluded`; on rows ``(x − centre) inverse_factor`` if given.

    Batches are drawn by `weighting`; after each epoch the loss of the rows weighted by `validation` is measured, and
    the best weights are kept once it has not improved for `patience` epochs. The main-task weights are those of
    ``(I − P_{w_s}) u``. The objective reported is the best validation loss, and one clearly above chance is a failure.
    For one label `only`, weights are (1, d).
    """
    q = 2 if only is None else 1
    equal = Weighting(np.ones_like(weighting.factor))

    def weights_of(theta: FloatArray) -> FloatArray:
        """Weights (q, d) of the parameters (q, d)."""
        return effective_weights(theta) if only is None else theta

    def on_rows(weights: FloatArray) -> FloatArray:
        """Weights, or a gradient in them, through the symmetric matrix."""
        return weights if inverse_factor is None else weights @ inverse_factor

    def gradient(parameters: Parameters, block: Block) -> Parameters:
        """Mean gradient of a batch, with penalty."""
        theta, intercepts = parameters
        batch = replace(block, weight=np.full(len(block.cell), 1.0 / len(block.cell)))
        weights = on_rows(weights_of(theta))
        sums = LogisticLosses.of_one(weights, intercepts[:, 0], centre, equal, centred=True, only=only)(batch)[0]
        slopes = on_rows(sums[:, 2:])
        slopes = chain_to_parameters(theta, slopes) if only is None else slopes
        decay = settings.penalty
        return excluded.reject((slopes + decay * theta).T).T, sums[:, 1:2] + decay * intercepts

    def validation_loss(weights: FloatArray, intercepts: FloatArray) -> float:
        """Loss of the validation rows, both labels together."""
        losses = LogisticLosses.of_one(on_rows(weights), intercepts, centre, validation, only=only)
        return float(rows.sum(losses)[0, :, 0].sum())

    def watch(parameters: Parameters) -> float:
        return validation_loss(weights_of(parameters[0]), parameters[1][:, 0])

    start = (np.tile(_first_weights(excluded), (q, 1)), np.full((q, 1), FIRST_WEIGHT))
    run = _run(rows, weighting, settings, rng, start, gradient, watch)
    weights, intercepts = weights_of(run.parameters[0]), run.parameters[1][:, 0]
    chance = validation_loss(np.zeros_like(weights), np.zeros(q))
    improved, reason = bool(run.value <= MAX_LOSS_OVER_CHANCE * chance), run.reason(settings)
    if not improved:
        reason = (
            f"diverged: the validation loss is {run.value:.3g} after {run.epochs} epochs, "
            f"and {chance:.3g} at zero weights"
        )
    outcome = Outcome(improved, reason, run.value, float("nan"), run.epochs, "Lower learning_rate.")
    return Pair(weights, intercepts, outcome)


def _first_weights(excluded: Subspace) -> FloatArray:
    """Equal small weights (d,) orthogonal to `excluded`; along an axis if none are left."""
    ones = np.ones(excluded.ambient)
    rest = excluded.reject(ones)
    if np.linalg.norm(rest) < 1e-6 * np.linalg.norm(ones):
        axes = excluded.reject(np.eye(excluded.ambient))
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


def uniform_weights(losses: FloatArray, cell: Array) -> FloatArray:  # noqa: ARG001 — one signature for all
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
    batch_weights: BatchWeights = uniform_weights,
    start: LinearModel | None = None,
) -> LinearModel:
    """Logits ``W (z − centre) + b`` by SGD on batches drawn by `weighting`.

    `watch` is measured after each epoch; the best weights are kept once it has not improved for `patience` epochs.
    Without it, all `max_epochs` epochs are run and the last weights returned.
    """

    def logits(parameters: Parameters) -> LinearLogits:
        return LinearLogits(parameters[0], parameters[1][:, 0], centre, centred=True)

    def gradient(parameters: Parameters, block: Block) -> Parameters:
        current = logits(parameters)
        z = current.rows(block)
        losses, residual = loss_and_residual(current.of(z), block.targets[MAIN])
        residual *= batch_weights(losses, block.cell)
        slopes = (residual @ z, residual.sum(axis=1, keepdims=True))
        return slopes[0] + settings.penalty * parameters[0], slopes[1] + settings.penalty * parameters[1]

    first: Parameters = (np.zeros((n_logits, rows.n_features)), np.zeros((n_logits, 1)))
    if start is not None:
        first = (start.weights, start.intercepts[:, None])
    watched = None if watch is None else lambda parameters: watch(logits(parameters))
    run = _run(rows, weighting, settings, rng, first, gradient, watched)
    with np.errstate(over="ignore", invalid="ignore"):
        at_start, at_end = (
            float(rows.sum(CellLosses(logits(end), len(weighting.factor))) @ weighting.factor)
            for end in (first, run.parameters)
        )
    if watch is None:
        outcome = FitOutcome(True, f"{run.epochs} epochs", at_end, float("nan"), run.epochs)
    else:
        outcome = _layer_outcome(run, at_start, at_end, float(np.log(max(n_logits, 2))), settings)
    return LinearModel(run.parameters[0], run.parameters[1][:, 0], centre, outcome)


def _layer_outcome(run: _Run, at_start: float, at_end: float, chance: float, settings: SGDSettings) -> FitOutcome:
    """A training loss above start and chance is a failure; group DRO trades some of it for its worst group.

    (The watched loss may rise above chance without harm, as that of a small group does while the rest is learnt.)
    """
    reason = run.reason(settings)
    improved = bool(np.isfinite(run.value) and at_end <= MAX_LOSS_OVER_CHANCE * max(at_start, chance))
    if not improved:
        reason = (
            f"diverged: training loss {at_end:.3g} after {run.epochs} epochs, {at_start:.3g} at the start, "
            f"{chance:.3g} by chance"
        )
    return FitOutcome(improved, reason, run.value, float("nan"), run.epochs, "Lower learning_rate.")


def minibatches(rows: RowSource, size: int, rng: np.random.Generator, weighting: Weighting) -> Iterator[Block]:
    """One epoch of random blocks of `size` rows in memory, drawn by `weighting`."""
    part = training_part(rows)
    if not isinstance(part, MemoryRows):
        raise InputError("SGD draws rows at random, so they must be in memory.")
    weight = part.labels.weight * weighting.factor[part.labels.cell]
    order = np.flatnonzero(weight > 0)
    chosen = weight[order]
    if np.ptp(chosen) > 1e-12 * chosen.max():
        order = rng.choice(order, size=len(order), p=chosen / chosen.sum())
    else:
        order = rng.permutation(order)
    for start in range(0, len(order), size):
        some = order[start : start + size]
        yield part.labels.block(part.z[some].astype(part.dtype, copy=False), some)
