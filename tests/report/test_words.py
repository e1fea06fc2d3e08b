"""The verdict says what the intervals allow, and no more."""

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.report.making import (
    closed_form_findings,
    lost,
    nothing_removed,
    photo_findings,
    several_findings,
    toy_findings,
)
from unspur.metrics import PairedDifference
from unspur.report import words
from unspur.report.page import tiles
from unspur.report.words import context_sentences, verdict


def said(findings):
    return " ".join(verdict(findings))


def with_change(low, high):
    found = toy_findings()
    after = replace(found.after, average_change=PairedDifference((low + high) / 2, low, high))
    return replace(found, results=(found.before, after, *found.results[2:]))


def with_leak(**changes):
    found = toy_findings()
    leak = replace(found.after.leakage["background"], **changes)
    after = replace(found.after, leakage={"background": leak})
    return replace(found, results=(found.before, after, *found.results[2:]))


def test_the_gain_of_the_worst_group_stands_there_with_both_intervals():
    found = photo_findings()
    text = said(found)
    assert f"{found.n_removed} of 40 directions were removed for the photo." in text
    assert "With an unweighted head, removing them raises the worst group (5–9 · china) from" in text
    for accuracy in (found.before.accuracy, found.after.accuracy):
        low, high = accuracy.worst_interval()
        assert f"{100 * accuracy.worst:.1f} % ({100 * low:.1f} – {100 * high:.1f})" in text


def test_a_penalty_at_the_end_of_the_grid_is_named():
    found = toy_findings()
    for edge, other in (("smallest", "smaller"), ("largest", "larger")):
        text = said(replace(found, results=(replace(found.before, penalty=0.01, grid_edge=edge), *found.results[1:])))
        assert f"has the {edge} penalty that was tried, 0.01; a {other} one may be better." in text
    assert "penalty that was tried" not in said(
        replace(found, results=(replace(found.before, grid_edge=""), *found.results[1:]))
    )


def test_the_first_figures_are_those_of_the_recommended_head_and_of_both_heads_without_a_removal():
    found = photo_findings()
    weighted, before = found.after.weighted.accuracy, found.before
    text, shown = said(found), {tile[0]: tile for tile in tiles(found)}
    assert f"then a group-weighted head. It gets {100 * weighted.worst:.1f} %" in text
    assert (
        f"Without a removal, an unweighted head has {100 * before.accuracy.worst:.1f} % in its worst group and a "
        f"group-weighted head {100 * before.weighted.accuracy.worst:.1f} %."
    ) in text
    assert shown["worst group"][1] == f"{100 * weighted.worst:.1f}"
    assert weighted.worst != found.after.accuracy.worst  # the control
    other = closed_form_findings()  # which is not what we recommend
    plain = next(tile for tile in tiles(other) if tile[0] == "worst group")
    assert plain[1] == f"{100 * other.after.accuracy.worst:.1f}"


def test_one_direction_is_it_and_not_them():
    text = said(toy_findings())
    assert "1 of 20 directions was removed for the background. With an unweighted head, removing it " in text
    assert "emoving them" not in text


def test_a_difference_that_may_be_chance_is_no_change():
    found = toy_findings()
    assert found.before.accuracy.worst < found.after.accuracy.worst  # and yet
    assert "makes no clear change to the worst group" in said(found)
    assert "no clear change on average over rows" in said(with_change(-0.02, 0.01))


def test_costs_and_gains_on_average_are_told_apart():
    assert "and costs 0.4 points (0.1 – 0.7) on average over rows" in said(with_change(-0.007, -0.001))
    assert "and gains 0.4 points (0.1 – 0.7) on average over rows" in said(with_change(0.001, 0.007))
    assert "costs 1.0 point (" in said(with_change(-0.015, -0.005))


