"""Joint estimation of a spurious and a main-task subspace: the two nested loops (paper algorithms 1 and 2).

With K folds everything is estimated K + 1 times side by side, in `Tracks`: once from all rows, which is what is
returned, and once without each fold, which is what the rows of that fold judge. A track removes its own directions
only, so nothing that is judged has ever seen its judge. (Were the directions of all rows removed in every track,
the held-out rows would have lost what they have in common with the others, and later directions would look worse than
they are.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from unspur._typing import FloatArray
from unspur.criteria import LABEL, DirectionTests, Role, Verdict
from unspur.removers.metric import Metric
from unspur.rows import CONCEPT, MAIN, RowSource
from unspur.solvers.held_out_losses import GroupLosses
from unspur.solvers.orthogonal_pair import Near, Pair, PairLosses, PairSpace, solve_pairs
from unspur.solvers.orthogonal_pair import directions as directions_of
from unspur.solvers.outcome import Outcome
from unspur.solvers.sgd import SGDSettings, solve_pair_by_sgd
from unspur.solvers.statistics import Balance, CellCounts
from unspur.subspace import Subspace
from unspur.trace import Step

_OWN_SERIES: tuple[tuple[Role, str], ...] = (("spurious", "concept"), ("main", "main"))
OTHER: dict[Role, Role] = {"spurious": "main", "main": "spurious"}


class PairSolver(Protocol):
    """Solves for a pair in every track, each away from a subspace of its own."""

    def __call__(self, away_from: Sequence[Subspace], near: Sequence[Near] | None = None) -> list[Pair]:
        """Solve; solutions of neighbouring problems save time."""

    def room(self, away_from: Subspace) -> int:
        """Free dimensions left for a pair."""


def left_out(n_folds: int) -> tuple[int | None, ...]:
    """Fold that each track does not see: none for the first, then each in turn; one track for one fold."""
    return (1,) if n_folds == 1 else (None, *range(1, n_folds + 1))


@dataclass(frozen=True, slots=True)
class ExactSolver:
    """`solvers.orthogonal_pair`, all tracks side by side; `at_zero` is what ``losses.at_zero()`` returned."""

    losses: PairLosses
    at_zero: tuple[FloatArray, FloatArray]
    space: PairSpace
    tol: float
    max_iter: int

    def __call__(self, away_from: Sequence[Subspace], near: Sequence[Near] | None = None) -> list[Pair]:
        """Solve for all pairs."""
        spaces = [self.space.away_from(subspace) for subspace in away_from]
        pairs = solve_pairs(self.losses, spaces, self.at_zero, near=near, tol=self.tol, max_iter=self.max_iter)
        for pair in pairs:
            pair.outcome.warn_unless_converged()
        return pairs

    def room(self, away_from: Subspace) -> int:
        """Free dimensions left for a pair."""
        return self.space.away_from(away_from).freedom

    def alone(self, label: int, away_from: Sequence[Subspace]) -> list[Pair]:
        """Solve for one label, unconstrained: with slopes of zero for the other, whose weights then stay zero."""
        chance, slopes = self.at_zero
        r = len(self.space.spectrum.variance)
        only = slopes.copy()
        only[:, (1 - label) * r : (2 - label) * r] = 0.0
        return replace(self, at_zero=(chance, only))(away_from)


@dataclass(frozen=True, slots=True)
class SGDSolver:
    """`solvers.sgd` on these rows; early stopping watches the fold that is left out (fold 1 when none is)."""

    rows: RowSource
    counts: CellCounts
    space: PairSpace
    balance: Balance
    settings: SGDSettings
    rng: np.random.Generator
    root: FloatArray | None = None

    def __call__(self, away_from: Sequence[Subspace], near: Sequence[Near] | None = None) -> list[Pair]:
        """Solve for one pair after the other from the paper's first weights."""
        del near
        tracks = zip(away_from, left_out(self.counts.n_folds), strict=True)
        return [self._pair(subspace, fold or 1) for subspace, fold in tracks]

    def _pair(self, away_from: Subspace, watched: int) -> Pair:
        weighting = self.counts.weighting(self.counts.without(watched), self.balance)
        validation = self.counts.weighting(self.counts.only(watched), self.balance)
        centre = self.space.spectrum.centre
        pair = solve_pair_by_sgd(
            self.rows, weighting, validation, centre, away_from, self.settings, self.rng, self.root
        )
        pair.outcome.warn_unless_converged()
        return pair

    def room(self, away_from: Subspace) -> int:
        """Free dimensions left for a pair."""
        return self.space.away_from(away_from).freedom


