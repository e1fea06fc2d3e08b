"""The closed forms: one family of oblique projections, from covariances alone.

With Σ = Cov(x), A = Cov(x, concept), B = Cov(x, y) and Σ = L Lᵀ, in whitened coordinates ``W_A = L⁻¹A``::

    SAL       x ↦ x − V Vᵀ(x − c),                         V an orthonormal basis of A
    LEACE     x ↦ x − (L U) (L⁻ᵀU)ᵀ (x − c),               U an orthonormal basis of W_A
    SPLINCE   x ↦ x − (A V S⁻¹) (L⁻ᵀQ)ᵀ (x − c),           Q S Vᵀ = (I − Π_B) W_A, Π_B onto the span of W_B

After each Cov(x', concept) = 0; SPLINCE also keeps Cov(x', y) = B. Columns are brought to unit length before their
rank is judged, so tolerances are relative and neither scale nor rarity matters.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.linalg

from unspur._threads import one_scipy_thread
from unspur._typing import FloatArray
from unspur.exceptions import IllConditionedWarning, InputError
from unspur.subspace import AffineMap, Subspace
from unspur.sums.covariances import Covariances

Form: TypeAlias = Literal["sal", "leace", "splince"]
#: Singular values of unit columns below this are dependent columns.
DEPENDENT = 1e-8
#: Condition of the split between concept and task from which SPLINCE amplifies noise visibly.
ILL = 100.0


@dataclass(frozen=True, slots=True)
class ClosedFormTrace:
    """What a closed form did: columns it was given, directions it removed, singular values it dropped, condition."""

    method: str
    columns: int
    removed: int
    dropped: tuple[float, ...]
    rank: int
    condition: float

    @property
    def stopped(self) -> str:
        """Why no more is removed."""
        return "the rows have no covariance with the concept" if not self.removed else "closed form"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return asdict(self) | {"dropped": list(self.dropped)}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> ClosedFormTrace:
        """Inverse of `to_dict`."""
        return cls(**{**saved, "dropped": tuple(saved["dropped"])})

    def __str__(self) -> str:
        what = f"{self.removed} directions removed for {self.columns} concept columns"
        lines = [f"{self.method}: {what} (rows of rank {self.rank})"]
        if self.dropped:
            values = ", ".join(f"{value:.1e}" for value in self.dropped)
            lines.append(f"dropped as dependent or without covariance: {len(self.dropped)} (singular values {values})")
        if self.condition > 1:
            lines.append(f"condition of the split between concept and task: {self.condition:.3g}")
        return "\n".join(lines)

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """A removal with the subspaces it is about and the story of how it came about."""

    removal: AffineMap
    spurious: Subspace
    main: Subspace
    trace: ClosedFormTrace


def closed_form(moments: Covariances, n_concept: int, form: Form) -> ClosedForm:
    """Removal of the first `n_concept` target columns; the others are the task (SPLINCE)."""
    covariance, cross = moments.covariance, moments.cross
    if not np.isfinite(covariance).all():
        raise InputError("The covariance of Z overflows float64. Rescale Z.")
    if not np.any(np.sqrt(np.diag(covariance)) > 1e-13 * np.abs(moments.mean_x)):  # rounding of the mean
        raise InputError("All rows are the same: every column of Z is constant. Nothing can be estimated.")
    a, b = cross[:, :n_concept], cross[:, n_concept:]
    whiten = _Whitener.of(covariance, moments.noise)
    unit_a, dropped_columns = _unit_columns(whiten(a), a)
    condition = 1.0
    if form == "sal":
        left, dropped = _span(unit_a.original)
        right = left
    elif form == "leace":
        u, dropped = _span(unit_a.whitened)
        left, right = whiten.back(u), whiten.transposed(u)
    else:
        q, left, dropped, condition = _splince(unit_a, whiten(b))
        right = whiten.transposed(q)
    lost = (*dropped_columns, *dropped)
    trace = ClosedFormTrace(form.upper(), n_concept, left.shape[1], lost, whiten.rank, condition)
    _warn_of(condition)
    spurious = Subspace.spanned_by(left) if left.shape[1] else Subspace.empty(len(left))
    main = Subspace.empty(len(left))
    if form == "splince" and b.shape[1]:
        main = Subspace.spanned_by(_span(_unit_columns(whiten(b), b)[0].original)[0])
    return ClosedForm(AffineMap(moments.mean_x, right, left, "remove"), spurious, main, trace)


@dataclass(frozen=True, slots=True)
class _Whitener:
    """``L⁻¹`` for Σ = L Lᵀ on the range of Σ: lower triangular, or by eigenvectors where the rows are flat."""

    lower: FloatArray | None
    vectors: FloatArray
    roots: FloatArray

    @classmethod
    def of(cls, covariance: FloatArray, noise: float) -> _Whitener:
        """Cholesky where all pivots are clearly above the noise of the rows, eigenvalues where not."""
        deviation = np.sqrt(np.diag(covariance))
        empty = np.empty((0, 0))
        if deviation.min(initial=np.inf) > 1e-12 * deviation.max(initial=0.0):
            correlation = covariance / np.outer(deviation, deviation)
            try:
                lower = np.linalg.cholesky(correlation)
            except np.linalg.LinAlgError:
                lower = empty
            if lower.size and np.diag(lower).min() ** 2 > max(1e-10, noise):
                return cls(deviation[:, None] * lower, empty, np.empty(0))
        values, vectors = np.linalg.eigh(covariance)
        real = values > noise * values[-1]
        return cls(None, vectors[:, real], np.sqrt(values[real]))

    @property
    def rank(self) -> int:
        """Dimension of the range of Σ."""
        return len(self.roots) if self.lower is None else len(self.lower)

    def __call__(self, columns: FloatArray) -> FloatArray:
        """``L⁻¹ columns``."""
        if self.lower is None:
            return (self.vectors.T @ columns) / self.roots[:, None]
        with one_scipy_thread():
            return np.asarray(scipy.linalg.solve_triangular(self.lower, columns, lower=True))

    def back(self, columns: FloatArray) -> FloatArray:
        """``L columns``."""
        if self.lower is None:
            return self.vectors @ (columns * self.roots[:, None])
        return self.lower @ columns

    def transposed(self, columns: FloatArray) -> FloatArray:
        """``L⁻ᵀ columns``."""
        if self.lower is None:
            return self.vectors @ (columns / self.roots[:, None])
        with one_scipy_thread():
            return np.asarray(scipy.linalg.solve_triangular(self.lower, columns, lower=True, trans="T"))


@dataclass(frozen=True, slots=True)
class _UnitColumns:
    """Columns of A scaled so that ``L⁻¹A`` has unit columns: the same span, free of scale and rarity."""

    original: FloatArray
    whitened: FloatArray


def _unit_columns(whitened: FloatArray, original: FloatArray) -> tuple[_UnitColumns, tuple[float, ...]]:
    """Unit columns, and the lengths of those that have no covariance with the rows beyond rounding."""
    lengths = np.linalg.norm(whitened, axis=0)
    # ‖L⁻¹ Cov(x, t)‖ is at most the standard deviation of t, which is 1 or less for indicators: a correlation.
    real = lengths > 1e-12 * lengths.max(initial=0.0)
    real &= lengths > 0
    unit = _UnitColumns(original[:, real] / lengths[real], whitened[:, real] / lengths[real])
    return unit, tuple(float(value) for value in lengths[~real])


def _span(columns: FloatArray) -> tuple[FloatArray, tuple[float, ...]]:
    """Orthonormal basis of the columns, and the singular values that were dropped as dependent."""
    if not columns.shape[1]:
        return columns, ()
    left, singular, _ = np.linalg.svd(columns, full_matrices=False)
    kept = singular > DEPENDENT * singular[0]
    return left[:, kept], tuple(float(value) for value in singular[~kept])


def _splince(a: _UnitColumns, task: FloatArray) -> tuple[FloatArray, FloatArray, tuple[float, ...], float]:
    """Q (r, k), the factor ``A V S⁻¹`` (d, k), dropped singular values, and the condition of the split."""
    lengths = np.linalg.norm(task, axis=0)
    basis, _ = _span(task[:, lengths > 0] / lengths[lengths > 0])
    rest = a.whitened - basis @ (basis.T @ a.whitened)
    rest -= basis @ (basis.T @ rest)
    if not rest.shape[1]:
        return rest, a.original, (), 1.0
    q, singular, vt = np.linalg.svd(rest, full_matrices=False)
    # Directions that A itself lacks are dropped; those it has but shares with the task are not: they are the problem.
    rank = _span(a.whitened)[0].shape[1]
    kept = np.arange(len(singular)) < rank
    if singular[kept].min() <= DEPENDENT:
        raise InputError(
            "SPLINCE: the covariances of the rows with concept and task share a direction, and no projection removes "
            "it for one and keeps it for the other. Use LEACE, or rows in which the labels differ."
        )
    left = a.original @ (vt[kept].T / singular[kept])
    return q[:, kept], left, tuple(float(value) for value in singular[~kept]), float(1.0 / singular[kept].min())


def _warn_of(condition: float) -> None:
    if condition > ILL:
        warnings.warn(
            f"Concept and task nearly share a direction in whitened coordinates: condition number {condition:.3g}. "
            "What is removed is amplified by that; check the certificate on rows that were not used in the fit.",
            IllConditionedWarning,
            stacklevel=4,
        )
