"""JSE as in the authors' program.

It differs from the paper's description in what it projects (rows, with free weights), in the tests (a direction's own
label is judged by the joint model's coefficient and bias, projected like the direction; only the other label is
refitted), in the pair that supplies the spurious candidate (that of the last accepted inner step), and in that
earlier spurious directions are taken again off the main-task directions of the latest round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from unspur._typing import Array, FloatArray
from unspur_paper.released.schedule import (
    CONCEPT,
    MAIN,
    Schedule,
    effective_weights,
    first_parameters,
    loss_and_probability,
    pair_objective,
    train_logistic,
)
from unspur_paper.released.toy import Splits
from unspur_paper.rows import Rows


@dataclass(frozen=True, slots=True)
class ReleasedPair:
    """Weights (2, d) of concept and main label, and their biases."""

    weights: FloatArray
    biases: FloatArray

    @classmethod
    def train(cls, part: Rows, schedule: Schedule, rng: np.random.Generator) -> ReleasedPair:
        """Train both. What was projected off the rows is off the weights, too, but for their first 1e-7."""
        d = part.Z.shape[1]
        theta = schedule.train(
            pair_objective(part.Z, part.concept, part.y), first_parameters(2 * d + 2), len(part.Z), rng
        )
        return cls(effective_weights(theta[: 2 * d].reshape(2, d)), theta[2 * d :])


def released_jse(
    splits: Splits,
    schedule: Schedule,
    rng: np.random.Generator,
    *,
    delta: float | str = 0.0,
    significance_level: float = 0.05,
) -> tuple[FloatArray, FloatArray]:
    """Orthonormal spurious (d, k) and main-task directions (d, m)."""
    train, validation = splits.train, splits.validation
    d = train.Z.shape[1]
    if delta == "auto":
        delta = _difficulty(ReleasedPair.train(train, schedule, rng), validation)
    tests = _Tests(float(delta), float(ndtri(1.0 - significance_level)), schedule, rng)
    spurious, main = np.zeros((d, 0)), np.zeros((d, 0))
    chosen: list[ReleasedPair] = []
    for _ in range(d):
        outer = _off(train, spurious), _off(validation, spurious)
        pairs: list[ReleasedPair] = []
        main = np.zeros((d, 0))
        for _ in range(d):
            remaining = _off(outer[0], main), _off(outer[1], main)
            pairs.append(ReleasedPair.train(remaining[0], schedule, rng))
            vectors = _sequence([pair.weights[MAIN] for pair in pairs], spurious)
            if not tests.main(vectors[-1], pairs[-1], *remaining):
                break
            main = _orthonormal(vectors)
        chosen.append(pairs[max(main.shape[1] - 1, 0)])
        vectors = _sequence([pair.weights[CONCEPT] for pair in chosen], main)
        if not tests.spurious(vectors[-1], chosen[-1], *outer):
            return _orthonormal(vectors[:-1], d), main
        spurious = _orthonormal(vectors)
    return spurious, main


@dataclass(frozen=True, slots=True)
class _Tests:
    """Both tests on validation rows, group-weighted; a group of fewer than two rows fails them all (its t is NaN)."""

    delta: float
    critical: float
    schedule: Schedule
    rng: np.random.Generator

    def main(self, vector: FloatArray, pair: ReleasedPair, train: Rows, validation: Rows) -> bool:
        """Whether `vector`, a coefficient for the main label, is a proper main-task direction."""
        own = _losses(validation.Z @ vector + pair.biases[MAIN], validation.y)
        other = self._refitted(vector, train.Z, train.concept, validation.Z, validation.concept)
        return bool(
            _t(own - np.log(2.0), validation, 0.0) < -self.critical
            and _t(other - own, validation, self.delta) > self.critical
        )

    def spurious(self, vector: FloatArray, pair: ReleasedPair, train: Rows, validation: Rows) -> bool:
        """Whether `vector`, a coefficient for the concept, is a proper spurious direction."""
        own = _losses(validation.Z @ vector + pair.biases[CONCEPT], validation.concept)
        other = self._refitted(vector, train.Z, train.y, validation.Z, validation.y)
        return bool(
            _t(own - np.log(2.0), validation, 0.0) < -self.critical
            and _t(own - other, validation, self.delta) < -self.critical
        )

    def _refitted(
        self, vector: FloatArray, z: FloatArray, label: Array, z_val: FloatArray, label_val: Array
    ) -> FloatArray:
        unit = vector / np.linalg.norm(vector)
        slope, bias = train_logistic((z @ unit)[:, None], label, self.schedule, self.rng)
        return _losses(slope[0] * (z_val @ unit) + bias, label_val)


def _difficulty(pair: ReleasedPair, validation: Rows) -> float:
    """The heuristic for Δ, averaged over rows, not groups."""
    concept, main = pair.weights @ validation.Z.T + pair.biases[:, None]
    return float(np.mean(_losses(concept, validation.concept) - _losses(main, validation.y)))


def _losses(logits: FloatArray, label: Array) -> FloatArray:
    return loss_and_probability(logits, label)[0]


def _t(difference: FloatArray, part: Rows, delta: float) -> float:
    groups = [difference[(part.y == y) & (part.concept == s)] for y in (0, 1) for s in (0, 1)]
    if min(len(group) for group in groups) < 2:
        return float("nan")
    variance = sum(float(group.var(ddof=1)) / len(group) for group in groups) / 16.0
    return float((sum(group.mean() for group in groups) / 4.0 - delta) / np.sqrt(variance))


def _off(part: Rows, directions: FloatArray) -> Rows:
    """The part with its rows projected off orthonormal directions (d, k)."""
    return Rows(part.Z - (part.Z @ directions) @ directions.T, part.y, part.concept)


def _sequence(vectors: list[FloatArray], off: FloatArray) -> list[FloatArray]:
    """Each vector off the orthonormal `off` (d, k) and then off those before it; lengths are kept as they fall out."""
    found: list[FloatArray] = []
    for vector in vectors:
        rest = vector - off @ (off.T @ vector)
        for before in found:
            rest = rest - before * (before @ rest) / (before @ before)
        found.append(rest)
    return found


def _orthonormal(vectors: list[FloatArray], d: int = 0) -> FloatArray:
    """Columns of unit length, (d, k), of orthogonal vectors."""
    return np.stack([v / np.linalg.norm(v) for v in vectors], axis=1) if vectors else np.zeros((d, 0))
