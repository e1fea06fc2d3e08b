"""Where there is nothing to remove, nothing is lost; where the method's assumptions fail, the certificate says so."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from trust.simulating import DESIGNS, fitted, percent, upper_bound
from trust.worlds import Groups, World
from unspur import JSE
from unspur.compare import tune_named_head
from unspur.exceptions import GroupSizeError, LabelError

PART = "no harm"
#: Rows whose task is measured: as many of every group.
JUDGES = np.full(4, 5000)
#: The control, and the ways for the assumptions to fail; what the certificate must then say.
ASSUMPTIONS = {
    "orthogonal": (World("both", "slightly correlated", 3000, task=1.2, concept=1.2), ()),
    "not orthogonal": (
        World("oblique", "slightly correlated", 3000, task=1.2, concept=1.2),
        ("can still be predicted",),
    ),
    "overlapping": (
        World("shared", "slightly correlated", 3000, task=1.0, concept=2.0),
        ("the task got worse", "may hold part of the task", "predicts the task hardly better than chance"),
    ),
}
NEARLY_THE_TASK = World("both", "nearly the same", 2000)


def accuracy(world, seed, fit, drawn):
    """Accuracy of a last layer on balanced rows, in percent, trained on the rows as they are and as they became."""
    judges = world.draw(np.random.default_rng([seed, 1]), JUDGES)
    layers = {
        rows: tune_named_head("ERM", (rows(drawn.Z), drawn.y, drawn.concept), None, seed).head
        for rows in (np.asarray, fit.transform)
    }
    before, after = (100 * np.mean(layer.predict(rows(judges.Z)) == judges.y) for rows, layer in layers.items())
    return before, after


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("groups", ["balanced", "rare", "slightly correlated", "correlated"])
def test_with_nothing_to_find_nothing_is_lost(groups: Groups, design, tally, effort):
    line = tally(f"nothing spurious, {groups} groups, {design}")
    world = World("task", groups, 2000, task=0.5)
    lost = []
    for seed in range(effort.times(8, 200)):
        fit, drawn = fitted(world, seed, cv=DESIGNS[design])
        unharmed = not fit.spurious_.dim and np.array_equal(fit.transform(drawn.Z), drawn.Z)
        if line.trial(unharmed):
            continue
        before, after = accuracy(world, seed, fit, drawn)
        lost.append(before - after)
    line.figure = f"harmed {percent(line.tried - line.survived, line.tried)}"
    if lost:
        line.figure += f", then by {max(lost):.1f} points at most"
    line.data = {"groups": groups, "design": design, "sets": line.tried, "removed": len(lost), "lost": lost}
    assert line.survived >= 0.95 * line.tried
    if effort.full:
        assert upper_bound(len(lost), line.tried) <= 0.05


def test_a_removal_that_is_needed_does_change_the_last_layer(tally):
    """The control: the measure of harm can tell, here by what it gains."""
    line = tally("control: a concept to remove, balanced rows gain")
    world = World("both", "correlated", 2000, task=0.5, concept=1.0)
    fit, drawn = fitted(world, 0)
    before, after = accuracy(world, 0, fit, drawn)
    line.trial(after > before + 1)
    line.figure = f"{before:.1f} → {after:.1f} %"
    assert line.all_survived


@pytest.mark.parametrize("assumption", ASSUMPTIONS)
def test_the_certificate_says_in_words_where_assumptions_fail(assumption, tally, effort):
    world, words = ASSUMPTIONS[assumption]
    line = tally(f"certificate: {assumption}")
    said: Counter[str] = Counter()
    for seed in range(effort.times(4, 100)):
        fit, _ = fitted(world, seed)
        held_out = world.draw(np.random.default_rng([seed, 2]))
        told = str(fit.certificate(held_out.Z, held_out.y, held_out.concept).notes)
        said.update(word for word in words if word in told)
        line.trial(any(word in told for word in words) if words else "overlap" not in told)
    line.figure = "; ".join(f"“{word}” {count} times" for word, count in said.items()) or "says nothing of the kind"
    assert line.survived >= 0.95 * line.tried


def test_a_concept_that_is_the_task_is_refused_or_told(tally, effort):
    line = tally("certificate: concept = task, or nearly")
    for seed in range(effort.times(3, 50)):
        drawn = World("task", "balanced", 2000, task=1.0).draw(np.random.default_rng(seed))
        with pytest.raises(LabelError, match="removing it would remove the task"):
            JSE().fit(drawn.Z, drawn.y, concept=drawn.y)
        nearly = drawn.y.copy()
        nearly[np.flatnonzero(drawn.y == 1)[:3]] = 0
        nearly[np.flatnonzero(drawn.y == 0)[:3]] = 1
        with pytest.raises(GroupSizeError, match="Too few held-out rows"):
            JSE().fit(drawn.Z, drawn.y, concept=nearly)
        fit, _ = fitted(NEARLY_THE_TASK, seed, smallest_group=2)
        held_out = NEARLY_THE_TASK.draw(np.random.default_rng([seed, 2]))
        line.trial("nearly the same label" in str(fit.certificate(held_out.Z, held_out.y, held_out.concept).notes))
    line.figure = "refused; where tested all the same, a note that few rows tell the two apart"
    assert line.all_survived
