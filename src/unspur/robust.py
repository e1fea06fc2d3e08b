"""The recommended classifier: a removal and the head after it."""

from __future__ import annotations

import inspect
from copy import copy
from dataclasses import replace
from numbers import Integral
from os import PathLike
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from unspur._data import LabelledData, fit_arguments, rows_on_host
from unspur._files import write_artifact
from unspur._resources import one_thread_if_small
from unspur._text import brief
from unspur._typing import Array, BoolArray
from unspur._validation import (
    FIT_METADATA,
    MISSING,
    checked_weights,
    generator,
    restore_on_failure,
)
from unspur.certificate import Certificate
from unspur.clusters import (
    cluster_codes,
    cluster_labels,
    distinct_row_indices,
    has_continuous_columns,
    require_disjoint_clusters,
    row_hashes,
)
from unspur.exceptions import InputError, UsedRowsWarning, warn
from unspur.heads import HEADS, GroupWeighted
from unspur.heads.base import Head, HeadData, LinearClassifier, decode_head_arguments, with_duplicates_as_clusters
from unspur.labels import storable
from unspur.removers import JSE, Remover, read_saved
from unspur.removers.base import output_of, plain_parameters
from unspur.rows import backend_of, to_host
from unspur.selection import Selection, cross_validate_penalty, fit_or_pool, penalty_grid_from_variances, pooled
from unspur.solvers.coordinates import RowSpan
from unspur.subspace import AffineMap

E = TypeVar("E", bound=BaseEstimator)


