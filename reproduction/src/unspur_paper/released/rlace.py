"""RLACE as in the authors' program: no momentum, and after every step a judgement by classifiers trained for it.

Of three ``SGDClassifier`` the one with the smallest loss on the training rows counts. The search ends once that one
comes within a point of the majority; what is returned is the projection at which its loss was largest on the way.
(Three are what the public code of RLACE trains, and the paper says it was used. A copy in one of the authors'
repositories trains one: with that, noise ends the search earlier, and the published figures do not come out.)
"""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

from unspur._typing import FloatArray
from unspur_paper.released.schedule import loss_and_probability
from unspur_paper.rows import Rows

#: A first judge further from the majority than this is not brought within a point of it by a better one.
NEAR = 0.03


def released_rlace(
    part: Rows,
    learning_rate: float,
    rng: np.random.Generator,
    *,
    rank: int = 1,
    batch_size: int = 128,
    max_iter: int = 50_000,
    margin: float = 0.01,
    judges: int = 3,
) -> FloatArray:
    """Orthonormal directions (d, rank)."""
    z, label = part.Z, part.concept
    n, d = z.shape
    judge_seed = int(rng.integers(2**31 - 1))
    majority = max(label.mean(), 1.0 - label.mean())
    reach = 1.0 / np.sqrt(d)
    theta = rng.uniform(-reach, reach, d + 1)
    p = 0.1 * rng.standard_normal((d, d))
    p = (p + p.T) / 2.0
    heard: list[_Judgement] = []
    for step in range(max_iter):
        residual, batch, _ = _residual(z, label, p, theta, rng.permutation(n)[:batch_size])
        p = onto_fantope(p - learning_rate * np.outer(batch.T @ residual, theta[:-1]), rank)
        residual, _, kept = _residual(z, label, p, theta, rng.permutation(n)[:batch_size])
        theta = theta - learning_rate * np.append(residual @ kept, residual.sum())
        judgement = _Judgement(part, top_directions(p, rank), [judge_seed, step], judges)
        heard.append(judgement)
        if abs(judgement.accuracy - majority) < NEAR:
            judgement.hear_all()
        if step > 1 and min(abs(one.accuracy - majority) for one in heard) < margin:
            break
    return _hardest(heard).directions


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


def _hardest(heard: list[_Judgement]) -> _Judgement:
    """The judgement with the largest loss once all judges are heard."""
    best = None
    for judgement in sorted(heard, key=lambda one: one.loss, reverse=True):
        if best is not None and judgement.loss <= best.loss:
            break  # more judges make a loss smaller: none of the rest can be larger
        judgement.hear_all()
        if best is None or judgement.loss > best.loss:
            best = judgement
    assert best is not None
    return best


def _residual(
    z: FloatArray, label: FloatArray, p: FloatArray, theta: FloatArray, rows: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Residuals of the mean loss, the batch, and what P leaves of it."""
    batch = z[rows]
    kept = batch - batch @ p
    probability = loss_and_probability(kept @ theta[:-1] + theta[-1], label[rows])[1]
    return (probability - label[rows]) / len(rows), batch, kept


class _Judgement:
    """Loss and accuracy on the training rows of the best classifier once directions are gone: of one, then of all."""

    def __init__(self, part: Rows, directions: FloatArray, seed: list[int], judges: int):
        self.directions = directions
        self._part, self._seed = part, seed
        self._unheard = range(1, judges)
        self.loss, self.accuracy = self._hear(0)

    def hear_all(self) -> None:
        """Train the others, and let the one with the smallest loss count."""
        self.loss, self.accuracy = min([(self.loss, self.accuracy), *map(self._hear, self._unheard)])
        self._unheard = range(0)

    def _hear(self, number: int) -> tuple[float, float]:
        z, label = self._part.Z - (self._part.Z @ self.directions) @ self.directions.T, self._part.concept
        seed = int(np.random.SeedSequence([*self._seed, number]).generate_state(1)[0])
        judge = SGDClassifier(
            loss="log_loss", alpha=1e-4, max_iter=25_000, tol=1e-4, n_iter_no_change=15, random_state=seed
        ).fit(z, label)
        return float(log_loss(label, judge.predict_proba(z))), float(judge.score(z, label))
