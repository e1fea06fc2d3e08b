"""The verdict says what the intervals allow, and no more."""

from dataclasses import replace

import pytest

from tests.lab.report.making import (
    closed_form_findings,
    lost,
    nothing_removed,
    photo_findings,
    several_findings,
    toy_findings,
)
from unspur.lab.findings.values import Change
from unspur.lab.report.page import verdict, words
from unspur.lab.report.page.tiles import tiles


def said(findings):
    return " ".join(verdict(findings))


def with_change(low, high):
    found = toy_findings()
    after = replace(found.after, average_change=Change((low + high) / 2, low, high))
    return replace(found, judged=(found.before, after, *found.judged[2:]))


def with_leak(**changes):
    found = toy_findings()
    leak = replace(found.after.leakage["background"], **changes)
    after = replace(found.after, leakage={"background": leak})
    return replace(found, judged=(found.before, after, *found.judged[2:]))


def test_the_gain_of_the_worst_group_stands_there_with_both_intervals():
    found = photo_findings()
    text = said(found)
    assert f"The photo used {found.removed} of 40 directions." in text
    assert "Removing them raises the worst group (5–9 · china) from" in text
    for accuracy in (found.before.accuracy, found.after.accuracy):
        low, high = accuracy.worst_interval()
        assert f"{100 * accuracy.worst:.1f} % ({100 * low:.1f} – {100 * high:.1f})" in text


def test_one_direction_is_it_and_not_them():
    text = said(toy_findings())
    assert "used 1 of 20 directions. Removing it " in text
    assert "Removing them" not in text


def test_a_difference_that_may_be_chance_is_no_change():
    found = toy_findings()
    assert found.before.accuracy.worst < found.after.accuracy.worst  # and yet
    assert "makes no clear change to the worst group" in said(found)
    assert "no clear change on average over rows" in said(with_change(-0.02, 0.01))


def test_costs_and_gains_on_average_are_told_apart():
    assert "and costs 0.4 points (0.1 – 0.7) on average over rows" in said(with_change(-0.007, -0.001))
    assert "and gains 0.4 points (0.1 – 0.7) on average over rows" in said(with_change(0.001, 0.007))
    assert "costs 1.0 point (" in said(with_change(-0.015, -0.005))


def test_a_probe_is_still_finding_only_above_chance():
    above = said(with_leak(accuracy=0.56, low=0.53, high=0.59))
    assert "A linear probe still finds the background at 56 % (53 – 59)" in above
    assert "chance is 50 %." in above
    spanning = said(with_leak(accuracy=0.51, low=0.48, high=0.54))
    assert "A linear probe does not find the background better than chance: 51 % (48 – 54)" in spanning


def test_harm_is_called_harm_and_warnings_come_first():
    text = verdict(lost())
    assert text[0] == "The task may be lost."
    assert "lowers the worst group" in " ".join(text)
    assert "costs 31.0 points (27.0 – 35.0)" in " ".join(text)


def test_nothing_removed_promises_nothing():
    text = said(nothing_removed())
    assert "Nothing was removed for the background: no direction passed its tests." in text
    assert "stays at" in text
    assert "Removing" not in text
    assert "before" not in text  # before and after are the same


def test_several_concepts_are_all_named():
    text = said(several_findings())
    assert "for the hat and the glasses" in text
    assert "chance is 33 %" in text
    assert "chance is 50 %" in text


def test_methods_without_tests_do_not_claim_that_a_concept_used_directions():
    text = said(closed_form_findings())
    assert "LEACE removed 1 of 20 directions for the background." in text
    assert "used" not in text


def test_where_accuracy_is_not_known_it_says_why():
    found = toy_findings()
    after = replace(found.after, accuracy=None, average_change=None, problem="Nothing is left.")
    text = said(replace(found, judged=(found.before, after)))
    assert "not known: Nothing is left." in text
    labels = [tile.label for tile in tiles(replace(found, judged=(found.before, after)))]
    assert "directions removed" in labels
    assert "worst group" not in labels


def test_tiles_are_four_and_their_marks_lie_inside():
    shown = tiles(photo_findings())
    assert len(shown) == 4
    for tile in shown:
        for mark in tile.marks:
            assert 0 <= mark.low <= mark.at <= mark.high <= 100


@pytest.mark.parametrize(
    ("name", "text"),
    [("background", "the background"), ("hair colour", "the hair colour"), ("Male", "the concept “Male”"),
     ("a=1", "the concept “a=1”"), ("x" * 60, f"the concept “{'x' * 39}…”")],
)  # fmt: skip
def test_names_that_do_not_read_like_words_are_quoted(name, text):
    assert words.the(name) == text


def test_numbers_in_words():
    assert words.signed(-0.0004) == "0.0"
    assert words.signed(0.012) == "+1.2"
    assert words.statistic(-598.4) == "−598"
    assert words.statistic(-2.0e11) == "−2.0 × 10¹¹"
    assert words.p_value(0.0) == "< 0.0001"
    assert words.listed(["a", "b", "c"]) == "a, b and c"
    assert words.count(12345) == "12\u202f345"
    assert words.plural(1, "direction") == "1 direction"
