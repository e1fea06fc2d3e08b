"""Base classes of heads: checks, predictions, and weighted fits."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import assert_all_finite, check_is_fitted, column_or_1d

from unspur._arrays import by_rows, exact_products, is_tensor, to_device_like, to_numpy
from unspur._data import LabelledData, decode_fit_arguments, fit_arguments, require_complete
from unspur._resources import one_thread_if_small
from unspur._typing import Array, FloatArray, IntArray
from unspur._validation import (
    MISSING,
    check_rows,
    checked_weights,
    generator,
    require_finite,
    restore_on_failure,
)
from unspur.exceptions import LabelError
from unspur.labels import ClassLabel, class_label, require_no_missing
from unspur.removers.seen_rows import hash_finite_rows
from unspur.rows import backend_of, to_host
from unspur.solvers.coordinates import LogisticCoordinates, RowSpan
from unspur.solvers.logistic import (
    FitOutcome,
    HeldOutLogits,
    LinearModel,
    solve_softmax,
    solve_softmax_many,
)

#: Default penalty, in units of the mean variance of the rows: enough for separable classes to have a solution.
DEFAULT_PENALTY = 0.01


@dataclass(frozen=True, slots=True)
class HeadData:
    """Training and validation rows, and the classes behind the codes.

    With a `span`, rows are in its coordinates.
    `shared` caches what fits of one head with different penalties have in common: draws and reweighted rows, by name.
    `notes` are for the reader.
    """

    train: LabelledData
    validation: LabelledData | None
    classes: Array
    concept_classes: tuple[Any, ...] | None
    span: RowSpan | None = None
    notes: tuple[str, ...] = ()
    shared: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def cached(self, name: Any, make: Callable[[], Any]) -> Any:
        """The result of the first call of `make` under this name."""
        if name not in self.shared:
            self.shared[name] = make()
        return self.shared[name]

    def in_span_coordinates(self, head: Head) -> HeadData:
        """Wide rows in coordinates of the span of those that a head is trained on."""
        train, validation = self.train, self.validation
        if train.removal is not None or train.stacked_sets:
            return self
        sets = [train] if validation is None or not head._trains_on_validation else [train, validation]
        span, inside = RowSpan.of(*(rows.X for rows in sets), live=[rows.contributes for rows in sets])
        if span is None:
            return self
        if validation is not None:
            validation = replace(validation, X=inside[1] if len(sets) == 2 else span.coordinates(validation.X))
        return replace(self, train=replace(train, X=inside[0]), validation=validation, span=span)


def decode_head_arguments(
    estimator: BaseEstimator,
    train: dict[str, Any],
    validation: dict[str, Any],
    missing: Any,
    *,
    needs_concept: bool,
    keep_unknown: bool = False,
) -> HeadData:
    """Check and decode arguments of `fit`: X, y, concept, sample_weight and clusters of either set.

    Without `needs_concept` the concept of the training rows is ignored, and groups are the classes of y. That of a
    validation set is read if it is passed. Training rows without a concept get weight zero, unless `keep_unknown`.
    """
    train = {**train, "y": _one_column(train["y"], "y")}
    decoded = decode_fit_arguments(estimator, **train, missing=missing, needs_concept=needs_concept)
    rows = decoded.with_labels()
    rows.require_classes("with a positive weight" + (" and a known concept" if needs_concept else ""))
    if keep_unknown:
        rows = decoded
    y = train["y"].values if isinstance(train["y"], ClassLabel) else train["y"]
    given = np.asarray(y)
    numbers_or_text = given.dtype.kind in "biufU"
    classes = np.array(rows.main.classes, dtype=given.dtype) if numbers_or_text else np.array(rows.main.classes)
    if given.dtype.kind == "O" and classes.dtype.kind not in "biuf":  # numbers in a column of objects are numbers
        classes = np.array(rows.main.classes, dtype=object)
    known = rows.concept.classes if needs_concept else None
    if all(value is None for value in validation.values()):
        return HeadData(rows, None, classes, known)
    require_complete(validation, ("X", "y", "concept") if needs_concept else ("X", "y"))
    validation = {**validation, "y": _one_column(validation["y"], "y_val")}
    held_out = decode_fit_arguments(estimator, **validation, missing=missing, like=rows, needs_concept=needs_concept)
    return HeadData(rows, held_out.with_labels(), classes, known)


def with_duplicates_as_clusters(head: Head, rows: LabelledData) -> LabelledData:
    """The rows with copies of a row as clusters, so that a split keeps them together; given clusters stay."""
    if rows.clusters is not None:
        return rows
    return rows.with_duplicate_clusters(hash_finite_rows(head, rows.X)[0])


def _one_column(y: Any, name: str) -> Any:
    """The task on the host, as one column; raises for infinite values."""
    if isinstance(y, ClassLabel):
        return y
    y = to_host(y)[0]
    if getattr(y, "ndim", 1) != 1:
        y = column_or_1d(y, warn=True)
    if getattr(y, "dtype", np.dtype(object)).kind == "f":
        assert_all_finite(y, allow_nan=True, input_name=name)
    return y


#: Description of `metric`.
_METRIC_DOC = """metric : float between 0 and 1, default=0.0
        Weight κ of the covariance in the metric of the penalty, ``λ/2 wᵀMw`` with ``M ∝ (1 − κ) tr(Σ)/r I + κ Σ``: the
        M of `JSE`, with Σ the covariance of the rows that are trained on, under sample weights alone, and r its rank.
        With κ = 0 the penalty is on weights (ridge). With κ = 1 it is on the variance of the scores, so that invertible
        linear maps of the features change nothing. The head is a ridge on rows x M^(−1/2), and M has the scale in which
        their mean variance is that of the rows x. Weights stay in the span of the rows, where M is invertible."""
#: Replacements of placeholders in the docstrings of heads.
_SHARED_DOCS = {
    "{metric}": _METRIC_DOC,
    "{shared_parameters}": f"""penalty : float, default=0.01
        Penalty λ in units of the mean variance of the training rows. This is their total variance divided by the number
        of directions in which they vary (at most n − 1 for n rows). Rotations and constant columns therefore change
        nothing.
    {_METRIC_DOC}
    missing_concept : scalar or None, default=None
        Value of `concept` that means "not known", besides NaN and None.
    tol : float, default=1e-6
        Relative gradient norm at which the solver stops.
    max_iter : int, default=1000
        Most iterations of the solver.
    random_state : int, RandomState or None, default=None
        Seed for what is drawn at random.""",
    "{shared_attributes}": """coef_, intercept_ : arrays of shape (k, d) and (k,)
        k = 1 for two classes, else one row per class.
    classes_ : array
        Classes of y, in their order.
    outcome_ : FitOutcome
        Whether the solver converged, why it stopped, and what it cost.
    n_iter_ : int
        Number of objective evaluations (not iterations).""",
}


class LinearClassifier(ClassifierMixin, BaseEstimator):
    """A classifier with linear logits ``x coefᵀ + intercept``, for rows of every backend."""

    classes_: Array
    coef_: FloatArray
    intercept_: FloatArray

    def decision_function(self, X: Array) -> Array:
        """Logits: shape (n,) for two classes, positive for the second; else (n, n_classes).

        Logits and probabilities of a tensor are tensors on its device, in float32 for half precision; `predict` gives
        classes, which need not be numbers, as a NumPy array. A CUDA array of another library gives one of that library.

        A Dask array gives lazy Dask arrays, computed chunk by chunk by the head as it is now. Values that are not
        finite are refused during that computation.
        """
        n_logits = len(self._check_fitted().coef_)
        return self._map_logits(X, _unchanged, None if n_logits == 1 else n_logits)

    def _check_fitted(self) -> Self:
        check_is_fitted(self, "coef_")
        return self

    def _map_logits(self, X: Array, of_logits: Callable[[Array], Array], width: int | None, kind: Any = float) -> Array:
        """A function of the logits, of shape (n, width), or (n,) for None; `kind` is its type for Dask."""
        z = check_rows(self._check_fitted(), X, reset=False)
        if backend_of(z) == "dask":
            from unspur.rows.dask import map_logits

            # A copy, since this head may be fitted again before the result is computed.
            return map_logits(z, partial(_of_logits, copy.copy(self), of_logits), width, np.dtype(kind))
        return of_logits(self._logits(z))

    def _logits(self, z: Array) -> Array:
        """Logits of rows on the host or on a device, shape (n,) or (n, n_classes)."""
        require_finite(self, z)
        if is_tensor(z):
            z = z.detach()
            wide = z[:0].float().dtype if z.dtype.itemsize < 4 else z.dtype
            out = z.new_empty((len(z), len(self.coef_)), dtype=wide)
            with exact_products(z):
                logits = by_rows(
                    lambda rows: rows @ to_device_like(self.coef_.T, rows) + to_device_like(self.intercept_, rows),
                    z,
                    out,
                )
        else:
            logits = np.asarray(z @ self.coef_.T + self.intercept_)
        return logits[:, 0] if len(self.coef_) == 1 else logits

    def score(self, X: Array, y: Array, sample_weight: Array | None = None) -> float:
        """Accuracy of `predict`; rows of classes that the fit has not seen count as wrong."""
        guess, y, weight = to_host(self.predict(X), y, sample_weight)
        truth, known = class_label(y, "y", len(guess), min_classes=1), self.classes_.tolist()
        require_no_missing(truth, ())
        if isinstance(truth.classes[0], str) != isinstance(known[0], str):
            raise LabelError(f"y has values such as {truth.classes[0]!r}; the classes of the fit are {known}.")
        weights = checked_weights(weight, "sample_weight", len(guess))
        return float(np.average(truth.values == guess, weights=weights))

    def predict(self, X: Array) -> Array:
        """Most likely class of each row, shape (n,)."""
        classes = self._check_fitted().classes_
        return self._map_logits(X, partial(_likeliest, classes), None, classes.dtype)

    def predict_proba(self, X: Array) -> Array:
        """Probabilities of the classes in the order of `classes_`, shape (n, n_classes)."""
        return self._map_logits(X, _probabilities, len(self._check_fitted().classes_))

    def predict_log_proba(self, X: Array) -> Array:
        """Logarithm of `predict_proba`, finite even where that is zero, shape (n, n_classes)."""
        return self._map_logits(X, _log_probabilities, len(self._check_fitted().classes_))


class Head(LinearClassifier):
    """Base of the heads: linear logits ``x coefᵀ + intercept`` for a task of two or more classes.

    A subclass that is a single weighted regression sets `_balance`; others implement ``_train(data, rng)``, which
    returns the fitted `LinearModel`. Class flags say what it needs, and have comments below: `_needs_concept`,
    `_uses_concept_val`, `_trains_on_validation`, `_holds_rows_out` and `_infers_concept`. It is registered by one line
    in ``_registry.py``, or by an entry point of another package. A grid of its own goes to `unspur.selection.GRIDS`.
    """

    # Arguments of `fit` are routed through pipelines and searches without a request for each. Validation rows are not:
    # a pipeline would pass them untransformed, with the concept in them. `set_fit_request(X_val=True, …)` requests
    # them, and `Pipeline(transform_input=["X_val"])` transforms them.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {
        "concept": True,
        "sample_weight": True,
        "clusters": True,
        "X_val": False,
        "y_val": False,
        "concept_val": False,
        "sample_weight_val": False,
    }
    #: Whether training rows need a concept. If not, it is ignored, and their groups are the classes of y.
    _needs_concept: ClassVar[bool] = True
    #: Whether the concept of validation rows is used.
    _uses_concept_val: ClassVar[bool] = True
    #: Whether the head is trained on validation rows, if there are any, besides the training rows or "alone".
    _trains_on_validation: ClassVar[Literal["alone", "besides"] | None] = None
    #: Whether a fit without validation rows holds some of its rows out.
    _holds_rows_out: ClassVar[bool] = False
    #: Whether training rows without a concept take part, with an inferred one.
    _infers_concept: ClassVar[bool] = False
    #: For a head that is a single weighted regression: whether rows or groups have equal weight. None for others.
    _balance: Literal["rows", "groups"] | None = None
    #: For heads of other packages that have no such parameter.
    metric: float = 0.0

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "penalty": [Interval(Real, 0, None, closed="left")],
        "metric": [Interval(Real, 0, 1, closed="both")],
        "missing_concept": MISSING,
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    concept_classes_: tuple[Any, ...]
    outcome_: FitOutcome
    n_iter_: int

    def __init__(
        self,
        *,
        penalty: float = DEFAULT_PENALTY,
        metric: float = 0.0,
        missing_concept: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        random_state: Any = None,
    ):
        self.penalty = penalty
        self.metric = metric
        self.missing_concept = missing_concept
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    @property
    def _is_single_regression(self) -> bool:
        """Whether the solution is that of one weighted regression.

        Such a head is solved after a removal without transformed rows (`LabelledData.removal`), and in all folds side
        by side.
        """
        return self._balance is not None

    def _training_view(self, rows: LabelledData) -> LabelledData:
        """The rows as the head sees them: with inferred groups, or without a concept if it needs none."""
        return rows.with_inferred_groups() if self._needs_concept else rows.without_concept()

    def _prepared(self, data: HeadData) -> HeadData:
        """The rows for a head that holds some out itself: with inferred concepts, and copies of a row kept together."""
        if data.validation is not None or not self._holds_rows_out:
            return data
        return replace(data, train=with_duplicates_as_clusters(self, data.train))

    def __init_subclass__(cls, **options: Any) -> None:
        """Fill in the shared parts of the docstring."""
        super().__init_subclass__(**options)
        for placeholder, text in _SHARED_DOCS.items():
            cls.__doc__ = cls.__doc__ and cls.__doc__.replace(placeholder, text)

    def fit(
        self,
        X: Array,
        y: Array,
        *,
        concept: Array | None = None,
        sample_weight: Array | None = None,
        X_val: Array | None = None,
        y_val: Array | None = None,
        concept_val: Array | None = None,
        sample_weight_val: Array | None = None,
        clusters: Array | None = None,
    ) -> Self:
        """Train the head.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Embeddings: an array or DataFrame, a memory map, a torch tensor on any device, or a Dask array. They stay
            where they are.
        y : array of shape (n,)
            Main-task label, two or more classes.
        concept : array of shape (n,)
            Label of the concept, two or more classes; rows where it is missing are left out of the fit. ERM, JTT, AFR
            and ``DFR(balance="main")`` ignore it, and need none.
        sample_weight : array of shape (n,), optional
        X_val, y_val, concept_val, sample_weight_val : arrays, optional
            Held-out rows, if the method uses them; else rows of X are held out.
        clusters : array of shape (n,), optional
            Rows that belong together (frames of one film), which are held out together.

        A fit that fails leaves the estimator as it was.
        """
        if not self._needs_concept:
            concept = None
        elif concept is None:
            name = type(self).__name__
            raise LabelError(f"concept is missing: {name} weighs groups by it. Write {name}().fit(X, y, concept=...).")
        concept_val = concept_val if self._uses_concept_val else None
        train = fit_arguments(X, y, concept, sample_weight, clusters)
        validation = fit_arguments(X_val, y_val, concept_val, sample_weight_val)
        with restore_on_failure(self), one_thread_if_small(X):
            self._validate_params()
            self._fit_decoded(self._decoded(self, train, validation).in_span_coordinates(self))
        return self

    def _decoded(self, estimator: BaseEstimator, train: dict[str, Any], validation: dict[str, Any]) -> HeadData:
        """The rows of a fit, checked for an estimator that will know their features."""
        needs, keeps = self._needs_concept, self._infers_concept
        data = decode_head_arguments(
            estimator, train, validation, self.missing_concept, needs_concept=needs, keep_unknown=keeps
        )
        return self._prepared(data)

    def _fit_decoded(self, data: HeadData) -> None:
        self._set_fitted_attributes(self._train(data, generator(self.random_state)), data)

    def _set_fitted_attributes(self, model: LinearModel, data: HeadData) -> None:
        """Set the attributes of a fit."""
        self.classes_ = data.classes
        if data.concept_classes is not None:
            self.concept_classes_ = data.concept_classes
        weights, intercepts = model.weights, model.intercepts_uncentred
        if data.span is not None:
            weights = data.span.lift(weights)
            intercepts = intercepts - weights @ data.span.centre
        self.coef_, self.intercept_ = weights, intercepts
        self.outcome_, self.n_iter_ = model.outcome, model.outcome.evaluations
        model.outcome.warn_unless_converged()

    def _train(self, data: HeadData, rng: np.random.Generator) -> LinearModel:
        """Train on `data.train` (and `data.validation`, if rows were passed) and return the model.

        Here the single regression with this `_balance`; other heads override this.

        `LabelledData` has groups and their weights (`group`, `group_weights`, `weighting`), a held-out share (`split`),
        groups of equal size (`subsample_groups`) and the same rows with other weights (`reweighted`). `data.cached`
        keeps what all penalties of a path share. `_regression` solves a weighted logistic regression.
        """
        del rng
        if self._balance is None:
            raise NotImplementedError(f"{type(self).__name__} needs _balance or a _train of its own.")
        return self._regression(data.train, balanced=self._balance == "groups")

    def _regression(
        self,
        rows: LabelledData,
        *,
        balanced: bool = False,
        penalty: float | None = None,
        origin: LinearModel | None = None,
    ) -> LinearModel:
        """Logistic regression of reweighted rows; a penalty other than that of the head may be given.

        `origin` is as in `solve_softmax`.
        """
        penalty = self.penalty if penalty is None else penalty
        source, weighting = rows.source(), rows.weighting(balanced=balanced)
        geometry = rows.geometry(source, balanced=balanced, metric=self.metric)
        whitening = LogisticCoordinates.of(geometry, penalty)
        return solve_softmax(
            source, weighting, whitening, rows.n_classes, origin=origin, tol=self.tol, max_iter=self.max_iter
        )


def fit_path(
    head: Head,
    settings: Sequence[Mapping[str, Any]],
    X: Array,
    y: Array,
    *,
    concept: Array | None = None,
    sample_weight: Array | None = None,
    clusters: Array | None = None,
) -> list[Head]:
    """Copies of a head, each fitted with one of these settings, as `fit` would.

    Checks, draws, and second moments of the rows, which cost most with many features, are computed once.
    """
    features_from = clone(head)
    concept = concept if head._needs_concept else None
    train = fit_arguments(X, y, concept, sample_weight, clusters)
    data = head._decoded(features_from, train, {})
    return fit_decoded_path(head, settings, data, features_from)


def fit_decoded_path(
    head: Head, settings: Sequence[Mapping[str, Any]], data: HeadData, features_from: BaseEstimator
) -> list[Head]:
    """`fit_path` on decoded rows; `features_from` is the estimator that has validated them."""
    fitted: list[Head] = []
    data = data.in_span_coordinates(head)
    for parameters in settings:
        one = clone(head).set_params(**parameters)
        one._validate_params()
        vars(one).update(_known_features(features_from))
        one._fit_decoded(data)
        fitted.append(one)
    return fitted


def fit_folds(
    head: Head,
    penalties: Sequence[float],
    data: HeadData,
    features_from: BaseEstimator,
    fold: IntArray | None,
    n_folds: int,
    *,
    validation_only: bool = False,
) -> list[list[Head]]:
    """For each fold (n,) of the training rows, a list of heads with each penalty, fitted without it.

    Without folds there is one list, of heads fitted on all training rows. Penalties are in units of all rows. With
    `validation_only` the training rows go to the head as its validation rows too, which DFR is trained on. Heads that
    are one regression are fitted side by side, in as many passes over the rows as the slowest needs.
    """
    rows = data.train
    if not head._is_single_regression:
        parts = [rows] if fold is None else [rows.fold_subset((fold >= 0) & (fold != k)) for k in range(n_folds)]
        settings = [{"penalty": penalty} for penalty in penalties]
        sets = [replace(data, train=part, validation=part if validation_only else None) for part in parts]
        return [fit_decoded_path(head, settings, one, features_from) for one in sets]
    source = rows.source()
    balanced = head._balance == "groups"
    geometry = rows.geometry(source, balanced=balanced, metric=head.metric)
    weightings = [rows.weighting(balanced=balanced)]
    if fold is not None:
        source = rows.folded_source(fold, n_folds)
        weightings = rows.weightings_without_folds(fold, n_folds, balanced=balanced)
    problems = [(weighting, float(penalty)) for weighting in weightings for penalty in penalties]
    models = solve_softmax_many(source, geometry, problems, rows.n_classes, tol=head.tol, max_iter=head.max_iter)
    heads = []
    for (_, penalty), model in zip(problems, models, strict=True):
        one = clone(head).set_params(penalty=penalty)
        vars(one).update(_known_features(features_from))
        one._set_fitted_attributes(model, data)
        heads.append(one)
    return [heads[k : k + len(penalties)] for k in range(0, len(heads), len(penalties))]


def held_out_logits(heads: Sequence[Sequence[Head]], rows: LabelledData, fold: IntArray) -> FloatArray:
    """Logits of each row by the heads that were fitted without its fold, shape (heads of a fold, n, k), in one pass."""
    n_folds, number, k = len(heads), len(heads[0]), len(heads[0][0].coef_)
    weights = np.stack([np.concatenate([head.coef_ for head in own]) for own in heads])
    intercepts = np.stack([np.concatenate([head.intercept_ for head in own]) for own in heads])
    rows = rows.without_concept().reweighted(np.ones(len(rows)))  # all of them, whatever is known
    source = rows.folded_source(fold, n_folds)
    found = np.concatenate(to_host(*source.sum(HeldOutLogits(weights, intercepts, rows.n_groups))))
    return np.asarray(found.reshape(len(rows), number, k).transpose(1, 0, 2))


def _known_features(estimator: Any) -> dict[str, Any]:
    """What an estimator knows of the features of rows it has validated."""
    known = ("n_features_in_", "feature_names_in_")
    return {name: value for name, value in vars(estimator).items() if name in known}


def _of_logits(head: LinearClassifier, of_logits: Callable[[Array], Array], rows: Array) -> Array:
    return of_logits(head._logits(rows))


def _unchanged(logits: Array) -> Array:
    return logits


def _likeliest(classes: Array, logits: Array) -> Array:
    logits = to_numpy(logits)
    return classes[(logits > 0).astype(np.intp) if logits.ndim == 1 else logits.argmax(axis=1)]


def _probabilities(logits: Array) -> Array:
    logits = _one_per_class(logits)
    return logits.softmax(1) if is_tensor(logits) else softmax(logits, axis=1)


def _log_probabilities(logits: Array) -> Array:
    logits = _one_per_class(logits)
    return logits.log_softmax(1) if is_tensor(logits) else log_softmax(logits, axis=1)


def _one_per_class(logits: Array) -> Array:
    """Logits with one column per class; the first of two is zero."""
    return logits if logits.ndim == 2 else logits[:, None] * to_device_like(np.array([0.0, 1.0]), logits)