def test_a_clear_change_has_no_bound_that_reads_as_zero():
    assert "and gains 1.4 points (0.04 – 2.70) on average over rows" in said(with_change(0.0004, 0.027))
    assert words.signed_bounds(-0.027, -0.00002) == "−2.700 to −0.002"
    assert words.signed_bounds(-0.027, 0.0004) == "−2.7 to 0.0"  # not clear, whatever is written
    assert words.signed_bounds(0.001, 0.027) == "+0.1 to +2.7"


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


def with_accuracy(of_worst, rows=100):
    """The toy findings had the removal raised the worst group to this, from 10 % less."""
    found = toy_findings()

    def judged(line, share, change):
        counts = np.full_like(line.accuracy.rows, rows)
        correct = np.full_like(counts, round(0.9 * rows))
        correct.flat[1] = round(share * rows)
        return replace(line, accuracy=replace(line.accuracy, rows=counts, correct=correct), worst_change=change)

    up = PairedDifference(0.1, 0.05, 0.15)
    lines = judged(found.before, of_worst - 0.1, None), judged(found.after, of_worst, up)
    return replace(found, results=(*lines, *found.results[2:]))


def unweighted(findings):
    """Findings without the recommended head."""
    before, after = (replace(result, weighted=None) for result in findings.results[:2])
    return replace(findings, results=(before, after, *findings.results[2:]))


def test_a_worst_group_below_a_coin_flip_is_no_success():
    below = said(unweighted(with_accuracy(0.41, 1000)))
    assert "raises the worst group" in below
    start = "With an unweighted head after the removal, the worst group is"
    assert f"{start} still below a coin flip (50 %), so the removal has not helped enough." in below
    assert f"{start} not clearly above a coin flip (50 %)." in said(unweighted(with_accuracy(0.53)))
    rise = unweighted(with_accuracy(0.55, 1000))  # from 45 %
    fallen = replace(rise, results=(rise.after, replace(rise.before, n_removed=1), *rise.results[2:]))
    assert f"{start} below a coin flip (50 %), so the removal has not helped." in said(fallen)
    assert "coin" not in said(unweighted(with_accuracy(0.8, 1000)))
    three = several_findings()
    found = three.headline.accuracy
    assert ("guessing among 3 classes" in said(three)) == (found.worst_interval()[0] <= 1 / 3), found.worst


def test_the_recommended_head_is_the_one_that_is_compared_with_a_coin_flip():
    poor = with_accuracy(0.41, 1000)  # with an unweighted head
    good = with_accuracy(0.8, 1000)
    weighted = replace(poor.after.weighted, accuracy=good.after.accuracy)
    found = replace(poor, results=(poor.before, replace(poor.after, weighted=weighted), *poor.results[2:]))
    assert "coin" not in said(found)
    weighted = replace(weighted, accuracy=poor.after.accuracy)
    found = replace(good, results=(good.before, replace(good.after, weighted=weighted), *good.results[2:]))
    assert "With a group-weighted head after the removal, the worst group is below a coin flip (50 %)" in said(found)


def test_the_gap_that_remains_and_chance_stand_there():
    found = with_accuracy(0.7, 1000)
    text = said(unweighted(found))
    assert "With an unweighted head, the gap between the best group (" in text
    assert "90.0 %) and the worst group is 20.0 points (30.0 before the removal)." in text
    assert "Random guessing gets 50 % in every group." in text
    assert "most frequent class gets 50.0 % of the rows right." in text


def test_the_gap_is_named_with_the_head_that_it_is_of():
    found = photo_findings()

    def gap_of(result):
        return f"{100 * float(np.nanmax(result.accuracy.accuracy) - result.accuracy.worst):.1f}"

    def gap(sentences):
        (one,) = (sentence for sentence in sentences if "the gap between the best group" in sentence)
        return one

    assert len(set(map(gap_of, (found.before, found.after, found.before.weighted, found.recommended)))) == 4
    recommended, plain = gap(verdict(found)), gap(verdict(unweighted(found)))
    assert recommended.startswith("With a group-weighted head, ")
    before = gap_of(found.before.weighted)
    assert recommended.endswith(f"is {gap_of(found.recommended)} points ({before} before the removal).")
    assert plain.startswith("With an unweighted head, ")
    assert plain.endswith(f"is {gap_of(found.after)} points ({gap_of(found.before)} before the removal).")


