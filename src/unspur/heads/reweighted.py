"""Logistic regression with different weights of the rows: ERM, GroupWeighted, SUBG, DFR and JTT.

ERM gives equal weight to rows, GroupWeighted to groups. SUBG trains on equally many rows of every group. Deep feature
reweighting (DFR; Kirichenko et al., ICLR 2023) averages over such subsamples of held-out rows. Just train twice (JTT;
Liu et al., ICML 2021) needs no groups: misclassified rows of a first model count more for the second.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from unspur._data import LabelledData
from unspur._typing import Array, IntArray
from unspur.exceptions import NoErrorsWarning
from unspur.heads.base import WEIGHT_DECAY, Head, HeadData, SolverHead
from unspur.options import SGD
from unspur.rows import MAIN, Block
from unspur.solvers.logistic import LinearLogits, LinearModel, average, solve_softmax
from unspur.solvers.whitening import Whitening


class ERM(SolverHead):
    """Plain logistic regression with equal weight for every row, or for every class of y.

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
    _uses_concept_val: ClassVar[bool] = False

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SolverHead._parameter_constraints,
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

    @property
    def _weights(self) -> Literal["rows", "groups"]:  # type: ignore[override]
        return "groups" if self.balance == "main" else "rows"  # without a concept, groups are the classes of y


class GroupWeighted(SolverHead):
    """Logistic regression in which every group (main, concept) gets the same total weight.

    ::

        minimise    1/G Σ_g mean_g ℓ(z · w + b, y)  +  λ/2 ‖w‖²

    Groups without rows are left out. SGD draws its batches by these weights, and stops early on the mean held-out loss
    of the groups.

    Parameters
    ----------
    {shared_parameters}

    Attributes
    ----------
    {shared_attributes}
    concept_classes_ : tuple
        Classes of the concept, in their order.
    group_counts_ : array of shape (n_classes, n_concepts)
        Rows trained on in each group.
    """

    _weights = "groups"

    def _train(self, data: HeadData, rng: np.random.Generator) -> LinearModel:
        self.group_counts_ = data.train.counts.reshape(data.train.n_classes_per_label)
        return super()._train(data, rng)


class SUBG(SolverHead):
    """Logistic regression on as many rows of every group (main, concept) as the smallest group has.

    Rows are drawn once, without replacement; groups without rows are left out. Sample weights count within what was
    drawn. SGD stops early on the mean held-out loss of the groups.

    Parameters
    ----------
    {shared_parameters}

    Attributes
    ----------
    {shared_attributes}
    concept_classes_ : tuple
        Classes of the concept, in their order.
    drawn_ : integer array
        The rows that were drawn, by position.
    """

    def _train(self, data: HeadData, rng: np.random.Generator) -> LinearModel:
        train, held_out = (data.train, None) if SGD.of(self.solver) is None else self._held_out(data, rng)
        if held_out is None:
            self.drawn_, subsample = data.cached(("drawn", self.random_state), lambda: _drawn(train, rng))
            return self._exact(subsample)
        self.drawn_, subsample = _drawn(train, rng)
        return self._sgd(subsample, held_out, rng, watch="groups")


