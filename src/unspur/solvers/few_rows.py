"""Regressions of a label of two classes on few rows, no more than features, by Newton's method.

::

    minimise over w, b    max_g [ Σ_i ω_gi ℓ(w · x_i + b, y_i) + a_g ]  +  λ/2 ‖w‖²

One set of weights ω is logistic regression, and several, each of a group, are the minimax of `GroupDRO`. The solution
is ``w = Σ α_i x_i``, with coefficients that sum to zero. So there are n unknowns, however many features there are, and
products of rows with each other, ``K = X Xᵀ``, are all that is needed of the rows.

A step linearises the losses of the groups in the logits ``η = K α + b`` and adds a curvature::

    minimise over α⁺, b⁺    max_g [ f_g + γ_g · Δη ]  +  ½ Δηᵀ S² Δη  +  λ/2 α⁺ᵀ K α⁺
    S² = Σ_i,g q_g ω_gi p_i (1 − p_i)

For given shares q⁺ of the groups it is linear: with the residual ``r = λ α + Σ q⁺_g γ_g``,

    (λ + S K S) u = S (λ Δb − K r),    Δα = −(r + S u) / λ.

Its dual is a concave quadratic function of q⁺ on the simplex of G shares. Six to twelve factorisations of ``λ + S K S``
solve a problem; the passes over the rows that L-BFGS needs cost as much, and its coordinates, the principal axes of the
rows, several times that.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Self

import numpy as np
import scipy.linalg.lapack

from unspur._arrays import to_numpy
from unspur._resources import one_scipy_thread
from unspur._typing import Array, FloatArray
from unspur.rows import MAX_UNCENTRED_DISTANCE, backend_of
from unspur.solvers.coordinates import MIN_DEVIATION_SHARE, MIN_FEATURES, MIN_FULL_RANK_PIVOT, smallest_pivot
from unspur.solvers.descent import Outcome
from unspur.solvers.logistic import FitOutcome, LinearModel, loss_and_probability

#: Penalties below this, in units of the mean variance, leave too few digits to products of rows.
MIN_WEIGHT_DECAY = 1e-8
#: Share of the predicted gain that a step must reach, and the shortest step that is tried.
SUFFICIENT_GAIN, SHORTEST_STEP = 1e-4, 1e-6
#: Adjustments of a single group.
NO_ADJUSTMENT = np.zeros(1)
#: Least variance p (1 − p) of a label.
MIN_VARIANCE = 1e-12
#: Limit on corrections of a step.
MAX_CORRECTIONS = 7
#: A minimax with a penalty below this, in units of the mean variance, is first solved for ten times that, roughly.
EASY_DECAY, ROUGH_TOL = 0.1, 1e-2
#: Steps of a minimax after which it gets a better start, from penalties up to this close.
MAX_MINIMAX_STEPS, MIN_LOG_RATIO = 30, 0.1
#: Gains below this are rounding errors.
ROUNDING = 1e-15


@dataclass(frozen=True, slots=True)
class FewRowsSolution:
    """Coefficients (n,) of the rows, intercept, shares q (G,) and losses (G,) of the groups, and how the solver did."""

    coefficients: FloatArray
    intercept: float
    shares: FloatArray
    losses: FloatArray
    outcome: Outcome
    gap: float
    tol: float


@dataclass(frozen=True, slots=True, eq=False)
class FewRows:
    """Rows (n, d) of which there are no more than features, their centre, and their products with each other (n, n).

    Solutions are kept: a problem starts from that with the nearest penalty and else the same numbers.
    """

    rows: FloatArray
    centre: FloatArray
    products: FloatArray
    itemsize: int
    _ranks: dict[bytes, int] = field(default_factory=dict, init=False, repr=False)
    _solved: dict[bytes, dict[float, FewRowsSolution]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, rows: Array) -> Self | None:
        """None unless rows are in memory, and wide; also below `MIN_FEATURES`, far from zero, or without squares."""
        n, d = rows.shape
        if backend_of(rows) not in ("memory", "torch") or not 1 < n <= d + 1 or d < MIN_FEATURES:
            return None
        centred = np.array(to_numpy(rows), dtype=np.float64)
        centre = centred.mean(axis=0)
        centred -= centre
        with np.errstate(over="ignore"):
            spread = float(centred.std(axis=0).max())
        if not 1e-140 < spread < 1e140 or np.abs(centre).max() > MAX_UNCENTRED_DISTANCE * spread:
            return None
        return cls(centred, centre, centred @ centred.T, 8 if rows.dtype.itemsize == 8 else 4)

    def select(self, which: Array) -> Self:
        """Some of the rows, by mask or index."""
        which = np.flatnonzero(which) if which.dtype == bool else which
        return replace(self, rows=self.rows[which], products=self.products[np.ix_(which, which)])

    def mean_variance(self, weight: FloatArray) -> float:
        """tr(C) / rank(C) of the covariance of the rows with weights (n,), the unit in which penalties are given."""
        share = weight / weight.sum()
        mean = self.products @ share
        return float(share @ np.diag(self.products) - share @ mean) / self._rank(weight > 0)

    def _rank(self, which: Array) -> int:
        """Rank of the covariance of some rows."""
        key = which.tobytes()
        if key not in self._ranks:
            products = self.products[np.ix_(which, which)]
            n = len(products)
            mean = products.mean(axis=0)
            products += mean.mean() - mean - mean[:, None]
            products[:] += np.trace(products) / n**2  # in the direction (1, …, 1), in which they are zero
            deviation = np.sqrt(np.maximum(np.diag(products), np.finfo(np.float64).tiny))
            rank = n - 1
            if smallest_pivot(products / np.outer(deviation, deviation)) <= MIN_FULL_RANK_PIVOT:
                products[:] -= np.trace(products) / (n**2 + n)
                variance = np.linalg.eigvalsh(products)
                rank = int(np.sum(variance > variance[-1] * MIN_DEVIATION_SHARE[self.itemsize] ** 2))
            self._ranks[key] = max(rank, 1)
        return self._ranks[key]

    def model(self, found: FewRowsSolution) -> LinearModel:
        """The linear model of a solution."""
        weights = found.coefficients @ self.rows
        outcome = FitOutcome(**asdict(found.outcome), gap=found.gap)
        return LinearModel(weights[None], np.array([found.intercept]), self.centre, outcome)

    def solve(
        self,
        targets: FloatArray,
        weights: FloatArray,
        decay: float,
        *,
        adjustments: FloatArray = NO_ADJUSTMENT,
        tol: float = 1e-6,
        max_iter: int = 1000,
    ) -> FewRowsSolution:
        """Minimise the largest of the adjusted losses.

        Parameters
        ----------
        targets : shape (n,), 0 or 1.
        weights : ω, shape (G, n); each line sums to one.
        decay : λ.
        adjustments : a, shape (G,).
        tol : bound on the gradient (the square root of what a step gains), and on the duality gap of several groups, in
            units of the loss of chance.
        """
        solved = self._solved.setdefault(b"".join(map(np.ndarray.tobytes, (targets, weights, adjustments))), {})
        if decay in solved and solved[decay].tol <= tol:
            return solved[decay]
        several, again = len(weights) > 1, partial(self.solve, targets, weights, adjustments=adjustments)
        if several and not solved and decay < EASY_DECAY * float(np.diag(self.products).mean()) / len(targets):
            again(10.0 * decay, tol=max(tol, ROUGH_TOL))
        near = min(solved, key=lambda other: abs(np.log(other / decay)), default=decay)
        live = weights.any(axis=0)
        products = self.products if live.all() else self.products[np.ix_(live, live)]
        problem = _Minimax(products, targets[live], weights[:, live], adjustments, decay)
        start = solved.get(near)
        start = start and replace(start, coefficients=start.coefficients[live])
        found = problem.solve(start, tol, min(max_iter, MAX_MINIMAX_STEPS) if several else max_iter)
        if several and not found.outcome.converged and abs(np.log(near / decay)) > MIN_LOG_RATIO:
            # From a better start: the same one, solved to the end, or one half way to it.
            again(near if solved[near].tol > tol else float(np.sqrt(near * decay)), tol=tol)
            return again(decay, tol=tol, max_iter=max_iter)
        coefficients = np.zeros(len(targets))
        coefficients[live] = found.coefficients
        solved[decay] = replace(found, coefficients=coefficients)
        return solved[decay]


@dataclass(frozen=True, slots=True)
class _Point:
    """Coefficients α (n,), K α (n,) and intercept; probabilities (n,), losses f (G,) and the objective there."""

    coefficients: FloatArray
    products: FloatArray
    intercept: float
    probability: FloatArray
    losses: FloatArray
    value: float


@dataclass(frozen=True, slots=True)
class _Minimax:
    """One problem; lines of `weights` (G, n) are those of the groups."""

    products: FloatArray
    targets: FloatArray
    weights: FloatArray
    adjustments: FloatArray
    decay: float

    def solve(self, start: FewRowsSolution | None, tol: float, max_iter: int) -> FewRowsSolution:
        """Newton's method from zero, or from the coefficients of another solution."""
        n_groups, n = self.weights.shape
        shares = np.full(n_groups, 1.0 / n_groups)
        if start is None:
            one = float(np.clip((shares @ self.weights) @ self.targets, 1e-6, 1.0 - 1e-6))
            point = self.at(np.zeros(n), np.zeros(n), float(np.log(one / (1.0 - one))))
        else:
            point = self.at(start.coefficients, self.products @ start.coefficients, start.intercept)
        chance = float(np.log(2.0))
        converged, decrement, left, evaluations = False, np.inf, np.inf, 1
        reason = f"the limit of {max_iter} steps is reached"
        with one_scipy_thread():
            for _ in range(max_iter):
                step = _Step(self, point, shares)
                moved, more = step.search()
                evaluations += more
                if moved is None:
                    reason = "no step lowers the objective"
                    break
                # Convergence is quadratic: what is left to gain has twice as many digits less as the step had.
                ratio = min(1.0, step.decrement / decrement) if step.length == 1.0 and np.isfinite(decrement) else 1.0
                point, shares, decrement, left = moved, step.shares, step.decrement, step.decrement * ratio**2
                if converged := step.gap <= tol * chance and left <= max(tol**2, ROUNDING) * chance:
                    reason = "gradient below tolerance"
                    break
        gap = float(point.losses.max() - shares @ point.losses)
        outcome = Outcome(converged, reason, point.value, float(np.sqrt(left / chance)), evaluations)
        return FewRowsSolution(point.coefficients, point.intercept, shares, point.losses, outcome, gap, tol)

    def at(self, coefficients: FloatArray, products: FloatArray, intercept: float) -> _Point:
        """A point, given K α as well."""
        losses, probability = loss_and_probability(products + intercept, self.targets)
        found = self.weights @ losses + self.adjustments
        value = float(found.max() + 0.5 * self.decay * (coefficients @ products))
        return _Point(coefficients, products, intercept, probability, found, value)


