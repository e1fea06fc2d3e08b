"""Toy as the authors' program draws it: the test set repeats the random numbers of the training pool.

Both are drawn from the same seed, so all columns but the main feature, and all concept labels, of the test set are those of the
training pool (four fifths of which train, one fifth validates). Each part is centred: training and test rows on the training
mean, validation rows on their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unspur._typing import FloatArray, IntArray
from unspur.lab.datasets.toy import label_axes


@dataclass(frozen=True, slots=True)
class Part:
    """Rows (n, d) and labels (n,) of one split."""

    z: FloatArray
    main: IntArray
    concept: IntArray


@dataclass(frozen=True, slots=True)
class Splits:
    """The three splits, centred, and the two features of the test rows that the labels were drawn from, (n, 2)."""

    train: Part
    validation: Part
    test: Part


def released_splits(
    n: int, d: int, rho: float, separability: tuple[float, float], angle: float, rng: np.random.Generator
) -> Splits:
    """Training pool with correlation `rho`, test set of the same size without; `separability` is (concept, main)."""
    noise, uniform = rng.standard_normal((n, d)), rng.random((2, n))

    def draw(correlation: float) -> Part:
        z = noise.copy()
        z[:, 1] = correlation * noise[:, 0] + np.sqrt(1.0 - correlation**2) * noise[:, 1]
        concept, main = (
            (u < 1.0 / (1.0 + np.exp(-z @ axis))).astype(np.int64)
            for u, axis in zip(uniform, label_axes(d, separability, angle), strict=True)
        )
        return Part(z, main, concept)

    pool, test = draw(rho), draw(0.0)
    order = rng.permutation(n)
    cut = int(0.8 * n)
    train, validation = (_rows(pool, rows) for rows in (order[:cut], order[cut:]))
    centre = train.z.mean(axis=0)
    return Splits(_minus(train, centre), _minus(validation, validation.z.mean(axis=0)), _minus(test, centre))


def _rows(part: Part, rows: IntArray) -> Part:
    return Part(part.z[rows], part.main[rows], part.concept[rows])


def _minus(part: Part, centre: FloatArray) -> Part:
    return Part(part.z - centre, part.main, part.concept)