def test_where_no_task_direction_was_found_it_is_said():
    found = toy_findings()
    assert found.n_main
    assert "No direction of the bird was found" not in said(found)
    without = said(replace(found, n_main=0))
    assert "No direction of the bird was found, so nothing protected the task from the removal." in without
    assert "No direction of the" not in said(closed_form_findings())  # it never looks for any


def beside(worst, average, n_removed=1, after=3):
    """The toy findings had three directions been removed, and one other method with these differences."""
    found = toy_findings()
    other = replace(
        found.results[2],
        name="LEACE",
        n_removed=n_removed,
        worst_relative_to_removal=worst,
        average_relative_to_removal=average,
    )
    return replace(found, results=(found.before, replace(found.after, n_removed=after), other), n_removed=after)


def test_simpler_methods_that_do_as_well_are_named_by_their_intervals():
    near, worse, better = (
        PairedDifference(0.01, -0.02, 0.04),
        PairedDifference(-0.05, -0.08, -0.02),
        PairedDifference(0.05, 0.02, 0.08),
    )
    text = said(beside(near, near))
    assert "LEACE, with 1 direction instead of 3, is not clearly worse: " in text
    assert "removal is +1.0 point (−2.0 to +4.0), and +1.0 point (−2.0 to +4.0) on average over groups" in text
    assert "LEACE, with 1 direction instead of 3, is better: " in said(beside(better, near))
    for other in (beside(worse, near), beside(near, worse), beside(near, near, n_removed=3)):  # worse, or not simpler
        assert "instead of" not in said(other)


def test_what_does_as_well_comes_first_after_the_verdict():
    near, far = PairedDifference(0.01, -0.02, 0.04), PairedDifference(-0.1, -0.12, -0.08)
    first, second, *_ = (str(sentence).partition(",")[0] for sentence in context_sentences(beside(near, near)))
    assert (first, second) == ("Without a removal", "LEACE")
    control = [str(sentence).partition(",")[0] for sentence in context_sentences(beside(far, far))]
    assert "LEACE" not in control


def test_nothing_is_recommended_where_nothing_was_removed():
    text = said(nothing_removed())
    assert "Recommended" not in text
    assert "Nothing was removed for the background" in text
    assert "Without a removal, an unweighted head has " in text
    assert "Recommended: this removal" in said(toy_findings())  # the control


def test_a_group_weighted_layer_without_removal_is_told_either_way():
    found = toy_findings()
    weighted = replace(
        found.before.weighted,
        worst_relative_to_removal=PairedDifference(0.01, -0.02, 0.04),
        average_relative_to_removal=PairedDifference(0.0, -0.01, 0.01),
    )

    def told(head):
        return said(replace(found, results=(replace(found.before, weighted=head), *found.results[1:])))

    start = "Without a removal, a group-weighted head is "
    assert start + "not clearly worse: " in told(weighted)
    assert start + "clearly worse: " in told(
        replace(weighted, worst_relative_to_removal=PairedDifference(-0.1, -0.15, -0.05))
    )
    assert start not in told(None)


def test_the_last_line_is_a_command():
    found = with_accuracy(0.8, 1000)
    lost = PairedDifference(-0.2, -0.25, -0.15)
    alone = replace(found.before.weighted, worst_relative_to_removal=lost, average_relative_to_removal=lost)
    others = tuple(replace(line, worst_relative_to_removal=lost) for line in found.results[2:])
    results = (replace(found.before, weighted=alone), found.after, *others)
    only = replace(found, results=results, next_command="unspur keep it")
    assert verdict(only)[-1] == "Next, use the removal: unspur keep it"  # nothing else does as well
    assert verdict(found)[-1].endswith(": unspur compare FILE --task bird --concept background")
    assert "unspur report FILE" in verdict(replace(found, cli_source=""))[-1]


