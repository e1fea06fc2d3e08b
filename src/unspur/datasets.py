"""Datasets that need no download.

*Toy* is the paper's: Gaussian rows in which one axis carries the concept and another the main task.

::

    z ~ N(0, Σ),  Σ = I but for corr(z₁, z₂) = ρ
    P(concept = 1 | z) = σ(z · w_sp),   P(main = 1 | z) = σ(z · w_mt)

The two label vectors lie on the first two axes, or at another angle inside their plane.

*Photodigits* are real handwritten digits pasted on patches of two real photographs.

The digits and both photographs (`china.jpg`, `flower.jpg`) come with scikit-learn. The main task is the digit group
(0–4 against 5–9), the concept is the photograph behind the digit, and `agreement` says how often they go together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from sklearn.datasets import load_digits, load_sample_image
from sklearn.utils import check_random_state

from unspur._extras import require
from unspur._typing import FloatArray, IntArray
from unspur.exceptions import InputError

__all__ = ["PhotoDigits", "Toy", "bayes_accuracy", "embed_images", "make_photodigits", "make_toy"]


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
    """Accuracy in % of the best rule for the task on rows with independent features: ``E σ(|z · w|)``."""
    length = float(np.linalg.norm(label_axes(2, separability, angle)[1]))
    # 2 ∫ σ(γ x) φ(x) dx over x > 0, by Gauss–Legendre up to 9 standard deviations.
    nodes, weights = np.polynomial.legendre.leggauss(200)
    x = 4.5 * (nodes + 1.0)
    density = np.exp(-(x**2) / 2.0) / np.sqrt(2.0 * np.pi)
    return float(100.0 * 2.0 * 4.5 * weights @ (density / (1.0 + np.exp(-length * x))))


#: Names of the classes, coded 0 and 1.
MAIN_NAMES = ("0–4", "5–9")
CONCEPT_NAMES = ("china", "flower")
#: Side of a picture in pixels, and how many times a digit is enlarged.
SIDE, ENLARGED = 32, 3
#: The photographs are darkened so that white ink stays legible on them.
BRIGHTNESS = 0.6
#: Digits of each split; no digit is in two of them.
SPLITS = {"train": slice(0, 1000), "validation": slice(1000, 1300), "test": slice(1300, 1797)}


@dataclass(frozen=True, slots=True)
class PhotoDigits:
    """Pictures (n, 32, 32, 3) with values in [0, 1], the digit group, the photograph, and the digit, each (n,)."""

    images: NDArray[np.float32]
    y: IntArray
    concept: IntArray
    digit: IntArray


def make_photodigits(
    split: Literal["train", "validation", "test"] = "train",
    *,
    agreement: float = 0.9,
    repeats: int = 3,
    random_state: Any = None,
) -> PhotoDigits:
    """Paste every digit of a split on `repeats` random patches.

    Parameters
    ----------
    agreement : probability that a digit of 0–4 lies on china, and one of 5–9 on flower.
    repeats : patches per digit; 1000, 300 and 497 digits are in the three splits.
    """
    if split not in SPLITS:
        raise InputError(f"split is one of {', '.join(SPLITS)}; got {split!r}.")
    if not 0.0 <= agreement <= 1.0:
        raise InputError(f"agreement is a probability; got {agreement}.")
    require("The photographs behind the digits need", "PIL")
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1, size=4))
    digits = load_digits()
    # A fixed order of the digits, the same for every seed: splits must never overlap.
    chosen = np.repeat(np.random.default_rng(0).permutation(len(digits.target))[SPLITS[split]], repeats)
    digit = digits.target[chosen]
    y = (digit >= 5).astype(np.int64)
    concept = np.where(rng.random(len(y)) < agreement, y, 1 - y)
    photographs = [load_sample_image(f"{name}.jpg").astype(np.float32) / 255.0 for name in CONCEPT_NAMES]
    ink = _enlarged(digits.images.astype(np.float32) / 16.0)
    images = np.empty((len(y), SIDE, SIDE, 3), dtype=np.float32)
    margin = (SIDE - ink.shape[1]) // 2
    inside = slice(margin, SIDE - margin)
    for i, (c, k) in enumerate(zip(concept, chosen, strict=True)):
        photograph = photographs[c]
        top, left = (rng.integers(size - SIDE + 1) for size in photograph.shape[:2])
        images[i] = BRIGHTNESS * photograph[top : top + SIDE, left : left + SIDE]
        alpha = ink[k][:, :, None]
        images[i, inside, inside] = images[i, inside, inside] * (1 - alpha) + alpha
    return PhotoDigits(images, y, concept, digit)


def _enlarged(small: NDArray[np.float32]) -> NDArray[np.float32]:
    """Images (n, 8, 8) scaled up by linear interpolation to (n, 24, 24)."""
    size = small.shape[1]
    at = np.clip((np.arange(size * ENLARGED) + 0.5) / ENLARGED - 0.5, 0, size - 1)
    low = np.minimum(at.astype(np.intp), size - 2)
    share = (at - low).astype(np.float32)
    rows = small[:, low, :] * (1 - share)[:, None] + small[:, low + 1, :] * share[:, None]
    return np.asarray(rows[:, :, low] * (1 - share) + rows[:, :, low + 1] * share)


def embed_images(images: NDArray[np.float32], *, filters: int = 32, width: int = 5, cells: int = 4) -> FloatArray:
    """Features of an untrained one-layer convolutional network, shape (n, filters · cells²).

    Random zero-sum colour filters (always the same ones), a rectifier, and the mean over a grid of `cells` × `cells`:
    enough of a network for a demonstration, and it needs nothing but numpy.
    """
    weights = np.random.default_rng(0).standard_normal((width * width * 3, filters))
    weights -= weights.mean(axis=0)
    weights = (weights / np.linalg.norm(weights, axis=0)).astype(np.float32)
    parts = []
    for start in range(0, len(images), 256):
        windows = sliding_window_view(images[start : start + 256], (width, width), axis=(1, 2))[:, ::2, ::2]
        grid = windows.shape[1]
        maps = np.maximum(windows.reshape(len(windows), grid, grid, -1) @ weights, 0)
        pieces = np.array_split(np.arange(grid), cells)
        parts.append(np.concatenate([maps[:, a][:, :, b].mean(axis=(1, 2)) for a in pieces for b in pieces], axis=1))
    return np.concatenate(parts)
