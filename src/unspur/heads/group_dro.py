"""Group DRO: the head whose worst group is best (Sagawa et al., ICLR 2020).

::

    minimise over W, b    max_g [ L_g(W, b) + a_g ]  +  λ/2 tr(W M Wᵀ)

with L_g the mean loss of group g and a_g its adjustment. The dual maximises, over the simplex of group weights q,
the minimum of the q-weighted problem, and is climbed by entropic proximal steps: q ← argmax D(q') − μ KL(q' ‖ q). One
step is one smooth convex problem in (W, b),

    minimise    μ log Σ_g q_g exp((L_g + a_g) / μ)  +  λ/2 tr(W M Wᵀ),

whose solution is also that of the problem weighted by the new ``q_g ∝ q_g exp((L_g + a_g) / μ)``. So every step ends
with a feasible pair of primal and dual points, and their difference, the duality gap, costs nothing::

    gap = max_g (L_g + a_g) − Σ_g q_g (L_g + a_g)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from unspur._data import LabelledData
from unspur._typing import FloatArray
from unspur.heads.base import DEFAULT_PENALTY, Head, HeadData
from unspur.rows import RowSource, Weighting
from unspur.solvers.coordinates import Geometry, LogisticCoordinates
from unspur.solvers.logistic import LinearModel, SoftmaxObjective, cell_losses, n_logits, solve_whitened
from unspur.solvers.statistics import Moments

#: The temperature μ falls from the first value to the last by this factor. Large steps 1/μ converge fast, but are badly
#: conditioned.
FIRST_TEMPERATURE, LAST_TEMPERATURE, COOLING = 0.1, 1e-5, 3.0
#: Limits on proximal steps, and on those that are not solved. Each takes some ten to fifty passes.
MAX_STEPS, MAX_UNSOLVED_STEPS = 60, 3
#: Least weight of a group at the start of a step, since any group may become the worst again.
MIN_GROUP_WEIGHT = 1e-12


@dataclass(frozen=True, slots=True)
class MinimaxSolution:
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
        worst = int(exponents.argmax())
        shares = np.exp(exponents - exponents[worst])
        shares[worst] = 0.0  # of which the 1 is in log1p
        total = float(exponents[worst] + np.log1p(shares.sum()))
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
    whitening: LogisticCoordinates,
    *,
    start: LinearModel | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> MinimaxSolution:
    """Minimise the largest adjusted loss of the groups, which are the cells of the rows.

    Parameters
    ----------
    totals : weight of each group, shape (G,); groups without weight do not count.
    adjustments : a_g, shape (G,).
    whitening : coordinates and penalty, of the rows when all groups weigh the same.
    start : a solution of a neighbouring problem.
    tol : the duality gap, in units of the loss of chance, and the relative gradient of each step.
    """
    present = totals > 0
    equal = np.where(present, 1.0 / present.sum(), 0.0)
    adjustments = np.where(present, adjustments, 0.0)
    balanced = per_group(equal, totals)
    # float64, since an error of the losses is divided by μ in q.
    plain = SoftmaxObjective(rows, balanced, whitening, n_logits(n_classes), in_float64=True)
    x, scale = plain.start()
    if start is not None:
        x = plain.at(start)
    step = SmoothedWorst(plain, totals, adjustments, equal, FIRST_TEMPERATURE)
    chance = float(np.log(n_classes))
    gap, unsolved = np.inf, 0
    for _ in range(MAX_STEPS):
        # While the gap is wide, rough steps are enough.
        step_tol = max(tol, min(1e-2, 1e-2 * gap))
        x, outcome = solve_whitened(step, x, scale, step_tol, max_iter)
        adjusted = step.adjusted(x)
        q = step.posterior(adjusted)[1]
        gap = float(adjusted[present].max() - q @ adjusted)
        unsolved += not outcome.converged
        if (gap <= tol * chance and step_tol <= tol) or unsolved > MAX_UNSOLVED_STEPS:
            break
        step.prior = np.where(present, np.maximum(q, MIN_GROUP_WEIGHT), 0.0)
        step.temperature = max(step.temperature / COOLING, LAST_TEMPERATURE)
    converged = gap <= tol * chance and outcome.converged
    reason = f"duality gap of {gap:.1e}"
    if not converged:
        reason += f" after {step.evaluations} evaluations ({outcome.reason})"
    adjusted = np.where(present, step.adjusted(x), 0.0)
    weights = plain.logits(x).weights
    decay = 0.5 * whitening.decay * float(np.sum(weights * whitening.in_metric(weights)))
    outcome = replace(
        outcome,
        converged=converged,
        reason=reason,
        gap=gap,
        evaluations=step.evaluations,
        objective=float(adjusted[present].max()) + decay,
    )
    return MinimaxSolution(plain.model(x, outcome), q, adjusted)


class GroupDRO(Head):
    """Logistic regression that minimises the largest loss of a group (main, concept).

    ::

        minimise    max_g [ mean_g ℓ(z · w + b, y) + C / sqrt(n_g) ]  +  λ/2 wᵀMw

    A convex minimax: the solver ends with the group weights q of the dual and a duality gap that bounds how far
    the objective is from its minimum. Groups without rows are left out.

    Parameters
    ----------
    adjustment : float, default=0.0
        C, which makes small groups count as worse than they look; n_g is the number of rows of group g (the
        effective number ``(Σw)² / Σw²`` under sample weights).
    {shared_parameters}

    `penalty` is in units of the mean variance when all groups weigh the same, as for `GroupWeighted`; `tol` also bounds
    the duality gap, in units of the loss of chance.

    Attributes
    ----------
    {shared_attributes}
    concept_classes_ : tuple
        Classes of the concept, in their order.
    group_weights_ : array of shape (n_classes, n_concepts)
        The dual solution q. Groups with weight share the largest loss.
    group_losses_ : array of shape (n_classes, n_concepts)
        Training losses, adjusted by C / sqrt(n_g); NaN for groups without rows.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Head._parameter_constraints,
        "adjustment": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        *,
        adjustment: float = 0.0,
        penalty: float = DEFAULT_PENALTY,
        metric: float = 0.0,
        missing_concept: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        random_state: Any = None,
    ):
        super().__init__(
            penalty=penalty,
            metric=metric,
            missing_concept=missing_concept,
            tol=tol,
            max_iter=max_iter,
            random_state=random_state,
        )
        self.adjustment = adjustment

    def _train(self, data: HeadData, rng: np.random.Generator) -> LinearModel:
        del rng
        found = self._minimax(data)
        shape, present = data.train.n_classes_per_label, data.train.group_weights > 0
        self.group_weights_ = found.group_weights.reshape(shape)
        self.group_losses_ = np.where(present, found.adjusted_losses, np.nan).reshape(shape)
        return found.model

    def _adjustments(self, rows: LabelledData) -> FloatArray:
        """C / sqrt(n_g), shape (G,); 0 for groups without rows."""
        size = rows.effective_group_sizes
        return np.where(size > 0, self.adjustment / np.sqrt(np.where(size > 0, size, 1.0)), 0.0)

    def _minimax(self, data: HeadData) -> MinimaxSolution:
        rows, totals, adjustments = data.train, data.train.group_weights, self._adjustments(data.train)
        present = totals > 0
        source, balanced = rows.source(), per_group(present / np.count_nonzero(present), totals)
        if self.metric:
            geometry = rows.geometry(source, balanced=True, metric=self.metric)
        else:
            geometry = data.cached("geometry", lambda: Geometry.of(Moments.of(source, balanced), source.dtype.itemsize))
        found = solve_worst_group(
            source,
            totals,
            adjustments,
            rows.n_classes,
            LogisticCoordinates.of(geometry, self.penalty),
            start=data.shared.get("last"),
            tol=self.tol,
            max_iter=self.max_iter,
        )
        data.shared["last"] = found.model
        return found
