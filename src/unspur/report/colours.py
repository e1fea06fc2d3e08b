"""Colours and marker shapes of groups and methods, the same in every figure, table and page; and maps over pictures.

The colours are those of Okabe and Ito, with a few of Tol: the common kinds of colour blindness keep them apart. Shapes
go with them, so that colour is never the only sign.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.ndimage import binary_dilation

from unspur._typing import Array, FloatArray

Marker: TypeAlias = Literal["circle", "square", "triangle", "diamond", "cross", "plus", "down", "hexagon"]

#: Colours of groups; in the first four, groups of the same main label have similar hues.
GROUP_COLOURS = ("#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#882255", "#999933")
#: Markers of groups.
GROUP_MARKERS: tuple[Marker, ...] = ("circle", "square", "triangle", "diamond", "cross", "plus", "down", "hexagon")
#: Their names in matplotlib.
MATPLOTLIB_MARKERS: dict[Marker, str] = {
    "circle": "o",
    "square": "s",
    "triangle": "^",
    "diamond": "D",
    "cross": "X",
    "plus": "P",
    "down": "v",
    "hexagon": "h",
}

METHOD_COLOURS = {
    "no removal": "#6E6E6E",
    "as they are": "#6E6E6E",  # its name in records of earlier versions
    "ERM": "#6E6E6E",
    "JSE": "#00795A",
    "INLP": "#D55E00",
    "LEACE": "#0072B2",
    "RLACE": "#CC79A7",
    "true axis": "#000000",
    "GW-ERM": "#E69F00",
    "SUBG": "#56B4E9",
    "GDRO": "#882255",
    "GDRO as released": "#CC79A7",
    "JTT": "#332288",
    "SPLINCE": "#56B4E9",
    "SAL": "#882255",
    "DFR": "#332288",
    "JSE + GW-ERM": "#000000",
    "GroupWeighted": "#E69F00",
    "GroupDRO": "#882255",
}
#: For methods without a colour of their own.
COLOUR_CYCLE = ("#00795A", "#E69F00", "#0072B2", "#CC79A7", "#56B4E9", "#D55E00", "#882255", "#332288")
#: Colours of evidence for class 0 and class 1, distinguishable with the common kinds of colour blindness.
MAP_COLOURS = ((230, 97, 0), (0, 90, 200))
#: Share of the values of a method that get the full colour; scaled to the largest, the others would be pale.
FULL_COLOUR_SHARE = 0.02
#: How much of a picture the full colour covers.
_MAP_OPACITY = 0.8


def group_look(number: int) -> tuple[str, Marker]:
    """Colour and marker of a group; 64 groups look different."""
    again, k = divmod(number, len(GROUP_COLOURS))
    return GROUP_COLOURS[k], GROUP_MARKERS[(k + again) % len(GROUP_MARKERS)]


def method_colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each method: the same in every figure, or the next one that no other method here has."""
    names = list(dict.fromkeys(names))
    taken = {METHOD_COLOURS[name] for name in names if name in METHOD_COLOURS}
    free = [colour for colour in COLOUR_CYCLE if colour not in taken] or list(COLOUR_CYCLE)
    variants = [name for name in names if name not in METHOD_COLOURS]
    given = {name: free[k % len(free)] for k, name in enumerate(variants)}
    return {name: METHOD_COLOURS.get(name) or given[name] for name in names}


def in_the_dark(colour: str, background: str = "#121518", contrast: float = 4.5) -> str:
    """The colour, lightened until it has the contrast (WCAG) to a dark background."""
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    for white in range(0, 101, 2):
        mixed = [round(part + (255 - part) * white / 100) for part in (red, green, blue)]
        lighter = "#{:02X}{:02X}{:02X}".format(*mixed)
        if contrast_of(lighter, background) >= contrast:
            return lighter
    return "#FFFFFF"


def contrast_of(one: str, other: str) -> float:
    """Ratio of the luminances of two colours, from 1 (the same) to 21 (black and white)."""
    bright, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def overlay_map(picture: Any, signed: Array, full: float) -> Any:
    """A picture in grey under a signed map, scaled up to its size; values of ±`full` have the full colour.

    Grey, because a map could not be read on water that is blue itself.
    """
    from PIL import Image

    large = Image.fromarray(np.asarray(signed, dtype=np.float32)).resize(picture.size, Image.Resampling.BILINEAR)
    strength = np.clip(np.asarray(large, dtype=np.float64) / full, -1.0, 1.0)[:, :, None]
    grey = np.asarray(picture.convert("L"), dtype=np.float64)[:, :, None]
    colour = np.where(strength < 0, *np.array(MAP_COLOURS, dtype=np.float64))
    opaque = _MAP_OPACITY * np.abs(strength)
    return Image.fromarray(np.uint8(np.round((1.0 - opaque) * grey + opaque * colour)))


def outline_mask(picture: Any, mask: Array) -> Any:
    """A picture with the edge of its mask in white and black, visible on any background."""
    from PIL import Image

    values = np.array(picture.convert("RGB"))
    within = np.asarray(mask) >= 0.5
    values[binary_dilation(within) & ~within] = 0
    values[within & binary_dilation(~within)] = 255
    return Image.fromarray(values)


def full_colour_value(maps: Array) -> float:
    """The value that a share `FULL_COLOUR_SHARE` of a method's cells exceed."""
    sizes: FloatArray = np.abs(np.asarray(maps, dtype=np.float64))
    return float(np.quantile(sizes, 1.0 - FULL_COLOUR_SHARE)) or float(sizes.max()) or 1.0
