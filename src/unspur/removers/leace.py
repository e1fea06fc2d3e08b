"""LEACE, SAL, SPLINCE and RLACE in closed form: one family of projections, from covariances alone.

With Σ = Cov(x), A = Cov(x, concept), B = Cov(x, y) and Σ = L Lᵀ, in whitened coordinates ``W_A = L⁻¹A``::

    SAL       x ↦ x − (A V S⁻¹) Uᵀ (x − c),                U S Vᵀ = A
    LEACE     x ↦ x − (A V S⁻¹) (L⁻ᵀU)ᵀ (x − c),           U S Vᵀ = W_A
    SPLINCE   x ↦ x − (A V S⁻¹) (L⁻ᵀQ)ᵀ (x − c),           Q S Vᵀ = (I − Π_B) W_A, Π_B onto the span of W_B

After each Cov(x', concept) = 0; SPLINCE also keeps Cov(x', y) = B. Rows and targets are brought to unit variance before
a rank is determined, so neither scale nor rarity matters. Columns whose deviations are below the rounding errors of
the others are left as they are. Along directions in which rows do not vary, the variance counts as one: nothing is
divided by a rounding error.

The left factor is built from the columns of A, not from a basis of their span. A rounding error in the right factor
then leaves the same relative share of A in every direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

import numpy as np
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from unspur._text import counted, filled
from unspur._typing import Array, FloatArray
from unspur._validation import (
    BALANCE,
    MISSING,
    STRENGTH,
    check_rows,
    checked_weights,
    column_names,
)
from unspur.exceptions import (
    EverythingRemovedWarning,
    IllConditionedWarning,
    InputError,
    LabelError,
    TaskLostWarning,
    warn,
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
)
from unspur.removers.seen_rows import SeenRows, hash_finite_rows
from unspur.rows import RowLabels, RowSource, backend_of, persisted, rows_of, to_host
from unspur.solvers.coordinates import ScaledSpan, Whitener, covariances_of
from unspur.solvers.statistics import COVARIANCE_OVERFLOWS, Covariances, require_variation
from unspur.subspace import AffineMap, Subspace

Form: TypeAlias = Literal["sal", "leace", "splince"]
#: Unit columns with singular values below this are linearly dependent.
MIN_SINGULAR_VALUE = 1e-8
#: Multiple correlation of a target with the rows below which it is a rounding error, by the size of their type.
MIN_CORRELATION = {4: 1e-4, 8: 1e-9}
#: Condition of the split between concept and task up to which SPLINCE does not amplify noise visibly.
MAX_CONDITION = 100.0
#: Share of the rank of the rows that a removal may take without a warning.
MAX_REMOVED_RANK_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class ClosedFormTrace:
    """What a closed form did: concept columns, removed directions, dropped singular values, rank and condition.

    `notes` are about the labels, such as a few rows that hold most of the variance of a number.
    """

    method: str
    columns: int
    removed: int
    dropped: tuple[float, ...]
    rank: int
    condition: float
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
        return cls(**{**saved, "dropped": tuple(saved["dropped"]), "notes": tuple(saved["notes"])})

    def __str__(self) -> str:
        what = f"{counted(self.removed, 'direction')} removed for {counted(self.columns, 'concept column')}"
        lines = [f"{self.method}: {what} (rows of rank {self.rank})"]
        if self.dropped:
            values = ", ".join(f"{value:.1e}" for value in self.dropped)
            lines.append(f"dropped as dependent or without covariance: {len(self.dropped)} (singular values {values})")
        if self.condition > 1:
            lines.append(f"condition of the split between concept and task: {self.condition:.3g}")
        return "\n".join([*lines, *(filled(f"note: {note}", further="  ") for note in self.notes)])

    __repr__ = __str__


class ClosedForm(NamedTuple):
    """A removal with its subspaces and its trace."""

    removal: AffineMap
    spurious: Subspace
    main: Subspace
    trace: ClosedFormTrace

    def lifted(self, wide: ScaledSpan) -> ClosedForm:
        """The result in coordinates of the span of wide rows, as one of the rows themselves."""
        unit, inside = wide.unit[:, None], self.removal
        right = wide.span.lift(inside.right.T).T / np.where(unit > 0, unit, np.inf)
        left, main = (unit * wide.span.lift(factor.T).T for factor in (inside.left, self.main.basis))
        removal = AffineMap(wide.lift_point(inside.centre), right, left, "remove")
        return ClosedForm(removal, Subspace.spanned_by(left), Subspace.spanned_by(main), self.trace)


def solve_closed_form(
    moments: Covariances, n_concept: int, form: Form, *, method: str, scaled: bool = True
) -> ClosedForm:
    """Removal of the first `n_concept` target columns; the others are the task (SPLINCE). The trace names `method`.

    Columns count alike if `scaled`.
    """
    covariance = moments.covariance
    if not np.isfinite(covariance).all():
        raise InputError(COVARIANCE_OVERFLOWS)
    require_variation(moments.live, np.diag(covariance), moments.mean_x)
    whiten = Whitener.of(covariance, moments.readable, moments.noise, scaled=scaled)
    original, whitened, uncorrelated = _unit_targets(moments, whiten, slice(0, n_concept))
    basis, weights, dependent = _span(original if form == "sal" else whitened)
    left, condition, main = original @ weights, 1.0, Subspace.empty(len(moments.mean_x))
    if form == "splince":
        of_task, task, _ = _unit_targets(moments, whiten, slice(n_concept, None))
        basis, weights, condition = _concept_outside_task(basis, _span(task)[0])
        left, main = left @ weights, Subspace.spanned_by(_span(of_task)[0])
    right = basis if form == "sal" else whiten.transposed(basis)
    trace = ClosedFormTrace(method, n_concept, left.shape[1], (*uncorrelated, *dependent), whiten.rank, condition)
    if condition > MAX_CONDITION:
        warn(
            f"Concept and task nearly share a direction in whitened coordinates: condition number {condition:.3g}. "
            "What is removed is amplified by that; check the certificate on rows that were not used in the fit.",
            IllConditionedWarning,
        )
    return ClosedForm(AffineMap(moments.mean_x, right, left, "remove"), Subspace.spanned_by(left), main, trace)


def _unit_targets(
    moments: Covariances, whiten: Whitener, which: slice
) -> tuple[FloatArray, FloatArray, tuple[float, ...]]:
    """Covariances of rows (d, k) and of whitened rows (r, k) with some targets, with unit columns of the latter.

    Targets whose multiple correlation with the rows is a rounding error are left out: the concept was removed before,
    or is the same in all rows. These correlations are returned as well.
    """
    original = np.where(moments.readable[:, None], moments.cross[:, which], 0.0)
    whitened = whiten(original)
    deviation = np.sqrt(moments.tt[which] / moments.weight)
    varies = deviation > 1e-15 * np.abs(moments.mean_t[which])
    lengths = np.linalg.norm(whitened, axis=0)
    correlation = np.where(varies, lengths / np.where(varies, deviation, 1.0), 0.0)
    real = correlation > MIN_CORRELATION[8 if moments.rounding < 1e-10 else 4]
    return original[:, real] / lengths[real], whitened[:, real] / lengths[real], tuple(correlation[~real].tolist())


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


class ClosedFormRemover(Remover):
    """Base class of the closed forms :class:`LEACE`, :class:`SAL` and :class:`SPLINCE`.

    A subclass sets `_form`, the map that `solve_closed_form` makes, and `_keeps_moments` if it can be fitted in parts.
    """

    trace_type = ClosedFormTrace
    trace_: ClosedFormTrace
    moments_: Covariances
    #: Span in whose coordinates `moments_` are; None if they are in the original features.
    _moments_span: ScaledSpan | None
    _form: ClassVar[Form]
    _keeps_moments: ClassVar[bool] = False  # a d × d matrix, for methods that can be fitted in parts
    _keeps_task: ClassVar[bool] = False  # exactly, so that y is needed
    _label_notes: tuple[str, ...] = ()
    _concept_names: tuple[str, ...] = ()  # as they were passed

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
            moments = covariances_of(inside) if wide is None else Covariances.of(inside, in_float64=True)
            self._solve(moments, wide)
            if self._keeps_moments:
                self.moments_, self._moments_span = moments, wide
        return self

    def _reset(self) -> None:
        """Drop what an earlier fit left."""
        self._clear_row_hashes()
        self.__dict__.pop("moments_", None)
        self._label_notes = ()

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
        kind: Any = self.concept_type
        names = () if reset else self._concept_names
        concepts = read_concepts(
            concept, len(z), kind=kind, missing=self.missing_concept, classes=known or None, names=names, varying=whole
        )
        self._check_and_store_names((series,) if series and len(concepts.names) == 1 else concepts.names, names)
        main = self._main_label(task if self._needs_y else None, main_name, len(z), None if reset else self.classes_)
        weight = checked_weights(sample_weight, "sample_weight", len(z), relative=False) * concepts.present
        if whole and (label := main or class_label_or_none(task, main_name, len(z))) is not None:
            require_concept_differs_from_task(concepts.codes, label, label.present & (weight > 0))
        if self._keeps_task and main is not None:
            self._require_classes_of_task(main, weight)
        group = concepts.group if concepts.classes else None
        weight = balanced_weights(weight, self.balance, group, None if main is None else main.codes)
        targets = concepts.columns if main is None else np.concatenate([concepts.columns, indicators(main)])
        labels = RowLabels(targets, np.zeros(len(z), dtype=np.intp), weight, 0)
        self.classes_ = () if main is None else main.classes
        self.concept_classes_ = concepts.classes[0] if len(concepts.classes) == 1 else concepts.classes
        self._add_row_hashes(hash_finite_rows(self, z)[1].select(weight > 0))
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
                needed = "." if self._keeps_task else f": balance={self.balance!r} needs it."
                raise LabelError(f"{type(self).__name__} requires y to be passed, but the target y is None{needed}")
            return None
        label = class_label(y, name, n_rows, classes=classes or None)
        require_no_missing(label, ())
        return label

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
                f"{seen}: there is no covariance with the task to keep, and SPLINCE would be LEACE. Label the concept "
                f"in rows of two classes of {main.name} at least, or use LEACE."
            )
        those = "this class" if len(lost) == 1 else "these classes"
        self._warn_and_note(f"{seen}: information that distinguishes {those} is not preserved", TaskLostWarning)

    def _warn_and_note(self, text: str, category: type[Warning]) -> None:
        """Warn, and keep it for the trace and for certificates."""
        warn(f"{text}.", category)
        self._label_notes = tuple(dict.fromkeys((*self._label_notes, text)))

    def _solve(self, moments: Covariances, wide: ScaledSpan | None = None) -> None:
        """Compute and set the removal. If `wide` is given, `moments` are in the coordinates of its span."""
        method = type(self).__name__
        found = solve_closed_form(moments, self._n_concept, self._form, method=method, scaled=wide is None)
        if wide is not None:
            found = found.lifted(wide)
        self._set_removal(found.removal, found.spurious, found.main)
        self.trace_ = replace(found.trace, notes=self._label_notes)
        self.warn_if_nothing_removed(None)
        self._warn_if_little_is_left(found.trace.removed, found.trace.rank)

    def _warn_if_little_is_left(self, removed: int, rank: int) -> None:
        """Warn if a removal leaves next to nothing."""
        self._leaves_nothing = self.strength_ == 1 and 0 < rank <= removed
        if self.strength_ == 1 and removed and removed >= MAX_REMOVED_RANK_SHARE * rank:
            all_of, left = ("all", "nothing") if removed >= rank else (f"{removed} of the {rank}", "hardly anything")
            classes = "" if not self.concept_classes_ else " A concept of m classes takes up to m − 1 of them."
            warn(
                f"The removal takes {all_of} directions in which the rows vary, so that {left} is left of them."
                f"{classes} Remove fewer concepts or classes, treat a numeric concept as continuous "
                "(concept_type='continuous'), or use rows with more features.",
                EverythingRemovedWarning,
            )

    def _notes(self) -> list[str]:
        notes = [*super()._notes(), *(f"of the fit: {note}" for note in self.trace_.notes)]
        if self.trace_.dropped:
            notes.append(f"{len(self.trace_.dropped)} concept columns were dropped as dependent or without covariance")
        if self.trace_.condition > MAX_CONDITION:
            notes.append(f"ill-conditioned: what is removed is amplified by {self.trace_.condition:.3g}")
        return notes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self._keeps_task
        return tags


def _unnamed(names: tuple[str, ...]) -> bool:
    return names in ((), numbered("concept", len(names)))


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
        Value of `concept` that means "not known", besides NaN and None.
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
            self._require_unbalanced("partial_fit")
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
            self._moments_span = None
            if self.moments_.live.any():
                self._solve(self.moments_)
            else:
                self._remove_nothing_yet()
        return self

    def _require_unbalanced(self, method: str) -> None:
        if self.balance != "none":
            raise InputError(
                f"{method} supports only balance='none'; got {self.balance!r}. Fit all rows at once, or use "
                "sample_weight."
            )

    def _remove_nothing_yet(self) -> None:
        """Set a removal that changes nothing: so far there is one row, or copies of one."""
        nothing = Subspace.empty(self.n_features_in_)
        self._set_removal(AffineMap.removing(nothing, self.moments_.mean_x), nothing, nothing)
        self.trace_ = ClosedFormTrace(type(self).__name__, self._n_concept, 0, (), 0, 1.0, self._label_notes)
        self.warn_if_nothing_removed(None)

    def merge(self, other: LEACE) -> LEACE:
        """A new LEACE as if fitted on the rows of both, which must have the same features and concepts, in one order.

        Names are compared where both have them. Balanced fits cannot be merged, because balancing needs all rows at
        once.
        """
        for estimator in (self, other):
            check_is_fitted(estimator, "moments_", msg="merge needs fitted estimators, not ones read from a file.")
            estimator._require_unbalanced("merge")
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


class RLACE(SAL):
    """Relaxed linear adversarial concept erasure (Ravfogel et al., 2022), at its optimum, which is :class:`SAL`.

    RLACE seeks the orthogonal projection after which the best linear classifier does worst,
    ``max_P min_w loss(concept | P z)``, by steps of descent and ascent. A linear classifier beats a constant if and
    only if class means differ. So the projection off the differences of the class means, with one direction for every
    class but one, reaches the largest possible value, the loss of a constant: no search is needed. Parameters and
    attributes are those of :class:`LEACE`.
    """


class SPLINCE(ClosedFormRemover):
    """Removes the covariance with the concept and keeps that with the task exactly (Holstege et al., 2025).

    ``Cov(x', concept) = 0`` and ``Cov(x', y) = Cov(x, y)``; among such maps the one that changes the rows least. Warns
    with the condition number where concept and task nearly share a direction. Parameters and attributes are those of
    :class:`LEACE`; `main_` is the span of the covariance with the task.
    """

    _form = "splince"
    _keeps_task = True
