"""Changes of coordinates.

`Geometry` (second moments), `Metric` (JSE's inner product), `LogisticCoordinates` (logistic regression), `Whitener`
(unit covariance), `RowSpan` (more features than rows).

In logistic regression, weights are written ``w = T a`` with ``T Tᵀ = (C/4 + λM)⁺`` on the range of C, for a penalty in
the metric M. At zero weights the Hessian of the loss is exactly C/4 + λM, and elsewhere never larger. Weights stay in
the range of C, since outside it they cost next to nothing and could make a pair orthogonal for free.

All exact methods commute with rotations, and their directions lie in the span of the centred rows. So n rows of d > n
features are fitted in n coordinates, with the same result: no d × d matrix is formed, and the cost of a fit is linear
in d.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy.linalg
import scipy.linalg.lapack

from unspur._arrays import to_numpy
from unspur._resources import one_blas_thread
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.exceptions import InputError
from unspur.rows import MAX_UNCENTRED_DISTANCE, MemoryRows, RowSource, Weighting, backend_of
from unspur.solvers.statistics import (
    COVARIANCE_OVERFLOWS,
    Covariances,
    Moments,
    keeps_digits,
    readable,
    require_variation,
)
from unspur.subspace import MAX_LENGTH_OUTSIDE_SHARE, AffineMap, Subspace

#: Standard deviations along an eigenvector below this share of the largest are rounding noise, of the stored rows or of
#: the second moment.
MIN_DEVIATION_SHARE = {4: 1e-5, 8: 3e-7}
#: The same for columns, whose variances are sums of squares and keep all their digits.
MIN_COLUMN_SHARE = {4: 1e-6, 8: 1e-12}
#: Eigenvalues below this share of the largest have lost half of their digits or more.
MIN_EIGENVALUE_SHARE = 1e-8
#: Smallest share of a column's variance that the columns before it may leave unexplained for the rows to count as
#: of full rank without an eigenvalue decomposition.
MIN_FULL_RANK_PIVOT = 1e-6
#: Eigenvalues of a covariance below this share of the largest are rounding errors.
MIN_VARIANCE_SHARE = 1e-12
#: Condition of a metric up to which sums in the type of the rows have enough digits.
MAX_NATIVE_CONDITION = 1e4
#: Coordinates that are smaller than this share of the largest in all rows are rounding errors.
MIN_LENGTH_SHARE = 1e-12
#: Share of the largest variance above which a variance is clearly no rounding error.
MIN_CLEAR_VARIANCE_SHARE = 1e-8
#: Fewer features are not worth the change of coordinates.
MIN_FEATURES = 64


@dataclass(frozen=True, slots=True)
class Geometry:
    """Centre (d,) and second moment (d, d) of the rows, and the principal axes of its range if the rank is below d.

    `range_basis` (d, r) has the axes and `range_variance` (r,) the variances along them; both are None if the second
    moment has full rank. A geometry with `loadings` (`transformed`) is that of the rows ``(x − centre) matrix``, which
    are never computed. Weights w on those rows act on the original rows as ``matrix w``; loadings (d, r) are
    ``matrix range_basis``.

    A `metric` M (`in_metric`) is that of a penalty ``wᵀ M w``; a `range_basis` V has VᵀMV = I and VᵀCV diagonal then.
    """

    centre: FloatArray
    second: FloatArray
    range_basis: FloatArray | None
    range_variance: FloatArray | None
    far_from_zero: bool
    loadings: FloatArray | None = None
    #: M (d, d), zero outside the range of C; None for the identity, and with `loadings`.
    metric: FloatArray | None = None

    @classmethod
    def of_rows(cls, rows: RowSource, weighting: Weighting, *, in_float64: bool = False) -> Geometry:
        """From products in the type of the rows if they settle the rank, else (or on request) in float64."""
        if rows.dtype.itemsize < 8 and not in_float64:
            moments = Moments.of(rows, weighting, in_float64=False)
            if keeps_digits(moments.second, rows):
                quick = cls.of(moments, rows.dtype.itemsize)
                if quick.range_basis is None:
                    return quick
        return cls.of(Moments.of(rows, weighting), rows.dtype.itemsize)

    @classmethod
    def of(cls, moments: Moments, itemsize: int) -> Geometry:
        """Find the rank, by Cholesky if it is clear, else by eigenvalues."""
        live = np.sqrt(np.diag(moments.second)) > 1e-13 * np.abs(moments.mean)  # more than rounding of the mean
        require_variation(live, np.diag(moments.second), moments.mean)
        second = moments.second if live.all() else np.where(np.outer(live, live), moments.second, 0.0)
        variance = np.diag(second)
        deviation = np.sqrt(variance)
        if not 1e-280 < variance.max() < 1e280:
            size = deviation.max() if np.isfinite(deviation.max()) else np.abs(moments.mean).max()
            raise InputError(f"X has values of the order of {size:.0e}, whose squares do not fit a float64. Rescale X.")
        far = bool(np.max(np.abs(moments.mean)) > MAX_UNCENTRED_DISTANCE * deviation.max())
        if variance.min() > 0:
            level = deviation.min() > MIN_COLUMN_SHARE[itemsize] * deviation.max()
            clear = max(MIN_FULL_RANK_PIVOT, 10.0 * moments.noise)
            if level and smallest_pivot(second / deviation / deviation[:, None]) > clear:
                return cls(moments.mean, second, None, None, far)
        values, vectors = np.linalg.eigh(second)
        real = values > values[-1] * MIN_DEVIATION_SHARE[itemsize] ** 2
        return cls(moments.mean, second, vectors[:, real], values[real], far)

    def transformed(self, matrix: FloatArray, itemsize: int) -> Geometry:
        """The geometry of ``(x − centre) matrix``, from the second moment; the centre stays."""
        second = matrix.T @ self.second @ matrix
        values, vectors = np.linalg.eigh(second)
        real = values > max(values[-1], 0.0) * MIN_DEVIATION_SHARE[itemsize] ** 2
        if not real.any():
            raise InputError("All rows are the same after the removal, so there is nothing to fit a head on.")
        basis = vectors if real.all() else vectors[:, real]
        return Geometry(self.centre, second, basis, values[real], self.far_from_zero, matrix @ basis)

    def in_metric(self, covariance: FloatArray, kappa: float) -> Geometry:
        """The same rows, and a penalty on weights in ``M ∝ (1 − κ) tr(Σ)/r I + κ Σ`` on the range of the rows.

        Σ is a `covariance` (d, d) of the original rows. M has the scale in which the rows have the same mean variance
        as before, tr(M⁻¹C) = tr(C), so that penalties have the same unit, and M = I at κ = 0.
        """
        basis, second = self.range_basis, self.second
        axes = basis if self.loadings is None else self.loadings
        if axes is not None:
            second, covariance = np.diag(np.asarray(self.range_variance)), axes.T @ covariance @ axes
        matrix = kappa * covariance
        matrix[np.diag_indices_from(matrix)] += (1.0 - kappa) * float(np.trace(covariance)) / self.rank
        try:
            inverse = _inverse_factor(matrix)
        except np.linalg.LinAlgError:
            raise InputError(
                f"With metric {kappa:g}, the penalty is on scores alone, and in some directions the rows vary too "
                "little to tell their scores from rounding errors. Use a smaller metric, such as 0.9."
            ) from None
        matrix *= np.sum((inverse @ second) * inverse) / np.trace(second)
        inside = Geometry(self.centre, second, None, None, self.far_from_zero, metric=matrix)
        if axes is None or basis is None:
            return inside
        turn, variance = inside.principal_axes()
        how: dict[str, Any] = (
            {"metric": basis @ matrix @ basis.T} if self.loadings is None else {"loadings": axes @ turn}
        )
        return replace(self, range_basis=basis @ turn, range_variance=variance, **how)

    @property
    def rank(self) -> int:
        """Dimension of the span of the centred rows."""
        return len(self.second) if self.range_basis is None else int(self.range_basis.shape[1])

    @property
    def mean_variance(self) -> float:
        """tr(C) / rank(C): the unit in which penalty is given."""
        return float(np.trace(self.second)) / self.rank

    def principal_axes(self) -> tuple[FloatArray, FloatArray]:
        """Eigenvectors (d, r) of the second moment on its range, and variances (r,); in the metric, if there is one.

        An eigenvalue has a rounding error of about 1e-16 of the largest one. So small eigenvalues are computed again,
        from the second moment restricted to the complement of the eigenvectors of the large ones.
        """
        if self.range_basis is not None and self.range_variance is not None:
            return self.range_basis, self.range_variance
        inverse = None if self.metric is None else _inverse_factor(self.metric)
        second = self.second if inverse is None else inverse @ self.second @ inverse.T
        variance, axes = np.linalg.eigh(second)
        count = len(variance)
        while (small := int(np.sum(variance[:count] < MIN_EIGENVALUE_SHARE * variance[count - 1]))) and small < count:
            kept = axes[:, :small]
            variance[:small], turn = np.linalg.eigh(kept.T @ second @ kept)
            axes[:, :small] = kept @ turn
            count = small
        return axes if inverse is None else inverse.T @ axes, np.maximum(variance, np.finfo(np.float64).tiny)


@dataclass(frozen=True, slots=True)
class Metric:
    """The metric in which directions of concept and task are orthogonal: centre (d,), a factor L (d, d) and T = L⁻ᵀ.

    ::

        M(τ) = (1 − τ) · tr(Σ)/r · I + τ · Σ        w_spᵀ M w_mt = 0

    Σ is the covariance of the training rows and r its rank. At τ = 0 weights are orthogonal, as in the paper; at τ = 1
    their scores are uncorrelated over the training rows. With ``M = L Lᵀ``, in the coordinates ``x̃ = (x − c) T``
    directions are orthogonal in the ordinary sense. Rows are never transformed: coefficients
    ``T v`` on the original features give the scores of a direction v of these coordinates. The projection off an
    orthonormal V there is oblique here: ``x ↦ x − (x − c) R Kᵀ`` with ``R = T V`` and ``K = L V``.

    L is triangular (Cholesky) if M is well-conditioned, and the symmetric root of M on its range if not: directions
    are the same on the rows with any factor. `condition` is that of M, or a bound on it.
    """

    centre: FloatArray
    inverse_factor: FloatArray
    factor: FloatArray
    condition: float

    @classmethod
    def of(cls, geometry: Geometry, tau: float) -> Metric:
        """M(τ) from the geometry of the rows."""
        centre, covariance, rank = geometry.centre, geometry.second, geometry.rank
        bound = 1.0 + tau * rank / (1.0 - tau) if tau < 1.0 else np.inf
        if bound <= MAX_NATIVE_CONDITION:
            matrix = tau * covariance
            matrix[np.diag_indices_from(matrix)] += (1.0 - tau) * float(np.trace(covariance)) / rank
            factor: FloatArray = np.linalg.cholesky(matrix).astype(np.float64, copy=False)
            with one_blas_thread():
                inverse = scipy.linalg.lapack.dtrtri(factor, lower=1)[0]
            return cls(centre, np.ascontiguousarray(inverse.T), factor, bound)
        values, vectors = np.linalg.eigh(covariance)
        values = np.maximum(values, 0.0)
        real = values > MIN_VARIANCE_SHARE * values[-1]
        mixed = (1.0 - tau) * values[real].sum() / rank + tau * values
        kept = real if tau == 1.0 else np.ones_like(real)
        root, basis = np.sqrt(mixed[kept]), vectors[:, kept]
        condition = float((root.max() / root.min()) ** 2)
        return cls(centre, (basis / root) @ basis.T, (basis * root) @ basis.T, condition)

    def removing(self, subspace: Subspace) -> AffineMap:
        """Projection off a subspace of these coordinates, as a map of the rows."""
        return AffineMap(self.centre, *self._factors(subspace), "remove")

    def keeping(self, subspace: Subspace) -> AffineMap:
        """Projection onto a subspace of these coordinates, as a map of the rows."""
        subspace.require_directions()
        return AffineMap(self.centre, *self._factors(subspace), "keep", self.centre)

    def _factors(self, subspace: Subspace) -> tuple[FloatArray, FloatArray]:
        """R and K with ``KᵀR = I`` to the last digit, which T and L lose if the scales of M are far apart."""
        right, left = self.inverse_factor @ subspace.basis, self.factor @ subspace.basis
        return right, left @ np.linalg.inv(right.T @ left)

    def weights_of(self, subspace: Subspace) -> Subspace:
        """Span of the coefficients on the original features for a subspace of these coordinates."""
        return Subspace.spanned_by(self.inverse_factor @ subspace.basis) if subspace.dim else subspace


@dataclass(frozen=True, slots=True)
class LogisticCoordinates:
    """Coordinates ``a`` of shape (r,) for weights ``w = T a`` that stay inside the allowed subspace.

    If the geometry is one after a removal with matrix P, weights are ``w = P T a``: a layer after the removal, as
    coefficients on the original features.

    `decay` is λ. `forbidden` (r, k) spans the coordinates of weights with a component in the excluded directions: if a
    is orthogonal to it, w = T a is orthogonal to those directions.
    """

    transform: FloatArray
    geometry: Geometry
    decay: float
    forbidden: FloatArray
    #: Squared lengths (r,) of the weights after a removal for each unit coordinate; None without a removal.
    squared_lengths: FloatArray | None = None

    @classmethod
    def of(cls, geometry: Geometry, penalty: float) -> LogisticCoordinates:
        """Coordinates of the whole space at λ = penalty · tr(C) / rank(C)."""
        decay, squared_lengths = penalty * geometry.mean_variance, None
        if geometry.range_basis is None:
            metric = np.eye(geometry.rank) if geometry.metric is None else geometry.metric
            # T = L⁻ᵀ for C/4 + λM = L Lᵀ; explicit because it is applied seven times per evaluation.
            transform = np.ascontiguousarray(_inverse_factor(geometry.second / 4.0 + decay * metric).T)
        else:
            assert geometry.range_variance is not None
            curvature = geometry.range_variance / 4.0 + decay
            transform = geometry.range_basis / np.sqrt(curvature)
            if geometry.loadings is not None:
                transform, squared_lengths = geometry.loadings / np.sqrt(curvature), 1.0 / curvature
        return cls(transform, geometry, decay, np.empty((transform.shape[1], 0)), squared_lengths)

    def excluding(self, subspace: Subspace) -> LogisticCoordinates:
        """The same coordinates with weights kept orthogonal to `subspace`."""
        forbidden = orthonormal_range(self.transform.T @ subspace.basis)
        return LogisticCoordinates(self.transform, self.geometry, self.decay, forbidden, self.squared_lengths)

    def project(self, a: FloatArray) -> FloatArray:
        """Orthogonal projection of coordinates, shape (r,) or (r, m), onto the allowed ones."""
        if not self.forbidden.shape[1]:
            return a
        return np.asarray(a - self.forbidden @ (self.forbidden.T @ a))

    def weights(self, a: FloatArray) -> FloatArray:
        """``T a``, shape (d,) or (d, m)."""
        return np.asarray(self.transform @ a)

    def pull_back(self, gradient: FloatArray) -> FloatArray:
        """Gradient in w, shape (d,) or (d, m), as a gradient in allowed coordinates."""
        return self.project(self.transform.T @ gradient)

    def coordinates(self, weights: FloatArray) -> FloatArray:
        """Allowed coordinates of weights: ``T⁺ w = Tᵀ (C/4 + λM) w``, shape (r,) or (r, m)."""
        assert self.geometry.loadings is None
        return self.pull_back(self.geometry.second @ weights / 4.0 + self.decay * self.in_metric(weights.T).T)

    def in_metric(self, weights: FloatArray) -> FloatArray:
        """``weights M``, shape (d,) or (k, d), of a geometry without `loadings`; their gradient of half the penalty."""
        return weights if self.geometry.metric is None else weights @ self.geometry.metric


@dataclass(frozen=True, slots=True)
class Whitener:
    """``L⁻¹`` (r, d) for Σ = L Lᵀ: triangular, or from eigenvectors of the correlations if Σ may be singular.

    Then L = D U Λ^½, with D the standard deviations, so that small features count like large ones. Along the last
    ``r − rank`` columns of U the moments cannot tell whether the rows vary. There the variance counts as one, so
    that covariance with the concept is removed like the rest, and nothing is divided by rounding error. Columns that
    are not `readable` have zeros in ``L⁻¹``.
    """

    inverse: FloatArray
    rank: int

    @classmethod
    def of(cls, covariance: FloatArray, readable: BoolArray, noise: float, *, scaled: bool = True) -> Whitener:
        """By Cholesky if all pivots are clearly above the noise of the moments, else by eigenvalues.

        With ``scaled=False`` columns are coordinates in a span, of which the small ones are rounding errors and must
        not be scaled up.
        """
        matrix = covariance if readable.all() else covariance[np.ix_(readable, readable)]
        scale = np.sqrt(np.diag(matrix)) if scaled else np.ones(len(matrix))
        correlation = matrix / scale / scale[:, None]
        lower = _clear_cholesky(correlation, noise) if scaled else None
        if lower is not None:
            with one_blas_thread():
                inside = scipy.linalg.lapack.dtrtri(lower, lower=True)[0]
            rank = len(inside)
        else:
            values, vectors = np.linalg.eigh(correlation)
            values, vectors = values[::-1], vectors[:, ::-1]
            real = values > max(1e-12, noise) * values[0]
            inside, rank = (vectors / np.sqrt(np.where(real, values, 1.0))).T, int(real.sum())
        inverse = np.zeros((len(inside), len(covariance)))
        inverse[:, readable] = inside / scale
        return cls(inverse, rank)

    def __call__(self, columns: FloatArray) -> FloatArray:
        """``L⁻¹ columns``."""
        return np.asarray(self.inverse @ columns)

    def transposed(self, columns: FloatArray) -> FloatArray:
        """``L⁻ᵀ columns``."""
        return np.asarray(self.inverse.T @ columns)


def _clear_cholesky(correlation: FloatArray, noise: float) -> FloatArray | None:
    """The Cholesky factor of rows that clearly have full rank; None for others."""
    try:
        lower = np.linalg.cholesky(correlation)
    except np.linalg.LinAlgError:
        return None
    return np.asarray(lower, dtype=np.float64) if np.diag(lower).min() ** 2 > max(1e-10, noise) else None


def covariances_of(rows: RowSource) -> Covariances:
    """Moments from products in the type of the rows, which are faster, or in float64 if their rank is in doubt."""
    moments = Covariances.of(rows)
    if rows.dtype == np.float64:
        return moments
    if keeps_digits(moments.xx, rows) and moments.readable.all():
        deviation = np.sqrt(np.diag(moments.xx))
        if _clear_cholesky(moments.xx / deviation / deviation[:, None], moments.noise) is not None:
            return moments
    return Covariances.of(rows, in_float64=True)


def _inverse_factor(matrix: FloatArray) -> FloatArray:
    """The triangular ``L⁻¹`` for ``matrix = L Lᵀ``."""
    lower = np.linalg.cholesky(matrix)
    with one_blas_thread():
        inverse: FloatArray = scipy.linalg.lapack.dtrtri(lower, lower=True)[0]
    return inverse


def smallest_pivot(correlation: FloatArray) -> float:
    """Smallest share of a column's variance that earlier columns leave unexplained; 0 if not definite."""
    try:
        return float(np.diag(np.linalg.cholesky(correlation)).min() ** 2)
    except np.linalg.LinAlgError:
        return 0.0


