"""Sums over the rows without a model: counts and weights of cells, moments, covariances.

Conventions
-----------
- n rows of d features; k target columns. Rows are centred before they are multiplied, so that rows far from zero keep
  their digits; that takes a pass for the means and one for the second moments.
- A cell is (fold, y, concept), a group (y, concept), numbered 2·y + concept.
- ω are row weights: those of the rows times the factor that a `Weighting` gives their cell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.linalg.blas import daxpy, dsyrk

from unspur._arrays import cast, namespace, sum_by, to_device, to_device_like
from unspur._typing import Array, BoolArray, FloatArray
from unspur.exceptions import GroupSizeError, InputError
from unspur.rows import Block, RowSource, Weighting

#: What is said of rows whose products are infinite.
COVARIANCE_OVERFLOWS = "The covariance of X overflows its floating-point type. Rescale X, or use float64."
#: Smallest variance of the widest column; digits are lost in smaller ones.
MIN_VARIANCE = 1e-290
#: Most cells whose rows are multiplied apart.
MAX_CELLS = 8
#: Which classes get the same total weight.
Balance: TypeAlias = Literal["none", "concept", "main", "group"]
#: Axes of (y, concept) inside a class of each balance: summed over to get the weight of the class.
_WITHIN: dict[Balance, tuple[int, ...]] = {"none": (0, 1), "concept": (0,), "main": (1,), "group": ()}


def group_names(
    classes: tuple[Any, Any], concept_classes: tuple[Any, Any], main: str = "main", concept: str = "concept"
) -> tuple[str, ...]:
    """Names of the four groups, in the order 2·main + concept."""
    return tuple(f"{main}={y}, {concept}={c}" for y in classes for c in concept_classes)


#: Names of the groups of labels that are codes.
GROUPS = group_names((0, 1), (0, 1))


@dataclass(frozen=True, slots=True)
class CellCounts:
    """Rows with positive weight, sum of weights and of their squares per cell.

    Each is of shape (n_folds + 1, 2, 2): fold, y, concept.
    """

    rows: FloatArray
    weight: FloatArray
    squares: FloatArray
    #: Names of the groups, 2·main + concept, in a trace.
    keys: tuple[str, ...] = GROUPS
    #: Names of the groups in messages.
    names: tuple[str, ...] = GROUPS

    @classmethod
    def of(cls, rows: RowSource, keys: tuple[str, ...] = GROUPS, names: tuple[str, ...] | None = None) -> CellCounts:
        """Count the cells of a row source without reading Z."""
        cells = 4 * (rows.n_folds + 1)

        def count(block: Block) -> Array:
            present = cast(block.weight > 0, np.float64)
            return sum_by(block.cell, namespace(present).stack([present, block.weight, block.weight**2]), cells)

        labels = rows.project(np.empty((rows.n_features, 0)), np.zeros(rows.n_features))
        present, weight, squares = labels.sum(count).reshape(3, -1, 2, 2)
        return cls(present, weight, squares, keys, names or keys)

    @property
    def n_folds(self) -> int:
        """Number of folds that are held out in turn."""
        return len(self.rows) - 1

    def without(self, fold: int | None) -> BoolArray:
        """Mask over fold numbers: all but one (all when None)."""
        return np.array([number != fold for number in range(self.n_folds + 1)])

    @property
    def held_out_folds(self) -> BoolArray:
        """Mask over fold numbers: all that are held out in turn."""
        return self.without(0)

    @property
    def estimated_on(self) -> BoolArray:
        """Mask over fold numbers: those that the returned directions are estimated from, all but a single fold."""
        return self.without(1 if self.n_folds == 1 else None)

    @property
    def effective_held_out(self) -> FloatArray:
        """Effective number of held-out rows of each group, (Σw)² / Σw², (2, 2); their number for equal weights."""
        return _effective(self.weight[1:].sum(axis=0), self.squares[1:].sum(axis=0))

    @property
    def effective_held_out_in_all(self) -> float:
        """Effective number of all held-out rows."""
        return float(_effective(self.weight[1:].sum(), self.squares[1:].sum()))

    def weighting(self, folds: BoolArray, balance: Balance) -> Weighting:
        """Weights, summing to one, of the rows in `folds`.

        `balance` gives the classes of the concept, of the task, or the four groups the same total weight.
        """
        total = self.weight[folds].sum(axis=0)  # (y, concept)
        classes = total.sum(axis=_WITHIN[balance], keepdims=True)
        if np.any(classes <= 0):
            empty = np.argwhere(np.broadcast_to(classes, (2, 2)) <= 0)
            cells = ", ".join(f"({self.names[2 * y + c]})" for y, c in empty)
            raise GroupSizeError(
                f"No rows with positive weight in {cells}, so these classes cannot be given equal weight. Add such "
                "rows, hold out fewer, or use a coarser balance."
            )
        factor = np.zeros_like(self.weight)
        factor[folds] = np.broadcast_to(1.0 / (classes.size * classes), (2, 2))
        return Weighting(factor.ravel())


def _effective(weight: FloatArray, squares: FloatArray) -> FloatArray:
    """(Σw)² / Σw², and 0 without rows; rounded, so that equal weights give an integer."""
    return np.asarray(np.round(np.divide(weight**2, squares, out=np.zeros_like(weight), where=squares > 0), 9))


def _means(rows: RowSource, weights: Callable[[Block], Array]) -> tuple[float, FloatArray, FloatArray]:
    """Total weight, and weighted means of the rows (d,) and of the targets (k,); not finite without weight."""

    def sums(block: Block) -> Array:
        z, weight = cast(block.z, np.float64), weights(block)
        return namespace(z).concat([weight.sum().reshape(1), weight @ z, block.targets @ weight])

    total, *means = np.split(rows.sum(sums), [1, rows.n_features + 1])
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_x, mean_t = (mean / total for mean in means)
    return float(total[0]), mean_x, mean_t


@dataclass(frozen=True, slots=True)
class Moments:
    """Weighted mean (d,) and centred second moment (d, d) of the rows, weights summing to one.

    `noise` is the relative rounding error of the second moment.
    """

    mean: FloatArray
    second: FloatArray
    noise: float = 0.0

    @classmethod
    def of(cls, rows: RowSource, weighting: Weighting, *, in_float64: bool = True) -> Moments:
        """Two passes: the mean first, so that the second moment of rows far from zero keeps its digits.

        Products of a block are taken `in_float64`, or in the type of the rows, which is faster; then the rank of the
        rows is only known up to `noise`.
        """
        kind = np.dtype(np.float64) if in_float64 else rows.dtype

        total, mean, _ = _means(rows, weighting)
        noise = 0.0 if kind == np.float64 else 100.0 * float(np.finfo(kind).eps)
        return cls(mean, rows.sum(lambda block: _scatter(block, mean, weighting(block), kind)) / total, noise)

    @classmethod
    def of_both(cls, rows: RowSource, weightings: tuple[Weighting, Weighting]) -> tuple[Moments, Moments]:
        """`of` under two weightings that sum to one. In memory, rows of few cells are multiplied once, cell by cell."""
        mean, other = (_means(rows, weighting)[1] for weighting in weightings)
        factors = np.stack([weighting.factor for weighting in weightings], axis=1)

        def scatter(block: Block) -> Array:
            if not isinstance(block.z, np.ndarray) or len(factors) > MAX_CELLS:
                both = [_scatter(block, mean, weighting(block), np.dtype(np.float64)) for weighting in weightings]
                return namespace(both[0]).stack(both)
            order = np.argsort(block.cell, kind="stable")
            x = block.z[order].astype(np.float64, copy=False)
            x -= mean
            x *= block.weight[order, None] ** 0.5
            sums, product = np.zeros((2, x.shape[1] ** 2)), np.empty((x.shape[1], x.shape[1]))
            ends = np.cumsum(np.bincount(block.cell, minlength=len(factors)))
            for cell in np.unique(block.cell):
                own = x[ends[cell - 1] if cell else 0 : ends[cell]].T
                dsyrk(1.0, own, 0.0, product.T, overwrite_c=True)  # the lower triangle; half the work
                for one, share in zip(sums, factors[cell], strict=True):
                    daxpy(product.ravel(), one, a=share)
            return sums.reshape(2, *product.shape)

        first, second = (np.tril(one) + np.tril(one, -1).T for one in rows.sum(scatter))
        return cls(mean, first), cls(other, second - np.outer(other - mean, other - mean))


def _scatter(block: Block, mean: FloatArray, weight: Array, kind: np.dtype[Any]) -> Array:
    """Σ ω (z − mean)(z − mean)ᵀ over one block, shape (d, d), with products in a type."""
    z = block.z
    if isinstance(z, np.ndarray) and not weight.all():  # held-out rows; on a device, looking would mean waiting
        counted = np.flatnonzero(weight)
        z, weight = z.take(counted, axis=0), weight[counted]
    scaled = z - to_device(mean.astype(kind), z)
    scaled *= cast((weight**0.5)[:, None], kind)
    with np.errstate(over="ignore", invalid="ignore"):  # rows too large for it are refused by `Geometry`
        return cast(scaled.T @ scaled, np.float64)


def keeps_digits(squares: FloatArray, rows: RowSource) -> bool:
    """Whether sums of products (d, d) in the type of the rows neither overflow nor lose digits by underflow.

    Rows of the order of 1e-20 are fine in float32, but their squares have few digits left, or none.
    """
    kind = np.finfo(rows.dtype)
    return bool(np.isfinite(squares).all() and np.diag(squares).min() > rows.n_rows * kind.tiny / kind.eps)


def _not_finite(block: Block) -> Array:
    """1 for a block whose sum is not finite, else 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        return 1.0 * ~namespace(block.z).isfinite(block.z.sum())


