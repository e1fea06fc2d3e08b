"""Colours and marker shapes of groups and methods, the same in every figure, table and page.

The colours are those of Okabe and Ito, with a few of Tol: the common kinds of colour blindness keep them apart. Shapes
go with them, so that colour is never the only sign.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

Marker: TypeAlias = Literal["circle", "square", "triangle", "diamond", "cross", "plus", "down", "hexagon"]

#: One for each group in turn; of the first four, pairs share their hue: the same main label, another concept.
GROUP_COLOURS = ("#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#882255", "#7A7A7A")
#: One for each group in turn.
GROUP_MARKERS: tuple[Marker, ...] = ("circle", "square", "triangle", "diamond", "cross", "plus", "down", "hexagon")
#: What matplotlib calls them.
MATPLOTLIB_MARKERS: dict[Marker, str] = {
    "circle": "o", "square": "s", "triangle": "^", "diamond": "D", "cross": "X", "plus": "P", "down": "v",
    "hexagon": "h",
}  # fmt: skip

METHOD_COLOURS = {
    "as they are": "#6E6E6E", "ERM": "#6E6E6E", "JSE": "#00795A", "INLP": "#D55E00", "LEACE": "#0072B2",
    "RLACE": "#CC79A7", "true axis": "#000000", "GW-ERM": "#E69F00", "SUBG": "#56B4E9", "GDRO": "#882255",
    "GDRO as released": "#CC79A7", "JTT": "#332288", "SPLINCE": "#56B4E9", "SAL": "#882255", "DFR": "#332288",
    "JSE + GW-ERM": "#000000", "GroupWeighted": "#E69F00", "GroupDRO": "#882255",
}  # fmt: skip
#: For methods without a colour of their own.
CYCLE = ("#00795A", "#E69F00", "#0072B2", "#CC79A7", "#56B4E9", "#D55E00", "#882255", "#332288")


def group_look(number: int) -> tuple[str, Marker]:
    """Colour and shape of a group.

    After eight groups colours come again, each time with another shape: 64 groups look different.
    """
    again, k = divmod(number, len(GROUP_COLOURS))
    return GROUP_COLOURS[k], GROUP_MARKERS[(k + again) % len(GROUP_MARKERS)]


def method_colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each method: its own in every figure, or else the next that no other method here has."""
    names = list(dict.fromkeys(names))
    taken = {METHOD_COLOURS[name] for name in names if name in METHOD_COLOURS}
    free = [colour for colour in CYCLE if colour not in taken] or list(CYCLE)
    variants = [name for name in names if name not in METHOD_COLOURS]
    given = {name: free[k % len(free)] for k, name in enumerate(variants)}
    return {name: METHOD_COLOURS.get(name) or given[name] for name in names}


def in_the_dark(colour: str, background: str = "#121518", contrast: float = 4.5) -> str:
    """The colour itself, or as much lighter as stands out from a dark background (contrast after WCAG)."""
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