def orthonormal_range(matrix: FloatArray) -> FloatArray:
    """Orthonormal basis of the column space; dependent columns are dropped."""
    if not matrix.shape[1]:
        return matrix
    lengths = np.linalg.norm(matrix, axis=0)
    matrix = matrix[:, lengths > 1e-12 * lengths.max(initial=0.0)]
    left, singular, _ = np.linalg.svd(matrix / np.linalg.norm(matrix, axis=0), full_matrices=False)
    return np.asarray(left[:, singular > 1e-10 * singular[0]] if len(singular) else left)


@dataclass(frozen=True, slots=True, eq=False)
class RowSpan:
    """An orthonormal basis Q (d, r) of the span of n rows around their mean, r < n.

    Rows have the coordinates ``(x − centre) Q``. Q is kept as Householder reflections: products with a few vectors
    are all that is needed of it.
    """

    centre: FloatArray
    _reflections: FloatArray
    _factors: FloatArray
    _kept: IntArray
    #: Axes (kept, r) of the coordinates that are more than rounding error; None if all are.
    _axes: FloatArray | None = None

    @classmethod
    def of(cls, *sets: Array | None, live: Sequence[BoolArray | None] = ()) -> tuple[Self | None, list[Array | None]]:
        """The span of the rows of these sets that are `live` (all by default), and the sets in its coordinates.

        Returns (None, unchanged sets) unless all sets are in memory and together have fewer rows than features. Also
        below `MIN_FEATURES`, and for rows that are all the same or far from zero. Directions along which the rows
        are rounding errors do not belong to the span.
        """
        given = [rows for rows in sets if rows is not None]
        masks = [None if mask is None or mask.all() else mask for mask in live] or [None] * len(given)
        sizes = [len(rows) if mask is None else int(mask.sum()) for rows, mask in zip(given, masks, strict=True)]
        n, d = sum(sizes), given[0].shape[1]
        if not 0 < n < d or d < MIN_FEATURES or any(backend_of(rows) not in ("memory", "torch") for rows in given):
            return None, list(sets)
        copies = [_float64(rows) for rows in given]
        rows = np.concatenate([copy if mask is None else copy[mask] for copy, mask in zip(copies, masks, strict=True)])
        centre = rows.mean(axis=0)
        rows -= centre
        with np.errstate(over="ignore"):
            spread = float(rows.std(axis=0).max())
        if not np.isfinite(spread):
            raise InputError(COVARIANCE_OVERFLOWS)
        if spread == 0.0 or np.abs(centre).max() > MAX_UNCENTRED_DISTANCE * spread:
            return None, list(sets)  # nothing to span, or rounding of the rows counts, which this would hide
        with one_blas_thread():
            size = int(scipy.linalg.lapack.dgeqrf_lwork(d, n)[0])
            reflections, factors, _, _ = scipy.linalg.lapack.dgeqrf(rows.T, lwork=size, overwrite_a=True)
        upper = np.triu(reflections[:n])
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.linalg.norm(upper, axis=1)
        if not np.isfinite(lengths).all():
            raise InputError(COVARIANCE_OVERFLOWS)
        kept = np.flatnonzero(lengths > MIN_LENGTH_SHARE * lengths.max())
        inside = upper[kept].T
        axes = _axes_above_rounding(inside, min(_dtype(rows).itemsize for rows in given))
        inside = inside if axes is None else inside @ axes
        span = cls(centre, reflections, factors, kept, axes)
        parts = np.split(inside, np.cumsum(sizes)[:-1])
        found = iter(
            [
                np.array(part, dtype=_dtype(rows)) if mask is None else span.coordinates(rows)
                for rows, mask, part in zip(given, masks, parts, strict=True)
            ]
        )
        return span, [None if rows is None else next(found) for rows in sets]

    @property
    def n_coordinates(self) -> int:
        """Number of coordinates."""
        return len(self._kept) if self._axes is None else self._axes.shape[1]

    def coordinates(self, rows: Array) -> Array:
        """Coordinates (m, r) of other rows (m, d), in their type; what lies outside the span is dropped."""
        return np.array(self.coordinates_of_vectors(_float64(rows) - self.centre), dtype=_dtype(rows))

    def coordinates_of_vectors(self, vectors: FloatArray) -> FloatArray:
        """Coordinates (m, r) of vectors (m, d) from the centre."""
        inside = self._multiply(vectors.T, "T")[self._kept].T
        return inside if self._axes is None else np.asarray(inside @ self._axes)

    def lift(self, coordinates: FloatArray) -> FloatArray:
        """Vectors (m, d) with these coordinates (m, r)."""
        padded = np.zeros((len(self.centre), len(coordinates)), order="F")
        padded[self._kept] = coordinates.T if self._axes is None else self._axes @ coordinates.T
        return np.ascontiguousarray(self._multiply(padded, "N").T)

    def lift_point(self, coordinates: FloatArray) -> FloatArray:
        """The point (d,) with these coordinates."""
        return np.asarray(self.centre + self.lift(coordinates[None])[0])

    def lift_subspace(self, inside: Subspace) -> Subspace:
        """A subspace of the coordinates as a subspace of R^d."""
        return Subspace(self.lift(inside.basis.T).T)

    def lift_map(self, inside: AffineMap) -> AffineMap:
        """A map of the coordinates as a map of rows: a removal leaves what is outside the span as it is."""
        offset = self.lift(inside.offset[None])[0] + (self.centre if inside.form == "keep" else 0.0)
        right, left = (self.lift(factor.T).T for factor in (inside.right, inside.left))
        return AffineMap(self.lift_point(inside.centre), right, left, inside.form, offset)

    def restrict_map(self, removal: AffineMap) -> AffineMap | None:
        """A map of rows as a map of the coordinates; None if its factors do not lie in the span."""
        shift = removal.offset - (self.centre if removal.form == "keep" else 0.0)
        factors = np.concatenate([removal.right.T, removal.left.T, shift[None]])
        inside = self.coordinates_of_vectors(factors)
        lengths = np.linalg.norm(factors, axis=1)
        if np.any(lengths - np.linalg.norm(inside, axis=1) > MAX_LENGTH_OUTSIDE_SHARE * lengths):
            return None
        (centre,), k = self.coordinates_of_vectors((removal.centre - self.centre)[None]), removal.right.shape[1]
        return AffineMap(centre, inside[:k].T, inside[k : 2 * k].T, removal.form, inside[-1])

    def _multiply(self, columns: FloatArray, transpose: str) -> FloatArray:
        """``Q columns`` or ``Qᵀ columns``, with Q completed to a basis of R^d."""
        columns = np.asfortranarray(columns, dtype=np.float64)
        if not columns.shape[1]:
            return columns
        multiply = scipy.linalg.lapack.dormqr
        with one_blas_thread():
            _, size, _ = multiply("L", transpose, self._reflections, self._factors, columns, -1)
            product, _, _ = multiply("L", transpose, self._reflections, self._factors, columns, int(size[0]))
        return np.asarray(product)


