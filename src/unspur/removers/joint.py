"""Joint estimation of a spurious and a main-task subspace: the two nested loops (paper algorithms 1 and 2).

With K folds every subspace is estimated K + 1 times (`FoldEstimates`): from all rows, which the fit returns, and
without each fold, which is tested on the rows of that fold. Each estimate excludes its own directions only, so no
direction is tested on rows that it was estimated from. (If all estimates excluded the directions of all rows, held-out
rows would have lost what they share with the others, and later directions would look worse than they are.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from unspur._typing import FloatArray
from unspur.criteria import LABEL, Average, DirectionTests, Role, Verdict
from unspur.rows import RowSource
from unspur.solvers.coordinates import Metric
from unspur.solvers.descent import Outcome
from unspur.solvers.orthogonal_pair import Pair, PairLosses, PairSpace, solve_pairs
from unspur.solvers.orthogonal_pair import directions as directions_of
from unspur.solvers.statistics import CellCounts
from unspur.subspace import Subspace
from unspur.trace import Step

OTHER_ROLE: dict[Role, Role] = {"spurious": "main", "main": "spurious"}
#: The paper's penalties, in units of the mean variance of the rows; its 0 is replaced by a value at which separable
#: classes still have a solution.
PAPER_PENALTIES = (1.0, 0.1, 0.01, 1e-3, 1e-4)
#: Share of the gain over chance that does not justify less penalty. Where classes are separable, standard errors
#: vanish with the loss, and every smaller value would gain another millionth of a nat.
NEGLIGIBLE_GAIN_SHARE = 0.01
#: Relative gradient at which a pair counts as solved. A smaller one changes no test (reproduction/docs/speed.md).
PAIR_TOL = 1e-4
#: Limit on the pairs of one search.
MAX_PAIRS = 500
#: A number of directions that no search reaches.
NO_LIMIT = 2**31
#: Held-out loss and its standard error.
LossAndError: TypeAlias = tuple[float, float]
#: Called before every pair with its role, round and step.
Progress: TypeAlias = Callable[[Role, int, int], None]


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
    solved: tuple[Pair, ...] = ()

    def held_out_directions(self, role: Role) -> FloatArray:
        """Directions of a role that are tested on the rows of each fold, shape (folds, d)."""
        estimates = self.directions[LABEL[role]]
        return np.asarray(estimates if len(estimates) == 1 else estimates[1:])


@dataclass(frozen=True, slots=True)
class JointEstimation:
    """Rows, problems and tests of one fit: estimates pairs and tests directions.

    Parameters
    ----------
    losses, at_zero : losses of all estimates, and the result of ``losses.at_zero()``.
    space : where coordinates may lie, and the penalty.
    removed_before : directions removed for other concepts, which no pair may use.
    metric : metric in whose coordinates all directions are given; None for the original features.
    """

    rows: RowSource
    counts: CellCounts
    losses: PairLosses
    at_zero: tuple[FloatArray, FloatArray]
    space: PairSpace
    tests: DirectionTests
    removed_before: Subspace
    metric: Metric | None = None
    tol: float = PAIR_TOL

    @property
    def empty(self) -> FoldEstimates:
        """Estimates without any direction."""
        return FoldEstimates.empty(self.rows.n_features, self.counts.n_folds)

    def with_penalty(self, penalty: float) -> JointEstimation:
        """The same with a penalty in units of the mean variance of the rows."""
        return replace(self, space=PairSpace.of(self.space.spectrum, penalty))

    def pair(
        self, excluded: FoldEstimates, near: tuple[EstimatedPair | None, EstimatedPair | None] = (None, None)
    ) -> EstimatedPair:
        """Estimate a pair in the complement of the excluded directions.

        `near` holds, for the concept and for the task, a pair estimated with other exclusions or another penalty.
        """
        all_excluded = self._all_excluded(excluded)
        nothing = (None,) * len(all_excluded)
        concept, main = (nothing if pair is None else pair.solved or nothing for pair in near)
        pairs = self._solve(all_excluded, self.at_zero, list(zip(concept, main, strict=True)))
        directions = _unit_directions(pairs, all_excluded)
        # A label without a direction from all rows has none to return, so none is tested in the folds either.
        directions[~np.any(directions[:, 0], axis=1)] = 0.0
        evaluations = max(pair.outcome.evaluations for pair in pairs)  # all estimates share each pass over the data
        return EstimatedPair(directions, replace(pairs[0].outcome, evaluations=evaluations), tuple(pairs))

    def best_direction(self, label: int, excluded: FoldEstimates) -> EstimatedPair:
        """Estimate the best direction of one label, without a constraint; that of the other is zero."""
        chance, slopes = self.at_zero
        r, only = len(self.space.spectrum.variance), slopes.copy()
        only[:, (1 - label) * r : (2 - label) * r] = 0.0  # without a slope at the start, weights stay zero
        all_excluded = self._all_excluded(excluded)
        pairs = self._solve(all_excluded, (chance, only))
        return EstimatedPair(_unit_directions(pairs, all_excluded), pairs[0].outcome, tuple(pairs))

    def _solve(
        self,
        excluded: Sequence[Subspace],
        at_zero: tuple[FloatArray, FloatArray],
        near: list[tuple[Pair | None, Pair | None]] | None = None,
    ) -> list[Pair]:
        spaces = [self.space.excluding(subspace) for subspace in excluded]
        pairs = solve_pairs(self.losses, spaces, at_zero, warm_start=near, tol=self.tol)
        for pair in pairs:
            pair.outcome.warn_unless_converged()
        return pairs

    def n_free(self, excluded: FoldEstimates) -> int:
        """Dimensions that every estimate has left for a pair."""
        return min(self.space.excluding(subspace).n_free for subspace in self._all_excluded(excluded))

    def test(self, role: Role, pair: EstimatedPair, level_share: float = 1.0) -> Verdict:
        """Decide whether the pair's direction of this role is proper, at a share of the level."""
        tests = replace(self.tests, significance_level=level_share * self.tests.significance_level)
        weights = self._feature_weights(pair.held_out_directions(role))
        return tests.test(role, tests.losses(self.rows, self.counts, weights, self._centre), self.counts.keys)

    def own_losses(self, pair: EstimatedPair) -> tuple[Average, Average]:
        """Held-out loss of each label along its own direction: concept, main."""
        weights = self._feature_weights(np.stack([pair.held_out_directions(role) for role in LABEL]))
        return self.tests.own_losses(self.rows, self.counts, weights, self._centre)

    @property
    def _centre(self) -> FloatArray:
        return self.space.spectrum.centre

    def _feature_weights(self, directions: FloatArray) -> FloatArray:
        """Coefficients on the original features, shape (..., d), whose scores equal those of `directions`."""
        return directions if self.metric is None else directions @ self.metric.inverse_factor.T

    def _all_excluded(self, excluded: FoldEstimates) -> list[Subspace]:
        return [self.removed_before.beside(subspace) for subspace in excluded.subspaces]


