"""What is found against what is known: scores, boundaries, figures, groups, and sentences that must not be missed."""

import warnings
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.entangled import entangled_rows
from tests.labelled_rows import Rows
from tests.report.rows import nothing_to_find, removal, toy
from unspur import INLP, JSE, LEACE, RLACE, SPLINCE
from unspur.compare import compare, tune_named_head
from unspur.exceptions import InputError, LabelError, NothingRemovedWarning, TaskLostWarning
from unspur.metrics import leakage, shared_variance
from unspur.report.measuring import N_STEPS, measure
from unspur.report.words import verdict

TRAIN, TEST = toy(), toy(700, rho=0.0, seed=1)
JSE_TOY = removal(TRAIN)


@pytest.fixture(scope="module")
def found():
    return measure(JSE_TOY, TRAIN, TEST, main="bird", concept="background", compare=["LEACE", "GroupWeighted", "JSE"])


def test_scores_are_those_along_the_directions_of_the_removal(found):
    view, Z, centre = found.view, TEST[0], JSE_TOY.removal_.centre
    assert [axis.name for axis in view.axes[:2]] == ["background 1", "bird 1"]
    assert [axis.role for axis in view.axes[:2]] == ["spurious", "main"]
    for column, basis in ((0, JSE_TOY.spurious_.basis), (1, JSE_TOY.main_.basis)):
        assert_allclose(view.before[:, column], (Z - centre) @ basis[:, 0], atol=1e-10)
    assert np.abs(view.before[:, 0]).max() > 1
    assert np.abs(view.after[:, 0]).max() < 1e-9  # what was removed is gone
    assert_allclose(view.after[:, 1], view.before[:, 1], atol=1e-9)  # and the task is where it was


@pytest.mark.parametrize("metric", [0.0, 0.25, 1.0])
def test_a_boundary_is_where_the_answers_of_the_last_layer_change(metric):
    """At points of a plane, reconstructed from their scores, the head itself says what the boundary says."""
    # Off the origin and with one class rarer than the other, so that neither centre nor bias is near zero.
    keep = (TRAIN[1] == "land") | (np.arange(len(TRAIN[0])) % 3 == 0)
    train, test = (
        (rows[0][chosen] + 4.0, rows[1][chosen], rows[2][chosen])
        for rows, chosen in ((TRAIN, keep), (TEST, slice(None)))
    )
    jse = removal(train, metric=metric)
    view = measure(jse, train, test).view
    Z, y, _ = train
    heads = [tune_named_head("ERM", Rows(rows, y, train[2]), None, 0).head for rows in (Z, jse.transform(Z))]
    weights = heads[0].coef_[0]
    last = [axis.name for axis in view.axes].index("head, before")
    columns = {
        0: jse.spurious_.basis[:, 0],
        jse.spurious_.dim: jse.main_.basis[:, 0],
        last: weights / np.linalg.norm(weights),
    }
    centre, points = jse.removal_.centre, 3 * np.random.default_rng(0).standard_normal((200, 2))
    for head, boundary in zip(heads, (view.boundary_before, view.boundary_after), strict=True):
        for pair in ((0, jse.spurious_.dim), (jse.spurious_.dim, last)):
            axes = np.column_stack([columns[axis] for axis in pair])
            inverse = np.linalg.inv(view.gram[np.ix_(pair, pair)])
            rows = centre + points @ inverse @ axes.T
            assert_allclose((rows - centre) @ axes, points, atol=1e-8)  # they have these scores
            logit = boundary.offset + points @ inverse @ boundary.along[list(pair)]
            assert_allclose(logit, head.decision_function(rows), atol=1e-8)
            assert_array_equal(head.predict(rows) == "water", logit > 0)
            assert 0 < np.mean(logit > 0) < 1  # both answers occur


