"""Iterative null-space projection: remove what a linear classifier finds, until it finds nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from tqdm.auto import tqdm

from unspur._parameters import LIMIT, REQUESTED, TESTED, named_after_y, sgd_settings
from unspur._typing import Array, FloatArray
from unspur.criteria import SMALLEST_GROUP, DirectionTests
from unspur.options import SGD
from unspur.removers.base import Remover
from unspur.removers.folds import FoldedRows, HeldOutSplitter, Problem, assign_folds
from unspur.removers.joint import EstimatedPair, Subspaces, Tracks
from unspur.removers.multiclass import BinaryFit, FitData, fit_each_concept
from unspur.removers.weight_decay import choose_weight_decay
from unspur.rows import CONCEPT
from unspur.solvers.logistic import solve_logistic
from unspur.solvers.outcome import Outcome
from unspur.solvers.sgd import solve_logistic_by_sgd
from unspur.solvers.statistics import Balance
from unspur.solvers.whitening import Geometry, Whitening
from unspur.subspace import AffineMap, Subspace
from unspur.trace import Step, Trace, Traces


class INLP(Remover):
    """Iterative null-space projection (Ravfogel et al., 2020), stopped by a test as in the JSE paper.

    A logistic regression predicts the concept inside what is left of the rows; its direction is removed; repeat until
    held-out rows are predicted no better than chance. It ignores the task, and removes what the two share.

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
    solver : "exact", "sgd" or SGD, default="exact"
        Solve each direction to `tol`, or by the paper's minibatch SGD (decay is then absolute).
    max_directions : int or None, default=None
        Limit on the dimension removed, for each concept, or class (of concept or y) against the rest.
    smallest_group : int, default=10
        As in :class:`JSE`, for ``tests="group"``.
    scalars : {"held_out", "training"}, default="held_out"
        As in :class:`~unspur.PaperVariant`.
    cv : int, float, splitter or iterable of (train, test) index pairs, default=5
        As in :class:`JSE`; splits that do not train on all rows outside their test set are refused.
    missing_concept, tol, max_iter, random_state, verbose :
        As in :class:`JSE`.

    Attributes
    ----------
    spurious_ : Subspace
        What is removed; `main_` is empty.
    removal_, trace_, classes_, concept_classes_, n_features_in_ :
        As in :class:`JSE`.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = REQUESTED
    trace_type = Trace
    trace_: Trace | Traces

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 — scikit-learn's protocol
        **TESTED,
        "tests": [StrOptions({"group", "plain"})],
        "scalars": [StrOptions({"held_out", "training"})],
        "max_directions": LIMIT,
    }

    def __init__(
        self,
        *,
        significance_level: float = 0.05,
        tests: Literal["group", "plain"] = "plain",
        balance: Balance = "none",
        weight_decay: float | Literal["auto"] = "auto",
        solver: Literal["exact", "sgd"] | SGD = "exact",
        max_directions: int | None = None,
        cv: Any = 5,
        smallest_group: int = SMALLEST_GROUP,
        scalars: Literal["held_out", "training"] = "held_out",
        missing_concept: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
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
        self.smallest_group = smallest_group
        self.scalars = scalars
        self.missing_concept = missing_concept
        self.tol = tol
        self.max_iter = max_iter
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
        train = {"X": X, "y": y, "concept": concept, "sample_weight": sample_weight, "clusters": clusters}
        validation = {
            "X": X_val,
            "y": y_val,
            "concept": concept_val,
            "sample_weight": sample_weight_val,
            "clusters": clusters_val,
        }
        with self._restore_on_failure():
            self._validate_params()
            needs_y = self.tests == "group" or self.balance in ("main", "group")
            if not needs_y:  # nothing depends on the task
                train["y"] = validation["y"] = None
            data = FitData.read(self, train, validation, needs_y=needs_y)
            found = fit_each_concept(data, partial(self._fit_binary, HeldOutSplitter.reusable_cv(self.cv)))
            self.spurious_, self.main_ = found.spurious, found.main
            self.removal_ = AffineMap.removing(found.spurious, found.centre)
            self.trace_ = found.traces[0] if len(found.traces) == 1 else Traces.of(found.traces)
            self.classes_ = () if data.train.y is None else data.train.y.classes
            self.concept_classes_ = data.concept_classes
            self.n_iter_ = self.trace_.most_evaluations
            self._remember(data.memory, data.validation_memory)
            data.warn(self.reused)
            self.warn_if_nothing_removed(self.max_directions)
        return self

    def _fit_binary(self, cv: Any, problem: Problem, excluded: Subspace, main_only: bool) -> BinaryFit:
        """What is found of one binary concept, in groups with one binary main label; that alone needs no directions."""
        nothing = Subspace.empty(self.n_features_in_)
        if main_only:
            return BinaryFit(Subspaces(nothing, nothing, (), ""), Trace((), "", 0.0, 0.0), np.zeros(nothing.ambient))
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1, size=4))
        data = assign_folds(
            problem,
            HeldOutSplitter(cv, rng),
            by_group=self.tests == "group",
            smallest_group=self.smallest_group,
            needs_y=problem.train.y is not None,
        )
        with tqdm(desc="INLP", unit=" directions", disable=not self.verbose) as bar:
            return self._peel(data, bar.update, excluded, rng)

    def _direction(
        self, data: FoldedRows, whitening: Whitening, away_from: Subspace, fold: int | None, rng: np.random.Generator
    ) -> tuple[FloatArray, Outcome]:
        """Weights (d,) that predict the concept, without the rows of one fold and away from a subspace."""
        counts, balance = data.counts, self.balance
        sgd = SGD.of(self.solver)
        if sgd is None:
            weighting = counts.weighting(counts.without(fold), balance)
            allowed = whitening.away_from(away_from)
            fit = solve_logistic(data.rows, weighting, allowed, CONCEPT, tol=self.tol, max_iter=self.max_iter)
            return fit.weights, fit.outcome
        watched = fold or 1
        train, held_out = (counts.weighting(mask, balance) for mask in (counts.without(watched), counts.only(watched)))
        settings = sgd_settings(sgd, whitening.decay)
        centre = whitening.geometry.centre
        weights, _, outcome = solve_logistic_by_sgd(
            data.rows, train, held_out, centre, away_from, settings, rng, CONCEPT
        )
        return weights, outcome

    def _whitening(self, geometry: Geometry, weight_decay: float) -> Whitening:
        """Coordinates at a decay in units of the mean variance; SGD takes it as it is."""
        return Whitening.of(
            geometry, weight_decay if SGD.of(self.solver) is None else weight_decay / geometry.mean_variance
        )

    def _peel(
        self, data: FoldedRows, report: Callable[[], Any], excluded: Subspace, rng: np.random.Generator
    ) -> BinaryFit:
        counts = data.counts
        estimated_on = counts.weighting(counts.without(1 if counts.n_folds == 1 else None), self.balance)
        geometry = Geometry.of_rows(data.rows, estimated_on)
        by_group = self.tests == "group"
        tests = DirectionTests(self.significance_level, by_group, 0.0, self.scalars, clusters=data.clusters)
        nothing = Tracks.empty(data.rows.n_features, counts.n_folds)

        def estimate(whitening: Whitening, away_from: Tracks) -> EstimatedPair:
            """The concept's direction in every track, in the place of a pair's first."""
            found, outcomes = [], []
            for k, removed in enumerate(away_from.subspaces):
                subspace = excluded.beside(removed)
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
        room = geometry.rank - excluded.dim - 1
        limit = room if self.max_directions is None else min(self.max_directions, room)
        stopped = f"the limit of {limit} directions is reached"
        while removed.dim < limit:
            report()
            pair = estimate(whitening, removed)
            verdict = tests.informative("spurious", losses(pair), counts.keys)
            steps.append(Step(removed.dim + 1, 0, verdict, pair.outcome.evaluations, pair.outcome.reason))
            if not verdict.proper:
                stopped = f"the next direction {verdict.reason}"
                break
            removed = removed.with_directions(pair.directions[CONCEPT])
        found = Subspaces(removed.returned, Subspace.empty(data.rows.n_features), tuple(steps), stopped)
        return BinaryFit(found, Trace(found.steps, stopped, 0.0, float(decay), scores), geometry.centre)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags
