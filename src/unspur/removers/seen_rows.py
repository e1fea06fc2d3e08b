"""How a certificate recognises rows of the fit, even after rounding."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.spatial import cKDTree
from sklearn.base import BaseEstimator

from unspur._arrays import cast, is_tensor, result_to_host, to_device_like, to_numpy
from unspur._typing import Array, BoolArray, FloatArray
from unspur._validation import is_finite, require_finite, unlabelled_source
from unspur.clusters import fingerprint, row_hashes
from unspur.rows import MemoryRows, backend_of

#: Projections kept of a row, four bytes each, and the number of rows up to which every row is kept.
N_PROJECTIONS, MAX_KEPT_ROWS = 8, 100_000
#: Numbers processed at once, on the host and on a device, to bound temporary copies.
BLOCK_SIZE, DEVICE_BLOCK_SIZE = 2**18, 2**24
#: Ways to round numbers, and the largest relative error of each.
ROUNDINGS = {"six digits": 5e-6, "half precision": 2.0**-11, "bfloat16": 2.0**-9}
#: Rows that match by chance have many neighbours a little farther away. So matches count only if at most this share as
#: many rows lie beyond the tolerance but within this multiple of it.
MAX_SHELL_SHARE, SHELL_FACTOR = 1 / 3, 8.0
#: Rounding may move a row by at most this share of the distance between kept rows, or any row would match another; rows
#: on which that distance is measured, and copies of a row that are skipped.
MAX_SPACING_SHARE, SPACING_ROWS, MAX_COPIES = 0.1, 1000, 8
#: Rows that columns are scaled by; with fewer there is no sketch, and only rows that are exactly equal are found.
MIN_SCALE_ROWS = 10
#: Smallest deviation of a column that counts, relative to its values, and to the deviation of the others.
MIN_DIGITS, MIN_WIDTH = 1e-13, 1e-6
#: Longest Dask array whose hashes, 8 bytes each, are brought to the host and kept.
MAX_HASHES = 50_000_000


@dataclass(frozen=True, slots=True)
class Sketch:
    """Random projections of scaled rows. A rounded row lies next to its original, and other rows do not.

    Parameters
    ----------
    centre, scale : shape (d,), what is subtracted from rows, and what they are multiplied with.
    points : projections, shape (m, 8) in float32.
    step : every `step`-th row was kept.
    """

    centre: FloatArray
    scale: FloatArray
    points: Array
    step: int

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")  # such rows are refused where they are checked
    def of(cls, blocks: Iterable[Array], n_rows: int) -> Self | None:
        """The sketch of rows that come in blocks; None of few rows, and of copies of a single one."""
        step, seen = max(1, -(-n_rows // MAX_KEPT_ROWS)), 0
        centre = scale = None
        first_blocks: list[Array] = []  # kept rows of blocks before there are enough rows that differ
        samples: list[FloatArray] = []
        points: list[Array] = []
        for block in filter(len, blocks):
            first = -seen % step
            seen += len(block)
            if centre is None or scale is None:
                apart = max(1, min(len(block) * block.shape[1] // BLOCK_SIZE, len(block) // MIN_SCALE_ROWS))
                sample = np.asarray(to_numpy(block[::apart]), dtype=np.float64)
                if (sample == sample[0]).all():  # one row stands for all
                    samples.append(sample[:1])
                    number = len(range(first, len(block), step))
                    first_blocks.append(np.broadcast_to(sample[:1], (number, block.shape[1])))
                else:
                    samples.append(sample)
                    first_blocks.append(block[first::step])
                sample = np.concatenate(samples)
                found = _scale(sample)
                if seen < MIN_SCALE_ROWS or not found.any():
                    continue
                centre, scale = sample.mean(axis=0), found
                chunks = (
                    rows[at : at + _rows_at_once(rows)]
                    for rows in first_blocks
                    for at in range(0, len(rows), _rows_at_once(rows))
                )
                points = [_projected(rows, centre, scale).astype(np.float32) for rows in chunks]
                continue
            stride = step * _rows_at_once(block)
            parts = (block[start : start + stride : step] for start in range(first, len(block), stride))
            points += [_projected(part, centre, scale).astype(np.float32) for part in parts]
        if centre is None or scale is None:
            return None
        return cls(centre, scale, np.concatenate(points), step)

    def nearest(self, z: Array) -> tuple[FloatArray, FloatArray]:
        """Distance of each row to the nearest kept row, and the distance that losing all its digits would cause."""
        distance, size = np.empty(len(z)), np.empty(len(z))
        tree = cKDTree(self.points)
        size_of_part = _rows_at_once(z)
        for start in range(0, len(z), size_of_part):
            part = slice(start, start + size_of_part)
            rows = np.asarray(z[part], dtype=np.float64)
            distance[part] = tree.query(_projected(rows, self.centre, self.scale))[0]
            size[part] = np.sqrt(N_PROJECTIONS) * np.linalg.norm(rows * self.scale, axis=1)
        return distance, size

    def spacing(self) -> float:
        """Median distance of kept rows to the nearest row that is not a copy; infinite if all are copies."""
        some = self.points[:: max(1, len(self.points) // SPACING_ROWS)]
        distance = cKDTree(self.points).query(some, k=np.arange(1, min(MAX_COPIES, len(self.points)) + 1))[0]
        return float(np.median(np.where(distance > 0, distance, np.inf).min(axis=1)))


def _scale(sample: FloatArray) -> FloatArray:
    """One over the deviation of each column; 0 for those that rounding alone may change.

    These are constant up to rounding, or so narrow beside the others that half precision has no digits for them.
    """
    deviation = sample.std(axis=0)
    varying = deviation > MIN_DIGITS * np.abs(sample).max(axis=0)
    if varying.any():
        varying &= deviation > MIN_WIDTH * np.quantile(deviation[varying], 0.75, method="lower")
    return np.asarray(np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varying))


class SeenRows(NamedTuple):
    """Hashes of rows (n,), or None where they are too many to keep; the fingerprint of all; and their sketches."""

    hashes: Any
    fingerprint: str
    sketches: tuple[Sketch, ...] = ()

    def merged(self, other: SeenRows) -> SeenRows:
        """Those of the union of two sets of rows."""
        known = self.hashes is not None and other.hashes is not None
        hashes = np.concatenate([self.hashes, other.hashes]) if known else None
        union = merged_fingerprints(self.fingerprint, other.fingerprint)
        return SeenRows(hashes, union, (*self.sketches, *other.sketches))


def without_unused(seen: SeenRows, used: BoolArray) -> SeenRows:
    """What to remember of the rows that were `used` (n,): those with a weight and a known concept."""
    if used.all() or seen.hashes is None:
        return seen
    kept = (replace(sketch, points=sketch.points[used[:: sketch.step]]) for sketch in seen.sketches)
    hashes = seen.hashes[used]
    return SeenRows(hashes, fingerprint(hashes), tuple(sketch for sketch in kept if len(sketch.points)))


def hash_finite_rows(estimator: BaseEstimator, z: Array, name: str = "X") -> SeenRows:
    """Hash of each row, the fingerprint of all, and their sketch; NotFiniteError unless all values are finite.

    One pass over the rows does both. A Dask array has no sketch, and no hashes if it is too long.
    """
    if backend_of(z) == "dask":
        from unspur.rows.dask import per_chunk

        many = len(z) > MAX_HASHES
        found, finite = zip(*per_chunk(z, _fingerprint_and_check if many else _hash_and_check), strict=True)
        if not all(finite):
            require_finite(estimator, z, name)
        if many:
            return SeenRows(None, functools.reduce(merged_fingerprints, found))
        return SeenRows(hashes := np.concatenate(found), fingerprint(hashes))
    rows = unlabelled_source(z)
    if isinstance(rows, MemoryRows):
        found, finite = zip(*rows.sum(lambda block: [_hash_and_check(block.z)]), strict=True)
        hashes = np.concatenate(found)
        if not all(finite):
            require_finite(estimator, z, name)
    else:
        require_finite(estimator, z, name)
        hashes = row_hashes(z)
    sketch = Sketch.of([z.detach() if is_tensor(z) else z], len(z))
    return SeenRows(hashes, fingerprint(hashes), () if sketch is None else (sketch,))


def _hash_and_check(z: Array) -> tuple[Any, bool]:
    return row_hashes(z), is_finite(z)


def _fingerprint_and_check(z: Array) -> tuple[str, bool]:
    return fingerprint(row_hashes(z)), is_finite(z)


def merged_fingerprints(one: str, other: str) -> str:
    """The fingerprint of the union of two sets of rows."""
    counts, sums = zip(*(text.split("-") for text in (one, other)), strict=True)
    return f"{sum(map(int, counts))}-{sum(int(digits, 16) for digits in sums) % 2**64:016x}"


def equal_up_to_rounding(z: Array, sketches: Iterable[Sketch]) -> tuple[BoolArray, str]:
    """Mask of rows that equal a kept one up to rounding, and the finest rounding that explains any.

    In few columns, or in frames of a film, rows lie near each other by chance; then more rows are slightly farther away
    than a rounding than nearer. Where columns are far from zero for their spread, rounding may move a row by as much
    as rows differ; then only rows that are much nearer than that count.
    """
    found = [(*sketch.nearest(z), sketch.spacing()) for sketch in sketches]
    for name, lost in ROUNDINGS.items():
        near, far = np.zeros(len(z), dtype=bool), np.zeros(len(z), dtype=bool)
        for distance, size, spacing in found:
            tolerance = np.minimum(lost * size, MAX_SPACING_SHARE * spacing)
            near |= distance <= tolerance
            far |= distance <= SHELL_FACTOR * tolerance
        if near.any() and (far & ~near).sum() <= MAX_SHELL_SHARE * near.sum():
            return near, name
    return np.zeros(len(z), dtype=bool), ""


def _projected(rows: Array, centre: FloatArray, scale: FloatArray) -> FloatArray:
    """Projections of rows, computed where they are, on the host."""
    signs = np.random.default_rng(1).choice([-1.0, 1.0], size=(len(centre), N_PROJECTIONS))
    wide = cast(rows, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        points = (wide - to_device_like(centre, wide)) @ to_device_like(scale[:, None] * signs, wide)
        return np.asarray(np.clip(np.nan_to_num(result_to_host(points)), -1e30, 1e30))


def _rows_at_once(rows: Array) -> int:
    size = DEVICE_BLOCK_SIZE if is_tensor(rows) else BLOCK_SIZE
    return max(2, size // max(1, int(rows.shape[1])))
