"""Comparisons: a result for every combination, chosen fairly, also for methods that fail."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from tests.labelled_rows import Rows
from tests.optional import torch
from tests.probing import quick_probes
from unspur import ERM, JSE, LEACE, GroupWeighted
from unspur.compare import REMOVERS, HeldOutLoss, _paired, best_held_out, compare, recommended_result
from unspur.datasets import make_toy
from unspur.exceptions import GroupSizeError, InputError
from unspur.metrics import group_accuracy
from unspur.report.tables import comparison_table
from unspur.selection import HEAD_PENALTIES, group_loss, select_head, tune_head
from unspur.solvers.coordinates import RowSpan


def rows(seed, n=1200, rho=0.8, names=False):
    toy = make_toy(n, d=8, rho=rho, random_state=seed)
    y = np.array(["land", "water"])[toy.y] if names else toy.y
    return Rows(toy.Z, y, toy.concept)


@pytest.fixture(scope="module")
def results():
    return compare(rows(0), rows(1, rho=0.0), rows(2), list(REMOVERS), ["ERM", "GroupWeighted"])


def test_every_combination_has_a_result(results):
    assert [(r.remover, r.head) for r in results] == [(r, h) for r in REMOVERS for h in ("ERM", "GroupWeighted")]
    for result in results:
        assert not result.problem
        low, high = result.accuracy.worst_interval()
        assert low < result.accuracy.worst < high
        assert result.parameters["penalty"] in HEAD_PENALTIES
        assert (result.n_removed > 0) == (result.remover != "none")


def test_a_comparison_fits_a_terminal_and_marks_what_to_take(results):
    table = comparison_table(results)
    assert max(map(len, table.splitlines())) <= 80
    assert table.count("→ JSE") == 1
    for result in results:
        assert f"{100 * result.accuracy.worst:.1f} (" in table
        assert f"{result.held_out.loss:.3f}{'=' if result.tied_with_best else ''}" in table


def test_the_erasers_pay_with_the_task_and_jse_does_not(results):
    worst = {(r.remover, r.head): r.accuracy.worst for r in results}
    assert worst["JSE", "ERM"] > worst["LEACE", "ERM"] + 0.1
    assert worst["JSE", "ERM"] > worst["INLP", "ERM"] + 0.1


def test_the_result_of_a_method_that_cannot_be_fitted_says_why():
    some = rows(0)
    same = Rows(some.Z, some.concept, some.concept)  # the concept is the task
    results = compare(same, same, same, ["none", "JSE"], ["ERM"])
    assert "concept is equal to y" in results[1].problem
    assert results[1].accuracy is None


def test_a_method_that_a_fold_cannot_fit_says_why():
    given = rows(0)
    group = 2 * given.y + given.concept
    small = np.flatnonzero(group == 1)[10:]  # ten rows are enough for all rows, eight are too few for four folds
    train = Rows(*(np.delete(values, small, axis=0) for values in (given.Z, given.y, given.concept)))
    found = compare(train, rows(1), None, ("JSE", "none"), ("GroupWeighted",))
    jse, none = found
    assert not jse.problem
    assert "too few held-out rows" in jse.held_out_problem.lower()
    assert (jse.held_out, none.held_out_problem) == (None, "")
    assert none.held_out is not None


@pytest.mark.parametrize("form", [list, lambda Z: pd.DataFrame(Z), lambda Z: torch.tensor(Z)])
@quick_probes()
def test_rows_and_labels_come_in_many_forms(form):
    films = np.arange(400) // 2
    plain = [(*rows(seed, n=400, rho=0.5)[:3], films + 1000 * seed) for seed in range(3)]
    others = [(form(some[0]), *(label.tolist() for label in some[1:])) for some in plain]
    for some in (2, 3):  # without validation rows, and with them
        one, other = (compare(*given[:2], *(given[2:some] or [None]), ["JSE"], ["ERM"])[0] for given in (plain, others))
        assert not one.problem
        assert one.accuracy.correct.tolist() == other.accuracy.correct.tolist()


@quick_probes()
def test_validation_rows_without_a_concept_are_as_good_as_none():
    train, test, other = (rows(seed, n=400, rho=0.5) for seed in range(3))
    unknown = Rows(other.Z, other.y, [None] * 400)
    one, two = (compare(train, test, validation, ["none", "JSE"], ["ERM"]) for validation in (None, unknown))
    assert [(result.problem, result.n_removed, result.validation_loss) for result in one] == [
        (result.problem, result.n_removed, result.validation_loss) for result in two
    ]
    assert one[1].n_removed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: {"Z": data.Z[:, :5]}, "The {what} rows have 5 features, the training rows 8"),
        (lambda data: {"y": data.y[:-1]}, "y of the {what} rows has 299 labels for 300 rows"),
        (lambda data: {"concept": data.concept[1:]}, "concept of the {what} rows has 299 labels for 300 rows"),
        (lambda _: {"clusters": [1, 2]}, r"clusters of the {what} rows has shape \(2,\) for 300 rows"),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_anything_is_fitted(change, message):
    train, good = rows(0, n=300), rows(1, n=300)
    bad = good._replace(**change(good))
    with pytest.raises(InputError, match=message.format(what="test")):
        compare(train, bad, good, ["none"], ["ERM"], callback=pytest.fail)
    with pytest.raises(InputError, match=message.format(what="validation")):
        compare(train, good, bad, ["none"], ["ERM"], callback=pytest.fail)
    with pytest.raises(InputError, match="The test rows are three things"):
        compare(train, None, None, ["none"], ["ERM"])


@pytest.mark.parametrize("change", [lambda X: X.iloc[:, ::-1], lambda X: X.rename(columns={"z1": "age"})])
def test_columns_in_another_order_or_of_another_name_are_refused(change):
    train, test, others = (
        (pd.DataFrame(some.Z).add_prefix("z"), *some[1:]) for some in (rows(k, n=300) for k in range(3))
    )
    moved, grid = (change(others[0]), *others[1:]), {"penalty": (0.1, 0.01)}
    head = ERM().fit(*train[:2])
    with pytest.raises(InputError, match="columns of the test rows are not those of the training rows"):
        compare(train, moved, None, ["none"], ["ERM"], callback=pytest.fail)
    with pytest.raises(InputError, match="columns of the validation rows are not those of the training rows"):
        compare(train, test, moved, ["none"], ["ERM"], callback=pytest.fail)
    for choose in (tune_head, select_head):
        with pytest.raises(InputError, match="columns of the validation rows are not those of the training rows"):
            choose(ERM(), grid, train, moved)
        arrays = choose(ERM(), grid, rows(0, n=300), rows(2, n=300))
        assert choose(ERM(), grid, train, others).loss == pytest.approx(arrays.loss)
    with pytest.raises(InputError, match="columns of the validation rows are not those of the fit"):
        group_loss(head, moved)
    assert compare(train, test, others, ["none"], ["ERM"])[0].accuracy is not None


def test_rows_that_are_in_two_sets_are_noted():
    train, test = rows(0), rows(1)
    for validation, note in ((test, "1,200 of 1,200 validation rows are test rows"), (train, "are training rows as")):
        (result,) = compare(train, test, validation, ["none"], ["ERM"])
        assert note in " ".join(result.notes)
        assert len(result.notes) == 1
    assert not compare(train, test, rows(2), ["none"], ["ERM"])[0].notes


def test_selection_returns_the_table_it_decided_from_and_the_smallest_loss_wins():
    train, validation = rows(0), rows(3)
    found = select_head(ERM(), {"penalty": (1.0, 0.1, 0.01)}, train, validation)
    losses = {tried["penalty"]: loss for tried, loss in found.results}
    assert set(losses) == {1.0, 0.1, 0.01}
    assert found.parameters["penalty"] == min(losses, key=losses.get)
    again = ERM(penalty=0.1).fit(train.Z, train.y, concept=train.concept)
    assert losses[0.1] == pytest.approx(group_loss(again, validation))
    assert losses[1.0] != pytest.approx(losses[0.01], rel=1e-3)


def test_the_loss_counts_every_group_the_same():
    train, test = rows(0, rho=0.9), rows(1, rho=0.9)
    head = GroupWeighted().fit(train.Z, train.y, concept=train.concept)
    probabilities = head.predict_proba(test.Z)[np.arange(len(test.y)), test.y]
    by_hand = [-np.log(probabilities[(test.y == y) & (test.concept == c)]).mean() for y in (0, 1) for c in (0, 1)]
    assert group_loss(head, test) == pytest.approx(np.mean(by_hand))
    assert group_loss(head, test) != pytest.approx(-np.log(probabilities).mean(), rel=1e-3)


def test_every_remover_balances_the_same_classes():
    train, test = rows(0, rho=0.9), rows(1, rho=0.0)
    by_hand = LEACE(balance="group").fit(train.Z, train.y, concept=train.concept)
    left = train._replace(Z=by_hand.transform(train.Z))
    head = tune_head(ERM(random_state=0), {"penalty": HEAD_PENALTIES}, left).head
    expected = group_accuracy(test.y, head.predict(by_hand.transform(test.Z)), test.concept).worst
    balanced, plain = (compare(train, test, None, ["LEACE"], ["ERM"], balance=b)[0] for b in ("group", "none"))
    assert balanced.accuracy.worst == pytest.approx(expected)
    assert plain.accuracy.worst != pytest.approx(expected)


@quick_probes()
def test_concepts_of_several_classes_are_compared():
    toy = make_toy(800, d=8, rho=0.5, random_state=0)
    kinds = np.digitize(toy.Z[:, 0] + np.random.default_rng(0).standard_normal(800), [-0.7, 0.7])
    results = compare(
        Rows(toy.Z, toy.y, kinds), Rows(toy.Z, toy.y, kinds), None, list(REMOVERS), ["ERM", "GroupWeighted"]
    )
    assert not [result.problem for result in results if result.problem]
    assert {result.n_removed for result in results if result.remover in ("LEACE", "SAL", "RLACE")} == {2}


def wide_rows(seed, n=160, d=360):
    """Fewer rows than features, whose columns differ in scale."""
    rng = np.random.default_rng(seed)
    y, concept = rng.integers(2, size=(2, n))
    concept = np.where(rng.random(n) < 0.6, y, concept)
    Z = rng.standard_normal((n, d)) * rng.uniform(0.5, 2.0, d) + 3.0
    Z[:, 0] += 4 * y
    Z[:, 1] += 4 * concept
    return Rows(Z, y, concept)


@pytest.mark.parametrize("validated", [True, False])
def test_coordinates_of_the_span_change_no_answer(validated, monkeypatch):
    sets = wide_rows(0), wide_rows(1), wide_rows(2) if validated else None
    heads = ["GroupWeighted", "DFR"]  # each remover and head by itself: tests/solvers/test_row_span.py
    names = ["none", "JSE", "LEACE"]
    short = compare(*sets, names, heads)
    monkeypatch.setattr(RowSpan, "of", lambda *sets, **_: (None, list(sets)))
    for one, other in zip(short, compare(*sets, names, heads), strict=True):
        assert (one.n_removed, one.parameters, one.problem) == (other.n_removed, other.parameters, "")
        # A grid of more than penalties is searched at a tolerance of 1e-3, and so are folds.
        exact = one.head in ("ERM", "GroupWeighted", "SUBG", "DFR")
        assert one.validation_loss == pytest.approx(other.validation_loss, abs=1e-6 if exact else 1e-3)
        assert one.held_out.loss == pytest.approx(other.held_out.loss, abs=1e-6 if exact and validated else 1e-3)
        np.testing.assert_array_equal(one.accuracy.correct, other.accuracy.correct)
        assert one.probes["concept"].accuracy == other.probes["concept"].accuracy


@quick_probes()
def test_combinations_are_evaluated_on_held_out_rows_and_not_on_test_rows(results):
    assert any(result.tied_with_best for result in results)
    assert min(result.held_out.above_best for result in results) == 0.0
    for result in results:
        assert result.held_out.loss == pytest.approx(result.validation_loss, abs=1e-6)
        assert result.tied_with_best == (result.held_out.low <= 1e-5)
    again = compare(rows(0), rows(7, rho=-0.8), rows(2), list(REMOVERS), ["ERM", "GroupWeighted"])
    assert [result.held_out for result in again] == [result.held_out for result in results]


def test_the_interval_of_a_difference_holds_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1, 2], [200, 60, 20])
    truth, several = np.array([0.1, -0.2, 0.4]), np.zeros(3, dtype=bool)
    found = [_paired(truth[group] + rng.standard_normal(280) * (1 + group), group, several, None) for _ in range(1000)]
    held = np.mean([abs(mean - truth.mean()) <= 1.96 * error for mean, error, _ in found])
    assert 0.925 < held < 0.965
    clusters = np.arange(280) // 2  # every row twice: half as many
    noise = rng.standard_normal(140)
    one, other = (_paired(np.repeat(noise, 2), group, several, which)[1] for which in (None, clusters))
    assert other == pytest.approx(np.sqrt(2) * one, rel=0.03)


@pytest.mark.parametrize(
    ("films", "least"), [((20, 20, 20, 20), 0.93), ((20, 3, 3, 20), 0.93), ((20, 20, 20, 2), 0.86)], ids=str
)
def test_the_interval_of_a_difference_counts_the_clusters_of_small_groups(films, least):
    rng, frames = np.random.default_rng(0), 5
    group = np.repeat(range(4), np.array(films) * frames)
    film = np.arange(len(group)) // frames
    noise = rng.standard_normal((1000, sum(films)))[:, film] + 0.5 * rng.standard_normal((1000, len(group)))
    found = [_paired(one, group, np.zeros(4, dtype=bool), film) for one in noise]
    held = np.mean([abs(mean) <= student.isf(0.025, degrees) * error for mean, error, degrees in found])
    assert least < held < 0.98  # lowest for two films, whose variance nobody can estimate
    every_row = [_paired(one, group, np.zeros(4, dtype=bool), None) for one in noise[:200]]
    assert (
        np.mean([abs(mean) <= 1.96 * error for mean, error, _ in every_row]) < 0.75
    )  # control: rows are not independent


def clearly_worse(results):
    """The results with a recommendation that is worse by 0.3 on held-out rows."""
    far = HeldOutLoss(0.9, 0.4, 0.3, 0.5)
    return [replace(result, held_out=far) if result.recommended else result for result in results]


def test_a_clearly_worse_combination_is_not_tied_and_the_recommendation_is_kept_unless_it_is_worse(results):
    by_name = {(result.remover, result.head): result for result in results}
    ours = by_name["JSE", "GroupWeighted"]
    assert ours.recommended
    assert not by_name["LEACE", "ERM"].tied_with_best  # it pays with the task
    assert ours.tied_with_best
    assert recommended_result(results) is ours
    assert best_held_out(results) is by_name["none", "GroupWeighted"]
    assert recommended_result(clearly_worse(results)) is by_name["none", "GroupWeighted"]
    assert recommended_result([replace(ours, held_out=None)]) is None


def test_a_probe_tells_what_a_removal_leaves_of_the_concept(results):
    found = {result.remover: result.probes["concept"] for result in results}
    assert found["none"].low > 0.75
    assert found["JSE"].chance == 0.5
    assert found["JSE"].high < 0.6


def test_a_group_of_one_held_out_row_makes_no_combination_clearly_worse():
    rng = np.random.default_rng(0)
    group = np.append(np.zeros(200, dtype=int), [1])
    difference = np.append(rng.normal(0.0, 0.1, size=200), [0.3])  # one row says that the combination is far worse
    mean, error, _ = _paired(difference, group, np.array([False, True]), None)
    assert mean > 0.1
    assert error > 0.04  # half of the deviation of a row, and not zero
    many = np.append(difference[:200], np.full(200, 0.3))
    settled = _paired(many, np.repeat([0, 1], 200), np.zeros(2, dtype=bool), None)
    assert settled[0] > 3 * settled[1]  # the control: two hundred such rows do


def test_rows_of_one_cluster_cannot_be_compared_on():
    train, test = make_toy(200, rho=0.5, random_state=0), make_toy(200, rho=0.0, random_state=1)
    given = (test.Z, test.y, test.concept), None, ["none"], ["ERM"]
    with pytest.raises(GroupSizeError, match="All training rows are in one cluster, so none can be held out"):
        compare((train.Z, train.y, train.concept, np.zeros(200)), *given)
    (found,) = compare((train.Z, train.y, train.concept, np.arange(200) % 2), *given)
    assert found.held_out is not None


def test_copies_of_a_training_row_are_not_held_out_from_each_other():
    """Rows that say nothing of their labels, each twice: no head is better than chance on rows it has not seen."""
    rng = np.random.default_rng(1)
    y, concept = rng.integers(2, size=(2, 150))
    Z, twice = rng.normal(size=(150, 100)), np.tile(np.arange(150), 2)
    train = Rows(Z[twice], y[twice], concept[twice])
    test = Rows(rng.normal(size=(200, 100)), *rng.integers(2, size=(2, 200)))
    copies, told_apart = (
        compare(one, test, None, ["none"], ["ERM"])[0] for one in (train, train._replace(clusters=np.arange(300)))
    )
    assert min(copies.held_out.loss, copies.validation_loss) > 0.65
    assert max(told_apart.held_out.loss, told_apart.validation_loss) < 0.6  # given clusters are taken as they are


def test_validation_rows_that_are_too_few_are_pooled_as_in_a_classifier():
    train, test, few = rows(0), rows(1, rho=0.0), rows(2, n=40)
    methods = ["none", "JSE"], ["GroupWeighted"]
    none, jse = compare(train, test, few, *methods)
    assert jse.n_removed
    assert not jse.problem
    assert "training and validation rows were pooled and cross-fitted" in " ".join(jse.notes)
    assert jse.notes == none.notes  # all are evaluated on the same rows
    together = Rows(*(np.concatenate(pair) for pair in zip(train[:3], few[:3], strict=True)))
    expected = compare(together, test, None, *methods)
    assert [result.held_out for result in (none, jse)] == [result.held_out for result in expected]
    # Enough rows are not pooled, and methods that test no directions need none.
    for names, validation in ((["none", "JSE"], rows(2)), (["none", "LEACE"], few)):
        assert not any(
            "pooled" in note for one in compare(train, test, validation, names, ["ERM"]) for note in one.notes
        )


def test_arguments_that_are_no_names_and_rows_that_are_none():
    train, test = rows(0, n=300), rows(1, n=300)
    for methods, said in (
        (([JSE], ["ERM"]), "got <class 'unspur.removers.jse.JSE'>"),
        ((["none"], [ERM()]), r"got ERM\(\)"),
        (("none", ["ERM"]), "got 'none'"),
    ):
        with pytest.raises(InputError, match=rf"Methods are a list of names, .*{said}"):
            compare(train, test, None, *methods)
    with pytest.raises(InputError, match=r"The test rows must be numbers of shape \(n, d\)"):
        compare(train, test._replace(Z=test.Z[0]), None, ["none"], ["ERM"])
