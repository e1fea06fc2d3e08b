"""The paper's Toy data: Gaussian rows in which one axis carries the concept and another the main task.

::

    z ~ N(0, Σ),  Σ = I but for corr(z₁, z₂) = ρ
    P(concept = 1 | z) = σ(z · w_sp),   P(main = 1 | z) = σ(z · w_mt)

The two label vectors lie on the first two axes, or at another angle inside their plane.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from unspur._typing import FloatArray, IntArray
from unspur.exceptions import InputError


@dataclass(frozen=True, slots=True)
class Toy:
    """Rows Z (n, d), labels (n,), and the true label vectors (d,)."""

    Z: FloatArray
    y: IntArray
    concept: IntArray
    spurious_axis: FloatArray
    main_axis: FloatArray


def make_toy(
    n: int = 2000,
    *,
    d: int = 20,
    rho: float = 0.0,
    separability: float | tuple[float, float] = 3.0,
    angle: float = 90.0,
    random_state: Any = None,
) -> Toy:
    """Draw a Toy set.

    Parameters
    ----------
    n, d : number of rows and of features.
    rho : correlation of the two features. A test set without spurious correlation has rho = 0 and a `random_state`
        of its own.
    separability : length γ of the label vectors; one number, or (concept, main).
    angle : degrees between the label vectors. The paper's non-orthogonal variant is 75°, where its formula
        gives the main vector (0.634, 2.366) at γ = 3: coordinates that add up to γ, not length γ. So here.
    """
    if d < 2:
        raise InputError(f"Toy needs at least 2 features; got d={d}.")
    if not -1.0 <= rho <= 1.0:
        raise InputError(f"rho is a correlation between −1 and 1; got {rho}.")
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1, size=4))
    z = rng.standard_normal((n, d))
    z[:, 1] = rho * z[:, 0] + np.sqrt(1.0 - rho**2) * z[:, 1]
    spurious, main = label_axes(d, separability, angle)
    labels = [rng.random(n) < 1.0 / (1.0 + np.exp(-z @ axis)) for axis in (spurious, main)]
    return Toy(z, labels[1].astype(np.int64), labels[0].astype(np.int64), spurious, main)


def label_axes(d: int, separability: float | tuple[float, float], angle: float) -> tuple[FloatArray, FloatArray]:
    """Label vectors (d,) of concept and main task (see `make_toy` for their lengths)."""
    gamma_sp, gamma_mt = np.broadcast_to(separability, (2,))
    spurious, main = np.zeros(d), np.zeros(d)
    spurious[0] = gamma_sp
    direction = np.array([np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))])
    main[:2] = gamma_mt * direction / np.abs(direction).sum()
    return spurious, main


def bayes_accuracy(separability: float = 3.0, *, angle: float = 90.0) -> float:
    """Accuracy in % of the best rule for the main label on rows with independent features: ``E σ(|z · w|)``."""
    length = float(np.linalg.norm(label_axes(2, separability, angle)[1]))
    # 2 ∫ σ(γ x) φ(x) dx over x > 0, by Gauss–Legendre; beyond 9 standard deviations there is nothing.
    nodes, weights = np.polynomial.legendre.leggauss(200)
    x = 4.5 * (nodes + 1.0)
    density = np.exp(-(x**2) / 2.0) / np.sqrt(2.0 * np.pi)
    return float(100.0 * 2.0 * 4.5 * weights @ (density / (1.0 + np.exp(-length * x))))
