"""What a removal does to pictures: where it changes them, as shares of the squared change."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unspur._typing import FloatArray
from unspur_paper.datasets.celeba import EYES, MOUTH, box_mask


def picture_change(before: FloatArray, after: FloatArray) -> dict[str, Any]:
    """Shares of the squared change that lie around mouth and eyes, and the mean squared change of each pixel.

    Rows are square grey pictures of values between 0 and 1, shape (n, side²). A removal that changes nothing has no
    shares.
    """
    squared = np.mean((np.asarray(after, dtype=np.float64) - before) ** 2, axis=0)
    side = math.isqrt(squared.size)
    total = float(squared.sum())
    inside = {name: box_mask(box, side).ravel() for name, box in (("mouth", MOUTH), ("eyes", EYES))}
    shares = {name: float(squared[mask].sum() / total) if total > 0 else None for name, mask in inside.items()}
    # Three digits of the root mean square: the picture is to be looked at.
    picture = [float(f"{value:.3g}") for value in np.sqrt(squared)]
    change = total / squared.size
    return {"mouth_share": shares["mouth"], "eyes_share": shares["eyes"], "change": change, "picture": picture}
