"""Products of a tall matrix with a few vectors."""

from __future__ import annotations

import numpy as np

from unspur._typing import Array

#: From this many numbers on, matrix-vector products one by one beat one product with a thin matrix (OpenBLAS packs
#: the large operand first, which costs as much as the product itself).
MIN_MATVEC_SIZE = 2**17
#: ... as long as there are few of them.
MAX_MATVECS = 6
#: Rows of a tensor whose products are added up in their own type; sums of chunks are added in that of the result.
CHUNK_ROWS = 2048


def forward(z: Array, vectors: Array, out: Array) -> None:
    """``vectors @ z.T`` into `out` of shape (k, m), for `vectors` (k, d) in the dtype of `z` (m, d)."""
    if not isinstance(z, np.ndarray):
        out[:] = vectors @ z.T
    elif len(vectors) > MAX_MATVECS or z.size < MIN_MATVEC_SIZE:
        out[:] = (z @ vectors.T).T  # a third faster than vectors @ z.T for a dozen of them
    else:
        for line, vector in zip(out, vectors, strict=True):
            line[:] = z @ vector


def backward(z: Array, vectors: Array, out: Array) -> None:
    """``vectors @ z`` into `out` of shape (k, d), for `vectors` (k, m) in the dtype of `z` (m, d)."""
    if not isinstance(z, np.ndarray):
        _backward_in_chunks(z, vectors, out)
    elif len(vectors) > MAX_MATVECS or z.size < MIN_MATVEC_SIZE:
        out[:] = vectors @ z
    else:
        for line, vector in zip(out, vectors, strict=True):
            line[:] = vector @ z


def _backward_in_chunks(z: Array, vectors: Array, out: Array) -> None:
    """The same for tensors, whose blocks may have a million rows: so many products are not added up in float32."""
    k, m = vectors.shape
    chunks = m // CHUNK_ROWS
    whole = chunks * CHUNK_ROWS
    out[:] = vectors[:, whole:] @ z[whole:]
    if chunks:
        parts = vectors[:, :whole].reshape(k, chunks, CHUNK_ROWS).transpose(0, 1) @ z[:whole].reshape(
            chunks, CHUNK_ROWS, -1
        )
        out += parts.sum(0, dtype=out.dtype)
