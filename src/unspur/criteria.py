"""Is this a proper direction? Two tests on held-out rows (paper section 3.3, appendix D).

Along a direction v two scalars per label are fitted, ``t = γ z·v + b``, and every held-out row gets a loss ℓ for each
label.

- *informative*: the direction predicts its own label better than chance, ``d = ℓ(own) − ℓ(chance)``, ``t < −z_{1−α}``;
- *its own*: it says more about its own label than about the other, ``d = ℓ(concept) − ℓ(main)`` beyond Δ,
  ``t < −z`` for a spurious direction and ``t > +z`` for a main-task direction.

Group-weighted tests average d with equal weight over the four groups g = (main, concept)::

    d̄ = ¼ Σ_g mean_g(d),   Var(d̄) = 1/16 Σ_g var_g(d)/n_g,   t = (d̄ − Δ) / sqrt(Var)

with n_g = (Σw)²/Σw² the effective size under row weights; plain tests treat all rows as one group. (The printed paper
divides by the variance; its square root is meant.)
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.special import ndtr, ndtri

from unspur._typing import FloatArray
from unspur.exceptions import GroupSizeError, NotConvergedWarning
from unspur.rows import CONCEPT, MAIN, RowSource, Weighting, held_out
from unspur.solvers.scalars import ScalarFit, fit_scalars
from unspur.sums.counts import GROUPS, Balance, CellCounts
from unspur.sums.group_losses import (
    SERIES,
    GroupDerivatives,
    GroupLosses,
    HeldOutLosses,
    LeaveOneOut,
    ScalarModel,
)
from unspur.sums.scalars import FoldScore, LinearScore, Score

Role: TypeAlias = Literal["spurious", "main"]
#: Label that each role's directions are about.
LABEL: dict[Role, int] = {"spurious": CONCEPT, "main": MAIN}
BOTH = np.array([CONCEPT, MAIN])
#: Error of a mean loss below which differences are rounding.
ROUNDING = 1e-12
#: Fewest held-out rows of a group that have a variance.
FEWEST = 2


@dataclass(frozen=True, slots=True)
class TTest:
    """Mean difference in loss, its standard error, t and one-sided p."""

    difference: float
    error: float
    t: float
    p: float

    def to_dict(self) -> dict[str, float]:
        """Plain numbers."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Decision about one direction, with everything it rests on."""

    role: Role
    proper: bool
    informative: TTest
    own: TTest
    delta: float
    #: Mean loss of each label in each group, shape (2, 4): concept and main; groups 2·main + concept.
    losses: FloatArray
    groups: tuple[str, ...]
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, ready for JSON."""
        losses = [[None if np.isnan(loss) else loss for loss in line] for line in self.losses.tolist()]
        return {
            "role": self.role,
            "proper": self.proper,
            "informative": self.informative.to_dict(),
            "own": self.own.to_dict(),
            "delta": self.delta,
            "loss_concept": dict(zip(self.groups, losses[CONCEPT], strict=True)),
            "loss_main": dict(zip(self.groups, losses[MAIN], strict=True)),
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class DirectionTests:
    """How directions are judged: significance level, group weights or not, Δ, and where the scalars come from.

    `scalars` = "held_out": fitted on the held-out rows, refitted without the row that is judged. "training": fitted on
    the rows the direction was estimated from, as in the paper; far too confident after an encoder that overfits them.
    """

    significance_level: float = 0.05
    by_group: bool = True
    delta: float = 0.0
    scalars: Literal["held_out", "training"] = "held_out"

    @property
    def _balance(self) -> Balance:
        """Weights the scalars are fitted under: those the tests average with (else the tests have no power)."""
        return "group" if self.by_group else "none"

    def losses(self, rows: RowSource, counts: CellCounts, directions: FloatArray, centre: FloatArray) -> GroupLosses:
        """Held-out losses of both labels along `directions`, shape (folds, d): line k − 1 for the rows of fold k."""
        if self.scalars == "held_out":  # training rows given beside a validation set need not be looked at
            rows = held_out(rows)
        scores = rows.project(directions.T, centre)
        chance = self._chance(counts)
        if self.scalars == "held_out":
            model = self._leave_one_out(scores, counts)
            return scores.sum(HeldOutLosses(model, chance))
        total: GroupLosses | None = None
        for fold in range(1, counts.n_folds + 1):
            weighting = counts.weighting(counts.without(fold), self._balance)
            score = LinearScore(np.eye(counts.n_folds)[[fold - 1, fold - 1]])
            model = _model(_fitted(scores, score, weighting), score)
            part = scores.sum(HeldOutLosses(model, chance, fold))
            total = part if total is None else total + part
        assert total is not None
        return total

    def _leave_one_out(self, scores: RowSource, counts: CellCounts) -> ScalarModel:
        """Scalars fitted on all held-out rows, with what is needed to leave each row out in turn."""
        weighting = counts.weighting(counts.held_out, self._balance)
        fit = _fitted(scores, FoldScore(0), weighting)
        model = _model(fit, FoldScore(0))
        group = scores.sum(GroupDerivatives(model, weighting))
        total = group.sum(axis=0)
        total[0] += fit.penalty * fit.gamma
        total[2] += fit.penalty
        weight = (weighting.factor.reshape(-1, 4) * counts.weight.reshape(-1, 4)).sum(axis=0)
        if not self.by_group:  # the weight of a row left out is spread over all rows
            group, weight = np.broadcast_to(group.sum(axis=0), group.shape), np.full(4, weight.sum())
        return replace(model, without=LeaveOneOut(weighting, weight, group, total))

    def _chance(self, counts: CellCounts) -> FloatArray:
        """Loss of the chance classifier, (2, 2): label, value. Even odds in group-weighted tests, else prevalence."""
        if self.by_group:
            return np.full((2, 2), np.log(2.0))
        estimated_on = counts.without(1 if counts.n_folds == 1 else None)
        total = counts.weight[estimated_on].sum(axis=0)  # (y, concept)
        shares = np.stack([total.sum(axis=0), total.sum(axis=1)]) / total.sum()
        return np.asarray(-np.log(np.maximum(shares, np.finfo(np.float64).tiny)))

    def summarise(self, losses: GroupLosses, series: str) -> tuple[float, float]:
        """Average of one of `SERIES` over held-out rows and its standard error."""
        stats = losses if self.by_group else losses.pooled()
        i, groups = SERIES.index(series), stats.weight.shape[1]
        variance = float((stats.variances[i] / stats.effective_rows).sum()) / groups**2
        return float(stats.means[i].mean()), float(np.sqrt(variance))

    def informative(self, role: Role, losses: GroupLosses, groups: tuple[str, ...] = GROUPS) -> Verdict:
        """The first test alone, for methods that know one label only."""
        verdict = self.judge(role, losses, groups)
        proper = verdict.informative.p < self.significance_level
        own = "concept" if role == "spurious" else "main"
        reason = f"predicts the {own} label" if proper else f"does not predict the {own} label better than chance"
        return replace(verdict, proper=proper, reason=reason)

    def judge(self, role: Role, losses: GroupLosses, groups: tuple[str, ...] = GROUPS) -> Verdict:
        """Both tests for a direction whose held-out losses are given."""
        own, other = ("concept", "main") if role == "spurious" else ("main", "concept")
        informative = _t_test(*self.summarise(losses, f"{own} over chance"), 0.0, lower=True)
        specific = _t_test(*self.summarise(losses, "concept over main"), self.delta, lower=role == "spurious")
        threshold = -float(ndtri(self.significance_level))
        knows, is_own = (
            informative.t < -threshold,
            (specific.t if role == "main" else -specific.t) > threshold,
        )
        if knows and is_own:
            reason = f"predicts the {own} label, and better than the {other} label"
        elif knows:
            reason = f"predicts the {own} label, but not clearly better than the {other} label"
        else:
            reason = f"does not predict the {own} label better than chance"
        means = losses.means[:2]
        return Verdict(role, bool(knows and is_own), informative, specific, self.delta, means, groups, reason)


def _model(fit: ScalarFit, score: Score) -> ScalarModel:
    return ScalarModel(fit.gamma, fit.intercept, score, fit.standardise, BOTH)


def _fitted(scores: RowSource, score: Score, weighting: Weighting) -> ScalarFit:
    fit = fit_scalars(scores, score, BOTH, weighting, tol=1e-4)  # the error is of the order of its square
    if not fit.converged:
        warnings.warn(
            "Slope and intercept along a tested direction were not found to full precision; its t is approximate.",
            NotConvergedWarning,
            stacklevel=2,
        )
    return fit


def _t_test(difference: float, error: float, null: float, *, lower: bool) -> TTest:
    """One-sided test of `difference` against `null`.

    A perfect score has no variation at all; there t is as large as rounding error allows, and still finite.
    """
    t = (difference - null) / max(error, ROUNDING)
    return TTest(difference, error, t, float(ndtr(t if lower else -t)))


def require_testable(counts: CellCounts, *, by_group: bool, how: str) -> None:
    """Raise GroupSizeError unless every group has enough held-out rows; `how` says what the user can do."""
    held_out = counts.rows[1:].sum(axis=0)  # (y, concept)
    if by_group and held_out.min() < FEWEST:
        small = [(y, c) for y in (0, 1) for c in (0, 1) if held_out[y, c] < FEWEST]
        names = ", ".join(f"({counts.names[2 * y + c]}) has {int(held_out[y, c])}" for y, c in small)
        raise GroupSizeError(f"Too few held-out rows: group {names}; the tests need at least {FEWEST} in each. {how}")
    for axis, name in ((0, "concept"), (1, "main label")):
        if held_out.sum(axis=axis).min() == 0:
            raise GroupSizeError(f"All held-out rows have the same {name}. {how}")
