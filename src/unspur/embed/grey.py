"""No network at all: an image as 50 × 50 grey pixels, so that what is removed can be looked at."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspur.embed.examples import Kind

SIDE = 50


class Grey:
    """Brightness between 0 and 1, row by row from the top."""

    name = "grey-50"
    kind: Kind = "image"
    width = SIDE * SIDE
    digest = hashlib.sha256(f"celeba.grey_pixels, side {SIDE}, values in [0, 1], row by row".encode()).hexdigest()[:16]
    device = "cpu, float32"

    def prepare(self, example: Any) -> NDArray[np.float32]:
        """Grey pixels of one picture, shape (2500,): what is kept of it until its batch is complete."""
        return grey_pixels(example, side=SIDE)

    def rows(self, prepared: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Grey pixels of a batch, shape (batch, 2500)."""
        return np.stack(prepared)

    def __call__(self, examples: Sequence[Any]) -> NDArray[np.float32]:
        """Grey pixels of a batch of pictures, shape (batch, 2500)."""
        return self.rows([self.prepare(image) for image in examples])


def grey_pixels(image: Any, side: int = 50) -> NDArray[np.float32]:
    """Grey values in [0, 1] of a PIL image squeezed to `side` × `side`, row by row, shape (side²,)."""
    from PIL import Image

    small = image.convert("L").resize((side, side), Image.Resampling.BILINEAR)
    return np.asarray(small, dtype=np.float32).ravel() / np.float32(255.0)
