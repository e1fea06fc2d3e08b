"""Iterative null-space projection: remove what a linear classifier finds, until it finds nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils._param_validation import StrOptions
from tqdm.auto import tqdm

from unspur._data import LabelledData, fit_arguments
from unspur._typing import Array
from unspur._validation import OPTIONAL_COUNT, TEST_CONSTRAINTS, generator
from unspur.criteria import SMALLEST_GROUP, DirectionTests
from unspur.labels import main_column
from unspur.removers.concepts import class_label_or_none, require_concept_differs_from_task
from unspur.removers.direction_remover import (
    BinaryFit,
    DirectionRemover,
    FitData,
    FoldedRows,
    Problem,
    assign_folds,
    fit_each_concept,
    reusable_cv,
)
from unspur.removers.joint import (
    EstimatedPair,
    FoldEstimates,
    LossAndError,
    SearchResult,
    choose_penalty,
    left_out_folds,
)
from unspur.rows import CONCEPT, backend_of
from unspur.solvers.coordinates import LogisticCoordinates
from unspur.solvers.held_out_losses import GroupLosses
from unspur.solvers.logistic import solve_logistic
from unspur.solvers.statistics import Balance
from unspur.subspace import AffineMap, Subspace
from unspur.trace import Step, Trace


class INLP(DirectionRemover):
    """Iterative null-space projection (Ravfogel et al., 2020), stopped by a test as in the JSE paper.

    A logistic regression predicts the concept from the remaining rows, and its direction is removed, until held-out
    rows are predicted no better than chance. It ignores the task, and removes what concept and task share.

    Parameters
    ----------
    significance_level : float, default=0.05
        Level of the one-sided test of each direction.
    tests : {"plain", "group"}, default="plain"
        Average losses over all rows alike against the prevalence of the concept (the paper's), or with equal weight
        over the groups (main, concept), for which y is needed. With more than two task classes, each class is tested
        against the rest in turn, and the directions accepted for any of them are removed.
    balance : {"none", "concept", "main", "group"}, default="none"
        Which classes get equal total weight when a direction is estimated.
    penalty : float or "auto", default="auto"
        Penalty in units of the mean variance of X; "auto" as in :class:`JSE`, for the first direction.
    max_directions : int or None, default=None
        Limit on the dimension removed, for each concept, or class (of concept or y) against the rest.
    smallest_group : int, default=10
        As in :class:`JSE`, for ``tests="group"``.
    cv : int, float, splitter or iterable of (train, test) index pairs, default=5
        As in :class:`JSE`; splits that do not train on all rows outside their test set are refused.
    missing_concept, strength, random_state, verbose :
        As in :class:`JSE`.

    Attributes
    ----------
    spurious_ : Subspace
        What is removed; `main_` is empty.
    removal_, trace_, classes_, concept_classes_, n_features_in_ :
        As in :class:`JSE`.
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 — scikit-learn's protocol
        **TEST_CONSTRAINTS,
        "tests": [StrOptions({"group", "plain"})],
        "max_directions": OPTIONAL_COUNT,
    }

    def __init__(
        self,
        *,
        significance_level: float = 0.05,
        tests: Literal["group", "plain"] = "plain",
        balance: Balance = "none",
        penalty: float | Literal["auto"] = "auto",
        max_directions: int | None = None,
        cv: Any = 5,
        smallest_group: int = SMALLEST_GROUP,
        missing_concept: Any = None,
        strength: float = 1.0,
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.significance_level = significance_level
        self.tests = tests
        self.balance = balance
        self.penalty = penalty
        self.max_directions = max_directions
        self.cv = cv
        self.smallest_group = smallest_group
        self.missing_concept = missing_concept
        self.strength = strength
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Array,
        y: Array | None = None,
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
        """Estimate what to remove; arguments are those of :meth:`JSE.fit`, and y is only needed for groups."""
        train = fit_arguments(X, y, concept, sample_weight, clusters)
        validation = fit_arguments(X_val, y_val, concept_val, sample_weight_val, clusters_val)
        with self._fitting(X):
            self._validate_params()
            needs_y = self.tests == "group" or self.balance in ("main", "group")
            if not needs_y:  # nothing depends on the task
                train["y"] = validation["y"] = None
            data = FitData.read(self, train, validation, needs_y=needs_y)
            if not needs_y:
                _require_concept_differs_from_task(data.train, y)
            inside, span = data.to_span_coordinates()
            found = fit_each_concept(inside, functools.partial(self._fit_binary, reusable_cv(self.cv)))
            removal = AffineMap.removing(found.spurious, found.centre)
            self._set_fitted(data, span, found.trace, removal, found.spurious, Subspace.empty(removal.ambient))
            self.warn_if_nothing_removed(self.max_directions)
        return self

    def _fit_binary(self, cv: Any, problem: Problem, excluded: Subspace, main_only: bool) -> BinaryFit:
        """Fit one binary concept, in groups with one binary task; INLP finds no main-task directions."""
        nothing = Subspace.empty(problem.train.X.shape[1])
        if main_only:
            return BinaryFit(SearchResult(nothing, nothing, (), ""), Trace((), "", 0.0, 0.0), np.zeros(nothing.ambient))
        data = assign_folds(
            problem,
            cv,
            generator(self.random_state),
            by_group=self.tests == "group",
            smallest_group=self.smallest_group,
            needs_y=problem.train.y is not None,
        )
        with tqdm(desc="INLP", unit=" directions", disable=not self.verbose) as bar:
            return self._search(data, bar.update, excluded)

    def _search(self, data: FoldedRows, progress: Callable[[], Any], excluded: Subspace) -> BinaryFit:
        """Remove one direction after the other until a test finds nothing left."""
        counts, geometry = data.counts, data.geometry(self.balance)
        tests = DirectionTests(float(self.significance_level), self.tests == "group", clusters=data.clusters)
        weightings = [counts.weighting(counts.without(fold), self.balance) for fold in left_out_folds(counts.n_folds)]
        removed = FoldEstimates.empty(data.rows.n_features, counts.n_folds)

        @functools.cache
        def whitening(penalty: float) -> LogisticCoordinates:
            return LogisticCoordinates.of(geometry, penalty)

        def estimate(penalty: float) -> EstimatedPair:
            """The concept's direction in every estimate, as the first of a pair."""
            subspaces, found = [excluded.beside(subspace) for subspace in removed.subspaces], []
            allowed = [whitening(penalty).excluding(subspace) for subspace in subspaces]
            fits = solve_logistic(data.rows, list(zip(weightings, allowed, strict=True)), CONCEPT)
            for fit, subspace in zip(fits, subspaces, strict=True):
                fit.outcome.warn_unless_converged()
                direction = subspace.reject(fit.weights)
                found.append(direction / max(np.linalg.norm(direction), np.finfo(np.float64).tiny))
            evaluations = max(fit.outcome.evaluations for fit in fits)  # all estimates share each pass over the rows
            return EstimatedPair(
                np.stack([found, np.zeros_like(found)]), replace(fits[0].outcome, evaluations=evaluations)
            )

        def losses(pair: EstimatedPair) -> GroupLosses:
            return tests.losses(data.rows, counts, pair.held_out_directions("spurious"), geometry.centre)

        def first_loss(value: float) -> LossAndError:
            found = tests.summarise(losses(estimate(value)), "concept")
            return found.mean, found.error

        scores: dict[float, LossAndError] = {}
        if self.penalty == "auto":
            penalty, scores = choose_penalty(first_loss, float(tests.chance_loss(counts)[CONCEPT]))
        else:
            penalty = float(self.penalty)
        steps: list[Step] = []
        n_free = geometry.rank - excluded.dim - 1
        limit = n_free if self.max_directions is None else min(self.max_directions, n_free)
        stopped = f"the limit of {limit} directions is reached"
        while removed.dim < limit:
            progress()
            pair = estimate(penalty)
            verdict = tests.informative("spurious", losses(pair), counts.keys)
            steps.append(Step(removed.dim + 1, 0, verdict, pair.outcome.evaluations, pair.outcome.reason))
            if not verdict.proper:
                stopped = f"the next direction {verdict.reason}"
                break
            removed = removed.with_directions(pair.directions[CONCEPT])
        found = SearchResult(removed.full_data, Subspace.empty(data.rows.n_features), tuple(steps), stopped)
        return BinaryFit(found, Trace(found.steps, stopped, 0.0, penalty, scores), geometry.centre)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags


def _require_concept_differs_from_task(data: LabelledData, y: Array | None) -> None:
    """Raise LabelError if the concept is the task, which the fit itself does not look at."""
    name, y = main_column(y)
    main = None if backend_of(y) == "dask" else class_label_or_none(y, name, len(data))  # not computed to be compared
    if main is None:
        return
    for label in data.concepts:
        require_concept_differs_from_task(
            {label.name: label.codes}, main, main.present & label.present & (data.weight > 0)
        )
