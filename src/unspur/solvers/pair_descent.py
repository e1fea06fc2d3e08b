"""Quasi-Newton descent on pairs of orthogonal weights.

Iterates stay on the set ``a_s · a_y = 0``, ``Vᵀa = 0``. With t the gradient of the first constraint, the Lagrangian
gradient is ``g + μ t``, and μ is chosen to make it smallest in the norm of the model's inverse. A step is the two-loop
recursion of L-BFGS on differences of Lagrangian gradients, with the model's Hessian (`pair_model`, curvatures and μ of
the moment) as its first guess, restricted to the tangent space; then it is brought back onto the set.

The descent is a generator: it yields a point and is sent the losses and gradients there. So many of them can run side
by side, and one visit of the rows answers all (`orthogonal_pair.solve_pairs`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from unspur._typing import BoolArray, FloatArray
from unspur.solvers.descent import Descended
from unspur.solvers.outcome import LocalModel
from unspur.solvers.pair_model import PairModel, curvature_of, retract, swapped
from unspur.solvers.spectrum import PairSpace

#: Asks for the losses (2,) and their gradient (2r + 2,) at x (2r + 2,); returns where it ended, and the losses there.
Asking: TypeAlias = Generator[FloatArray, tuple[FloatArray, FloatArray], tuple[Descended, LocalModel]]

#: Differences of gradients that are kept.
MEMORY = 12
#: Changes of the objective below this are taken from gradients, by the trapezoidal rule: near a minimum the objective
#: has no digits left long before its gradient does.
FINE = 1e-5
#: Share of the decrease that the slope promises which a step must bring.
SUFFICIENT = 1e-4
#: Times a step is shortened before it is given up.
SHORTENED = 10
#: Steps without half the gradient of before that are allowed where there may be no digits left for it.
PATIENCE = 4
#: Change of curvatures or multiplier, relative to their size, from which on the model is built anew.
STALE = 0.1


@dataclass(slots=True)
class _Point:
    """A point, and everything that is known there."""

    x: FloatArray
    value: float
    gradient: FloatArray
    losses: FloatArray


@dataclass(slots=True)
class _Tangent:
    """The Lagrangian at a point: model B, normal ``B⁻¹t`` of the constraint, μ, gradient, and its norm under B⁻¹."""

    model: PairModel
    t: FloatArray
    normal: FloatArray
    length: float
    multiplier: float
    gradient: FloatArray
    norm: float

    @classmethod
    def at(cls, point: _Point, model: PairModel, *, constrained: bool) -> _Tangent:
        """Choose μ so that what is left of the gradient is orthogonal to t under B⁻¹."""
        step = model.solve(point.gradient)
        t = swapped(point.x) if constrained else np.zeros_like(point.x)
        normal = model.solve(t)
        length = max(float(t @ normal), float(np.finfo(np.float64).tiny))
        multiplier = -float(t @ step) / length
        gradient = point.gradient + multiplier * t
        norm = float(np.sqrt(max(float(gradient @ (step + multiplier * normal)), 0.0)))
        return cls(model, t, normal, length, multiplier, gradient, norm)

    def project(self, step: FloatArray) -> FloatArray:
        """What of a step lies in the tangent space."""
        return step - self.normal * (float(self.t @ step) / self.length)


class _Memory:
    """Pairs of steps and differences of Lagrangian gradients, for the two-loop recursion."""

    def __init__(self) -> None:
        self._pairs: deque[tuple[FloatArray, FloatArray, float]] = deque(maxlen=MEMORY)

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

    def step(self, tangent: _Tangent) -> FloatArray:
        """Minus the approximate inverse Hessian times the Lagrangian gradient, in the tangent space."""
        q = tangent.gradient.copy()
        shares = []
        for step, change, inverse in reversed(self._pairs):
            share = inverse * float(step @ q)
            q -= share * change
            shares.append(share)
        x = tangent.project(tangent.model.solve(q))
        for (step, change, inverse), share in zip(self._pairs, reversed(shares), strict=True):
            x += step * (share - inverse * float(change @ x))
        return -tangent.project(x)


def descend_pair(
    space: PairSpace, start: FloatArray, traced: BoolArray, gtol: float, rounding: float, max_iter: int
) -> Asking:
    """From `start`, which satisfies the constraints, until the norm of the Lagrangian gradient is below `gtol`.

    Below `rounding`, where the rows may have no digits left for it, it also ends when the norm no longer falls. Labels
    that are not `traced` keep the weights they have, and leave the other free.
    """
    r = len(space.spectrum.variance)
    moving = np.concatenate([np.repeat(traced.astype(np.float64), r), np.ones(2)])
    constrained = bool(traced.all())

    def look(x: FloatArray) -> Generator[FloatArray, tuple[FloatArray, FloatArray], _Point]:
        losses, gradient = yield x
        a = x[:-2].reshape(2, r)
        full = gradient[:-2].reshape(2, r) + space.decay * a
        gradient = moving * np.concatenate([space.allow(full).ravel(), gradient[-2:]])
        return _Point(x, float(losses.sum()) + 0.5 * space.decay * float(x[:-2] @ x[:-2]), gradient, losses)

    def ended(reason: str) -> tuple[Descended, LocalModel]:
        a = here.x[:-2].reshape(2, r)
        slopes = here.gradient[:-2].reshape(2, r) - space.decay * a
        return Descended(here.x, here.value, tangent.norm, reason), LocalModel(a, slopes, curvature_of(here.losses))

    here = yield from look(start)
    tangent = _Tangent.at(here, PairModel(space, curvature_of(here.losses)), constrained=constrained)
    memory = _Memory()
    least, waited = np.inf, 0
    for iteration in range(max_iter + 1):
        tangent = _refreshed(tangent, here, space, constrained=constrained)
        if tangent.norm <= gtol:
            return ended("gradient below tolerance")
        least, waited = (tangent.norm, 0) if tangent.norm <= 0.5 * least else (least, waited + 1)
        if tangent.norm <= rounding and waited > PATIENCE:
            return ended("no step lowers the gradient")
        if iteration == max_iter:
            break
        step = memory.step(tangent)
        slope = float(tangent.gradient @ step)
        there, length = None, 1.0
        for _ in range(SHORTENED if slope < 0 else 0):
            moved = here.x + length * step
            x = retract(moved, tangent.model) if constrained else moved
            if x is None:
                length *= 0.5
                continue
            x[:-2] = space.allow(x[:-2].reshape(2, r)).ravel()
            trial = yield from look(x)
            change = _change(here, trial, tangent)
            if change <= SUFFICIENT * length * slope:
                there = trial
                break
            # The minimum of the parabola through value and slope here and the value there.
            bend = change / length - slope
            length *= min(max(-0.5 * slope / bend if bend > 0 else 0.5, 0.1), 0.6)
        if there is None:
            if not len(memory):
                return ended("no step lowers the objective")
            memory.clear()
            continue
        after = _Tangent.at(there, tangent.model, constrained=constrained)
        memory.add(there.x - here.x, after.gradient - (here.gradient + after.multiplier * tangent.t))
        here, tangent = there, after
    return ended(f"the limit of {max_iter} iterations is reached")


def _refreshed(tangent: _Tangent, point: _Point, space: PairSpace, *, constrained: bool) -> _Tangent:
    """The tangent with a model of the curvatures and the multiplier of this point, if they have moved since."""
    model, curvature = tangent.model, curvature_of(point.losses)
    multiplier = min(max(tangent.multiplier, -model.bound), model.bound)
    if (np.abs(curvature - model.curvature) <= STALE * model.curvature).all() and (
        abs(multiplier - model.multiplier) <= STALE * model.bound
    ):
        return tangent
    return _Tangent.at(point, PairModel(space, curvature, tangent.multiplier), constrained=constrained)


def _change(here: _Point, there: _Point, tangent: _Tangent) -> float:
    """Change of the objective; a small one by the trapezoidal rule, whose error is of third order in the step.

    Of the Lagrangian, which is the same where the constraint holds: its gradient has nothing across the tangent space,
    where steps have their rounding errors.
    """
    change = there.value - here.value
    if abs(change) < FINE:
        across = tangent.multiplier * swapped(there.x) if tangent.multiplier else 0.0
        change = 0.5 * float((tangent.gradient + there.gradient + across) @ (there.x - here.x))
    return change
