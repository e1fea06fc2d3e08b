"""Group distributionally robust optimisation (Sagawa et al., 2020), solved exactly.

::

    minimise over W, b    max_g [ L_g(W, b) + a_g ]  +  λ/2 ‖W‖²

with L_g the mean loss of group g and a_g its adjustment. The dual maximises, over the simplex of group weights q,
the minimum of the q-weighted problem, and is climbed by entropic proximal steps: q ← argmax D(q') − μ KL(q' ‖ q). One
step is one smooth convex problem in (W, b),

    minimise    μ log Σ_g q_g exp((L_g + a_g) / μ)  +  λ/2 ‖W‖²,

whose solution is also that of the problem weighted by the new ``q_g ∝ q_g exp((L_g + a_g) / μ)``. So every step ends
with a feasible pair of primal and dual points, and their difference, the duality gap, costs nothing::

    gap = max_g (L_g + a_g) − Σ_g q_g (L_g + a_g)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from unspur._typing import FloatArray
from unspur.rows import RowSource, Weighting
from unspur.solvers.softmax import LinearModel, SoftmaxObjective, cell_losses, n_logits, solve_whitened, whitening_of

#: The temperature μ falls from the first value to the last by this factor: large steps 1/μ converge fast and are badly
#: conditioned.
FIRST_TEMPERATURE, LAST_TEMPERATURE, COOLING = 0.1, 1e-5, 3.0
#: Most proximal steps, and most of them that the optimiser may leave unsolved. Each takes some ten to fifty passes.
MAX_STEPS, MAX_UNSOLVED_STEPS = 60, 3
#: Least weight of a group at the start of a step: one that has died away may be the worst again.
MIN_GROUP_WEIGHT = 1e-12


@dataclass(frozen=True, slots=True)
class WorstGroup:
    """The minimax solution: the model, group weights q and adjusted losses, each (G,); groups without rows have 0."""

    model: LinearModel
    group_weights: FloatArray
    adjusted_losses: FloatArray


@dataclass
class SmoothedWorst:
    """Value and gradient of one proximal step in the coordinates of a `SoftmaxObjective`."""

    plain: SoftmaxObjective
    totals: FloatArray
    adjustments: FloatArray
    prior: FloatArray
    temperature: float
    evaluations: int = field(default=0, init=False)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type that products with rows are taken in."""
        return self.plain.dtype

    def adjusted(self, x: FloatArray) -> FloatArray:
        """Adjusted losses of the groups at x, shape (G,)."""
        return cell_losses(self.plain.rows, self.plain.logits(x), self.totals) + self.adjustments

    def posterior(self, adjusted: FloatArray) -> tuple[float, FloatArray]:
        """The smoothed maximum and its gradient in the losses, which is the new q."""
        present = self.prior > 0
        exponents = np.full(len(adjusted), -np.inf)
        exponents[present] = np.log(self.prior[present]) + adjusted[present] / self.temperature
        total = float(logsumexp(exponents))
        return self.temperature * total, np.exp(exponents - total)

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Objective and gradient at x: one pass for the losses, one for the gradient weighted by q."""
        self.evaluations += 1
        adjusted = self.adjusted(x)
        smoothed, q = self.posterior(adjusted)
        self.plain.weighting = per_group(q, self.totals)
        value, gradient = self.plain(x)
        return value + smoothed - float(q @ (adjusted - self.adjustments)), gradient


def per_group(q: FloatArray, totals: FloatArray) -> Weighting:
    """Row weights that give group g the total q_g (none to groups without rows)."""
    return Weighting(np.where(totals > 0, q, 0.0) / np.where(totals > 0, totals, 1.0))


def solve_worst_group(
    rows: RowSource,
    totals: FloatArray,
    adjustments: FloatArray,
    n_classes: int,
    weight_decay: float,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> WorstGroup:
    """Minimise the largest adjusted loss of the groups, which are the cells of the rows.

    Parameters
    ----------
    totals : weight of each group, shape (G,); groups without weight do not count.
    adjustments : a_g, shape (G,).
    weight_decay : in units of the mean variance of the rows when all groups weigh the same.
    tol : the duality gap, in units of the loss of chance, and the relative gradient of each step.
    """
    present = totals > 0
    equal = np.where(present, 1.0 / present.sum(), 0.0)
    adjustments = np.where(present, adjustments, 0.0)
    balanced = per_group(equal, totals)
    whitening = whitening_of(rows, balanced, weight_decay)
    # float64: an error of the losses comes back in q divided by μ.
    plain = SoftmaxObjective(rows, balanced, whitening, n_logits(n_classes), precise=True)
    x, scale = plain.start()
    step = SmoothedWorst(plain, totals, adjustments, equal, FIRST_TEMPERATURE)
    chance = float(np.log(n_classes))
    gap, unsolved = np.inf, 0
    for _ in range(MAX_STEPS):
        # While the gap is wide, steps need not be solved further than it can tell.
        exact = max(tol, min(1e-2, 1e-2 * gap))
        x, outcome = solve_whitened(step, x, scale, exact, max_iter)
        adjusted = step.adjusted(x)
        q = step.posterior(adjusted)[1]
        gap = float(adjusted[present].max() - q @ adjusted)
        unsolved += not outcome.converged
        if (gap <= tol * chance and exact <= tol) or unsolved > MAX_UNSOLVED_STEPS:
            break
        step.prior = np.where(present, np.maximum(q, MIN_GROUP_WEIGHT), 0.0)
        step.temperature = max(step.temperature / COOLING, LAST_TEMPERATURE)
    converged = gap <= tol * chance and outcome.converged
    reason = f"duality gap of {gap:.1e}"
    if not converged:
        reason += f" after {step.evaluations} evaluations ({outcome.reason})"
    adjusted = np.where(present, step.adjusted(x), 0.0)
    decay = 0.5 * whitening.decay * float(np.sum(plain.logits(x).weights ** 2))
    outcome = replace(
        outcome,
        converged=converged,
        reason=reason,
        gap=gap,
        evaluations=step.evaluations,
        objective=float(adjusted[present].max()) + decay,
    )
    return WorstGroup(plain.model(x, outcome), q, adjusted)
