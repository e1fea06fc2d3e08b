"""Logistic regression with different weights of the rows: ERM, GroupWeighted, SUBG, DFR, JTT and AFR.

ERM gives equal weight to rows, GroupWeighted to groups. SUBG trains on equally many rows of every group. Deep feature
reweighting (DFR; Kirichenko et al., ICLR 2023) averages over such subsamples of held-out rows. Just train twice (JTT;
Liu et al., ICML 2021) needs no groups: misclassified rows of a first model count more for the second. Neither does
automatic feature reweighting (AFR; Qiu et al., ICML 2023), which adapts a first model to rows that it finds unlikely.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from unspur._data import LabelledData
from unspur._typing import Array, FloatArray, IntArray
from unspur._validation import generator
from unspur.exceptions import InputError, NoErrorsWarning, UninformativeInferenceWarning, warn
from unspur.heads.base import DEFAULT_PENALTY, Head, HeadData, with_duplicates_as_clusters
from unspur.heads.inference import PROBE_TOL, infer_concept
from unspur.rows import MAIN, Block
from unspur.solvers.coordinates import LogisticCoordinates
from unspur.solvers.logistic import LinearLogits, LinearModel, average, loss_and_residual, solve_softmax

#: Effective number of rows that AFR needs.
MIN_EFFECTIVE_SIZE = 1.001


class ERM(Head):
    """Plain logistic regression with equal weight for every row, or for every class of y.

    ::

        minimise    Σ ω_i ℓ(z_i · w + b, y_i)  +  λ/2 wᵀMw

    `fit` accepts `concept` for compatibility with the other heads, and ignores it.

    Parameters
    ----------
    balance : {"none", "main"}, default="none"
        "main" gives every class of y the same total weight, as the paper does on Waterbirds, where one class is rare.
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
        **Head._parameter_constraints,
        "balance": [StrOptions({"none", "main"})],
    }

    def __init__(
        self,
        *,
        balance: Literal["none", "main"] = "none",
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
        self.balance = balance

    @property
    def _balance(self) -> Literal["rows", "groups"]:  # type: ignore[override]
        return "groups" if self.balance == "main" else "rows"  # without a concept, groups are the classes of y


class GroupWeighted(Head):
    """Logistic regression in which every group (main, concept) gets the same total weight.

    ::

        minimise    1/G Σ_g mean_g ℓ(z · w + b, y)  +  λ/2 wᵀMw

    Groups without rows are left out.

    With ``unknown="infer"``, rows whose concept is missing take part too. The loss of a row does not depend on its
    concept, so only the weights have to be inferred. A row counts for each group by its probability::

        ω_i = Σ_s P(s | x_i, y_i) / N(y_i, s),      N(y, s) = Σ_i P(s | x_i, y_i)  over rows of class y

    P is 0 or 1 where the concept is known. Elsewhere a group-weighted regression of the concept, trained on the
    labelled rows, predicts it; a slope for its logits and an intercept for every group are fitted on held-out labelled
    rows, so that the probabilities are calibrated within each class of y. That takes labelled rows drawn at random
    from those of each class of y. The less the rows say about the concept, the closer its probabilities are to the
    shares of the labelled rows, and the weights to those of ``ERM(balance="main")``. If they are not clearly better
    than chance, a UninformativeInferenceWarning says so. If all concepts are known, nothing changes.

    Parameters
    ----------
    unknown : {"ignore", "infer"}, default="ignore"
        What to do with rows whose concept is missing: leave them out, or infer it.
    {shared_parameters}

    Attributes
    ----------
    {shared_attributes}
    concept_classes_ : tuple
        Classes of the concept, in their order.
    group_counts_ : array of shape (n_classes, n_concepts)
        Rows trained on in each group; their expected number if concepts were inferred.
    """

    _balance = "groups"
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Head._parameter_constraints,
        "unknown": [StrOptions({"ignore", "infer"})],
    }

    def __init__(
        self,
        *,
        unknown: Literal["ignore", "infer"] = "ignore",
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
        self.unknown = unknown

    @property
    def _infers_concept(self) -> bool:  # type: ignore[override]
        return self.unknown == "infer"

    def _prepared(self, data: HeadData) -> HeadData:
        if not self._infers_concept:
            return super()._prepared(data)
        inferred, note = self._with_inferred_concept(data)
        if note:
            warn(note, UninformativeInferenceWarning)
        return inferred

    def _with_inferred_concept(self, data: HeadData) -> tuple[HeadData, str]:
        """The data with concepts inferred; and a warning if they are no better than a guess, else ""."""
        labelled = with_duplicates_as_clusters(self, data.train)
        found = infer_concept(GroupWeighted(tol=PROBE_TOL), labelled, generator(self.random_state))
        if found is None:
            return replace(data, train=data.train.with_labels()), ""
        train = replace(data.train, inferred=found.probability)
        inferred = replace(data, train=train, notes=(*data.notes, found.note))
        return inferred, "" if found.better_than_chance else found.note

    def _train(self, data: HeadData, rng: np.random.Generator) -> LinearModel:
        rows = data.train
        if rows.inferred is not None:  # once for all penalties
            rows = data.cached("inferred groups", rows.with_inferred_groups)
            data = replace(data, train=rows)
        counts = rows.counts.reshape(rows.n_classes_per_label)
        self.group_counts_ = counts if rows.expected_counts is None else rows.expected_counts
        return super()._train(data, rng)


class SUBG(Head):
    """Logistic regression on as many rows of every group (main, concept) as the smallest group has.

    Rows are drawn once, without replacement; groups without rows are left out. Sample weights count within what was
    drawn.

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
        self.drawn_, subsample = data.cached(("drawn", self.random_state), lambda: _drawn(data.train, rng))
        return self._regression(subsample)


class DFR(Head):
    """Mean of logistic regressions on group-balanced draws from held-out rows.

    Each draw takes, without replacement, as many rows of every group (main, concept) as the smallest has. The rows are
    those of the validation set, best ones that the encoder has not seen; X then only supplies the classes. Without one,
    `validation_fraction` of every group of X is held out, and the other rows are not used. The penalty is quadratic
    (the authors' is on absolute values).

    With ``balance="main"`` the groups are the classes of y, and no concept is needed: class-balanced last-layer
    retraining (LaBonte et al., NeurIPS 2023).

    Parameters
    ----------
    balance : {"group", "main"}, default="group"
        What a draw has equally many rows of: groups, or classes of y. With "main" the concept is ignored.
    n_draws : int, default=10
        Draws whose coefficients are averaged.
    penalty : float, default=0.01
        Penalty λ in units of the mean variance of the held-out rows, all groups weighing the same.
    {metric}
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
        Classes of the concept, in their order; only with ``balance="group"``.
    group_counts_ : array of shape (n_classes, n_concepts)
        Held-out rows in each group, from which the draws were made; one column with ``balance="main"``.
    """

    _trains_on_validation = "alone"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Head._parameter_constraints,
        "balance": [StrOptions({"group", "main"})],
        "n_draws": [Interval(Integral, 1, None, closed="left")],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(
        self,
        *,
        balance: Literal["group", "main"] = "group",
        n_draws: int = 10,
        penalty: float = DEFAULT_PENALTY,
        metric: float = 0.0,
        missing_concept: Any = None,
        validation_fraction: float = 0.5,
        tol: float = 1e-6,
        max_iter: int = 1000,
        random_state: Any = None,
    ):
        self.balance = balance
        self.n_draws = n_draws
        self.penalty = penalty
        self.metric = metric
        self.missing_concept = missing_concept
        self.validation_fraction = validation_fraction
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    @property
    def _needs_concept(self) -> bool:  # type: ignore[override]
        return self.balance == "group"

    @property
    def _uses_concept_val(self) -> bool:  # type: ignore[override]
        return self.balance == "group"

    def _train(self, data: HeadData, rng: np.random.Generator) -> LinearModel:
        drawn = ("drawn", self.random_state, self.n_draws, self.validation_fraction)
        held_out, subsamples = data.cached(drawn, lambda: self._drawn(data, rng))
        self.group_counts_ = held_out.counts.reshape(held_out.n_classes_per_label)
        # All draws share coordinates and penalty, so that their coefficients can be averaged.
        geometry = held_out.geometry(held_out.source(), balanced=True, metric=self.metric)
        whitening = LogisticCoordinates.of(geometry, self.penalty)
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
        known = " and a known concept" if self._needs_concept else ""
        held_out.require_classes(f"among those held out, with a positive weight{known}")
        return held_out, [_drawn(held_out, rng)[1] for _ in range(self.n_draws)]


class JTT(Head):
    """Logistic regression in which the misclassified rows of an identification model count `upweight` times.

    ::

        minimise    Σ ω_i u_i ℓ(z_i · w + b, y_i) / Σ ω_i u_i  +  λ/2 wᵀMw,     u_i = upweight where wrong, else 1

    The identification model is ERM that has not learnt everything: it is strongly penalised. The concept is ignored.

    Parameters
    ----------
    upweight : float, default=5.0
        Weight of a row that the identification model misclassifies; other rows have weight 1.
    identification_penalty : float, default=0.1
        Penalty of the identification model, in the units of `penalty`.
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
        **Head._parameter_constraints,
        "upweight": [Interval(Real, 1, None, closed="left")],
        "identification_penalty": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        *,
        upweight: float = 5.0,
        identification_penalty: float = 0.1,
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
        self.upweight = upweight
        self.identification_penalty = identification_penalty

    def _train(self, data: HeadData, rng: np.random.Generator) -> LinearModel:
        del rng
        # Neither the errors nor the upweighted rows depend on the penalty.
        rows, decay = data.train, self.identification_penalty
        self.errors_ = data.cached(
            ("errors", decay), lambda: _wrong(rows, self._regression(rows, penalty=decay).logits())
        )
        second = self._regression(data.cached(("errors", decay, self.upweight), lambda: self._upweighted(rows)))
        if len(self.errors_):
            return second
        message = "the identification model gets every row right, so this is ERM"
        warn(f"JTT upweights no row: {message}. Raise identification_penalty so that it makes errors.", NoErrorsWarning)
        return replace(second, outcome=replace(second.outcome, reason=f"{second.outcome.reason}; {message}"))

    def _upweighted(self, rows: LabelledData) -> LabelledData:
        weight = rows.weight.copy()
        weight[self.errors_] *= self.upweight
        return replace(rows, weight=weight, unweighted=rows)


class AFR(Head):
    """Logistic regression that adapts a first model to held-out rows, most of all to those it finds unlikely.

    ::

        minimise    Σ μ_i ℓ(z_i · w + b, y_i)  +  λ/2 (w − ŵ)ᵀM(w − ŵ),     μ_i ∝ ω_i exp(−γ p_i) / n_{y_i}

    The first model ŵ is ERM on one part of the rows. The sum is over the other part, whose rows it has not seen: p_i is
    the first model's probability of the row's own class, n_y the total weight of the class, and μ sums to one. Rows
    that break a spurious correlation are unlikely for a model that uses it, so they get more weight, without any
    concept label. With γ = 0 the classes have equal weight, and nothing else changes.

    Weights and penalty are those of Qiu et al. (2023), who took γ = 14 for birds and 1.8 for faces, both on the last
    layers of fine-tuned networks. γ is best chosen on validation rows. Without concept labels for these, only the
    classes of y can tell which γ is best, and they may tell little.

    Parameters
    ----------
    gamma : float, default=4.0
        How much more weight unlikely rows have, γ: exp(γ) times as much at p = 0 as at p = 1.
    first_penalty : float, default=0.01
        Penalty of the first model, in units of the mean variance of its rows.
    penalty : float, default=0.01
        Penalty λ on the distance from the first model, in units of the mean variance of the reweighted rows.
    {metric}
    missing_concept : scalar or None, default=None
        Accepted for compatibility with the other heads, and ignored, as `concept` is.
    validation_fraction : float, default=0.2
        Share of every class that is held out from the first model; copies of a row, or a cluster, as a whole. If X_val
        is passed, its rows are reweighted, and the first model is trained on all rows of X.
    tol : float, default=1e-6
        Relative gradient norm at which the solver stops.
    max_iter : int, default=1000
        Most iterations of the solver, for each of the two models.
    random_state : int, RandomState or None, default=None
        Draws the rows that are held out.

    Attributes
    ----------
    {shared_attributes}
    effective_size_ : float
        Effective number of reweighted rows, 1 / Σ μ². If it is small, few rows determine the solution.

    Examples
    --------
    >>> from unspur.heads import AFR
    >>> from unspur.datasets import make_toy
    >>> train = make_toy(2000, random_state=0)
    >>> round(AFR(random_state=0).fit(train.Z, train.y).score(train.Z, train.y), 1)
    0.7
    """

    _needs_concept: ClassVar[bool] = False
    _uses_concept_val: ClassVar[bool] = False
    _trains_on_validation = "besides"
    _holds_rows_out: ClassVar[bool] = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Head._parameter_constraints,
        "gamma": [Interval(Real, 0, None, closed="left")],
        "first_penalty": [Interval(Real, 0, None, closed="left")],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(
        self,
        *,
        gamma: float = 4.0,
        first_penalty: float = DEFAULT_PENALTY,
        penalty: float = DEFAULT_PENALTY,
        metric: float = 0.0,
        missing_concept: Any = None,
        validation_fraction: float = 0.2,
        tol: float = 1e-6,
        max_iter: int = 1000,
        random_state: Any = None,
    ):
        self.gamma = gamma
        self.first_penalty = first_penalty
        self.penalty = penalty
        self.metric = metric
        self.missing_concept = missing_concept
        self.validation_fraction = validation_fraction
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _train(self, data: HeadData, rng: np.random.Generator) -> LinearModel:
        # Neither the first model nor the weights depend on the penalty.
        stage = ("first model", self.first_penalty, self.validation_fraction, self.random_state)
        first, held_out, likely = data.cached(stage, lambda: self._first_stage(data, rng))
        above = np.maximum(
            likely - likely[held_out.weight > 0].min(), 0.0
        )  # from the least likely row, so none overflow
        weight = held_out.row_weights(balanced=True) * np.exp(-self.gamma * above)
        self.effective_size_ = float(weight.sum() ** 2 / np.sum(weight**2))
        if self.effective_size_ < MIN_EFFECTIVE_SIZE:
            raise InputError(
                f"With gamma={self.gamma:g}, a single row has all the weight, and nothing can be learnt from it. Lower "
                "gamma, or raise first_penalty, so that the first model is less certain."
            )
        rows = data.cached(
            (*stage, self.gamma), lambda: replace(held_out, weight=weight / weight.max(), unweighted=held_out)
        )
        return self._regression(rows, origin=first)

    def _first_stage(self, data: HeadData, rng: np.random.Generator) -> tuple[LinearModel, LabelledData, FloatArray]:
        """The first model, the rows held out from it, and its probability of each row's own class (n,)."""
        train, held_out = data.train, data.validation
        if held_out is None:
            train, held_out = train.split(self.validation_fraction, rng)
        held_out.require_classes("among those held out, with a positive weight")
        first = self._regression(train, penalty=self.first_penalty)
        logits = first.logits()

        def likely(block: Block) -> list[Array]:
            loss, _ = loss_and_residual(logits.of(logits.rows(block)), block.targets[MAIN])
            return [loss]

        return first, held_out, np.exp(-_by_row(held_out, likely))


def _drawn(rows: LabelledData, rng: np.random.Generator) -> tuple[IntArray, LabelledData]:
    """Indices of equally many rows of every group, and the rows with weight on these only."""
    drawn = rows.subsample_groups(rng)
    return drawn, rows.with_weight_on(drawn)


def _wrong(rows: LabelledData, logits: LinearLogits) -> IntArray:
    """Indices of the misclassified rows with positive weight."""

    def wrong(block: Block) -> list[Array]:
        t = logits.of(logits.rows(block))
        predicted = t[0] > 0 if len(t) == 1 else t.argmax(axis=0)
        return [predicted != block.targets[MAIN]]

    return np.flatnonzero(_by_row(rows, wrong) & (rows.weight > 0))


def _by_row(rows: LabelledData, statistic: Callable[[Block], list[Array]]) -> Array:
    """Values of a statistic of each row (n,), whatever its weight; blocks are visited in order, one array for each."""
    return np.concatenate(rows.reweighted(np.ones(len(rows))).source().sum(statistic))
