"""The metric in which directions of concept and task are orthogonal, and what a projection there does to rows.

::

    M(τ) = (1 − τ) · tr(Σ)/r · I + τ · Σ        w_spᵀ M w_mt = 0

Σ is the covariance of the training rows and r its rank. At τ = 0 weights are orthogonal, as in the paper; at τ = 1
their scores are uncorrelated over the training rows. In the coordinates ``x̃ = (x − c) T`` with ``T = M^(−1/2)``,
symmetric, directions are orthogonal in the ordinary sense. Rows are never brought there: a direction v of these
coordinates is read from rows as they are by the weights ``T v``. The projection off an orthonormal V there is oblique
here: ``x ↦ x − (x − c) R Lᵀ`` with ``R = T V`` and ``L = T⁻¹ V``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unspur._typing import FloatArray
from unspur.rows import RowSource, Weighting
from unspur.solvers.statistics import Moments
from unspur.solvers.whitening import Geometry
from unspur.subspace import AffineMap, Subspace

#: Variances below this share of the largest are rounding, not spread.
NOISE = 1e-12
#: Condition of M up to which sums in the type of the rows have digits enough.
MAX_ROUGH_CONDITION = 1e4


@dataclass(frozen=True, slots=True)
class Metric:
    """Centre (d,), T (d, d) and its inverse, both on the range of M."""

    centre: FloatArray
    root: FloatArray
    inverse_root: FloatArray
    condition: float

    @classmethod
    def of_rows(cls, rows: RowSource, weighting: Weighting, tau: float) -> Metric:
        """M(τ) of the rows that a weighting counts; in float64 where T would magnify rounding."""
        geometry = Geometry.of_rows(rows, weighting)
        metric = cls.of(geometry.centre, geometry.second, tau, geometry.rank)
        if metric.condition > MAX_ROUGH_CONDITION and rows.dtype.itemsize < 8:
            exact = Geometry.of(Moments.of(rows, weighting), rows.dtype.itemsize)
            metric = cls.of(exact.centre, exact.second, tau, exact.rank)
        return metric

    @classmethod
    def of(cls, centre: FloatArray, covariance: FloatArray, tau: float, rank: int) -> Metric:
        """M(τ) from a centre and a covariance of this rank."""
        values, vectors = np.linalg.eigh(covariance)
        values = np.maximum(values, 0.0)
        real = values > NOISE * values[-1]
        mixed = (1.0 - tau) * values[real].sum() / rank + tau * values
        kept = real if tau == 1.0 else np.ones_like(real)
        root, basis = np.sqrt(mixed[kept]), vectors[:, kept]
        condition = float((root.max() / root.min()) ** 2)
        return cls(centre, (basis / root) @ basis.T, (basis * root) @ basis.T, condition)

    def read_by(self, directions: FloatArray) -> FloatArray:
        """The weights on rows, shape (..., d), that directions of these coordinates are read by."""
        return directions @ self.root

    def removing(self, subspace: Subspace) -> AffineMap:
        """The projection off a subspace of these coordinates, in those of the rows."""
        return AffineMap(self.centre, *self._factors(subspace), "remove")

    def keeping(self, subspace: Subspace) -> AffineMap:
        """The projection onto it."""
        AffineMap.keeping(subspace, self.centre)  # which refuses an empty one
        return AffineMap(self.centre, *self._factors(subspace), "keep", self.centre)

    def _factors(self, subspace: Subspace) -> tuple[FloatArray, FloatArray]:
        """R and L with ``LᵀR = I`` to the last digit: T and its inverse lose some between scales that are far apart."""
        right, left = self.root @ subspace.basis, self.inverse_root @ subspace.basis
        return right, left @ np.linalg.inv(right.T @ left)

    def weights_of(self, subspace: Subspace) -> Subspace:
        """The span of the weights on rows by which a subspace of these coordinates is read."""
        return Subspace.spanned_by(self.root @ subspace.basis) if subspace.dim else subspace
