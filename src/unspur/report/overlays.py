"""Signed maps laid over pictures, and outlines drawn on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from unspur._typing import Array, FloatArray

#: Towards class 0 and class 1; told apart with any of the common kinds of colour blindness.
COLOURS = ((230, 97, 0), (0, 90, 200))
#: Share of the values of a method that reach the full colour: a few large ones would leave the others pale.
FULL = 0.02
#: How much of a picture the full colour covers.
_OPAQUE = 0.8


def laid_over(picture: Any, signed: Array, full: float) -> Any:
    """A picture in grey under a signed map, scaled up to its size; values of ±`full` have the full colour.

    Grey, for a map on water that is blue of itself could not be read.
    """
    from PIL import Image

    large = Image.fromarray(np.asarray(signed, dtype=np.float32)).resize(picture.size, Image.Resampling.BILINEAR)
    strength = np.clip(np.asarray(large, dtype=np.float64) / full, -1.0, 1.0)[:, :, None]
    grey = np.asarray(picture.convert("L"), dtype=np.float64)[:, :, None]
    colour = np.where(strength < 0, *np.array(COLOURS, dtype=np.float64))
    opaque = _OPAQUE * np.abs(strength)
    return Image.fromarray(np.uint8(np.round((1.0 - opaque) * grey + opaque * colour)))


def outlined(picture: Any, mask: Array) -> Any:
    """A picture with the edge of its mask in white, and black around that: seen on any ground."""
    from PIL import Image

    values = np.array(picture.convert("RGB"))
    within = np.asarray(mask) >= 0.5
    values[_grown(within) & ~within] = 0
    values[within & _grown(~within)] = 255
    return Image.fromarray(values)


def _grown(region: Array) -> Array:
    """A region with the pixels beside it."""
    wide = np.pad(region, 1)
    return wide[1:-1, 1:-1] | wide[:-2, 1:-1] | wide[2:, 1:-1] | wide[1:-1, :-2] | wide[1:-1, 2:]


def full_colour(maps: Array) -> float:
    """The value that a share `FULL` of a method's cells exceed."""
    sizes: FloatArray = np.abs(np.asarray(maps, dtype=np.float64))
    return float(np.quantile(sizes, 1.0 - FULL)) or float(sizes.max()) or 1.0
