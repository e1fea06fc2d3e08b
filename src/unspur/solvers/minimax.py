"""Fewer directions than the class means differ in: ascent on the loss of the best linear response.

::

    G(V) = min_w Σ_c loss_c(w_c)   over w_c ⟂ V,        V (d, k) with orthonormal columns

At the minimum ``∇loss_c + V ν_c = 0``, so that by the envelope theorem ``∂G/∂V = −Σ_c w_c (Vᵀ ∇loss_c)ᵀ``: every step
costs one exact best response. What can be reached is bounded by the loss of a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unspur._typing import FloatArray


@dataclass(frozen=True, slots=True)
class Response:
    """The best response to a removal: its loss, and the gradient ∂G/∂V (d, k) of that loss."""

    loss: float
    gradient: FloatArray


def ascend(
    respond: Callable[[FloatArray], Response], first: FloatArray, *, tol: float = 1e-6, max_iter: int = 200
) -> tuple[FloatArray, int, str]:
    """Directions (d, k), orthonormal, from which no small turn makes the best response worse; steps; why it ended.

    Gradient steps along the Grassmannian with a step that doubles while it helps and halves until it does.
    """
    v, here = first, respond(first)
    size = 1.0
    for step in range(1, max_iter + 1):
        turn = here.gradient - v @ (v.T @ here.gradient)
        length = float(np.linalg.norm(turn))
        if length <= tol * max(here.loss, np.finfo(np.float64).tiny):
            return v, step, "no turn of the directions makes the best response worse"
        while True:
            trial = np.linalg.qr(v + size * turn / length)[0]
            there = respond(trial)
            if there.loss > here.loss or size < 1e-9:
                break
            size /= 2.0
        if there.loss <= here.loss:
            return v, step, "no turn of the directions makes the best response worse"
        v, here, size = trial, there, 2.0 * size
    return v, max_iter, f"{max_iter} steps, still turning"
