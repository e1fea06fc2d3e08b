"""The exact solver for one pair of orthogonal directions (paper eq. 2 and appendix C.1), for many pairs at once.

::

    minimise    Σ ω_i [ ℓ(z_i·w_s + b_s, s_i) + ℓ(z_i·w_y + b_y, y_i) ]  +  λ/2 (‖w_s‖² + ‖w_y‖²)
    over        w_s, w_y in the allowed subspace,  w_s · w_y = 0,  b_s, b_y free

Each problem starts from the global solution of its quadratic model (`pair_model`) and descends (`pair_descent`).
Problems that differ in their row weights and in what they stay away from are solved side by side: one visit of the rows
answers all that are still asking, at little more than the price of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from unspur._typing import BoolArray, FloatArray
from unspur.exceptions import InputError
from unspur.rows import CONCEPT, MAIN, RowSource, Weighting
from unspur.solvers.descent import Descended
from unspur.solvers.outcome import LocalModel, Outcome, Pair, outcome_of, rounding_error
from unspur.solvers.pair_descent import Asking, descend_pair
from unspur.solvers.pair_model import QUARTER, PairModel, best_of_model, retract
from unspur.solvers.spectrum import PairSpace, Spectrum
from unspur.sums.logistic import LogisticLosses

#: Gradient at zero weights, under the inverse Hessian there, below which a label has no trace in the rows: what there
#: is to gain, its square, is below the rounding error of the objective.
TRACE = 1e-7
#: Relative gradient to which the two starts of a hard case are followed before one is dropped.
RACE = 1e-2
BOTH = np.array([CONCEPT, MAIN])
#: Solutions of neighbouring problems, for the concept and for the main label.
Near: TypeAlias = tuple[Pair | None, Pair | None]


@dataclass(frozen=True, slots=True)
class PairLosses:
    """Losses of both labels and their gradients in flat coordinates ``(a_s, a_y, b_s, b_y)``, for t weightings."""

    rows: RowSource
    spectrum: Spectrum
    weightings: tuple[Weighting, ...]

    def __call__(self, x: FloatArray, which: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Losses (m, 2) and gradients (m, 2r + 2) at points x (m, 2r + 2), under the weightings `which`: one visit."""
        m, r = len(x), len(self.spectrum.variance)
        weights = self.spectrum.weights(x[:, :-2].reshape(m, 2, r))
        factors = np.array([self.weightings[k].factor for k in which])
        statistic = LogisticLosses(weights, x[:, -2:], BOTH, factors, self.spectrum.centre, self.spectrum.far_from_zero)
        sums = self.rows.sum(statistic)
        gradient = self.spectrum.gradient(sums[..., 2:]).reshape(m, 2 * r)
        return sums[..., 0], np.concatenate([gradient, sums[..., 1]], axis=1)

    def at_zero(self) -> tuple[FloatArray, FloatArray]:
        """The same at zero weights: chance, and minus the class-mean differences, which every start is made from."""
        t = len(self.weightings)
        return self(np.zeros((t, 2 * len(self.spectrum.variance) + 2)), range(t))


