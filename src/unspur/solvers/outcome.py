"""What a solver says about its own work."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from unspur._typing import FloatArray
from unspur.exceptions import NotConvergedWarning
from unspur.solvers.descent import Descended


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a solver converged, why it stopped, and what it cost.

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
            warnings.warn(
                f"A pair of directions was not solved: {self.reason}. {self.remedy}",
                NotConvergedWarning,
                stacklevel=2,
            )


def rounding_error(dtype: np.dtype[Any]) -> float:
    """Gradient, relative to the one at zero weights, below which sums over rows of this type may have no digits."""
    return 100.0 * float(np.finfo(dtype).eps)


def outcome_of(end: Descended, gtol: float, scale: float, dtype: np.dtype[Any], evaluations: int) -> Outcome:
    """Judge a descent: solved when the gradient is below `gtol`, or as small as rows of this type let it become."""
    converged = end.gradient <= max(gtol, rounding_error(dtype) * scale)
    reason = end.reason
    if converged and end.gradient > gtol:
        reason = "gradient at the rounding error of the rows"
    elif not converged:
        reason += f" at a relative gradient of {end.gradient / scale:.0e} after {evaluations} evaluations"
    return Outcome(converged, reason, end.value, end.gradient / scale, evaluations)


@dataclass(frozen=True, slots=True)
class LocalModel:
    """Losses of both labels around a solution: where it is, their slopes there, (2, r) both, and their curvatures (2,).

    In the coordinates of the solver, and without weight decay: so it says something about problems that differ in their
    weight decay or in what they stay away from.
    """

    at: FloatArray
    slopes: FloatArray
    curvature: FloatArray


@dataclass(frozen=True, slots=True)
class Pair:
    """Orthogonal weights for both labels, shape (2, d): line 0 for the concept, line 1 for the main task."""

    weights: FloatArray
    intercepts: FloatArray
    outcome: Outcome
    local: LocalModel | None = None
