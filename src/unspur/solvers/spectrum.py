"""Coordinates along the principal axes of the rows, in which a pair of directions is solved for.

Weights are written ``w = E a / u`` with E the eigenvectors of the second moment C on its range and ``u² = tr(C) / r``.
Rotations keep angles, so orthogonal weights have orthogonal coordinates; C is diagonal, so Hessians that are
combinations of C and the identity are inverted number by number, for any weight decay; and variances are one on
average, whatever the size of the rows, so weight decay is in its own unit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unspur._typing import FloatArray
from unspur.solvers.whitening import Geometry, orthonormal_range
from unspur.subspace import Subspace

#: Eigenvalues below this share of the largest have lost half of their digits or more.
SWALLOWED = 1e-8


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Principal axes E (d, r) of the rows around `centre` (d,), the unit u, and variances (r,) in units of u²."""

    centre: FloatArray
    axes: FloatArray
    unit: float
    variance: FloatArray
    far_from_zero: bool

    @classmethod
    def of(cls, geometry: Geometry) -> Spectrum:
        """The eigenvectors of the second moment; those of its range where it is not of full rank."""
        if geometry.range_basis is not None and geometry.range_variance is not None:
            axes, variance = geometry.range_basis, geometry.range_variance
        else:
            variance, axes = _eigen(geometry.second)
        unit = float(np.sqrt(variance.mean()))
        return cls(geometry.centre, np.ascontiguousarray(axes), unit, variance / unit**2, geometry.far_from_zero)

    def weights(self, a: FloatArray) -> FloatArray:
        """``E a / u``, shape (..., d)."""
        return self._product(a, self.axes.T)

    def gradient(self, slopes: FloatArray) -> FloatArray:
        """A gradient in the weights, shape (..., d), as one in the coordinates, (..., r)."""
        return self._product(slopes, self.axes)

    def _product(self, lines: FloatArray, matrix: FloatArray) -> FloatArray:
        """``lines @ matrix / u``, as one product and not one for each leading index."""
        flat = lines.reshape(-1, lines.shape[-1]) @ matrix
        flat /= self.unit
        return flat.reshape(*lines.shape[:-1], -1)


def _eigen(second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues and eigenvectors of a matrix that is positive definite, down to eigenvalues that rounding swallows.

    Beside a large eigenvalue, those sixteen orders below have no digits left; in the complement of its eigenvector they
    do. So the small ones are looked for again among themselves.
    """
    values, axes = np.linalg.eigh(second)
    count = len(values)
    while (small := int(np.sum(values[:count] < SWALLOWED * values[count - 1]))) and small < count:
        kept = axes[:, :small]
        values[:small], turn = np.linalg.eigh(kept.T @ second @ kept)
        axes[:, :small] = kept @ turn
        count = small
    return np.maximum(values, np.finfo(np.float64).tiny), axes


@dataclass(frozen=True, slots=True)
class PairSpace:
    """Where the coordinates of a pair may lie: orthogonal to `forbidden` (r, k); and the weight decay they pay."""

    spectrum: Spectrum
    decay: float
    forbidden: FloatArray

    @classmethod
    def of(cls, spectrum: Spectrum, weight_decay: float) -> PairSpace:
        """The whole span of the rows; λ = weight_decay · tr(C) / rank(C)."""
        return cls(spectrum, weight_decay, np.empty((len(spectrum.variance), 0)))

    def away_from(self, subspace: Subspace) -> PairSpace:
        """The same, orthogonal to `subspace` (instead of to what was given before)."""
        axes = self.spectrum.axes
        rotated = axes.T @ subspace.basis  # orthonormal like the basis, unless some of it lies outside the rows' span
        return PairSpace(
            self.spectrum, self.decay, rotated if len(axes) == axes.shape[1] else orthonormal_range(rotated)
        )

    @property
    def freedom(self) -> int:
        """Dimension of the weights that are allowed."""
        return int(self.forbidden.shape[0] - self.forbidden.shape[1])

    def allow(self, a: FloatArray) -> FloatArray:
        """Orthogonal projection of coordinates, shape (..., r), onto the allowed ones."""
        if not self.forbidden.shape[1]:
            return a
        return np.asarray(a - (a @ self.forbidden) @ self.forbidden.T)

    def coordinates(self, weights: FloatArray) -> FloatArray:
        """Allowed coordinates of weights, shape (..., r)."""
        return self.allow(self.spectrum.unit * (weights @ self.spectrum.axes))