class _Step:
    """The step from a point, where groups have these shares: all of it is linear in ``(1, q⁺)``."""

    def __init__(self, problem: _Minimax, point: _Point, shares: FloatArray):
        self.problem, self.point, self.before = problem, point, shares
        products, decay = problem.products, problem.decay
        variance = np.maximum(point.probability * (1.0 - point.probability), MIN_VARIANCE)
        root = np.sqrt((shares @ problem.weights) * variance)  # S
        matrix = products * root
        matrix *= root[:, None]
        np.einsum("ii->i", matrix)[:] += decay
        factor, _ = scipy.linalg.lapack.dpotrf(matrix.T, lower=True, overwrite_a=True, clean=False)
        self.slopes = problem.weights * (point.probability - problem.targets)  # γ (G, n)
        residual = np.concatenate([decay * point.coefficients[None], self.slopes])
        products_of_residual = np.concatenate([decay * point.products[None], self.slopes @ products])
        columns = np.concatenate([root[None], root * products_of_residual]).T
        solved = scipy.linalg.lapack.dpotrs(factor, columns, lower=True)[0]
        unit, rest = solved[:, 0], solved[:, 1:]
        # New coefficients sum to zero, as the old ones do.
        self.intercept = (root @ rest - residual.sum(axis=1)) / (decay * float(root @ unit))
        u = root[:, None] * (decay * np.outer(unit, self.intercept) - rest)
        self.coefficients = -(residual.T + u) / decay
        self.products = -(products_of_residual.T + products @ u) / decay
        self.slopes_of_losses = self.slopes @ (self.products + self.intercept)
        self.root, self.length = root, 1.0
        self._choose(point.losses)
        logits = self.products @ self.x + self.intercept @ self.x
        bend = np.sum((root * logits) ** 2) + decay * float((self.coefficients @ self.x) @ (self.products @ self.x))
        self.gap, self.decrement = float(point.losses.max() - self.shares @ point.losses), max(0.5 * float(bend), 0.0)

    def _choose(self, losses: FloatArray) -> None:
        """Shares that maximise the dual of the step, for losses of the groups at its start."""
        first, bend = self.slopes_of_losses[:, 0], -self.slopes_of_losses[:, 1:]
        self.shares = best_shares(losses + first, 0.5 * (bend + bend.T), self.before)
        self.x = np.append(1.0, self.shares)

    def search(self) -> tuple[_Point | None, int]:
        """A point that is low enough along the step, or None, and evaluations; `length` is that of the step.

        Where several groups are the worst, they bend differently, and a step that is good for them on average may raise
        the largest. It is then corrected by the bend that it has seen, while that helps.
        """
        end = self._at(1.0)
        if self._low(end):
            return end, 1
        evaluations, kept, lowest = 1, (self.shares, self.x), np.inf
        while len(self.shares) > 1 and end.value < lowest and evaluations <= MAX_CORRECTIONS:
            lowest = end.value
            self._choose(end.losses - self.slopes_of_losses @ self.x)
            end, evaluations = self._at(1.0), evaluations + 1
            if self._low(end):
                return end, evaluations
        self.shares, self.x = kept
        while self.length > SHORTEST_STEP:
            self.length *= 0.5
            end, evaluations = self._at(self.length), evaluations + 1
            if self._low(end):
                return end, evaluations
        return None, evaluations

    def _at(self, length: float) -> _Point:
        point, x = self.point, length * self.x
        return self.problem.at(
            point.coefficients + self.coefficients @ x,
            point.products + self.products @ x,
            point.intercept + float(self.intercept @ x),
        )

    def _low(self, end: _Point) -> bool:
        slack = ROUNDING * max(abs(self.point.value), 1.0)
        return bool(end.value <= self.point.value - SUFFICIENT_GAIN * self.length * (self.gap + self.decrement) + slack)


