"""Losses of both labels along one direction, on held-out rows: the data of the tests.

Two-scalar logistic models ``η = γ x + b``, one for the concept and one for the task, are fitted along
one-dimensional scores by Newton's method, both at once.

Conventions
-----------
- The first axis of length 2 is the label: CONCEPT, then MAIN. m rows of a block, n rows in all; 4 groups, numbered
  2·y + concept.
- The features of `own_scores` are scores x, a line each: one that both models have in common, or one for each.
- γ and b are of shape (2,), on standardised scores. A sum is (6, 2): loss, ∂γ, ∂b, ∂γγ, ∂γb, ∂bb.
- Five series are averaged over the rows of each group (`SERIES`), so sums are (5, 4).
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

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from unspur._arrays import at_least, cast, empty64, namespace, sum_by, take_along, to_device, to_device_like
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.rows import CONCEPT, MAIN, Block, GroupedRows, MappedRows, MemoryRows, RowSource, Summable, Weighting
from unspur.solvers.logistic import loss_and_probability

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
SERIES = ("concept", "main", "concept minus chance", "main minus chance", "concept minus main")
#: Sums over the groups 2·main + concept, from sums over all rows and over those with concept, main or both equal to 1.
GROUPS_FROM_LABELS = np.array(
    [[1.0, -1.0, -1.0, 1.0], [0.0, 1.0, 0.0, -1.0], [0.0, 0.0, 1.0, -1.0], [0.0, 0.0, 0.0, 1.0]]
)
#: Smallest positive number, in place of a determinant of zero.
TINY = float(np.finfo(np.float64).tiny)
#: Fewer rows are one block, however many groups they are in: a block costs more than what its rows would save.
MIN_GROUPED_ROWS = 2**15


def own_scores(scores: RowSource, folds: int, *, in_order: bool = False) -> Summable:
    """Held-out rows whose features are their scores along the directions of their own fold.

    `scores` has `folds` columns for each. Many rows in memory are sorted by group, unless they must stay `in_order`.
    """
    if type(scores) is MemoryRows and scores.n_rows >= MIN_GROUPED_ROWS and not in_order:
        return GroupedRows(scores.z, scores.labels, folds)

    def pick(block: Block) -> Array:
        """Column ``offset + fold − 1`` of each row, for each offset; rows of fold 0, which do not count, get any."""
        if folds == 1:
            return block.z
        own, offsets = at_least(block.fold - 1, 0), range(0, block.z.shape[1], folds)
        return namespace(block.z).stack([take_along(block.z, offset + own) for offset in offsets]).T

    if type(scores) is MemoryRows:
        return MemoryRows(pick(scores.labels.block(scores.z, slice(None))), scores.labels)
    return MappedRows(scores, pick)


@dataclass(frozen=True, slots=True)
class Standardisation:
    """Weighted mean and standard deviation of each score, shape (2,); deviation 1 for a constant score."""

    mean: FloatArray
    deviation: FloatArray

    def __call__(self, scores: Array) -> Array:
        """Scores, (2, m) or a common (1, m), with mean zero and unit variance."""
        own = slice(len(scores))
        mean, deviation = (to_device_like(part[own, None], scores) for part in (self.mean, self.deviation))
        return (scores - mean) / deviation


@dataclass(frozen=True, slots=True)
class ScoreMoments:
    """Moments of each score and its label (0 or 1): Σω, Σω², Σω x, Σω x², Σω y and Σω y x, shape (6, 2)."""

    weighting: Weighting

    def __call__(self, block: Block) -> FloatArray:
        """Moments over one block."""
        x, omega = block.z.T, self.weighting(block)
        positive = block.targets * omega
        moments = empty64((6, 2), omega)
        moments[0] = omega.sum()
        moments[1] = omega @ omega
        moments[2] = x @ omega
        moments[3] = (x * x) @ omega
        moments[4] = positive.sum(1)
        products = x @ positive.T  # (1 or 2, 2)
        moments[5] = products[0] if len(x) == 1 else products.diagonal()
        return moments


@dataclass(frozen=True, slots=True)
class ScalarLoss:
    """Loss, gradient and Hessian of each model in (γ, b) on standardised scores.

    A call returns loss, ∂γ, ∂b, ∂γγ, ∂γb and ∂bb, shape (6, 2); shape (6, 2, 4) if `by_group`, summed over the rows of
    each group 2·y + concept.
    """

    gamma: FloatArray
    intercept: FloatArray
    standardise: Standardisation
    weighting: Weighting
    by_group: bool = False

    def __call__(self, block: Block) -> FloatArray:
        """Sums over one block."""
        x, omega = self.standardise(block.z.T), self.weighting(block)
        logits = to_device_like(self.gamma[:, None], x) * x
        logits += to_device_like(self.intercept[:, None], x)
        losses, p = loss_and_probability(logits, block.targets)
        curvature = p * (1.0 - p)
        p -= block.targets
        residual = p
        terms = [losses, residual * x, residual, curvature * x * x, curvature * x, curvature]
        if self.by_group:
            weighted = namespace(omega).concat(terms) * omega
            found: FloatArray = sum_by(block.cell & 3, weighted, 4).reshape(6, 2, 4)
            return found
        sums = empty64((6, 2), omega)
        for total, term in zip(sums, terms, strict=True):
            total[:] = term @ omega
        return sums


@dataclass(frozen=True, slots=True)
class ScalarFit:
    """Scalars of both models on standardised scores, their objectives, and the penalties on ½γ², each (2,)."""

    gamma: FloatArray
    intercept: FloatArray
    objective: FloatArray
    penalty: FloatArray
    standardise: Standardisation
    converged: bool


def fit_scalars(rows: Summable, weighting: Weighting, *, tol: float = 1e-5) -> ScalarFit:
    """Minimise ``Σω ℓ(γ x + b, label)`` with a slight penalty on γ, for both labels.

    Steps that do not lower the objective are halved. `tol` bounds the last step; convergence is quadratic, so the
    error is of the order of its square.
    """
    total, squares, first, second, positive, positive_x = rows.sum(ScoreMoments(weighting))
    mean = first / total
    variance = np.maximum(second / total - mean**2, 0.0)
    constant = variance <= 1e-24 * np.maximum(second / total, TINY)
    standardise = Standardisation(mean, np.where(constant, 1.0, np.sqrt(variance)))
    penalty = np.maximum(MIN_RIDGE, RIDGE_IN_ROWS * squares / total**2)  # Σω² / (Σω)²: the weight of one row

    def evaluate(theta: FloatArray) -> FloatArray:
        sums = rows.sum(ScalarLoss(theta[0], theta[1], standardise, weighting))
        sums[0] += 0.5 * penalty * theta[0] ** 2
        sums[1] += penalty * theta[0]
        sums[3] += penalty
        return sums

    theta = np.zeros((2, 2))
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
    """H⁻¹ g for either model, shape (2, 2)."""
    g, b, gg, gb, bb = sums[1:]
    bb = np.maximum(bb, MIN_CURVATURE)
    return np.asarray(np.stack([bb * g - gb * b, gg * b - gb * g]) / (gg * bb - gb**2))


def _at_zero(
    total: FloatArray, positive: FloatArray, positive_x: FloatArray, penalty: FloatArray, constant: BoolArray
) -> FloatArray:
    """The sums at γ = b = 0, where p = ½, from moments of the standardised scores."""
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
    group : shape (4, 5, 2), derivatives of each group: ∂γ, ∂b, ∂γγ, ∂γb, ∂bb.
    total : shape (5, 2), the derivatives of the whole objective.

    Without row i its group's weight is spread over the rest of the group, so with π the row's share of it the gradient
    becomes ``(π G_g − ω g_i) / (1 − π)`` and the Hessian ``H − H_g + (H_g − ω h_i) / (1 − π)``. One Newton step from
    the fit on all rows is taken with these: nearly exact in groups of ten rows, less so in groups of two.
    """

    weighting: Weighting
    weight: FloatArray
    group: FloatArray
    total: FloatArray

    @classmethod
    def of(cls, rows: Summable, fit: ScalarFit, weighting: Weighting, weight: FloatArray) -> LeaveOneOut:
        """The derivatives at a fit; `weight` (1,) or (4,) says whether a row's weight goes to all rows or its group."""
        loss = ScalarLoss(fit.gamma, fit.intercept, fit.standardise, weighting, by_group=True)
        group = rows.sum(loss)[1:].transpose(2, 0, 1)  # (4, 5, 2)
        total = group.sum(axis=0)
        total[0] += fit.penalty * fit.gamma
        total[2] += fit.penalty
        if len(weight) == 1:
            group = np.broadcast_to(group.sum(axis=0), group.shape)
        return cls(weighting, np.broadcast_to(weight, 4), group, total)

    def shift(self, x: Array, residual: Array, curvature: Array, block: Block) -> Array:
        """Change of the logits of each row, shape (2, m), when the scalars are refitted without it."""
        omega, group = self.weighting(block), block.cell & 3
        share = omega / to_device(self.weight, omega)[group]
        rest = 1.0 / at_least(1.0 - share, 1e-12)
        of_group = to_device(self.group.transpose(1, 2, 0), omega)[..., group]  # (5, 2, m), or (5, 2, 1) in one group
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
class GroupLosses:
    """Per-group sums of the series in `SERIES` over held-out rows.

    `weight` is (Σw, Σw²) per group, shape (2, 4); `sums` is Σw d, shape (5, 4); `squares` are Σw²d and Σw²d², shape
    (2, 5, 4). Groups are numbered 2·y + concept.
    """

    weight: FloatArray
    sums: FloatArray
    squares: FloatArray
    #: Share of a cross-fitted direction that is noise, which folds share.
    shared_noise: float = 0.0
    #: Whether γ is positive for the concept and for the task on held-out rows.
    has_right_sign: tuple[bool, bool] = (True, True)
    #: For rows in clusters: error of the average of each series over groups, and its degrees of freedom.
    error: tuple[float, ...] = ()
    degrees: tuple[float, ...] = ()

    def __add__(self, other: GroupLosses) -> GroupLosses:
        weight, sums, squares = self.weight + other.weight, self.sums + other.sums, self.squares + other.squares
        return replace(self, weight=weight, sums=sums, squares=squares)

    def pooled(self) -> GroupLosses:
        """The same sums with all rows in one group."""
        weight, sums, squares = (a.sum(axis=-1, keepdims=True) for a in (self.weight, self.sums, self.squares))
        return replace(self, weight=weight, sums=sums, squares=squares)

    @property
    def means(self) -> FloatArray:
        """Weighted mean of each series in each group, shape (5, groups); NaN for a group without rows."""
        present = np.broadcast_to(self.weight[0] > 0, self.sums.shape)
        empty = np.full(self.sums.shape, np.nan)
        return np.asarray(np.divide(self.sums, self.weight[0], out=empty, where=present))

    @property
    def effective_rows(self) -> FloatArray:
        """Effective number of rows per group, (Σw)² / Σw²."""
        return np.asarray(self.weight[0] ** 2 / self.weight[1])

    @property
    def variances_of_means(self) -> FloatArray:
        """Variance of each mean, ``Σw²(d − d̄)² / (Σw)² · n/(n − 1)`` with n effective rows, shape (5, groups).

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


@dataclass(frozen=True, slots=True)
class HeldOutLosses:
    """Statistic behind `GroupLosses`: each held-out row by the fit without it.

    `chance` is the loss of the chance classifier for each label and value, shape (2, 2).
    """

    fit: ScalarFit
    without: LeaveOneOut
    chance: FloatArray

    def losses(self, block: Block) -> Array:
        """Loss of each label for each row, shape (2, m)."""
        x = self.fit.standardise(block.z.T)
        gamma, intercept = (to_device_like(part[:, None], x) for part in (self.fit.gamma, self.fit.intercept))
        logits = gamma * x + intercept
        _, p = loss_and_probability(logits, block.targets)
        logits = logits + self.without.shift(x, p - block.targets, p * (1.0 - p), block)
        return loss_and_probability(logits, block.targets)[0]

    def __call__(self, block: Block) -> GroupLosses:
        """Sums over one block."""
        weight = block.weight * (block.fold >= 1)
        return _group_sums(_series(self.losses(block), block.targets, self.chance), weight, block.cell)


def _series(losses: Array, targets: Array, chance: FloatArray) -> Array:
    """The `SERIES` of each row, shape (5, m), from losses (2, m) of both labels."""
    xp = namespace(losses)
    of_zero, of_one = to_device(chance[:, :1], losses), to_device(chance[:, 1:], losses)
    return xp.concat([losses, losses - xp.where(targets > 0.5, of_one, of_zero), losses[:1] - losses[1:]])


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
        """Concept and task of each row, shape (2, n)."""
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
    fit: ScalarFit, factor: FloatArray, scores: FloatArray, clusters: HeldOutClusters
) -> FloatArray:
    """Loss of each label for each row, shape (2, n), by the scalars refitted without its cluster.

    `scores` are (1, n) or (2, n); `factor` of each cell is that of the fit on all rows.
    """
    x, targets = np.broadcast_to(fit.standardise(scores), (2, scores.shape[1])), clusters.targets
    omega = clusters.weight * factor[clusters.cell]
    gamma, intercept = fit.gamma[:, None], fit.intercept[:, None]
    p = expit(gamma * x + intercept)
    residual, curvature = (p - targets) * omega, p * (1.0 - p) * omega
    rows = np.stack([residual * x, residual, curvature * x * x, curvature * x, curvature])  # (5, 2, n)
    own = clusters.by_part(rows.reshape(10, -1))
    of_group = clusters.by_group(own)
    share = clusters.shares(omega)
    change = (share * of_group[:, clusters.of_part[1]] - own) / np.maximum(1.0 - share, 1e-12)
    total = of_group.sum(axis=1).reshape(5, 2)
    total[:2] = 0.0  # the gradient is zero where the scalars were fitted
    total[2] += fit.penalty
    g, b, gg, gb, bb = total[:, :, None] + clusters.by_cluster(change).reshape(5, 2, -1)
    determinant = np.maximum(gg * bb - gb**2, TINY)
    gamma = (gamma - (bb * g - gb * b) / determinant)[:, clusters.cluster]
    intercept = (intercept - (gg * b - gb * g) / determinant)[:, clusters.cluster]
    logits = gamma * x + intercept
    return np.asarray(np.logaddexp(0.0, logits) - targets * logits)


def clustered_losses(losses: FloatArray, chance: FloatArray, clusters: HeldOutClusters) -> GroupLosses:
    """Sums of the series over groups, with the error and the degrees of freedom of their average over groups.

    `losses` of each label for each row, (2, n); `chance`, (2, 2), that of the chance classifier by label and value.
    """
    series = _series(losses, clusters.targets, chance)
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
