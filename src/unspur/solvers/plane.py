"""Good places to start: the best orthogonal pairs inside a plane.

The pair problem is smooth but its constraint is not convex, and the local minima differ mainly in *which* label gets
the direction that serves both. Within a plane the question is one angle φ: put the concept at φ, the main
task at φ + 90°, fit scale and intercept of each (convex), and add the two losses. Scanning that angle costs one
pass over Z and a few over two columns. Two planes are worth a scan: that of the two whitened class-mean
differences, before anything is known, and that of a solution, to see whether exchanging the roles would be better.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unspur._typing import FloatArray
from unspur.rows import CONCEPT, MAIN, RowSource, Weighting
from unspur.solvers.scalars import ScalarFit, fit_scalars
from unspur.solvers.whitening import Whitening
from unspur.sums.scalars import LinearScore

#: Angles tried in half a turn; even, so that the orthogonal partner of every angle is one of them.
ANGLES = 8


@dataclass(frozen=True, slots=True)
class Start:
    """Weights (2, d) and intercepts (2,) to start from, the objective they reach inside the plane, and their angle."""

    weights: FloatArray
    intercepts: FloatArray
    objective: float
    angle: float


def plane_of_class_means(whitening: Whitening, slopes: FloatArray) -> FloatArray:
    """Orthonormal basis (d, 2) of the plane of the whitened class-mean differences.

    `slopes`, shape (2, d), is the gradient of both losses at zero weights: minus the weighted class-mean
    differences. One Newton step from zero in whitened coordinates points along ``T Tᵀ slopes``.
    """
    steps = whitening.weights(whitening.pull_back(slopes.T))
    left, singular, _ = np.linalg.svd(steps / np.linalg.norm(steps, axis=0), full_matrices=False)
    if singular[1] <= 1e-8 * singular[0]:  # both labels point the same way: any partner direction will do
        left = np.column_stack([left[:, 0], _any_partner(whitening, left[:, 0])])
    return np.asarray(left)


def scan_plane(
    rows: RowSource, weighting: Weighting, whitening: Whitening, basis: FloatArray, angles: int = ANGLES
) -> list[Start]:
    """Local minima over the angle of a pair inside the plane of `basis` (d, 2), best first.

    At angle 0 the concept lies along the first column.
    """
    phi = np.arange(angles) * np.pi / angles
    circle = np.stack([np.cos(phi), np.sin(phi)], axis=1)
    in_plane = rows.project(basis, whitening.geometry.centre)
    fits: list[ScalarFit] = [
        fit_scalars(in_plane, LinearScore(circle), np.full(angles, label), weighting,
                    decay=whitening.decay, tol=0.1, max_iter=4)
        for label in (CONCEPT, MAIN)
    ]  # fmt: skip
    partner = (np.arange(angles) + angles // 2) % angles
    profile = fits[CONCEPT].objective + fits[MAIN].objective[partner]
    low = np.flatnonzero((profile <= np.roll(profile, 1)) & (profile <= np.roll(profile, -1)))
    minima = []
    for i in low[np.argsort(profile[low])]:
        chosen = (i, partner[i])
        weights = [fit.gamma[j] / fit.standardise.deviation[j] * circle[j] for fit, j in zip(fits, chosen, strict=True)]
        shifts = [
            fit.standardise.mean[j] / fit.standardise.deviation[j] * fit.gamma[j]
            for fit, j in zip(fits, chosen, strict=True)
        ]
        intercepts = [fit.intercept[j] - shift for fit, j, shift in zip(fits, chosen, shifts, strict=True)]
        minima.append(Start(np.stack(weights) @ basis.T, np.array(intercepts), float(profile[i]), float(phi[i])))
    return minima


def _any_partner(whitening: Whitening, direction: FloatArray) -> FloatArray:
    """Some allowed direction (d,) orthogonal to `direction`: the allowed column of T with most left outside it."""
    columns = whitening.weights(whitening.allow(np.eye(whitening.transform.shape[1])))
    columns -= np.outer(direction, direction @ columns)
    lengths = np.linalg.norm(columns, axis=0)
    best = int(np.argmax(lengths))
    return np.asarray(columns[:, best] / lengths[best])