@pytest.mark.parametrize("validation", [None, toy(500, seed=2)])
def test_accuracies_and_penalties_are_those_of_compare(validation):
    """One rule for all: the same heads on the same rows, with and without validation rows."""
    jse = removal(TRAIN)
    found = measure(jse, TRAIN, TEST, validation=validation, compare=["LEACE", "SAL"])
    chosen_on = None if validation is None else Rows(*validation)
    told = compare(Rows(*TRAIN), Rows(*TEST), chosen_on, ["none", "LEACE", "SAL"], ["ERM", "GroupWeighted"])
    lines = [head for line in (found.before, *found.results[2:]) for head in (line, line.weighted)]
    assert len(lines) == len(told) == 6
    for line, other in zip(lines, told, strict=True):
        assert_array_equal(line.accuracy.correct, other.accuracy.correct)
        assert (line.penalty, line.grid_edge) == (other.parameters["penalty"], other.grid_edge)
    # And those of the removal itself, which was fitted before.
    for name, line in (("ERM", found.after), ("GroupWeighted", found.after.weighted)):
        clean = [Rows(jse.transform(Z), *labels) for Z, *labels in (TRAIN, TEST)]
        on = None if validation is None else Rows(jse.transform(validation[0]), *validation[1:])
        head = tune_named_head(name, clean[0], on, 0).head
        assert line.accuracy.average == np.mean(head.predict(clean[1].Z) == TEST[1])


def test_probes_with_a_seed_are_those_of_compare(found):
    """One seed gives one figure in both, before the removal and after every method."""
    seeded = measure(JSE_TOY, TRAIN, TEST, concept="background", compare=["LEACE"], seed=3)
    told = compare(Rows(*TRAIN), Rows(*TEST), None, ["none", "LEACE"], ["ERM"], seed=3)
    for line, other in zip((seeded.before, seeded.results[2]), told, strict=True):
        assert [line.leakage["background"]] == [replace(probe, notes=()) for probe in other.probes.values()]
    assert seeded.before.leakage != found.before.leakage  # the seed matters
    network = leakage(JSE_TOY.transform(TEST[0]), TEST[2], probe="mlp", random_state=3)
    assert seeded.nonlinear["background"] == network


def test_probes_of_rows_in_clusters_are_those_of_compare():
    """Also where a concept is missing in some rows, and clusters are objects, as in a Parquet file."""
    rng = np.random.default_rng(0)
    sets = []
    for name, (Z, y, concept) in (("train", TRAIN), ("test", TEST)):
        film = np.array([f"{name} {k}" for k in rng.integers(150, size=len(Z))], dtype=object)
        unknown = np.where(rng.random(len(Z)) < 0.2, None, concept)
        sets.append((Z, y, {"background": unknown, "season": rng.choice(["summer", "winter"], len(Z))}, film))
    found = measure(JSE_TOY, *sets)
    (told,) = compare(*sets, None, ["none"], ["ERM"])
    assert found.before.leakage == {name: replace(probe, notes=()) for name, probe in told.probes.items()}


def test_probes_of_copies_are_those_of_compare():
    """A probe must not be tested on copies of its training rows, whatever the method and the kind of probe."""
    rng = np.random.default_rng(0)
    y, concept = rng.integers(2, size=(2, 200))
    Z = rng.normal(size=(200, 180))  # says nothing of its labels
    twice = np.tile(np.arange(200), 2)
    test = Z[twice], y[twice], concept[twice]
    train = rng.normal(size=(400, 180)), *rng.integers(2, size=(2, 400))
    remover = LEACE(balance="group").fit(train[0], train[1], concept=train[2])
    found = measure(remover, train, test, compare=["SAL"])
    told = compare(train, test, None, ["none", "LEACE", "SAL"], ["ERM"])
    for line, other in zip(found.results, told, strict=True):
        assert line.leakage["concept"].accuracy == other.probes["concept"].accuracy < 0.65
    assert found.nonlinear["concept"].accuracy < 0.65
    apart = leakage(test[0], test[2], clusters=np.arange(400))
    assert apart.accuracy > 0.75  # what a probe that does not know of copies finds


def test_accuracies_are_those_of_the_removal(found):
    assert found.after.accuracy.group_average > found.before.accuracy.group_average
    assert found.before.accuracy.labels()[1] == "bird=land, background=sea"


def test_changes_are_paired_and_hold_the_differences(found):
    assert found.before.average_change is None
    after, before = found.after.accuracy, found.before.accuracy
    assert found.after.average_change.value == pytest.approx(after.average - before.average)
    assert found.after.group_average_change.value == pytest.approx(after.group_average - before.group_average)
    for change in (found.after.average_change, found.after.group_average_change):
        assert change.low < change.value < change.high
    unpaired = np.hypot(*(np.diff(accuracy.average_interval())[0] for accuracy in (before, after)))
    assert found.after.average_change.high - found.after.average_change.low < unpaired