class RobustClassifier(OneToOneFeatureMixin, TransformerMixin, LinearClassifier):
    """A removal and a group-weighted head as one classifier, both with chosen penalties.

    The removal is fitted first (by default `JSE`), then the head on the transformed rows (by default `GroupWeighted`,
    in which every combination of task and concept has equal weight). The penalty of the head is the one with the
    smallest held-out loss, with equal weight for every group. Both are linear, so together they are one linear head on
    the original rows, `coef_` and `intercept_`. Rows are neither copied nor transformed.

    Parameters
    ----------
    remover : Remover, default=None
        Removes the concept, which has classes; numbers (``concept_type="continuous"``) are refused. None: ``JSE()``.
    head : Head, default=None
        The head, whose `penalty` is chosen. None: ``GroupWeighted()``.
    cv : int, default=5
        Folds to choose the penalty in without validation rows, stratified by group.
    missing_concept : scalar or None, default=None
        Value of `concept` that means "not known", besides NaN and None.
    random_state : int, RandomState or None, default=None
        Draws the folds of the removal's tests and of the choice of the penalty.

    Attributes
    ----------
    remover_ : Remover
        The fitted remover, with its trace.
    removal_ : AffineMap
        What `transform` applies.
    head_ : Head
        The fitted head, with coefficients on the original rows.
    coef_, intercept_ : arrays of shape (k, d) and (k,)
        Removal and head as one linear head on the original rows; k = 1 for two classes, else one row per class.
    selection_ : Selection
        The penalties tried, and the held-out loss of each.
    classes_ : array
        Classes of y, in their order.
    notes_ : tuple of str
        Notes on the fit for the reader.

    Examples
    --------
    >>> from unspur import RobustClassifier
    >>> from unspur.datasets import make_toy
    >>> train, test = make_toy(2000, rho=0.8, random_state=0), make_toy(2000, random_state=1)
    >>> model = RobustClassifier(random_state=0).fit(train.Z, train.y, concept=train.concept)
    >>> round(model.score(test.Z, test.y), 1)
    0.8
    """

    # Validation rows are not requested, as in `Head`: a pipeline would pass them on without transforming them.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {name: not name.endswith("_val") for name in FIT_METADATA}

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "remover": [None, Remover],
        "head": [None, Head],
        "cv": [Interval(Integral, 2, None, closed="left")],
        "missing_concept": MISSING,
        "random_state": ["random_state"],
    }

    remover_: Remover
    head_: Head
    selection_: Selection
    notes_: tuple[str, ...]

    def __init__(
        self,
        remover: Remover | None = None,
        head: Head | None = None,
        *,
        cv: int = 5,
        missing_concept: Any = None,
        random_state: Any = None,
    ):
        self.remover = remover
        self.head = head
        self.cv = cv
        self.missing_concept = missing_concept
        self.random_state = random_state

    def fit(
        self,
        X: Array,
        y: Array,
        *,
        concept: Array,
        sample_weight: Array | None = None,
        X_val: Array | None = None,
        y_val: Array | None = None,
        concept_val: Array | None = None,
        sample_weight_val: Array | None = None,
        clusters: Array | None = None,
        clusters_val: Array | None = None,
    ) -> Self:
        """Fit the removal, choose the penalty of the head, and fit the head on all rows.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Embeddings: an array or DataFrame, a memory map, a torch tensor on any device, or a Dask array. They stay
            where they are.
        y : array of shape (n,)
            Main-task label, two or more classes.
        concept : array of shape (n,) or (n, m), DataFrame, or mapping from names to arrays of shape (n,)
            The concept or concepts to remove; rows where one is missing are left out, except by a head that infers
            it, ``GroupWeighted(unknown="infer")``.
        sample_weight : array of shape (n,), optional
        X_val, y_val, concept_val, sample_weight_val : arrays, optional
            Validation rows for the tests of directions and the choice of the penalty, preferably not seen by the
            encoder. The head is then trained on them as well (DFR on them alone). If they are too few, all rows are
            pooled and cross-fitted, and a FewRowsWarning says so. Without them, rows of X are held out in folds.
        clusters, clusters_val : arrays of shape (n,), optional
            Rows that are not independent of each other, which are held out together.

        A fit that fails leaves the estimator as it was.
        """
        train = fit_arguments(X, y, concept, sample_weight, clusters)
        validation = fit_arguments(X_val, y_val, concept_val, sample_weight_val, clusters_val)
        with restore_on_failure(self), one_thread_if_small(X):
            self._validate_params()
            remover = JSE() if self.remover is None else clone(self.remover)
            head = GroupWeighted() if self.head is None else clone(self.head)
            if getattr(remover, "concept_type", None) == "continuous":
                raise InputError(
                    "The concept is a number (concept_type='continuous'), and the penalty of the head is chosen by "
                    "groups, which need classes. Fit the remover alone, and a head on the rows that it transforms; "
                    "the concept of the head is the number cut into classes."
                )
            missing = _missing_value(self, remover, head)
            for estimator in (remover, head):
                if "missing_concept" in estimator.get_params():
                    estimator.set_params(missing_concept=missing)
            data = decode_head_arguments(
                self, train, validation, missing, needs_concept=True, keep_unknown=head._infers_concept
            )
            data = _with_common_clusters(data, clusters, clusters_val)
            weighted = _has_positive_weight(data, sample_weight, sample_weight_val)
            if "X_val" not in inspect.signature(remover.fit).parameters:  # else the remover checks them
                _warn_about_validation_rows(data)
            rng = generator(self.random_state)
            data, remover, notes = self._fit_remover(_seeded(remover, rng), data)
            head = _seeded(head, rng)
            data = head._prepared(data)
            weighted = weighted[: len(data.train)]
            if left_out := int(np.sum(weighted & ~data.train.concept_known)):
                of_what = "" if data.train.inferred is None else " of the removal"
                left_out_note = f"{left_out:,} of {weighted.sum():,} rows have no concept and were left out{of_what}."
                notes = (*notes, left_out_note, *data.notes)
            selection = self._choose_head(head, data, remover, rng)
            head = selection.head
            if hasattr(self, "feature_names_in_"):
                remover.feature_names_in_ = head.feature_names_in_ = self.feature_names_in_
            self.remover_, self.selection_, self.head_ = remover, selection, head
            self.coef_, self.intercept_, self.classes_ = head.coef_, head.intercept_, data.classes
            self.notes_ = (*_empty_groups(data.train), *notes, *selection.notes)
        return self

    def _fit_remover(self, remover: Remover, data: HeadData) -> tuple[HeadData, Remover, tuple[str, ...]]:
        """The rows to fit the head on, the fitted remover, and notes for the reader."""
        remover, train, validation, notes = fit_or_pool(remover, data.train, data.validation)
        _require_something_left(remover)
        return replace(data, train=train, validation=validation), remover, notes

    def _choose_head(self, head: Head, data: HeadData, remover: Remover, rng: np.random.Generator) -> Selection:
        """The head with the best penalty, fitted on all rows; its coefficients are on rows before the removal."""
        removal, features_from = remover.removal_, copy(self)
        # Copies of a row must not be on both sides of a fold.
        train, validation = data.train, data.validation
        train = with_duplicates_as_clusters(head, train)
        if validation is not None and (head._holds_rows_out or head._trains_on_validation == "alone"):
            validation = with_duplicates_as_clusters(head, validation)
        variances = train.column_variances(balanced=head._balance != "rows", metric=head.metric)
        penalties = penalty_grid_from_variances(variances)
        sets = [rows for rows in (train, validation) if rows is not None]
        span, (X, X_val) = RowSpan.of(
            train.X, None if validation is None else validation.X, live=[rows.contributes for rows in sets]
        )
        inside = None if span is None else span.restrict_map(removal)
        if span is None or inside is None:
            span = None  # there is none, or the removal leaves it
        else:
            removal, features_from.n_features_in_ = inside, span.n_coordinates
            train = replace(train, X=X)
            validation = None if validation is None else replace(validation, X=X_val)
        if not head._is_single_regression:
            transform = remover._cleaned if span is None else removal
            train = replace(train, X=transform(train.X))
            validation = None if validation is None else replace(validation, X=transform(validation.X))
        else:
            train = train.with_removal(removal)
        validation_only = head._trains_on_validation == "alone" and validation is not None
        if validation_only:
            assert validation is not None
            train, validation = validation, None
        if validation is None:
            all_rows = train
        elif head._is_single_regression:
            all_rows = train.stacked(validation)
        else:
            together = pooled(train, validation)
            assert together is not None  # rows in files were refused
            all_rows = together
        data = replace(data, train=train, validation=validation)
        chosen = cross_validate_penalty(
            head, penalties, data, all_rows, features_from, self.cv, rng, validation_only=validation_only
        )
        best = chosen.head
        if not head._is_single_regression:
            best.coef_, best.intercept_ = removal.fold_into(best.coef_, best.intercept_)
        if span is not None:
            best.coef_ = span.lift(best.coef_)
            best.intercept_ = best.intercept_ - best.coef_ @ span.centre
            best.n_features_in_ = self.n_features_in_
        return chosen

    @property
    def removal_(self) -> AffineMap:
        """What `transform` applies."""
        return self.remover_.removal_

    def transform(self, X: Array) -> Array:
        """Rows with the concept removed, as `Remover.transform`."""
        check_is_fitted(self, "coef_")
        return output_of(self, self.remover_.transform(X))

    def certificate(
        self, X: Array, y: Array | None = None, concept: Array | None = None, **options: Any
    ) -> Certificate:
        """Measure the removal on rows that were not used in the fit, as `Remover.certificate`."""
        check_is_fitted(self, "coef_")
        return self.remover_.certificate(X, y, concept, **options)

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write removal and head to one safetensors file (no pickle); `unspur.load` reads it back."""
        check_is_fitted(self, "coef_")
        HEADS.require_saveable(self.head_)
        arrays, metadata = self.remover_._to_artifact()
        classifier = {
            "head": type(self.head_).__name__,
            "parameters": plain_parameters(self.head_),
            "classes": storable(list(self.classes_)),
            "table": [[tried["penalty"], loss] for tried, loss in self.selection_.results],
            "notes": list(self.notes_),
            "cv": int(self.cv),
            "random_state": plain_parameters(self).get("random_state"),
            "seeds": [_is_seeded(self.remover), _is_seeded(self.head)],
        }
        arrays = {**arrays, "coef": self.coef_, "intercept": self.intercept_}
        write_artifact(path, arrays, {**metadata, "classifier": classifier}, overwrite=overwrite)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32", "float16"]
        return tags

    @classmethod
    def _restore(cls, remover: Remover, arrays: dict[str, Array], metadata: dict[str, Any]) -> RobustClassifier:
        """The classifier that was saved with a remover."""
        if metadata["head"] not in HEADS:
            raise ValueError(
                f"its head is a {brief(repr(metadata['head']), 40)}; there are {', '.join(HEADS)}, and the package of "
                "another may not be installed"
            )
        classes, d = np.array(metadata["classes"]), remover.n_features_in_
        n_rows = 1 if len(classes) == 2 else len(classes)
        if arrays["coef"].shape != (n_rows, d) or arrays["intercept"].shape != (n_rows,):
            shapes = f"{arrays['coef'].shape} and {arrays['intercept'].shape}"
            raise ValueError(f"its head has shapes {shapes} for {len(classes)} classes and {d} features")
        head = HEADS[metadata["head"]](**metadata["parameters"])
        head._validate_params()
        given, made_head = clone(remover), clone(head)
        for part, seeded in zip((given, made_head), metadata["seeds"], strict=True):
            if seeded and "random_state" in part.get_params():
                part.set_params(random_state=None)  # the next fit draws it again
        made = cls(given, made_head, cv=metadata["cv"], random_state=metadata["random_state"])
        made.missing_concept = remover.get_params().get("missing_concept")
        made._validate_params()
        made.remover_, made.head_, made.notes_ = remover, head, tuple(metadata["notes"])
        for part in (made, head):
            part.coef_, part.intercept_, part.classes_ = arrays["coef"], arrays["intercept"], classes
            for name in ("n_features_in_", "feature_names_in_"):
                if hasattr(remover, name):
                    setattr(part, name, getattr(remover, name))
        table = tuple(({"penalty": float(penalty)}, float(loss)) for penalty, loss in metadata["table"])
        made.selection_ = Selection(head, {"penalty": head.penalty}, table)
        return made


def load(path: str | PathLike[str]) -> Remover | RobustClassifier:
    """Read a remover or a classifier that was saved with its `save` method.

    Raises ArtifactError for an inconsistent file. Safe for files from untrusted sources.
    """
    saved: Remover | RobustClassifier = read_saved(path, RobustClassifier._restore)
    return saved


def _seeded(estimator: E, rng: np.random.Generator) -> E:
    """The estimator, with a `random_state` from the generator if it takes one and has none."""
    if "random_state" in (parameters := estimator.get_params()) and parameters["random_state"] is None:
        estimator.set_params(random_state=int(rng.integers(2**31 - 1)))
    return estimator


def _is_seeded(given: BaseEstimator | None) -> bool:
    """Whether a remover or head, as it was given to the classifier, gets its `random_state` from it."""
    return given is None or given.get_params().get("random_state") is None


def _empty_groups(data: LabelledData) -> tuple[str, ...]:
    """A note on groups without rows, which JSE refuses; with several concepts most combinations may be empty."""
    empty = [data.group_name(int(number)) for number in np.flatnonzero(data.counts == 0)]
    if not empty or len(data.concepts) > 1:
        return ()
    names = ", ".join(f"({name})" for name in empty)
    labels = f"{data.main.name} and {data.concepts[0].name}"
    return (f"No training row has {labels} = {names}: without such rows, no data can tell the two labels apart.",)


def _missing_value(*estimators: BaseEstimator) -> Any:
    """The value that means "not known", given to the classifier, its remover or its head."""
    given = [value for one in estimators if (value := one.get_params().get("missing_concept")) is not None]
    if len({f"{type(value).__name__} {value!r}" for value in given}) > 1:  # NaN is not equal to itself
        named = ", ".join(f"{type(one).__name__} {one.get_params().get('missing_concept')!r}" for one in estimators)
        raise InputError(f"missing_concept differs: {named}. Pass it to the classifier alone.")
    return given[0] if given else None


def _with_common_clusters(data: HeadData, clusters: Any, clusters_val: Any) -> HeadData:
    """The rows with cluster codes that mean the same in both sets; InputError if the sets share a cluster."""
    if data.validation is None:
        return data
    clusters, clusters_val = to_host(clusters, clusters_val)
    require_disjoint_clusters(clusters, clusters_val, "val")  # here, where they have their names
    if clusters is None or clusters_val is None:
        return data
    n, m = len(data.train), len(data.validation)
    labels = cluster_labels(clusters, "clusters", n), cluster_labels(clusters_val, "clusters_val", m)
    together = np.concatenate([label.astype(object) for label in labels])
    codes = cluster_codes(together, "clusters", n + m)
    train, validation = replace(data.train, clusters=codes[:n]), replace(data.validation, clusters=codes[n:])
    return replace(data, train=train, validation=validation)


def _has_positive_weight(data: HeadData, sample_weight: Any, sample_weight_val: Any) -> BoolArray:
    """Whether rows were passed with a positive weight: the training rows, then the validation rows if there are any."""
    sets = [data.train] if data.validation is None else [data.train, data.validation]
    given = zip(sets, to_host(sample_weight, sample_weight_val), strict=False)
    return np.concatenate([checked_weights(weight, "sample_weight", len(rows)) for rows, weight in given]) > 0


def _require_something_left(remover: Remover) -> None:
    """Raise InputError if a removal leaves nothing of the rows that a head could be fitted on."""
    if remover._leaves_nothing:
        raise InputError(
            f"{type(remover).__name__} removes all directions in which the rows vary, so there is nothing left to fit "
            "a head on. Remove fewer concepts or classes, use rows with more features, or JSE, which keeps the "
            "directions of the task."
        )


def _warn_about_validation_rows(data: HeadData) -> None:
    """Warn of validation rows that are training rows, for a remover that does not take any."""
    if data.validation is None:
        return
    train, validation = data.train.X, data.validation.X
    if {backend_of(train), backend_of(validation)} <= {"memory", "torch"}:
        hashes = row_hashes(validation)
        reused = int(np.isin(hashes, row_hashes(train)).sum())
        if reused and has_continuous_columns(rows_on_host(validation, distinct_row_indices(hashes))):
            warn(
                f"{reused:,} of {len(validation):,} validation rows are training rows as well; a penalty that is "
                "chosen on them is too small. Leave them out of one of the two sets.",
                UsedRowsWarning,
            )
