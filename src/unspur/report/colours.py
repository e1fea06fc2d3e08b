"""Colours and marker shapes of groups and methods, the same in every figure, table and page.

The colours are those of Okabe and Ito, with a few of Tol: the common kinds of colour blindness keep them apart. Shapes
go with them, so that colour is never the only sign.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

Marker: TypeAlias = Literal["circle", "square", "triangle", "diamond", "cross", "plus", "down", "hexagon"]

#: Colours of groups; in the first four, groups of the same class of the task have similar hues.
GROUP_COLOURS = ("#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#882255", "#999933")
#: Markers of groups, and their names in matplotlib.
MARKERS: dict[Marker, str] = {
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
    "ERM": "#6E6E6E",
    "JSE": "#00795A",
    "INLP": "#D55E00",
    "LEACE": "#0072B2",
    "RLACE": "#CC79A7",
    "SUBG": "#56B4E9",
    "JTT": "#332288",
    "SPLINCE": "#56B4E9",
    "SAL": "#882255",
    "DFR": "#332288",
    "GroupWeighted": "#E69F00",
    "GroupDRO": "#882255",
}
#: For methods without a colour of their own.
COLOUR_CYCLE = ("#00795A", "#E69F00", "#0072B2", "#CC79A7", "#56B4E9", "#D55E00", "#882255", "#332288")


def group_look(number: int) -> tuple[str, Marker]:
    """Colour and marker of a group; 64 groups look different."""
    again, k = divmod(number, len(GROUP_COLOURS))
    return GROUP_COLOURS[k], list(MARKERS)[(k + again) % len(MARKERS)]


def method_colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each method: the same in every figure, or the next one that no other method here has."""
    names = list(dict.fromkeys(names))
    taken = {METHOD_COLOURS[name] for name in names if name in METHOD_COLOURS}
    free = [colour for colour in COLOUR_CYCLE if colour not in taken] or list(COLOUR_CYCLE)
    variants = [name for name in names if name not in METHOD_COLOURS]
    given = {name: free[k % len(free)] for k, name in enumerate(variants)}
    return {name: METHOD_COLOURS.get(name) or given[name] for name in names}


def in_the_dark(colour: str, background: str = "#121518", contrast: float = 4.5) -> str:
    """The colour on a dark page: greys are turned around, others lightened until they have the contrast (WCAG)."""
    parts = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
    if len(set(parts)) == 1:
        dark = [int(background[k : k + 2], 16) for k in (1, 3, 5)]
        return "#{:02X}{:02X}{:02X}".format(*(round(230 + (end - 230) * parts[0] / 255) for end in dark))
    for white in range(0, 101, 2):
        lighter = "#{:02X}{:02X}{:02X}".format(*(round(part + (255 - part) * white / 100) for part in parts))
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
