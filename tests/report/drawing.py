"""One figure of each kind, and what is written in them."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from matplotlib.text import Text

from tests.report import making
from unspur.report import figures

HOSTILE = (
    "$x_1$",
    "a & b <c>",
    "_hidden",
    r"\$5 of 10 % {or} $\frac{1}{2}$",
    "Übergröße, λ ≥ ½",
    "a very long name " * 12,
)
X = np.array([0.5, 0.7, 0.9])


@cache
def findings():
    found = making.toy_findings()
    return replace(found, drawn_rows=found.drawn_rows[:150])  # fewer dots to draw


def numbers():
    return {"JSE": (X, [90, 89, 87], [88, 87, 85], [92, 91, 89]), "ERM": (X, [91, 80, 60], [90, 78, 55], [92, 82, 65])}


#: Functions that draw a figure from findings alone.
FROM_FINDINGS = ("subspaces", "ladder", "group_bars", "probes")
#: One of each kind, by the name of its function or of what is special about it.
EVERY = {
    **{name: lambda width="page", name=name: getattr(figures, name)(findings(), width=width) for name in FROM_FINDINGS},
    "curves": lambda width="page": figures.curves(numbers(), x_name="p", y_name="worst group, %", width=width),
}
#: Something that must be written in it.
WORDS = {
    "subspaces": "decision boundary",
    "ladder": "✓ accepted",
    "group_bars": "average over rows",
    "curves": "JSE",
    "probes": "chance",
}


def texts(path):
    """Lines of text of an SVG, which parses as XML or fails here."""
    return ["".join(node.itertext()).strip() for node in ET.parse(path).iter() if node.tag.endswith("}text")]


def shown(figure):
    """Texts of a figure that are drawn; others are there too, such as names of ticks beyond the end of an axis."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        draw = Text.draw
        patch.setattr(Text, "draw", lambda text, *args, **kwargs: (found.append(text), draw(text, *args, **kwargs))[1])
        figure.draw_without_rendering()
    return [text for text in dict.fromkeys(found) if text.get_visible() and text.get_text().strip()]


def read(figure):
    """What is written in a figure, on one line each."""
    return [" ".join(text.get_text().replace(r"\$", "$").split()) for text in shown(figure)]


def squeezed(words):
    return "".join("".join(words).split())