def _unit_directions(pairs: Sequence[Pair], excluded: Sequence[Subspace]) -> FloatArray:
    """Unit directions, shape (2, estimates, d), orthogonal to each other and to `excluded` to machine precision."""
    found = [
        directions_of(replace(pair, weights=subspace.reject(directions_of(pair).T).T))
        for pair, subspace in zip(pairs, excluded, strict=True)
    ]
    return np.stack(found, axis=1)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Both subspaces, the steps, and why the search ended."""

    spurious: Subspace
    main: Subspace
    steps: tuple[Step, ...]
    stopped: str
    #: Whether a test ended the search, and not the limit on pairs.
    complete: bool = True
    #: The spurious subspace in every estimate.
    spurious_estimates: FoldEstimates | None = None


@dataclass(slots=True)
class Search:
    """The two loops, and what they have found so far.

    Parameters
    ----------
    inner, candidate : role whose directions the inner loop finds, and which of its pairs supplies the next direction of
        the outer role.
    limits : most directions of each role.
    split_level : whether the level bounds the error of all tests together. A loop stops at its first rejection, so its
        error is that of one test, however long it is. The outer loop gets half of the level. The inner loop restarts in
        every round T and gets 1/(2T(T + 1)) of it there; these shares add up to the other half.
    first_guess : a rough estimate of the first pair, or None.
    """

    joint: JointEstimation
    progress: Progress
    inner: Role
    candidate: Literal["last_accepted", "failing"]
    limits: dict[Role, int]
    split_level: bool
    first_guess: EstimatedPair | None = None
    steps: list[Step] = field(default_factory=list)
    pairs_left: int = field(default_factory=lambda: MAX_PAIRS)
    complete: bool = True

    def run(self) -> SearchResult:
        """Accept directions of the outer role, one after each inner loop, until one is not proper."""
        inner, outer = self.inner, OTHER_ROLE[self.inner]
        limit, outer_round = self.limits[outer], 1
        accepted = {inner: self.joint.empty, outer: self.joint.empty}
        guesses = [] if self.first_guess is None else [self.first_guess]
        stopped = f"the limit of {limit} {outer} directions is reached"
        while outer_round == 1 or accepted[outer].dim < limit:
            found, candidate, guesses = self._inner_loop(accepted[outer], outer_round, guesses)
            if outer_round == 1:
                accepted[inner] = found
            if limit == 0:  # only the inner role is wanted
                break
            if candidate is None:
                stopped = "fewer than two free dimensions are left"
                break
            verdict = self._test(outer, candidate, outer_round, 0)
            if not verdict.proper:
                stopped = f"the next {outer} direction {verdict.reason}"
                break
            direction = found.project_off(candidate.directions[LABEL[outer]])
            accepted[outer] = accepted[outer].with_directions(direction)
            accepted[inner] = found  # kept only if the outer direction is accepted
            self.complete = self.complete and (self.pairs_left > 0 or accepted[outer].dim >= limit)
            if not self.complete:
                break
            outer_round = accepted[outer].dim + 1
        if not self.complete:
            stopped = f"the limit of {MAX_PAIRS} pairs is reached in round {max(1, accepted[outer].dim)}"
        spurious, main = accepted["spurious"], accepted["main"]
        return SearchResult(spurious.full_data, main.full_data, tuple(self.steps), stopped, self.complete, spurious)

    def _inner_loop(
        self, excluded: FoldEstimates, outer_round: int, guesses: list[EstimatedPair]
    ) -> tuple[FoldEstimates, EstimatedPair | None, list[EstimatedPair]]:
        """Directions of the inner role that are accepted before one is not, the outer candidate, and all pairs.

        A pair is estimated near the one at its place in the previous round, `guesses`, for the inner role, and near the
        pair before it for the other role.
        """
        accepted, candidate, pairs = self.joint.empty, None, list[EstimatedPair]()
        while self.complete and self.joint.n_free(excluded) >= 2:
            at_limit = accepted.dim >= self.limits[self.inner]
            if at_limit and candidate is not None and self.candidate == "last_accepted":
                break
            self.progress(self.inner, outer_round, accepted.dim + 1)
            guess = guesses[len(pairs)] if len(pairs) < len(guesses) else None
            before = pairs[-1] if pairs else guess
            pair = self.joint.pair(excluded, (before, guess) if self.inner == "main" else (guess, before))
            pairs.append(pair)
            self.pairs_left -= 1
            if candidate is None or self.candidate == "failing":
                candidate = pair
            if at_limit or not self._test(self.inner, pair, outer_round, accepted.dim + 1).proper:
                break
            candidate, directions = pair, pair.directions[LABEL[self.inner]]
            accepted, excluded = accepted.with_directions(directions), excluded.with_directions(directions)
            self.complete = self.pairs_left > 0
        return accepted, candidate, pairs

    def _test(self, role: Role, pair: EstimatedPair, outer_round: int, step: int) -> Verdict:
        """The verdict on a pair's direction, which becomes a step of the trace."""
        share = 1.0
        if self.split_level:
            share = 0.5 / (outer_round * (outer_round + 1)) if role == self.inner else 0.5
        verdict = self.joint.test(role, pair, share)
        self.steps.append(Step(outer_round, step, verdict, pair.outcome.evaluations, pair.outcome.reason))
        return verdict