def test_answers_and_groups_are_of_single_rows(found):
    assert found.groups == tuple(found.before.accuracy.labels())
    for g in range(4):
        rows = found.group == g
        main, concept = (found.groups[g].split(", ")[i].split("=")[1] for i in range(2))
        assert set(TEST[1][rows]) == {main}
        assert set(TEST[2][rows]) == {concept}
        assert found.correct_after[rows].sum() == found.after.accuracy.correct.ravel()[g]
        assert found.correct_before[rows].sum() == found.before.accuracy.correct.ravel()[g]


def test_other_methods_are_judged_alike_and_the_removal_is_not_compared_with_itself(found):
    assert [judged.name for judged in found.results] == ["no removal", "JSE", "LEACE", "GroupWeighted"]
    leace = LEACE(balance="group").fit(TRAIN[0], TRAIN[1], concept=TRAIN[2])
    head = tune_named_head("ERM", Rows(leace.transform(TRAIN[0]), *TRAIN[1:]), None, 0).head
    right = head.predict(leace.transform(TEST[0])) == TEST[1]
    assert found.results[2].accuracy.average == right.mean()
    # The method compared with and the head without a removal are the same.
    assert_array_equal(found.results[3].accuracy.correct, found.before.weighted.accuracy.correct)
    assert [judged.n_removed for judged in found.results] == [0, 1, 1, 0]
    assert found.results[2].leakage["background"].accuracy < found.before.leakage["background"].accuracy
    assert not found.results[3].leakage  # it removes nothing
    assert all(judged.average_change is not None for judged in found.results[1:])
    names = ["JSE", "JSE (metric 1)", "none", "LEACE", "LEACE"]
    again = measure(removal(TRAIN, metric=1.0), TRAIN, TEST, compare=names)
    assert [judged.name for judged in again.results] == ["no removal", "JSE", "JSE", "LEACE"]


def test_rows_that_were_used_twice_are_told_of():
    train, test, other = toy(seed=1), toy(seed=2), toy(seed=3)
    leace = LEACE(balance="group").fit(train[0], train[1], concept=train[2])
    assert "validation rows are test rows as well" in " ".join(measure(leace, train, test, validation=test).warnings)
    assert "validation rows are training rows as well" in " ".join(
        measure(leace, train, test, validation=train).warnings
    )
    assert not measure(leace, train, test, validation=other).warnings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jse = JSE(random_state=0).fit(
            train[0], train[1], concept=train[2], X_val=train[0], y_val=train[1], concept_val=train[2]
        )
    said = measure(jse, train, test).warnings
    assert any(note.endswith("tests on them are too optimistic.") for note in said)


def test_groups_that_clusters_keep_from_the_choice_of_penalties_are_named():
    Z, y, concept = toy()
    rare = (y == "water") & (concept == "forest")
    code = np.where(rare, 0, 1 + np.arange(len(y)) % 40)
    train = Rows(Z, y, concept, code)
    said = " ".join(measure(LEACE().fit(Z, y, concept=concept), train, toy(seed=1)).selection_notes)
    assert "about a fifth of the clusters of each group" in said
    assert "equal weight for every group that has rows there" in said
    assert f"too few clusters to hold one of them out: water, forest ({rare.sum()} rows)" in said


def test_a_method_that_does_not_exist_is_an_error_that_says_what_there_is():
    with pytest.raises(InputError, match="NOPE"):
        measure(JSE_TOY, TRAIN, TEST, compare=["LEACE", "NOPE"])


def test_a_method_that_cannot_be_fitted_is_a_line_with_its_reason():
    Z, y, concept = TRAIN
    # Two rows of a group are not enough for the folds of INLP's tests; the removal was fitted before.
    few = (y == "land") & (concept == "sea")
    keep = ~few | (np.cumsum(few) <= 1)
    rows = measure(JSE_TOY, (Z[keep], y[keep], concept[keep]), TEST, compare=["INLP", "LEACE"])
    inlp, leace = rows.results[2:]
    assert inlp.accuracy is None
    assert "row" in inlp.problem
    assert leace.accuracy is not None
    assert not leace.problem


def test_the_same_arguments_give_the_same_findings():
    options = {"compare": ["RLACE"], "max_points": 100, "texts": [f"row {i}" for i in range(700)]}
    one, two = (measure(JSE_TOY, TRAIN, TEST, **options) for _ in range(2))
    for part in fields(one):
        assert _same(getattr(one, part.name), getattr(two, part.name)), part.name
    assert not np.array_equal(one.drawn_rows, measure(JSE_TOY, TRAIN, TEST, **options, seed=1).drawn_rows)


