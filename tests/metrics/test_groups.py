"""Group accuracies against cases worked out by hand, against fairlearn, and intervals against simulated truth."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom, binomtest
from sklearn.metrics import accuracy_score

from unspur.exceptions import InputError, LabelError
from unspur.metrics import GroupAccuracy, group_accuracy
from unspur.metrics.groups import exact_bounds

Y = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
CONCEPT = np.array([0, 0, 0, 0, 1, 0, 1, 1, 1, 1])
RIGHT = np.array([1, 1, 1, 0, 1, 0, 1, 1, 0, 0])


def several(n=600, seed=0):
    """Three main classes, two concepts of two and three classes, predictions that are right in 70 % of rows."""
    rng = np.random.default_rng(seed)
    y = rng.choice(["ant", "bee", "cat"], size=n)
    concepts = pd.DataFrame({"light": rng.choice(["day", "night"], size=n), "size": rng.integers(3, size=n)})
    predicted = np.where(rng.random(n) < 0.7, y, rng.choice(["ant", "bee", "cat"], size=n))
    return y, predicted, concepts


def wilson(correct, rows, level):
    """A score interval, which covers at its level on average only."""
    pairs = zip(np.atleast_1d(correct), np.atleast_1d(rows), strict=True)
    found = [binomtest(int(x), int(n)).proportion_ci(level, method="wilson") for x, n in pairs]
    return np.array([(bounds.low, bounds.high) for bounds in found])


def counted(correct, rows):
    """Groups with these counts."""
    rows, correct = np.asarray(rows), np.asarray(correct)
    return GroupAccuracy(rows, correct, tuple(tuple(range(k)) for k in rows.shape))


def test_accuracies_and_both_averages():
    result = GroupAccuracy.of(RIGHT, Y, CONCEPT)
    assert_allclose(result.accuracy, [[0.75, 1.0], [0.0, 0.5]])
    assert result.worst == 0.0
    assert result.worst_group == (1, 0)
    assert result.group_average == pytest.approx((0.75 + 1 + 0 + 0.5) / 4)
    assert result.average == pytest.approx(0.6)


def test_fairlearn_agrees_on_several_classes_and_concepts():
    y, predicted, concepts = several()
    result = group_accuracy(y, predicted, concepts)
    assert result.names == ("main", "light", "size")
    assert result.concept_classes == (("day", "night"), (0, 1, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fairlearn's own use of pandas
        frame = pytest.importorskip("fairlearn.metrics").MetricFrame(
            metrics=accuracy_score, y_true=y, y_pred=predicted, sensitive_features=concepts.assign(y=y)
        )
    for (light, size, main), value in frame.by_group.items():
        index = result.classes.index(main), ("day", "night").index(light), size
        assert result.accuracy[index] == pytest.approx(value)
    assert result.worst == pytest.approx(frame.group_min())
    assert result.average == pytest.approx(frame.overall)
    assert len(frame.by_group) == result.rows.size == 18


def test_tables_per_concept_are_those_of_each_concept_alone():
    y, predicted, concepts = several()
    tables = group_accuracy(y, predicted, concepts).per_concept()
    assert list(tables) == ["light", "size"]
    for name, table in tables.items():
        alone = group_accuracy(y, predicted, {name: concepts[name]})
        assert_array_equal(table.rows, alone.rows)
        assert_array_equal(table.correct, alone.correct)
        assert (table.names, table.concept_classes) == (alone.names, alone.concept_classes)
    assert tables["light"].rows.shape != tables["size"].rows.shape


def test_ways_to_pass_concepts_agree():
    y, predicted, concepts = several()
    frame = group_accuracy(y, predicted, concepts[["size"]])
    column = group_accuracy(y, predicted, concepts["size"])
    assert_array_equal(frame.correct, column.correct)
    both = np.column_stack([concepts["size"], concepts["light"] == "night"])
    array = group_accuracy(y, predicted, both)
    assert array.names == ("main", "concept[0]", "concept[1]")
    assert_array_equal(array.correct, group_accuracy(y, predicted, concepts[["size", "light"]]).correct)


def test_rows_without_a_concept_are_in_no_group():
    y, predicted, concepts = several()
    gaps = concepts.assign(light=concepts["light"].where(np.arange(600) % 3 > 0, None))
    kept = np.arange(600) % 3 > 0
    assert_array_equal(
        group_accuracy(y, predicted, gaps).rows, group_accuracy(y[kept], predicted[kept], concepts[kept]).rows
    )


def test_rows_without_a_concept_count_in_the_average_over_rows():
    y, predicted, concepts = several()
    unknown = np.arange(600) % 3 == 0
    predicted = np.where(unknown, y, predicted)  # right where the concept is not known
    result = group_accuracy(y, predicted, concepts["light"].where(~unknown, None))
    assert result.average == pytest.approx(accuracy_score(y, predicted))
    grouped = group_accuracy(y[~unknown], predicted[~unknown], concepts["light"][~unknown])
    assert grouped.average < result.average - 0.01  # control: what it would be without them
    assert (result.worst, result.group_average) == (grouped.worst, grouped.group_average)
    low, high = result.average_interval()
    assert (low, high) == tuple(exact_bounds(round(result.average * 600), 600, 0.025))
    assert (result.ungrouped_rows, result.ungrouped_correct) == (200, 200)
    assert result.majority == max(np.mean(y == name) for name in ["ant", "bee", "cat"]) != grouped.majority
    saved = result.to_dict()
    assert (saved["rows"], saved["ungrouped_rows"], saved["ungrouped_correct"]) == (600, 200, 200)
    assert sum(group["rows"] for group in saved["groups"]) == 400
    line = next(line for line in str(result).splitlines() if line.startswith("no concept, in no group"))
    assert line.split()[-2:] == ["200", "100.0"]
    assert "no concept" not in str(grouped)
    for table in (
        group_accuracy(y, predicted, concepts.where(~np.column_stack([unknown, unknown]), None)).per_concept().values()
    ):
        assert table.average == pytest.approx(result.average)


def test_labels_that_are_series_are_called_by_their_names():
    y, predicted, concepts = several()
    animal = pd.Series(y, name="animal")
    assert group_accuracy(animal, predicted, concepts["light"]).labels()[0] == "animal=ant, light=day"
    assert group_accuracy(animal, predicted, concepts).names == ("animal", "light", "size")
    saved = group_accuracy(animal, predicted, concepts["light"]).to_dict()
    assert saved["names"] == ["animal", "light"]
    assert saved["groups"][0] | {"main": "ant", "concept": "day"} == saved["groups"][0]  # keys are always the same
    # Names that say nothing, or what another label is called, are not used.
    assert group_accuracy(y, predicted, concepts["light"].to_numpy()).names == ("main", "concept")
    assert group_accuracy(pd.Series(y), predicted, concepts["light"].rename(0)).names == ("main", "concept")
    assert group_accuracy(animal.rename("light"), predicted, concepts["light"]).names == ("main", "light")
    assert group_accuracy(animal.rename("light"), predicted, concepts["light"].rename("main")).names == (
        "light",
        "main",
    )


@pytest.mark.parametrize("nothing", [None, np.nan])
def test_missing_predictions_are_an_error_not_mistakes(nothing):
    y, concept = np.tile([0.0, 0.0, 1.0, 1.0], 10), np.tile([0, 1], 20)
    predicted = y.astype(object if nothing is None else float)
    predicted[:3] = nothing
    with pytest.raises(LabelError, match="3 of 40"):
        group_accuracy(y, predicted, concept)
    assert group_accuracy(y[3:], predicted[3:], concept[3:]).worst == 1.0


def test_predictions_of_another_kind_are_an_error_not_zero():
    with pytest.raises(LabelError, match="no class of y"):
        group_accuracy(["0", "1", "0", "1"], [0, 1, 0, 1], [0, 0, 1, 1])
    assert group_accuracy([0, 1, 0, 1], [1, 0, 1, 0], [0, 0, 1, 1]).average == 0.0  # all wrong is a result
    with pytest.raises(LabelError, match="3 predictions for 4 rows"):
        group_accuracy([0, 1, 0, 1], [0, 1, 0], [0, 0, 1, 1])


def test_exact_interval_of_a_textbook_case():
    """81 of 263: Clopper and Pearson's as printed in Newcombe (1998), 0.2527 to 0.3676."""
    right = np.r_[np.arange(263) < 81, np.ones(3)]
    result = GroupAccuracy.of(right, np.r_[np.zeros(263), 0, 1, 1], np.r_[np.zeros(263), 1, 0, 1])
    assert_allclose(result.interval()[0, 0], [0.2527, 0.3676], atol=5e-5)
    assert result.interval()[1, 1, 1] == pytest.approx(1.0)
    with pytest.raises(InputError, match="level"):
        result.interval(95)


