"""Covariance of the rows with themselves and with any number of target columns: all that closed forms need."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unspur._arrays import cast, like, namespace, place
from unspur._typing import Array, BoolArray, FloatArray
from unspur.exceptions import InputError
from unspur.rows import Block, RowSource


@dataclass(frozen=True, slots=True)
class Covariances:
    """Weighted means and centred second moments of rows x (d,) and targets t (k,), *not* divided by the weight.

    Parameters
    ----------
    weight : total row weight.
    mean_x, mean_t : shapes (d,) and (k,).
    xx, xt : ``Σω (x − x̄)(x − x̄)ᵀ`` (d, d) and ``Σω (x − x̄)(t − t̄)ᵀ`` (d, k).
    tt : ``Σω (t − t̄)²`` of each target, (k,).
    noise : relative rounding error of the second moments, below which a variance cannot be told from none.
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
    def of(cls, rows: RowSource, *, exact: bool = False) -> Covariances:
        """Two passes, the means first, so that rows far from zero keep their digits.

        Products of a block are taken in the type of its rows, in float64 when `exact`, and added up in float64.
        """
        kind = np.dtype(np.float64) if exact else rows.dtype

        def first(block: Block) -> Array:
            z, weight = cast(block.z, np.float64), block.weight
            return namespace(z).concat([weight.sum().reshape(1), weight @ z, block.targets @ weight])

        sums = rows.sum(first)
        weight, d = float(sums[0]), rows.n_features
        if not weight > 0:
            raise InputError("No row has a positive weight, so there is nothing to estimate.")
        mean_x, mean_t = sums[1 : d + 1] / weight, sums[d + 1 :] / weight

        def second(block: Block) -> _Second:
            root = block.weight**0.5
            x = block.z - place(mean_x.astype(kind), block.z)
            x *= cast(root[:, None], kind)
            t = (block.targets - like(mean_t[:, None], root)) * root
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused where it is used
                xx, xt = x.T @ x, (cast(t, kind) @ x).T
            return _Second(cast(xx, np.float64), cast(xt, np.float64), (t * t).sum(1))

        moments = rows.sum(second)
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
        return np.asarray(np.sqrt(np.diag(self.xx) / self.weight) > 1e-13 * np.abs(self.mean_x))

    @property
    def grain(self) -> float:
        """Rounding error of the rows beside the spread of their column, largest over the columns that vary."""
        spread = np.sqrt(np.diag(self.xx)[self.live] / self.weight)
        size = np.hypot(spread, self.mean_x[self.live])
        return self.rounding * float(np.max(size / spread, initial=1.0))

    @property
    def covariance(self) -> FloatArray:
        """Covariance of the rows, shape (d, d), divided by the weight; zero for columns that are constant."""
        return np.where(np.outer(self.live, self.live), self.xx / self.weight, 0.0)

    @property
    def cross(self) -> FloatArray:
        """Covariance of rows and targets, shape (d, k), divided by the weight; zero for columns that are constant."""
        return np.where(self.live[:, None], self.xt / self.weight, 0.0)


@dataclass(slots=True)
class _Second:
    """Second moments of a block, fresh arrays of its own; adding up in place spares a d × d copy for every block."""

    xx: Array
    xt: Array
    tt: Array

    def __add__(self, other: _Second) -> _Second:
        self.xx += other.xx
        self.xt += other.xt
        self.tt += other.tt
        return self
