"""Training as in the authors' program: minibatch SGD whose early stopping looks at the last training minibatch.

The validation rows are visited in every epoch, but the loss that is averaged over them is the one left over from the
last minibatch of training. So the schedule stops after `patience` epochs in which a loss of a few dozen training
rows, taken before the step on them, has not fallen by `tolerance`; only then are the best parameters restored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from unspur._typing import Array, FloatArray

#: The concept and the main label among the rows of weights of a pair.
CONCEPT, MAIN = 0, 1
#: First value of all weights; at zero the projection off w_s is undefined.
FIRST_WEIGHT = 1e-7
#: (parameters, rows of the batch) -> (mean loss, gradient in the parameters)
Objective: TypeAlias = Callable[[FloatArray, Array], tuple[float, FloatArray]]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Hyper-parameters of one training run."""

    learning_rate: float
    batch_size: int = 128
    momentum: float = 0.9
    max_epochs: int = 50
    patience: int = 6
    tolerance: float = 1e-3

    def train(
        self,
        objective: Objective,
        start: FloatArray,
        n_rows: int,
        rng: np.random.Generator,
        shares: FloatArray | None = None,
    ) -> FloatArray:
        """Parameters after training; an epoch visits every row once, or draws n rows with probabilities `shares`."""
        theta = best = start
        velocity = np.zeros_like(start)
        lowest, left = np.inf, self.patience
        for _ in range(self.max_epochs):
            order = rng.permutation(n_rows) if shares is None else rng.choice(n_rows, n_rows, p=shares)
            loss = np.inf
            for first in range(0, n_rows, self.batch_size):
                loss, gradient = objective(theta, order[first : first + self.batch_size])
                velocity = self.momentum * velocity + gradient
                theta = theta - self.learning_rate * velocity
            if loss > lowest - self.tolerance:
                left -= 1
                if left == 0:
                    return best
            else:
                best, lowest, left = theta, loss, self.patience
        return theta


def loss_and_probability(logits: FloatArray, targets: Array) -> tuple[FloatArray, FloatArray]:
    """``log(1 + exp η) − y η`` and ``1 / (1 + exp(−η))`` of logits η, without overflow."""
    if logits.size and np.abs(logits).max() > 300.0:
        small = np.exp(-np.abs(logits))
        probability = np.where(logits >= 0, 1.0, small) / (1.0 + small)
        return np.maximum(logits, 0.0) + np.log1p(small) - targets * logits, probability
    inverse = np.exp(-logits) + 1.0
    return np.log(inverse) + (1.0 - targets) * logits, 1.0 / inverse


def logistic_objective(z: FloatArray, label: Array, row_weight: FloatArray | None = None) -> Objective:
    """Mean of ``row_weight · ℓ(z · w + b, label)`` over a batch; parameters (w, b)."""

    def objective(theta: FloatArray, rows: Array) -> tuple[float, FloatArray]:
        batch, target = z[rows], label[rows]
        losses, residual = loss_and_probability(batch @ theta[:-1] + theta[-1], target)
        residual -= target
        if row_weight is not None:
            residual *= row_weight[rows]
            losses *= row_weight[rows]
        residual /= len(rows)
        return float(losses.mean()), np.append(residual @ batch, residual.sum())

    return objective


def pair_objective(z: FloatArray, concept: Array, main: Array) -> Objective:
    """Mean of ``ℓ(z · w_s + b_s, concept) + ℓ(z · (I − P_{w_s}) u + b_y, main)``; parameters (w_s, u, b_s, b_y)."""
    targets, d = np.stack([concept, main]).astype(np.float64), z.shape[1]

    def objective(theta: FloatArray, rows: Array) -> tuple[float, FloatArray]:
        parameters, batch, target = theta[: 2 * d].reshape(2, d), z[rows], targets[:, rows]
        logits = effective_weights(parameters) @ batch.T + theta[2 * d :, None]
        losses, residual = loss_and_probability(logits, target)
        residual = (residual - target) / len(rows)
        gradient = chain_to_parameters(parameters, residual @ batch)
        return float(losses.sum()) / len(rows), np.concatenate([gradient.ravel(), residual.sum(axis=1)])

    return objective


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


def first_parameters(size: int) -> FloatArray:
    """All weights and biases start at 1e-7."""
    return np.full(size, FIRST_WEIGHT)


def train_logistic(
    z: FloatArray, label: Array, schedule: Schedule, rng: np.random.Generator
) -> tuple[FloatArray, float]:
    """Weights (d,) and bias of a plain logistic regression."""
    theta = schedule.train(logistic_objective(z, label), first_parameters(z.shape[1] + 1), len(z), rng)
    return theta[:-1], float(theta[-1])