def _axes_above_rounding(coordinates: FloatArray, itemsize: int) -> FloatArray | None:
    """Principal axes of centred coordinates (n, k) that are more than rounding errors.

    None if every axis is clearly above rounding error.
    """
    variance = np.linalg.eigvalsh(coordinates.T @ coordinates)
    if variance[0] > MIN_CLEAR_VARIANCE_SHARE * variance[-1]:
        return None
    _, lengths, axes = np.linalg.svd(coordinates, full_matrices=False)
    return np.asarray(axes[lengths > MIN_DEVIATION_SHARE[itemsize] * lengths[0]].T)


@dataclass(frozen=True, slots=True)
class ScaledSpan:
    """The span of rows with more features than rows, after division by `unit` (d,); 0 leaves a column out."""

    span: RowSpan
    unit: FloatArray

    @classmethod
    def of(cls, rows: RowSource, *, scaled: bool) -> tuple[RowSource, Self | None]:
        """Rows with positive weight in coordinates of their span, and the span.

        If there are not more features than rows: the rows unchanged, and None. If `scaled`, columns get unit variance
        first, as `Whitener` has them.
        """
        if type(rows) is not MemoryRows or not rows.n_rows < rows.n_features:
            return rows, None
        used = np.flatnonzero(rows.labels.weight > 0)
        if not len(used):
            return rows, None
        z, labels, unit = rows.z[used], rows.labels.select(used), np.ones(rows.n_features)
        if scaled:
            share = labels.weight / labels.weight.sum()
            mean = share @ z
            mean = mean + share @ (z - mean)  # exact for a column of equal numbers
            with np.errstate(over="ignore"):
                deviation = np.sqrt(share @ (z - mean) ** 2)
            if not np.isfinite(deviation).all():
                raise InputError(COVARIANCE_OVERFLOWS)
            unit = np.where(readable(deviation, mean, float(np.finfo(rows.dtype).eps)), deviation, 0.0)
        scaled_rows = np.divide(z, unit, out=np.zeros(z.shape), where=unit > 0).astype(rows.dtype)
        span, (inside,) = RowSpan.of(scaled_rows)
        return (rows, None) if span is None else (MemoryRows(inside, labels), cls(span, unit))

    def lift_point(self, coordinates: FloatArray) -> FloatArray:
        """The point (d,) with these coordinates, of the rows themselves."""
        return np.asarray(self.unit * self.span.lift_point(coordinates))

    def moments(self, inside: Covariances) -> Covariances:
        """Moments of the coordinates as moments of the rows, with their d × d matrix."""
        xx = self.unit[:, None] * self.span.lift(self.span.lift(inside.xx).T) * self.unit
        xt = self.unit[:, None] * self.span.lift(inside.xt.T).T
        return replace(inside, mean_x=self.lift_point(inside.mean_x), xx=xx, xt=xt)


def _dtype(rows: Array) -> np.dtype[np.floating]:
    """Type of the coordinates: that of the rows, float32 for half precision."""
    return np.dtype(np.float64 if rows.dtype.itemsize == 8 else np.float32)


def _float64(rows: Array) -> FloatArray:
    """A copy of the rows on the host."""
    return np.array(to_numpy(rows), dtype=np.float64)