@dataclass(frozen=True, slots=True)
class Tracks:
    """The same subspace estimated from different rows: from all, then without each fold; one track for one fold."""

    subspaces: tuple[Subspace, ...]

    @classmethod
    def empty(cls, ambient: int, n_folds: int) -> Tracks:
        """No directions yet."""
        return cls((Subspace.empty(ambient),) * len(left_out(n_folds)))

    @property
    def returned(self) -> Subspace:
        """The estimate that the fit returns."""
        return self.subspaces[0]

    @property
    def dim(self) -> int:
        """Dimension of the estimate that the fit returns."""
        return self.returned.dim

    def with_directions(self, directions: FloatArray) -> Tracks:
        """One more direction in each track, shape (tracks, d); zeros, where a fold found none, add nothing."""
        pairs = zip(self.subspaces, directions, strict=True)
        return Tracks(tuple(s.with_direction(v) if np.any(v) else s for s, v in pairs))

    def reject(self, directions: FloatArray) -> FloatArray:
        """What is left of each track's direction, shape (tracks, d), outside its subspace."""
        return np.stack([s.reject(v) for s, v in zip(self.subspaces, directions, strict=True)])


@dataclass(frozen=True, slots=True)
class EstimatedPair:
    """Unit directions of both labels in every track, shape (2, tracks, d), and the solutions they come from."""

    directions: FloatArray
    outcome: Outcome
    solved: tuple[Pair, ...] | None = None

    def judged(self, role: Role) -> FloatArray:
        """Directions of a role for the rows of each fold to judge, shape (folds, d)."""
        tracks = self.directions[LABEL[role]]
        return np.asarray(tracks if len(tracks) == 1 else tracks[1:])


@dataclass(frozen=True, slots=True)
class JointEstimation:
    """Everything a fit needs to estimate pairs and judge directions."""

    rows: RowSource
    counts: CellCounts
    solver: PairSolver
    tests: DirectionTests
    centre: FloatArray
    #: Removed before, for another concept: out of bounds for every pair.
    gone: Subspace
    #: A rough estimate of the first pair, where there is one.
    rough: EstimatedPair | None = None
    #: Coordinates of all directions here, where they are not those of the rows.
    metric: Metric | None = None

    @property
    def nothing(self) -> Tracks:
        """Tracks without any direction."""
        return Tracks.empty(self.rows.n_features, self.counts.n_folds)

    def pair(self, away_from: Tracks, near: dict[int, EstimatedPair | None] | None = None) -> EstimatedPair:
        """Estimate a pair in every track, in the complement of what it is to stay away from.

        `near`, for each label, was estimated with other directions to stay away from, or another weight decay.
        """
        forbidden = [self.gone.beside(subspace) for subspace in away_from.subspaces]
        pairs = self.solver(forbidden, None if near is None else _for_each_track(near, len(forbidden)))
        found = np.stack([_exactly_orthogonal(p, s) for p, s in zip(pairs, forbidden, strict=True)], axis=1)
        # Where there is no direction to return there is none to judge, whatever the folds found.
        found[~np.any(found[:, 0], axis=1)] = 0.0
        evaluations = max(pair.outcome.evaluations for pair in pairs)  # all tracks share each visit of the rows
        return EstimatedPair(found, replace(pairs[0].outcome, evaluations=evaluations), tuple(pairs))

    def alone(self, label: int, away_from: Tracks) -> EstimatedPair:
        """Estimate the best direction of one label in every track; that of the other is zero."""
        assert isinstance(self.solver, ExactSolver)
        forbidden = [self.gone.beside(subspace) for subspace in away_from.subspaces]
        pairs = self.solver.alone(label, forbidden)
        found = np.stack([_exactly_orthogonal(p, s) for p, s in zip(pairs, forbidden, strict=True)], axis=1)
        return EstimatedPair(found, pairs[0].outcome, tuple(pairs))

    def room(self, away_from: Tracks) -> int:
        """Free dimensions left for a pair in every track."""
        return min(self.solver.room(self.gone.beside(subspace)) for subspace in away_from.subspaces)

    def judge(self, role: Role, pair: EstimatedPair, share: float) -> Verdict:
        """Decide whether the pair's direction of this role is proper, at a share of the level."""
        tests = replace(self.tests, significance_level=share * self.tests.significance_level)
        return tests.judge(role, self._losses(pair.judged(role), tests), self.counts.keys)

    def loss(self, pair: EstimatedPair, combine: Callable[[float, float], float]) -> tuple[float, float]:
        """Combined held-out loss of both labels along their own directions, and its standard error.

        The two losses are treated as independent.
        """
        concept, main = (
            self.tests.summarise(self._losses(pair.judged(role), self.tests), name) for role, name in _OWN_SERIES
        )
        return combine(concept.mean, main.mean), float(np.hypot(concept.error, main.error))

    def task_loss(self, away_from: Tracks) -> tuple[float, float]:
        """Held-out loss of the main label without a subspace, by the best direction that is left; and its error."""
        best = self.alone(MAIN, away_from)
        summary = self.tests.summarise(self._losses(best.judged("main"), self.tests), "main")
        return summary.mean, summary.error

    def row_weights(self, directions: FloatArray) -> FloatArray:
        """The weights on rows, shape (..., d), that directions are read by."""
        return directions if self.metric is None else self.metric.read_by(directions)

    def _losses(self, directions: FloatArray, tests: DirectionTests) -> GroupLosses:
        return tests.losses(self.rows, self.counts, self.row_weights(directions), self.centre)


