"""Sentences about subspaces and probes say what the figures beside them say."""

import re
from dataclasses import replace

import pytest

from tests.report.making import toy_findings
from unspur.metrics import PairedDifference
from unspur.report.page import formatting as words
from unspur.report.page.charts import leakage_sections, tiles
from unspur.report.page.formatting import ends_of_paths
from unspur.report.page.verdict import subspaces, verdict

FOUND = toy_findings()


def network(linear: bool, mlp: bool) -> str:
    """What the page says of the network where the two probes find the concept, or do not."""
    leak = FOUND.after.leakage["background"]
    seen, unseen = replace(leak, accuracy=0.8, low=0.75, high=0.85), replace(leak, accuracy=0.5, low=0.45, high=0.55)
    after = replace(FOUND.after, leakage={"background": seen if linear else unseen})
    found = replace(
        FOUND, results=(FOUND.before, after, *FOUND.results[2:]), nonlinear={"background": seen if mlp else unseen}
    )
    return next(part["says"] for part in leakage_sections(found)["parts"] if "network" in part["title"])


def test_a_network_finds_more_than_a_linear_probe_only_where_that_finds_nothing():
    assert "finds what the linear probe does not" in network(linear=False, mlp=True)
    assert "as the linear probe does" in network(linear=True, mlp=True)
    assert "Here it does not" in network(linear=True, mlp=False)
    assert "Here it does not" in network(linear=False, mlp=False)


def test_right_angles_are_spoken_of_only_where_there_are_some():
    assert "at right angles can still" in " ".join(subspaces(replace(FOUND, angles=(90.0,), shared_variance=0.1)))
    askew = " ".join(subspaces(replace(FOUND, angles=(12.6,), shared_variance=0.95)))
    assert "right angles" not in askew
    assert "95 % of their variance in common." in askew


@pytest.mark.parametrize(
    ("value", "reach", "said"),
    [
        (0.5, 3.0, "0.50"),
        (-0.0421, 0.09, "−0.0421"),
        (1234.5, 5000.0, "1234"),
        (2.34e-12, 5e-12, "2.3 × 10⁻¹²"),
        (-9.96e7, 2e8, "−1.0 × 10⁸"),
        (0.0, 5e-12, "0.00"),
        (0.0, 0.0, "0.00"),
        (None, 3.0, "–"),
    ],
)
def test_a_score_has_three_figures_of_the_largest(value, reach, said):
    assert words.score(value, words.digits_for(reach)) == said


def test_the_network_is_asked_before_and_after():
    (part,) = (part for part in leakage_sections(FOUND)["parts"] if "network" in part["title"])
    assert [probe["rows"] for probe in part["probes"]] == ["original rows", "after JSE"]
    assert part["probes"][0]["figure"] == f"{100 * FOUND.nonlinear_before['background'].accuracy:.1f}"
    assert part["probes"][1]["figure"] == f"{100 * FOUND.nonlinear['background'].accuracy:.1f}"
    sections = leakage_sections(replace(FOUND, nonlinear_before={}))["parts"]
    (part,) = (part for part in sections if "network" in part["title"])
    assert [probe["rows"] for probe in part["probes"]] == ["after JSE"]  # of findings that do not have it
    was = words.percent(FOUND.nonlinear_before["background"].accuracy, 0)
    assert re.search(rf"small network.*, where it was {was} \(.*\) before\.", " ".join(verdict(FOUND)))
    assert not re.search(r"small network.*, where it was", " ".join(verdict(replace(FOUND, nonlinear_before={}))))


def test_the_chart_of_a_tile_has_a_scale_that_its_marks_keep_to():
    for change in (0.001, -0.066, 0.42):
        low, high = change - 0.02, change + 0.02
        after = replace(FOUND.after, average_change=PairedDifference(change, low, high), weighted=None)
        found = tiles(replace(FOUND, results=(FOUND.before, after, *FOUND.results[2:])))
        assert all(tile.ticks for tile in found)
        average = next(tile for tile in found if tile.label == "average over rows")
        left, middle, right = (tick.label for tick in average.ticks)
        assert (left[0], middle, right[0]) == ("−", "0", "+")
        reach = int(right[1:])
        (mark,) = average.marks
        assert [mark.low, mark.at, mark.high] == pytest.approx(
            [50 + 50 * 100 * value / reach for value in (low, change, high)], abs=0.01
        )
        worst = next(tile for tile in found if tile.label == "worst group")
        assert [tick.label for tick in worst.ticks] == ["0", "50", "100 %"]
        assert worst.marks[1].at == pytest.approx(100 * FOUND.after.accuracy.worst, abs=0.01)


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
    assert ends_of_paths(names) == short
