"""Descents: L-BFGS for many functions side by side, how a descent ended, and warnings if it did not converge.

`minimize_many` minimises convex functions of whitened coordinates, with one evaluation of all at a time, until the
2-norm of each gradient is small. `solvers.orthogonal_pair` has a constraint and a preconditioner; it takes its steps
from `CorrectionPairs`. Both measure small changes of an objective by `objective_change`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np

from unspur._typing import BoolArray, FloatArray, IntArray
from unspur.exceptions import NotConvergedWarning, warn

#: Values (a,) and gradients (a, p) of some problems, given their points (a, p) and their numbers (a,).
ManyObjectives: TypeAlias = Callable[[FloatArray, IntArray], tuple[FloatArray, FloatArray]]

#: Changes of the objective below this are computed from gradients. A difference of float32 losses has a rounding error
#: of about 1e-8.
FINE_CHANGE = 1e-5
#: Evaluations without halving the smallest gradient after which the gradient counts as rounding error.
MAX_IDLE_EVALUATIONS = 40
#: Correction pairs of descents side by side.
MANY_CORRECTIONS = 20
#: Share of the decrease predicted by the slope that a step must reach.
SUFFICIENT_DECREASE = 1e-4
#: Gradient at zero weights, under the inverse Hessian there, below which a label is not predictable from the rows: the
#: possible gain, its square, is below the rounding error of the objective.
MIN_LABEL_GRADIENT = 1e-7
#: Whether fits are `quiet`.
_QUIET: ContextVar[bool] = ContextVar("unspur_quiet", default=False)
#: Warnings held back by `one_warning`: first text and count of each kind.
_HELD: ContextVar[dict[str, tuple[str, int]] | None] = ContextVar("unspur_not_converged", default=None)


@dataclass(frozen=True, slots=True)
class DescentResult:
    """Last point of a descent, value and norm of the gradient there, why it ended, and evaluations if counted."""

    x: FloatArray
    value: float
    gradient: float
    reason: str
    evaluations: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a solver converged, why it stopped, and its evaluations.

    `gradient` is the norm of the gradient under the inverse of an approximate Hessian, relative to the one at zero
    weights.
    """

    converged: bool
    reason: str
    objective: float
    gradient: float
    evaluations: int
    remedy: str = "Raise max_iter, tol or penalty."

    def warn_unless_converged(self) -> None:
        """Issue a NotConvergedWarning with the reason and a remedy."""
        if not self.converged:
            text = f"A pair of directions was not solved: {self.reason}. {self.remedy}"
            warn_not_converged("pair", text)


def rounding_error(dtype: np.dtype[Any]) -> float:
    """Gradient, relative to the one at zero weights, that may be a rounding error of sums over rows of this type."""
    return 100.0 * float(np.finfo(dtype).eps)


def outcome_of(end: DescentResult, gtol: float, scale: float, dtype: np.dtype[Any], evaluations: int) -> Outcome:
    """Outcome of a descent: converged if the gradient is below `gtol`, or at the rounding error of the rows."""
    converged = end.gradient <= max(gtol, rounding_error(dtype) * scale)
    reason = end.reason
    if converged and end.gradient > gtol:
        reason = "gradient at the rounding error of the rows"
    elif not converged:
        reason += f" at a relative gradient of {end.gradient / scale:.0e} after {evaluations} evaluations"
    return Outcome(converged, reason, end.value, end.gradient / scale, evaluations)


def objective_change(change: float | FloatArray, gradients: FloatArray, step: FloatArray) -> FloatArray:
    """Change of an objective over a step (p,), or of many (m,) over steps (m, p); a small one by the trapezoidal rule.

    Near a minimum the objective changes by less than its rounding error long before the gradient does: with float32
    rows already at a relative gradient of 1e-4. The rule ``½ (g₀ + g)·(x − x₀)`` has an error of third order in a
    step that is small. `gradients` is the sum of those at both ends.
    """
    return np.where(np.abs(change) < FINE_CHANGE, 0.5 * np.einsum("...p,...p->...", gradients, step), change)


