"""Properties of pictures and texts as columns for an audit: plain numbers that a network may use without a label."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np

from unspur._typing import FloatArray
from unspur.embed.examples import Content, load_ahead

#: Longest side of the copy of a picture that is measured; it makes sharpness comparable between pictures.
MEASURED_SIDE = 256
_LINK = re.compile(r"https?://|www\.", re.IGNORECASE)
_MARK_UP = re.compile(r"</?[A-Za-z][^<>]*>|&(?:[A-Za-z]+|#\d+);")


def content_properties(
    content: Content,
    callback: Callable[[int], object] = lambda n: None,  # noqa: ARG005
) -> dict[str, FloatArray]:
    """Properties of all pictures or texts, by name, each of shape (n,); `callback` gets the number of new ones."""
    measure = picture_properties if content.kind == "image" else text_properties
    found = []
    with closing(load_ahead(lambda i: measure(content[i]), range(len(content)))) as coming:
        for one in coming:
            found.append(one)
            callback(1)
    names = dict.fromkeys(name for one in found for name in one)
    return {name: np.array([one.get(name, np.nan) for one in found]) for name in names}


def picture_properties(image: Any) -> dict[str, float]:
    """Brightness, contrast, colour, sharpness, size and aspect of a PIL image in RGB.

    Brightness, contrast (the standard deviation of brightness) and colours (shares of the light) are between 0 and 1.
    Sharpness is the logarithm of the variance of the Laplacian, which is low for a blurred picture.
    """
    small = image.copy()
    small.thumbnail((MEASURED_SIDE, MEASURED_SIDE))
    pixels = np.asarray(small, dtype=np.float64) / 255.0
    light = pixels @ [0.299, 0.587, 0.114]  # ITU-R BT.601
    colour = pixels.mean(axis=(0, 1))
    red, green, blue = (colour / max(float(colour.sum()), 1e-9)).tolist()
    sharpness = np.nan
    if min(light.shape) > 2:
        sides = light[:-2, 1:-1] + light[2:, 1:-1] + light[1:-1, :-2] + light[1:-1, 2:]
        sharpness = np.log10((sides - 4 * light[1:-1, 1:-1]).var() + 1e-8)
    found = {
        "brightness": light.mean(),
        "contrast": light.std(),
        "red": red,
        "green": green,
        "blue": blue,
        "saturation": (pixels.max(axis=2) - pixels.min(axis=2)).mean(),
        "sharpness": sharpness,
        "size": image.width * image.height,
        "aspect": image.width / image.height,
    }
    # Rounded, so that pictures of one colour have the same contrast: none.
    return {f"picture {name}": round(float(value), 6) for name, value in found.items()}


def text_properties(text: Any) -> dict[str, float]:
    """Length in characters, shares of punctuation, digits and capitals, and counts of links and mark-up of a text."""
    text = text if isinstance(text, str) else " ".join(map(str, text))
    n, letters = max(len(text), 1), sum(c.isalpha() for c in text)
    return {
        "text length": float(len(text)),
        "text punctuation": sum(not c.isalnum() and not c.isspace() for c in text) / n,
        "text digits": sum(c.isdigit() for c in text) / n,
        "text capitals": sum(c.isupper() for c in text) / max(letters, 1),
        "text links": float(len(_LINK.findall(text))),
        "text mark-up": float(len(_MARK_UP.findall(text))),
    }
