"""Joint estimation of a spurious and a main-task subspace: the two nested loops (paper algorithms 1 and 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from unspur._typing import FloatArray
from unspur.criteria import LABEL, DirectionTests, Role, Verdict
from unspur.rows import RowSource
from unspur.solvers.orthogonal_pair import directions, solve_pair
from unspur.solvers.outcome import Outcome, Pair
from unspur.solvers.sgd import SGDSettings, solve_pair_by_sgd
from unspur.solvers.whitening import Whitening
from unspur.subspace import Subspace
from unspur.sums.counts import Balance, CellCounts
from unspur.trace import Step

_OWN_SERIES: tuple[tuple[Role, str], ...] = (("spurious", "concept"), ("main", "main"))
OTHER: dict[Role, Role] = {"spurious": "main", "main": "spurious"}


class PairSolver(Protocol):
    """Solves for a pair away from a subspace, without the rows of one fold (None: with all rows)."""

    def __call__(self, away_from: Subspace, without_fold: int | None, start: Pair | None) -> Pair:
        """Solve; `start` is the pair of all rows when a fold is left out."""

    def room(self, away_from: Subspace) -> int:
        """Free dimensions left for a pair."""


@dataclass(frozen=True, slots=True)
class ExactSolver:
    """`solvers.orthogonal_pair` on these rows."""

    rows: RowSource
    counts: CellCounts
    whitening: Whitening
    balance: Balance
    tol: float
    max_iter: int

    def __call__(self, away_from: Subspace, without_fold: int | None, start: Pair | None) -> Pair:
        """Solve for a pair; from `start` in its basin when given."""
        weighting = self.counts.weighting(self.counts.without(without_fold), self.balance)
        allowed = self.whitening.away_from(away_from)
        pair = solve_pair(
            self.rows,
            weighting,
            allowed,
            start=start,
            search=start is None,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        pair.outcome.warn_unless_converged()
        return pair

    def room(self, away_from: Subspace) -> int:
        """Free dimensions left for a pair."""
        return self.whitening.away_from(away_from).freedom


@dataclass(frozen=True, slots=True)
class SGDSolver:
    """`solvers.sgd` on these rows; early stopping watches the fold that is left out (fold 1 when none is)."""

    rows: RowSource
    counts: CellCounts
    whitening: Whitening
    balance: Balance
    settings: SGDSettings
    rng: np.random.Generator

    def __call__(self, away_from: Subspace, without_fold: int | None, start: Pair | None) -> Pair:  # noqa: ARG002
        """Solve for a pair, always from the paper's first weights."""
        watched = without_fold or 1
        weighting = self.counts.weighting(self.counts.without(watched), self.balance)
        validation = self.counts.weighting(self.counts.only(watched), self.balance)
        return solve_pair_by_sgd(
            self.rows,
            weighting,
            validation,
            self.whitening.geometry.centre,
            away_from,
            self.settings,
            self.rng,
        )

    def room(self, away_from: Subspace) -> int:
        """Free dimensions left for a pair."""
        return self.whitening.away_from(away_from).freedom


@dataclass(frozen=True, slots=True)
class EstimatedPair:
    """Unit directions (2, d) to be returned, and those to be judged on each fold, (2, folds, d)."""

    directions: FloatArray
    judged: FloatArray
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class JointEstimation:
    """Everything a fit needs to estimate pairs and judge directions."""

    rows: RowSource
    counts: CellCounts
    solver: PairSolver
    tests: DirectionTests
    centre: FloatArray

    def pair(self, away_from: Subspace) -> EstimatedPair:
        """Estimate a pair in the complement of `away_from`.

        With one fold the rows of that fold judge the pair estimated from the others. With several, the pair to be
        returned comes from all rows and is re-estimated without each fold for the rows of that fold to judge.
        """
        if self.counts.n_folds == 1:
            pair = self.solver(away_from, 1, None)
            found = _exactly_orthogonal(pair, away_from)
            return EstimatedPair(found, found[:, None, :], pair.outcome)
        pair = self.solver(away_from, None, None)
        found = _exactly_orthogonal(pair, away_from)
        # From an unfinished pair the folds would inherit what it knows of the rows that are to judge them.
        start = pair if pair.outcome.converged else None
        folds = [self.solver(away_from, k, start) for k in range(1, self.counts.n_folds + 1)]
        judged = np.stack([_exactly_orthogonal(fold, away_from) for fold in folds], axis=1)
        evaluations = sum(p.outcome.evaluations for p in (pair, *folds))
        return EstimatedPair(found, judged, replace(pair.outcome, evaluations=evaluations))

    def judge(self, role: Role, pair: EstimatedPair) -> Verdict:
        """Decide whether the pair's direction of this role is proper."""
        losses = self.tests.losses(self.rows, self.counts, pair.judged[LABEL[role]], self.centre, role)
        return self.tests.judge(role, losses)

    def loss(self, pair: EstimatedPair, combine: Callable[[float, float], float]) -> tuple[float, float]:
        """Combined held-out loss of both labels along their own directions, and its standard error.

        The two losses are treated as independent.
        """
        concept, main = (
            self.tests.summarise(
                self.tests.losses(self.rows, self.counts, pair.judged[LABEL[role]], self.centre, role), name
            )
            for role, name in _OWN_SERIES
        )
        return combine(concept[0], main[0]), float(np.hypot(concept[1], main[1]))