@pytest.mark.parametrize("rows", [1, 2, 10, 30, 100, 500])
def test_the_interval_of_a_group_covers_at_every_accuracy(rows):
    """Summed over all outcomes, not drawn; a score interval falls to 84 %."""
    counts = np.arange(rows + 1)
    truth = np.concatenate([np.linspace(0, 1, 401), np.geomspace(1e-5, 1e-2, 100), 1 - np.geomspace(1e-5, 1e-2, 100)])
    mass = binom.pmf(counts, rows, truth[:, None])

    def covered(bounds):
        return np.sum(mass * ((bounds[:, 0] <= truth[:, None]) & (truth[:, None] <= bounds[:, 1])), axis=1)

    ours = np.array([counted([[x, 0], [0, 0]], [[rows, 0], [0, 0]]).interval()[0, 0] for x in counts])
    assert covered(ours).min() >= 0.95 - 1e-9
    assert covered(wilson(counts, np.full(rows + 1, rows), 0.95)).min() < 0.86
    assert_array_equal(ours, [counted([[x, 0], [0, 0]], [[rows, 0], [0, 0]]).average_interval() for x in counts])


@pytest.mark.parametrize(
    "truth",
    [[0.8] * 4, [0.7, 0.8, 0.8, 0.9], [0.7, 0.7, 0.9, 0.95], [0.97] * 4, [0.999] * 8, [0.5, 0.99, 0.99, 0.99]],
    ids=str,
)
def test_the_interval_covers_the_true_worst_accuracy(truth):
    """At least at its level, equal groups included; the interval of the group that looks worst does not."""
    rng, truth = np.random.default_rng(0), np.array(truth)
    rows = rng.integers(30, 300, size=(800, len(truth)))
    correct = rng.binomial(rows, truth)
    covered, naive = [], []
    for n, x in zip(rows, correct, strict=True):
        low, high = counted(x, n).worst_interval(0.9)
        covered.append(low <= truth.min() <= high)
        g = np.argmin(x / n)
        (one,) = wilson(x[g], n[g], 0.9)
        naive.append(one[0] <= truth.min() <= one[1])
    assert np.mean(covered) >= 0.9 - 0.02  # two standard errors
    if len(set(truth)) == 1:
        assert np.mean(naive) < 0.85


