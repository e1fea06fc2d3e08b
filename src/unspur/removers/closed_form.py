"""The closed forms: one family of oblique projections, from covariances alone.

With Σ = Cov(x), A = Cov(x, concept), B = Cov(x, y) and Σ = L Lᵀ, in whitened coordinates ``W_A = L⁻¹A``::

    SAL       x ↦ x − (A V S⁻¹) Uᵀ (x − c),                U S Vᵀ = A
    LEACE     x ↦ x − (A V S⁻¹) (L⁻ᵀU)ᵀ (x − c),           U S Vᵀ = W_A
    SPLINCE   x ↦ x − (A V S⁻¹) (L⁻ᵀQ)ᵀ (x − c),           Q S Vᵀ = (I − Π_B) W_A, Π_B onto the span of W_B

After each Cov(x', concept) = 0; SPLINCE also keeps Cov(x', y) = B. Columns are brought to unit length before their
rank is judged, so tolerances are relative and neither scale nor rarity matters.

What is taken out is a combination of the columns of A itself, not of a basis of it. So an error of the other factor
leaves the same small share of A in every direction, also in those that hardly vary: ``a`` and ``a + ε concept`` tell
the concept by their difference, however small ε is.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.linalg

from unspur._arrays import cast, like, namespace, rounded
from unspur._reading import NUMBER, require_kinds
from unspur._text import filled
from unspur._threads import one_scipy_thread
from unspur._typing import Array, FloatArray
from unspur.exceptions import IllConditionedWarning, InputError
from unspur.rows import Block, RowSource
from unspur.solvers.statistics import Covariances
from unspur.subspace import AffineMap, Subspace

Form: TypeAlias = Literal["sal", "leace", "splince"]
#: Singular values of unit columns below this are dependent columns.
DEPENDENT = 1e-8
#: Condition of the split between concept and task from which SPLINCE amplifies noise visibly.
ILL = 100.0


@dataclass(frozen=True, slots=True)
class ClosedFormTrace:
    """What a closed form did: columns it was given, directions it removed, singular values it dropped, condition.

    `rounding` is the correlation with the concept that rounding brings back along the directions that are removed, on
    the rows of the fit; 0 where it was not looked at, which is only where rows have digits to spare. `notes` say what a
    reader should know of the labels, such as a value that holds most of the variance of a number.
    """

    method: str
    columns: int
    removed: int
    dropped: tuple[float, ...]
    rank: int
    condition: float
    rounding: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def stopped(self) -> str:
        """Why no more is removed."""
        return "the rows have no covariance with the concept" if not self.removed else "closed form"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return asdict(self) | {"dropped": list(self.dropped), "notes": list(self.notes)}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> ClosedFormTrace:
        """Inverse of `to_dict`."""
        whole = {"columns": int, "removed": int, "rank": int}
        saved = {"rounding": 0.0, "notes": [], **saved}  # which older files do not have
        numbers = {"dropped": [NUMBER], "condition": NUMBER, "rounding": NUMBER}
        require_kinds(saved, {"method": str, **whole, **numbers, "notes": [str]}, "the trace")
        return cls(**{**saved, "dropped": tuple(saved["dropped"]), "notes": tuple(saved["notes"])})

    def __str__(self) -> str:
        what = f"{_count(self.removed, 'direction')} removed for {_count(self.columns, 'concept column')}"
        lines = [f"{self.method}: {what} (rows of rank {self.rank})"]
        if self.dropped:
            values = ", ".join(f"{value:.1e}" for value in self.dropped)
            lines.append(f"dropped as dependent or without covariance: {len(self.dropped)} (singular values {values})")
        if self.condition > 1:
            lines.append(f"condition of the split between concept and task: {self.condition:.3g}")
        if self.rounding:
            lines.append(f"correlation with the concept of what rounding leaves: {self.rounding:.2f}")
        return "\n".join([*lines, *(filled(f"note: {note}", further="  ") for note in self.notes)])

    __repr__ = __str__


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """A removal with the subspaces it is about and the story of how it came about.

    `faint` (d, m) holds directions along which next to nothing is left of the rows, and along which they told the
    concept: there rounding may be all there is.
    """

    removal: AffineMap
    spurious: Subspace
    main: Subspace
    trace: ClosedFormTrace
    faint: FloatArray


def closed_form(moments: Covariances, n_concept: int, form: Form, whitener: Whitener | None = None) -> ClosedForm:
    """Removal of the first `n_concept` target columns; the others are the task (SPLINCE)."""
    covariance = moments.covariance
    if not np.isfinite(covariance).all():
        raise InputError("The covariance of Z overflows its floating-point type. Rescale Z, or use float64.")
    if not moments.live.any():
        raise InputError("All rows are the same: every column of Z is constant. Nothing can be estimated.")
    whiten = whitener or Whitener.of(covariance, moments.noise)
    concept = _Columns.of(moments, whiten, slice(0, n_concept))
    task = _Columns.of(moments, whiten, slice(n_concept, None))
    condition = 1.0
    span = _span(concept.original if form == "sal" else concept.whitened)
    left = concept.original @ span.weights
    if form == "sal":
        right = span.basis
    elif form == "leace":
        right = whiten.transposed(span.basis)
    else:
        split = _splince(span.basis, _span(task.whitened).basis)
        left, right, condition = left @ split.weights, whiten.transposed(split.basis), split.condition
    lost = (*concept.without, *span.dropped)
    trace = ClosedFormTrace(form.upper(), n_concept, left.shape[1], lost, whiten.rank, condition)
    _warn_of(condition)
    spurious = Subspace.spanned_by(left) if left.shape[1] else Subspace.empty(len(left))
    main = Subspace.empty(len(left))
    if form == "splince" and task.original.shape[1]:
        main = Subspace.spanned_by(_span(task.original).basis)
    faint = np.column_stack([right, whiten.transposed(concept.faint)])
    return ClosedForm(AffineMap(moments.mean_x, right, left, "remove"), spurious, main, trace, faint)


def correlation_in_rounding(rows: RowSource, form: ClosedForm, kind: str) -> float:
    """Largest correlation with a concept column, on the cleaned rows in their own type, along a faint direction.

    Zero by the equations. Where columns are nearly copies of each other, or rows are coarse, the rounding of the
    cleaned rows is all there is along these directions, and it may go with the concept. `kind` is the type of the rows
    as they came: half precision is widened before it gets here.
    """
    lengths = np.linalg.norm(form.faint, axis=0)
    directions = (form.faint / np.where(lengths > 0, lengths, 1.0))[:, lengths > 0]
    removal, columns = form.removal, form.trace.columns

    def moments(block: Block) -> Array:
        clean = cast(rounded(removal(block.z), kind), np.float64) - like(removal.centre, block.weight)
        scores, weight = (clean @ like(directions, clean)).T, block.weight
        targets = cast(block.targets[:columns], np.float64)
        ones = (weight * 0.0 + 1.0)[None]
        both = namespace(scores).concat([ones, scores, targets])
        return (both * weight) @ both.T

    sums = rows.sum(moments)
    second = sums / sums[0, 0] - np.outer(sums[0], sums[0]) / sums[0, 0] ** 2
    variance = np.maximum(np.diag(second), 0.0)
    unit = np.sqrt(np.where(variance > 0, variance, np.inf))
    correlation = np.abs(second / np.outer(unit, unit))
    return float(np.max(correlation[1 : directions.shape[1] + 1, directions.shape[1] + 1 :], initial=0.0))


@dataclass(frozen=True, slots=True)
class Whitener:
    """``L⁻¹`` for Σ = L Lᵀ: lower triangular, or by eigenvectors of the correlations where the rows are flat.

    Then L = D U Λ^½ (d, r), with D the standard deviations, so that small features count like large ones. The last
    ``r − rank`` columns of U are directions of which the moments cannot tell whether the rows vary there; their
    variance counts as one. What they share with the concept is removed like the rest, and nothing is divided by
    rounding error.
    """

    lower: FloatArray | None
    deviation: FloatArray
    vectors: FloatArray
    roots: FloatArray
    rank: int

    @classmethod
    def of(cls, covariance: FloatArray, noise: float) -> Whitener:
        """Cholesky where all pivots are clearly above the noise of the moments, eigenvalues where not."""
        deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        live = deviation > 0
        scale = np.where(live, deviation, 1.0)
        correlation = covariance / np.outer(scale, scale)
        empty = np.empty((0, 0))
        try:
            lower = np.linalg.cholesky(correlation) if live.all() else empty
        except np.linalg.LinAlgError:
            lower = empty
        if lower.size and np.diag(lower).min() ** 2 > max(1e-10, noise):
            return cls(deviation[:, None] * lower, scale, empty, np.empty(0), len(lower))
        # A column that does not vary has no unit: rounding errors in it would be as large as a one.
        values, inside = np.linalg.eigh(correlation[np.ix_(live, live)])
        values, inside = values[::-1], inside[:, ::-1]
        real = values > max(1e-12, noise) * values[0]
        vectors = np.zeros((len(live), len(values)))
        vectors[live] = inside
        return cls(None, scale, vectors, np.sqrt(np.where(real, values, 1.0)), int(real.sum()))

    @property
    def clear(self) -> bool:
        """Whether the rows have full rank beyond doubt."""
        return self.lower is not None

    def __call__(self, columns: FloatArray) -> FloatArray:
        """``L⁻¹ columns``."""
        if self.lower is None:
            return (self.vectors.T @ (columns / self.deviation[:, None])) / self.roots[:, None]
        with one_scipy_thread():
            return np.asarray(scipy.linalg.solve_triangular(self.lower, columns, lower=True))

    def transposed(self, columns: FloatArray) -> FloatArray:
        """``L⁻ᵀ columns``."""
        if self.lower is None:
            return (self.vectors @ (columns / self.roots[:, None])) / self.deviation[:, None]
        with one_scipy_thread():
            return np.asarray(scipy.linalg.solve_triangular(self.lower, columns, lower=True, trans="T"))


@dataclass(frozen=True, slots=True)
class _Columns:
    """Covariances with some targets, scaled so that ``L⁻¹A`` has unit columns: the same span, free of scale and rarity.

    `faint` holds the part of `whitened` in directions whose variance is not known, of the columns that have one there;
    `without` the multiple correlations of the targets left out because they have none beyond rounding.
    """

    original: FloatArray
    whitened: FloatArray
    faint: FloatArray
    without: tuple[float, ...]

    @classmethod
    def of(cls, moments: Covariances, whiten: Whitener, which: slice) -> _Columns:
        """Columns of the targets that the rows are correlated with."""
        original = moments.cross[:, which]
        whitened = whiten(original)
        lengths = np.linalg.norm(whitened, axis=0)
        # ‖L⁻¹ Cov(x, t)‖ / sd(t) is the multiple correlation of rows and target: of rows of any sample some √(d/n), and
        # rounding error only where someone has removed it before.
        deviation = np.sqrt(moments.tt[which] / moments.weight)
        varies = deviation > 1e-12 * np.abs(moments.mean_t[which])  # more than rounding of the mean
        deviation = np.where(varies, deviation, 1.0)
        correlation = np.where(varies, lengths / deviation, 0.0)
        real = correlation > (1e-9 if moments.rounding < 1e-10 else 1e-4)
        # Where the variance counts as one, a covariance is small by nature, and real above the rounding of the rows.
        below = np.where(np.arange(len(whitened))[:, None] < whiten.rank, 0.0, whitened)
        faint = varies & (np.linalg.norm(below, axis=0) / deviation > max(moments.noise, 4.0 * moments.grain))
        real |= faint
        unit = np.where(real, lengths, 1.0)
        without = tuple(float(value) for value in correlation[~real])
        return cls((original / unit)[:, real], (whitened / unit)[:, real], (below / unit)[:, faint], without)


@dataclass(frozen=True, slots=True)
class _Span:
    """Orthonormal `basis` of some columns, the `weights` with which they make it, and singular values dropped."""

    basis: FloatArray
    weights: FloatArray
    dropped: tuple[float, ...]


def _span(columns: FloatArray) -> _Span:
    """``columns @ weights = basis``; columns that depend on others add nothing."""
    if not columns.shape[1]:
        return _Span(columns, np.empty((0, 0)), ())
    left, singular, vt = np.linalg.svd(columns, full_matrices=False)
    kept = singular > DEPENDENT * singular[0]
    return _Span(left[:, kept], vt[kept].T / singular[kept], tuple(float(value) for value in singular[~kept]))


@dataclass(frozen=True, slots=True)
class _Split:
    """What tells the concept and not the task, in whitened coordinates, and the condition of setting it apart."""

    basis: FloatArray
    weights: FloatArray
    condition: float


def _splince(concept: FloatArray, task: FloatArray) -> _Split:
    """For orthonormal bases of the two whitened covariances, ``Q S Vᵀ = (I − Π_task) concept`` as Q and V S⁻¹.

    S holds the sines of the angles between concept and task.
    """
    rest = concept - task @ (task.T @ concept)
    rest -= task @ (task.T @ rest)
    if not rest.shape[1]:
        return _Split(rest, np.empty((0, 0)), 1.0)
    q, sines, vt = np.linalg.svd(rest, full_matrices=False)
    if sines.min() <= DEPENDENT:
        raise InputError(
            "SPLINCE: the covariances of the rows with concept and task share a direction, and no projection removes "
            "it for one and keeps it for the other. Use LEACE, or rows in which the labels differ."
        )
    return _Split(q, vt.T / sines, float(1.0 / sines.min()))


def _warn_of(condition: float) -> None:
    if condition > ILL:
        warnings.warn(
            f"Concept and task nearly share a direction in whitened coordinates: condition number {condition:.3g}. "
            "What is removed is amplified by that; check the certificate on rows that were not used in the fit.",
            IllConditionedWarning,
            stacklevel=4,
        )
