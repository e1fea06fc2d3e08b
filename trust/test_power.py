"""How often a concept that is there is found, by its strength, the number of rows and the groups."""

from __future__ import annotations

import pytest

from trust.simulating import DESIGNS, at_most, cell, fitted, smallest_held_out
from trust.worlds import World

PART = "power"
STRENGTHS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8)


def finds(world, seed, design):
    """Whether a direction was accepted that is mostly the concept's own axis."""
    jse, _ = fitted(world, seed, cv=DESIGNS[design])
    return bool(jse.spurious_.dim) and bool((jse.spurious_.basis[1] ** 2).sum() > 0.5)


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("groups", ["balanced", "correlated"])
@pytest.mark.parametrize("n", [500, 2000, 8000])
def test_power_grows_with_the_strength_of_the_concept(n, groups, design, tally, effort):
    worlds = [World("both", groups, n, task=0.5, concept=strength) for strength in STRENGTHS]
    if smallest_held_out(worlds[0], design) < 10 or (n != 2000 and not effort.full):
        pytest.skip("a group is too small to test, or this size is for the long form")
    sets = effort.times(6, 50)
    line = tally(f"{groups} groups, {design}, n = {n:,}")
    cells = []
    for world in worlds if effort.full else [worlds[0], worlds[-1]]:
        found = sum(finds(world, seed, design) for seed in range(sets))
        cells.append({**cell(world, design, sets, found=found), "strength": world.concept})
    line.data = {"cells": cells}
    weakest, strongest = cells[0], cells[-1]
    line.trials(strongest["sets"], strongest["found"])
    line.figure = ", ".join(f"{100 * one['found'] / one['sets']:.0f} % at {one['strength']:g}" for one in cells)
    assert at_most(weakest["found"], weakest["sets"]), weakest
    assert strongest["found"] >= 0.8 * strongest["sets"] or smallest_held_out(worlds[0], design) < 50, strongest
