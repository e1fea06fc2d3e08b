"""How pictures become numbers: scaled, cut to a square in the middle, shifted and stretched per colour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Preparation:
    """Scale the whole picture to `resize` × `resize`, cut out the middle `crop` × `crop`, then (x - mean) / scale.

    Aspect ratios are not kept, as in the usual preparation of Waterbirds: nothing at the margins is lost but what the
    crop takes. Values x lie between 0 and 255.
    """

    resize: int
    crop: int
    mean: tuple[float, float, float]
    scale: tuple[float, float, float]


#: What networks trained on ImageNet mostly expect.
IMAGENET = Preparation(
    resize=256, crop=224, mean=(123.675, 116.28, 103.53), scale=(58.395, 57.12, 57.375)
)  # fmt: skip


def pixels(image: Any, preparation: Preparation) -> NDArray[np.float32]:
    """One picture (PIL, RGB) as an array of shape (3, crop, crop)."""
    from PIL import Image

    side, crop = preparation.resize, preparation.crop
    margin = (side - crop) / 2
    # Scaling only what is kept gives the same pixels as scaling all and cutting.
    width, height = image.size
    box = (
        margin * width / side,
        margin * height / side,
        (side - margin) * width / side,
        (side - margin) * height / side,
    )
    small = image.resize((crop, crop), Image.Resampling.BILINEAR, box=box)
    values = np.asarray(small, dtype=np.float32)
    mean, scale = (np.asarray(per_colour, dtype=np.float32) for per_colour in (preparation.mean, preparation.scale))
    values = (values - mean) / scale
    return np.ascontiguousarray(values.transpose(2, 0, 1))