def _same(a, b):
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if hasattr(a, "__dataclass_fields__"):
        return all(_same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(_same, a, b))
    return a == b


def test_what_was_passed_is_left_alone():
    jse = removal(TRAIN)
    before = dict(vars(jse))
    state = np.random.get_state()[1].copy()  # noqa: NPY002 — the one that others may rely on
    measure(jse, TRAIN, TEST)
    assert vars(jse).keys() == before.keys()  # no certificate_ either
    assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_rows_come_in_many_forms(found):
    import torch

    forms = {
        "Rows": (Rows(*TRAIN), Rows(*TEST)),
        "frames": tuple((pd.DataFrame(Z), pd.Series(y), pd.Series(c)) for Z, y, c in (TRAIN, TEST)),
        "tensors": tuple((torch.from_numpy(rows[0]), rows[1].tolist(), rows[2].tolist()) for rows in (TRAIN, TEST)),
    }
    for name, (train, test) in forms.items():
        again = measure(JSE_TOY, train, test)
        assert_array_equal(again.after.accuracy.correct, found.after.accuracy.correct, err_msg=name)


def test_columns_in_another_order_are_refused():
    names = [f"f{i}" for i in range(8)]
    train, test = (pd.DataFrame(rows[0], columns=names) for rows in (TRAIN, TEST))
    jse = JSE(random_state=0).fit(train, TRAIN[1], concept=TRAIN[2])
    measure(jse, (train, *TRAIN[1:]), (test, *TEST[1:]))
    measure(jse, TRAIN, TEST)  # without names there is nothing to compare
    with pytest.raises(InputError, match="fit"):
        measure(jse, (train, *TRAIN[1:]), (test[names[::-1]], *TEST[1:]))


def test_rows_without_a_known_concept_are_drawn_but_in_no_group():
    concept = TEST[2].astype(object)
    concept[:60] = None
    found = measure(JSE_TOY, TRAIN, (TEST[0], TEST[1], concept))
    assert_array_equal(found.group[:60], -1)
    assert found.group[60:].min() == 0
    assert found.after.accuracy.rows.sum() == 640
    assert len(found.correct_after) == len(found.view.before) == 700
    assert set(found.drawn_rows) == set(range(700))
    assert found.certificate.rows == 640


def test_the_most_frequent_class_is_that_of_all_test_rows():
    concept = np.where(TEST[1] == "land", TEST[2], None)
    concept[:100] = TEST[2][:100]
    found = measure(JSE_TOY, TRAIN, (TEST[0], TEST[1], concept))
    most = max(np.mean(TEST[1] == "land"), np.mean(TEST[1] == "water"))
    assert found.before.accuracy.rows[0].sum() > 0.8 * found.before.accuracy.rows.sum()  # of those in a group
    said = f"Always predicting the most frequent class gets {100 * most:.1f} % of the rows right"
    assert sum(said in sentence for sentence in verdict(found)) == 1


def test_a_value_that_stands_for_not_known_is_the_removals():
    codes = (TRAIN[2] == "sea").astype(int)
    codes[::5] = -1
    jse = JSE(missing_concept=-1, random_state=0).fit(TRAIN[0], TRAIN[1], concept=codes)
    test = (TEST[2] == "sea").astype(int)
    test[:50] = -1
    found = measure(jse, (TRAIN[0], TRAIN[1], codes), (TEST[0], TEST[1], test), compare=["LEACE", "GroupWeighted"])
    assert (found.group == -1).sum() == 50
    assert len(found.groups) == 4
    assert not any(judged.problem for judged in found.results)


def several(n, seed):
    """Three main classes; a concept of two and one of three classes, each with a direction of its own."""
    rng = np.random.default_rng(seed)
    y, light, size = rng.integers(3, size=n), rng.integers(2, size=n), rng.integers(3, size=n)
    Z = rng.standard_normal((n, 9))
    Z[np.arange(n), y] += 3
    Z[:, 3] += 4 * light
    Z[np.arange(n), 4 + size] += 4
    return (
        Z,
        np.array(["ant", "bee", "cat"])[y],
        pd.DataFrame({"light": np.array(["day", "night"])[light], "size": size}),
    )