class CorrectionPairs:
    """The last steps and the differences of gradients over them: the memory of L-BFGS."""

    def __init__(self, n_corrections: int) -> None:
        self._pairs: deque[tuple[FloatArray, FloatArray, float]] = deque(maxlen=n_corrections)

    def __len__(self) -> int:
        return len(self._pairs)

    def clear(self) -> None:
        """Forget everything."""
        self._pairs.clear()

    def add(self, step: FloatArray, change: FloatArray) -> None:
        """Keep a pair whose curvature is clearly positive."""
        curvature = float(step @ change)
        if curvature > 1e-10 * float(np.linalg.norm(step) * np.linalg.norm(change)):
            self._pairs.append((step, change, 1.0 / curvature))

    def solve(self, gradient: FloatArray, precondition: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Approximate inverse Hessian times a gradient: the two-loop recursion, with `precondition` as first guess."""
        q = gradient.copy()
        shares = []
        for step, change, inverse in reversed(self._pairs):
            share = inverse * float(step @ q)
            q -= share * change
            shares.append(share)
        x = precondition(q)
        for (step, change, inverse), share in zip(self._pairs, reversed(shares), strict=True):
            x += step * (share - inverse * float(change @ x))
        return x


def minimize_many(
    objective: ManyObjectives,
    x: FloatArray,
    gtol: FloatArray,
    max_evaluations: int,
    noise: FloatArray,
    relative_gtol: FloatArray,
) -> list[DescentResult]:
    """L-BFGS for m problems side by side, from points x (m, p), until each is solved.

    A problem is solved when the norm of its gradient is below `gtol`, and below `relative_gtol` times its objective.
    Below `noise` the gradient may be rounding error: there a descent that gets no further for a while ends as well. All
    three have shape (m,). One call of `objective` evaluates one point of each problem that has not ended, so m problems
    over the same rows need as many passes over them as the hardest alone. A step that does not lower an objective
    enough is shortened; the problems are convex, so every pair of corrections has a positive curvature.
    """
    results: dict[int, DescentResult] = {}
    evaluations = 1
    run = _ManyDescents(np.arange(len(x)), x, *objective(x, np.arange(len(x))))
    while True:
        ended = run.ended(gtol[run.number], noise[run.number], relative_gtol[run.number])
        over = evaluations >= max_evaluations
        for k in np.flatnonzero(ended | over).tolist():
            reason = (
                "gradient below tolerance" if ended[k] else f"the limit of {max_evaluations} evaluations is reached"
            )
            results[int(run.number[k])] = run.result(k, reason, evaluations)
        if over or ended.all():
            return [results[k] for k in range(len(x))]
        run = run.without(ended)
        run.choose_steps()
        run.advance(*objective(run.trial, run.number))
        evaluations += 1


class _ManyDescents:
    """States of descents, with one entry for each on the first axis; correction pairs on the second, newest last."""

    def __init__(self, number: IntArray, x: FloatArray, value: FloatArray, gradient: FloatArray):
        m, p = x.shape
        self.number, self.x, self.value, self.gradient = number, x, value, gradient
        self.steps, self.changes = np.zeros((2, m, MANY_CORRECTIONS, p))
        self.inverse = np.zeros((m, MANY_CORRECTIONS))  # of the curvature of each pair; 0 for those that are not there
        self.scale, self.length = np.ones((2, m))
        self.direction, self.fresh = np.zeros_like(x), np.ones(m, dtype=bool)
        self.smallest, self.idle = np.full(m, np.inf), np.zeros(m, dtype=int)
        self.trial = x

    def without(self, ended: BoolArray) -> Self:
        """The descents that have not ended."""
        if ended.any():
            for name, state in vars(self).items():
                setattr(self, name, state[~ended])
        return self

    def ended(self, gtol: FloatArray, noise: FloatArray, relative_gtol: FloatArray) -> BoolArray:
        """Which gradients are small enough, or may be rounding errors and become no smaller."""
        norm = np.linalg.norm(self.gradient, axis=1)
        halved = norm < 0.5 * self.smallest
        self.smallest, self.idle = np.where(halved, norm, self.smallest), np.where(halved, 0, self.idle + 1)
        exhausted = (self.idle >= MAX_IDLE_EVALUATIONS) & (norm <= np.minimum(noise, 2.0 * self.smallest))
        return np.asarray((norm <= np.minimum(gtol, relative_gtol * self.value)) | exhausted)

    def choose_steps(self) -> None:
        """New directions for descents that have moved, by the two-loop recursion; sets `trial`."""
        if (fresh := self.fresh).any():
            q, shares = self.gradient[fresh], []
            steps, changes, inverse = self.steps[fresh], self.changes[fresh], self.inverse[fresh]
            used = range(MANY_CORRECTIONS - int((inverse > 0).sum(axis=1).max(initial=0)), MANY_CORRECTIONS)
            for j in reversed(used):
                shares.append(inverse[:, j] * np.einsum("mp,mp->m", steps[:, j], q))
                q = q - shares[-1][:, None] * changes[:, j]
            q = self.scale[fresh][:, None] * q
            for j in used:
                share = shares.pop() - inverse[:, j] * np.einsum("mp,mp->m", changes[:, j], q)
                q += share[:, None] * steps[:, j]
            self.direction[fresh], self.length[fresh] = -q, 1.0
        self.trial = self.x + self.length[:, None] * self.direction

    def advance(self, value: FloatArray, gradient: FloatArray) -> None:
        """Move to the trial points that are low enough, given their values and gradients; shorten the other steps."""
        step, slope = self.trial - self.x, np.einsum("mp,mp->m", self.gradient, self.direction)
        change = objective_change(value - self.value, self.gradient + gradient, step)
        self.fresh = good = change <= SUFFICIENT_DECREASE * self.length * slope
        bend = change / self.length - slope
        shorter = np.where(bend > 0, -0.5 * slope / np.where(bend > 0, bend, 1.0), 0.5)
        self.length = np.where(good, self.length, self.length * np.clip(shorter, 0.1, 0.6))
        changes = gradient - self.gradient
        curvature, square = (np.einsum("mp,mp->m", changes, other) for other in (step, changes))
        kept = good & (curvature > 1e-10 * np.linalg.norm(step, axis=1) * np.sqrt(square))
        for history, newest in ((self.steps, step), (self.changes, changes), (self.inverse, 1.0 / curvature)):
            history[kept, :-1] = history[kept, 1:]
            history[kept, -1] = newest[kept]
        self.scale[kept] = (curvature / square)[kept]
        self.x, self.gradient = (
            np.where(good[:, None], there, here) for there, here in ((self.trial, self.x), (gradient, self.gradient))
        )
        self.value = np.where(good, value, self.value)

    def result(self, k: int, reason: str, evaluations: int) -> DescentResult:
        """Where a descent is."""
        norm = float(np.linalg.norm(self.gradient[k]))
        return DescentResult(self.x[k], float(self.value[k]), norm, reason, evaluations)


@contextmanager
def one_warning() -> Iterator[None]:
    """Replace the NotConvergedWarnings of a block, such as a fit, by one of each kind at its end."""
    if _HELD.get() is not None:  # a fit inside of another
        yield
        return
    held: dict[str, tuple[str, int]] = {}
    token = _HELD.set(held)
    try:
        yield
    finally:
        _HELD.reset(token)
    for text, times in held.values():
        more = f" The same happened {times - 1} more time{'s' if times > 2 else ''} in this fit." if times > 1 else ""
        warn(text + more, NotConvergedWarning)


@contextmanager
def quiet() -> Iterator[None]:
    """Context of fits that are only tried: they do not say whether they converged.

    Unlike `warnings.catch_warnings`, which changes filters of the whole process, it is safe where fits run in threads.
    """
    token = _QUIET.set(True)
    try:
        yield
    finally:
        _QUIET.reset(token)


def warn_not_converged(kind: str, text: str) -> None:
    """Issue a NotConvergedWarning, or hold it back for the surrounding `one_warning`, unless in a `quiet` block."""
    if _QUIET.get():
        return
    held = _HELD.get()
    if held is None:
        warn(text, NotConvergedWarning)
    else:
        first, times = held.get(kind, (text, 0))
        held[kind] = first, times + 1
