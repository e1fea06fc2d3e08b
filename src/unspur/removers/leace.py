"""LEACE, SAL and SPLINCE: removals in closed form, from covariances."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from unspur._parameters import BALANCE, MISSING, named_after_y
from unspur._typing import Array, FloatArray
from unspur._validation import checked_weights, checked_z, require_finite
from unspur.exceptions import (
    EverythingRemovedWarning,
    IllConditionedWarning,
    InputError,
    LabelError,
    OutlierWarning,
    TaskLostWarning,
)
from unspur.labels import ClassLabel, class_label, columns_in_order, numbered, series_name
from unspur.metrics.numeric import held_by_few
from unspur.removers.base import Remover
from unspur.removers.closed_form import (
    ILL,
    ClosedForm,
    ClosedFormTrace,
    Form,
    Whitener,
    closed_form,
    correlation_in_rounding,
)
from unspur.removers.concepts import (
    Concepts,
    balanced_weights,
    indicators,
    read_concepts,
    require_another_label,
)
from unspur.removers.seen_rows import remember_rows
from unspur.rows import Columns, RowSource, backend_of, persisted, rows_of, to_host
from unspur.solvers.statistics import Covariances, keeps_digits

#: Share of the directions in which rows vary from which a removal leaves too little to go unsaid.
MOST_OF_RANK = 0.9
#: Rounding error beside the spread of a column from which it is looked at whether that of cleaned rows tells the
#: concept: always, and where columns that are nearly copies tell it. Below, no classifier could use it.
COARSE, FINE = 1e-5, 1e-10
#: Relative rounding error of the types that are widened before rows are summed over.
HALF = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


def covariances_of(rows: RowSource) -> tuple[Covariances, Whitener | None]:
    """Moments in the type of the rows, which is faster; in float64 where that leaves their rank in doubt.

    With them the whitener that settled the question, if one was made.
    """
    moments = Covariances.of(rows)
    if rows.dtype == np.float64:
        return moments, None
    if keeps_digits(moments.xx, rows):
        whitener = Whitener.of(moments.covariance, moments.noise)
        if whitener.clear:
            return moments, whitener
    return Covariances.of(rows, exact=True), None


def _readable(y: Array | None, n_rows: int) -> ClassLabel | None:
    """A task that nothing but the comparison with the concept needs, if it can be read as classes."""
    try:
        return None if y is None else class_label(y, "y", n_rows)
    except LabelError:
        return None


def _unnamed(names: tuple[str, ...]) -> bool:
    return names in ((), numbered("concept", len(names)))


class ClosedFormRemover(Remover):
    """What the closed forms share; see :class:`LEACE`, :class:`SAL` and :class:`SPLINCE`."""

    trace_type = ClosedFormTrace
    trace_: ClosedFormTrace
    _said: tuple[str, ...] = ()  # what the fit had to say of the labels
    _concept_names: tuple[str, ...] = ()  # of the columns of the concept, as they came
    _form: ClassVar[Form]

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 — scikit-learn's protocol
        "balance": BALANCE,
        "concept_type": [StrOptions({"auto", "class", "continuous"})],
        "missing_concept": MISSING,
    }

    def __init__(self, *, balance: str = "none", concept_type: str = "auto", missing_concept: Any = None):
        self.balance = balance
        self.concept_type = concept_type
        self.missing_concept = missing_concept

    @named_after_y
    def fit(self, X: Array, y: Array | None = None, *, concept: Array, sample_weight: Array | None = None) -> Self:
        """Estimate the removal.

        Parameters
        ----------
        X : array of shape (n, d)
            Embeddings: an array or DataFrame, a memory map, a torch tensor on any device, a Dask array, or what
            `unspur.open_rows` returned. They stay where they are.
        y : array of shape (n,), optional
            Main-task label, of any number of classes; needed for ``balance="main"`` and "group", and by SPLINCE. A
            concept that is the same label is refused.
        concept : array of shape (n,) or (n, m), or DataFrame
            What to remove: a concept of any number of classes, several of them, or numbers (``concept_type``). Rows
            where one is missing are left out of the fit.
        sample_weight : array of shape (n,), optional
        """
        with self._restore_on_failure():
            self._validate_params()
            self._forget()
            rows, self._n_concept = self._rows(X, y, concept, sample_weight, reset=True)
            moments, whitener = covariances_of(rows)
            self._look_at_rounding(rows, self._solve(moments, whitener), moments, X)
            self._keep(moments)
        return self

    def _rows(
        self, X: Array, y: Array | None, concept: Array, sample_weight: Array | None, *, reset: bool, whole: bool = True
    ) -> tuple[RowSource, int]:
        """Rows whose targets are the concept columns, then those of the task; and how many are the concept's.

        Of rows that are not the `whole` of the fit, nothing is concluded about concept and task.
        """
        z = persisted(checked_z(self, X, reset=reset))
        if self._form == "splince" and z.shape[1] < 2:
            raise InputError(f"Z has {z.shape[1]} feature(s); to remove one and keep another at least 2 are needed.")
        # Of a label that nothing depends on, nothing is computed: one of Dask is not compared with the concept.
        task = y if self._needs_y or backend_of(y) != "dask" else None
        series = series_name(concept)
        task, concept, sample_weight = to_host(task, concept, sample_weight)
        known = None if reset else self.concept_classes_
        if known and not isinstance(known[0], tuple):
            known = (known,)  # of one concept the classes are kept without the nest
        kind: Any = getattr(self, "concept_type", "auto")
        names = () if reset else self._concept_names
        concepts = read_concepts(
            concept, len(z), kind=kind, missing=self.missing_concept, classes=known or None, names=names
        )
        self._note_names((series,) if series and len(concepts.names) == 1 else concepts.names, names)
        main = self._main_label(task if self._needs_y else None, len(z), None if reset else self.classes_)
        weight = checked_weights(sample_weight, "sample_weight", len(z), relative=False) * concepts.present
        if whole and (label := main or _readable(task, len(z))) is not None:
            require_another_label(concepts, label.codes, label.present & (weight > 0))
        group = concepts.group if concepts.classes else None
        self._take_note_of_outliers(concepts, weight)
        if self._form == "splince" and main is not None:
            self._require_classes_of_task(main, weight)
        weight = balanced_weights(weight, self.balance, group, None if main is None else main.codes)
        targets = concepts.columns if main is None else np.concatenate([concepts.columns, indicators(main)])
        columns = Columns(targets, np.zeros(len(z), dtype=np.intp), weight, 0)
        self.classes_ = () if main is None else main.classes
        self.concept_classes_ = concepts.classes[0] if len(concepts.classes) == 1 else concepts.classes
        require_finite(self, z)
        self._add_to_memory(*remember_rows(z))
        return rows_of(z, columns), len(concepts.columns)

    def _note_names(self, names: tuple[str, ...], earlier: tuple[str, ...]) -> None:
        """Keep the names of the concepts; those of earlier rows must be the same, where both have names."""
        if earlier:
            columns_in_order(dict.fromkeys(names), earlier, "concept", "that of earlier rows")
        if _unnamed(earlier):
            self._concept_names = names

    @property
    def _needs_y(self) -> bool:
        return self._form == "splince" or self.balance in ("main", "group")

    def _main_label(self, y: Array | None, n_rows: int, classes: tuple[Any, ...] | None) -> ClassLabel | None:
        if y is None:
            if self._needs_y:
                raise LabelError(
                    f"{type(self).__name__} requires y to be passed, but the target y is None"
                    + ("." if self._form == "splince" else f": balance={self.balance!r} needs it.")
                )
            return None
        label = class_label(y, "y", n_rows, classes=classes or None)
        if not label.present.all():
            raise LabelError(f"y is missing in {np.sum(~label.present)} rows; only concept may have gaps.")
        return label

    def _warn_if_little_is_left(self, removed: int, rank: int) -> None:
        """Nothing erases everything in silence."""
        if removed and removed >= MOST_OF_RANK * rank:
            all_of, left = ("all", "nothing") if removed >= rank else (f"{removed} of the {rank}", "hardly anything")
            classes = "" if not self.concept_classes_ else " A concept of m classes takes up to m − 1 of them."
            warnings.warn(
                f"The removal takes {all_of} directions in which the rows vary, so that {left} is left of them."
                f"{classes} Remove fewer concepts or classes, take a number as one (concept_type='continuous'), or use "
                "rows with more features.",
                EverythingRemovedWarning,
                stacklevel=4,
            )

    def _keep(self, moments: Covariances) -> None:
        """For methods that can go on from where they are; the others need no d × d matrix."""

    def _forget(self) -> None:
        """Nothing of an earlier fit may outlive a new one."""
        self._forget_rows()
        self.__dict__.pop("moments_", None)
        self._said = ()

    def _take_note_of_outliers(self, concepts: Concepts, weight: FloatArray) -> None:
        """Warn of numbers of which a few rows hold most of the variance: those rows would decide on what is removed."""
        if concepts.classes:
            return
        for name, values in concepts.codes.items():
            if said := held_by_few(values, name, weight):
                self._say(said, OutlierWarning)

    def _require_classes_of_task(self, main: ClassLabel, weight: FloatArray) -> None:
        """Refuse a task of which the rows of the fit have one class: there is no covariance with it to keep.

        Of a class that they lack nothing is kept, which is worth a warning.
        """
        counts = np.bincount(main.codes[weight > 0], minlength=len(main.classes))
        lost = [str(value) for value, count in zip(main.classes, counts, strict=True) if not count]
        if not lost:
            return
        seen = f"Of the {int(counts.sum()):,} rows with a known concept and a weight, none has y = {', '.join(lost)}"
        if len(main.classes) - len(lost) < 2:
            raise LabelError(
                f"{seen}: there is no covariance with the task to keep, and SPLINCE would be LEACE. Label the concept "
                "in rows of two classes of y at least, or use LEACE."
            )
        self._say(f"{seen}: what tells this class from the others is not kept", TaskLostWarning)

    def _say(self, text: str, category: type[Warning]) -> None:
        """Warn, and keep it for the trace and for certificates."""
        warnings.warn(f"{text}.", category, stacklevel=6)
        self._said = tuple(dict.fromkeys((*self._said, text)))

    def _look_at_rounding(self, rows: RowSource, found: ClosedForm, moments: Covariances, X: Array) -> None:
        """Warn where columns are so nearly copies, or rows so coarse, that rounding brings the concept back."""
        kind = str(getattr(X, "dtype", rows.dtype)).removeprefix("torch.")
        kind = kind if kind in HALF else rows.dtype.name
        grain = moments.grain * HALF.get(kind, moments.rounding) / moments.rounding
        nearly_copies = found.faint.shape[1] > found.trace.removed
        if not found.trace.removed or not grain > (FINE if nearly_copies else COARSE):
            return
        correlation = correlation_in_rounding(rows, found, kind)
        if correlation > max(0.1, 5.0 / np.sqrt(rows.n_rows)):
            self.trace_ = replace(self.trace_, rounding=correlation)
            warnings.warn(
                f"Rounding of the cleaned rows to {kind} goes with the concept: their correlation is {correlation:.2f} "
                "along a direction that is removed, where nothing else is left. A classifier that looks at differences "
                "of columns can see it. Use rows of a wider type, or drop columns that are nearly copies of others.",
                IllConditionedWarning,
                stacklevel=3,
            )

    def _solve(self, moments: Covariances, whitener: Whitener | None = None) -> ClosedForm:
        found = closed_form(moments, self._n_concept, self._form, whitener)
        self.removal_, self.spurious_, self.main_ = found.removal, found.spurious, found.main
        self.trace_ = replace(found.trace, notes=self._said)
        self.warn_if_nothing_removed(None)
        self._warn_if_little_is_left(found.trace.removed, found.trace.rank)
        return found

    def _notes(self) -> list[str]:
        notes = [*super()._notes(), *(f"of the fit: {note}" for note in self.trace_.notes)]
        if self.trace_.dropped:
            notes.append(f"{len(self.trace_.dropped)} concept columns were dropped as dependent or without covariance")
        if self.trace_.condition > ILL:
            notes.append(f"ill-conditioned: what is removed is amplified by {self.trace_.condition:.3g}")
        if self.trace_.rounding:
            notes.append(f"rounding of the cleaned rows goes with the concept: correlation {self.trace_.rounding:.2f}")
        return notes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self._form == "splince"
        return tags


class LEACE(ClosedFormRemover):
    """Least-squares concept erasure (Belrose et al., 2023).

    The affine map that changes the rows least (in the norm of their own covariance) after which no linear
    classifier predicts the concept better than a constant, on the rows it was fitted on.

    Parameters
    ----------
    balance : {"none", "concept", "main", "group"}, default="none"
        Which classes get equal total weight.
    concept_type : {"auto", "class", "continuous"}, default="auto"
        Whether the values of `concept` are classes or numbers. "auto" takes them for classes, and refuses a column of
        more than 20 different numbers (or of more than 10 with fewer than five rows each), which may be either.
    missing_concept : scalar or None, default=None
        Value of `concept` that means "not known", besides NaN and None.

    Attributes
    ----------
    removal_ : AffineMap
        What `transform` applies; oblique.
    spurious_ : Subspace
        Span of the covariance with the concept, which is what the map takes out.
    main_ : Subspace
        Empty: LEACE knows no task.
    trace_ : ClosedFormTrace
        How many directions, which were dropped, condition.
    """

    _form = "leace"
    moments_: Covariances

    @named_after_y
    def partial_fit(
        self,
        X: Array,
        y: Array | None = None,
        *,
        concept: Array,
        sample_weight: Array | None = None,
        concept_classes: Sequence[Any] | None = None,
    ) -> Self:
        """Add rows to those seen before; the answer is that of one fit on all of them.

        `concept_classes` names the classes at the first call (a tuple of them, or one per concept), when the first
        rows do not show all. Columns of a concept that have names are matched by name; those of arrays are taken in
        their order. Weights are those given: balancing would need all rows at once.
        """
        with self._restore_on_failure():
            self._validate_params()
            if self.balance != "none":
                raise InputError(
                    f"partial_fit has balance='none' only; got {self.balance!r}. Use fit, or sample_weight."
                )
            first = not hasattr(self, "moments_")
            if first and hasattr(self, "removal_"):
                raise InputError(
                    "A LEACE that was read from a file has no moments to add to. Start with a new one, and keep the "
                    "estimator itself (joblib, pickle) where rows are still to come."
                )
            self.__dict__.pop("certificate_", None)
            if first and concept_classes is not None:
                concept_classes = list(concept_classes)
                nested = len(concept_classes) > 0 and isinstance(concept_classes[0], tuple | list)
                self.concept_classes_ = tuple(map(tuple, concept_classes)) if nested else tuple(concept_classes)
                self.classes_ = ()
                checked_z(self, X, reset=True)
            rows, self._n_concept = self._rows(
                X, y, concept, sample_weight, reset=first and concept_classes is None, whole=False
            )
            moments = Covariances.of(rows, exact=True)
            self.moments_ = moments if first else self.moments_.merge(moments)
            self._solve(self.moments_)
        return self

    def _keep(self, moments: Covariances) -> None:
        self.moments_ = moments

    def merge(self, other: LEACE) -> LEACE:
        """A new LEACE as if fitted on the rows of both, which must have the same features and concepts, in one order.

        Names are compared where both have them. Of balanced fits there is none: balancing would need all rows at once.
        """
        for estimator in (self, other):
            check_is_fitted(estimator, "moments_", msg="merge needs fitted estimators, not ones read from a file.")
            if estimator.balance != "none":
                raise InputError(
                    f"merge has balance='none' only; got {estimator.balance!r}. Fit all rows at once, or use "
                    "sample_weight."
                )
        features = [list(getattr(estimator, "feature_names_in_", ())) for estimator in (self, other)]
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
        merged._add_to_memory(other._training_rows, other.training_hash_, other.__dict__.get("_training_sketches", ()))
        merged._concept_names = names[0] if names else self._concept_names
        merged._said = tuple(dict.fromkeys((*self._said, *other._said)))
        merged.moments_ = self.moments_.merge(other.moments_)
        merged._solve(merged.moments_)
        return merged


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