def test_several_concepts_are_all_named():
    text = said(several_findings())
    assert "for the hat and the glasses" in text
    assert "chance is 33.3 %" in text
    assert "chance is 50 %" in text


def test_methods_without_tests_do_not_claim_that_a_concept_used_directions():
    text = said(closed_form_findings())
    assert "LEACE removed 1 of 20 directions for the background." in text
    assert "used" not in text


def test_where_accuracy_is_not_known_it_says_why():
    found = toy_findings()
    after = replace(found.after, accuracy=None, average_change=None, problem="Nothing is left.", weighted=None)
    text = said(replace(found, results=(found.before, after)))
    assert "not known: Nothing is left." in text
    labels = [tile[0] for tile in tiles(replace(found, results=(found.before, after)))]
    assert "directions removed" in labels
    assert "worst group" not in labels


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("background", "the background"),
        ("hair colour", "the hair colour"),
        ("Male", "the concept “Male”"),
        ("a=1", "the concept “a=1”"),
        ("x" * 60, f"the concept “{'x' * 39}…”"),
    ],
)
def test_names_that_do_not_read_like_words_are_quoted(name, text):
    assert words.the(name) == text


def test_numbers_in_words():
    assert words.signed(-0.0004) == "0.0"
    assert [words.chance(1 / k) for k in (2, 3, 8, 10)] == ["50 %", "33.3 %", "12.5 %", "10 %"]
    assert words.signed(0.012) == "+1.2"
    numbers = {-598.4: "−598", 0.5: "0.5", -0.04213: "−0.0421", 2.34e-12: "2.34e−12", 1e9: "1e+09", 0.0: "0", None: "–"}
    assert [words.number(value) for value in numbers] == list(numbers.values())
    assert [words.p_value(p) for p in (0.0, 0.00034, 0.0421, 0.3)] == ["< 0.0001", "0.00034", "0.042", "0.3"]
    assert words.join_with_and(["a", "b", "c"]) == "a, b and c"
    assert words.count(12345) == "12\u202f345"
    assert words.plural(1, "direction") == "1 direction"


def test_right_angles_are_spoken_of_only_where_there_are_some():
    found = toy_findings()
    assert "at right angles can still" in words.subspaces(replace(found, angles=(90.0,), shared_variance=0.1))
    askew = words.subspaces(replace(found, angles=(12.6,), shared_variance=0.95))
    assert "right angles" not in askew
    assert "95 % of their variance in common." in askew
    assert "All 600 test rows are drawn." in askew
    assert "Of 600 test rows 100 are drawn." in words.subspaces(replace(found, drawn_rows=np.arange(100)))
    unknown = replace(found, group=np.where(np.arange(600) < 7, -1, found.group))
    assert "In 7 test rows the concept is not known" in words.subspaces(unknown)


def test_the_network_is_asked_before_and_after():
    found = toy_findings()
    was = words.percent(found.nonlinear_before["background"].accuracy, 0)
    assert re.search(rf"small network.*, where it was {was} \(.*\) before\.", said(found))
    assert not re.search(r"small network.*, where it was", said(replace(found, nonlinear_before={})))


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["a/b/1.png", "a/c/2.png"], ("1.png", "2.png")),
        (["a/b/1.png", "a/c/1.png"], ("b/1.png", "c/1.png")),
        (["/home/me/1.png", "2.png"], ("1.png", "2.png")),
        (["a/1.png", "a/1.png", "b/2.png"], ("1.png", "1.png", "2.png")),
        (["12", "13"], ("12", "13")),
        (["and/or", "either/or"], ("and/or", "either/or")),  # no names of files
    ],
)
def test_of_paths_the_end_is_kept_that_tells_them_apart(names, short):
    assert words.ends_of_paths(names) == short
