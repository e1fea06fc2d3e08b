"""Is this a proper direction? Two tests on held-out rows (paper section 3.3, appendix D).

Along a direction v two scalars per label are fitted, ``η = γ z·v + b``, and every held-out row gets a loss ℓ for each
label.

- *informative*: the direction predicts its own label better than chance, ``d = ℓ(own) − ℓ(chance)``, ``t < −q``. A
  direction with γ < 0 on held-out rows counts as uninformative: d = 0;
- *specific*: it predicts its own label better than the other, ``d = ℓ(concept) − ℓ(main)`` beyond Δ, ``t < −q`` for a
  spurious direction and ``t > +q`` for a main-task direction.

Group-weighted tests average d with equal weight over the four groups g = (main, concept)::

    d̄ = ¼ Σ_g mean_g(d),   Var(d̄) = 1/16 Σ_g v_g,   v_g = var_g(d)/n_g,   t = (d̄ − Δ) / sqrt(Var)

and under row weights ``v_g = Σw²(d − mean_g)² / (Σw)² · n_g/(n_g − 1)`` with the effective size n_g = (Σw)²/Σw². Plain
tests treat all rows as one group. (The printed paper divides by the variance; its square root is meant.) q is the
quantile of Student's t with Welch's degrees of freedom,
``(Σ v_g)² / Σ v_g²/(n_g − 1)``: the variance of ten rows is too uncertain for the normal distribution.

Δ shifts the second test, for when one label is easier to predict. If it was estimated, its standard error adds to that
of the test.

*Folds share their noise.* Cross-fitted tests need a larger variance, because directions of different folds are
estimated from mostly the same rows. If a share f of a direction is noise, the variance is 1 + f times that of
independent rows; we use 1 + 2f, because the noise is skewed. Derivation: a cross-fitted direction is the true one plus
noise. If row i contributes a_i, the direction that row i tests gives it the score a_i·a_j, summed over the rows j of
other folds, and row j gets the same products: the sum over all rows counts each of them twice, so the variance is 1 + f
times that of independent rows. The noise is skewed like χ² less its mean, whose 95 % quantile is up to 2.01 deviations
instead of 1.64, so a factor of 1 + 2f keeps that level in any number of dimensions. (The 99 % quantile would need more
if all is noise, f near 1; there the first test rejects.) Scores of the directions of two folds correlate inside groups
by ``r = 1 − f/(K − 1)``, which estimates f. The second test divides by ``sqrt((1 + 2f) Var)``. The first compares
nested models and is conservative: fitted scalars predict noise worse than the constant does, so without information t
lies above zero. With many small folds, such a direction often points
away from its label. The rule on γ then keeps the test conservative.

*Clusters.* If rows are not independent, the loss of a row is computed with scalars fitted without its cluster, and
variance and degrees of freedom count clusters (`solvers.held_out_losses`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from scipy.special import stdtr, stdtrit

from unspur._typing import FloatArray
from unspur.exceptions import GroupSizeError
from unspur.rows import CONCEPT, MAIN, RowSource, Summable, Weighting, validation_part
from unspur.solvers.descent import warn_not_converged
from unspur.solvers.held_out_losses import (
    SERIES,
    GroupLosses,
    HeldOutClusters,
    HeldOutLosses,
    LeaveOneOut,
    ScalarFit,
    ScoresWithinGroups,
    clustered_losses,
    fit_scalars,
    losses_without_cluster,
    own_scores,
)
from unspur.solvers.statistics import GROUPS, Balance, CellCounts

Role: TypeAlias = Literal["spurious", "main"]
#: Label of each role.
LABEL: dict[Role, int] = {"spurious": CONCEPT, "main": MAIN}
#: Standard error of a mean loss below which differences are rounding errors.
MIN_ERROR = 1e-12
#: Above this |t| the label is separable, and the value is determined by rounding.
MAX_MEANINGFUL_T = 1e3
#: Mean held-out loss, in nats, below which a label counts as separable.
MAX_SEPARABLE_LOSS = 1e-3
#: Fewest held-out rows of a group for which the tests keep their level (reproduction/docs/trust.md).
SMALLEST_GROUP = 10
#: Fewest effective clusters of the held-out rows of a group (reproduction/docs/trust.md).
SMALLEST_CLUSTERS = 2


@dataclass(frozen=True, slots=True)
class TTest:
    """Mean difference in loss, its standard error, t, one-sided p, and degrees of freedom."""

    difference: float
    error: float
    t: float
    p: float
    df: float = math.inf

    def scaled(self, level: float, threshold: float) -> float:
        """The statistic t, scaled so that its critical value at `level` is `threshold`."""
        return self.t * threshold / -float(stdtrit(self.df, level))

    def to_dict(self) -> dict[str, float]:
        """Plain numbers, ready for JSON."""
        return asdict(self)

    @property
    def t_text(self) -> str:
        """The statistic with four digits, or "separable"."""
        return "separable" if abs(self.t) >= MAX_MEANINGFUL_T else f"{self.t:.4g}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Decision about one direction, with both tests."""

    role: Role
    proper: bool
    informative: TTest
    specific: TTest
    delta: float
    #: Mean loss of each label in each group, shape (2, 4): concept and main; groups 2·main + concept.
    losses: FloatArray
    groups: tuple[str, ...]
    reason: str
    #: Level of each of the two tests.
    level: float = 0.05

    @property
    def decision(self) -> str:
        """Either "accepted" or "rejected"."""
        return "accepted" if self.proper else "rejected"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, ready for JSON."""
        losses = [[None if np.isnan(loss) else loss for loss in row] for row in self.losses.tolist()]
        return {
            "role": self.role,
            "proper": self.proper,
            "informative": self.informative.to_dict(),
            "specific": self.specific.to_dict(),
            "delta": self.delta,
            "level": self.level,
            "loss_concept": dict(zip(self.groups, losses[CONCEPT], strict=True)),
            "loss_main": dict(zip(self.groups, losses[MAIN], strict=True)),
            "reason": self.reason,
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Verdict:
        """Inverse of `to_dict`."""
        given = dict(saved)
        by_group = [given.pop(name) for name in ("loss_concept", "loss_main")]
        losses = np.array([[math.nan if loss is None else loss for loss in one.values()] for one in by_group])
        tests = {name: TTest(**given[name]) for name in ("informative", "specific")}
        return cls(**{**given, **tests, "losses": losses, "groups": tuple(by_group[0])})


class Average(NamedTuple):
    """Mean over held-out rows, its standard error, and the degrees of freedom of that."""

    mean: float
    error: float
    df: float


@dataclass(frozen=True, slots=True)
class DirectionTests:
    """How directions are tested: significance level, weights of groups or of rows, and Δ.

    Slope and intercept are fitted on the held-out rows, and refitted without the row (or cluster) whose loss is
    computed: those of the rows that a direction was estimated from are far too confident if the encoder overfits them.
    """

    significance_level: float = 0.05
    by_group: bool = True
    delta: float = 0.0
    #: Standard error of Δ, which adds to that of the second test.
    delta_error: float = 0.0
    #: Clusters of the held-out rows, if they are not independent.
    clusters: HeldOutClusters | None = None

    @property
    def _balance(self) -> Balance:
        """Weights of the scalars' fit: those of the tests, which have no power otherwise."""
        return "group" if self.by_group else "none"

    def losses(self, rows: RowSource, counts: CellCounts, directions: FloatArray, centre: FloatArray) -> GroupLosses:
        """Held-out losses of both labels along `directions`, shape (folds, d): row k − 1 for the rows of fold k."""
        scores = validation_part(rows).project(directions.T, centre)
        return replace(self._summed(scores, counts), shared_noise=self._shared_noise(scores, counts))

    def own_losses(
        self, rows: RowSource, counts: CellCounts, directions: FloatArray, centre: FloatArray
    ) -> tuple[Average, Average]:
        """Held-out loss of each label along its own directions, shape (2, folds, d): concept, main."""
        scores = validation_part(rows).project(directions.reshape(-1, directions.shape[-1]).T, centre)
        summed = self._summed(scores, counts)
        return self.summarise(summed, "concept"), self.summarise(summed, "main")

    def _summed(self, scores: RowSource, counts: CellCounts) -> GroupLosses:
        """Sums over the held-out rows, with scalars fitted along the directions of each row's own fold."""
        chance, clusters = self._chance(counts), self.clusters
        weighting = counts.weighting(counts.held_out_folds, self._balance)
        held_out = own_scores(scores, counts.n_folds, in_order=clusters is not None)
        fit = _fit_scalars(held_out, weighting)
        if clusters is not None:
            x = np.concatenate(held_out.sum(lambda block: [block.z.T]), axis=1)
            summed = clustered_losses(losses_without_cluster(fit, weighting.factor, x, clusters), chance, clusters)
        else:
            weight = (weighting.factor.reshape(-1, 4) * counts.weight.reshape(-1, 4)).sum(axis=0)
            weight = weight if self.by_group else weight.sum(keepdims=True)
            without = LeaveOneOut.of(held_out, fit, weighting, weight)
            summed = held_out.sum(HeldOutLosses(fit, without, chance))
        return replace(summed, has_right_sign=(bool(fit.gamma[CONCEPT] > 0), bool(fit.gamma[MAIN] > 0)))

    def _shared_noise(self, scores: RowSource, counts: CellCounts) -> float:
        """Share f of a cross-fitted direction that is noise, ``(K − 1)(1 − r)``; 0 for a single fold."""
        folds = counts.n_folds
        if folds == 1:
            return 0.0
        weighting = counts.weighting(counts.held_out_folds, self._balance)
        correlations = ScoresWithinGroups.correlations(scores.sum(ScoresWithinGroups(weighting, folds)))
        mean = (correlations.sum() - np.trace(correlations)) / (folds * (folds - 1))
        return float(np.clip((folds - 1) * (1.0 - mean), 0.0, 1.0))

    def _chance(self, counts: CellCounts) -> FloatArray:
        """Loss of the chance classifier, (2, 2): label, value. Even odds in group-weighted tests, else prevalence."""
        if self.by_group:
            return np.full((2, 2), np.log(2.0))
        total = counts.weight[counts.estimated_on].sum(axis=0)  # (y, concept)
        shares = np.stack([total.sum(axis=0), total.sum(axis=1)]) / total.sum()
        return np.asarray(-np.log(np.maximum(shares, np.finfo(np.float64).tiny)))

    def chance_loss(self, counts: CellCounts) -> FloatArray:
        """Mean loss of the chance classifier of each label, shape (2,)."""
        of_values = self._chance(counts)
        return np.asarray((np.exp(-of_values) * of_values).sum(axis=1))

    def summarise(self, losses: GroupLosses, series: str) -> Average:
        """Average of one of `SERIES` over held-out rows."""
        which, stats = SERIES.index(series), losses if self.by_group else losses.pooled()
        mean = float(stats.means[which].mean())
        if losses.error:
            return Average(mean, losses.error[which], losses.degrees[which])
        rows, of_group = stats.effective_rows, stats.variances_of_means[which]
        total = float(of_group.sum())
        # Without any variation, the smallest group counts. (Shares of the total are squared, not variances, which may
        # be too small to be squared.)
        degrees = 1.0 / float(((of_group / total) ** 2 / (rows - 1.0)).sum()) if total > 0 else float(rows.min()) - 1.0
        return Average(mean, math.sqrt(total) / len(rows), degrees)

    def informative(self, role: Role, losses: GroupLosses, groups: tuple[str, ...] = GROUPS) -> Verdict:
        """The first test only, for methods of one label."""
        verdict = self.test(role, losses, groups)
        proper = verdict.informative.p < self.significance_level
        own = "concept" if role == "spurious" else "task"
        reason = f"predicts the {own}" if proper else f"does not predict the {own} better than chance"
        return replace(verdict, proper=proper, reason=reason)

    def test(self, role: Role, losses: GroupLosses, groups: tuple[str, ...] = GROUPS) -> Verdict:
        """Both tests for a direction whose held-out losses are given."""
        own, other = ("concept", "main") if role == "spurious" else ("main", "concept")
        predicted = self.summarise(losses, f"{own} minus chance")
        if not losses.has_right_sign[LABEL[role]]:
            predicted = predicted._replace(mean=max(0.0, predicted.mean))
        informative = _t_test(predicted, 0.0, lower=True)
        compared = self.summarise(losses, "concept minus main")
        error = math.hypot(compared.error * math.sqrt(1.0 + 2.0 * losses.shared_noise), self.delta_error)
        specific = _t_test(compared._replace(error=error), self.delta, lower=role == "spurious")
        is_informative, is_specific = (test.p < self.significance_level for test in (informative, specific))
        predicts = "separates" if self.summarise(losses, own).mean < MAX_SEPARABLE_LOSS else "predicts"
        own, other = ("concept", "task") if role == "spurious" else ("task", "concept")
        if is_informative and is_specific:
            reason = f"{predicts} the {own}, and better than the {other}"
        elif is_informative:
            reason = f"{predicts} the {own}, but not clearly better than the {other}"
        else:
            reason = f"does not predict the {own} better than chance"
        proper, means = is_informative and is_specific, losses.means[:2]
        return Verdict(role, proper, informative, specific, self.delta, means, groups, reason, self.significance_level)


