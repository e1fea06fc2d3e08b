"""Joint Subspace Estimation: remove the spurious subspace, leave the task's alone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from tqdm.auto import tqdm

from unspur._data import fit_arguments
from unspur._typing import Array
from unspur._validation import OPTIONAL_COUNT, TEST_CONSTRAINTS, generator
from unspur.criteria import SMALLEST_GROUP, Average, DirectionTests, Role
from unspur.exceptions import SearchLimitWarning, SlowFitWarning, TaskLostWarning, warn
from unspur.removers.direction_remover import (
    BinaryFit,
    DirectionRemover,
    FitData,
    FoldedRows,
    Problem,
    assign_folds,
    first_problem,
    fit_each_concept,
    reusable_cv,
)
from unspur.removers.joint import (
    NO_LIMIT,
    PAIR_TOL,
    EstimatedPair,
    FoldEstimates,
    JointEstimation,
    LossAndError,
    Progress,
    Search,
    choose_penalty,
    left_out_folds,
)
from unspur.rows import MAIN, training_part
from unspur.solvers.coordinates import MAX_NATIVE_CONDITION, Metric
from unspur.solvers.held_out_losses import HeldOutClusters
from unspur.solvers.orthogonal_pair import PairLosses, PairSpace, Spectrum, require_room
from unspur.solvers.statistics import Balance
from unspur.subspace import AffineMap, Subspace
from unspur.trace import TaskPredictability, Trace, Traces, task_removed_warning

#: Tolerance to choose a penalty with, and rows of each group: its loss need only be known to within a standard
#: error that is small beside the gain that would be negligible.
ROUGH_PAIR_TOL, PENALTY_ROWS = 3e-3, 8192
#: The default metric.
DEFAULT_METRIC = 0.25
#: Seconds after which a fit reports where it is.
SLOW_FIT_SECONDS = 30.0
_SPEED_ADVICE = (
    "For a faster fit, use a larger penalty (0.1 or 1), limit max_spurious and max_main, or reduce the features "
    "with PCA."
)


class JSE(DirectionRemover):
    """Joint Subspace Estimation (Holstege et al., ICML 2024).

    Estimates two orthogonal subspaces at once, one for the concept and one for the main task, decides by tests on
    held-out rows which direction belongs to which, and removes the first.

    Parameters
    ----------
    significance_level : float, default=0.05
        Level α of each of the two one-sided tests of a direction.
    correction : {"none", "familywise"}, default="none"
        Whether `significance_level` bounds the error of each test ("none"), or of all tests of one concept together
        ("familywise", half of α for either role). With "none", a loop stops at its first rejection, so a wrong spurious
        direction is accepted in at most about α of fits, and a wrong main-task direction in α of rounds.
    delta : float, default=0.0
        Shift Δ of the second test (specific), for when one label is easier to predict than the other.
    balance : {"none", "concept", "main", "group"}, default="group"
        Classes that get equal total weight in the estimation of a pair.
    penalty : float or "auto", default="auto"
        Penalty in units of the mean variance of X; a feature much larger than all others should be scaled down first.
        "auto" tries 1, 0.1, 0.01, 0.001 and 0.0001 until held-out losses of the first pair clearly rise, and uses the
        largest value whose loss is within one standard error of the best. It is chosen on at most 8,192 rows of each
        group, drawn at random, unless rows are in clusters.
    metric : float between 0 and 1, default=0.25
        Weight τ of the covariance in the inner product in which the two weight vectors are orthogonal (not a distance
        or a score): ``w_spᵀ M w_mt = 0`` with ``M = (1 − τ) tr(Σ)/r I + τ Σ``, and Σ the covariance of the training
        rows, r its rank. M shrinks the covariance towards a multiple of the identity, with shrinkage 1 − τ (as
        `sklearn.covariance.ShrunkCovariance`). With τ = 0 weights are orthogonal, as in the paper. With τ = 1 scores
        are uncorrelated over the training rows, which is JSE on whitened rows. With τ > 0 the removal is oblique: one
        direction removes what would otherwise take many, and a far easier concept does not absorb the task; but
        whatever is correlated with the concept in the training rows is removed too.
    max_spurious, max_main : int or None, default=None
        Limits on the two dimensions, for each concept or class against the rest.
    cv : int, float, splitter or iterable of (train, test) index pairs, default=5
        Without a validation set: cross-fit in this many folds, stratified by group, or in those of a scikit-learn
        splitter or iterable. A float between 0 and 1 holds out that share of each group once. Rows of a cluster
        (`clusters` of `fit`) share a fold; a splitter gets clusters as its groups, so that ``GroupKFold()`` works.
        Directions are estimated from all rows outside a test set, so splits that train on fewer
        (``TimeSeriesSplit``) are refused.
    smallest_group : int, default=10
        Minimum number of held-out rows in each group (main, concept); with sample weights, the minimum effective
        number. With fewer, the tests do not keep their level (reproduction/docs/trust.md) and `fit` raises a
        GroupSizeError. Held-out rows of a group must also lie in at least two clusters, effective ones if their sizes
        differ.
    missing_concept : scalar or None, default=None
        Value of `concept` that means "not known", besides NaN and None.
    strength : float between 0 and 1, default=1.0
        Share of the removal that `transform` applies: ``x − strength · removed``. The subspaces and tests do not depend
        on it. With a strength below 1 the map can be inverted, so an unpenalised linear classifier may still find the
        concept; a penalised one uses it less. With 0 nothing is removed, and a NothingRemovedWarning says so.
    random_state : int, RandomState or None, default=None
        Draws the folds.
    verbose : bool, default=False
        Show a progress bar.

    Attributes
    ----------
    spurious_, main_ : Subspace
        Spans of the weights of the concept and of the task, orthogonal to each other in the metric; `main_` is the
        task subspace.
    removal_ : AffineMap
        The map that `transform` applies, of the strength `strength_`.
    n_removed_ : int
        Number of directions that it takes out, as a whole or in part.
    metric_ : float
        The metric τ that was used.
    trace_ : Trace or Traces
        Every direction tested, with both statistics and the decision; prints as a table. With several concepts, or
        labels of more than two classes, one trace for each concept and class against the rest, by name.
    classes_, concept_classes_ : tuple
        Classes of y, and of the concept (a tuple of tuples for several concepts).
    n_features_in_ : int
        Number of features.
    n_iter_ : int
        Number of objective evaluations (not iterations) of the slowest pair.

    Notes
    -----
    For research, a subclass may set three class attributes and override one method:

    - ``inner_role = "spurious"`` swaps the two loops (default "main");
    - ``candidate = "failing"`` takes the next direction of the outer loop from the pair that ended the inner loop, as
      in the paper's pseudo-code (default "last_accepted": from the last pair whose direction was accepted, or from the
      first pair);
    - ``test_weighting = "plain"`` averages losses over all held-out rows alike, and compares them with the prevalence
      (default "group": groups (main, concept) have equal weight, and chance is ½);
    - :meth:`estimate_delta` returns Δ and its standard error.

    Examples
    --------
    >>> from unspur import JSE
    >>> from unspur.datasets import make_toy
    >>> train = make_toy(2000, rho=0.8, random_state=0)
    >>> jse = JSE(random_state=0).fit(train.Z, train.y, concept=train.concept)
    >>> jse.spurious_
    Subspace(dim=1, ambient=20)
    """

    inner_role: ClassVar[Role] = "main"
    candidate: ClassVar[Literal["last_accepted", "failing"]] = "last_accepted"
    test_weighting: ClassVar[Literal["group", "plain"]] = "group"
    _tests: ClassVar[type[DirectionTests]] = DirectionTests

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 — scikit-learn's protocol
        **TEST_CONSTRAINTS,
        "correction": [StrOptions({"none", "familywise"})],
        "delta": [Interval(Real, None, None, closed="neither")],
        "metric": [Interval(Real, 0, 1, closed="both")],
        "max_spurious": OPTIONAL_COUNT,
        "max_main": OPTIONAL_COUNT,
    }

    def __init__(
        self,
        *,
        significance_level: float = 0.05,
        correction: Literal["none", "familywise"] = "none",
        delta: float = 0.0,
        balance: Balance = "group",
        penalty: float | Literal["auto"] = "auto",
        metric: float = DEFAULT_METRIC,
        max_spurious: int | None = None,
        max_main: int | None = None,
        cv: Any = 5,
        smallest_group: int = SMALLEST_GROUP,
        missing_concept: Any = None,
        strength: float = 1.0,
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.significance_level = significance_level
        self.correction = correction
        self.delta = delta
        self.balance = balance
        self.penalty = penalty
        self.metric = metric
        self.max_spurious = max_spurious
        self.max_main = max_main
        self.cv = cv
        self.smallest_group = smallest_group
        self.missing_concept = missing_concept
        self.strength = strength
        self.random_state = random_state
        self.verbose = verbose

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
        """Estimate both subspaces.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Embeddings: an array or DataFrame, a memory map, a torch tensor on any device, or a Dask array. They stay
            where they are.
        y : array of shape (n,)
            Main-task label; messages and the trace use its name if it has one. Each of more than two classes is taken
            against the rest, and the removed directions are orthogonal to the main-task directions of all of them.
        concept : array of shape (n,) or (n, m), DataFrame, or mapping from names to arrays of shape (n,)
            What to remove: a concept of two or more classes, or several concepts. Several concepts are handled in turn,
            and a concept with more than two classes one class against the rest. The span of all accepted directions is
            removed. Rows where the concept is missing are left out of its fit.
        sample_weight : array of shape (n,), optional
        X_val, y_val, concept_val, sample_weight_val : arrays, optional
            Validation rows for the tests, preferably not seen by the encoder; without them rows of X are held out.
        clusters, clusters_val : arrays of shape (n,), optional
            Labels, of any hashable type, of rows that are not independent of each other: frames of one film, pictures
            of one bird, sentences of one author. Rows of a cluster are held out together, and the tests count clusters,
            not rows. (A *group* is a combination of labels.) Without it, exact duplicates of a row count as one
            cluster, and a ClusterWarning says so. Integer-valued rows with few distinct values are exempt, since they
            coincide by chance.

        A fit that fails leaves the estimator as it was. A fit that accepts no spurious direction issues a
        NothingRemovedWarning: `transform` then changes nothing. A fit that ends without a main-task direction, after
        some were accepted, issues a TaskLostWarning: the concept is then so much easier to predict that it is found in
        every direction.
        """
        train = fit_arguments(X, y, concept, sample_weight, clusters)
        validation = fit_arguments(X_val, y_val, concept_val, sample_weight_val, clusters_val)
        with self._fitting(X):
            self._validate_params()
            data = FitData.read(self, train, validation, needs_y=True)
            inside, span = data.to_span_coordinates()
            self._set_fitted(data, span, *self._fit_inside(inside))
            self.warn_if_nothing_removed(self.max_spurious)
            if self.search_limit_warning:
                warn(f"{self.search_limit_warning} {_SPEED_ADVICE}", SearchLimitWarning)
            if self.task_removed_warning:
                warn(f"{self.task_removed_warning} Try metric=1.", TaskLostWarning)
        return self

    def estimate_delta(self, first_pair: Callable[[], tuple[Average, Average]]) -> tuple[float, float]:
        """Δ of the second test, and the standard error that it adds to that of the test.

        `first_pair` estimates the first pair of directions, and returns the held-out loss of the concept along its
        direction and that of the task along its own, each with `mean` and `error`.
        """
        del first_pair
        return float(self.delta), 0.0

    @property
    def search_limit_warning(self) -> str:
        """Warning that the search reached its limit, or ""."""
        if self.trace_.complete:
            return ""
        return f"The search stopped early: {self.trace_.stopped}. More of the concept may be left."

    @property
    def task_removed_warning(self) -> str:
        """Warning that the removal took, or may have taken, the task with it; or ""."""
        if not self.spurious_.dim:
            return ""
        task = self.trace_.task
        measured = "" if task is None or not task.lost else str(task)
        suspected = "" if self.main_.dim else task_removed_warning(self.trace_, self.spurious_.dim)
        return " ".join(filter(None, [measured, suspected]))

    def _to_artifact(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, metadata = super()._to_artifact()
        return arrays, {**metadata, "metric": self.metric_}

    def _restore(self, arrays: dict[str, Array], metadata: dict[str, Any]) -> Self:
        self.metric_ = float(metadata["metric"])
        return super()._restore(arrays, metadata)

    def _notes(self) -> list[str]:
        return [*super()._notes(), *filter(None, [self.search_limit_warning, self.task_removed_warning])]

    def _fit_inside(self, data: FitData) -> tuple[Trace | Traces, AffineMap, Subspace, Subspace]:
        """The trace, the map that `transform` applies, and both subspaces, in the coordinates of the data."""
        cv = reusable_cv(self.cv)
        self.metric_ = tau = float(self.metric)

        folded = dict[Any, FoldedRows]()

        def in_folds(problem: Problem) -> FoldedRows:
            """The rows of a problem in folds, kept as long as the problem stays the same."""
            key = tuple((label.name, label.of_class) for label in (problem.train.concept, problem.train.main))
            if key not in folded:
                folded.clear()  # columns of many classes would take more memory than the rows
                by_group, rng = self.test_weighting == "group", generator(self.random_state)
                folded[key] = assign_folds(problem, cv, rng, by_group=by_group, smallest_group=self.smallest_group)
            return folded[key]

        # One metric for all concepts and classes, from the rows of the first.
        metric = in_folds(first_problem(data)).metric(tau) if tau else None

        def fit_binary(problem: Problem, excluded: Subspace, main_only: bool) -> BinaryFit:
            rows = in_folds(problem)
            with self._progress() as progress:
                return self._search(rows, metric, progress, excluded, main_only)

        found = fit_each_concept(data, fit_binary)
        if metric is None:
            return found.trace, AffineMap.removing(found.spurious, found.centre), found.spurious, found.main
        return (
            found.trace,
            metric.removing(found.spurious),
            metric.weights_of(found.spurious),
            metric.weights_of(found.main),
        )

    def _search(
        self, data: FoldedRows, metric: Metric | None, progress: Progress, excluded: Subspace, main_only: bool
    ) -> BinaryFit:
        """Fit one binary concept and task: choose the penalty and Δ, then run the two loops.

        With `main_only`, find main-task directions only.
        """
        inverse_factor = None if metric is None else metric.inverse_factor
        in_float64 = metric is not None and metric.condition > MAX_NATIVE_CONDITION
        geometry = data.geometry(self.balance, in_float64=in_float64)
        spectrum = Spectrum.of(geometry, inverse_factor, data.rows.dtype.itemsize)
        require_room(len(spectrum.variance), data.rows.n_features)
        tests = self._tests(float(self.significance_level), self.test_weighting == "group", clusters=data.clusters)

        def estimation(data: FoldedRows, balance: Balance, tol: float = PAIR_TOL) -> JointEstimation:
            counts = data.counts
            folds = left_out_folds(counts.n_folds)
            weightings = tuple(counts.weighting(counts.without(fold), balance) for fold in folds)
            losses = PairLosses(training_part(data.rows), spectrum, weightings)
            space = PairSpace.of(spectrum, 0.0 if self.penalty == "auto" else float(self.penalty))
            return JointEstimation(data.rows, counts, losses, losses.at_zero(), space, tests, excluded, metric, tol)

        joint, scores, guess = estimation(data, self.balance), dict[float, LossAndError](), None
        penalty = 1.0 if self.penalty == "auto" else float(self.penalty)
        # Earlier classes may have left no room for a pair; then there is none to choose by, and none is estimated.
        if self.penalty == "auto" and joint.n_free(joint.empty) >= 2:
            sample = data.sample(PENALTY_ROWS)
            rough = (
                replace(joint, tol=ROUGH_PAIR_TOL)
                if sample is data
                else estimation(sample, self.balance, ROUGH_PAIR_TOL)
            )
            chance = float(tests.chance_loss(data.counts).sum())
            penalty, scores, guess = _choose_penalty(rough, chance, progress)
        joint = joint.with_penalty(penalty)

        def first_pair() -> tuple[Average, Average]:
            progress("main", 0, 0)
            return joint.own_losses(joint.pair(joint.empty, (guess, guess)))

        delta, error = self.estimate_delta(first_pair)
        joint = replace(joint, tests=replace(tests, delta=delta, delta_error=error))
        most_spurious, most_main = (NO_LIMIT if most is None else most for most in (self.max_spurious, self.max_main))
        found = Search(
            joint,
            progress,
            inner="main" if main_only else self.inner_role,
            candidate=self.candidate,
            limits={"spurious": 0 if main_only else most_spurious, "main": most_main},
            split_level=self.correction == "familywise",
            first_guess=guess,
        ).run()
        task, removed = None, found.spurious_estimates
        assert removed is not None
        if removed.dim and not found.main.dim and joint.n_free(removed) >= 1:
            plain, fixed = (estimation(data, balance).with_penalty(penalty) for balance in ("none", "group"))
            task = _task_predictability(plain, fixed, removed)
        trace = Trace(found.steps, found.stopped, delta, penalty, scores, complete=found.complete, task=task)
        return BinaryFit(found, trace, spectrum.centre)

    @contextmanager
    def _progress(self) -> Iterator[Progress]:
        """A progress bar of pairs, whose number is not known in advance; without one, a slow fit issues one warning."""
        start, warned, pairs = time.monotonic(), False, 0
        form = "{desc}: {n_fmt} pairs [{elapsed}, {rate_fmt}]{postfix}"
        with tqdm(desc="JSE", unit=" pairs", disable=not self.verbose, bar_format=form) as bar:

            def progress(role: Role, outer: int, inner: int) -> None:
                nonlocal warned, pairs
                where = "choosing penalty" if outer == 0 else f"round {outer}, {role} direction {inner}"
                bar.set_postfix_str(where, refresh=False)
                bar.update(outer > 0)
                pairs += 1
                if not warned and time.monotonic() - start > SLOW_FIT_SECONDS:
                    warned = True
                    warn(
                        f"JSE has estimated {pairs} pairs of directions, in {SLOW_FIT_SECONDS:.0f} s, and is now at "
                        f"{where}. {_SPEED_ADVICE}",
                        SlowFitWarning,
                    )

            yield progress


def _choose_penalty(
    joint: JointEstimation, chance: float, progress: Progress
) -> tuple[float, dict[float, LossAndError], EstimatedPair]:
    """The penalty by the held-out loss of the first pair, the losses of all tried, and its pair."""
    first: dict[float, EstimatedPair] = {}

    def first_loss(value: float) -> LossAndError:
        progress("main", 0, 0)
        last = next(reversed(first.values()), None)
        rough = joint.with_penalty(value)
        first[value] = pair = rough.pair(rough.empty, (last, last))
        concept, main = rough.own_losses(pair)
        return concept.mean + main.mean, float(np.hypot(concept.error, main.error))

    penalty, losses = choose_penalty(first_loss, chance)
    return penalty, losses, first[penalty]


def _task_predictability(plain: JointEstimation, fixed: JointEstimation, removed: FoldEstimates) -> TaskPredictability:
    """Held-out loss of the task before and after a removal.

    The solver of `plain` gives all rows equal weight, so anything that a head without concept labels could use
    counts. That of `fixed` gives groups equal weight.
    """
    clusters, counts = plain.tests.clusters, plain.counts
    pooled, grouped = (
        None if clusters is None else HeldOutClusters.of(clusters.cluster, clusters.cell, clusters.weight, by_group=by)
        for by in (False, True)
    )
    tests = replace(plain.tests, by_group=False, clusters=pooled)
    by_group = replace(tests, by_group=True, clusters=grouped)
    (before, after), (fixed_before, fixed_after) = (
        [joint.test("main", joint.best_direction(MAIN, excluded)).informative for excluded in (joint.empty, removed)]
        for joint in (replace(plain, tests=tests), replace(fixed, tests=by_group))
    )
    chance, even = float(tests.chance_loss(counts)[MAIN]), math.log(2.0)
    return TaskPredictability(
        chance + before.difference,
        chance + after.difference,
        chance,
        before.p,
        after.p,
        even + fixed_before.difference,
        even + fixed_after.difference,
        tests.significance_level,
    )
