"""The two tests themselves, along a direction that is given.

*The second* at its boundary null, a direction that says as much about either label: rejected at the level, neither more
nor less, once a group has a hundred rows; in smaller groups less, because scalars that are refitted without each row
vary more between rows than their mean does between sets. *The first* at its null, a direction of noise: it compares a
fitted model with the constant inside it. Such a fit is worse than the constant on rows it has not seen, so the mean
difference lies above zero where the test asks whether it lies below: its size is a fraction of the level.
"""

from __future__ import annotations

import numpy as np
import pytest

from trust.simulating import LEVEL, at_most, cell, compatible, percent
from trust.worlds import World
from unspur.criteria import DirectionTests
from unspur.rows import MemoryRows, RowLabels
from unspur.solvers.statistics import CellCounts

PART = "size"
#: Held-out rows; the smallest group has ten of them in the first.
HELD_OUT = {"balanced": (40, 100, 400, 4000), "correlated": (400, 2000, 4000)}
TESTS = DirectionTests()


def verdicts(world, seed):
    """Both tests along the axis of both labels and along one of noise; all rows are held-out ones."""
    drawn = world.draw(np.random.default_rng([seed, world.n, 1]))
    rows = MemoryRows(drawn.Z, RowLabels.of(drawn.y, drawn.concept, fold=np.ones(len(drawn.y), dtype=np.intp)))
    counts, centre, axes = CellCounts.of(rows), np.zeros(world.d), np.eye(world.d)
    return [TESTS.test("spurious", TESTS.losses(rows, counts, axes[[k]], centre)) for k in (0, world.d - 1)]


@pytest.mark.parametrize("heavy", [False, True], ids=["Gaussian", "heavy"])
@pytest.mark.parametrize("groups", ["balanced", "correlated"])
def test_the_second_test_is_exact_at_its_boundary_and_the_first_conservative(groups, heavy, tally, effort):
    sets = effort.times(200, 4000)
    kind = "heavy-tailed" if heavy else "Gaussian"
    second, first = (tally(f"{name}, {groups} groups, {kind} rows") for name in ("second test, boundary", "first test"))
    cells = []
    for n in HELD_OUT[groups][: effort.times(-1, 4)]:
        world = World("equal", groups, n, heavy, task=0.5, d=2)
        judged = [verdicts(world, seed) for seed in range(sets)]
        p = np.array([both[0].specific.p for both in judged])
        below, above = int(np.sum(p < LEVEL)), int(np.sum(p > 1 - LEVEL))
        knows = sum(both[1].informative.p < LEVEL for both in judged)
        counted = {"smallest": int(world.counts.min()), "spurious": below, "main": above, "informative": knows}
        cells.append(cell(world, "given direction", sets, **counted))
        second.trials(len(judged), len(judged) - below)
        first.trials(len(judged), len(judged) - knows)
    second.data = first.data = {"cells": cells}
    second.figure = f"size {percent(sum(one['spurious'] for one in cells), second.tried)}"
    first.figure = f"size {percent(sum(one['informative'] for one in cells), first.tried)}; conservative: nested models"
    for one in cells:
        fair = compatible if one["smallest"] >= 100 else at_most
        assert fair(one["spurious"], one["sets"]), one
        assert fair(one["main"], one["sets"]), one
        assert at_most(one["informative"], one["sets"]), one


def test_a_direction_of_one_label_is_no_boundary(tally, effort):
    """The control: along a direction that belongs to one label the second test is far from its level."""
    line = tally("second test, a direction of its own (power)")
    for seed in range(effort.times(50, 500)):
        world = World("both", "balanced", 400, task=0.0, concept=0.5, d=2)
        drawn = world.draw(np.random.default_rng([seed, 2]))
        rows = MemoryRows(drawn.Z, RowLabels.of(drawn.y, drawn.concept, fold=np.ones(len(drawn.y), dtype=np.intp)))
        found = TESTS.test("spurious", TESTS.losses(rows, CellCounts.of(rows), np.eye(2)[[1]], np.zeros(2)))
        line.trial(found.proper)
    line.figure = f"accepted in {100 * line.survived / line.tried:.0f} %"
    assert line.survived > 0.9 * line.tried