def count_not_finite(rows: RowSource) -> FloatArray:
    """Counts of NaN and of infinity per column, shape (2, d): one pass, and a second one only if there are any."""
    if not rows.sum(_not_finite):
        return np.zeros((2, rows.n_features))

    def counts(block: Block) -> Array:
        xp = namespace(block.z)
        return cast(xp.stack([xp.isnan(block.z).sum(0), xp.isinf(block.z).sum(0)]), np.float64)

    return np.asarray(rows.sum(counts))


@dataclass(frozen=True, slots=True)
class Covariances:
    """Weighted means and centred second moments of rows x (d,) and targets t (k,), *not* divided by the weight.

    Parameters
    ----------
    weight : total row weight.
    mean_x, mean_t : shapes (d,) and (k,).
    xx, xt : ``Σω (x − x̄)(x − x̄)ᵀ`` (d, d) and ``Σω (x − x̄)(t − t̄)ᵀ`` (d, k).
    tt : ``Σω (t − t̄)²`` of each target, (k,).
    noise : relative rounding error of the second moments.
    rounding : relative rounding error of the rows themselves.
    """

    weight: float
    mean_x: FloatArray
    mean_t: FloatArray
    xx: FloatArray
    xt: FloatArray
    tt: FloatArray
    noise: float
    rounding: float

    @classmethod
    def of(cls, rows: RowSource, *, in_float64: bool = False) -> Covariances:
        """Two passes, the means first, so that rows far from zero keep their digits.

        Products of a block are taken in the type of its rows, in float64 if `in_float64`, and added up in float64.
        """
        kind = np.dtype(np.float64) if in_float64 else rows.dtype
        weight, mean_x, mean_t = _means(rows, lambda block: block.weight)
        if not weight > 0:
            raise InputError("No row has a positive weight, so there is nothing to estimate.")

        def second(block: Block) -> _Second:
            root = block.weight**0.5
            x = block.z - to_device(mean_x.astype(kind), block.z)
            x *= cast(root[:, None], kind)
            shift = cast(root, kind) @ x
            t = (block.targets - to_device_like(mean_t[:, None], root)) * root
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused where it is used
                xx, xt = x.T @ x, (cast(t, kind) @ x).T
            return _Second(cast(xx, np.float64), cast(xt, np.float64), (t * t).sum(1), cast(shift, np.float64))

        moments = rows.sum(second)
        if kind == np.float64:
            mean_x = _corrected(mean_x, moments, weight)
        noise, rounding = 100.0 * float(np.finfo(kind).eps), float(np.finfo(rows.dtype).eps)
        return cls(weight, mean_x, mean_t, moments.xx, moments.xt, moments.tt, noise, rounding)

    def merge(self, other: Covariances) -> Covariances:
        """Moments of both sets of rows together."""
        if self.xt.shape != other.xt.shape:
            raise InputError(f"Moments of shapes {self.xt.shape} and {other.xt.shape} cannot be merged.")
        weight = self.weight + other.weight
        share = other.weight / weight
        dx, dt = other.mean_x - self.mean_x, other.mean_t - self.mean_t
        between = self.weight * share  # of the two means, seen from their common one
        return Covariances(
            weight,
            self.mean_x + share * dx,
            self.mean_t + share * dt,
            self.xx + other.xx + between * np.outer(dx, dx),
            self.xt + other.xt + between * np.outer(dx, dt),
            self.tt + other.tt + between * dt * dt,
            max(self.noise, other.noise),
            max(self.rounding, other.rounding),
        )

    @property
    def live(self) -> BoolArray:
        """Columns that vary by more than the rounding of their mean, shape (d,); the others are constant."""
        return varies(np.sqrt(np.maximum(np.diag(self.xx), 0.0) / self.weight), self.mean_x)

    @property
    def readable(self) -> BoolArray:
        """Columns that vary by more than the rounding errors of the others, shape (d,)."""
        deviation = np.sqrt(np.maximum(np.diag(self.xx), 0.0) / self.weight)
        return readable(deviation, self.mean_x, self.rounding)

    @property
    def covariance(self) -> FloatArray:
        """Covariance of the rows, shape (d, d), divided by the weight; zero for columns that are constant."""
        return np.where(np.outer(self.live, self.live), self.xx / self.weight, 0.0)

    @property
    def cross(self) -> FloatArray:
        """Covariance of rows and targets, shape (d, k), divided by the weight; zero for columns that are constant."""
        return np.where(self.live[:, None], self.xt / self.weight, 0.0)


