"""Losses of both labels along one direction, on held-out rows: the data of the tests.

Two-scalar logistic models ``η = γ x + b`` are fitted along one-dimensional scores by Newton's method, q at once.

Conventions
-----------
- q models, in the tests 2, one per label; m rows of a block, n rows in all; 4 groups, numbered 2·y + concept.
- A *score* turns a block of projected rows into x (q, m), one line per model, or (1, m) if all models have the same.
  There is one that takes for each row the column of the fold that row is held out in (`FoldScore`), and one that takes
  the same columns for all rows (`ColumnScore`).
- γ and b are of shape (q,), on standardised scores. A sum is (6, q): loss, ∂γ, ∂b, ∂γγ, ∂γb, ∂bb.
- Six series are averaged over the rows of each group (`SERIES`), so sums are (6, 4).
- The rows of a block may share one cell, which is then an array of length 1 and broadcasts (`GroupedRows`).

Independent rows are summed by group where they live (`HeldOutLosses`). For rows in clusters, which may span blocks, one
number per row, its score, is brought to the host.

*Held-out losses.* The loss of a row is computed with scalars fitted without its *cluster*: one Newton step from the fit
on all rows, with the weight of the cluster in each group spread over the rest of that group.

*Variance.* With p the share of group g that lies in cluster c, and m its mean there, the average ``d̄ = 1/G Σ_g mean_g``
has the cluster-robust variance ::

    Var(d̄) = Σ_c U_c²,   U_c = 1/G Σ_g p_cg (m_cg − mean_g) / sqrt(1 − p_cg)

(CR2 of Bell and McCaffrey, 2002, for independent rows in a cluster). Clusters with rows in several groups enter once,
with all of them. If clusters are few and of different sizes, and the rows of a cluster are all alike, this sum is too
small and uncertain. In that case we correct both the variance and the degrees of freedom, assuming ``U ~ N(0, M)``.
M is diagonal except for a few dimensions. The variance is raised by what the trace of M lacks, and the degrees of
freedom are Satterthwaite's, ``(tr M)² / tr M²``. For clusters of one row this is Welch's test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from scipy.special import expit

from unspur._arrays import at_least, cast, empty64, namespace, sum_by, take_along, take_rows, to_device, to_device_like
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.rows import CONCEPT, MAIN, Block, GroupedRows, MappedRows, MemoryRows, RowSource, Summable, Weighting
from unspur.solvers.logistic import loss_and_probability

ScoreFunction: TypeAlias = Callable[[Block], Array]

#: Penalty on ½γ² per unit variance of the score, in rows: a prior on γ with a standard deviation of 100, which has no
#: effect on the tests. Without it, a score that separates the classes would leave γ undetermined once one of the few
#: rows beside the gap is left out, and one Newton step from there could end anywhere.
RIDGE_IN_ROWS = 1e-4
#: Least penalty, as a share of all rows: keeps γ finite for any number of rows.
MIN_RIDGE = 1e-8
#: Limit on Newton steps for slope and intercept.
MAX_NEWTON_STEPS = 50
#: Least curvature in b: rows on the flat part of the loss leave less than rounding error.
MIN_CURVATURE = 1e-12
#: The series, in the order of the first axis of `GroupLosses.sums`.
SERIES = (
    "concept",
    "main",
    "concept minus chance",
    "main minus chance",
    "concept minus main",
    "concept minus main, relative to reference",
)
#: Sums over the groups 2·main + concept, from sums over all rows and over those with concept, main or both equal to 1.
GROUPS_FROM_LABELS = np.array(
    [[1.0, -1.0, -1.0, 1.0], [0.0, 1.0, 0.0, -1.0], [0.0, 0.0, 1.0, -1.0], [0.0, 0.0, 0.0, 1.0]]
)
#: Smallest positive number, in place of a determinant of zero.
TINY = float(np.finfo(np.float64).tiny)
#: Fewer rows are one block, however many groups they are in: a block costs more than what its rows would save.
MIN_GROUPED_ROWS = 2**15


@dataclass(frozen=True, slots=True)
class FoldScore:
    """Column ``offset + fold − 1`` of each row, one line for each of `offsets`; rows of fold 0 get column `offset`."""

    offsets: tuple[int, ...]
    folds: int

    def __call__(self, block: Block) -> Array:
        """Scores of shape (offsets, m)."""
        xp = namespace(block.z)
        return xp.stack([self._columns(block, offset) for offset in self.offsets])

    def _columns(self, block: Block, offset: int) -> Array:
        if self.folds == 1:  # the same column for all
            return block.z[:, offset]
        return take_along(block.z, offset + at_least(block.fold - 1, 0))


@dataclass(frozen=True, slots=True)
class ColumnScore:
    """Two columns of the rows, by number; a single line if they are the same."""

    first: int
    last: int

    def __call__(self, block: Block) -> Array:
        """Scores of shape (2, m) or (1, m)."""
        return block.z[:, self.first : self.last + 1 : max(1, self.last - self.first)].T


@dataclass(frozen=True, slots=True)
class Standardisation:
    """Weighted mean and standard deviation of each score, shape (q,); deviation 1 for a constant score."""

    mean: FloatArray
    deviation: FloatArray

    def __call__(self, scores: Array) -> Array:
        """Scores, (q, m) or a common (1, m), with mean zero and unit variance."""
        own = slice(len(scores))
        mean, deviation = (to_device_like(part[own, None], scores) for part in (self.mean, self.deviation))
        return (scores - mean) / deviation


@dataclass(frozen=True, slots=True)
class ScoreMoments:
    """Moments of each score and its label (0 or 1): Σω, Σω², Σω x, Σω x², Σω y and Σω y x, shape (6, q)."""

    score: ScoreFunction
    label: IntArray
    weighting: Weighting

    def __call__(self, block: Block) -> FloatArray:
        """Moments over one block."""
        x, omega = self.score(block), self.weighting(block)
        positive = block.targets * omega  # (2, m)
        label = to_device(self.label, omega)
        moments = empty64((6, len(self.label)), omega)
        moments[0] = omega.sum()
        moments[1] = omega @ omega
        moments[2] = x @ omega
        moments[3] = (x * x) @ omega
        moments[4] = positive.sum(1)[label]
        products = x @ positive.T  # (q or 1, 2)
        moments[5] = products[0][label] if len(x) == 1 else take_along(products, label)
        return moments


@dataclass(frozen=True, slots=True)
class ScalarLoss:
    """Loss, gradient and Hessian of each model in (γ, b) on standardised scores.

    A call returns loss, ∂γ, ∂b, ∂γγ, ∂γb and ∂bb, shape (6, q); shape (6, q, 4) if `by_group`, summed over the rows of
    each group 2·y + concept.
    """

    gamma: FloatArray
    intercept: FloatArray
    score: ScoreFunction
    standardise: Standardisation
    label: IntArray
    weighting: Weighting
    by_group: bool = False

    def __call__(self, block: Block) -> FloatArray:
        """Sums over one block."""
        x, omega = self.standardise(self.score(block)), self.weighting(block)
        logits = to_device_like(self.gamma[:, None], x) * x
        logits += to_device_like(self.intercept[:, None], x)
        targets = take_rows(block.targets, self.label)
        losses, p = loss_and_probability(logits, targets)
        curvature = p * (1.0 - p)
        p -= targets
        residual = p
        terms = [losses, residual * x, residual, curvature * x * x, curvature * x, curvature]
        if self.by_group:
            weighted = namespace(omega).concat(terms) * omega
            sums: FloatArray = sum_by(block.cell & 3, weighted, 4).reshape(6, len(self.label), 4)
            return sums
        sums = empty64((6, len(self.label)), omega)
        for total, term in zip(sums, terms, strict=True):
            total[:] = term @ omega
        return sums


@dataclass(frozen=True, slots=True)
class ScalarFit:
    """Scalars of q models on standardised scores, their penalised objectives, and the penalties on ½γ², each (q,)."""

    gamma: FloatArray
    intercept: FloatArray
    objective: FloatArray
    penalty: FloatArray
    standardise: Standardisation
    converged: bool


def fit_scalars(
    rows: Summable,
    score: ScoreFunction,
    label: IntArray,
    weighting: Weighting,
    *,
    tol: float = 1e-5,
) -> ScalarFit:
    """Minimise ``Σω ℓ(γ x + b, label)`` with a slight penalty on γ, for every model.

    Steps that do not lower the objective are halved. `tol` bounds the last step; convergence is quadratic, so the
    error is of the order of its square.
    """
    total, squares, first, second, positive, positive_x = rows.sum(ScoreMoments(score, label, weighting))
    mean = first / total
    variance = np.maximum(second / total - mean**2, 0.0)
    constant = variance <= 1e-24 * np.maximum(second / total, np.finfo(np.float64).tiny)
    standardise = Standardisation(mean, np.where(constant, 1.0, np.sqrt(variance)))
    penalty = np.maximum(MIN_RIDGE, RIDGE_IN_ROWS * squares / total**2)  # Σω² / (Σω)²: the weight of one row

    def evaluate(theta: FloatArray) -> FloatArray:
        sums = rows.sum(ScalarLoss(theta[0], theta[1], score, standardise, label, weighting))
        sums[0] += 0.5 * penalty * theta[0] ** 2
        sums[1] += penalty * theta[0]
        sums[3] += penalty
        return sums

    theta = np.zeros((2, len(label)))
    sums = _at_zero(total, positive, (positive_x - mean * positive) / standardise.deviation, penalty, constant)
    converged = False
    # Newton's step from zero is that of linear regression, too short by 1 − R² for Gaussian classes.
    explained = (_newton_step(sums)[0] / 2.0) ** 2
    size = 1.0 / np.maximum(1.0 - explained, 0.1)
    for _ in range(MAX_NEWTON_STEPS):
        step = size * _newton_step(sums)
        trial = theta - step
        there = evaluate(trial)
        better = there[0] <= sums[0] + 1e-13 * np.abs(sums[0])  # the last step gains less than a rounding error
        theta, sums = np.where(better, trial, theta), np.where(better, there, sums)
        size = np.where(better, 1.0, size / 2.0)
        converged = bool(np.max(np.abs(step), initial=0.0) <= tol)
        if converged:
            break
    return ScalarFit(theta[0], theta[1], sums[0], penalty, standardise, converged)


def _newton_step(sums: FloatArray) -> FloatArray:
    """H⁻¹ g for every model, shape (2, q)."""
    g, b, gg, gb, bb = sums[1:]
    bb = np.maximum(bb, MIN_CURVATURE)
    return np.asarray(np.stack([bb * g - gb * b, gg * b - gb * g]) / (gg * bb - gb**2))


def _at_zero(
    total: FloatArray, positive: FloatArray, positive_x: FloatArray, penalty: FloatArray, constant: BoolArray
) -> FloatArray:
    """The result of `evaluate` at γ = b = 0, where p = ½, from moments of the standardised scores."""
    spread = np.where(constant, 0.0, total)
    zero = np.zeros_like(total)
    return np.stack(
        [np.log(2.0) * total, -positive_x, total / 2.0 - positive, spread / 4.0 + penalty, zero, total / 4.0]
    )


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """Derivatives of the loss at the fit on all rows, to refit two scalars without one row.

    Parameters
    ----------
    weighting : weights ω under which the scalars were fitted.
    weight : shape (4,), total ω of each group.
    group : shape (4, 5, q), derivatives of each group: ∂γ, ∂b, ∂γγ, ∂γb, ∂bb.
    total : shape (5, q), the derivatives of the whole objective.

    Without row i its group's weight is spread over the rest of the group, so with π the row's share of it the gradient
    becomes ``(π G_g − ω g_i) / (1 − π)`` and the Hessian ``H − H_g + (H_g − ω h_i) / (1 − π)``. One Newton step from
    the fit on all rows is taken with these: nearly exact in groups of ten rows, less so in groups of two.
    """

    weighting: Weighting
    weight: FloatArray
    group: FloatArray
    total: FloatArray

    def shift(self, x: Array, residual: Array, curvature: Array, block: Block) -> Array:
        """Change of the logits of each row, shape (q, m), when the scalars are refitted without it."""
        omega, group = self.weighting(block), block.cell & 3
        share = omega / to_device(self.weight, omega)[group]
        rest = 1.0 / at_least(1.0 - share, 1e-12)
        of_group = to_device(self.group.transpose(1, 2, 0), omega)[..., group]  # (5, q, m), or (5, q, 1) in one group
        of_all = to_device(self.total[:, :, None], omega)
        own = rest * omega
        spread = rest * share
        b = own * residual
        g = spread * of_group[0] - b * x
        b = spread * of_group[1] - b
        own = own * curvature
        bb = (of_all[4] - of_group[4]) + rest * of_group[4] - own
        own *= x
        gb = (of_all[3] - of_group[3]) + rest * of_group[3] - own
        own *= x
        gg = (of_all[2] - of_group[2]) + rest * of_group[2] - own
        determinant = at_least(gg * bb - gb**2, TINY)
        return ((gb * b - bb * g) * x + gb * g - gg * b) / determinant


@dataclass(frozen=True, slots=True)
class ScalarModel:
    """Two-scalar models, one per label (q = 2); with `without`, the loss of a row is that of the fit without it."""

    gamma: FloatArray
    intercept: FloatArray
    score: ScoreFunction
    standardise: Standardisation
    label: IntArray
    without: LeaveOneOut | None = None

    def losses(self, block: Block) -> Array:
        """Loss of each label for each row, shape (2, m)."""
        x = self.standardise(self.score(block))
        logits = to_device_like(self.gamma[:, None], x) * x + to_device_like(self.intercept[:, None], x)
        targets = take_rows(block.targets, self.label)
        losses, p = loss_and_probability(logits, targets)
        if self.without is None:
            return losses
        shift = self.without.shift(x, p - targets, p * (1.0 - p), block)
        return loss_and_probability(logits + shift, targets)[0]


@dataclass(frozen=True, slots=True)
class GroupLosses:
    """Per-group sums of the series in `SERIES` over held-out rows.

    `weight` is (Σw, Σw²) per group, shape (2, 4); `sums` is Σw d, shape (6, 4); `squares` are Σw²d and Σw²d², shape
    (2, 6, 4). Groups are numbered 2·y + concept.
    """

    weight: FloatArray
    sums: FloatArray
    squares: FloatArray
    #: Share of a cross-fitted direction that is noise, which folds share.
    shared_noise: float = 0.0
    #: Whether γ is positive for the concept and for the main label on held-out rows.
    has_right_sign: tuple[bool, bool] = (True, True)
    #: For rows in clusters: error of the average of each series over groups, and its degrees of freedom.
    error: tuple[float, ...] = ()
    degrees: tuple[float, ...] = ()

    def __add__(self, other: GroupLosses) -> GroupLosses:
        return replace(
            self,
            weight=self.weight + other.weight,
            sums=self.sums + other.sums,
            squares=self.squares + other.squares,
        )

    def pooled(self) -> GroupLosses:
        """The same sums with all rows in one group."""
        weight, sums, squares = (a.sum(axis=-1, keepdims=True) for a in (self.weight, self.sums, self.squares))
        return replace(self, weight=weight, sums=sums, squares=squares)

    @property
    def means(self) -> FloatArray:
        """Weighted mean of each series in each group, shape (6, groups); NaN for a group without rows."""
        present = np.broadcast_to(self.weight[0] > 0, self.sums.shape)
        empty = np.full(self.sums.shape, np.nan)
        return np.asarray(np.divide(self.sums, self.weight[0], out=empty, where=present))

    @property
    def effective_rows(self) -> FloatArray:
        """Effective number of rows per group, (Σw)² / Σw²."""
        return np.asarray(self.weight[0] ** 2 / self.weight[1])

    @property
    def variances_of_means(self) -> FloatArray:
        """Variance of each mean, ``Σw²(d − d̄)² / (Σw)² · n/(n − 1)`` with n effective rows, shape (6, groups).

        For equal weights it is var(d)/n with ddof = 1. Heavier rows may vary more, so their own deviations count.
        """
        means, rows = self.means, self.effective_rows
        deviations = np.maximum(self.squares[1] - 2.0 * means * self.squares[0] + means**2 * self.weight[1], 0.0)
        return np.asarray(deviations / self.weight[0] ** 2 * rows / (rows - 1.0))


@dataclass(frozen=True, slots=True)
class ScoresWithinGroups:
    """Weights and k weighted scores, and products of scores, summed over all rows and over those with labels of 1.

    A call returns shape (4 + k, 1 + k): [Σω, Σωx] times 1, concept, main, and concept · main; then [Σωx, Σωxx'].
    (It is one product, which takes less time than sums by group.)
    """

    weighting: Weighting
    k: int

    def __call__(self, block: Block) -> Array:
        """Sums over one block, of its first k columns."""
        omega, x = self.weighting(block), cast(block.z[:, : self.k].T, np.float64)
        xp = namespace(omega)
        concept = omega * block.targets[CONCEPT]
        labels = xp.stack([omega, concept, omega * block.targets[MAIN], concept * block.targets[MAIN]])
        return xp.concat([labels, omega * x]) @ xp.concat([xp.ones_like(omega)[None], x]).T

    @staticmethod
    def correlations(sums: FloatArray) -> FloatArray:
        """Correlations of the scores inside groups, shape (k, k); 0 for a score that is constant there."""
        by_group = GROUPS_FROM_LABELS @ sums[:4]
        weight, total, products = by_group[:, :1], by_group[:, 1:], sums[4:, 1:]
        mean = np.divide(total, weight, out=np.zeros_like(total), where=weight > 0)
        covariance = products - total.T @ mean
        deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        scale = np.outer(deviation, deviation)
        return np.asarray(np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 0))


def own_scores(scores: RowSource, folds: int) -> Summable:
    """The scores of each held-out row along the directions of its own fold; `folds` columns of `scores` each.

    Many rows in memory are sorted by group.
    """
    if type(scores) is MemoryRows and scores.n_rows >= MIN_GROUPED_ROWS:
        return GroupedRows(scores.z, scores.labels, folds)
    pick = FoldScore(tuple(range(0, scores.n_features, folds)), folds)
    if type(scores) is MemoryRows:
        return MemoryRows(pick(scores.labels.block(scores.z, slice(None))).T, scores.labels)
    return MappedRows(scores, lambda block: pick(block).T)


@dataclass(frozen=True, slots=True)
class HeldOutLosses:
    """Statistic behind `GroupLosses`: rows of fold `fold` (all folds ≥ 1 when None) under `model`.

    `chance` is the loss of the chance classifier for each label and value, shape (2, 2). Differences between the labels
    are compared, row by row, with those of `reference`, each label along a direction of its own.
    """

    model: ScalarModel
    chance: FloatArray
    fold: int | None = None
    reference: ScalarModel | None = None

    def __call__(self, block: Block) -> GroupLosses:
        """Sums over one block."""
        weight = block.weight * (block.fold >= 1 if self.fold is None else block.fold == self.fold)
        reference = None if self.reference is None else self.reference.losses(block)
        series = _series(self.model.losses(block), block.targets, self.chance, reference)
        return _group_sums(series, weight, block.cell)


def _series(losses: Array, targets: Array, chance: FloatArray, reference: Array | None) -> Array:
    """The `SERIES` of each row, shape (6, m), from losses (2, m) of both labels."""
    xp = namespace(losses)
    of_zero, of_one = to_device(chance[:, :1], losses), to_device(chance[:, 1:], losses)
    compared = losses[:1] - losses[1:]
    beyond = compared if reference is None else compared - (reference[:1] - reference[1:])
    return xp.concat([losses, losses - xp.where(targets > 0.5, of_one, of_zero), compared, beyond])


def _group_sums(series: Array, weight: Array, cell: Array) -> GroupLosses:
    """Weighted sums of the series over the rows of each group."""
    xp, k = namespace(series), len(SERIES)
    weighted = series * weight
    terms = xp.concat([xp.stack([weight, weight**2]), weighted, weighted * weight, weighted**2])
    sums = sum_by(cell & 3, terms, 4)
    return GroupLosses(sums[:2], sums[2 : 2 + k], sums[2 + k :].reshape(2, k, 4))


@dataclass(frozen=True, slots=True)
class HeldOutClusters:
    """Clusters and groups of the held-out rows.

    Parameters
    ----------
    cell, weight : of each row, shape (n,); rows that are never held out have weight 0.
    group, n_groups : of each row, and how many; one for plain tests.
    cluster : of each row, 0 … C − 1.
    part : of each row, its place among the M pairs (cluster, group) that occur, 0 … M − 1.
    of_part : cluster and group of each such pair, shape (2, M).
    """

    cell: IntArray
    weight: FloatArray
    group: IntArray
    n_groups: int
    cluster: IntArray
    part: IntArray
    of_part: IntArray

    @classmethod
    def of(cls, cluster: IntArray, cell: IntArray, weight: FloatArray, *, by_group: bool) -> HeldOutClusters:
        """Clusters of the rows whose fold is not 0."""
        group = cell & 3 if by_group else np.zeros_like(cell)
        weight = np.where(cell >> 2 >= 1, weight, 0.0)
        return cls.in_groups(cluster, group, 4 if by_group else 1, weight, cell)

    @classmethod
    def in_groups(
        cls, cluster: IntArray, group: IntArray, n_groups: int, weight: FloatArray, cell: IntArray | None = None
    ) -> HeldOutClusters:
        """Clusters of rows in any groups; without cells, for averages over the groups only."""
        pairs, part = np.unique(cluster * n_groups + group, return_inverse=True)
        of_part = np.stack(np.divmod(pairs, n_groups))
        return cls(group if cell is None else cell, weight, group, n_groups, cluster, part.reshape(-1), of_part)

    @property
    def targets(self) -> FloatArray:
        """Concept and main label of each row, shape (2, n)."""
        return np.stack([self.cell & 1, self.cell >> 1 & 1]).astype(np.float64)

    def by_part(self, values: FloatArray) -> FloatArray:
        """Sums of each line of `values` (k, n) over the rows of each pair of cluster and group, shape (k, M)."""
        return np.asarray(sum_by(self.part, values, self.of_part.shape[1]))

    def by_cluster(self, values: FloatArray) -> FloatArray:
        """Sums of each line of `values` (k, M) over each cluster, shape (k, C)."""
        return np.asarray(sum_by(self.of_part[0], values, int(self.of_part[0].max(initial=-1)) + 1))

    def by_group(self, values: FloatArray) -> FloatArray:
        """Sums of each line of `values` (k, M) over each group, shape (k, groups)."""
        return np.asarray(sum_by(self.of_part[1], values, self.n_groups))

    def shares(self, weight: FloatArray) -> FloatArray:
        """Share of its group's weight that each pair of cluster and group has, shape (M,)."""
        own = self.by_part(weight[None])
        total = self.by_group(own)[0]
        return np.asarray(own[0] / np.where(total > 0, total, 1.0)[self.of_part[1]])

    @property
    def effective(self) -> FloatArray:
        """Effective number of clusters of each group, ``1 / Σ p²``, shape (groups,); their number for equal sizes."""
        squares = self.by_group(self.shares(self.weight)[None] ** 2)[0]
        return np.asarray(np.round(np.divide(1.0, squares, out=np.zeros_like(squares), where=squares > 0), 9))


def losses_without_cluster(
    model: ScalarModel, penalty: FloatArray, factor: FloatArray, scores: FloatArray, clusters: HeldOutClusters
) -> FloatArray:
    """Loss of each label for each row, shape (2, n), by the scalars refitted without its cluster.

    `scores` (2, n) are those of each label; `penalty` on ½γ², shape (2,), and `factor` of each cell are those of the
    fit on all rows.
    """
    x, targets = model.standardise(scores), clusters.targets
    omega = clusters.weight * factor[clusters.cell]
    gamma, intercept = model.gamma[:, None], model.intercept[:, None]
    p = expit(gamma * x + intercept)
    residual, curvature = (p - targets) * omega, p * (1.0 - p) * omega
    rows = np.stack([residual * x, residual, curvature * x * x, curvature * x, curvature])  # (5, 2, n)
    own = clusters.by_part(rows.reshape(10, -1))
    of_group = clusters.by_group(own)
    share = clusters.shares(omega)
    change = (share * of_group[:, clusters.of_part[1]] - own) / np.maximum(1.0 - share, 1e-12)
    total = of_group.sum(axis=1).reshape(5, 2)
    total[:2] = 0.0  # the gradient is zero where the scalars were fitted
    total[2] += penalty
    g, b, gg, gb, bb = total[:, :, None] + clusters.by_cluster(change).reshape(5, 2, -1)
    determinant = np.maximum(gg * bb - gb**2, TINY)
    gamma = (gamma - (bb * g - gb * b) / determinant)[:, clusters.cluster]
    intercept = (intercept - (gg * b - gb * g) / determinant)[:, clusters.cluster]
    logits = gamma * x + intercept
    return np.asarray(np.logaddexp(0.0, logits) - targets * logits)


def clustered_losses(
    losses: FloatArray, chance: FloatArray, clusters: HeldOutClusters, reference: FloatArray | None = None
) -> GroupLosses:
    """Sums of the series over groups, with the error and the degrees of freedom of their average over groups.

    `losses` of each label for each row, (2, n); `chance`, (2, 2), that of the chance classifier by label and value;
    `reference`, (2, n), what the difference between the labels is compared with.
    """
    series = _series(losses, clusters.targets, chance, reference)
    error, degrees = zip(*(average_error(line, clusters) for line in series), strict=True)
    return replace(_group_sums(series, clusters.weight, clusters.cell), error=error, degrees=degrees)


def average_error(values: FloatArray, clusters: HeldOutClusters) -> tuple[float, float]:
    """Standard error of the average over groups of values (n,), and the degrees of freedom of its square."""
    groups, (cluster, group) = clusters.n_groups, clusters.of_part
    p = clusters.shares(clusters.weight)
    own = clusters.by_part(clusters.weight * np.stack([np.ones_like(values), values]))
    mean = np.divide(own[1], own[0], out=np.zeros_like(own[1]), where=own[0] > 0)
    deviation = mean - clusters.by_group((p * mean)[None])[0][group]
    b = p / np.sqrt(np.maximum(1.0 - p, 1e-12)) / groups
    found = float((clusters.by_cluster((b * deviation)[None]) ** 2).sum())
    # Variance of a whole cluster in each group if its rows are all alike.
    squares = clusters.by_group(np.stack([p**2, (b * deviation) ** 2]))
    variance = np.divide(squares[1], squares[0], out=np.zeros(groups), where=squares[0] > 0)
    if not variance.any():
        variance = np.ones(groups)
    of_mean = variance * squares[0]
    k, q = p * b * variance[group], b**2 * variance[group]
    diagonal = clusters.by_cluster(np.stack([q, -2.0 * k * b + b**2 * of_mean[group]]))
    both = np.zeros((2 * groups, diagonal.shape[1]))
    both[group, cluster], both[groups + group, cluster] = k, b
    eye = np.eye(groups)
    middle = np.block([[np.zeros((groups, groups)), -eye], [-eye, np.diag(of_mean)]]) @ (both @ both.T)
    trace = float(diagonal.sum())
    square = float(diagonal[0] @ diagonal[0] + 2.0 * diagonal[0] @ diagonal[1] + np.sum(middle * middle.T))
    wanted = float(of_mean.sum()) / groups**2
    return float(np.sqrt(found * max(1.0, wanted / trace))), max(1.0, trace**2 / square)
