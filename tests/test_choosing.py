"""One rule for the penalty of every head: held-out rows, groups of equal weight, one grid for all."""

import numpy as np
import pytest
from sklearn.base import clone

from tests.labelled_rows import Rows
from tests.probing import quick_probes
from unspur import ERM, LEACE, SAL, GroupWeighted, RobustClassifier
from unspur._data import decode_rows
from unspur.clusters import held_out_mask
from unspur.compare import compare, tune_named_head
from unspur.datasets import make_toy
from unspur.exceptions import LabelError
from unspur.heads.base import fit_path
from unspur.metrics import group_accuracy
from unspur.removers.joint import PAPER_PENALTIES
from unspur.report.measuring import measure
from unspur.selection import (
    CHOSEN_BY_CLASS,
    HEAD_PENALTIES,
    VALIDATION_IGNORED,
    group_loss,
    penalty_grid,
    select_head,
    temperature_scaled_loss,
    tune_head,
)
from unspur.solvers import logistic

GRID = {"penalty": HEAD_PENALTIES}
SETTINGS = [{"penalty": penalty} for penalty in HEAD_PENALTIES]
PAPER = {"penalty": PAPER_PENALTIES}


def rows(seed=0, n=800, rho=0.8):
    toy = make_toy(n, d=8, rho=rho, random_state=seed)
    return Rows(toy.Z, toy.y, toy.concept)