def test_several_concepts_and_more_than_two_classes():
    train, test = several(600, 0), several(400, 1)
    jse = JSE(penalty=1e-3, random_state=0).fit(train[0], train[1], concept=train[2])
    found = measure(jse, train, test, main="animal", compare=["LEACE", "GroupWeighted"])
    assert found.concepts == ("light", "size")
    assert len(found.groups) == 3 * 2 * 3
    assert found.groups[0] == "animal=ant, light=day, size=0"
    kinds = ("light", "size=0", "size=1", "size=2")
    assert set(found.traces) == {f"{kind}, animal={animal}" for kind in kinds for animal in ("ant", "bee", "cat")}
    assert set(found.nonlinear) == set(found.after.leakage) == {"light", "size"}
    assert set(found.certificate.covariance_left) == {"light", "size"}
    assert found.view.boundary_before is None
    assert found.view.boundary_after is None
    names = [axis.name for axis in found.view.axes if axis.role == "spurious"]
    assert names[0] == "light 1"
    assert len(set(names)) == len(names) == min(6, found.n_removed)
    # The first direction is that of the light, and says nothing about the size.
    first = found.view.before[:, 0]
    night = test[2]["light"] == "night"
    assert first[night].mean() - first[~night].mean() > 2
    assert not any(judged.problem for judged in found.results)
    assert any(axis.name == "head, before" for axis in found.view.axes)
    mapping = {name: test[2][name].to_numpy() for name in ("size", "light")}  # in any order
    again = measure(jse, train, (test[0], test[1], mapping), main="animal")
    assert_array_equal(again.group, found.group)
    with pytest.raises(InputError, match="light"):
        measure(jse, train, (test[0], test[1], test[2][["light"]]))


def test_directions_of_later_classes_of_a_multi_class_layer_lie_higher():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=600)
    Z = rng.standard_normal((600, 8))
    Z[:, 2] += 3.0 * y
    concept = rng.integers(2, size=600)
    Z[:, 0] += 3 * concept
    jse = JSE(random_state=0).fit(Z, y, concept=concept)
    found = measure(jse, (Z[:300], y[:300], concept[:300]), (Z[300:], y[300:], concept[300:]))
    at = [axis.name for axis in found.view.axes].index("head, before")
    means = [found.view.before[y[300:] == k, at].mean() for k in range(3)]
    assert means[0] < means[1] < means[2]


def test_where_nothing_was_removed_there_is_still_something_to_see():
    train, test = nothing_to_find(), nothing_to_find(500, seed=3)
    with pytest.warns(NothingRemovedWarning):
        jse = removal(train)
    found = measure(jse, train, test)
    assert found.n_removed == 0
    assert "Nothing was removed" in found.warnings[0]
    assert not any(axis.role == "spurious" for axis in found.view.axes)
    assert len(found.view.axes) >= 2
    assert np.linalg.cond(found.view.gram) < 1e6  # no two axes in one direction
    assert_allclose(found.view.after, found.view.before, atol=1e-9)
    assert found.shared_variance is None
    assert found.angles == ()
    assert found.after.average_change.value == 0.0


def test_a_second_axis_where_one_direction_is_all_there_is():
    train, test = nothing_to_find(), nothing_to_find(500, seed=3)
    jse = JSE(random_state=0, max_spurious=0, max_main=0).fit(train[0], train[1], concept=train[2])
    found = measure(jse, train, test)
    assert [axis.name for axis in found.view.axes] == ["head, before", "largest variance"]
    assert abs(found.view.gram[0, 1]) < 1e-9


@pytest.mark.parametrize("method", [LEACE, RLACE, INLP])
def test_methods_without_a_main_task_subspace(method):
    remover = method().fit(TRAIN[0], TRAIN[1], concept=TRAIN[2])
    found = measure(remover, TRAIN, TEST, main="bird", concept="background")
    assert found.method == method.__name__
    assert found.n_main == 0
    assert found.angles == ()
    assert found.shared_variance is None
    assert [axis.role for axis in found.view.axes][:1] == ["spurious"]
    assert bool(found.traces) == (method is INLP)
    assert bool(found.trace_text) == (method is not INLP)
    # Also of an oblique removal: what is looked along is what it takes out.
    spurious = [i for i, axis in enumerate(found.view.axes) if axis.role == "spurious"]
    assert np.abs(found.view.before[:, spurious]).max() > 1
    assert np.abs(found.view.after[:, spurious]).max() < 1e-9


