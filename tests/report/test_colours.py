"""Groups and methods can be told apart, in the light and in the dark."""

from itertools import pairwise

from unspur.report.colours import (
    COLOUR_CYCLE,
    GROUP_COLOURS,
    METHOD_COLOURS,
    contrast_of,
    group_look,
    in_the_dark,
    method_colours,
)


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


def test_contrast_is_that_of_the_guidelines():
    assert round(contrast_of("#000000", "#FFFFFF"), 2) == 21.0
    assert round(contrast_of("#777777", "#FFFFFF"), 2) == 4.48


def test_a_method_keeps_its_colour_and_variants_take_free_ones():
    colours = method_colours(["JSE", "JSE, wide", "LEACE"])
    assert colours["JSE"] == METHOD_COLOURS["JSE"]
    assert len(set(colours.values())) == 3
