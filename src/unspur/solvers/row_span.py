"""Rows with more features than there are rows, in coordinates of their span.

The methods here commute with rotations, and their directions lie in the span of the centred rows. So n rows of d > n
features are fitted in n coordinates, with the same result: no d × d matrix is formed, and the cost of a fit is linear
in d.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy.linalg.lapack

from unspur._arrays import on_numpy
from unspur._resources import one_scipy_thread
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.exceptions import InputError
from unspur.rows import MAX_UNCENTRED_DISTANCE, MemoryRows, RowSource, backend_of
from unspur.solvers.statistics import COVARIANCE_OVERFLOWS, Covariances, varies
from unspur.solvers.whitening import MIN_DEVIATION_SHARE
from unspur.subspace import MAX_OUTSIDE_SHARE, AffineMap, Subspace

#: Coordinates that are smaller than this share of the largest in all rows are rounding errors.
MIN_LENGTH_SHARE = 1e-12
#: Share of the largest variance above which a variance is clearly no rounding error.
MIN_CLEAR_VARIANCE_SHARE = 1e-8
#: Fewer features are not worth the change of coordinates.
MIN_FEATURES = 64


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
    def of(
        cls, *sets: Array | None, live: Sequence[BoolArray | None] = (), whole: bool = False
    ) -> tuple[Self | None, list[Array | None]]:
        """The span of the rows of these sets that are `live` (all by default), and the sets in its coordinates.

        Returns (None, unchanged sets) unless all sets are in memory and together have fewer rows than features. Also
        below `MIN_FEATURES`, and for rows that are all the same or far from zero. Directions along which the rows
        are rounding errors do not belong to the span, except to the `whole` one.
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
        with one_scipy_thread():
            size = int(scipy.linalg.lapack.dgeqrf_lwork(d, n)[0])
            reflections, factors, _, _ = scipy.linalg.lapack.dgeqrf(rows.T, lwork=size, overwrite_a=True)
        upper = np.triu(reflections[:n])
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.linalg.norm(upper, axis=1)
        if not np.isfinite(lengths).all():
            raise InputError(COVARIANCE_OVERFLOWS)
        kept = np.flatnonzero(lengths > MIN_LENGTH_SHARE * lengths.max())
        inside, axes = upper[kept].T, None
        if not whole:
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
        if np.any(lengths - np.linalg.norm(inside, axis=1) > MAX_OUTSIDE_SHARE * lengths):
            return None
        (centre,), k = self.coordinates_of_vectors((removal.centre - self.centre)[None]), removal.right.shape[1]
        return AffineMap(centre, inside[:k].T, inside[k : 2 * k].T, removal.form, inside[-1])

    def _multiply(self, columns: FloatArray, transpose: str) -> FloatArray:
        """``Q columns`` or ``Qᵀ columns``, with Q completed to a basis of R^d."""
        columns = np.asfortranarray(columns, dtype=np.float64)
        if not columns.shape[1]:
            return columns
        multiply = scipy.linalg.lapack.dormqr
        with one_scipy_thread():
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


def to_span_coordinates(rows: RowSource) -> tuple[RowSource, RowSpan | None]:
    """A row source in the coordinates of its span, and the span; unchanged rows and None if `RowSpan.of` has none."""
    if type(rows) is not MemoryRows:
        return rows, None
    span, (inside,) = RowSpan.of(rows.z, live=[rows.columns.weight > 0])
    return (rows, None) if span is None else (MemoryRows(inside, rows.columns), span)


@dataclass(frozen=True, slots=True)
class ScaledSpan:
    """The span of rows with more features than rows, after division by `unit` (d,)."""

    span: RowSpan
    unit: FloatArray

    @classmethod
    def of(cls, rows: RowSource, *, scaled: bool) -> tuple[RowSource, Self | None]:
        """Rows with positive weight in coordinates of their span, and the span.

        If there are not more features than rows: the rows unchanged, and None.

        If `scaled`, columns get unit variance first, as `Whitener` has them.
        """
        if type(rows) is not MemoryRows or not rows.n_rows < rows.n_features:
            return rows, None
        every = rows.columns
        live = every.weight > 0
        z, columns = rows.z[live], every.select(np.flatnonzero(live))
        unit = np.ones(rows.n_features)
        if scaled and live.any():
            share = columns.weight / columns.weight.sum()
            mean = share @ z
            mean = mean + share @ (z - mean)  # exact for a column of equal numbers
            with np.errstate(over="ignore"):
                deviation = np.sqrt(share @ (z - mean) ** 2)
            if not np.isfinite(deviation).all():
                raise InputError(COVARIANCE_OVERFLOWS)
            unit = np.where(varies(deviation, mean), deviation, 1.0)
        span, (inside,) = RowSpan.of((z / unit).astype(rows.dtype), whole=True) if len(z) else (None, [None])
        return (rows, None) if span is None else (MemoryRows(inside, columns), cls(span, unit))

    def moments(self, inside: Covariances) -> Covariances:
        """Moments of the coordinates as moments of the rows, with their d × d matrix."""
        span, unit = self.span, self.unit
        xx = unit[:, None] * span.lift(span.lift(inside.xx).T) * unit
        xt = unit[:, None] * span.lift(inside.xt.T).T
        return replace(inside, mean_x=unit * span.lift_point(inside.mean_x), xx=xx, xt=xt)


def _dtype(rows: Array) -> np.dtype[np.floating]:
    """Type of the coordinates: that of the rows, float32 for half precision."""
    return np.dtype(np.float64 if rows.dtype.itemsize == 8 else np.float32)


def _float64(rows: Array) -> FloatArray:
    """A copy of the rows on the host."""
    return np.array(on_numpy(rows), dtype=np.float64)