def test_an_absent_group_is_an_error_not_a_number():
    with pytest.raises(InputError, match="No rows with main=land, concept=sea"):
        GroupAccuracy.of([1, 1], [0, 1], [0, 1], classes=("land", "water"), concept_classes=("sky", "sea"))
    with pytest.raises(InputError, match="worst"):
        GroupAccuracy.of([1, 1, 1], [0, 1, 1], [0, 1, 0])
    with pytest.raises(InputError, match="no rows"):
        GroupAccuracy.of([], [], [], empty="nan")
    with pytest.raises(InputError, match="Codes"):
        GroupAccuracy.of(RIGHT, Y, CONCEPT + 1, concept_classes=(0, 1))
    with pytest.raises(InputError, match="empty is"):
        GroupAccuracy.of(RIGHT, Y, CONCEPT, empty="zero")


def test_an_absent_group_is_nan_when_asked_for():
    right, y, concept = RIGHT[Y + CONCEPT != 1], Y[Y + CONCEPT != 1], CONCEPT[Y + CONCEPT != 1]
    result = GroupAccuracy.of(right, y, concept, empty="nan")
    assert_allclose(result.accuracy, [[0.75, np.nan], [np.nan, 0.5]])
    assert result.worst == 0.5
    assert result.group_average == pytest.approx(0.625)
    assert_array_equal(np.isnan(result.interval()[..., 0]), [[False, True], [True, False]])
    assert (
        result.worst_interval() == counted(result.correct[[0, 1], [0, 1]], result.rows[[0, 1], [0, 1]]).worst_interval()
    )
    assert "none" in str(result)
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["groups"][1]["accuracy"] is None