def _fit_scalars(scores: Summable, weighting: Weighting) -> ScalarFit:
    fit = fit_scalars(scores, weighting, tol=1e-4)  # the error is of the order of its square
    if not fit.converged:
        warn_not_converged(
            "scalars",
            "Slope and intercept along a tested direction were not found to full precision; its t is approximate.",
        )
    return fit


def _t_test(found: Average, null: float, *, lower: bool) -> TTest:
    """One-sided test of a mean against `null`.

    A perfect score has no variation; then t is as large as rounding allows, and still finite.
    """
    t = (found.mean - null) / max(found.error, MIN_ERROR)
    return TTest(found.mean, found.error, t, float(stdtr(found.df, t if lower else -t)), found.df)


def require_testable(counts: CellCounts, *, by_group: bool, smallest: int, remedy: str, about: str = "") -> None:
    """Raise GroupSizeError unless every group has enough held-out rows.

    `remedy` is advice for the user, and `about` the concept or class, if there are several.
    """
    about = f"{about}: " if about else ""
    held_out = counts.effective_held_out  # (y, concept)
    if by_group and held_out.min() < smallest:
        small = [(y, c) for y in (0, 1) for c in (0, 1) if held_out[y, c] < smallest]
        groups = ", ".join(f"({counts.names[2 * y + c]}) has {_rows(held_out[y, c])}" for y, c in small)
        raise GroupSizeError(
            f"{about}Too few held-out rows: group {groups}; the tests need at least {smallest} in each. {remedy}"
            f"{_test_anyway(int(held_out.min()))}"
        )
    if not by_group and counts.effective_held_out_in_all < 2.0:
        rows = _rows(counts.effective_held_out_in_all)
        raise GroupSizeError(f"{about}Too few held-out rows: {rows}; the tests need at least 2. {remedy}")
    for axis, name in ((0, "concept"), (1, "task")):
        if held_out.sum(axis=axis).min() == 0:
            raise GroupSizeError(f"{about}All held-out rows have the same {name}. {remedy}")


