"""Gradient reversal: forwards nothing changes, backwards the gradient is turned round.

::

    y = x,   dL/dx = −λ · dL/dy

Between network and adversary, so that the adversary learns to see the concept while the network learns to hide it.
"""

from __future__ import annotations

from functools import cache
from typing import Any


def reverse(features: Any, weight: float) -> Any:
    """The features, whose gradient comes back times −`weight`."""
    return _reversal().apply(features, weight)


@cache
def _reversal() -> Any:
    import torch

    class Reversal(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, features: Any, weight: float) -> Any:
            context.weight = weight
            return features.view_as(features)

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            return -context.weight * gradient, None

    return Reversal
