"""The ladder is drawn where it was decided: a statistic lies in the shaded region exactly if it passed."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tests.report.making import closed_form_findings, photo_findings, several_findings, toy_findings
from unspur import INLP
from unspur.criteria import TTest
from unspur.datasets import make_toy
from unspur.report.page.charts import MAX_T, ladders, t_scale


def within(test):
    low, high = test.region
    return low < test.at < high


@pytest.mark.parametrize("make", [toy_findings, photo_findings, several_findings])
def test_accepted_directions_lie_in_both_shaded_regions_and_no_others(make):
    rungs = [rung for ladder in ladders(make()) for rung in ladder.rungs]
    assert {rung.accepted for rung in rungs} == {True, False}  # else this would show little
    for rung in rungs:
        assert rung.accepted == (within(rung.informative) and within(rung.specific))
        assert rung.informative.passed == within(rung.informative)
        assert rung.specific.passed == within(rung.specific)


def test_shaded_regions_are_on_the_side_of_the_role():
    rungs = ladders(toy_findings())[0].rungs
    assert all(rung.specific.region[1] == 100.0 for rung in rungs if rung.role == "main task")
    assert all(rung.specific.region[0] == 0.0 for rung in rungs if rung.role == "spurious")
    assert all(rung.informative.region[0] == 0.0 for rung in rungs)


def test_the_scale_keeps_the_order_and_shows_thresholds_beside_huge_statistics():
    scale = t_scale(1.645, [-600.0, 20.0])
    at = [scale.at(t) for t in (-600.0, -30.0, -1.645, 0.0, 1.645, 20.0)]
    assert at == sorted(at)
    assert np.diff(at).min() > 4  # percent of the width: seen apart
    assert at[0] > 0
    assert at[-1] < 100


def test_a_statistic_without_variation_is_an_arrow_at_the_edge():
    found = toy_findings()
    trace = found.traces[""]
    step = trace.steps[0]
    endless = replace(step.verdict, informative=TTest(-0.69, 0.0, -6.9e11, 0.0))
    changed = replace(trace, steps=(replace(step, verdict=endless), *trace.steps[1:]))
    first, second = ladders(replace(found, traces={"": changed}))[0].rungs[:2]
    assert first.informative.beyond
    assert first.informative.t == "−6.9 × 10¹¹"
    assert not second.informative.beyond
    assert MAX_T < 6.9e11
    assert 0 < second.informative.at < 100


def test_inlp_is_shown_with_its_one_test():
    toy = make_toy(600, rho=0.5, random_state=0)
    trace = INLP(random_state=0).fit(toy.Z, toy.y, concept=toy.concept).trace_
    ladder = ladders(replace(toy_findings(), method="INLP", traces={"": trace}))[0]
    assert not ladder.two_tests
    for rung in ladder.rungs:
        assert rung.specific.region is None
        assert rung.accepted == within(rung.informative)


def test_a_long_ladder_can_be_read_by_its_spurious_directions():
    ladder = ladders(photo_findings())[0]
    assert not ladder.short
    assert [rung.role for rung in ladder.outer] == ["spurious"] * len(ladder.outer)
    assert len(ladder.outer) == photo_findings().n_removed + 1  # and the one that was not accepted


def test_methods_without_tests_have_no_ladder():
    assert ladders(closed_form_findings()) == []


@pytest.mark.parametrize("low", [-2.0, -30.0, -90.0, -600.0, -2000.0])
@pytest.mark.parametrize("high", [2.0, 20.0, 90.0])
def test_labels_of_ticks_do_not_touch(low, high):
    """At 200 pixels, which a chart has at least, a digit of the axis takes about six."""
    found = replace(toy_findings(), traces={"": _with_statistics(toy_findings().traces[""], (low, high))})
    ticks = ladders(found)[0].ticks
    assert len(ticks) >= 3
    for one, other in pairwise(ticks):
        assert 2.0 * (other.at - one.at) > 6.1 * (len(one.label) + len(other.label)) / 2
    labels = {tick.label for tick in ticks}
    assert "−1.64" in labels
    assert "1.64" in labels or low * high < -10_000  # the other threshold, where there is room


def _with_statistics(trace, values):
    steps = [
        replace(step, verdict=replace(step.verdict, informative=replace(step.verdict.informative, t=value)))
        for step, value in zip(trace.steps, values, strict=False)
    ]
    return replace(trace, steps=tuple(steps))


def test_what_was_accepted_is_said_in_a_sentence():
    ladder, found = ladders(photo_findings())[0], photo_findings()
    assert ladder.passed.startswith(f"{found.n_removed} of {found.n_removed + 1} spurious and ")
    assert ladder.passed.endswith(" main-task directions were accepted")
