"""Removals of every kind that the surgery tests go through."""

import numpy as np

from unspur.subspace import AffineMap, Subspace

D = 24


def make(kind: str, d: int = D) -> AffineMap:
    rng = np.random.default_rng(5)
    centre, offset = 3.0 * rng.standard_normal(d) + 2.0, rng.standard_normal(d)
    right, left = rng.standard_normal((2, d, 3)) / np.sqrt(d)
    subspace = Subspace.spanned_by(right)
    return {
        "remove": lambda: AffineMap.removing(subspace, centre),
        "keep": lambda: AffineMap.keeping(subspace, centre),
        "oblique remove": lambda: AffineMap(centre, right, left, "remove", offset),
        "oblique keep": lambda: AffineMap(centre, right, left, "keep", offset),
        "empty": lambda: AffineMap(centre, right[:, :0], left[:, :0], "remove", offset),
        "empty keep": lambda: AffineMap(centre, right[:, :0], left[:, :0], "keep", offset),
    }[kind]()


KINDS = ("remove", "keep", "oblique remove", "oblique keep", "empty", "empty keep")


def rows(*shape: int, seed: int = 1) -> np.ndarray:
    """Rows whose mean is not zero, so that a forgotten centre shows."""
    return np.random.default_rng(seed).standard_normal(shape) + 2.0


def error(got, expected) -> float:
    """Largest difference, relative to the largest value."""
    got, expected = np.asarray(got, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    assert got.shape == expected.shape
    return float(np.abs(got - expected).max() / np.abs(expected).max())
