"""The chart of strengths: what is measured at other strengths of the removal, and where it is drawn."""

from dataclasses import replace

import numpy as np
import pytest

from tests.probing import quick_probes
from tests.report.making import several_findings, toy_findings
from unspur import LEACE, SAL
from unspur.compare import tune_named_head
from unspur.datasets import make_toy
from unspur.metrics import group_accuracy
from unspur.report.measuring import measure
from unspur.report.page import charts, render, verdict
from unspur.selection import penalty_grid


@pytest.fixture(scope="module")
def sets():
    rows = (make_toy(500, d=6, rho=rho, random_state=k) for k, rho in enumerate((0.8, 0.0)))
    return [(one.Z, one.y, one.concept) for one in rows]


@pytest.fixture(scope="module")
@quick_probes()
def partial(sets):
    leace = LEACE(strength=0.6).fit(*sets[0][:2], concept=sets[0][2])
    return measure(leace, *sets)


@quick_probes()
def test_every_point_is_a_removal_of_that_strength(partial, sets):
    """Measured from rows of one strength, and here from a remover that is fitted with each."""
    (z, y, concept), (z_test, y_test, concept_test) = sets
    assert [at.strength for at in partial.strengths] == [0.0, 0.5, 0.6, 0.75, 1.0]
    worst, leaks = [], []
    for at in partial.strengths[1:]:
        leace = LEACE(strength=at.strength).fit(z, y, concept=concept)
        head = tune_named_head("ERM", (leace.transform(z), y, concept), None, 0, penalty_grid(z)).head
        found = group_accuracy(y_test, head.predict(leace.transform(z_test)), concept_test)
        np.testing.assert_array_equal(at.accuracy.correct, found.correct)
        worst.append(found.worst)
        leaks.append(at.leakage["concept"].accuracy)
    assert partial.strengths[0].accuracy.worst == partial.before.accuracy.worst
    assert partial.strengths[2].accuracy is partial.after.accuracy
    assert abs(worst[-1] - partial.strengths[0].accuracy.worst) > 0.05
    assert leaks[-1] < leaks[0] - 0.1


def test_points_are_drawn_where_their_figures_are():
    found = toy_findings()
    chart = charts.strength_chart(found)
    assert [name for name, _ in chart["curves"]] == ["worst group", "average over groups", "linear probe"]
    for (_, points), value in zip(
        chart["curves"],
        (
            lambda at: at.accuracy.worst,
            lambda at: at.accuracy.group_average,
            lambda at: at.leakage["background"].accuracy,
        ),
        strict=True,
    ):
        assert [one.x for one in points] == sorted(one.x for one in points)
        assert all(one.high <= one.y <= one.low for one in points)
        order = np.argsort([value(at) for at in found.strengths], kind="stable")
        heights = np.array([one.y for one in points])[order]
        assert np.all(np.diff(heights) <= 0)  # larger shares are higher up
    assert [line[0] for line in chart["lines"]] == ["0", "0.5", "0.75", "1"]
    assert [line[1] for line in chart["lines"]] == [False, False, False, True]


def test_the_page_has_the_chart_and_a_table_of_the_same_figures(partial):
    page = render(partial)
    assert 'id="strength"' in page
    assert "method LEACE, strength 0.6" in page
    section = page[page.index('id="strength"') : page.index('id="subspaces"')]
    for at in partial.strengths:
        assert f"{100 * at.accuracy.worst:.1f}" in section
    assert section.count("(this removal)") == 1
    assert 'id="strength"' not in render(replace(partial, strengths=()))
    assert "method LEACE</span>" in render(replace(partial, strength=1.0))


def test_with_several_concepts_the_probe_is_the_best_of_all():
    found = several_findings()
    chart = charts.strength_chart(found)
    assert chart["curves"][2][0] == "linear probe, the best of all concepts"
    last = max(found.strengths[-1].leakage.values(), key=lambda leak: leak.accuracy - leak.chance)
    assert chart["lines"][-1][2][2][0] == f"{100 * last.accuracy:.1f}"


@quick_probes()
@pytest.mark.filterwarnings("ignore::unspur.exceptions.NothingRemovedWarning")
def test_nothing_that_was_removed_has_no_chart(sets):
    found = measure(SAL(strength=0.0).fit(*sets[0][:2], concept=sets[0][2]), *sets)
    assert found.strengths == ()
    assert charts.strength_chart(found) is None
    assert found.n_removed == 0
    assert "Nothing was removed" in found.warnings[0]
    assert "Nothing was removed for the concept: its strength is 0." in " ".join(verdict(found))


def test_the_verdict_says_that_a_part_is_left(partial):
    assert "for the concept with a strength of 0.6, so a part is left." in " ".join(verdict(partial))
    assert "strength" not in " ".join(verdict(replace(partial, strength=1.0)))
