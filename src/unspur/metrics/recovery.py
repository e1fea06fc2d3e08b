"""How well a known feature is recovered from rows by least squares, and one subspace by another."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from unspur._arrays import on_numpy
from unspur._typing import Array, FloatArray
from unspur.exceptions import EmptySubspaceError, InputError
from unspur.metrics.probes import checked_rows
from unspur.subspace import Subspace

#: Singular values below this share of the largest are rounding errors.
MIN_SINGULAR_SHARE = 1e-10


def explained_variance(rows: Array, feature: Array) -> float:
    """Share of a feature's variance in % that a least-squares fit on rows explains: ``100 (1 − var(f − f̂)/var(f))``.

    `rows` (n, d) and `feature` (n,) are fitted and tested together, as in the paper (section 4.3). Use a large test set
    that no removal was fitted on and in which the features are independent, or one of them is rebuilt from the other;
    with n rows chance alone explains about ``100 d / n``.
    """
    residual, values = _residual(rows, feature)
    return float(100 * (1 - residual.var() / values.var()))


def reconstruction_error(rows: Array, feature: Array) -> float:
    """Root mean squared error of the same fit, in the unit of the feature; its square is the paper's MSE."""
    residual, _ = _residual(rows, feature)
    return float(np.sqrt(np.mean(residual**2)))


def _residual(rows: Array, feature: Array) -> tuple[FloatArray, FloatArray]:
    rows = on_numpy(rows)
    z = checked_rows(rows, "rows")
    values = np.asarray(on_numpy(feature), dtype=np.float64)
    if values.shape != (len(z),) or not np.all(np.isfinite(values)):
        raise InputError(f"feature must be {len(z)} finite numbers, one per row; got shape {values.shape}.")
    if not values.std() > 1e-13 * np.abs(values).max(initial=0.0):
        raise InputError("feature is constant: there is no variance to explain.")
    if len(z) < z.shape[1] + 2:
        raise InputError(
            f"There are {len(z)} rows of {z.shape[1]} columns: any feature is rebuilt perfectly. Pass more rows."
        )
    # float32 rows keep rounding errors along a removed axis; a least-squares fit must not read them.
    narrow = float(np.finfo(np.asarray(rows).dtype).eps) if np.asarray(rows).dtype.kind == "f" else 0.0
    z = z.astype(np.float64)
    z -= z.mean(axis=0)
    centred = values - values.mean()
    cut = max(64 * narrow, len(z) * float(np.finfo(np.float64).eps))
    return centred - z @ np.linalg.lstsq(z, centred, rcond=cut)[0], values


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
    left, right = (scipy.linalg.orth(root @ s.basis, rcond=MIN_SINGULAR_SHARE) for s in (a, b))
    smaller = min(left.shape[1], right.shape[1])
    if not smaller:
        raise InputError("The covariance has no variance inside one of the subspaces; nothing can be shared.")
    return float(np.sum((left.T @ right) ** 2) / smaller)
