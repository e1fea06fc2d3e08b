"""Rows as of a network that was trained on a correlation: concept and task along the same few directions."""

import numpy as np


def entangled_rows(n=4000, seed=0):
    """Z (n, 12), y, concept; the concept is far easier than the task, and goes with it in nine rows of ten."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    concept = np.where(rng.random(n) < 0.9, y, 1 - y)
    main, spurious = 2 * y - 1, 2 * concept - 1
    shared = np.tanh(spurious + 0.6 * main + 0.9 * rng.standard_normal(n))
    z = rng.standard_normal((n, 12)) + 3.0 * np.outer(shared, np.linspace(1.0, 0.2, 12))
    z[:, 0] += 0.5 * main
    z[:, 1] += spurious * np.abs(rng.standard_normal(n))
    z[:, 2:8] += 0.8 * spurious[:, None] * (1.0 + 0.5 * rng.standard_normal((n, 6)))
    return z, y, concept
