"""Group DRO: the last layer whose worst group is best (Sagawa et al., ICLR 2020)."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils._param_validation import Interval

from unspur._data import LabelledData
from unspur._typing import FloatArray
from unspur.heads.base import WEIGHT_DECAY, HeadData, TrainedHead
from unspur.options import SGD
from unspur.solvers.sgd import RunningGroupWeights
from unspur.solvers.softmax import LinearModel, cell_losses
from unspur.solvers.worst_group import solve_worst_group


class GroupDRO(TrainedHead):
    """Logistic regression that minimises the largest loss of a group (main, concept).

    ::

        minimise    max_g [ mean_g ℓ(z · w + b, y) + C / sqrt(n_g) ]  +  λ/2 ‖w‖²

    A convex minimax: the exact solver ends with the group weights q of the dual and a duality gap that bounds how far
    the objective is from its minimum. Groups without rows are left out.

    Parameters
    ----------
    adjustment : float, default=0.0
        C, which makes small groups count as worse than they look; n_g is the number of rows of group g (the
        effective number ``(Σw)² / Σw²`` under sample weights).
    start_learning_rate : float or None, default=None
        Learning rate of the ERM that SGD starts from; None for its own.
    step_size : float, default=0.1
        η of ``solver="sgd"``: after every batch ``q_g ← q_g exp(η (loss_g + C / sqrt(n_g)))``.
    {shared_parameters}

    The exact `weight_decay` is in units of the mean variance when all groups weigh the same, as for `GroupWeighted`;
    `tol` also bounds the duality gap, in units of the loss of chance. SGD starts from ERM, draws groups alike, and
    stops early on the held-out loss of the worst group.

    Attributes
    ----------
    {shared_attributes}
    concept_classes_ : tuple
        Classes of the concept, in their order.
    group_weights_ : array of shape (n_classes, n_concepts)
        The dual solution q (of SGD: the running weights at the end). Groups with weight share the largest loss.
    group_losses_ : array of shape (n_classes, n_concepts)
        Training losses, adjusted by C / sqrt(n_g); NaN for groups without rows.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TrainedHead._parameter_constraints,
        "adjustment": [Interval(Real, 0, None, closed="left")],
        "step_size": [Interval(Real, 0, None, closed="neither")],
        "start_learning_rate": [None, Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        *,
        adjustment: float = 0.0,
        step_size: float = 0.1,
        start_learning_rate: float | None = None,
        weight_decay: float = WEIGHT_DECAY,
        solver: Literal["exact", "sgd"] | SGD = "exact",
        missing_concept: Any = None,
        validation_fraction: float = 0.2,
        tol: float = 1e-6,
        max_iter: int = 1000,
        random_state: Any = None,
    ):
        super().__init__(
            weight_decay=weight_decay,
            solver=solver,
            missing_concept=missing_concept,
            validation_fraction=validation_fraction,
            tol=tol,
            max_iter=max_iter,
            random_state=random_state,
        )
        self.adjustment = adjustment
        self.step_size = step_size
        self.start_learning_rate = start_learning_rate

    def _train(self, data: HeadData, rng: np.random.Generator) -> LinearModel:
        solved = self._minimax(data.train) if SGD.of(self.solver) is None else self._by_sgd(data, rng)
        model, q, losses = solved
        shape, present = data.train.shape, data.train.totals > 0
        self.group_weights_ = q.reshape(shape)
        self.group_losses_ = np.where(present, losses, np.nan).reshape(shape)
        return model

    def _adjustments(self, rows: LabelledData) -> FloatArray:
        """C / sqrt(n_g), shape (G,); 0 for groups without rows."""
        size = rows.effective
        return np.where(size > 0, self.adjustment / np.sqrt(np.where(size > 0, size, 1.0)), 0.0)

    def _minimax(self, rows: LabelledData) -> tuple[LinearModel, FloatArray, FloatArray]:
        found = solve_worst_group(
            rows.source(),
            rows.totals,
            self._adjustments(rows),
            rows.n_classes,
            self.weight_decay,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        return found.model, found.group_weights, found.adjusted_losses

    def _by_sgd(self, data: HeadData, rng: np.random.Generator) -> tuple[LinearModel, FloatArray, FloatArray]:
        train, held_out = self._held_out(data, rng)
        present = train.totals > 0
        adjustments = self._adjustments(train)
        adversary = RunningGroupWeights(present / present.sum(), adjustments, self.step_size)
        erm = self._sgd(train, held_out, rng, learning_rate=self.start_learning_rate)
        model = self._sgd(train, held_out, rng, balanced=True, watch="worst", batch_weights=adversary, start=erm)
        losses = cell_losses(train.source(), model.logits(), train.totals) + adjustments
        return model, adversary.q, losses
