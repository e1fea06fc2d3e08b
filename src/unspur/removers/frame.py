"""Coordinates in which training rows have unit covariance, and what a projection there is in the user's coordinates.

::

    x̃ = (x − c) T,   T = Σ^(−1/2)  on the range of Σ, symmetric

Directions that are orthogonal there have scores that are uncorrelated over the training rows, ``wᵀ Σ w' = 0``. The
projection off an orthonormal V there is oblique here: ``x ↦ x − (x − c) R Lᵀ`` with ``R = T V`` and ``L = T⁻¹ V``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unspur._typing import FloatArray
from unspur.rows import RowSource, Weighting
from unspur.solvers.whitening import Geometry
from unspur.subspace import AffineMap, Subspace

#: Variances below this share of the largest are rounding, not spread.
NOISE = 1e-12


@dataclass(frozen=True, slots=True)
class Frame:
    """Centre (d,), T (d, d) and its inverse on the range of the covariance."""

    centre: FloatArray
    whiten: FloatArray
    back: FloatArray

    @classmethod
    def of_rows(cls, rows: RowSource, weighting: Weighting) -> Frame:
        """From the rows that a weighting counts."""
        geometry = Geometry.of_rows(rows, weighting)
        values, vectors = np.linalg.eigh(geometry.second)
        real = values > NOISE * values[-1]
        deviation, basis = np.sqrt(values[real]), vectors[:, real]
        return cls(geometry.centre, (basis / deviation) @ basis.T, (basis * deviation) @ basis.T)

    def rows(self, rows: RowSource) -> RowSource:
        """The rows in these coordinates: a copy where they live (memory, a temporary file, the device, the workers)."""
        return rows.project(self.whiten, self.centre)

    def removing(self, subspace: Subspace) -> AffineMap:
        """The projection off a subspace of these coordinates, in those of the user."""
        return AffineMap(self.centre, *self._factors(subspace), "remove")

    def keeping(self, subspace: Subspace) -> AffineMap:
        """The projection onto it."""
        AffineMap.keeping(subspace, self.centre)  # which refuses an empty one
        return AffineMap(self.centre, *self._factors(subspace), "keep", self.centre)

    def _factors(self, subspace: Subspace) -> tuple[FloatArray, FloatArray]:
        """R and L with ``LᵀR = I`` to the last digit: T and its inverse lose some between scales that are far apart."""
        right, left = self.whiten @ subspace.basis, self.back @ subspace.basis
        return right, left @ np.linalg.inv(right.T @ left)

    def scores(self, subspace: Subspace) -> Subspace:
        """The span of the weights, in the user's coordinates, whose scores a subspace of these is read by."""
        return Subspace.spanned_by(self.whiten @ subspace.basis) if subspace.dim else subspace
