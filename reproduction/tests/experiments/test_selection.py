"""The paper's choice of hyper-parameters for JSE."""

import pytest

from unspur import JSE
from unspur.datasets import make_toy
from unspur_paper.experiments.selection import select_first_pair


def rows(seed, rho):
    toy = make_toy(1200, d=8, rho=rho, random_state=seed)
    return toy.Z, toy.y, toy.concept


def test_the_first_pair_is_chosen_at_the_strongest_correlation_from_the_table():
    sets = {rho: (rows(10, rho), rows(11, rho)) for rho in (0.5, 0.9)}
    found = select_first_pair(JSE(random_state=0), {"weight_decay": (100.0, 0.1, 1e-3)}, sets)
    assert found.strength == 0.9
    losses = {tried["weight_decay"]: loss for tried, loss in found.table}
    assert found.parameters["weight_decay"] == min(losses, key=losses.get)
    (Z, y, concept), held = sets[0.9]
    val = dict(zip(("X_val", "y_val", "concept_val"), held, strict=True))
    auto = JSE(random_state=0).fit(Z, y, concept=concept, **val)  # keeps the same table
    for decay in (0.1, 1e-3):
        # A weight decay is chosen at a looser tolerance than that of the fit.
        assert losses[decay] == pytest.approx(auto.trace_.weight_decay_scores[decay][0], rel=2e-4)
    assert losses[100.0] > losses[0.1]  # and decay that leaves nothing loses
    weak = select_first_pair(JSE(random_state=0), {"weight_decay": (0.1,)}, {0.5: sets[0.5]})
    assert weak.table[0][1] != pytest.approx(losses[0.1], rel=1e-3)