def _for_each_track(near: dict[int, EstimatedPair | None], tracks: int) -> list[Near]:
    """Solutions to start near, track by track, for the concept and for the main label."""
    nothing = (None,) * tracks
    concept, main = (nothing if (pair := near[k]) is None else pair.solved or nothing for k in (CONCEPT, MAIN))
    return list(zip(concept, main, strict=True))


def _exactly_orthogonal(pair: Pair, away_from: Subspace) -> FloatArray:
    """Unit directions of a pair, orthogonal to each other and to `away_from` to machine precision."""
    return directions_of(replace(pair, weights=away_from.reject(directions_of(pair).T).T))


@dataclass(frozen=True, slots=True)
class Loops:
    """Shape of the search: which role is peeled in the inner loop, whose pair supplies the outer candidate, limits.

    With `spend`, the level is for all looks together. A loop ends at its first failure, so however long it is, it
    accepts a wrong direction with no more than the chance of its first wrong one. The outer loop is one such sequence
    and gets half of the level; the inner loop starts anew in every turn T and gets 1/(2T(T + 1)) of it, which adds up
    to the rest.
    """

    inner: Role = "main"
    candidate: Literal["last_accepted", "failing"] = "last_accepted"
    max_dim: tuple[int, int] = (2**31, 2**31)  # spurious, main
    spend: bool = False
    #: Most pairs that are estimated in all rounds together.
    max_pairs: int = 2**31

    def share(self, role: Role, turn: int) -> float:
        """Share of the level that a test of this role may spend."""
        if not self.spend:
            return 1.0
        return 0.5 / (turn * (turn + 1)) if role == self.inner else 0.5

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
    #: Whether a test ended the search, and not the limit on pairs.
    complete: bool = True
    #: The spurious subspace of every track.
    tracks: Tracks | None = None


@dataclass(frozen=True, slots=True)
class Peeled:
    """Result of an inner loop: accepted directions of the inner role, and the pair whose other direction comes next."""

    accepted: Tracks
    candidate: EstimatedPair | None
    steps: tuple[Step, ...]
    pairs: tuple[EstimatedPair, ...]
    complete: bool = True