def _exactly_orthogonal(pair: Pair, away_from: Subspace) -> FloatArray:
    """Unit directions of a pair, orthogonal to each other and to `away_from` to machine precision."""
    return directions(replace(pair, weights=away_from.reject(directions(pair).T).T))


@dataclass(frozen=True, slots=True)
class Loops:
    """Shape of the search: which role is peeled in the inner loop, whose pair supplies the outer candidate, limits."""

    inner: Role = "main"
    candidate: Literal["last_accepted", "failing"] = "last_accepted"
    max_dim: tuple[int, int] = (2**31, 2**31)  # spurious, main

    def limit(self, role: Role) -> int:
        """Largest dimension of the role's subspace."""
        return self.max_dim[LABEL[role]]


@dataclass(frozen=True, slots=True)
class Subspaces:
    """Result of the loops."""

    spurious: Subspace
    main: Subspace
    steps: tuple[Step, ...]
    stopped: str


@dataclass(frozen=True, slots=True)
class Peeled:
    """Result of an inner loop: accepted directions of the inner role, and the pair whose other direction comes next."""

    accepted: Subspace
    candidate: EstimatedPair | None
    steps: tuple[Step, ...]


def estimate_subspaces(joint: JointEstimation, loops: Loops, report: Callable[[Role, int, int], None]) -> Subspaces:
    """Run both loops. `report(role, outer, inner)` is called before every pair, for a progress bar."""
    inner, outer = loops.inner, OTHER[loops.inner]
    found = {inner: Subspace.empty(joint.rows.n_features), outer: Subspace.empty(joint.rows.n_features)}
    steps: list[Step] = []
    stopped = f"the limit of {loops.limit(outer)} {outer} directions is reached"
    while found[outer].dim < loops.limit(outer):
        turn = found[outer].dim + 1
        peeled = _peel(joint, loops, found[outer], turn, report)
        steps += peeled.steps
        if turn == 1:
            found[inner] = peeled.accepted
        if peeled.candidate is None:
            stopped = "fewer than two free dimensions are left"
            break
        verdict = joint.judge(outer, peeled.candidate)
        steps.append(_step(turn, 0, verdict, peeled.candidate.outcome))
        if not verdict.proper:
            stopped = f"the next {outer} direction {verdict.reason}"
            break
        direction = peeled.accepted.reject(peeled.candidate.directions[LABEL[outer]])
        found[outer] = found[outer].with_direction(direction)
        found[inner] = peeled.accepted  # kept only when the outer direction is accepted
    return Subspaces(found["spurious"], found["main"], tuple(steps), stopped)


def _peel(
    joint: JointEstimation,
    loops: Loops,
    away_from: Subspace,
    turn: int,
    report: Callable[[Role, int, int], None],
) -> Peeled:
    """Inner loop: accept directions of the inner role, one pair at a time, until one is not proper."""
    accepted = Subspace.empty(away_from.ambient)
    candidate: EstimatedPair | None = None
    steps: list[Step] = []
    forbidden = away_from
    while joint.solver.room(forbidden) >= 2:
        full = accepted.dim >= loops.limit(loops.inner)
        if full and candidate is not None and loops.candidate == "last_accepted":
            break
        report(loops.inner, turn, accepted.dim + 1)
        pair = joint.pair(forbidden)
        if candidate is None or loops.candidate == "failing":
            candidate = pair
        if full:
            break
        verdict = joint.judge(loops.inner, pair)
        steps.append(_step(turn, accepted.dim + 1, verdict, pair.outcome))
        if not verdict.proper:
            break
        candidate = pair
        direction = pair.directions[LABEL[loops.inner]]
        accepted, forbidden = accepted.with_direction(direction), forbidden.with_direction(direction)
    return Peeled(accepted, candidate, tuple(steps))


def _step(outer: int, inner: int, verdict: Verdict, outcome: Outcome) -> Step:
    return Step(outer, inner, verdict, outcome.evaluations, outcome.reason)
