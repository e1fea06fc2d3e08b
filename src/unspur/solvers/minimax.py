"""RLACE's game: the projection after which the best linear classifier does worst.

*Exact responses* (`ascend`). For fewer directions than the class means differ in, ascent on the loss of the best linear
response ::

    G(V) = min_w Σ_c loss_c(w_c)   over w_c ⟂ V,        V (d, k) with orthonormal columns

At the minimum ``∇loss_c + V ν_c = 0``, so that by the envelope theorem ``∂G/∂V = −Σ_c w_c (Vᵀ ∇loss_c)ᵀ``: every step
costs one exact best response. What can be reached is bounded by the loss of a constant.

*The published schedule* (`descend_and_ascend`). The Fantope ``{P : 0 ≼ P ≼ I, tr P = k}`` is the convex hull of the
projections of rank k. In turn, a logistic regression takes a step down the loss of the rows ``(I − P) z``, and P a step
up it, back onto the Fantope.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unspur._typing import FloatArray
from unspur.rows import CONCEPT, RowSource, Weighting


@dataclass(frozen=True, slots=True)
class Response:
    """The best response to a removal: its loss, and the gradient ∂G/∂V (d, k) of that loss."""

    loss: float
    gradient: FloatArray


def ascend(
    respond: Callable[[FloatArray], Response], first: FloatArray, *, tol: float = 1e-6, max_iter: int = 200
) -> tuple[FloatArray, int, str]:
    """Directions (d, k), orthonormal, from which no small turn makes the best response worse; steps; why it ended.

    Gradient steps along the Grassmannian with a step that doubles while it helps and halves until it does.
    """
    v, here = first, respond(first)
    size = 1.0
    for step in range(1, max_iter + 1):
        turn = here.gradient - v @ (v.T @ here.gradient)
        length = float(np.linalg.norm(turn))
        if length <= tol * max(here.loss, np.finfo(np.float64).tiny):
            return v, step, "no turn of the directions makes the best response worse"
        while True:
            trial = np.linalg.qr(v + size * turn / length)[0]
            there = respond(trial)
            if there.loss > here.loss or size < 1e-9:
                break
            size /= 2.0
        if there.loss <= here.loss:
            return v, step, "no turn of the directions makes the best response worse"
        v, here, size = trial, there, 2.0 * size
    return v, max_iter, f"{max_iter} steps, still turning"


@dataclass(frozen=True, slots=True)
class FantopeSchedule:
    """Hyper-parameters; the iterations and the accuracy to stop at are the paper's."""

    learning_rate: float = 5e-3
    momentum: float = 0.9
    weight_decay: float = 1e-5
    batch_size: int = 128
    max_iter: int = 50_000
    check_every: int = 100
    stop_below: float = 0.51


def onto_fantope(matrix: FloatArray, rank: int) -> FloatArray:
    """Closest point of the Fantope: eigenvalues shifted and clipped to [0, 1] so that they sum to `rank`."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    low, high = values.min() - 1.0, values.max()
    for _ in range(100):  # the clipped sum falls with the shift: bisection to machine precision
        shift = 0.5 * (low + high)
        if np.clip(values - shift, 0.0, 1.0).sum() > rank:
            low = shift
        else:
            high = shift
    clipped = np.clip(values - high, 0.0, 1.0)
    return np.asarray((vectors * clipped) @ vectors.T)


def top_directions(matrix: FloatArray, rank: int) -> FloatArray:
    """Orthonormal eigenvectors (d, rank) of the largest eigenvalues."""
    return np.asarray(np.linalg.eigh(matrix)[1][:, ::-1][:, :rank])


@np.errstate(over="ignore", invalid="ignore")  # too large a learning rate is noticed where it diverges
def descend_and_ascend(
    rows: RowSource,
    weighting: Weighting,
    centre: FloatArray,
    rank: int,
    schedule: FantopeSchedule,
    accuracy: Callable[[FloatArray, FloatArray, float], float],
    rng: np.random.Generator,
    report: Callable[[int], object],
) -> tuple[FloatArray, int, str]:
    """Directions to remove (d, rank), iterations taken, and why they ended.

    `accuracy(directions, weights, bias)` is that of the classifier as it stands once the directions are removed; the
    directions at which it was lowest are kept. (Stopping on this one, not on the best classifier, gives the published
    figures.)
    """
    d = rows.n_features
    p = np.eye(d) * rank / d
    weights, bias = rng.standard_normal(d) * 1e-2, 0.0
    speed, speed_b, speed_p = np.zeros(d), 0.0, np.zeros((d, d))
    best, done = (np.inf, top_directions(p, rank)), 0
    while done < schedule.max_iter:
        for block in rows.minibatches(schedule.batch_size, rng, weighting):
            x = block.z - centre
            target = block.targets[CONCEPT]
            for player in ("classifier", "projection"):
                kept = x - x @ p
                residual = (1.0 / (1.0 + np.exp(-(kept @ weights + bias))) - target) / len(x)
                if player == "classifier":
                    speed = schedule.momentum * speed + kept.T @ residual + schedule.weight_decay * weights
                    speed_b = schedule.momentum * speed_b + residual.sum()
                    weights, bias = weights - schedule.learning_rate * speed, bias - schedule.learning_rate * speed_b
                else:
                    # loss(P) through logits θᵀ(I − P)x: its gradient is −sym(θ gᵀ) with g = Σ r x
                    g = x.T @ residual
                    speed_p = schedule.momentum * speed_p - 0.5 * (np.outer(weights, g) + np.outer(g, weights))
                    moved = p + schedule.learning_rate * speed_p
                    if not np.isfinite(moved).all():
                        return best[1], done, f"it diverged after {done} iterations, with too large a learning_rate"
                    p = onto_fantope(moved, rank)
            done += 1
            if done % schedule.check_every == 0 or done >= schedule.max_iter:
                report(schedule.check_every)
                found = top_directions(p, rank)
                score = accuracy(found, weights, bias)
                if score < best[0]:
                    best = (score, found)
                if score < schedule.stop_below:
                    return found, done, f"the adversary is right in {100 * score:.1f} %"
            if done >= schedule.max_iter:
                break
    return best[1], done, f"{done} iterations, at best with the adversary right in {100 * best[0]:.1f} %"
