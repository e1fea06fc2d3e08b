"""Just train twice: rows that a first model gets wrong count more for the second (Liu et al., ICML 2021)."""

from __future__ import annotations

import warnings
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.utils._param_validation import Interval

from unspur._data import LabelledData
from unspur._parameters import named_after_y
from unspur._typing import Array, IntArray
from unspur.heads.base import WEIGHT_DECAY, HeadData, TrainedHead
from unspur.options import SGD
from unspur.rows import MAIN, Block
from unspur.solvers.softmax import LinearLogits, LinearModel, solve_softmax, whitening_of


class NoErrorsWarning(UserWarning):
    """The identification model of JTT gets every row right, so that no row is upweighted."""


class JTT(TrainedHead):
    """Logistic regression in which rows that an identification model gets wrong count `upweight` times.

    ::

        minimise    Σ ω_i u_i ℓ(z_i · w + b, y_i) / Σ ω_i u_i  +  λ/2 ‖w‖²,     u_i = upweight where wrong, else 1

    The identification model is ERM that has not learnt everything: strongly penalised, or, for ``solver="sgd"``,
    stopped after a few epochs. No concept is needed: that of the training rows is not looked at, that of a validation
    set makes SGD stop early on the mean loss of its groups.

    Parameters
    ----------
    upweight : float, default=5.0
        Weight of a row that the identification model gets wrong; other rows have weight 1.
    identification_weight_decay : float, default=0.1
        Penalty of the identification model, in the units of `weight_decay`, for the exact solver.
    identification_epochs : int, default=1
        Epochs of the identification model for ``solver="sgd"``.
    {shared_parameters}

    Attributes
    ----------
    {shared_attributes}
    errors_ : integer array
        Training rows that the identification model got wrong, by position. If there are none, a NoErrorsWarning
        is issued and the model is that of ERM.
    """

    _needs_concept: ClassVar[bool] = False
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TrainedHead._parameter_constraints,
        "upweight": [Interval(Real, 1, None, closed="left")],
        "identification_weight_decay": [Interval(Real, 0, None, closed="left")],
        "identification_epochs": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        *,
        upweight: float = 5.0,
        identification_weight_decay: float = 0.1,
        identification_epochs: int = 1,
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
        self.upweight = upweight
        self.identification_weight_decay = identification_weight_decay
        self.identification_epochs = identification_epochs

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
        concept_val: Array | None = None,
        sample_weight_val: Array | None = None,
        clusters: Array | None = None,
    ) -> Self:
        """Train the last layer twice; `concept` is not looked at (see `Head.fit` for the rest)."""
        return super().fit(
            X,
            y,
            concept=None,
            sample_weight=sample_weight,
            X_val=X_val,
            y_val=y_val,
            concept_val=concept_val,
            sample_weight_val=sample_weight_val,
            clusters=clusters,
        )

    def _train(self, data: HeadData, rng: np.random.Generator) -> LinearModel:
        exact = SGD.of(self.solver) is None
        train, held_out = (data.train, None) if exact else self._held_out(data, rng)
        first = self._identify(train) if exact else self._sgd(train, None, rng, epochs=self.identification_epochs)
        self.errors_ = _wrong(train, first.logits())
        weight = train.weight.copy()
        weight[self.errors_] *= self.upweight
        again = train.reweighted(weight)
        second = self._exact(again) if held_out is None else self._sgd(again, held_out, rng, watch=_watch(held_out))
        if len(self.errors_):
            return second
        message = "the identification model gets every row right, so this is ERM"
        warnings.warn(
            f"JTT upweights no row: {message}. Raise identification_weight_decay (solver='sgd': lower "
            "identification_epochs or the learning rate) so that it makes errors.",
            NoErrorsWarning,
            stacklevel=4,
        )
        return replace(second, outcome=replace(second.outcome, reason=f"{second.outcome.reason}; {message}"))

    def _identify(self, rows: LabelledData) -> LinearModel:
        source, weighting = rows.source(), rows.weighting(balanced=False)
        whitening = whitening_of(source, weighting, self.identification_weight_decay)
        return solve_softmax(source, weighting, whitening, rows.n_classes, tol=self.tol, max_iter=self.max_iter)


def _watch(held_out: LabelledData) -> str:
    return "mean" if held_out.shape[1] == 1 else "groups"


def _wrong(rows: LabelledData, logits: LinearLogits) -> IntArray:
    """Rows that count and are predicted wrong, by position."""

    def wrong(block: Block) -> list[Array]:
        t = logits.of(logits.rows(block))
        predicted = t[0] > 0 if len(t) == 1 else t.argmax(axis=0)
        return [predicted != block.targets[MAIN]]

    live = rows.weight > 0
    # A list of masks, one per block, adds up to that of all rows, which are visited in order.
    mask = np.concatenate(rows.reweighted(np.ones(len(rows))).source().sum(wrong))
    return np.flatnonzero(mask & live)
