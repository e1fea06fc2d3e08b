"""Outcomes of solvers, and warnings of those that did not converge."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from unspur.exceptions import NotConvergedWarning
from unspur.solvers.lbfgs import DescentResult

#: Gradient at zero weights, under the inverse Hessian there, below which a label is not predictable from the rows: the
#: possible gain, its square, is below the rounding error of the objective.
MIN_LABEL_GRADIENT = 1e-7
#: Packages whose frames are skipped to find the caller that a warning is for.
_OURS = ("unspur", "contextlib", "sklearn")
#: Warnings held back by `one_warning`: first text and count of each kind.
_HELD: ContextVar[dict[str, tuple[str, int]] | None] = ContextVar("unspur_not_converged", default=None)


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
        more = f" So it was {times - 1} more time{'s' if times > 2 else ''} in this fit." if times > 1 else ""
        warnings.warn(text + more, NotConvergedWarning, stacklevel=_calling_level())


def warn_not_converged(kind: str, text: str) -> None:
    """Issue a NotConvergedWarning, or hold it back for the surrounding `one_warning`."""
    held = _HELD.get()
    if held is None:
        warnings.warn(text, NotConvergedWarning, stacklevel=_calling_level())
    else:
        first, times = held.get(kind, (text, 0))
        held[kind] = first, times + 1


def _calling_level() -> int:
    """The `stacklevel` of the line that called this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    return level


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
    remedy: str = "Raise max_iter, tol or weight_decay."

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
