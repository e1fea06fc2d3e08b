"""Joint estimation of a spurious and a main-task subspace: the two nested loops (paper algorithms 1 and 2).

With K folds every subspace is estimated K + 1 times (`FoldEstimates`): from all rows, which the fit returns, and
without each fold, which is tested on the rows of that fold. Each estimate excludes its own directions only, so no
direction is tested on rows that it was estimated from. (If all estimates excluded the directions of all rows, held-out
rows would have lost what they share with the others, and later directions would look worse than they are.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from unspur._typing import FloatArray
from unspur.criteria import LABEL, Average, DirectionTests, Role, Verdict
from unspur.rows import CONCEPT, MAIN, RowSource
from unspur.solvers.coordinates import Metric
from unspur.solvers.descent import Outcome
from unspur.solvers.held_out_losses import GroupLosses
from unspur.solvers.orthogonal_pair import Pair, PairLosses, PairSpace, WarmStart, solve_pairs
from unspur.solvers.orthogonal_pair import directions as directions_of
from unspur.solvers.sgd import SGDSettings, solve_pair_by_sgd
from unspur.solvers.statistics import Balance, CellCounts
from unspur.subspace import Subspace
from unspur.trace import Step

OTHER_ROLE: dict[Role, Role] = {"spurious": "main", "main": "spurious"}
#: The paper's penalties, in units of the mean variance of the rows; its 0 is replaced by a value at which separable
#: classes still have a solution.
PAPER_PENALTIES = (1.0, 0.1, 0.01, 1e-3, 1e-4)
#: Share of the gain over chance that does not justify less penalty. Where classes are separable, standard errors
#: vanish with the loss, and every smaller value would gain another millionth of a nat.
NEGLIGIBLE_GAIN_SHARE = 0.01
#: A number of directions or pairs that no search reaches.
NO_LIMIT = 2**31
#: Held-out loss and its standard error.
LossAndError: TypeAlias = tuple[float, float]


def choose_penalty(evaluate: Callable[[float], LossAndError], chance: float) -> tuple[float, dict[float, LossAndError]]:
    """Return the largest penalty that is as good as the best, and all losses (the paper's rule).

    As good: its loss is within one standard error of the smallest, or within `NEGLIGIBLE_GAIN_SHARE` of the gain of the
    smallest over `chance`. The search goes from large to small values, and ends once losses have clearly risen or next
    to nothing is left to gain.
    """
    losses: dict[float, LossAndError] = {}
    for value in PAPER_PENALTIES:
        loss, _ = losses[value] = evaluate(value)
        best, error = min(losses.values())
        if loss > best + error or loss <= NEGLIGIBLE_GAIN_SHARE * chance:
            break
    threshold = best + max(error, NEGLIGIBLE_GAIN_SHARE * (chance - best))
    return max(value for value, (loss, _) in losses.items() if loss <= threshold), losses


def left_out_folds(n_folds: int) -> tuple[int | None, ...]:
    """Fold that each estimate leaves out: none, then each in turn; a single fold is always left out."""
    return (1,) if n_folds == 1 else (None, *range(1, n_folds + 1))


@dataclass(frozen=True, slots=True)
class ExactSolver:
    """`solvers.orthogonal_pair` for all estimates side by side; `at_zero` is the result of ``losses.at_zero()``."""

    losses: PairLosses
    at_zero: tuple[FloatArray, FloatArray]
    space: PairSpace
    tol: float
    max_iter: int

    def __call__(self, excluded: Sequence[Subspace], warm_start: Sequence[WarmStart] | None = None) -> list[Pair]:
        """Pairs orthogonal to one subspace each, started from solutions of neighbouring problems to save time."""
        spaces = [self.space.excluding(subspace) for subspace in excluded]
        pairs = solve_pairs(
            self.losses, spaces, self.at_zero, warm_start=warm_start, tol=self.tol, max_iter=self.max_iter
        )
        for pair in pairs:
            pair.outcome.warn_unless_converged()
        return pairs

    def for_label(self, label: int) -> ExactSolver:
        """A solver for one label: with slopes of zero at the start, the weights of the other stay zero."""
        chance, slopes = self.at_zero
        r = len(self.space.spectrum.variance)
        only = slopes.copy()
        only[:, (1 - label) * r : (2 - label) * r] = 0.0
        return replace(self, at_zero=(chance, only))


@dataclass(frozen=True, slots=True)
class SGDSolver:
    """`solvers.sgd`, one pair after the other; early stopping watches the fold left out (fold 1 if there is none)."""

    rows: RowSource
    counts: CellCounts
    space: PairSpace
    balance: Balance
    settings: SGDSettings
    rng: np.random.Generator
    inverse_factor: FloatArray | None = None

    def __call__(self, excluded: Sequence[Subspace], warm_start: Sequence[WarmStart] | None = None) -> list[Pair]:
        """Solve from the paper's first weights."""
        del warm_start
        counts, pairs = self.counts, []
        for subspace, fold in zip(excluded, left_out_folds(counts.n_folds), strict=True):
            watched = fold or 1
            train, held_out = (
                counts.weighting(folds, self.balance) for folds in (counts.without(watched), counts.only(watched))
            )
            centre = self.space.spectrum.centre
            pair = solve_pair_by_sgd(
                self.rows, train, held_out, centre, subspace, self.settings, self.rng, self.inverse_factor
            )
            pair.outcome.warn_unless_converged()
            pairs.append(pair)
        return pairs


PairSolver: TypeAlias = ExactSolver | SGDSolver


@dataclass(frozen=True, slots=True)
class FoldEstimates:
    """One subspace estimated from all rows, then without each fold; a single fold has one estimate."""

    subspaces: tuple[Subspace, ...]

    @classmethod
    def empty(cls, ambient: int, n_folds: int) -> FoldEstimates:
        """No directions yet."""
        return cls((Subspace.empty(ambient),) * len(left_out_folds(n_folds)))

    @property
    def full_data(self) -> Subspace:
        """The estimate that the fit returns."""
        return self.subspaces[0]

    @property
    def dim(self) -> int:
        """Dimension of the estimate that the fit returns."""
        return self.full_data.dim

    def with_directions(self, directions: FloatArray) -> FoldEstimates:
        """One more direction in each estimate, shape (estimates, d); zeros, where none was found, add nothing."""
        pairs = zip(self.subspaces, directions, strict=True)
        return FoldEstimates(tuple(s.with_direction(v) if np.any(v) else s for s, v in pairs))

    def project_off(self, directions: FloatArray) -> FloatArray:
        """What is left of each direction, shape (estimates, d), outside its subspace."""
        return np.stack([s.reject(v) for s, v in zip(self.subspaces, directions, strict=True)])


@dataclass(frozen=True, slots=True)
class EstimatedPair:
    """Unit directions of both labels in every estimate, shape (2, estimates, d), and their solutions."""

    directions: FloatArray
    outcome: Outcome
    solved: tuple[Pair, ...] | None = None

    def held_out_directions(self, role: Role) -> FloatArray:
        """Directions of a role that are tested on the rows of each fold, shape (folds, d)."""
        estimates = self.directions[LABEL[role]]
        return np.asarray(estimates if len(estimates) == 1 else estimates[1:])


@dataclass(frozen=True, slots=True)
class JointEstimation:
    """Rows, solver and tests of one fit: estimates pairs and tests directions."""

    rows: RowSource
    counts: CellCounts
    solver: PairSolver
    tests: DirectionTests
    centre: FloatArray
    #: Directions removed for other concepts, which no pair may use.
    removed_before: Subspace
    #: A rough estimate of the first pair, if there is one.
    first_guess: EstimatedPair | None = None
    #: Metric in whose coordinates all directions are given; None for the original features.
    metric: Metric | None = None

    @property
    def empty(self) -> FoldEstimates:
        """Estimates without any direction."""
        return FoldEstimates.empty(self.rows.n_features, self.counts.n_folds)

    def pair(self, excluded: FoldEstimates, warm_start: dict[int, EstimatedPair | None] | None = None) -> EstimatedPair:
        """Estimate a pair in the complement of the excluded directions.

        `warm_start` holds, for each label, a pair estimated with other exclusions or another penalty.
        """
        all_excluded = self._all_excluded(excluded)
        warm_starts = None if warm_start is None else _warm_starts_by_estimate(warm_start, len(all_excluded))
        pairs = self.solver(all_excluded, warm_starts)
        directions = _unit_directions(pairs, all_excluded)
        # A label without a direction from all rows has none to return, so none is tested in the folds either.
        directions[~np.any(directions[:, 0], axis=1)] = 0.0
        evaluations = max(pair.outcome.evaluations for pair in pairs)  # all estimates share each pass over the data
        return EstimatedPair(directions, replace(pairs[0].outcome, evaluations=evaluations), tuple(pairs))

    def best_direction(self, label: int, excluded: FoldEstimates) -> EstimatedPair:
        """Estimate the best direction of one label, without a constraint; that of the other is zero."""
        assert isinstance(self.solver, ExactSolver)
        all_excluded = self._all_excluded(excluded)
        pairs = self.solver.for_label(label)(all_excluded)
        return EstimatedPair(_unit_directions(pairs, all_excluded), pairs[0].outcome, tuple(pairs))

    def n_free(self, excluded: FoldEstimates) -> int:
        """Dimensions that every estimate has left for a pair."""
        return min(self.solver.space.excluding(subspace).n_free for subspace in self._all_excluded(excluded))

    def test(self, role: Role, pair: EstimatedPair, level_share: float = 1.0) -> Verdict:
        """Decide whether the pair's direction of this role is proper, at a share of the level."""
        tests = replace(self.tests, significance_level=level_share * self.tests.significance_level)
        return tests.test(role, self._losses(role, pair), self.counts.keys)

    def own_losses(self, pair: EstimatedPair) -> tuple[Average, Average]:
        """Held-out loss of each label along its own direction: concept, main."""
        directions = self.feature_weights(np.stack([pair.held_out_directions(role) for role in LABEL]))
        return self.tests.own_losses(self.rows, self.counts, directions, self.centre)

    def feature_weights(self, directions: FloatArray) -> FloatArray:
        """Coefficients on the original features, shape (..., d), whose scores equal those of `directions`."""
        return directions if self.metric is None else directions @ self.metric.inverse_factor.T

    def _losses(self, role: Role, pair: EstimatedPair) -> GroupLosses:
        return self.tests.losses(
            self.rows, self.counts, self.feature_weights(pair.held_out_directions(role)), self.centre
        )

    def _all_excluded(self, excluded: FoldEstimates) -> list[Subspace]:
        return [self.removed_before.beside(subspace) for subspace in excluded.subspaces]


def _warm_starts_by_estimate(warm_start: dict[int, EstimatedPair | None], n_estimates: int) -> list[WarmStart]:
    """Solutions of neighbouring problems for the concept and for the main label, one pair of them per estimate."""
    nothing = (None,) * n_estimates
    concept, main = (nothing if (pair := warm_start[k]) is None else pair.solved or nothing for k in (CONCEPT, MAIN))
    return list(zip(concept, main, strict=True))


def _unit_directions(pairs: Sequence[Pair], excluded: Sequence[Subspace]) -> FloatArray:
    """Unit directions, shape (2, estimates, d), orthogonal to each other and to `excluded` to machine precision."""
    found = [
        directions_of(replace(pair, weights=subspace.reject(directions_of(pair).T).T))
        for pair, subspace in zip(pairs, excluded, strict=True)
    ]
    return np.stack(found, axis=1)


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Which role the inner loop finds, which of its pairs supplies the outer candidate, and limits.

    With `split_level`, the level bounds the error of all tests together. A loop stops at its first rejection, so its
    error is that of one test, however long it is. The outer loop gets half of the level. The inner loop restarts in
    every round T and gets 1/(2T(T + 1)) of it there; these shares add up to the other half.
    """

    inner: Role = "main"
    candidate: Literal["last_accepted", "failing"] = "last_accepted"
    max_dim: tuple[int, int] = (NO_LIMIT, NO_LIMIT)  # spurious, main
    split_level: bool = False
    #: Limit on the pairs estimated in all rounds together.
    max_pairs: int = NO_LIMIT

    def level_share(self, role: Role, outer_round: int) -> float:
        """Share of the level for a test of this role in one round."""
        if not self.split_level:
            return 1.0
        return 0.5 / (outer_round * (outer_round + 1)) if role == self.inner else 0.5

    def limit(self, role: Role) -> int:
        """Largest dimension of the role's subspace."""
        return self.max_dim[LABEL[role]]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of the loops."""

    spurious: Subspace
    main: Subspace
    steps: tuple[Step, ...]
    stopped: str
    #: Whether a test ended the search, and not the limit on pairs.
    complete: bool = True
    #: The spurious subspace in every estimate.
    spurious_estimates: FoldEstimates | None = None


@dataclass(frozen=True, slots=True)
class InnerResult:
    """Accepted directions of the inner role, and the pair that supplies the next candidate of the outer role."""

    accepted: FoldEstimates
    candidate: EstimatedPair | None
    steps: tuple[Step, ...]
    pairs: tuple[EstimatedPair, ...]
    complete: bool


def estimate_subspaces(
    joint: JointEstimation, settings: SearchSettings, progress: Callable[[Role, int, int], None]
) -> SearchResult:
    """Run both loops; `progress(role, outer, inner)` is called before every pair."""
    inner, outer = settings.inner, OTHER_ROLE[settings.inner]
    limit, outer_round, pairs_left = settings.limit(outer), 1, settings.max_pairs
    accepted = {inner: joint.empty, outer: joint.empty}
    guesses: tuple[EstimatedPair, ...] = () if joint.first_guess is None else (joint.first_guess,)
    steps: list[Step] = []
    stopped = f"the limit of {limit} {outer} directions is reached"
    while outer_round == 1 or accepted[outer].dim < limit:
        found = _inner_loop(joint, settings, accepted[outer], outer_round, progress, guesses, pairs_left)
        steps += found.steps
        guesses, complete, pairs_left = found.pairs, found.complete, pairs_left - len(found.pairs)
        if outer_round == 1:
            accepted[inner] = found.accepted
        if limit == 0:  # only the inner role is wanted
            break
        if found.candidate is None:
            stopped = "fewer than two free dimensions are left"
            break
        verdict = joint.test(outer, found.candidate, settings.level_share(outer, outer_round))
        steps.append(Step(outer_round, 0, verdict, found.candidate.outcome.evaluations, found.candidate.outcome.reason))
        if not verdict.proper:
            stopped = f"the next {outer} direction {verdict.reason}"
            break
        direction = found.accepted.project_off(found.candidate.directions[LABEL[outer]])
        accepted[outer] = accepted[outer].with_directions(direction)
        accepted[inner] = found.accepted  # kept only if the outer direction is accepted
        complete = complete and (pairs_left > 0 or accepted[outer].dim >= limit)
        if not complete:
            break
        outer_round = accepted[outer].dim + 1
    if not complete:
        stopped = f"the limit of {settings.max_pairs} pairs is reached in round {max(1, accepted[outer].dim)}"
    spurious = accepted["spurious"]
    return SearchResult(spurious.full_data, accepted["main"].full_data, tuple(steps), stopped, complete, spurious)


def _inner_loop(
    joint: JointEstimation,
    settings: SearchSettings,
    excluded: FoldEstimates,
    outer_round: int,
    progress: Callable[[Role, int, int], None],
    guesses: tuple[EstimatedPair, ...],
    max_pairs: int,
) -> InnerResult:
    """Accept directions of the inner role, one pair at a time, until one is not proper.

    A pair is estimated near the one at its place in the previous round, `guesses`, for the inner role, and near the
    pair before it for the other role. At most `max_pairs` pairs are estimated, and at least one.
    """
    inner, outer = settings.inner, OTHER_ROLE[settings.inner]
    accepted, complete = joint.empty, True
    candidate: EstimatedPair | None = None
    pairs: list[EstimatedPair] = []
    steps: list[Step] = []
    while complete and joint.n_free(excluded) >= 2:
        at_limit = accepted.dim >= settings.limit(inner)
        if at_limit and candidate is not None and settings.candidate == "last_accepted":
            break
        progress(inner, outer_round, accepted.dim + 1)
        guess = guesses[len(pairs)] if len(pairs) < len(guesses) else None
        pair = joint.pair(excluded, {LABEL[inner]: guess, LABEL[outer]: pairs[-1] if pairs else guess})
        pairs.append(pair)
        if candidate is None or settings.candidate == "failing":
            candidate = pair
        if at_limit:
            break
        verdict = joint.test(inner, pair, settings.level_share(inner, outer_round))
        steps.append(Step(outer_round, accepted.dim + 1, verdict, pair.outcome.evaluations, pair.outcome.reason))
        if not verdict.proper:
            break
        candidate, directions = pair, pair.directions[LABEL[inner]]
        accepted, excluded = accepted.with_directions(directions), excluded.with_directions(directions)
        complete = len(pairs) < max_pairs
    return InnerResult(accepted, candidate, tuple(steps), tuple(pairs), complete)
