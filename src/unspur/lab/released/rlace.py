"""RLACE as in the authors' program: no momentum, judged after every step by a classifier trained for the purpose.

The search ends once a fresh ``SGDClassifier`` comes within one point of the majority on the training rows; what is
returned is the projection at which such a classifier had the largest loss on the way.
"""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

from unspur._typing import FloatArray
from unspur.lab.selection import Rows
from unspur.solvers.fantope import onto_fantope, top_directions
from unspur.sums.logistic import loss_and_probability


def released_rlace(
    part: Rows,
    learning_rate: float,
    rng: np.random.Generator,
    *,
    rank: int = 1,
    batch_size: int = 128,
    max_iter: int = 50_000,
    margin: float = 0.01,
) -> FloatArray:
    """Orthonormal directions (d, rank)."""
    z, label = part.Z, part.concept
    n, d = z.shape
    judge_seed = np.random.RandomState(rng.integers(2**31 - 1))
    majority = max(label.mean(), 1.0 - label.mean())
    reach = 1.0 / np.sqrt(d)
    theta = rng.uniform(-reach, reach, d + 1)
    p = 0.1 * rng.standard_normal((d, d))
    p = (p + p.T) / 2.0
    best, gap = (-np.inf, p), np.inf
    for step in range(max_iter):
        residual, batch, _ = _residual(z, label, p, theta, rng.permutation(n)[:batch_size])
        p = onto_fantope(p - learning_rate * np.outer(batch.T @ residual, theta[:-1]), rank)
        residual, _, kept = _residual(z, label, p, theta, rng.permutation(n)[:batch_size])
        theta = theta - learning_rate * np.append(residual @ kept, residual.sum())
        directions = top_directions(p, rank)
        loss, accuracy = _judge(z - (z @ directions) @ directions.T, part, judge_seed)
        if loss > best[0]:
            best = (loss, p)
        gap = min(gap, abs(accuracy - majority))
        if step > 1 and gap < margin:
            break
    return top_directions(best[1], rank)


def _residual(
    z: FloatArray, label: FloatArray, p: FloatArray, theta: FloatArray, rows: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Residuals of the mean loss, the batch, and what P leaves of it."""
    batch = z[rows]
    kept = batch - batch @ p
    probability = loss_and_probability(kept @ theta[:-1] + theta[-1], label[rows])[1]
    return (probability - label[rows]) / len(rows), batch, kept


def _judge(z: FloatArray, part: Rows, seed: np.random.RandomState) -> tuple[float, float]:
    """Loss and accuracy of a classifier on the rows it was trained on."""
    judge = SGDClassifier(
        loss="log_loss", alpha=1e-4, max_iter=25_000, tol=1e-4, n_iter_no_change=15, random_state=seed
    ).fit(z, part.concept)
    return float(log_loss(part.concept, judge.predict_proba(z))), float(judge.score(z, part.concept))
