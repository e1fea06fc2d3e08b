"""Mean, second moment and finiteness of the rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unspur._arrays import cast, namespace, place
from unspur._reading import brief
from unspur._typing import Array, FloatArray
from unspur.rows import Block, RowSource, Weighting


@dataclass(frozen=True, slots=True)
class Moments:
    """Weighted mean (d,) and centred second moment (d, d) of the rows, weights summing to one.

    `noise` is the relative rounding error of the second moment.
    """

    mean: FloatArray
    second: FloatArray
    noise: float = 0.0

    @classmethod
    def of(cls, rows: RowSource, weighting: Weighting, *, exact: bool = True) -> Moments:
        """Two passes: the mean first, so that the second moment of rows far from zero keeps its digits.

        Products of a block are taken in float64 when `exact`, else in the type of the rows, which is faster; what they
        leave of the rank of the rows is then only as good as `noise`.
        """
        kind = np.dtype(np.float64) if exact else rows.dtype

        def total(block: Block) -> Array:
            weight = weighting(block)
            return namespace(weight).concat([weight @ cast(block.z, np.float64), weight.sum().reshape(1)])

        sums = rows.sum(total)
        mean = sums[:-1] / sums[-1]

        def scatter(block: Block) -> Array:
            scaled = block.z - place(mean.astype(kind), block.z)
            scaled *= cast((weighting(block) ** 0.5)[:, None], kind)
            with np.errstate(over="ignore", invalid="ignore"):  # rows too large for it are refused by `Geometry`
                return cast(scaled.T @ scaled, np.float64)

        noise = 0.0 if kind == np.float64 else 100.0 * float(np.finfo(kind).eps)
        return cls(mean, rows.sum(scatter) / sums[-1], noise)


def keeps_digits(squares: FloatArray, rows: RowSource) -> bool:
    """Whether sums of products (d, d), taken in the type of the rows, stay clear of both ends of what it can hold.

    Rows of the order of 1e-20 are fine in float32, their squares are not: those have few digits left, or none.
    """
    kind = np.finfo(rows.dtype)
    return bool(np.isfinite(squares).all() and np.diag(squares).min() > rows.n_rows * kind.tiny / kind.eps)


def _not_finite(block: Block) -> Array:
    """1 for a block whose sum is not finite, else 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        return 1.0 * ~namespace(block.z).isfinite(block.z.sum())


@dataclass(frozen=True, slots=True)
class ColumnFaults:
    """Counts of NaN and of infinity per column, shape (2, d)."""

    counts: FloatArray

    @classmethod
    def of(cls, rows: RowSource) -> ColumnFaults:
        """One pass; rows are looked at closely, in a second, only when the sum of a block is not finite."""
        if not rows.sum(_not_finite):
            return cls(np.zeros((2, rows.n_features)))

        def faults(block: Block) -> Array:
            xp = namespace(block.z)
            return cast(xp.stack([xp.isnan(block.z).sum(0), xp.isinf(block.z).sum(0)]), np.float64)

        return cls(rows.sum(faults))

    def __bool__(self) -> bool:
        return bool(self.counts.any())

    def describe(self, names: list[str] | None = None) -> str:
        """For instance ``3 NaN in column 7; 1 infinity in column 'age'`` (the first few columns)."""
        parts = []
        for kind, per_column in zip(("NaN", "infinity"), self.counts, strict=True):
            bad = np.flatnonzero(per_column)
            parts += [
                f"{int(per_column[j])} {kind} in column {brief(names[j], 60)!r}"
                if names
                else f"{int(per_column[j])} {kind} in column {j}"
                for j in bad[:5]
            ]
            if len(bad) > 5:
                parts.append(f"{kind} in {len(bad) - 5} more columns")
        return "; ".join(parts)
