"""What rows pass through before the last layer, as steps that a linear layer can be pulled back through.

A step is affine, ``z = x M + t`` on rows. A layer ``z Wᵀ + b`` after it equals the layer ``x W'ᵀ + b'`` before it with
``W' = W Mᵀ`` and ``b' = b + W t``; each kind of step below writes these two out with the factors it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from unspur._typing import Array, FloatArray
from unspur.exceptions import InputError
from unspur.subspace import AffineMap, Subspace

#: Weights (m, d) and bias (m,) of a linear layer.
Layer: TypeAlias = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class Stage:
    """Affine step from rows of width `n_in` to rows of width `n_out`; `back` pulls a layer through it."""

    name: str
    n_in: int
    n_out: int
    back: Callable[[FloatArray, FloatArray], Layer]


def as_removal(thing: Any) -> AffineMap:
    """The AffineMap that was passed, or that a fitted remover holds."""
    if isinstance(thing, AffineMap):
        return thing
    if isinstance(thing, BaseEstimator):
        check_is_fitted(thing)
        removal = getattr(thing, "removal_", None)
        if isinstance(removal, AffineMap):
            return removal
    hint = " Build one with AffineMap.removing(subspace, centre)." if isinstance(thing, Subspace) else ""
    raise InputError(f"A removal is an AffineMap or a fitted remover; got a {type(thing).__name__}.{hint}")


def flatten(steps: tuple[Any, ...]) -> Iterator[Any]:
    """The steps in the order that rows pass through them, with pipelines opened and "passthrough" left out."""
    from sklearn.pipeline import Pipeline

    for step in steps:
        if isinstance(step, Pipeline):
            yield from flatten(tuple(inner for _, inner in step.steps if inner not in (None, "passthrough")))
        else:
            yield step


def as_stage(step: Any) -> Stage:
    """A removal, or a fitted scikit-learn transformer that is affine, as a `Stage`."""
    from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
    from sklearn.preprocessing import StandardScaler

    if isinstance(step, BaseEstimator):
        check_is_fitted(step)
    name = type(step).__name__
    if isinstance(step, AffineMap) or isinstance(getattr(step, "removal_", None), AffineMap):
        removal = as_removal(step)
        return Stage(name, removal.ambient, removal.ambient, lambda w, b: through_removal(removal, w, b))
    if isinstance(step, (PCA, IncrementalPCA, TruncatedSVD)):
        components = np.asarray(step.components_, dtype=np.float64)
        mean, scale = getattr(step, "mean_", None), _whitening_scale(step)
        return Stage(
            name, components.shape[1], len(components), lambda w, b: _uncentred(w / scale @ components, b, mean)
        )
    if isinstance(step, StandardScaler):
        width = int(step.n_features_in_)
        centre = step.mean_ if step.with_mean else None
        spread = np.asarray(step.scale_, dtype=np.float64) if step.with_std else np.ones(width)
        return Stage(name, width, width, lambda w, b: _uncentred(w / spread, b, centre))
    raise InputError(
        f"A {name} cannot be folded. Steps before the last layer are an AffineMap, a fitted remover, "
        "PCA, IncrementalPCA, TruncatedSVD or StandardScaler; the linear layer comes last. "
        "Apply other steps to the rows first."
    )


def through_removal(removal: AffineMap, weight: FloatArray, bias: FloatArray) -> Layer:
    """The layer before a removal that equals the layer (`weight` (m, d), `bias` (m,)) after it.

    ::

        remove:   W' = W − (W L) Rᵀ,   b' = b + (W L)(Rᵀ c) + W · offset
        keep:     W' =     (W L) Rᵀ,   b' = b − (W L)(Rᵀ c) + W · offset
    """
    seen = weight @ removal.left
    moved, shift = seen @ removal.right.T, seen @ (removal.right.T @ removal.centre)
    fixed = bias + weight @ removal.offset
    return (weight - moved, fixed + shift) if removal.form == "remove" else (moved, fixed - shift)


def _uncentred(weight: FloatArray, bias: FloatArray, mean: Array | None) -> Layer:
    """The layer on rows that equals the layer on rows minus `mean`."""
    return weight, bias if mean is None else bias - weight @ np.asarray(mean, dtype=np.float64)


def _whitening_scale(step: Any) -> FloatArray:
    """What PCA divides each component by, shape (k,)."""
    if not getattr(step, "whiten", False):
        return np.ones(len(step.components_))
    scale = np.sqrt(step.explained_variance_)
    # The same floor as scikit-learn's, in the dtype of its fit: components without variance are not blown up.
    return np.asarray(np.maximum(scale, np.finfo(scale.dtype).eps), dtype=np.float64)
