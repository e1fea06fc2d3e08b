"""Iterative null-space projection: remove what a linear classifier finds, until it finds nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self, cast

import numpy as np
from sklearn.utils import check_random_state
from tqdm.auto import tqdm

from unspur._typing import Array, FloatArray
from unspur.criteria import SMALLEST_GROUP, DirectionTests
from unspur.removers.base import Remover
from unspur.removers.inputs import LabelledRows, Sample, Splitting, labelled_rows
from unspur.removers.joint import EstimatedPair, Subspaces, Tracks
from unspur.removers.parameters import LIMIT, REQUESTED, TESTED, named_after_y
from unspur.removers.several import one_after_the_other
from unspur.removers.weight_decay import choose_weight_decay
from unspur.rows import CONCEPT
from unspur.solvers.logistic import solve_logistic
from unspur.solvers.outcome import Outcome
from unspur.solvers.sgd import SGDSettings, solve_logistic_by_sgd
from unspur.solvers.statistics import Balance
from unspur.solvers.whitening import Geometry, Whitening
from unspur.subspace import AffineMap, Subspace
from unspur.trace import Step, Trace, Traces


class INLP(Remover):
    """Iterative null-space projection (Ravfogel et al., 2020), stopped by a test as in the JSE paper.

    A logistic regression predicts the concept inside what is left of the rows; its direction is removed; again, until
    held-out rows are not predicted better than chance. It knows no task, and removes what the two share.

    Parameters
    ----------
    significance_level : float, default=0.05
        Level of the one-sided test of each direction.
    tests : {"plain", "group"}, default="plain"
        Average losses over all rows alike against the prevalence of the concept (the paper's), or with equal weight
        over the groups (main, concept), for which y is needed. Of a task of more than two classes each is taken
        against the rest, one after the other, and what any of them shows is removed.
    balance : {"none", "concept", "main", "group"}, default="none"
        Which classes get equal total weight when a direction is estimated.
    weight_decay : float or "auto", default="auto"
        Penalty in units of the mean variance of Z; "auto" as in :class:`JSE`, for the first direction.
    solver : {"exact", "sgd"}, default="exact"
        Solve each direction to `tol`, or by the paper's minibatch SGD with early stopping (decay is then absolute).
    max_directions : int or None, default=None
        Limit on the dimension removed, for each concept, or class (of concept or y) against the rest.
    learning_rate, momentum, batch_size, max_epochs, patience :
        Settings of ``solver="sgd"``.
    smallest_group : int, default=10
        As in :class:`JSE`, for ``tests="group"``.
    cv, validation_fraction, scalars, missing_concept, tol, max_iter, random_state, verbose :
        As in :class:`JSE`.

    Attributes
    ----------
    spurious_ : Subspace
        What is removed; `main_` is empty.
    removal_, trace_, classes_, concept_classes_, n_features_in_ :
        As in :class:`JSE`.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = REQUESTED
    story = Trace
    trace_: Trace | Traces
    _centre: FloatArray

    _parameter_constraints: dict[str, list[Any]] = {**TESTED, "max_directions": LIMIT}  # noqa: RUF012

    def __init__(
        self,
        *,
        significance_level: float = 0.05,
        tests: str = "plain",
        balance: str = "none",
        weight_decay: Any = "auto",
        solver: str = "exact",
        max_directions: int | None = None,
        cv: Any = 5,
        validation_fraction: float = 0.2,
        smallest_group: int = SMALLEST_GROUP,
        scalars: str = "held_out",
        missing_concept: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        learning_rate: float = 1e-2,
        momentum: float = 0.9,
        batch_size: int = 128,
        max_epochs: int = 50,
        patience: int = 5,
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.significance_level = significance_level
        self.tests = tests
        self.balance = balance
        self.weight_decay = weight_decay
        self.solver = solver
        self.max_directions = max_directions
        self.cv = cv
        self.validation_fraction = validation_fraction
        self.smallest_group = smallest_group
        self.scalars = scalars
        self.missing_concept = missing_concept
        self.tol = tol
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.random_state = random_state
        self.verbose = verbose

    @named_after_y
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
        validation = Sample(X_val, y_val, concept_val, sample_weight_val, "_val", clusters_val)
        with self._all_or_nothing():
            self._validate_params()
            if self.tests == "plain" and self.balance in ("none", "concept"):  # nothing depends on the task
                y, validation = None, replace(validation, y=None)
            train = Sample(X, y, concept, sample_weight, clusters=clusters)
            fit_binary = partial(self._fit_binary, Splitting.lasting(self.cv))
            one_after_the_other(self, train, None if validation.empty else validation, fit_binary)
            self.classes_ = self.classes_ if y is not None else ()
            self.n_iter_ = self.trace_.most_evaluations
            self.removal_ = AffineMap.removing(self.spurious_, self._centre)
            del self._centre
            self.warn_if_nothing_removed(self.max_directions)
        return self

    def _fit_binary(
        self, cv: Any, train: Sample, validation: Sample | None, gone: Subspace | None, main_only: bool
    ) -> tuple[Subspaces, Trace, Any]:
        """What is found of one binary concept, in groups with one binary main label; that alone needs no directions."""
        nothing = Subspace.empty(self.n_features_in_)
        if main_only:
            return Subspaces(nothing, nothing, (), ""), Trace((), "", 0.0, 0.0), None
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1, size=4))
        data = labelled_rows(
            self,
            train,
            validation,
            Splitting(cv, self.validation_fraction, rng),
            self.missing_concept,
            by_group=self.tests == "group",
            smallest_group=self.smallest_group,
            needs_y=self.tests == "group" or self.balance in ("main", "group"),
        )
        with tqdm(desc="INLP", unit=" directions", disable=not self.verbose) as bar:
            return *self._peel(data, bar.update, gone or nothing, rng), data

    def _direction(
        self, data: LabelledRows, whitening: Whitening, away_from: Subspace, fold: int | None, rng: np.random.Generator
    ) -> tuple[FloatArray, Outcome]:
        """Weights (d,) that predict the concept, without the rows of one fold and away from a subspace."""
        counts, balance = data.counts, cast(Balance, self.balance)
        if self.solver == "exact":
            weighting = counts.weighting(counts.without(fold), balance)
            allowed = whitening.away_from(away_from)
            fit = solve_logistic(data.rows, weighting, allowed, CONCEPT, tol=self.tol, max_iter=self.max_iter)
            return fit.weights, fit.outcome
        watched = fold or 1
        train, held_out = (counts.weighting(mask, balance) for mask in (counts.without(watched), counts.only(watched)))
        settings = SGDSettings(
            self.learning_rate, self.momentum, whitening.decay, self.batch_size, self.max_epochs, self.patience
        )
        centre = whitening.geometry.centre
        weights, _, outcome = solve_logistic_by_sgd(
            data.rows, train, held_out, centre, away_from, settings, rng, CONCEPT
        )
        return weights, outcome

    def _whitening(self, geometry: Geometry, weight_decay: float) -> Whitening:
        """Coordinates at a decay in units of the mean variance; SGD takes it as it is."""
        return Whitening.of(geometry, weight_decay if self.solver == "exact" else weight_decay / geometry.mean_variance)

    def _peel(
        self, data: LabelledRows, report: Callable[[], Any], gone: Subspace, rng: np.random.Generator
    ) -> tuple[Subspaces, Trace]:
        counts = data.counts
        estimated_on = counts.weighting(counts.without(1 if counts.n_folds == 1 else None), self.balance)  # type: ignore[arg-type]
        geometry = Geometry.of_rows(data.rows, estimated_on)
        by_group = self.tests == "group"
        tests = DirectionTests(self.significance_level, by_group, 0.0, self.scalars, clusters=data.clusters)  # type: ignore[arg-type]
        nothing = Tracks.empty(data.rows.n_features, counts.n_folds)

        def estimate(whitening: Whitening, away_from: Tracks) -> EstimatedPair:
            """The concept's direction in every track, in the place of a pair's first."""
            found, outcomes = [], []
            for k, removed in enumerate(away_from.subspaces):
                subspace = gone.beside(removed)
                fold = 1 if counts.n_folds == 1 else (k or None)
                weights, outcome = self._direction(data, whitening, subspace, fold, rng)
                outcome.warn_unless_converged()
                direction = subspace.reject(weights)
                found.append(direction / max(np.linalg.norm(direction), np.finfo(np.float64).tiny))
                outcomes.append(outcome)
            spent = sum(outcome.evaluations for outcome in outcomes)
            first: Outcome = outcomes[0]
            return EstimatedPair(
                np.stack([found, np.zeros_like(found)]),
                Outcome(first.converged, first.reason, first.objective, first.gradient, spent),
            )

        def losses(pair: EstimatedPair) -> Any:
            return tests.losses(data.rows, counts, pair.judged("spurious"), geometry.centre)

        def held_out(value: float) -> tuple[float, float]:
            """Held-out loss of the concept at a weight decay, and its error."""
            found = tests.summarise(losses(estimate(self._whitening(geometry, value), nothing)), "concept")
            return found.mean, found.error

        decay = self.weight_decay
        scores: dict[float, tuple[float, float]] = {}
        if decay == "auto":
            decay, scores = choose_weight_decay(held_out, float(tests.chance_loss(counts)[CONCEPT]))
        whitening, removed, steps = self._whitening(geometry, float(decay)), nothing, []
        room = geometry.rank - gone.dim - 1
        limit = room if self.max_directions is None else min(self.max_directions, room)
        stopped = f"the limit of {limit} directions is reached"
        while removed.dim < limit:
            report()
            pair = estimate(whitening, removed)
            verdict = tests.informative("spurious", losses(pair), counts.names)
            steps.append(Step(removed.dim + 1, 0, verdict, pair.outcome.evaluations, pair.outcome.reason))
            if not verdict.proper:
                stopped = f"the next direction {verdict.reason}"
                break
            removed = removed.with_directions(pair.directions[CONCEPT])
        if not hasattr(self, "_centre"):
            self._centre = geometry.centre
        found = Subspaces(removed.returned, Subspace.empty(data.rows.n_features), tuple(steps), stopped)
        return found, Trace(found.steps, stopped, 0.0, float(decay), scores)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags
