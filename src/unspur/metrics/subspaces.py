"""How much two subspaces have in common."""

from __future__ import annotations

import numpy as np

from unspur._typing import Array, FloatArray
from unspur.exceptions import EmptySubspaceError, InputError
from unspur.subspace import Subspace


def principal_angles(a: Subspace, b: Subspace) -> FloatArray:
    """Principal angles in degrees, ascending, shape (min(a.dim, b.dim),): 0 is shared, 90 is orthogonal."""
    return np.degrees(a.angles(b))


def shared_variance(a: Subspace, b: Subspace, covariance: Array | None = None) -> float:
    """Share of directions in common, between 0 (orthogonal) and 1 (the smaller lies in the larger).

    ::

        ‖AᵀB‖²_F / min(dim)                                            the mean squared cosine of the principal angles
        ‖(AᵀΣA)^(−1/2) AᵀΣB (BᵀΣB)^(−1/2)‖²_F / min(dim)               with a covariance Σ of shape (d, d)

    With Σ it is the mean squared canonical correlation between the scores ``zA`` and ``zB`` of rows with that
    covariance: orthogonal directions share variance when rows correlate along them. Without it Σ = I. Directions
    along which Σ has no variance are left out.
    """
    a._require_same_space(b)
    if not a.dim or not b.dim:
        raise EmptySubspaceError(
            f"Shared variance needs a direction on both sides; got {a.dim} and {b.dim}. Test for dim == 0 first."
        )
    if covariance is None:
        return float(np.sum((a.basis.T @ b.basis) ** 2) / min(a.dim, b.dim))
    sigma = np.asarray(covariance, dtype=np.float64)
    if sigma.shape != (a.ambient, a.ambient) or not np.allclose(sigma, sigma.T, atol=1e-8 * np.abs(sigma).max()):
        raise InputError(f"covariance must be symmetric of shape ({a.ambient}, {a.ambient}); got {sigma.shape}.")
    values, vectors = np.linalg.eigh(sigma)
    if values[0] < -1e-8 * values[-1] or values[-1] <= 0:
        raise InputError(f"covariance must have eigenvalues ≥ 0, some positive; they reach down to {values[0]:.3g}.")
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    left, right = (_orthonormal(root @ s.basis) for s in (a, b))
    smaller = min(left.shape[1], right.shape[1])
    if not smaller:
        raise InputError("The covariance has no variance inside one of the subspaces; nothing can be shared.")
    return float(np.sum((left.T @ right) ** 2) / smaller)


def _orthonormal(columns: FloatArray) -> FloatArray:
    """Basis of the span of columns (d, k) without the directions that are rounding errors."""
    left, size, _ = np.linalg.svd(columns, full_matrices=False)
    return np.asarray(left[:, size > 1e-10 * max(size[0], 1e-300)])
