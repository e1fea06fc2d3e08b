"""How a certificate recognises rows of the fit: by hashes of the rows rounded to float32."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from unspur._arrays import is_tensor
from unspur._typing import Array, BoolArray
from unspur._validation import is_finite, require_finite, unlabelled_source
from unspur.clusters import fingerprint, row_hashes
from unspur.rows import backend_of

#: Longest Dask array whose hashes, 8 bytes each, are brought to the host and kept.
MAX_HASHES = 50_000_000


class SeenRows(NamedTuple):
    """Hashes of rows that are rounded to float32 (n,), or None where they are too many to keep; and their fingerprint.

    So a row is recognised in float32 as well as in float64, but not in half precision or after other rounding.
    """

    hashes: Any
    fingerprint: str

    def merged(self, other: SeenRows) -> SeenRows:
        """Those of the union of two sets of rows."""
        known = self.hashes is not None and other.hashes is not None
        hashes = np.concatenate([self.hashes, other.hashes]) if known else None
        return SeenRows(hashes, merged_fingerprints(self.fingerprint, other.fingerprint))

    def select(self, used: BoolArray) -> SeenRows:
        """Those of the rows that were `used` (n,): with a weight and a known concept."""
        if self.hashes is None or used.all():
            return self
        hashes = self.hashes[used]
        return SeenRows(hashes, fingerprint(hashes))


def rounded_hashes(z: Array) -> Any:
    """Hash of each row rounded to float32, shape (n,)."""
    if z.dtype.itemsize < 8:
        return row_hashes(z)
    with np.errstate(over="ignore"):
        return row_hashes(z.float() if is_tensor(z) else np.asarray(z, dtype=np.float32))


def hash_finite_rows(estimator: BaseEstimator, z: Array, name: str = "X") -> tuple[Any, SeenRows]:
    """Hashes of the rows as they are (None of a long Dask array), and of the rounded rows.

    One pass over the rows; NotFiniteError unless all values are finite.
    """
    backend, many = backend_of(z), False
    if backend == "dask":
        from unspur.rows.dask import per_chunk

        many = len(z) > MAX_HASHES
        found = per_chunk(z, _fingerprint_and_check if many else _hash_and_check)
    elif backend == "memory":
        found = unlabelled_source(z).sum(lambda block: [_hash_and_check(block.z)])
    else:
        require_finite(estimator, z, name)
        found = [(row_hashes(z), rounded_hashes(z), True)]
    exact, rounded, finite = zip(*found, strict=True)
    if not all(finite):
        require_finite(estimator, z, name)
    if many:
        return None, SeenRows(None, functools.reduce(merged_fingerprints, rounded))
    hashes = np.concatenate(rounded)
    return np.concatenate(exact), SeenRows(hashes, fingerprint(hashes))


def _hash_and_check(z: Array) -> tuple[Any, Any, bool]:
    exact = row_hashes(z)
    return exact, exact if z.dtype.itemsize < 8 else rounded_hashes(z), is_finite(z)


def _fingerprint_and_check(z: Array) -> tuple[None, str, bool]:
    return None, fingerprint(rounded_hashes(z)), is_finite(z)


def merged_fingerprints(one: str, other: str) -> str:
    """The fingerprint of the union of two sets of rows."""
    counts, sums = zip(*(text.split("-") for text in (one, other)), strict=True)
    return f"{sum(map(int, counts))}-{sum(int(digits, 16) for digits in sums) % 2**64:016x}"
