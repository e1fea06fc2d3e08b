"""LEACE, SAL and SPLINCE in closed form: one family of oblique projections, from covariances alone.

With Σ = Cov(x), A = Cov(x, concept), B = Cov(x, y) and Σ = L Lᵀ, in whitened coordinates ``W_A = L⁻¹A``::

    SAL       x ↦ x − (A V S⁻¹) Uᵀ (x − c),                U S Vᵀ = A
    LEACE     x ↦ x − (A V S⁻¹) (L⁻ᵀU)ᵀ (x − c),           U S Vᵀ = W_A
    SPLINCE   x ↦ x − (A V S⁻¹) (L⁻ᵀQ)ᵀ (x − c),           Q S Vᵀ = (I − Π_B) W_A, Π_B onto the span of W_B

After each Cov(x', concept) = 0; SPLINCE also keeps Cov(x', y) = B. Columns are brought to unit length before their
rank is determined, so tolerances are relative and neither scale nor rarity matters.

The left factor is built from the columns of A, not from a basis of their span. A rounding error in the right factor
then leaves the same relative share of A in every direction. This matters for directions with little variance: the
difference of the features ``a`` and ``a + ε concept`` reveals the concept however small ε is.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

import numpy as np
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from unspur._arrays import HALF_PRECISION, cast, namespace, rounded, to_device_like
from unspur._reading import NUMBER, require_kinds
from unspur._text import filled
from unspur._typing import Array, BoolArray, FloatArray
from unspur._validation import (
    BALANCE,
    MISSING,
    STRENGTH,
    check_rows,
    checked_weights,
    column_names,
    keyword_only_after_y,
)
from unspur.exceptions import (
    EverythingRemovedWarning,
    IllConditionedWarning,
    InputError,
    LabelError,
    TaskLostWarning,
)
from unspur.labels import (
    ClassLabel,
    class_label,
    columns_in_order,
    main_column,
    numbered,
    require_no_missing,
    series_name,
)
from unspur.removers.base import Remover
from unspur.removers.concepts import (
    balanced_weights,
    class_label_or_none,
    indicators,
    read_concepts,
    require_concept_differs_from_task,
    require_digits,
)
from unspur.removers.seen_rows import SeenRows, hash_finite_rows, without_unused
from unspur.rows import Block, RowLabels, RowSource, backend_of, persisted, rows_of, to_host
from unspur.solvers.coordinates import ScaledSpan, Whitener, covariances_of
from unspur.solvers.statistics import COVARIANCE_OVERFLOWS, Covariances, require_variation
from unspur.subspace import AffineMap, Subspace

Form: TypeAlias = Literal["sal", "leace", "splince"]
#: Unit columns with singular values below this are linearly dependent.
MIN_SINGULAR_VALUE = 1e-8
#: Condition of the split between concept and task up to which SPLINCE does not amplify noise visibly.
MAX_CONDITION = 100.0
#: Share of the rank of the rows that a removal may take without a warning.
MAX_REMOVED_RANK_SHARE = 0.9
#: Rounding error, relative to the spread of a column, above which cleaned rows are checked for the concept: in general,
#: and where columns that are nearly copies reveal it. Below, no classifier could use it.
MAX_ROUNDING_SHARE, MAX_ROUNDING_SHARE_COLLINEAR = 1e-5, 1e-10
#: Columns that hardly vary beside the others are left out of the right factor if none has more than so many times the
#: correlation with a concept that some other column has, and the others explain this share of what all columns do. What
#: is left in new rows is then no more than about three times the error of an estimate from the rows of the fit.
MAX_NARROW_CORRELATION, MIN_EXPLAINED_SHARE = 2.0, 0.1


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """A removal with its subspaces and its trace.

    `low_variance_directions` (d, m) revealed the concept, and the cleaned rows may be nothing but rounding errors along
    them.
    """

    removal: AffineMap
    spurious: Subspace
    main: Subspace
    trace: ClosedFormTrace
    low_variance_directions: FloatArray

    def lifted(self, wide: ScaledSpan) -> ClosedForm:
        """The result in coordinates of the span of wide rows, as one of the rows themselves."""
        unit, inside = wide.unit[:, None], self.removal
        right, low_variance = (wide.lift(factor.T).T / unit for factor in (inside.right, self.low_variance_directions))
        left, main = (unit * wide.lift(factor.T).T for factor in (inside.left, self.main.basis))
        removal = AffineMap(wide.lift_point(inside.centre), right, left, "remove")
        return ClosedForm(removal, Subspace.spanned_by(left), Subspace.spanned_by(main), self.trace, low_variance)


def solve_closed_form(
    moments: Covariances,
    n_concept: int,
    form: Form,
    whitener: Whitener | None = None,
    *,
    method: str,
    wide: ScaledSpan | None = None,
) -> ClosedForm:
    """Removal of the first `n_concept` target columns; the others are the task (SPLINCE). The trace names `method`.

    If `wide` is given, `moments` are in the coordinates of its span, and so is the result.
    """
    covariance = moments.covariance
    if not np.isfinite(covariance).all():
        raise InputError(COVARIANCE_OVERFLOWS)
    require_variation(moments.live, np.diag(covariance), moments.mean_x)
    whiten = whitener or Whitener.of(covariance, moments.noise)
    found = _Factors.of(moments, n_concept, form, whiten)
    if form != "sal" and found.left.shape[1]:
        found = _without_narrow_columns(found, moments, n_concept, form, wide)
    left, right, condition = found.left, found.right, found.condition
    trace = ClosedFormTrace(method, n_concept, left.shape[1], found.dropped, whiten.rank, condition)
    if condition > MAX_CONDITION:
        warnings.warn(
            f"Concept and task nearly share a direction in whitened coordinates: condition number {condition:.3g}. "
            "What is removed is amplified by that; check the certificate on rows that were not used in the fit.",
            IllConditionedWarning,
            stacklevel=3,
        )
    removal, spurious = AffineMap(moments.mean_x, right, left, "remove"), Subspace.spanned_by(left)
    return ClosedForm(removal, spurious, found.main, trace, np.column_stack([right, found.low_variance_directions]))


class _Factors(NamedTuple):
    """Left and right factor (d, m) of a removal in some coordinates, and what is known about it.

    `task` (r, k) spans the covariance with the task in these coordinates, which SPLINCE keeps.
    """

    left: FloatArray
    right: FloatArray
    task: FloatArray
    main: Subspace
    dropped: tuple[float, ...]
    condition: float
    low_variance_directions: FloatArray

    @classmethod
    def of(cls, moments: Covariances, n_concept: int, form: Form, whiten: Whitener) -> _Factors:
        """The factors in the coordinates of `whiten`."""
        concept = _TargetCovariances.of(moments, whiten, slice(0, n_concept))
        task = _TargetCovariances.of(moments, whiten, slice(n_concept, None))
        condition, main = 1.0, Subspace.empty(len(moments.mean_x))
        basis, weights, dropped = _span(concept.original if form == "sal" else concept.whitened)
        left, kept = concept.original @ weights, _span(task.whitened)[0] if form == "splince" else task.whitened[:, :0]
        if form == "splince":
            basis, weights, condition = _concept_outside_task(basis, kept)
            left = left @ weights
            main = Subspace.spanned_by(_span(task.original)[0])
        right = basis if form == "sal" else whiten.transposed(basis)
        low_variance = whiten.transposed(concept.low_variance_directions)
        return cls(left, right, kept, main, (*concept.uncorrelated, *dropped), condition, low_variance)


def _without_narrow_columns(
    full: _Factors, moments: Covariances, n_concept: int, form: Form, wide: ScaledSpan | None
) -> _Factors:
    """The factors with zeros in the right one for columns that hardly vary beside the others.

    With zeros there, the covariance with the concept is still exactly zero afterwards in every column. Scaled to unit
    variance instead, a column that varies by 1e-33 gets a factor of 1e33, and the result depends on it: rows from which
    rounding takes such a column come out as something else.

    The others must tell nearly as much about the concept, so that new rows are cleaned of it as well. Else the factors
    stay as they are, with a warning about rows in float32 or less.
    """
    narrow = moments.narrow if wide is None else wide.narrow_coordinates
    if not narrow.any():
        return full
    if _narrow_columns_are_dispensable(narrow, moments, n_concept, wide):
        whiten = Whitener.of_some(~narrow, moments.covariance, moments.noise, scaled=wide is None)
        # Each column of `left` is the covariance with a combination of concepts, of multiple correlation 1 in `full`.
        explained = whiten(full.left)
        if form == "splince":
            task = _span(_TargetCovariances.of(moments, whiten, slice(n_concept, None)).whitened)[0]
            explained = explained - task @ (task.T @ explained)
        if (
            len(explained) >= explained.shape[1]
            and np.linalg.svd(explained, compute_uv=False).min() ** 2 > MIN_EXPLAINED_SHARE
        ):
            found = _Factors.of(moments, n_concept, form, whiten)
            if found.left.shape[1] == full.left.shape[1]:
                return found._replace(main=full.main)
    if moments.rounding < 1e-10:  # columns in float64 may be in very different units, and keep their digits
        return full
    where = np.flatnonzero(narrow if wide is None else wide.narrow).tolist()
    names = ", ".join(map(str, where[:5])) + (", …" if len(where) > 5 else "")
    warnings.warn(
        f"{len(where)} of {len(moments.mean_x) if wide is None else len(wide.unit)} columns vary by less than a "
        f"millionth of the others, yet the concept cannot be removed well without them (numbers {names}). The removal "
        "multiplies them by large factors, so rows in which they are rounded, such as float16, come out wrong. Drop "
        "or rescale these columns, or keep the rows in the type of the fit.",
        IllConditionedWarning,
        stacklevel=4,
    )
    return full


def _narrow_columns_are_dispensable(
    narrow: BoolArray, moments: Covariances, n_concept: int, wide: ScaledSpan | None
) -> bool:
    """Whether no narrow column is correlated with a concept far more than all others."""
    if wide is None:
        deviation = np.sqrt(np.diag(moments.covariance))
        correlation = np.abs(moments.cross[:, :n_concept] / np.where(deviation > 0, deviation, 1.0)[:, None])
    else:  # whose columns have unit variance
        correlation, narrow = np.abs(wide.lift(moments.cross[:, :n_concept].T).T), wide.narrow
    most = MAX_NARROW_CORRELATION * correlation[~narrow].max(axis=0, initial=0.0)
    return bool(np.all(correlation[narrow].max(axis=0) <= most))


class _TargetCovariances(NamedTuple):
    """Covariances with some targets, scaled so that ``L⁻¹A`` has unit columns: the same span, free of scale and rarity.

    `low_variance_directions` is the part of `whitened` in directions of unknown variance, for the columns that have one
    there. `uncorrelated` holds the multiple correlations of targets that are left out because they are rounding errors.
    """

    original: FloatArray
    whitened: FloatArray
    low_variance_directions: FloatArray
    uncorrelated: tuple[float, ...]

    @classmethod
    def of(cls, moments: Covariances, whiten: Whitener, which: slice) -> _TargetCovariances:
        """Columns of the targets that are correlated with the rows."""
        original = moments.cross[:, which]
        whitened = whiten(original)
        lengths = np.linalg.norm(whitened, axis=0)
        # ‖L⁻¹ Cov(x, t)‖ / sd(t) is the multiple correlation of rows and target. In any sample it is some √(d/n); it is
        # a rounding error only if the concept was removed before.
        deviation = np.sqrt(moments.tt[which] / moments.weight)
        varies = _varying_targets(moments)[which]
        deviation = np.where(varies, deviation, 1.0)
        correlation = np.where(varies, lengths / deviation, 0.0)
        real = correlation > (1e-9 if moments.rounding < 1e-10 else 1e-4)
        # Where the variance counts as one, covariances are small; above the rounding of the rows they are real.
        below = np.where(np.arange(len(whitened))[:, None] < whiten.rank, 0.0, whitened)
        has_low_variance_part = varies & (
            np.linalg.norm(below, axis=0) / deviation > max(moments.noise, 4.0 * moments.relative_rounding)
        )
        real |= has_low_variance_part
        unit = np.where(real, lengths, 1.0)
        dropped = tuple(correlation[~real].tolist())
        return cls(
            (original / unit)[:, real], (whitened / unit)[:, real], (below / unit)[:, has_low_variance_part], dropped
        )


def _varying_targets(moments: Covariances) -> BoolArray:
    """Targets that vary by more than the rounding of their mean, shape (k,)."""
    return np.asarray(np.sqrt(moments.tt / moments.weight) > 1e-15 * np.abs(moments.mean_t))


def _span(columns: FloatArray) -> tuple[FloatArray, FloatArray, tuple[float, ...]]:
    """Orthonormal basis, weights with ``columns @ weights = basis``, and the singular values that are dropped."""
    if not columns.shape[1]:
        return columns, np.empty((0, 0)), ()
    left, singular, vt = np.linalg.svd(columns, full_matrices=False)
    kept = singular > MIN_SINGULAR_VALUE * singular[0]
    return left[:, kept], vt[kept].T / singular[kept], tuple(singular[~kept].tolist())


def _concept_outside_task(concept: FloatArray, task: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Q, ``V S⁻¹`` and the condition of ``Q S Vᵀ = (I − Π_task) concept``, for orthonormal bases of both.

    S holds the sines of the angles between concept and task.
    """
    rest = concept - task @ (task.T @ concept)
    rest -= task @ (task.T @ rest)
    if not rest.shape[1]:
        return rest, np.empty((0, 0)), 1.0
    q, sines, vt = np.linalg.svd(rest, full_matrices=False)
    if sines.min() <= MIN_SINGULAR_VALUE:
        raise InputError(
            "SPLINCE: the covariances of the rows with concept and task share a direction, and no projection removes "
            "it for one and keeps it for the other. Use LEACE, or rows in which the labels differ."
        )
    return q, vt.T / sines, float(1.0 / sines.min())


