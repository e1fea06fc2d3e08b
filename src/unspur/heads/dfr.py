"""Deep feature reweighting: the last layer is retrained on balanced held-out rows (Kirichenko et al., ICLR 2023)."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from unspur.heads.base import WEIGHT_DECAY, Head, HeadData
from unspur.solvers.softmax import LinearModel, average, solve_softmax, whitening_of


class DFR(Head):
    """Mean of logistic regressions on group-balanced draws from held-out rows.

    Each draw takes, without replacement, as many rows of every group (main, concept) as the smallest has. The rows are
    those of the validation set, best ones that the encoder has not seen; X then only says what the classes are.
    Without one, `validation_fraction` of every group of X is held out, and the other rows are not used. The penalty
    is quadratic (the authors': absolute values).

    Parameters
    ----------
    n_draws : int, default=10
        Draws whose coefficients are averaged.
    weight_decay : float, default=0.01
        Penalty λ in units of the mean variance of the held-out rows, all groups weighing the same.
    missing_concept : scalar or None, default=None
        Value of `concept` that means "not known", besides NaN and None.
    validation_fraction : float, default=0.5
        Share of every group that is held out when no X_val is passed.
    tol : float, default=1e-6
        Relative gradient norm at which a draw counts as solved.
    max_iter : int, default=1000
        Most iterations for one draw.
    random_state : int, RandomState or None, default=None
        Draws the held-out share and the subsamples.

    Attributes
    ----------
    {shared_attributes}
    concept_classes_ : tuple
        Classes of the concept, in their order.
    group_counts_ : array of shape (n_classes, n_concepts)
        Held-out rows in each group, from which the draws were made.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Head._parameter_constraints,
        "n_draws": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        *,
        n_draws: int = 10,
        weight_decay: float = WEIGHT_DECAY,
        missing_concept: Any = None,
        validation_fraction: float = 0.5,
        tol: float = 1e-6,
        max_iter: int = 1000,
        random_state: Any = None,
    ):
        self.n_draws = n_draws
        self.weight_decay = weight_decay
        self.missing_concept = missing_concept
        self.validation_fraction = validation_fraction
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _train(self, data: HeadData, rng: np.random.Generator) -> LinearModel:
        held_out = data.validation
        if held_out is None:
            held_out = data.train.split(self.validation_fraction, rng)[1]
        held_out.require_classes("among those held out, with a positive weight and a known concept")
        self.group_counts_ = held_out.counts.reshape(held_out.shape)
        # One set of coordinates and one penalty for all draws, so that their coefficients can be averaged.
        whitening = whitening_of(held_out.source(), held_out.weighting(balanced=True), self.weight_decay)
        draws: list[LinearModel] = []
        for _ in range(self.n_draws):
            draw = held_out.only(held_out.subsample_groups(rng))
            source, weighting = draw.source(), draw.weighting(balanced=False)
            start = draws[-1] if draws else None
            draws.append(
                solve_softmax(
                    source, weighting, whitening, draw.n_classes, start=start, tol=self.tol, max_iter=self.max_iter
                )
            )
        return average(draws)
