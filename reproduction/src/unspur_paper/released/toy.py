"""Toy as the authors' program draws it: the test set repeats the random numbers of the training pool.

Both are drawn from the same seed, so all columns but the main feature, and all concept labels, of the test set are
those of the training pool (four fifths of which train, one fifth validates). Each part is centred: training and test
rows on the training mean, validation rows on their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unspur._typing import FloatArray
from unspur.datasets import label_axes
from unspur_paper.rows import Rows


@dataclass(frozen=True, slots=True)
class Splits:
    """Rows to train on, to validate on and to test on, and what was subtracted from training and test rows, (d,)."""

    train: Rows
    validation: Rows
    test: Rows
    centre: FloatArray


def released_splits(
    n: int, d: int, rho: float, separability: tuple[float, float], angle: float, rng: np.random.Generator
) -> Splits:
    """Training pool with correlation `rho`, test set of the same size without; `separability` is (concept, main)."""
    noise, uniform = rng.standard_normal((n, d)), rng.random((2, n))

    def draw(correlation: float) -> Rows:
        z = noise.copy()
        z[:, 1] = correlation * noise[:, 0] + np.sqrt(1.0 - correlation**2) * noise[:, 1]
        concept, main = (
            (u < 1.0 / (1.0 + np.exp(-z @ axis))).astype(np.int64)
            for u, axis in zip(uniform, label_axes(d, separability, angle), strict=True)
        )
        return Rows(z, main, concept)

    pool, test = draw(rho), draw(0.0)
    order = rng.permutation(n)
    cut = int(0.8 * n)
    train, validation = pool.select(order[:cut]), pool.select(order[cut:])
    centre = train.Z.mean(axis=0)
    return Splits(_minus(train, centre), _minus(validation, validation.Z.mean(axis=0)), _minus(test, centre), centre)


def _minus(rows: Rows, centre: FloatArray) -> Rows:
    return Rows(rows.Z - centre, rows.y, rows.concept)
