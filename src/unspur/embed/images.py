"""How pictures become numbers: scaled, cut to a square in the middle, shifted and stretched per colour."""

from __future__ import annotations

from collections.abc import Sequence
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


def square(image: Any, preparation: Preparation) -> NDArray[np.uint8]:
    """The middle of one picture (PIL), scaled: shape (crop, crop, 3) of one in colours, (crop, crop) of a mask."""
    from PIL import Image

    side, crop = preparation.resize, preparation.crop
    # Scaling only what is kept gives the same pixels as scaling all and cutting.
    small = image.resize((crop, crop), Image.Resampling.BILINEAR, box=kept(image.size, side, crop))
    return np.asarray(small)


def opacity(mask: Any, preparation: Preparation) -> NDArray[np.float32]:
    """A mask (PIL, L) cut and scaled like its picture, shape (crop, crop): 0 outside, 1 inside."""
    return np.asarray(square(mask, preparation) / 255.0, dtype=np.float32)


def kept(size: tuple[int, int], side: int, crop: int) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of what is left of a picture (width, height) scaled to `side` and cut to `crop`."""
    width, height = size
    margin = (side - crop) / 2
    return (
        margin * width / side,
        margin * height / side,
        (side - margin) * width / side,
        (side - margin) * height / side,
    )


def standardised(squares: Sequence[NDArray[np.uint8]], preparation: Preparation, device: str) -> Any:
    """Pictures as one tensor of shape (batch, 3, crop, crop) on a device, shifted and stretched per colour there."""
    import torch

    # Channels last in memory, as the pictures are: what convolutions are fastest with.
    batch = torch.from_numpy(np.stack(squares)).to(device).permute(0, 3, 1, 2).float()
    mean, scale = (
        torch.tensor(colours, device=device).reshape(1, 3, 1, 1) for colours in (preparation.mean, preparation.scale)
    )
    return (batch - mean) / scale
