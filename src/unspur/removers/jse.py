"""Joint Subspace Estimation: remove the spurious subspace, leave the task's alone."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from tqdm.auto import tqdm

from unspur._data import fit_arguments
from unspur._reading import require_kinds
from unspur._typing import Array, FloatArray
from unspur._validation import (
    OPTIONAL_COUNT,
    TEST_CONSTRAINTS,
    generator,
    keyword_only_after_y,
    sgd_settings,
)
from unspur.criteria import SMALLEST_GROUP, Average, DirectionTests, Role
from unspur.exceptions import (
    EmptySubspaceError,
    InputWarning,
    Parameter,
    SearchLimitWarning,
    SlowFitWarning,
    TaskLostWarning,
)
from unspur.options import SGD, PaperVariant
from unspur.removers.direction_remover import (
    BinaryFit,
    ConceptFits,
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
    PAPER_PENALTIES,
    EstimatedPair,
    ExactSolver,
    FoldEstimates,
    JointEstimation,
    PairSolver,
    SearchResult,
    SearchSettings,
    SGDSolver,
    choose_penalty,
    estimate_subspaces,
    left_out_folds,
)
from unspur.rows import CONCEPT, MAIN, training_part
from unspur.solvers.coordinates import MAX_NATIVE_CONDITION, Metric
from unspur.solvers.held_out_losses import HeldOutClusters
from unspur.solvers.orthogonal_pair import PairLosses, PairSpace, Spectrum, require_room
from unspur.solvers.statistics import Balance
from unspur.subspace import AffineMap, Subspace
from unspur.trace import TaskPredictability, Trace, task_removed_warning

#: Tolerance to choose a penalty with, and rows of each group: its loss need only be known to within a standard
#: error that is small beside the gain that would be negligible.
WEIGHT_DECAY_TOL, WEIGHT_DECAY_ROWS = 3e-3, 8192
#: The default metric, and those that ``metric="auto"`` tries.
DEFAULT_METRIC, METRIC_GRID = 0.25, (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
#: Seconds after which a fit reports where it is.
SLOW_FIT_SECONDS = 30.0
_SPEED_ADVICE = (
    "For a faster fit, use a larger penalty (0.1 or 1), limit max_spurious and max_main, or reduce the features "
    "with PCA. To continue the search, raise max_pairs."
)
_AUTO_DELTA_OF_CLASSES = (
    "{auto} is made for a task of two classes. With more, each class is taken against the rest, the shift is "
    "that of one class, and directions of the other classes may count as those of the concept, so the task can be "
    "removed. Use {zero}."
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
    delta : float or "auto", default=0.0
        Shift Δ of the second test (specific), for when one label is easier to predict than the other. "auto" sets it to
        the difference in held-out loss between the best direction of the concept and the best one of the main task,
        each estimated alone, and carries the error of that difference into the test. It is for tasks of two classes;
        with more it can remove the task, and an InputWarning says so.
    balance : {"none", "concept", "main", "group"}, default="group"
        Classes that get equal total weight in the estimation of a pair.
    penalty : float or "auto", default="auto"
        Penalty in units of the mean variance of X (absolute for SGD); a feature much larger than all others should be
        scaled down first. "auto" tries 1, 0.1, 0.01, 0.001 and 0.0001 until held-out losses of the first pair clearly
        rise, and uses the largest value whose loss is within one standard error of the best. It is chosen on at most
        8,192 rows of each group, drawn at random, unless rows are in clusters.
    metric : float between 0 and 1, or "auto", default=0.25
        Weight τ of the covariance in the inner product in which the two weight vectors are orthogonal (not a distance
        or a score): ``w_spᵀ M w_mt = 0`` with ``M = (1 − τ) tr(Σ)/r I + τ Σ``, and Σ the covariance of the training
        rows, r its rank. M shrinks the covariance towards a multiple of the identity, with shrinkage 1 − τ (as
        `sklearn.covariance.ShrunkCovariance`). With τ = 0 weights are orthogonal, as in the paper. With τ = 1 scores
        are uncorrelated over the training rows, which is JSE on whitened rows. With τ > 0 the removal is oblique: one
        direction removes what would otherwise take many, and a far easier concept does not absorb the task; but
        whatever is correlated with the concept in the training rows is removed too.
        "auto" fits at six values (0, 0.1, 0.25, 0.5, 0.75 and 1) and keeps those whose held-out task loss (groups
        weighted equally) is within one standard error of the smallest. Of these it uses the one nearest to 0.25.
    solver : "exact", "sgd" or SGD, default="exact"
        Solve each pair to `tol`, or by the paper's minibatch SGD with the settings of an :class:`~unspur.SGD`.
    variant : PaperVariant or None, default=None
        Swapped loops, plain tests and other variants of the paper.
    max_spurious, max_main : int or None, default=None
        Limits on the two dimensions, for each concept or class against the rest.
    max_pairs : int or None, default=500
        Limit on the pairs of directions estimated for one concept, or class against the rest. A search that reaches
        it keeps the accepted directions, issues a SearchLimitWarning, and is marked in `trace_` and in certificates.
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
    tol : float, default=1e-4
        Relative gradient norm at which a pair counts as solved. A smaller one changes no test
        (reproduction/docs/speed.md).
    max_iter : int, default=1000
        Most iterations for one pair.
    random_state : int, RandomState or None, default=None
        Draws the folds (and the minibatches of SGD).
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
    metric_losses_ : dict
        Held-out loss of the main task and its standard error for each τ tried; empty unless ``metric="auto"``.
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

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 — scikit-learn's protocol
        **TEST_CONSTRAINTS,
        "correction": [StrOptions({"none", "familywise"})],
        "delta": [StrOptions({"auto"}), Interval(Real, None, None, closed="neither")],
        "metric": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
        "variant": [PaperVariant, None],
        "max_spurious": OPTIONAL_COUNT,
        "max_main": OPTIONAL_COUNT,
        "max_pairs": [None, Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        *,
        significance_level: float = 0.05,
        correction: Literal["none", "familywise"] = "none",
        delta: float | Literal["auto"] = 0.0,
        balance: Balance = "group",
        penalty: float | Literal["auto"] = "auto",
        metric: float | Literal["auto"] = DEFAULT_METRIC,
        solver: Literal["exact", "sgd"] | SGD = "exact",
        variant: PaperVariant | None = None,
        max_spurious: int | None = None,
        max_main: int | None = None,
        max_pairs: int | None = 500,
        cv: Any = 5,
        smallest_group: int = SMALLEST_GROUP,
        missing_concept: Any = None,
        strength: float = 1.0,
        tol: float = 1e-4,
        max_iter: int = 1000,
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.significance_level = significance_level
        self.correction = correction
        self.delta = delta
        self.balance = balance
        self.penalty = penalty
        self.metric = metric
        self.solver = solver
        self.variant = variant
        self.max_spurious = max_spurious
        self.max_main = max_main
        self.max_pairs = max_pairs
        self.cv = cv
        self.smallest_group = smallest_group
        self.missing_concept = missing_concept
        self.strength = strength
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    @keyword_only_after_y
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
            if self.delta == "auto" and data.train.n_classes > 2:
                fields = {"auto": Parameter("delta", "auto"), "zero": Parameter("delta", 0)}
                warnings.warn(InputWarning(_AUTO_DELTA_OF_CLASSES, **fields), stacklevel=3)
            inside, span = data.to_span_coordinates() if SGD.of(self.solver) is None else (data, None)
            found, metric = self._fit_in_metric(inside)
            self._set_fitted(data, found, span, *self._removal(found, metric))
            self.warn_if_nothing_removed(self.max_spurious)
            if self.search_limit_warning:
                warnings.warn(f"{self.search_limit_warning} {_SPEED_ADVICE}", SearchLimitWarning, stacklevel=3)
            if self.task_removed_warning:
                warnings.warn(f"{self.task_removed_warning} Try metric=1.", TaskLostWarning, stacklevel=3)
        return self

    def estimate_delta(self, first_pair: Callable[[], tuple[Average, Average]]) -> tuple[float, float]:
        """Δ of the second test, and the standard error that it adds to that of the test.

        `first_pair` estimates the first pair of directions, and returns the held-out loss of the concept along its
        direction and that of the main label along its own, each with `mean` and `error`.
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
        losses = [[tau, *loss] for tau, loss in self.metric_losses_.items()]
        return arrays, {**metadata, "metric": {"used": self.metric_, "losses": losses}}

    def _restore(self, arrays: dict[str, Array], metadata: dict[str, Any]) -> Self:
        used = metadata.get("metric", {"used": self.metric, "losses": []})  # not written by development versions
        require_kinds(used, {"used": (int, float), "losses": [[(int, float)]]}, "'metric'")
        self.metric_ = float(used["used"])
        self.metric_losses_ = {float(tau): (float(loss), float(error)) for tau, loss, error in used["losses"]}
        return super()._restore(arrays, metadata)

    def _notes(self) -> list[str]:
        return [*super()._notes(), *filter(None, [self.search_limit_warning, self.task_removed_warning])]

    def _removal(self, found: ConceptFits, metric: Metric | None) -> tuple[AffineMap, Subspace, Subspace]:
        """The map that `transform` applies, and both subspaces, in the coordinates of the rows."""
        onto_main = self._variant.output == "onto_main"
        if onto_main and not found.main.dim:
            tests = "\n".join(map(str, found.traces))
            raise EmptySubspaceError(
                "No main-task direction was found, so there is none to project onto: every row would become the same "
                f"point. Use another output. The tests were:\n{tests}"
            )
        if metric is not None:
            removal = metric.keeping(found.main) if onto_main else metric.removing(found.spurious)
            return removal, metric.weights_of(found.spurious), metric.weights_of(found.main)
        make, subspace = (AffineMap.keeping, found.main) if onto_main else (AffineMap.removing, found.spurious)
        return make(subspace, found.centre), found.spurious, found.main

    def _fit_in_metric(self, data: FitData) -> tuple[ConceptFits, Metric | None]:
        """Fit in the given metric, or in each of the grid and keep the best; the metric is None for the Euclidean."""
        cv, folded = reusable_cv(self.cv), dict[Any, FoldedRows]()

        def in_folds(problem: Problem, rng: np.random.Generator) -> FoldedRows:
            """The rows of a problem in folds, kept for the next metric; not for SGD, which draws after the folds."""
            labels = problem.train.concept, problem.train.main
            key = tuple((label.name, label.of_class) for label in labels)
            if key not in folded or SGD.of(self.solver):
                by_group = self._variant.tests == "group"
                folded.clear()  # columns of many classes would take more memory than the rows
                found = assign_folds(problem, cv, rng, by_group=by_group, smallest_group=self.smallest_group)
                folded[key] = replace(found, geometries={} if self.metric == "auto" else None)
            return folded[key]

        def fit(tau: float) -> tuple[ConceptFits, Metric | None]:
            metric = None
            if tau:  # one metric for all concepts and classes, from the rows of the first
                first = in_folds(first_problem(data), generator(self.random_state))
                metric = first.metric(tau, symmetric=SGD.of(self.solver) is not None)

            def fit_binary(problem: Problem, excluded: Subspace, main_only: bool) -> BinaryFit:
                rng = generator(self.random_state)
                rows = in_folds(problem, rng)
                with self._progress() as progress:
                    return self._search(rows, metric, rng, progress, excluded, main_only)

            return fit_each_concept(data, fit_binary), metric

        if self.metric != "auto":
            self.metric_, self.metric_losses_ = float(self.metric), {}
            return fit(self.metric_)
        fits, losses = {tau: fit(tau) for tau in METRIC_GRID}, {}
        for tau, (found, _) in fits.items():
            means, errors = np.array(found.task_log_losses).T
            losses[tau] = float(means.mean()), float(np.linalg.norm(errors) / len(errors))
        best, error = min(losses.values())
        good = [tau for tau, (loss, _) in losses.items() if loss <= best + error]
        self.metric_, self.metric_losses_ = min(good, key=lambda tau: (abs(tau - DEFAULT_METRIC), tau)), losses
        return fits[self.metric_]

    @property
    def _variant(self) -> PaperVariant:
        return self.variant or PaperVariant(inner=self.inner_role, candidate=self.candidate, tests=self.test_weighting)

    def _search(
        self,
        data: FoldedRows,
        metric: Metric | None,
        rng: np.random.Generator,
        progress: Callable[[Role, int, int], None],
        excluded: Subspace,
        main_only: bool,
    ) -> BinaryFit:
        """Fit one binary concept and main label: choose penalty and Δ, then run the two loops.

        With `main_only`, find main-task directions only.
        """
        counts, variant = data.counts, self._variant
        in_float64 = metric is not None and metric.condition > MAX_NATIVE_CONDITION
        inverse_factor = None if metric is None else metric.inverse_factor
        spectrum = Spectrum.of(
            data.geometry(self.balance, in_float64=in_float64), inverse_factor, data.rows.dtype.itemsize
        )
        require_room(len(spectrum.variance), data.rows.n_features)
        by_group = variant.tests == "group"
        tests = DirectionTests(float(self.significance_level), by_group, 0.0, variant.scalars, clusters=data.clusters)
        make_solver = self._solver_factory(data, spectrum, inverse_factor, rng)
        penalty = PAPER_PENALTIES[0] if self.penalty == "auto" else float(self.penalty)
        solver = make_solver(penalty, self.tol)
        estimation = JointEstimation(data.rows, counts, solver, tests, spectrum.centre, excluded, metric=metric)
        decay_losses: dict[float, tuple[float, float]] = {}
        # Earlier classes may have left no room for a pair; then there is none to choose by, and none is estimated.
        if self.penalty == "auto" and estimation.n_free(estimation.empty) >= 2:
            sample = data if SGD.of(self.solver) else data.sample(WEIGHT_DECAY_ROWS, np.random.default_rng(0))
            make_rough = make_solver if sample is data else self._solver_factory(sample, spectrum, inverse_factor, rng)
            rough = replace(estimation, rows=sample.rows, counts=sample.counts)
            chance = float(tests.chance_loss(counts).sum())
            penalty, decay_losses, guess = self._choose_penalty(rough, make_rough, chance, progress)
            estimation = replace(estimation, solver=make_solver(penalty, self.tol), first_guess=guess)
        if self.delta == "auto":
            progress("main", 0, 0)
            tests = replace(tests, reference=_best_directions(estimation))
        else:
            found_first = estimation.first_guess

            def first_pair() -> tuple[Average, Average]:
                progress("main", 0, 0)
                warm = None if found_first is None else {CONCEPT: found_first, MAIN: found_first}
                return estimation.own_losses(estimation.pair(estimation.empty, warm))

            delta, error = self.estimate_delta(first_pair)
            tests = replace(tests, delta=delta, delta_error=error)
        estimation = replace(estimation, tests=tests)
        most_spurious, most_main = (
            NO_LIMIT if limit is None else limit for limit in (self.max_spurious, self.max_main)
        )
        settings = SearchSettings(
            inner="main" if main_only else variant.inner,
            candidate=variant.candidate,
            max_dim=(0 if main_only else most_spurious, most_main),
            split_level=self.correction == "familywise",
            max_pairs=self.max_pairs or NO_LIMIT,
        )
        found = estimate_subspaces(estimation, settings, progress)

        def balanced(balance: Balance) -> JointEstimation:
            exact = _exact_solver(data, spectrum, balance, self.max_iter)
            return replace(estimation, solver=exact(penalty, self.tol))

        wants_loss = self.metric == "auto" and not main_only
        task, loss = self._evaluate_task(found, estimation, balanced, wants_loss=wants_loss)
        delta = found.steps[0].verdict.delta if self.delta == "auto" and found.steps else tests.delta
        trace = Trace(found.steps, found.stopped, delta, penalty, decay_losses, complete=found.complete, task=task)
        return BinaryFit(found, trace, spectrum.centre, loss)

    def _choose_penalty(
        self,
        estimation: JointEstimation,
        make_solver: Callable[[float, float], PairSolver],
        chance: float,
        progress: Callable[[Role, int, int], None],
    ) -> tuple[float, dict[float, tuple[float, float]], EstimatedPair]:
        """The penalty by the held-out loss of the first pair, the losses of all tried, and its pair."""
        first: dict[float, EstimatedPair] = {}

        def first_loss(value: float) -> tuple[float, float]:
            progress("main", 0, 0)
            last = next(reversed(first.values()), None)
            rough = replace(estimation, solver=make_solver(value, max(self.tol, WEIGHT_DECAY_TOL)))
            first[value] = pair = rough.pair(rough.empty, {CONCEPT: last, MAIN: last})
            concept, main = rough.own_losses(pair)
            return concept.mean + main.mean, float(np.hypot(concept.error, main.error))

        penalty, losses = choose_penalty(first_loss, chance)
        return penalty, losses, first[penalty]

    @staticmethod
    def _evaluate_task(
        found: SearchResult,
        estimation: JointEstimation,
        balanced: Callable[[Balance], JointEstimation],
        *,
        wants_loss: bool,
    ) -> tuple[TaskPredictability | None, tuple[float, float] | None]:
        """What is left of the task if no direction of it was found, and its held-out loss after the removal if wanted.

        `balanced` returns the estimation with an exact solver that gives these classes equal weight.
        """
        removed, task, loss = found.spurious_estimates, None, None
        assert removed is not None
        if found.spurious.dim and not found.main.dim and estimation.n_free(removed) >= 1:
            task = _task_predictability(balanced("none"), balanced("group"), removed)
        if wants_loss:
            after = balanced("group")
            after = replace(after, tests=replace(after.tests, by_group=True))
            _, left = after.own_losses(after.best_direction(MAIN, removed))
            loss = left.mean, left.error
        return task, loss

    def _solver_factory(
        self, data: FoldedRows, spectrum: Spectrum, inverse_factor: FloatArray | None, rng: np.random.Generator
    ) -> Callable[[float, float], PairSolver]:
        """Make solvers for a penalty and a tolerance; whatever does not depend on them is computed once."""
        sgd = SGD.of(self.solver)
        if sgd is None:
            return _exact_solver(data, spectrum, self.balance, self.max_iter)
        space = PairSpace.of(spectrum, 0.0)
        return lambda value, _: SGDSolver(
            data.rows, data.counts, space, self.balance, sgd_settings(sgd, value), rng, inverse_factor
        )

    @contextmanager
    def _progress(self) -> Iterator[Callable[[Role, int, int], None]]:
        """A progress bar of pairs; without one, a slow fit issues one warning.

        The number of pairs is not known in advance, only its limit.
        """
        start, warned, pairs = time.monotonic(), False, 0
        at_most = "" if self.max_pairs is None else " of at most {total_fmt}"
        form = "{desc}: {n_fmt}" + at_most + " pairs [{elapsed}, {rate_fmt}]{postfix}"
        with tqdm(total=self.max_pairs, desc="JSE", unit=" pairs", disable=not self.verbose, bar_format=form) as bar:

            def progress(role: Role, outer: int, inner: int) -> None:
                nonlocal warned, pairs
                where = "choosing penalty" if outer == 0 else f"round {outer}, {role} direction {inner}"
                bar.set_postfix_str(where, refresh=False)
                bar.update(outer > 0)
                pairs += 1
                if not warned and time.monotonic() - start > SLOW_FIT_SECONDS:
                    warned = True
                    most = "" if self.max_pairs is None else f", of at most {self.max_pairs}"
                    warnings.warn(
                        f"JSE has estimated {pairs} pairs of directions{most}, in {SLOW_FIT_SECONDS:.0f} s, and is "
                        f"now at {where}. {_SPEED_ADVICE}",
                        SlowFitWarning,
                        stacklevel=2,
                    )

            yield progress