def test_json_has_everything_in_plain_numbers():
    y, predicted, concepts = several()
    one = group_accuracy(y, predicted, concepts["size"].to_numpy())
    saved = json.loads(json.dumps(one.to_dict(), allow_nan=False))
    assert [(g["main"], g["concept"]) for g in saved["groups"]][:4] == [("ant", 0), ("ant", 1), ("ant", 2), ("bee", 0)]
    assert sum(g["rows"] for g in saved["groups"]) == 600
    assert saved["worst_low95"] < saved["worst"] < saved["worst_high95"]
    assert {"group_average", "average"} < set(saved)
    two = json.loads(json.dumps(group_accuracy(y, predicted, concepts).to_dict(), allow_nan=False))
    assert two["groups"][0]["concept"] == {"light": "day", "size": 0}


def test_a_frame_has_a_line_for_each_group():
    pandas = pytest.importorskip("pandas")
    y = pandas.Series(["land", "land", "water", "water", "water", "land"], name="bird")
    concept = pandas.Series(["sea", "shore", "sea", "shore", "shore", None], name="background")
    found = group_accuracy(y, ["land", "water", "water", "water", "land", "land"], concept)
    frame = found.to_frame()
    assert list(frame.index.names) == ["bird", "background"]
    assert list(frame.columns) == ["rows", "correct", "accuracy", "low95", "high95"]
    assert frame.loc[("water", "shore"), "accuracy"] == 0.5
    assert frame["rows"].sum() == 5  # the row in no group is not in it
    assert frame["accuracy"].unstack().loc["land", "shore"] == 0.0
    np.testing.assert_array_equal(frame[["low95", "high95"]], found.interval().reshape(-1, 2))
    several = group_accuracy(y[:4], y[:4], {"a": [0, 1, 0, 1], "b": [0, 0, 1, 1]}, empty="nan").to_frame()
    assert list(several.index.names) == ["bird", "a", "b"]
    assert several.loc[("land", 0, 1)].isna().tolist() == [False, False, True, True, True]


def test_probabilities_are_not_taken_for_classes():
    y, place = np.arange(40) % 2, np.arange(40) < 20
    chances = np.where(y == 1, 1.0, 0.25)
    for form in (float, object):
        with pytest.raises(LabelError, match=r"Predicted values such as 0\.25 are no class of y"):
            group_accuracy(y, chances.astype(form), place)
    assert group_accuracy(y, np.where(y == 1, 1.0, 0.0), place).average == 1.0  # control: whole numbers are classes


def test_the_weighted_average_uses_training_shares_and_is_another_number():
    result = GroupAccuracy.of(RIGHT, Y, CONCEPT)
    assert result.weighted_average([[40, 10], [20, 30]]) == pytest.approx(0.4 * 0.75 + 0.1 * 1 + 0.3 * 0.5)
    assert result.weighted_average(result.rows) == pytest.approx(result.average)
    assert result.weighted_average(np.ones((2, 2))) == pytest.approx(result.group_average)
    for wrong in ([0.5, 0.5], [[1, -1], [1, 1]], np.zeros((2, 2)), [[np.nan, 1], [1, 1]]):
        with pytest.raises(InputError, match="train_shares"):
            result.weighted_average(wrong)


def test_the_plug_in_minimum_is_biased_low_and_the_correction_takes_part_of_it_back():
    rng = np.random.default_rng(0)

    def biases(truth, runs=200):
        n = np.full((2, 2), 500)
        results = [counted(rng.binomial(n, np.reshape(truth, (2, 2))), n) for _ in range(runs)]
        points = np.array([(r.worst, r.worst_corrected) for r in results])
        return 100 * (points.mean(axis=0) - np.min(truth))

    plain, corrected = biases([0.8] * 4)
    assert -2.3 < plain < -1.5
    assert 0.65 * plain < corrected < 0.4 * plain
    plain, corrected = biases([0.6, 0.9, 0.9, 0.9])  # one group is clearly the worst: nothing to correct
    assert abs(corrected - plain) < 0.05


def test_training_rows_are_counted_in_the_same_groups():
    y, predicted, concepts = several()
    result = group_accuracy(y, predicted, concepts)
    assert_array_equal(result.group_counts(y, concepts), result.rows)
    some = np.flatnonzero((y != "bee") | (concepts["size"] == 1))
    counts = result.group_counts(y[some], concepts.iloc[some])
    assert counts.sum() == len(some)
    assert counts[1, :, 0].sum() == 0 < counts[1, :, 1].sum()
    with pytest.raises(LabelError, match="groups"):
        result.group_counts(np.where(y == "bee", "dog", y), concepts)
    one = group_accuracy(y, predicted, concepts["size"])
    assert_array_equal(one.group_counts(y, concepts["size"]), one.rows)
