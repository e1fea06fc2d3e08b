"""Mean, second moment and finiteness of the rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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

        def total(block: Block) -> FloatArray:
            weight = weighting(block)
            return np.append(weight @ _as_float64(block.z), weight.sum())

        sums = rows.sum(total)
        mean = sums[:-1] / sums[-1]

        def scatter(block: Block) -> FloatArray:
            scaled = block.z - mean.astype(kind)
            scaled *= np.sqrt(weighting(block))[:, None].astype(kind)
            with np.errstate(over="ignore", invalid="ignore"):  # rows too large for it are refused by `Geometry`
                return np.asarray(scaled.T @ scaled, dtype=np.float64)

        noise = 0.0 if kind == np.float64 else 100.0 * float(np.finfo(kind).eps)
        return cls(mean, rows.sum(scatter) / sums[-1], noise)


def _as_float64(z: Array) -> FloatArray:
    return np.asarray(z, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class ColumnFaults:
    """Counts of NaN and of infinity per column, shape (2, d)."""

    counts: FloatArray

    @classmethod
    def of(cls, rows: RowSource) -> ColumnFaults:
        """One pass; a block is looked at closely only when its sum is not finite."""
        none = np.zeros((2, rows.n_features))

        def faults(block: Block) -> FloatArray:
            with np.errstate(over="ignore", invalid="ignore"):
                if np.isfinite(block.z.sum()):
                    return none
            return np.stack([np.isnan(block.z).sum(axis=0), np.isinf(block.z).sum(axis=0)]).astype(np.float64)

        return cls(rows.sum(faults))

    def __bool__(self) -> bool:
        return bool(self.counts.any())

    def describe(self, names: list[str] | None = None) -> str:
        """For instance ``3 NaN in column 7; 1 infinity in column 'age'`` (the first few columns)."""
        parts = []
        for kind, per_column in zip(("NaN", "infinity"), self.counts, strict=True):
            bad = np.flatnonzero(per_column)
            parts += [
                f"{int(per_column[j])} {kind} in column {names[j]!r}"
                if names
                else f"{int(per_column[j])} {kind} in column {j}"
                for j in bad[:5]
            ]
            if len(bad) > 5:
                parts.append(f"{kind} in {len(bad) - 5} more columns")
        return "; ".join(parts)