def require_clusters(
    clusters: HeldOutClusters,
    names: tuple[str, ...],
    *,
    smallest: int,
    remedy: str,
    copies: bool = False,
    about: str = "",
) -> None:
    """Raise GroupSizeError unless the held-out rows of every group lie in enough effective clusters."""
    least, found = min(smallest, SMALLEST_CLUSTERS), clusters.effective
    small = np.flatnonzero(found < least)
    if not len(small):
        return
    what, about = "different rows" if copies else "clusters", f"{about}: " if about else ""
    groups = f"they lie in {_number(found[0])} {what}"
    if len(found) > 1:
        groups = "group " + ", ".join(f"({names[g]}) lies in {_number(found[g])}" for g in small) + f" {what}"
    raise GroupSizeError(
        f"{about}Too few independent held-out rows: {groups}; the tests count {what}, not rows, and need at least "
        f"{least}{' in each' if len(found) > 1 else ''}. {remedy}{_test_anyway(int(found.min()))}"
    )


def _number(clusters: float) -> str:
    """A number of clusters, which is fractional if their sizes differ; rounded down, since it is too small."""
    return f"{math.floor(10 * clusters) / 10:g}"


def _test_anyway(smallest: int) -> str:
    """How to test groups that are too small, if they can be tested."""
    if smallest < 2:
        return ""
    return (
        f" With smallest_group {smallest} they are tested anyway, but wrong directions are then accepted more often "
        "than the significance level allows."
    )


def _rows(number: float) -> str:
    """A number of rows, which is fractional under weights."""
    return f"{number:.0f}" if number == round(number) else f"{number:.1f} (effective, under weights)"