def estimate_subspaces(joint: JointEstimation, loops: Loops, report: Callable[[Role, int, int], None]) -> Subspaces:
    """Run both loops. `report(role, outer, inner)` is called before every pair, for a progress bar."""
    inner, outer = loops.inner, OTHER[loops.inner]
    found = {inner: joint.nothing, outer: joint.nothing}
    steps: list[Step] = []
    stopped = f"the limit of {loops.limit(outer)} {outer} directions is reached"
    pairs: tuple[EstimatedPair, ...] = () if joint.rough is None else (joint.rough,)
    complete, left = True, loops.max_pairs
    if loops.limit(outer) == 0:  # the inner role is wanted all the same
        peeled = _peel(joint, loops, found[outer], 1, report, pairs, left)
        found[inner], steps, complete = peeled.accepted, list(peeled.steps), peeled.complete
    while found[outer].dim < loops.limit(outer):
        turn = found[outer].dim + 1
        peeled = _peel(joint, loops, found[outer], turn, report, pairs, left)
        steps += peeled.steps
        pairs, complete = peeled.pairs, peeled.complete
        left -= len(pairs)
        if turn == 1:
            found[inner] = peeled.accepted
        if peeled.candidate is None:
            stopped = "fewer than two free dimensions are left"
            break
        verdict = joint.judge(outer, peeled.candidate, loops.share(outer, turn))
        steps.append(_step(turn, 0, verdict, peeled.candidate.outcome))
        if not verdict.proper:
            stopped = f"the next {outer} direction {verdict.reason}"
            break
        directions = peeled.accepted.reject(peeled.candidate.directions[LABEL[outer]])
        found[outer] = found[outer].with_directions(directions)
        found[inner] = peeled.accepted  # kept only when the outer direction is accepted
        complete = complete and (left > 0 or found[outer].dim >= loops.limit(outer))
        if not complete:
            break
    if not complete:
        stopped = f"the limit of {loops.max_pairs} pairs is reached in round {max(1, found[outer].dim)}"
    return Subspaces(
        found["spurious"].returned, found["main"].returned, tuple(steps), stopped, complete, found["spurious"]
    )


def _peel(
    joint: JointEstimation,
    loops: Loops,
    away_from: Tracks,
    turn: int,
    report: Callable[[Role, int, int], None],
    before: tuple[EstimatedPair, ...],
    most: int,
) -> Peeled:
    """Inner loop: accept directions of the inner role, one pair at a time, until one is not proper.

    A pair is near the one of the same place in the loop `before` in the weights of the inner role, and near the one
    before it in those of the other. No more than `most` pairs are estimated, and at least one.
    """
    accepted = joint.nothing
    candidate: EstimatedPair | None = None
    pairs: list[EstimatedPair] = []
    steps: list[Step] = []
    forbidden = away_from
    while joint.room(forbidden) >= 2:
        full = accepted.dim >= loops.limit(loops.inner)
        if full and candidate is not None and loops.candidate == "last_accepted":
            break
        report(loops.inner, turn, accepted.dim + 1)
        earlier = before[len(pairs)] if len(pairs) < len(before) else None
        own, other = LABEL[loops.inner], LABEL[OTHER[loops.inner]]
        pair = joint.pair(forbidden, {own: earlier, other: pairs[-1] if pairs else earlier})
        pairs.append(pair)
        if candidate is None or loops.candidate == "failing":
            candidate = pair
        if full:
            break
        verdict = joint.judge(loops.inner, pair, loops.share(loops.inner, turn))
        steps.append(_step(turn, accepted.dim + 1, verdict, pair.outcome))
        if not verdict.proper:
            break
        candidate = pair
        directions = pair.directions[LABEL[loops.inner]]
        accepted, forbidden = accepted.with_directions(directions), forbidden.with_directions(directions)
        if len(pairs) >= most:
            return Peeled(accepted, candidate, tuple(steps), tuple(pairs), complete=False)
    return Peeled(accepted, candidate, tuple(steps), tuple(pairs))


def _step(outer: int, inner: int, verdict: Verdict, outcome: Outcome) -> Step:
    return Step(outer, inner, verdict, outcome.evaluations, outcome.reason)