def test_variance_in_common_is_that_of_the_test_rows(found):
    covariance = np.cov(TEST[0].T, bias=True)
    assert found.shared_variance == pytest.approx(shared_variance(JSE_TOY.spurious_, JSE_TOY.main_, covariance))
    assert_allclose(found.angles, 90.0, atol=1e-6)


def test_rows_at_the_ends_of_an_axis_are_those_farthest_out(found):
    for ends in found.extremes:
        scores = found.view.before[:, ends.axis]
        assert_array_equal(scores[ends.low], np.sort(scores)[: len(ends.low)])
        assert_array_equal(scores[ends.high], np.sort(scores)[::-1][: len(ends.high)])
    assert [found.view.axes[ends.axis].role for ends in found.extremes] == ["spurious"] + ["main"] * found.n_main


def test_at_least_one_row_is_drawn():
    with pytest.raises(InputError, match="max_points"):
        measure(JSE_TOY, TRAIN, TEST, max_points=0)
    assert len(measure(JSE_TOY, TRAIN, TEST, max_points=1).drawn_rows) == 1


def test_test_rows_that_share_their_concept_are_refused_by_name():
    at_sea = TEST[2] == "sea"
    with pytest.raises(InputError, match="background"):
        measure(JSE_TOY, TRAIN, tuple(part[at_sea] for part in TEST), concept="background")


def test_the_angle_is_that_of_the_directions_drawn():
    """An oblique removal subtracts other directions than it reads; axes, angle and variance are of the latter."""
    found = measure(SPLINCE().fit(TRAIN[0], TRAIN[1], concept=TRAIN[2]), TRAIN, TEST)
    (spurious,), (main,) = (
        [k for k, axis in enumerate(found.view.axes) if axis.role == role] for role in ("spurious", "main")
    )
    drawn = np.degrees(np.arccos(abs(found.view.gram[spurious, main])))
    assert_allclose(found.angles, [drawn], atol=1e-6)
    scores = found.view.before
    correlation = np.corrcoef(scores[:, spurious], scores[:, main])[0, 1]
    assert found.shared_variance == pytest.approx(correlation**2, abs=1e-9)


def test_rows_of_the_fit_are_noticed():
    found = measure(JSE_TOY, TRAIN, TRAIN)
    assert any("used in the fit" in warning for warning in found.warnings)
    half = tuple(np.concatenate([a[:300], b[:300]]) for a, b in zip(TRAIN, TEST, strict=True))
    other = removal(toy(800, seed=9))
    mixed = measure(other, TRAIN, half)  # the removal has seen neither, the head has
    assert any("300 of 600 test rows are training rows" in warning for warning in mixed.warnings)
    assert not measure(other, TRAIN, TEST).warnings


def test_a_worst_group_that_fell_and_a_lost_task_are_said():
    train, test = entangled_rows(), entangled_rows(1500, seed=1)
    with pytest.warns(TaskLostWarning):
        jse = removal(train, cv=0.2)
    found = measure(jse, train, test)
    assert any("The removal may have taken the task with it" in warning for warning in found.warnings)
    # Erasing the task itself: what is left is worse for somebody.
    Z, y, concept = TRAIN
    wrong = JSE(metric=0.0, random_state=0).fit(Z, concept, concept=y)
    assert any("Worst-group accuracy fell" in warning for warning in measure(wrong, TRAIN, TEST).warnings)


def test_small_and_empty_groups_are_named_and_do_no_harm():
    keep = ~((TEST[1] == "land") & (TEST[2] == "sea"))
    few = np.flatnonzero((TEST[1] == "water") & (TEST[2] == "forest"))
    keep[few[4:]] = False
    found = measure(JSE_TOY, TRAIN, tuple(part[keep] for part in TEST), main="bird", concept="background")
    (warning,) = found.warnings
    assert "bird=land, background=sea (0)" in warning
    assert "bird=water, background=forest (4)" in warning
    assert np.isnan(found.after.accuracy.accuracy[0, 1])
    assert found.after.group_average_change.low < found.after.group_average_change.high


