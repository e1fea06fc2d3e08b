"""Properties of pictures and texts that are computed from their content, as columns for an audit.

They are plain numbers that anyone can check: how bright a picture is, how long a text is. A network may use them
although no table has a column for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import numpy as np

from unspur._typing import FloatArray
from unspur.embed.examples import Content, loaded_batches

#: Longest side of the copy of a picture that is measured; it makes sharpness comparable between pictures.
MEASURED_SIDE = 256
#: Decimals that are kept, so that pictures of one colour have the same contrast: none.
DECIMALS = 6
#: Examples that are loaded ahead.
EXAMPLES_AHEAD = 32
#: Weights of red, green and blue in the brightness of a pixel (ITU-R BT.601).
LUMA = np.array([0.299, 0.587, 0.114])
_LINK = re.compile(r"https?://|www\.", re.IGNORECASE)
_MARK_UP = re.compile(r"</?[A-Za-z][^<>]*>|&(?:[A-Za-z]+|#\d+);")


def content_properties(
    content: Content,
    callback: Callable[[int], object] = lambda n: None,  # noqa: ARG005
) -> dict[str, FloatArray]:
    """Properties of all pictures or texts, by name, each of shape (n,).

    Parameters
    ----------
    content : pictures or texts, such as `TableExamples`.
    callback : called with the number of examples that were measured since the last call.
    """
    of_one = picture_properties if content.kind == "image" else text_properties
    found: list[Mapping[str, float]] = []
    parts = loaded_batches(lambda i: of_one(content[i]), range(len(content)), EXAMPLES_AHEAD)
    with closing(parts):
        for part in parts:
            found += part
            callback(len(part))
    names = dict.fromkeys(name for one in found for name in one)
    return {name: np.array([one.get(name, np.nan) for one in found]) for name in names}


def picture_properties(image: Any) -> dict[str, float]:
    """Brightness, contrast, colour, sharpness, size and aspect of a PIL image in RGB.

    Brightness, contrast (the standard deviation of brightness) and the three colours are between 0 and 1. A colour is
    its share of the light; saturation is the mean difference of the largest and the smallest channel. Sharpness is the
    logarithm of the variance of the Laplacian, which is low for a blurred picture. Size is the number of pixels, and
    aspect the width divided by the height.
    """
    width, height = image.size
    small = image.copy()
    small.thumbnail((MEASURED_SIDE, MEASURED_SIDE))
    pixels = np.asarray(small, dtype=np.float64) / 255.0
    light = pixels @ LUMA
    colour = pixels.mean(axis=(0, 1))
    red, green, blue = (colour / max(float(colour.sum()), 1e-9)).tolist()
    found = {
        "picture brightness": float(light.mean()),
        "picture contrast": float(light.std()),
        "picture red": red,
        "picture green": green,
        "picture blue": blue,
        "picture saturation": float((pixels.max(axis=2) - pixels.min(axis=2)).mean()),
        "picture sharpness": _sharpness(light),
        "picture size": float(width * height),
        "picture aspect": width / height,
    }
    return {name: round(value, DECIMALS) for name, value in found.items()}


def _sharpness(light: FloatArray) -> float:
    if min(light.shape) < 3:
        return float("nan")
    middle = light[1:-1, 1:-1]
    laplacian = light[:-2, 1:-1] + light[2:, 1:-1] + light[1:-1, :-2] + light[1:-1, 2:] - 4 * middle
    return float(np.log10(laplacian.var() + 1e-8))


def text_properties(text: Any) -> dict[str, float]:
    """Length, punctuation, digits, capitals, links and mark-up of a text; of a pair, those of each text.

    Length is in characters. Punctuation and digits are shares of the characters, capitals a share of the letters, and
    links and mark-up (tags and entities of HTML) are counted.
    """
    if isinstance(text, tuple | list):
        return {
            f"text {number} {name.removeprefix('text ')}": value
            for number, part in enumerate(text, start=1)
            for name, value in text_properties(part).items()
        }
    text = str(text)
    n, letters = max(len(text), 1), sum(c.isalpha() for c in text)
    return {
        "text length": float(len(text)),
        "text punctuation": sum(not c.isalnum() and not c.isspace() for c in text) / n,
        "text digits": sum(c.isdigit() for c in text) / n,
        "text capitals": sum(c.isupper() for c in text) / max(letters, 1),
        "text links": float(len(_LINK.findall(text))),
        "text mark-up": float(len(_MARK_UP.findall(text))),
    }