def one_unscaled(seed, n, rho, scale):
    """One column says something of the task, one a little of the concept, on quite another scale; the rest is noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    concept = np.where(rng.random(n) < (1 + rho) / 2, y, 1 - y)
    Z = rng.standard_normal((n, 9))
    Z[:, 0] += 1.5 * (2 * y - 1)
    Z[:, 8] = scale * (Z[:, 8] + 0.3 * (2 * concept - 1))
    return Rows(Z, y, concept)


def test_copies_of_a_row_are_held_out_together():
    place = np.repeat(np.arange(80), 3)
    losses, blind = [], []
    for seed in range(4):
        noise = np.random.default_rng(seed).normal(size=(80, 60))[place], place % 2, place // 2 % 2
        losses.append(tune_head(ERM(), GRID, noise, seed=seed).loss)
        blind.append(tune_head(ERM(), GRID, (*noise, np.arange(240)), seed=seed).loss)
    assert np.mean(losses) > 0.6  # chance is log 2
    assert np.mean(blind) < 0.2  # control


@pytest.mark.parametrize("scale", [1e3, 1e5])
def test_a_column_of_another_scale_makes_no_headline(scale):
    """With a fixed penalty, taking that column out looks like a cure; with the chosen one there was no illness."""
    train, test = one_unscaled(0, 1500, 0.8, scale), one_unscaled(1, 3000, 0.0, scale)
    sal = SAL(balance="group").fit(train.Z, train.y, concept=train.concept)

    def gain(layers):
        worst = [
            group_accuracy(test.y, layer.predict(clean(test.Z)), test.concept).worst
            for layer, clean in zip(layers, (np.asarray, sal.transform), strict=True)
        ]
        return 100 * (worst[1] - worst[0])

    left = [Rows(clean(train.Z), train.y, train.concept) for clean in (np.asarray, sal.transform)]
    assert gain([ERM(penalty=0.01).fit(part.Z, part.y) for part in left]) > 35  # a penalty that nobody chose
    assert gain([tune_head(ERM(), PAPER, part).head for part in left]) > 35  # from penalties all too large for it
    level = [Rows(part.Z / np.r_[np.ones(8), scale], part.y, part.concept) for part in (train, test)]
    with quick_probes():
        found, well_scaled = measure(sal, train, test), measure(sal, *level)
    for line in (found.before, found.before.weighted):
        assert abs(100 * (found.after.accuracy.worst - line.accuracy.worst)) < 3
    assert not found.after.worst_change.clear
    assert any("column 8" in warning.lower() for warning in found.warnings)  # and the page says so
    assert not any("column" in warning for warning in well_scaled.warnings)


def test_penalties_reach_the_other_columns_and_are_those_of_the_rows_as_they_are():
    assert penalty_grid(rows().Z) == HEAD_PENALTIES
    assert penalty_grid(rows().Z * 1e6) == HEAD_PENALTIES
    wide = penalty_grid(one_unscaled(0, 500, 0.8, 1e3).Z)
    assert wide[: len(HEAD_PENALTIES)] == HEAD_PENALTIES
    assert wide[-1] <= 1e-4 / (1e6 / 9)  # as small for the others as 1e-4 is where all are alike
    assert min(penalty_grid(one_unscaled(0, 500, 0.8, 1e9).Z)) == 1e-12
    assert penalty_grid(np.zeros((4, 3))) == HEAD_PENALTIES


@pytest.mark.parametrize("head", [ERM, GroupWeighted])
def test_without_validation_rows_a_fifth_chooses_and_all_train(head):
    train = rows()
    found = tune_head(head(), GRID, train)
    aside = held_out_mask(train.group, 0.2, np.random.default_rng(0))
    assert np.bincount(train.group[aside]).tolist() == [round(0.2 * k) for k in np.bincount(train.group)]
    rest, chosen_on = train.select(~aside), train.select(aside)
    losses = {}
    for penalty in HEAD_PENALTIES:
        one = head(penalty=penalty).fit(rest.Z, rest.y, concept=rest.concept)
        losses[penalty] = temperature_scaled_loss(one, chosen_on)
    assert found.penalty == min(losses, key=losses.get)
    assert {tried["penalty"]: loss for tried, loss in found.results} == pytest.approx(losses)
    again = head(penalty=found.penalty).fit(train.Z, train.y, concept=train.concept)
    np.testing.assert_array_equal(found.head.coef_, again.coef_)  # of all rows


def test_every_group_has_one_say_however_small():
    """A layer that suits the many loses to one that suits every group; counting rows would choose the other."""
    train, many = rows(rho=0.9, n=1500), rows(1, rho=0.9, n=1500)
    found = tune_head(ERM(), GRID, train, many)
    fits = fit_path(ERM(), SETTINGS, train.Z, train.y)
    by_rows = [-np.mean(np.log(one.predict_proba(many.Z)[np.arange(1500), many.y])) for one in fits]
    assert [temperature_scaled_loss(one, many) for one in fits] == pytest.approx([loss for _, loss in found.results])
    assert found.penalty == HEAD_PENALTIES[int(np.argmin([loss for _, loss in found.results]))]
    assert np.std(np.array(by_rows) - [loss for _, loss in found.results]) > 1e-3  # they are not the same rule


def shifted(seed, n, agreement, d=30, classes=2):
    """The task shifts one column a little, the concept another one twice as much."""
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    concept = np.where(rng.random(n) < agreement, y, (y + rng.integers(1, classes, size=n)) % classes)
    Z = rng.standard_normal((n, d))
    Z[:, : classes - 1] += 2.0 * (y[:, None] == np.arange(1, classes))
    Z[:, -classes + 1 :] += 4.0 * (concept[:, None] == np.arange(1, classes))
    return Rows(Z, y, concept)


@pytest.mark.parametrize(("classes", "least"), [(2, 10), (3, 10)])
def test_a_plain_layer_on_correlated_rows_is_not_made_weak(classes, least):
    """Plain loss rewards a penalty for making such a layer less sure where it is wrong; it is as wrong, or more so."""
    chosen, paper, best = [], [], []
    for seed in range(3):
        train = shifted(seed, 2000, 0.95, classes=classes)
        test = shifted(100 + seed, 4000, 1 / classes, classes=classes)
        aside = held_out_mask(train.group, 0.2, np.random.default_rng(0))
        found = tune_head(ERM(), GRID, train)
        worst = {
            penalty: 100 * group_accuracy(test.y, layer.predict(test.Z), test.concept).worst
            for penalty, layer in zip(HEAD_PENALTIES, fit_path(ERM(), SETTINGS, train.Z, train.y), strict=True)
        }
        by_loss = select_head(ERM(), GRID, train.select(~aside), train.select(aside)).penalty
        chosen.append(worst[found.penalty])
        paper.append(worst[by_loss])
        best.append(max(worst.values()))
    assert np.mean(best) - np.mean(chosen) < 1
    assert np.mean(best) - np.mean(paper) > least  # control: what the paper's rule costs here


@pytest.mark.parametrize("classes", [2, 3])
def test_the_factor_on_the_logits_is_the_best_one(classes):
    train, chosen_on = shifted(0, 600, 0.8, d=8, classes=classes), shifted(1, 600, 0.8, d=8, classes=classes)
    head = ERM(penalty=0.01).fit(train.Z, train.y)
    loss, coef, intercept = temperature_scaled_loss(head, chosen_on), head.coef_, head.intercept_

    def at(factor):
        head.coef_, head.intercept_ = factor * coef, factor * intercept
        return group_loss(head, chosen_on), temperature_scaled_loss(head, chosen_on)

    plain, tempered = np.array([at(factor) for factor in np.geomspace(0.05, 20, 1000)]).T
    assert loss == pytest.approx(plain.min(), abs=1e-5)
    assert loss <= plain.min()
    np.testing.assert_allclose(tempered, loss, rtol=1e-9)  # how sure the layer is does not count
    assert temperature_scaled_loss(head, chosen_on._replace(y=(chosen_on.y + 1) % classes)) < np.log(classes) + 1e-12


@pytest.mark.parametrize("head", [ERM(), GroupWeighted()], ids=str)
def test_small_penalties_on_separable_rows_win_by_their_own_loss(head, monkeypatch):
    """A descent that ends early is a head of a larger penalty, which may do better on held-out rows."""
    rng = np.random.default_rng(1)
    y = rng.integers(4, size=100)
    concept = np.where(rng.random(100) < 0.8, y % 2, 1 - y % 2)
    Z = rng.normal(size=(100, 300)) * np.arange(1, 301) ** -0.7
    Z[:, 0] += 2 * y
    Z[:, 1] += 1.5 * (2 * concept - 1)
    Z[:, 2:6] += 2 * np.eye(4)[y]

    def losses(tol):
        """The held-out loss of each penalty."""
        monkeypatch.setattr("unspur.selection.ROUGH_TOL", tol)
        model = RobustClassifier(LEACE(), clone(head).set_params(tol=min(tol, 1e-6)), random_state=0)
        return np.array([loss for _, loss in model.fit(Z, y, concept=concept).selection_.results])

    exact, rough = losses(1e-11), losses(1e-5)
    np.testing.assert_allclose(rough, exact, atol=3e-4)
    assert exact[rough.argmin()] < exact.min() + 3e-4
    monkeypatch.setattr(logistic, "MAX_GRADIENT_TO_LOSS", np.inf)  # the control
    rough = losses(1e-5)
    assert np.abs(rough - exact).max() > 0.02
    assert exact[rough.argmin()] > exact.min() + 3e-3


def test_a_path_of_penalties_is_one_fit_each():
    train = rows()
    for one, penalty in zip(
        fit_path(GroupWeighted(), SETTINGS, train.Z, train.y, concept=train.concept), HEAD_PENALTIES, strict=True
    ):
        alone = GroupWeighted(penalty=penalty).fit(train.Z, train.y, concept=train.concept)
        np.testing.assert_array_equal(one.coef_, alone.coef_)
        assert vars(one).keys() == vars(alone).keys()


def test_a_group_in_two_clusters_has_a_say_and_one_in_a_single_cluster_is_named():
    train = rows(n=600)
    group = 2 * train.y + train.concept
    for clusters in (1, 2):
        code = np.random.default_rng(0).integers(40, size=600)
        code[group == 1] = np.arange((group == 1).sum()) % clusters
        for seed in range(5):
            aside = held_out_mask(group, 0.2, np.random.default_rng(seed), code)
            assert aside[group == 1].any() == (clusters == 2)
            assert len(np.unique(group[~aside])) == 4
            assert not set(code[aside]) & set(code[~aside])
        for concept in (train.concept, {"sea": train.concept}, train.concept[:, None]):
            found = tune_head(ERM(), GRID, Rows(train.Z, train.y, concept, code))
            note = (
                "1 group is used for training but not for choosing the penalty, since the rows lie in too few clusters"
            )
            assert [said.startswith(note) for said in found.notes] == [True] * (clusters == 1)
            assert clusters == 2 or f": 0, 1 ({np.sum(group == 1)} rows)." in found.notes[0]
    found = tune_head(ERM(), GRID, Rows(train.Z, train.y, train.concept, group))
    assert found.notes[-1].startswith("No group has clusters to hold out, so no penalty could be chosen")


def test_groups_of_one_row_train_and_are_told():
    train = rows(n=300)
    lonely = (train.y == 0) & (train.concept == 1)
    keep = ~lonely | (np.cumsum(lonely) <= 1)
    some = train.select(keep)
    for head in (ERM(), GroupWeighted()):
        found = tune_head(head, GRID, some)
        assert found.notes == (
            "1 group has one training row only; it is used for training but not for choosing the penalty.",
        )
        assert found.penalty in HEAD_PENALTIES
    four = Rows(train.Z[:4], np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))
    found = tune_head(ERM(), GRID, four)
    assert found.penalty == ERM().penalty
    assert "no penalty could be chosen" in found.notes[-1]


def test_rows_without_a_concept_train_plain_layers_and_choose_nothing():
    train = rows()
    concept = train.concept.astype(float)
    concept[:200] = np.nan
    gaps = Rows(train.Z, train.y, concept)
    assert (gaps.group[:200] == -1).all()
    assert not held_out_mask(gaps.group, 0.2, np.random.default_rng(0))[:200].any()
    found = tune_head(ERM(), GRID, gaps)
    np.testing.assert_array_equal(found.head.coef_, ERM(penalty=found.penalty).fit(train.Z, train.y).coef_)
    words = Rows(train.Z, train.y, np.where(np.isnan(concept), None, np.where(concept > 0, "sea", "land")))
    np.testing.assert_array_equal(words.group, gaps.group)
    test = rows(1)
    named = Rows(test.Z, test.y, np.where(test.concept > 0, "sea", "land"))
    lines = compare(words, named, None, ["none", "LEACE"], ["ERM", "GroupWeighted"])
    assert not [line.problem for line in lines if line.problem]
    assert lines[0].accuracy.average == np.mean(tune_named_head("ERM", gaps, None, 0).head.predict(test.Z) == test.y)


def unbalanced(seed):
    """Rows of which one in ten is of the second class; no concept is known."""
    toy = make_toy(3000, d=8, rho=0.8, random_state=seed)
    kept = (toy.y == 0) | (np.arange(3000) % 9 == 0)
    return toy.Z[kept], toy.y[kept], None


@pytest.mark.parametrize("validated", [False, True])
def test_without_any_concept_classes_have_equal_say(validated):
    train, held = unbalanced(0), unbalanced(1)
    found = tune_head(ERM(), GRID, train, held if validated else None)
    assert found.notes == (CHOSEN_BY_CLASS,)
    # The same choice as with the classes for a concept: each class is one group.
    named = [(Z, y, y) for Z, y, _ in (train, held)]
    same = tune_head(ERM(), GRID, named[0], named[1] if validated else None)
    assert found.results == same.results
    assert not same.notes
    if validated:
        heads = fit_path(ERM(), SETTINGS, *train[:2])
        by_class = [temperature_scaled_loss(head, named[1]) for head in heads]
        np.testing.assert_allclose([loss for _, loss in found.results], by_class, atol=1e-6)
        own = [-head.predict_log_proba(held[0])[np.arange(len(held[1])), held[1]].mean() for head in heads]
        assert np.all(np.array(by_class) > np.array(own) + 0.05)  # control: over rows, the common class decides


def test_a_concept_that_some_rows_have_is_used():
    one, other = rows(0), rows(1)
    by_group = tune_head(ERM(), GRID, (one.Z, one.y, one.concept), (other.Z, other.y, None))
    assert by_group.notes == (VALIDATION_IGNORED,)
    assert by_group.results == tune_head(ERM(), GRID, (one.Z, one.y, one.concept)).results
    few = np.where(np.arange(len(other.y)) < 100, other.concept, np.nan)  # control: some are known
    assert not tune_head(ERM(), GRID, (one.Z, one.y, one.concept), (other.Z, other.y, few)).notes
    held = tune_head(ERM(), GRID, (one.Z, one.y, None), (other.Z, other.y, other.concept))
    assert CHOSEN_BY_CLASS not in held.notes
    assert (
        held.results == tune_head(ERM(), GRID, (one.Z, one.y, one.concept), (other.Z, other.y, other.concept)).results
    )
    with pytest.raises(LabelError, match="concept is missing"):
        tune_head(GroupWeighted(), GRID, (one.Z, one.y, None), (other.Z, other.y, other.concept))


def test_groups_are_combinations_of_all_concepts():
    rng = np.random.default_rng(0)
    y, concepts = rng.integers(3, size=500), rng.integers(2, size=(500, 2))
    both = Rows(rng.standard_normal((500, 4)), y, concepts)
    group = decode_rows(both).group
    assert group.max() == 3 * 2 * 2 - 1
    np.testing.assert_array_equal(group, 4 * y + 2 * concepts[:, 0] + concepts[:, 1])
    lines = compare(both, both, None, ["none", "LEACE"], ["ERM", "GroupWeighted"])
    assert not [line.problem for line in lines if line.problem]
    assert lines[0].accuracy.rows.shape == (3, 2, 2)


def test_a_choice_at_the_edge_says_so():
    train = shifted(0, 2000, 0.95)
    assert tune_head(ERM(), {"penalty": (1.0, 0.1)}, train).grid_edge == "smallest"
    assert tune_named_head("ERM", train, None, 0).grid_edge == ""  # the last step gained next to nothing
    assert tune_named_head("GroupWeighted", train, None, 0).grid_edge == "largest"
    noisy = shifted(0, 200, 0.5, d=60), shifted(1, 2000, 0.5, d=60)
    middle = tune_head(ERM(), {"penalty": (100.0, 0.05, 1e-9)}, *noisy)
    assert middle.grid_edge == ""
    line = compare(train, train, None, ["none"], ["GroupWeighted"])[0]
    assert line.grid_edge == "largest"
    assert line.to_dict()["grid_edge"] == "largest"