def test_a_class_too_rare_to_be_probed_is_a_remark():
    y = TEST[1].copy()
    rare = np.flatnonzero(y == "water")
    y[rare[2:]] = "land"
    found = measure(JSE_TOY, TRAIN, (TEST[0], y, TEST[2]), main="bird")
    assert found.certificate.task is None
    assert any(remark.startswith("bird: not probed") for remark in found.origin.remarks)
    concept = TEST[2].copy()
    concept[np.flatnonzero(concept == "sea")[2:]] = "forest"
    found = measure(JSE_TOY, TRAIN, (TEST[0], TEST[1], concept), concept="background", compare=["LEACE"])
    assert "background" not in found.after.leakage
    assert any(remark.startswith("background: not probed") for remark in found.origin.remarks)
    assert found.results[2].accuracy is not None


def test_the_certificate_is_that_of_the_removal(found):
    told = JSE_TOY.certificate(TEST[0], TEST[1], TEST[2])
    assert found.certificate.probe["background"] == told.probe["concept"]
    assert found.certificate.distortion == told.distortion
    assert found.after.leakage["background"] == told.probe["concept"][1]
    assert found.before.leakage["background"] == told.probe["concept"][0]
    assert found.nonlinear_before["background"] == leakage(TEST[0], TEST[2], probe="mlp", random_state=0)
    assert found.nonlinear["background"] == leakage(JSE_TOY.transform(TEST[0]), TEST[2], probe="mlp", random_state=0)


def test_rows_without_a_name_are_called_by_their_number_in_the_file(found):
    numbered = measure(JSE_TOY, TRAIN, TEST, row_numbers=("rows.csv", range(2, 702)))
    assert (numbered.ids[0], numbered.numbered_in_file) == ("row 3", "rows.csv")
    named = measure(JSE_TOY, TRAIN, TEST, row_numbers=("rows.csv", range(700)), ids=[f"r{k}" for k in range(700)])
    assert (named.ids[1], named.numbered_in_file) == ("r1", "")
    assert (found.ids[1], found.numbered_in_file) == ("1", "")


def test_every_step_is_reported():
    heard = []
    measure(JSE_TOY, TRAIN, TEST, compare=["LEACE"], callback=heard.append)
    assert len(heard) == N_STEPS + 1
    assert "LEACE" in heard


def test_origin_says_how_to_get_the_same_again():
    jse = removal(TRAIN, significance_level=0.01)
    validation = toy(400, seed=5)
    origin = measure(jse, TRAIN, TEST, validation=validation, command="unspur report x.npz").origin
    assert origin.parameters["significance_level"] == 0.01
    assert "cv" in origin.parameters
    assert "verbose" not in origin.parameters
    assert {"unspur", "python", "numpy", "scipy", "scikit-learn"} <= set(origin.versions)
    assert origin.digests["rows of the fit"] == jse.training_hash_ == origin.digests["training rows"]
    assert origin.digests["test rows"] != origin.digests["training rows"]
    assert origin.digests["validation rows"].startswith("400-")
    assert origin.command == "unspur report x.npz"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda: {"remover": make_pipeline(StandardScaler(), JSE())},
            "Pipeline",
        ),
        (lambda: {"test": TEST[:2]}, "three"),
        (lambda: {"test": (TEST[0][:, :5], *TEST[1:])}, "5 features"),
        (lambda: {"train": toy(300, d=5), "test": toy(300, d=5)}, "8 features"),
        (lambda: {"test": (np.where(TEST[0] > 3, np.nan, TEST[0]), *TEST[1:])}, "NaN"),
        (lambda: {"test": (TEST[0], TEST[1][:-1], TEST[2])}, "699"),
        (lambda: {"test": (TEST[0], np.where(TEST[1] == "land", "air", TEST[1]), TEST[2])}, "'air'"),
        (lambda: {"ids": ["a"]}, "ids"),
        (lambda: {"pictures": np.zeros((3, 4, 4)), "texts": ["a"]}, "both"),
        (lambda: {"test": (pd.DataFrame({"a": ["x"] * 700}), *TEST[1:])}, "numbers"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(change, message):
    arguments = {"remover": JSE_TOY, "train": TRAIN, "test": TEST, **change()}
    with pytest.raises(InputError, match=message):
        measure(**arguments)


def test_a_main_label_that_is_missing_is_an_error():
    y = TEST[1].astype(object)
    y[3] = None
    with pytest.raises(LabelError, match="bird"):
        measure(JSE_TOY, TRAIN, (TEST[0], y, TEST[2]), main="bird")


def test_no_warning_escapes():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measure(JSE_TOY, TRAIN, TEST, compare=["INLP", "SAL", "SPLINCE"])