def best_shares(linear: FloatArray, quadratic: FloatArray, shares: FloatArray) -> FloatArray:
    """The q that maximises ``linear · q − ½ qᵀ quadratic q`` on the simplex, by active sets from `shares` on."""
    size = len(linear)
    if size == 1:
        return np.ones(1)
    active, q = shares > 0, shares
    for _ in range(20 * size):
        which = np.flatnonzero(active)
        system = np.ones((len(which) + 1, len(which) + 1))
        system[:-1, :-1], system[-1, -1] = quadratic[np.ix_(which, which)], 0.0
        *found, level = np.linalg.lstsq(system, np.append(linear[which], 1.0), rcond=None)[0]
        best = np.zeros(size)
        best[which] = found
        if best.min() < 0.0:  # as far as the first share that becomes zero
            falling = np.flatnonzero(best < 0.0)
            lengths = q[falling] / (q[falling] - best[falling])
            first = int(np.argmin(lengths))
            q = np.maximum(q + lengths[first] * (best - q), 0.0)
            q[falling[first]], active[falling[first]] = 0.0, False
            continue
        q = best
        slope = np.where(active, -np.inf, linear - quadratic @ q - level)
        if slope.max() <= ROUNDING * max(abs(level), 1.0):
            break
        active[int(np.argmax(slope))] = True
    return np.asarray(q / q.sum())