def _exact_solver(
    data: FoldedRows, spectrum: Spectrum, balance: Balance, max_iter: int
) -> Callable[[float, float], ExactSolver]:
    """Make exact solvers for a penalty and a tolerance."""
    counts = data.counts
    weightings = tuple(counts.weighting(counts.without(k), balance) for k in left_out_folds(counts.n_folds))
    losses = PairLosses(training_part(data.rows), spectrum, weightings)
    at_zero = losses.at_zero()
    return lambda value, tol: ExactSolver(losses, at_zero, PairSpace.of(spectrum, value), tol, max_iter)


def _best_directions(estimation: JointEstimation) -> FloatArray:
    """Coefficients on the original features, shape (2, folds, d), of the best direction of each label, estimated alone.

    SGD estimates pairs only, as the paper does.
    """
    if isinstance(estimation.solver, ExactSolver):
        concept, main = (estimation.best_direction(label, estimation.empty) for label in (CONCEPT, MAIN))
    else:
        concept = main = estimation.pair(estimation.empty)
    return estimation.feature_weights(
        np.stack([concept.held_out_directions("spurious"), main.held_out_directions("main")])
    )


def _task_predictability(plain: JointEstimation, fixed: JointEstimation, removed: FoldEstimates) -> TaskPredictability:
    """Held-out loss of the main label before and after a removal.

    The solver of `plain` gives all rows equal weight, so anything that a head without concept labels could use
    counts. That of `fixed` gives groups equal weight.
    """
    clusters, counts = plain.tests.clusters, plain.counts
    pooled, grouped = (
        None if clusters is None else HeldOutClusters.of(clusters.cluster, clusters.cell, clusters.weight, by_group=by)
        for by in (False, True)
    )
    tests = replace(plain.tests, by_group=False, delta=0.0, reference=None, clusters=pooled)
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
