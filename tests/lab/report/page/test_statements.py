"""Sentences about subspaces and probes say what the figures beside them say."""

from dataclasses import replace

import pytest

from tests.lab.report.making import toy_findings
from unspur.lab.report.page import words
from unspur.lab.report.page.leaks import leaks
from unspur.lab.report.page.subspaces import subspaces

FOUND = toy_findings()


def network(linear: bool, mlp: bool) -> str:
    """What the page says of the network where the two probes find the concept, or do not."""
    leak = FOUND.after.leakage["background"]
    seen, unseen = replace(leak, accuracy=0.8, low=0.75, high=0.85), replace(leak, accuracy=0.5, low=0.45, high=0.55)
    after = replace(FOUND.after, leakage={"background": seen if linear else unseen})
    found = replace(
        FOUND, judged=(FOUND.before, after, *FOUND.judged[2:]), nonlinear={"background": seen if mlp else unseen}
    )
    return next(part.says for part in leaks(found).parts if "network" in part.title)


def test_a_network_finds_more_than_a_linear_probe_only_where_that_finds_nothing():
    assert "finds what the linear probe does not" in network(linear=False, mlp=True)
    assert "as the linear probe does" in network(linear=True, mlp=True)
    assert "Here it does not" in network(linear=True, mlp=False)
    assert "Here it does not" in network(linear=False, mlp=False)


def test_right_angles_are_spoken_of_only_where_there_are_some():
    assert "at right angles can still" in " ".join(subspaces(replace(FOUND, angles=(90.0,), shared=0.1)))
    askew = " ".join(subspaces(replace(FOUND, angles=(12.6,), shared=0.95)))
    assert "right angles" not in askew
    assert "95 % of their variance in common." in askew


@pytest.mark.parametrize(
    ("value", "reach", "said"),
    [
        (0.5, 3.0, "0.50"), (-0.0421, 0.09, "−0.0421"), (1234.5, 5000.0, "1234"), (2.34e-12, 5e-12, "2.3 × 10⁻¹²"),
        (-9.96e7, 2e8, "−1.0 × 10⁸"), (0.0, 5e-12, "0.00"), (0.0, 0.0, "0.00"), (None, 3.0, "–"),
    ],
)  # fmt: skip
def test_a_score_has_three_figures_of_the_largest(value, reach, said):
    assert words.score(value, words.digits_for(reach)) == said