@dataclass(frozen=True, slots=True)
class ClosedFormTrace:
    """What a closed form did: concept columns, removed directions, dropped singular values, rank and condition.

    `rounding` is the correlation with the concept that rounding brings back along the removed directions, on the rows
    of the fit; 0 if the rows have enough digits not to be checked. `notes` are about the labels, such as a few rows
    that hold most of the variance of a number.
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
            lines.append(f"rounding brings the concept back: correlation {self.rounding:.2f} along a removed direction")
        return "\n".join([*lines, *(filled(f"note: {note}", further="  ") for note in self.notes)])

    __repr__ = __str__


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _unnamed(names: tuple[str, ...]) -> bool:
    return names in ((), numbered("concept", len(names)))


class ConceptRemover(Remover):
    """Base class of the removers whose `fit` takes the concept as columns of numbers: closed forms and :class:`RLACE`.

    `_rows` reads the arguments of `fit`, and `covariances_of` sums over the rows.
    """

    balance: str
    missing_concept: Any
    _label_notes: tuple[str, ...] = ()
    _concept_names: tuple[str, ...] = ()  # as they were passed
    _keeps_task: ClassVar[bool] = False  # exactly, so that y is needed

    def _rows(
        self, X: Array, y: Array | None, concept: Array, sample_weight: Array | None, *, reset: bool, whole: bool = True
    ) -> tuple[RowSource, int]:
        """Rows whose targets are the concept columns, then those of the task; and the number of concept columns.

        If `whole` (these are all rows of the fit), also check that the concept differs from the task and that numbers
        vary.
        """
        z = persisted(check_rows(self, X, reset=reset))
        if self._keeps_task and z.shape[1] < 2:
            raise InputError(f"X has {z.shape[1]} feature(s); to remove one and keep another at least 2 are needed.")
        main_name, y = main_column(y)
        # A Dask label that nothing depends on is not computed, and so not compared with the concept.
        task = y if self._needs_y or backend_of(y) != "dask" else None
        series = series_name(concept)
        task, concept, sample_weight = to_host(task, concept, sample_weight)
        known = None if reset else self.concept_classes_
        if known and not isinstance(known[0], tuple):
            known = (known,)  # a single concept is stored without the outer tuple
        kind: Any = getattr(self, "concept_type", "auto")
        names = () if reset else self._concept_names
        concepts = read_concepts(
            concept,
            len(z),
            kind=kind,
            missing=self.missing_concept,
            classes=known or None,
            names=names,
            varying=whole,
        )
        self._check_and_store_names((series,) if series and len(concepts.names) == 1 else concepts.names, names)
        main = self._main_label(task if self._needs_y else None, main_name, len(z), None if reset else self.classes_)
        weight = checked_weights(sample_weight, "sample_weight", len(z), relative=False) * concepts.present
        if whole and (label := main or class_label_or_none(task, main_name, len(z))) is not None:
            require_concept_differs_from_task(concepts.codes, label, label.present & (weight > 0))
        group = concepts.group if concepts.classes else None
        if self._keeps_task and main is not None:
            self._require_classes_of_task(main, weight)
        weight = balanced_weights(weight, self.balance, group, None if main is None else main.codes)
        targets = concepts.columns if main is None else np.concatenate([concepts.columns, indicators(main)])
        labels = RowLabels(targets, np.zeros(len(z), dtype=np.intp), weight, 0)
        self.classes_ = () if main is None else main.classes
        self.concept_classes_ = concepts.classes[0] if len(concepts.classes) == 1 else concepts.classes
        self._add_row_hashes(without_unused(hash_finite_rows(self, z), weight > 0))
        return rows_of(z, labels), len(concepts.columns)

    def _check_and_store_names(self, names: tuple[str, ...], earlier: tuple[str, ...]) -> None:
        """Keep the names of the concepts; they must be those of earlier rows, if both have names."""
        if earlier:
            columns_in_order(dict.fromkeys(names), earlier, "concept", "that of earlier rows")
        if _unnamed(earlier):
            self._concept_names = names

    @property
    def _needs_y(self) -> bool:
        return self._keeps_task or self.balance in ("main", "group")

    def _main_label(
        self, y: Array | None, name: str, n_rows: int, classes: tuple[Any, ...] | None
    ) -> ClassLabel | None:
        if y is None:
            if self._needs_y:
                raise LabelError(
                    f"{type(self).__name__} requires y to be passed, but the target y is None"
                    + ("." if self._keeps_task else f": balance={self.balance!r} needs it.")
                )
            return None
        label = class_label(y, name, n_rows, classes=classes or None)
        require_no_missing(label, ())
        return label

    def _warn_if_little_is_left(self, removed: int, rank: int) -> None:
        """Warn if a removal leaves next to nothing."""
        self._leaves_nothing = self.strength_ == 1 and 0 < rank <= removed
        if self.strength_ == 1 and removed and removed >= MAX_REMOVED_RANK_SHARE * rank:
            all_of, left = ("all", "nothing") if removed >= rank else (f"{removed} of the {rank}", "hardly anything")
            classes = "" if not self.concept_classes_ else " A concept of m classes takes up to m − 1 of them."
            warnings.warn(
                f"The removal takes {all_of} directions in which the rows vary, so that {left} is left of them."
                f"{classes} Remove fewer concepts or classes, treat a numeric concept as continuous "
                "(concept_type='continuous'), or use rows with more features.",
                EverythingRemovedWarning,
                stacklevel=4,
            )

    def _reset(self) -> None:
        """Drop what an earlier fit left."""
        self._clear_row_hashes()
        self.__dict__.pop("moments_", None)
        self._label_notes = ()

    def _require_classes_of_task(self, main: ClassLabel, weight: FloatArray) -> None:
        """Raise if the rows of the fit have one class of the task; warn if they lack some, which are not kept."""
        counts = np.bincount(main.codes[weight > 0], minlength=len(main.classes))
        lost = [str(value) for value, count in zip(main.classes, counts, strict=True) if not count]
        if not lost:
            return
        none = f"none has {main.name} = {', '.join(lost)}"
        seen = f"Of the {int(counts.sum()):,} rows with a known concept and a weight, {none}"
        if len(main.classes) - len(lost) < 2:
            raise LabelError(
                "{seen}: there is no covariance with the task to keep, and SPLINCE would be LEACE. Label the concept "
                "in rows of two classes of {label} at least, or use LEACE.",
                seen=seen,
                label=main.name,
            )
        those = "this class" if len(lost) == 1 else "these classes"
        self._warn_and_note(f"{seen}: information that distinguishes {those} is not preserved", TaskLostWarning)

    def _warn_and_note(self, text: str, category: type[Warning]) -> None:
        """Warn, and keep it for the trace and for certificates."""
        warnings.warn(f"{text}.", category, stacklevel=6)
        self._label_notes = tuple(dict.fromkeys((*self._label_notes, text)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self._keeps_task
        return tags


class ClosedFormRemover(ConceptRemover):
    """Base class of the closed forms :class:`LEACE`, :class:`SAL` and :class:`SPLINCE`.

    A subclass sets `_form`, the map that `solve_closed_form` makes, and `_keeps_moments` if it can be fitted in parts.
    A method with another map derives from `ConceptRemover`.
    """

    trace_type = ClosedFormTrace
    trace_: ClosedFormTrace
    moments_: Covariances
    #: Span in whose coordinates `moments_` are; None if they are in the original features.
    _moments_span: ScaledSpan | None
    _form: ClassVar[Form]
    _keeps_moments: ClassVar[bool] = False  # a d × d matrix, for methods that can be fitted in parts

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 — scikit-learn's protocol
        "balance": BALANCE,
        "concept_type": [StrOptions({"auto", "class", "continuous"})],
        "missing_concept": MISSING,
        "strength": STRENGTH,
    }

    def __init__(
        self,
        *,
        balance: str = "none",
        concept_type: str = "auto",
        missing_concept: Any = None,
        strength: float = 1.0,
    ):
        self.balance = balance
        self.concept_type = concept_type
        self.missing_concept = missing_concept
        self.strength = strength

    @keyword_only_after_y
    def fit(self, X: Array, y: Array | None = None, *, concept: Array, sample_weight: Array | None = None) -> Self:
        """Estimate the removal.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Embeddings: an array or DataFrame, a memory map, a torch tensor on any device, or a Dask array. They stay
            where they are.
        y : array of shape (n,), optional
            Main-task label, of any number of classes; needed for ``balance="main"`` and "group", and by SPLINCE. A
            concept that is the same label is refused.
        concept : array of shape (n,) or (n, m), or DataFrame
            What to remove: a concept of any number of classes, several of them, or numbers (``concept_type``). Rows
            where one is missing are left out of the fit.
        sample_weight : array of shape (n,), optional
        """
        with self._fitting(X):
            self._validate_params()
            self._reset()
            rows, self._n_concept = self._rows(X, y, concept, sample_weight, reset=True)
            inside, wide = ScaledSpan.of(rows, scaled=self._form != "sal")
            moments, whitener = covariances_of(inside, rotated=wide is not None)
            self._check_rounding(rows, self._solve(moments, whitener, wide), moments, X)
            if self._keeps_moments:
                self.moments_, self._moments_span = moments, wide
        return self

    def _check_rounding(self, rows: RowSource, found: ClosedForm, moments: Covariances, X: Array) -> None:
        """Warn if columns are so nearly copies, or rows so coarse, that rounding brings the concept back."""
        if self.strength_ < 1:  # which leaves more of it than rounding does
            return
        kind = str(getattr(X, "dtype", rows.dtype)).removeprefix("torch.")
        kind = kind if kind in HALF_PRECISION else rows.dtype.name
        relative_rounding = moments.relative_rounding * HALF_PRECISION.get(kind, moments.rounding) / moments.rounding
        nearly_copies = found.low_variance_directions.shape[1] > found.trace.removed
        if not found.removal.right.shape[1] or not relative_rounding > (
            MAX_ROUNDING_SHARE_COLLINEAR if nearly_copies else MAX_ROUNDING_SHARE
        ):
            return
        correlation = correlation_in_rounding(rows, found, kind)
        if correlation > max(0.1, 5.0 / np.sqrt(rows.n_rows)):
            self.trace_ = replace(self.trace_, rounding=correlation)
            warnings.warn(
                f"Rounding the cleaned rows to {kind} brings the concept back: along a removed direction, the rounding "
                f"errors have a correlation of {correlation:.2f} with it. A classifier that looks at differences "
                "of columns can see it. Use rows of a wider type, or drop columns that are nearly copies of others.",
                IllConditionedWarning,
                stacklevel=3,
            )

    def _solve(
        self, moments: Covariances, whitener: Whitener | None = None, wide: ScaledSpan | None = None
    ) -> ClosedForm:
        """Compute and set the removal. If `wide` is given, `moments` are in the coordinates of its span."""
        found = solve_closed_form(moments, self._n_concept, self._form, whitener, method=type(self).__name__, wide=wide)
        if wide is not None:
            found = found.lifted(wide)
        self._set_removal(found.removal, found.spurious, found.main)
        self.trace_ = replace(found.trace, notes=self._label_notes)
        self.warn_if_nothing_removed(None)
        self._warn_if_little_is_left(found.trace.removed, found.trace.rank)
        return found

    def _notes(self) -> list[str]:
        notes = [*super()._notes(), *(f"of the fit: {note}" for note in self.trace_.notes)]
        if self.trace_.dropped:
            notes.append(f"{len(self.trace_.dropped)} concept columns were dropped as dependent or without covariance")
        if self.trace_.condition > MAX_CONDITION:
            notes.append(f"ill-conditioned: what is removed is amplified by {self.trace_.condition:.3g}")
        if self.trace_.rounding:
            notes.append(
                f"rounding the cleaned rows brings the concept back: correlation {self.trace_.rounding:.2f} along a "
                "removed direction"
            )
        return notes


def fit_moments(
    remover: ClosedFormRemover,
    moments: Covariances,
    *,
    concept_classes: tuple[Any, ...],
    classes: tuple[Any, ...] = (),
    row_set_hash: str,
) -> ClosedFormRemover:
    """Fit a remover from sums over rows that were visited elsewhere; it keeps neither them nor the sums.

    Parameters
    ----------
    moments : of rows whose targets are the indicators of every class of the concept but the first, or a number; then
        those of the task. `balance` is up to their weights.
    concept_classes, classes : of the concept, empty for a number, and of the task, empty if y is not used.
    row_set_hash : fingerprint of the rows.
    """
    remover._validate_params()
    remover._reset()
    remover._n_concept = max(1, len(concept_classes) - 1)
    remover._concept_names = ("concept",)
    remover.concept_classes_, remover.classes_ = concept_classes, classes
    remover.n_features_in_ = len(moments.mean_x)
    remover._store_row_hashes(SeenRows(None, row_set_hash))
    remover._solve(moments)
    return remover


class LEACE(ClosedFormRemover):
    """Least-squares concept erasure (Belrose et al., 2023).

    The affine map that changes the rows least (in the norm of their own covariance) after which no linear
    classifier predicts the concept better than a constant, on the rows it was fitted on and with the weights of the
    fit.

    Parameters
    ----------
    balance : {"none", "concept", "main", "group"}, default="none"
        Which classes get equal total weight. With other weights than these, some of the concept can still be predicted.
    concept_type : {"auto", "class", "continuous"}, default="auto"
        Whether the values of `concept` are classes or numbers. "auto" takes them for classes, and refuses a column of
        more than 20 different numbers (or of more than 10 with fewer than five rows each), which may be either.
    missing_concept : scalar or None, default=None
        Value of `concept` that means "not known", besides NaN and None; of dates, a date or its text.
    strength : float between 0 and 1, default=1.0
        Share of the removal that `transform` applies, as in :class:`JSE`.

    Attributes
    ----------
    removal_ : AffineMap
        What `transform` applies; oblique.
    spurious_ : Subspace
        Span of the covariance with the concept, which is what the map takes out.
    main_ : Subspace
        Empty, because LEACE does not use y.
    trace_ : ClosedFormTrace
        How many directions, which were dropped, condition.
    """

    _form = "leace"
    _keeps_moments = True

    @keyword_only_after_y
    def partial_fit(
        self,
        X: Array,
        y: Array | None = None,
        *,
        concept: Array,
        sample_weight: Array | None = None,
        concept_classes: Sequence[Any] | None = None,
    ) -> Self:
        """Update the fit with more rows. The result equals a single `fit` on all rows.

        `concept_classes` names the classes at the first call (a tuple of them, or one per concept), when the first
        rows do not show all. Each call needs a row with a known concept. A number may be the same in all rows of a
        call. Columns of a concept that have names are matched by name; those of arrays are taken in their order.
        Weights are those given: balancing would need all rows at once.
        """
        with self._fitting(X):
            self._validate_params()
            if self.balance != "none":
                raise InputError(
                    f"partial_fit supports only balance='none'; got {self.balance!r}. Use fit, or sample_weight."
                )
            first = not hasattr(self, "moments_")
            if first and hasattr(self, "removal_"):
                raise InputError(
                    "A LEACE that was read from a file has no moments to add to. Start with a new one, and save the "
                    "estimator with joblib or pickle if more rows will follow."
                )
            self.__dict__.pop("certificate_", None)
            if first and concept_classes is not None:
                concept_classes = list(concept_classes)
                nested = len(concept_classes) > 0 and isinstance(concept_classes[0], tuple | list)
                self.concept_classes_ = tuple(map(tuple, concept_classes)) if nested else tuple(concept_classes)
                self.classes_ = ()
                check_rows(self, X, reset=True)
            rows, self._n_concept = self._rows(
                X, y, concept, sample_weight, reset=first and concept_classes is None, whole=False
            )
            moments = Covariances.of(rows, in_float64=True)
            self.moments_ = moments if first else self._full_moments().merge(moments)
            self._require_digits()
            self._moments_span = None
            if self.moments_.live.any():
                self._solve(self.moments_)
            else:
                self._remove_nothing_yet()
        return self

    def _remove_nothing_yet(self) -> None:
        """Set a removal that changes nothing: so far there is one row, or copies of one."""
        no_subspace, no_factor = Subspace.empty(self.n_features_in_), np.empty((self.n_features_in_, 0))
        self._set_removal(AffineMap(self.moments_.mean_x, no_factor, no_factor, "remove"), no_subspace, no_subspace)
        self.trace_ = ClosedFormTrace(type(self).__name__, self._n_concept, 0, (), 0, 1.0, notes=self._label_notes)
        self.warn_if_nothing_removed(None)

    def _require_digits(self) -> None:
        """Raise LabelError if a number varies, over all rows so far, by no more than rounding errors."""
        if self.concept_classes_:
            return
        moments = self.moments_
        for k in np.flatnonzero(_varying_targets(moments)[: self._n_concept]).tolist():
            mean, deviation = float(moments.mean_t[k]), float(np.sqrt(moments.tt[k] / moments.weight))
            require_digits(4.0 * deviation, mean, abs(mean), self._concept_names[k])

    def merge(self, other: LEACE) -> LEACE:
        """A new LEACE as if fitted on the rows of both, which must have the same features and concepts, in one order.

        Names are compared where both have them. Balanced fits cannot be merged, because balancing needs all rows at
        once.
        """
        for estimator in (self, other):
            check_is_fitted(estimator, "moments_", msg="merge needs fitted estimators, not ones read from a file.")
            if estimator.balance != "none":
                raise InputError(
                    f"merge supports only balance='none'; got {estimator.balance!r}. Fit all rows at once, or use "
                    "sample_weight."
                )
        features = [column_names(estimator) for estimator in (self, other)]
        if all(features) and features[0] != features[1]:
            raise InputError("The two were fitted on different features, or on the same in another order.")
        names = [estimator._concept_names for estimator in (self, other) if not _unnamed(estimator._concept_names)]
        if len(names) == 2 and names[0] != names[1]:
            raise InputError(f"Different concepts: {', '.join(names[0])} and {', '.join(names[1])}.")
        if self.concept_classes_ != other.concept_classes_:
            raise InputError(f"Different classes: {self.concept_classes_} and {other.concept_classes_}.")
        merged = LEACE(**self.get_params())
        merged.__dict__.update(self.__dict__)
        merged.__dict__.pop("certificate_", None)
        assert other._training_rows is not None
        merged._add_row_hashes(other._training_rows)
        merged._concept_names = names[0] if names else self._concept_names
        merged._label_notes = tuple(dict.fromkeys((*self._label_notes, *other._label_notes)))
        merged.moments_, merged._moments_span = self._full_moments().merge(other._full_moments()), None
        merged._solve(merged.moments_)
        return merged

    def _full_moments(self) -> Covariances:
        """The moments, with a d × d matrix even for wide rows."""
        wide = self.__dict__.get("_moments_span")
        return self.moments_ if wide is None else wide.moments(self.moments_)


class SAL(ClosedFormRemover):
    """Mean projection: orthogonal to the covariance of the rows with the concept.

    For a binary concept that is the difference of the two class means (Haghighatkhah et al., 2022); for several
    classes or concepts the span of the cross-covariance, spectral attribute removal (Shao et al., 2023). Parameters and
    attributes are those of :class:`LEACE`.
    """

    _form = "sal"


class SPLINCE(ClosedFormRemover):
    """Removes the covariance with the concept and keeps that with the task exactly (Holstege et al., 2025).

    ``Cov(x', concept) = 0`` and ``Cov(x', y) = Cov(x, y)``; among such maps the one that changes the rows least. Warns
    with the condition number where concept and task nearly share a direction. Parameters and attributes are those of
    :class:`LEACE`; `main_` is the span of the covariance with the task.
    """

    _form = "splince"
    _keeps_task = True


def correlation_in_rounding(rows: RowSource, form: ClosedForm, kind: str) -> float:
    """Largest correlation of the cleaned rows, in their own type, with a concept column along a low-variance direction.

    It is zero in exact arithmetic. Where columns are nearly copies of each other, or rows are coarse, cleaned rows are
    rounding errors along these directions, which may be correlated with the concept. `kind` is the original type of the
    rows: half precision has been widened here.
    """
    lengths = np.linalg.norm(form.low_variance_directions, axis=0)
    directions = (form.low_variance_directions / np.where(lengths > 0, lengths, 1.0))[:, lengths > 0]
    removal, columns = form.removal, form.trace.columns

    def moments(block: Block) -> Array:
        clean = cast(rounded(removal(block.z), kind), np.float64) - to_device_like(removal.centre, block.weight)
        scores, weight = (clean @ to_device_like(directions, clean)).T, block.weight
        targets = cast(block.targets[:columns], np.float64)
        ones = (weight * 0.0 + 1.0)[None]
        joined = namespace(scores).concat([ones, scores, targets])
        return (joined * weight) @ joined.T

    sums = rows.sum(moments)
    second = sums / sums[0, 0] - np.outer(sums[0], sums[0]) / sums[0, 0] ** 2
    variance = np.maximum(np.diag(second), 0.0)
    unit = np.sqrt(np.where(variance > 0, variance, np.inf))
    correlation = np.abs(second / np.outer(unit, unit))
    return float(np.max(correlation[1 : directions.shape[1] + 1, directions.shape[1] + 1 :], initial=0.0))
