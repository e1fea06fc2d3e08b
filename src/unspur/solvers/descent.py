"""L-BFGS to a gradient norm, for objectives in whitened coordinates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy.optimize

from unspur._typing import FloatArray

#: Value and gradient at x.
Objective: TypeAlias = Callable[[FloatArray], tuple[float, FloatArray]]


@dataclass(frozen=True, slots=True)
class Descended:
    """Where a descent ended: x, value, norm of the gradient, and why."""

    x: FloatArray
    value: float
    gradient: float
    reason: str


def descend(objective: Objective, x: FloatArray, gtol: float, max_iter: int, noise: float = 0.0) -> Descended:
    """L-BFGS from x until the gradient norm is below `gtol`.

    Below `noise` the gradient may be rounding error: there a search that gets no further for a while ends as well.
    """
    norm, searches = np.inf, 0
    while True:
        search = _FineSearch(objective, gtol, noise)
        x, reason = search.run(x, max_iter)
        value, reached = search.reached
        searches += 1
        # A search that ends early, for want of digits in the objective, goes on from where it is while that helps.
        if reached <= gtol or search.exhausted or reached > 0.5 * norm or searches >= 5:
            return Descended(x, value, reached, reason)
        norm = reached


class _Converged(Exception):  # noqa: N818 — control flow, not an error
    """Raised out of the optimiser once the gradient norm (2-norm, which L-BFGS-B does not test) is small enough.

    Or once it will not become smaller.
    """


class _FineSearch:
    """One run of L-BFGS that sees small changes of the objective through its gradient.

    Near a minimum the objective changes by less than its rounding error long before the gradient does: with float32
    rows already at a relative gradient of 1e-4. There the change since the last iterate is taken as
    ``½ (g₀ + g)·(x − x₀)``, the trapezoidal rule, whose error is of third order in a step that is small.
    """

    #: Changes of the objective below this are taken from the gradient. The rounding error of a difference of
    #: float32 losses is some 1e-8.
    FINE = 1e-5
    #: Evaluations without half of the smallest gradient so far, after which rounding errors are all that is left.
    IDLE = 40

    def __init__(self, objective: Objective, gtol: float, noise: float):
        self._objective = objective
        self._gtol, self._noise = gtol, noise
        self._smallest, self._idle = np.inf, 0
        self.exhausted = False
        self._iterate: tuple[FloatArray, float, FloatArray, float] | None = None  # x, value, gradient, value shown
        self._last: tuple[FloatArray, float, FloatArray, float] | None = None

    def run(self, x0: FloatArray, max_iter: int) -> tuple[FloatArray, str]:
        """Where the search ended, and why."""
        # Limits on the objective are switched off: the gradient decides.
        limits = {
            "maxiter": max_iter,
            "maxfun": 2 * max_iter,
            "gtol": 0.0,
            "ftol": 0.0,
            "maxcor": 20,
            "maxls": 40,
        }
        try:
            start = self._evaluate(x0)
            # The first step L-BFGS tries has length one. In units of the gradient that is the step of Newton's method
            # for a Hessian that is the identity, which whitening has made it nearly. The objective is in units of its
            # square, so that the gradient it sees has length one too, and not one that its limits take for zero.
            unit = float(np.linalg.norm(start[1]))

            def evaluate(v: FloatArray) -> tuple[float, FloatArray]:
                shown, gradient = self._evaluate(x0 + unit * v) if v.any() else start
                return shown / unit**2, gradient / unit

            result = scipy.optimize.minimize(
                evaluate, np.zeros_like(x0), jac=True, method="L-BFGS-B", options=limits,
                callback=lambda intermediate_result: self._accept(x0 + unit * intermediate_result.x),
            )  # fmt: skip
        except _Converged:
            return self._iterate_x, "no digits left" if self.exhausted else "gradient below tolerance"
        return self._iterate_x, f"L-BFGS: {result.message}"

    @property
    def _iterate_x(self) -> FloatArray:
        assert self._iterate is not None
        return self._iterate[0]

    @property
    def reached(self) -> tuple[float, float]:
        """Objective and gradient norm at the last iterate."""
        assert self._iterate is not None
        return self._iterate[1], float(np.linalg.norm(self._iterate[2]))

    def _evaluate(self, x: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = self._objective(x)
        shown = 0.0  # relative to the start, so that small changes keep their digits
        if self._iterate is not None:
            x0, value0, gradient0, shown0 = self._iterate
            change = value - value0
            if abs(change) < self.FINE:
                change = 0.5 * float((gradient0 + gradient) @ (x - x0))
            shown = shown0 + change
        self._last = (x.copy(), value, gradient, shown)
        if self._iterate is None:
            self._iterate = self._last
        norm = float(np.linalg.norm(gradient))
        self._idle = 0 if norm < 0.5 * self._smallest else self._idle + 1
        self._smallest = norm if self._idle == 0 else self._smallest
        # At or near the smallest gradient of the search, so that the point it ends at is as good as any.
        self.exhausted = self._idle >= self.IDLE and norm <= min(self._noise, 2.0 * self._smallest)
        if norm <= self._gtol or self.exhausted:
            self._iterate = self._last
            raise _Converged
        return shown, gradient

    def _accept(self, x: FloatArray) -> None:
        """The line search ends at the point it evaluated last; later changes are measured from there."""
        assert self._last is not None
        if np.array_equal(self._last[0], x):
            self._iterate = self._last
