"""Empirical risk minimisation: the last layer that ignores the concept."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.utils._param_validation import StrOptions

from unspur._parameters import named_after_y
from unspur._typing import Array
from unspur.heads.base import WEIGHT_DECAY, HeadData, TrainedHead
from unspur.options import SGD
from unspur.solvers.softmax import LinearModel


class ERM(TrainedHead):
    """Plain logistic regression: every row counts alike, or every class of y.

    ::

        minimise    Σ ω_i ℓ(z_i · w + b, y_i)  +  λ/2 ‖w‖²

    `fit` accepts `concept` for compatibility with the other last layers, and ignores it.

    Parameters
    ----------
    balance : {"none", "main"}, default="none"
        "main" gives every class of y the same total weight, as the paper does on Waterbirds, where one class is rare;
        SGD draws its batches so, and stops early on the mean held-out loss of the classes.
    {shared_parameters}

    Attributes
    ----------
    {shared_attributes}

    Examples
    --------
    >>> from unspur.heads import ERM
    >>> from unspur.datasets import make_toy
    >>> train = make_toy(2000, random_state=0)
    >>> round(ERM().fit(train.Z, train.y).score(train.Z, train.y), 1)
    0.8
    """

    _needs_concept: ClassVar[bool] = False

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TrainedHead._parameter_constraints,
        "balance": [StrOptions({"none", "main"})],
    }

    def __init__(
        self,
        *,
        balance: Literal["none", "main"] = "none",
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
        self.balance = balance

    @named_after_y
    def fit(
        self,
        X: Array,
        y: Array,
        *,
        concept: Array | None = None,  # noqa: ARG002
        sample_weight: Array | None = None,
        X_val: Array | None = None,
        y_val: Array | None = None,
        concept_val: Array | None = None,  # noqa: ARG002
        sample_weight_val: Array | None = None,
        clusters: Array | None = None,
    ) -> Self:
        """Train the last layer; `concept` and `concept_val` are not looked at (see `Head.fit` for the rest)."""
        return super().fit(
            X,
            y,
            concept=None,
            sample_weight=sample_weight,
            X_val=X_val,
            y_val=y_val,
            concept_val=None,
            sample_weight_val=sample_weight_val,
            clusters=clusters,
        )

    def _train(self, data: HeadData, rng: np.random.Generator) -> LinearModel:
        balanced = self.balance == "main"  # without a concept, groups are the classes of y
        if SGD.of(self.solver) is None:
            return self._exact(data.train, balanced=balanced)
        return self._sgd(*self._held_out(data, rng), rng, balanced=balanced, watch="groups" if balanced else "mean")
