"""Rows with known answers, and a removal of them."""

import numpy as np

from unspur import JSE
from unspur.datasets import make_toy


def toy(n=900, rho=0.8, seed=0, d=8):
    """Rows, and labels in words."""
    made = make_toy(n, d=d, rho=rho, random_state=seed)
    return made.Z, np.array(["land", "water"])[made.y], np.array(["forest", "sea"])[made.concept]


def removal(rows, **options):
    """JSE on rows, in the paper's metric unless another is asked for."""
    Z, y, concept = rows
    return JSE(**{"metric": 0.0, "random_state": 0, **options}).fit(Z, y, concept=concept)


def nothing_to_find(n=600, seed=0):
    """A concept that is a coin."""
    Z, y, _ = toy(n, seed=seed)
    return Z, y, np.random.default_rng(seed).choice(["a", "b"], size=n)