def solve_pair(
    rows: RowSource,
    weighting: Weighting,
    space: PairSpace,
    *,
    start: Pair | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> Pair:
    """Orthogonal weights for both labels inside what `space` allows; see `solve_pairs`."""
    losses = PairLosses(rows, space.spectrum, (weighting,))
    return solve_pairs(losses, [space], losses.at_zero(), starts=[start], tol=tol, max_iter=max_iter)[0]


def solve_pairs(
    losses: PairLosses,
    spaces: Sequence[PairSpace],
    at_zero: tuple[FloatArray, FloatArray],
    *,
    starts: Sequence[Pair | None] | None = None,
    near: Sequence[Near] | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> list[Pair]:
    """One pair for each weighting of `losses`, inside what its space allows.

    Parameters
    ----------
    at_zero : what ``losses.at_zero()`` returned.
    starts : where to start instead of at the solution of the quadratic model.
    near : for each weighting and each label, the solution of a problem that differs in its weight decay or in
        directions to stay away from; they make the model a better one.
    tol : bound on the norm of the Lagrangian gradient, relative to the gradient at zero weights.

    Non-convergence is an outcome with a reason; the weights are then those of the last iterate.
    """
    found: list[Pair | None] = [None] * len(spaces)
    asking: dict[int, tuple[Asking, float]] = {}
    dtype, d = losses.rows.dtype, losses.rows.n_features
    rounding = rounding_error(dtype)
    for k, space in enumerate(spaces):
        require_room(space.freedom, d)
        chance, slopes = float(at_zero[0][k].sum()), at_zero[1][k].copy()
        r = len(space.spectrum.variance)
        slopes[:-2] = space.allow(slopes[:-2].reshape(2, r)).ravel()
        downhill = slopes * PairModel(space, np.full(2, QUARTER)).solve(slopes)
        traced = np.sqrt(downhill[:-2].reshape(2, r).sum(axis=1)) > TRACE
        if not traced.any():
            outcome = Outcome(True, "no label has a linear trace in these rows", chance, 0.0, 1)
            found[k] = Pair(np.zeros((2, d)), np.zeros(2), outcome)
            continue
        models = [None if pair is None else pair.local for pair in (near[k] if near is not None else (None, None))]
        begin = _starts(space, slopes, traced, None if starts is None else starts[k], models)
        scale = float(np.sqrt(downhill.sum()))
        asking[k] = (_lowest(space, begin, traced, (tol * scale, rounding * scale, RACE * scale), max_iter), scale)
    answered = _answer_all(losses, {k: descent for k, (descent, _) in asking.items()})
    for k, ((end, local), evaluations) in answered.items():
        scale, space = asking[k][1], spaces[k]
        outcome = outcome_of(end, tol * scale, scale, dtype, evaluations)
        weights = space.spectrum.weights(end.x[:-2].reshape(2, -1))
        found[k] = Pair(weights, end.x[-2:], outcome, local)
    return [pair for pair in found if pair is not None]


def _starts(
    space: PairSpace, slopes: FloatArray, traced: BoolArray, given: Pair | None, near: Sequence[LocalModel | None]
) -> list[FloatArray]:
    """Flat points that satisfy the constraints; labels without a trace have weights zero."""
    if given is not None:
        x = np.concatenate([space.coordinates(given.weights).ravel(), given.intercepts])
        exact = retract(x, PairModel(space, np.full(2, QUARTER)))
        if exact is not None:
            return [exact]
    if traced.all():
        return best_of_model(space, slopes, near)
    moving = np.concatenate([np.repeat(traced.astype(np.float64), len(slopes) // 2 - 1), np.ones(2)])
    return [-moving * PairModel(space, np.full(2, QUARTER)).solve(slopes * moving)]


def _lowest(
    space: PairSpace, starts: list[FloatArray], traced: BoolArray, bounds: tuple[float, float, float], max_iter: int
) -> Asking:
    """Descend from the start that leads lowest; of two, both are followed until the gradient is below a looser bound.

    `bounds` on the gradient: for the end, of its rounding error, and for the choice.
    """
    gtol, rounding, race = bounds
    if len(starts) > 1:
        first, _ = yield from descend_pair(space, starts[0], traced, max(race, gtol), rounding, max_iter)
        second, _ = yield from descend_pair(space, starts[1], traced, max(race, gtol), rounding, max_iter)
        starts = [first.x if first.value <= second.value else second.x]
    return (yield from descend_pair(space, starts[0], traced, gtol, rounding, max_iter))


def _answer_all(losses: PairLosses, descents: dict[int, Asking]) -> dict[int, tuple[tuple[Descended, LocalModel], int]]:
    """Drive descents side by side to their ends: what each returned, and after how many evaluations."""
    ends: dict[int, tuple[tuple[Descended, LocalModel], int]] = {}
    questions = {k: next(descent) for k, descent in descents.items()}
    rounds = 0
    while questions:
        rounds += 1
        which = list(questions)
        values, gradients = losses(np.stack(list(questions.values())), which)
        questions = {}
        for k, value, gradient in zip(which, values, gradients, strict=True):
            try:
                questions[k] = descents[k].send((value, gradient))
            except StopIteration as done:
                ends[k] = (done.value, rounds)
    return ends


def require_room(freedom: int, n_features: int) -> None:
    """Raise InputError unless two orthogonal directions fit into what is free."""
    if freedom < 2:
        raise InputError(
            f"A pair of directions needs two free dimensions, and {freedom} of {n_features} are left. Features that "
            "are constant or sums of others count for nothing, and so do those so much smaller than the largest that "
            "they cannot be told from rounding: rescale Z if that is the case."
        )


def directions(pair: Pair) -> FloatArray:
    """Unit directions v_s, v_y of a pair, shape (2, d), orthogonal to machine precision; zero for zero weights."""
    v_s = _unit(pair.weights[CONCEPT])
    return np.stack([v_s, _unit(pair.weights[MAIN] - v_s * (v_s @ pair.weights[MAIN]))])


def _unit(vector: FloatArray) -> FloatArray:
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else vector