def require_variation(live: BoolArray, variance: FloatArray, mean: FloatArray) -> None:
    """Raise InputError unless some column is `live`, and has a variance in which no digits are lost."""
    size = float(np.sqrt(variance[live].max()) if live.any() else np.abs(mean).max(initial=0.0))
    if 0.0 < size < MIN_VARIANCE**0.5:
        raise InputError(f"X has values of the order of {size:.0e}, whose squares do not fit a float64. Rescale X.")
    if not live.any():
        raise InputError("All rows are the same: every column of X is constant. Nothing can be estimated.")


def varies(deviation: FloatArray, mean: FloatArray) -> BoolArray:
    """Which columns with these standard deviations and means (d,) vary, if the means are corrected.

    The mean of equal numbers is exact then. So a tenth of the last digit of a number is enough: it is what one in a
    hundred rows that differ in that digit make.
    """
    return np.asarray(deviation > 0.1 * np.finfo(np.float64).eps * np.abs(mean))


def readable(deviation: FloatArray, mean: FloatArray, rounding: float) -> BoolArray:
    """Which columns with these standard deviations and means (d,) vary by more than the rounding errors of the others.

    Units of a network that have died down to 1e-33 do not. The others are measured by their upper quartile: many
    columns may be dead, and few are very wide.
    """
    live = varies(deviation, mean)
    if not live.any():
        return live
    return np.asarray(live & (deviation > rounding * np.quantile(deviation[live], 0.75, method="higher")))


def _corrected(mean: FloatArray, moments: _Second, weight: float) -> FloatArray:
    """The mean plus that of the deviations from it, of columns where it matters; corrects their second moments too.

    A mean of many rows may be off by many times the last digit of a number, which is a spread of its own in columns
    that hardly vary.
    """
    shift = moments.shift / weight
    far = np.flatnonzero(shift**2 * weight > np.finfo(np.float64).eps * np.diag(moments.xx))
    if len(far):
        moments.xx[np.ix_(far, far)] -= weight * np.outer(shift[far], shift[far])
        mean = mean.copy()
        mean[far] += shift[far]
    return mean


@dataclass(slots=True)
class _Second:
    """Second moments of a block, added in place to avoid a d × d copy for every block; and the mean deviation."""

    xx: Array
    xt: Array
    tt: Array
    shift: Array

    def __add__(self, other: _Second) -> _Second:
        self.xx += other.xx
        self.xt += other.xt
        self.tt += other.tt
        self.shift += other.shift
        return self
