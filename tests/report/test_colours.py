"""Groups and methods can be told apart: in the light, in the dark, and by colour-blind readers, or by another sign."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from unspur.report.colours import (
    COLOUR_CYCLE,
    GROUP_COLOURS,
    METHOD_COLOURS,
    contrast_of,
    group_look,
    in_the_dark,
    method_colours,
)
from unspur.report.figures.style import group_style, method_areas, method_looks

#: What is left of linear RGB: Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color
#: Vision Deficiency", IEEE TVCG 15(6), 2009, severity 1.0.
SEEN_BY = {
    "everybody else": np.eye(3),
    "protanopes": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopes": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopes": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
#: From linear sRGB to CIE XYZ, and its white (IEC 61966-2-1).
TO_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
WHITE = [0.95047, 1.0, 1.08883]
#: Distance in CIELAB. At 2 or 3 a difference can just be seen side by side; lines and bars need a good deal more.
APART = 15.0
#: Methods that are compared with each other.
TOGETHER = [
    ("JSE", "ERM", "INLP", "LEACE", "RLACE", "SPLINCE", "SAL", "DFR"),
    ("no removal", "JSE", "INLP", "LEACE", "RLACE", "SPLINCE", "SAL"),
    ("no removal", "JSE", "GroupWeighted", "GroupDRO", "JTT", "SUBG"),
]


def lab(colour, matrix):
    """CIELAB coordinates of what is seen of a colour "#RRGGBB"."""
    value = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    share = TO_XYZ @ np.clip(np.asarray(matrix) @ linear, 0, 1) / WHITE
    root = np.where(share > 216 / 24389, np.cbrt(share), (24389 / 27 * share + 16) / 116)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


def distance(one, other, reader):
    return float(np.linalg.norm(lab(one, SEEN_BY[reader]) - lab(other, SEEN_BY[reader])))


def test_the_simulation_knows_which_colours_are_confused():
    red, green, blue, yellow = "#C04040", "#5B7A1E", "#3060C0", "#E0C020"
    assert distance(red, green, "everybody else") > 60
    assert min(distance(red, green, reader) for reader in ("protanopes", "deuteranopes")) < APART
    assert all(distance(blue, yellow, reader) > 60 for reader in SEEN_BY)
    assert lab("#FFFFFF", np.eye(3)) == pytest.approx([100, 0, 0], abs=0.02)
    assert distance("#00B0A0", "#30A8E0", "tritanopes") < 0.5 * distance("#00B0A0", "#30A8E0", "everybody else")


@pytest.mark.parametrize("reader", SEEN_BY)
def test_the_four_groups_can_be_told_apart(reader):
    assert min(distance(*pair, reader) for pair in combinations(GROUP_COLOURS[:4], 2)) > APART
    # Which concept is what the two colours of a task differ in; the labels themselves are far apart.
    assert min(distance(a, b, reader) for a in GROUP_COLOURS[:2] for b in GROUP_COLOURS[2:4]) > 60


def test_groups_have_a_marker_each_besides():
    looks = [group_style(k) for k in (-1, *range(64))]
    assert len({(look["color"], look["marker"]) for look in looks}) == 65
    assert len({look["marker"] for look in looks[1:9]}) == 8
    assert len({str(look["linestyle"]) for look in looks[1:5]}) == 4  # where lines have no markers


@pytest.mark.parametrize("reader", SEEN_BY)
@pytest.mark.parametrize("names", TOGETHER, ids=len)
def test_methods_that_are_drawn_together_differ_in_colour_or_else_in_shape(names, reader):
    looks, areas = method_looks(names), method_areas(names)
    for one, other in combinations(names, 2):
        assert looks[one]["marker"] != looks[other]["marker"]
        if distance(METHOD_COLOURS[one], METHOD_COLOURS[other], reader) < APART:
            assert areas[one]["hatch"] != areas[other]["hatch"], (one, other)


def test_some_methods_need_that():
    """Grey and green of the two methods that are compared most."""
    assert distance(METHOD_COLOURS["ERM"], METHOD_COLOURS["JSE"], "deuteranopes") < APART
    assert distance(METHOD_COLOURS["ERM"], METHOD_COLOURS["JSE"], "everybody else") > 2 * APART


def test_any_number_of_methods_has_a_look_and_a_method_keeps_its_own():
    many = [f"variant {k}" for k in range(30)]
    looks = method_looks([*many, "JSE", "ERM", "JSE"])
    assert len(looks) == 32
    for name in ("JSE", "ERM"):
        assert looks[name]["color"] == METHOD_COLOURS[name]
        assert looks[name]["marker"] == method_looks(["INLP", name])[name]["marker"]


def test_sixty_four_groups_look_different():
    looks = [group_look(k) for k in range(64)]
    assert len(set(looks)) == 64
    assert all(one != other for one, other in pairwise([look[0] for look in looks]))
    assert looks[0][0] == looks[8][0]  # colours do come again
    assert looks[0][1] != looks[8][1]


def test_colours_stand_out_from_a_dark_page():
    dark = "#121518"
    assert contrast_of("#000000", dark) < 1.2  # the control: black would not
    for colour in {*GROUP_COLOURS, *METHOD_COLOURS.values(), *COLOUR_CYCLE}:
        assert contrast_of(in_the_dark(colour), dark) >= 4.5
    assert in_the_dark("#56B4E9") == "#56B4E9"  # bright enough as it is
    assert len({in_the_dark(colour) for colour in GROUP_COLOURS}) == len(GROUP_COLOURS)
    assert contrast_of(in_the_dark("#000000"), dark) > 10  # greys are turned around
    assert contrast_of(in_the_dark("#FFFFFF"), dark) < 1.1


def test_contrast_is_that_of_the_guidelines():
    assert round(contrast_of("#000000", "#FFFFFF"), 2) == 21.0
    assert round(contrast_of("#777777", "#FFFFFF"), 2) == 4.48


def test_a_method_keeps_its_colour_and_variants_take_free_ones():
    colours = method_colours(["JSE", "JSE, wide", "LEACE"])
    assert colours["JSE"] == METHOD_COLOURS["JSE"]
    assert len(set(colours.values())) == 3
