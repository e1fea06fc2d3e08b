"""Products of a tall matrix with a few vectors."""

from __future__ import annotations

from unspur._typing import Array, FloatArray

#: From this many numbers on, matrix-vector products one by one beat one product with a thin matrix (OpenBLAS packs
#: the large operand first, which costs as much as the product itself).
THIN = 2**17
#: ... as long as there are few of them.
FEW = 3


def forward(z: Array, vectors: Array, out: FloatArray) -> None:
    """``vectors @ z.T`` into `out` of shape (k, m), for `vectors` (k, d) in the dtype of `z` (m, d)."""
    if z.size < THIN or len(vectors) > FEW:
        out[:] = vectors @ z.T
    else:
        for line, vector in zip(out, vectors, strict=True):
            line[:] = z @ vector


def backward(z: Array, vectors: Array, out: FloatArray) -> None:
    """``vectors @ z`` into `out` of shape (k, d), for `vectors` (k, m) in the dtype of `z` (m, d)."""
    if z.size < THIN or len(vectors) > FEW:
        out[:] = vectors @ z
    else:
        for line, vector in zip(out, vectors, strict=True):
            line[:] = vector @ z
