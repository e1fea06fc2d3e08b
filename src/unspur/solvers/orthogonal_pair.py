"""The exact solver for one pair of orthogonal directions (paper eq. 2 and appendix C.1).

::

    minimise    Σ ω_i [ ℓ(z_i·w_s + b_s, s_i) + ℓ(z_i·w_y + b_y, y_i) ]  +  λ/2 (‖w_s‖² + ‖w_y‖²)
    over        w_s, w_y in the allowed subspace,  w_s · w_y = 0,  b_s, b_y free

In whitened coordinates w = T a. One label leads: its coordinates a are free, and the other label follows,
``a_follow = u − q (q·u) / (q·q)`` with ``q = Tᵀ w_lead`` and u free, which is the constraint solved; half the square
of what is taken off u is added, so that it stays at zero and the Hessian close to the identity. L-BFGS then needs a few
dozen evaluations, each one pass over the rows for both labels. The label with the larger weights leads: the direction
of weights near zero turns wildly, and would turn the other with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from unspur._threads import one_scipy_thread
from unspur._typing import BoolArray, FloatArray
from unspur.exceptions import InputError
from unspur.rows import CONCEPT, MAIN, RowSource, Weighting
from unspur.solvers.descent import descend
from unspur.solvers.outcome import Outcome, Pair, outcome_of
from unspur.solvers.plane import Start, plane_of_class_means, scan_plane
from unspur.solvers.whitening import Whitening
from unspur.sums.logistic import PairLoss

#: Minima of a plane whose objective lies within this share of what the best pair gains over chance are followed.
CLOSE = 0.2
#: Weights of exactly zero have no direction to be orthogonal to; dividing by this leaves the other label free.
TINY = float(np.finfo(np.float64).tiny)
#: Relative gradient to which the starts of different basins are followed before all but the lowest are dropped.
RACE = 1e-2
#: Gradient at zero weights, in whitened coordinates, below which a label has no trace in the rows: what there is to
#: gain, its square, is below the rounding error of the objective.
TRACE = 1e-7


@dataclass
class PairObjective:
    """Value and gradient in the unconstrained coordinates ``x = (a, u, b_s, b_y)``, shape (2r + 2,)."""

    rows: RowSource
    weighting: Weighting
    whitening: Whitening
    lead: int = CONCEPT
    evaluations: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        # Only the direction of q matters; without a unit its length would go with that of the rows to the power −2.
        self._unit = self.whitening.geometry.mean_variance

    def data_term(self, weights: FloatArray, intercepts: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Loss without decay, its gradient in the weights (2, d) and in the intercepts (2,)."""
        self.evaluations += 1
        geometry = self.whitening.geometry
        sums = self.rows.sum(PairLoss(weights, intercepts, geometry.centre, self.weighting, geometry.far_from_zero))
        return float(sums[0]), sums[3:].reshape(weights.shape), sums[1:3]

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Objective and gradient at x."""
        a, u, intercepts = self._split(x)
        q, k, weights = self._constrain(a, u)
        decay = self.whitening.decay
        loss, gradient, gradient_b = self.data_term(weights, intercepts)
        gradient += decay * weights
        g_lead, g_follow = self._ordered(self.whitening.pull_back(gradient.T).T)
        # The follower depends on the lead through q, and q = c Π TᵀT a is a symmetric map of a.
        along = float(q @ g_follow) / max(float(q @ q), TINY)
        g_q = -k * g_follow - along * (u - 2.0 * k * q)
        # What u has along q changes nothing. Left alone it grows, until steps of the lead are dominated by it: ½ k² q·q
        # on top, which is zero at the best of the equivalent u, keeps it where it starts, at zero.
        g_q = g_q + k * (u - k * q)
        g_lead = g_lead + self._unit * self.whitening.pull_back(self.whitening.weights(g_q))
        value = loss + 0.5 * decay * float(np.sum(weights**2)) + 0.5 * k * k * float(q @ q)
        return value, np.concatenate([g_lead, g_follow - along * q + k * q, gradient_b])

    def weights(self, x: FloatArray) -> FloatArray:
        """Weights (2, d) at x, concept first."""
        a, u, _ = self._split(x)
        return self._constrain(a, u)[2]

    def at(self, weights: FloatArray, intercepts: FloatArray) -> FloatArray:
        """The x whose weights and intercepts are these (brought to the allowed subspace); sets who leads."""
        coordinates = self.whitening.coordinates(weights.T).T
        self.lead = int(np.argmax(np.linalg.norm(coordinates, axis=1)))
        return np.concatenate([*self._ordered(coordinates), intercepts])

    def _ordered(self, pair: FloatArray) -> FloatArray:
        """Lead first, from concept first; and back, since swapping twice changes nothing."""
        return pair if self.lead == CONCEPT else pair[::-1]

    def _split(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        r = (len(x) - 2) // 2
        return self.whitening.allow(x[:r]), self.whitening.allow(x[r:-2]), x[-2:]

    def _constrain(self, a: FloatArray, u: FloatArray) -> tuple[FloatArray, float, FloatArray]:
        """Q (r,), the multiple of q taken off u, and the weights (2, d), concept first."""
        w_lead = self.whitening.weights(a)
        q = self._unit * self.whitening.pull_back(w_lead)
        k = float(q @ u) / max(float(q @ q), TINY)
        return q, k, self._ordered(np.stack([w_lead, self.whitening.weights(u - k * q)]))


def solve_pair(
    rows: RowSource,
    weighting: Weighting,
    whitening: Whitening,
    *,
    start: Pair | None = None,
    search: bool = True,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> Pair:
    """Orthogonal weights for both labels inside the subspace that `whitening` allows.

    Parameters
    ----------
    start : a solution of a neighbouring problem. With `search` it is followed beside the minima of the plane, so it
        never makes the answer worse; without, the solver stays in its basin and saves the search.
    tol : bound on the gradient in whitened coordinates, relative to the gradient at zero weights.

    Non-convergence is an outcome with a reason; the weights are then those of the last iterate.
    """
    require_room(whitening.freedom, rows.n_features)
    objective = PairObjective(rows, weighting, whitening)
    zero = np.zeros((2, rows.n_features))
    chance, slopes, slope_b = objective.data_term(zero, np.zeros(2))
    steps = whitening.pull_back(slopes.T)
    descent = _Descent(
        objective, chance, float(np.hypot(np.linalg.norm(steps), 2.0 * np.linalg.norm(slope_b))), max_iter
    )
    traced = np.linalg.norm(steps, axis=0) > TRACE
    with one_scipy_thread():
        if not traced.all():
            best = _solve_traced(descent, -whitening.weights(steps).T, traced, tol)
        elif start is not None and not search:
            best = descent.lowest([start], tol)
        else:
            given = [] if start is None else [start]
            means = scan_plane(rows, weighting, whitening, plane_of_class_means(whitening, slopes))
            best = descent.lowest([*given, *descent.close(means, means[0].objective)], tol)
            in_its_plane = scan_plane(rows, weighting, whitening, directions(best).T, angles=4)
            exchanged = [s for s in descent.close(in_its_plane, best.outcome.objective) if s.angle > 0]
            if exchanged:
                best = min(best, descent.lowest(exchanged, tol), key=lambda pair: pair.outcome.objective)
    return replace(best, outcome=replace(best.outcome, evaluations=objective.evaluations))


def require_room(freedom: int, n_features: int) -> None:
    """Raise InputError unless two orthogonal directions fit into what is free."""
    if freedom < 2:
        raise InputError(
            f"A pair of directions needs two free dimensions, and {freedom} of {n_features} are left. Features that "
            "are constant or sums of others count for nothing, and so do those so much smaller than the largest that "
            "they cannot be told from rounding: rescale Z if that is the case."
        )


def _solve_traced(descent: _Descent, steps: FloatArray, traced: BoolArray, tol: float) -> Pair:
    """Labels whose class means are equal keep zero weights, which are best for them; the other is free of them."""
    if not traced.any():
        found = Outcome(True, "no label has a linear trace in these rows", descent.chance, 0.0, 1)
        return Pair(np.zeros_like(steps), np.zeros(2), found)
    pair = descent.lowest([Start(steps * traced[:, None], np.zeros(2), descent.chance, 0.0)], tol)
    return replace(pair, weights=pair.weights * traced[:, None])


@dataclass(frozen=True, slots=True)
class _Descent:
    """Descents of one objective; `chance` is its value at zero weights and `scale` its gradient there."""

    objective: PairObjective
    chance: float
    scale: float
    max_iter: int

    def close(self, starts: list[Start], best: float) -> list[Start]:
        """Starts that are worth following beside a pair with objective `best`."""
        return [start for start in starts if start.objective <= best + CLOSE * max(0.0, self.chance - best)]

    def lowest(self, starts: Sequence[Start | Pair], tol: float) -> Pair:
        """Solve from the start that leads lowest; the others are given up at a gradient of RACE."""
        if len(starts) > 1:
            starts = [min((self.run(start, RACE) for start in starts), key=lambda pair: pair.outcome.objective)]
        return self.run(starts[0], tol)

    def run(self, start: Start | Pair, tol: float) -> Pair:
        """L-BFGS until the gradient norm is below `tol`, relative to zero weights."""
        gtol = tol * self.scale
        end = descend(self.objective, self.objective.at(start.weights, start.intercepts), gtol, self.max_iter)
        outcome = outcome_of(end, gtol, self.scale, self.objective.rows.dtype, self.objective.evaluations)
        return Pair(self.objective.weights(end.x), end.x[-2:], outcome)


def directions(pair: Pair) -> FloatArray:
    """Unit directions v_s, v_y of a pair, shape (2, d), orthogonal to machine precision; zero for zero weights."""
    v_s = _unit(pair.weights[CONCEPT])
    return np.stack([v_s, _unit(pair.weights[MAIN] - v_s * (v_s @ pair.weights[MAIN]))])


def _unit(vector: FloatArray) -> FloatArray:
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else vector
