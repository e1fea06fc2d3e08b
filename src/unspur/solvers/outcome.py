"""What a solver says about its own work."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from unspur._typing import FloatArray
from unspur.exceptions import NotConvergedWarning


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a solver converged, why it stopped, and what it cost.

    `gradient` is the norm of the gradient in whitened coordinates relative to the one at zero weights.
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


@dataclass(frozen=True, slots=True)
class Pair:
    """Orthogonal weights for both labels, shape (2, d): line 0 for the concept, line 1 for the main task."""

    weights: FloatArray
    intercepts: FloatArray
    outcome: Outcome