class DFR(Head):
    """Mean of logistic regressions on group-balanced draws from held-out rows.

    Each draw takes, without replacement, as many rows of every group (main, concept) as the smallest has. The rows are
    those of the validation set, best ones that the encoder has not seen; X then only supplies the classes. Without one,
    `validation_fraction` of every group of X is held out, and the other rows are not used. The penalty is quadratic
    (the authors' is on absolute values).

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

    _trains_on_validation: ClassVar[bool] = True

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
        drawn = ("drawn", self.random_state, self.n_draws, self.validation_fraction)
        held_out, subsamples = data.cached(drawn, lambda: self._drawn(data, rng))
        self.group_counts_ = held_out.counts.reshape(held_out.n_classes_per_label)
        # All draws share coordinates and penalty, so that their coefficients can be averaged.
        whitening = Whitening.of(held_out.geometry(held_out.source(), balanced=True), self.weight_decay)
        draws: list[LinearModel] = []
        for draw in subsamples:
            source, weighting = draw.source(), draw.weighting(balanced=False)
            start = draws[-1] if draws else None
            draws.append(
                solve_softmax(
                    source, weighting, whitening, draw.n_classes, start=start, tol=self.tol, max_iter=self.max_iter
                )
            )
        return average(draws)

    def _drawn(self, data: HeadData, rng: np.random.Generator) -> tuple[LabelledData, list[LabelledData]]:
        """The rows held out, and group-balanced draws from them."""
        held_out = data.validation
        if held_out is None:
            held_out = data.train.split(self.validation_fraction, rng)[1]
        held_out.require_classes("among those held out, with a positive weight and a known concept")
        return held_out, [_drawn(held_out, rng)[1] for _ in range(self.n_draws)]


class JTT(SolverHead):
    """Logistic regression in which the misclassified rows of an identification model count `upweight` times.

    ::

        minimise    Σ ω_i u_i ℓ(z_i · w + b, y_i) / Σ ω_i u_i  +  λ/2 ‖w‖²,     u_i = upweight where wrong, else 1

    The identification model is ERM that has not learnt everything: strongly penalised, or, for ``solver="sgd"``,
    stopped after a few epochs. The concept of the training rows is ignored; that of a validation set makes SGD stop
    early on the mean loss of its groups.

    Parameters
    ----------
    upweight : float, default=5.0
        Weight of a row that the identification model misclassifies; other rows have weight 1.
    identification_weight_decay : float, default=0.1
        Penalty of the identification model, in the units of `weight_decay`, for the exact solver.
    identification_epochs : int, default=1
        Epochs of the identification model for ``solver="sgd"``.
    {shared_parameters}

    Attributes
    ----------
    {shared_attributes}
    errors_ : integer array
        Indices of the training rows that the identification model misclassified. If there are none, a
        NoErrorsWarning is issued and the model is that of ERM.
    """

    _needs_concept: ClassVar[bool] = False
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SolverHead._parameter_constraints,
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

    def _train(self, data: HeadData, rng: np.random.Generator) -> LinearModel:
        exact = SGD.of(self.solver) is None
        train, held_out = (data.train, None) if exact else self._held_out(data, rng)
        if exact:
            # Neither the errors nor the upweighted rows depend on the penalty.
            first = ("errors", self.identification_weight_decay)
            self.errors_ = data.cached(first, lambda: _wrong(train, self._identify(train).logits()))
            again = data.cached((*first, self.upweight), lambda: self._upweighted(train))
        else:
            stopped = self._sgd(train, None, rng, epochs=self.identification_epochs)
            self.errors_ = _wrong(train, stopped.logits())
            again = self._upweighted(train)
        second = self._exact(again) if held_out is None else self._sgd(again, held_out, rng, watch=_watch(held_out))
        if len(self.errors_):
            return second
        message = "the identification model gets every row right, so this is ERM"
        warnings.warn(
            f"JTT upweights no row: {message}. Raise identification_weight_decay (solver='sgd': lower "
            "identification_epochs or the learning rate) so that it makes errors.",
            NoErrorsWarning,
            stacklevel=5,
        )
        return replace(second, outcome=replace(second.outcome, reason=f"{second.outcome.reason}; {message}"))

    def _upweighted(self, rows: LabelledData) -> LabelledData:
        weight = rows.weight.copy()
        weight[self.errors_] *= self.upweight
        return rows.reweighted(weight)

    def _identify(self, rows: LabelledData) -> LinearModel:
        source, weighting = rows.source(), rows.weighting(balanced=False)
        whitening = Whitening.of(rows.geometry(source, balanced=False), self.identification_weight_decay)
        return solve_softmax(source, weighting, whitening, rows.n_classes, tol=self.tol, max_iter=self.max_iter)


def _drawn(rows: LabelledData, rng: np.random.Generator) -> tuple[IntArray, LabelledData]:
    """Indices of equally many rows of every group, and the rows with weight on these only."""
    drawn = rows.subsample_groups(rng)
    return drawn, rows.with_weight_on(drawn)


def _watch(held_out: LabelledData) -> str:
    return "mean" if held_out.n_classes_per_label[1] == 1 else "groups"


def _wrong(rows: LabelledData, logits: LinearLogits) -> IntArray:
    """Indices of the misclassified rows with positive weight."""

    def wrong(block: Block) -> list[Array]:
        t = logits.of(logits.rows(block))
        predicted = t[0] > 0 if len(t) == 1 else t.argmax(axis=0)
        return [predicted != block.targets[MAIN]]

    live = rows.weight > 0
    # One mask per block; blocks are visited in order.
    mask = np.concatenate(rows.reweighted(np.ones(len(rows))).source().sum(wrong))
    return np.flatnonzero(mask & live)
