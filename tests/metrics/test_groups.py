"""Group accuracies against cases worked out by hand, against fairlearn, and intervals against simulated truth."""

import json
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom, binomtest
from sklearn.metrics import accuracy_score

from tests.optional import pandas as pd
from unspur.exceptions import InputError, LabelError
from unspur.labels import label_columns
from unspur.metrics import GroupAccuracy, group_accuracy, leakage
from unspur.metrics.groups import exact_bounds, expected_minimum, simultaneous_bounds
from unspur.report.tables import group_table

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


def test_rows_are_counted_by_the_names_of_concepts():
    rng = np.random.default_rng(0)
    y, predicted = rng.integers(2, size=(2, 500))
    frame = pd.DataFrame({"a": rng.integers(2, size=500), "b": 1 * (rng.random(500) < 0.2)})
    result, turned = group_accuracy(y, predicted, frame), frame[["b", "a"]]
    assert_array_equal(result.group_counts(y, turned), result.rows)
    assert_array_equal(result.group_counts(y, frame.to_numpy()), result.rows)
    assert not np.array_equal(
        result.group_counts(y, turned.to_numpy()), result.rows
    )  # the control: arrays have no names
    with pytest.raises(LabelError, match="The concepts are a, c; a, b are evaluated here"):
        result.group_counts(y, frame.rename(columns={"b": "c"}))


class ColumnFrame:
    """A DataFrame as polars has it: going through it yields the columns themselves, not their names."""

    def __init__(self, columns):
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name):
        return pd.Series(self._columns[name])

    def __iter__(self):
        return iter(self._columns.values())

    def to_numpy(self):
        return np.column_stack(list(self._columns.values()))


@pytest.mark.parametrize("concepts", [1, 2])
def test_frames_that_are_not_of_pandas_are_read_by_their_columns(concepts):
    y, predicted, frame = several()
    frame = frame[list(frame.columns[:concepts])]
    other = ColumnFrame({name: frame[name].to_numpy() for name in frame.columns})
    one, two = (group_accuracy(y, predicted, concept) for concept in (frame, other))
    assert str(one) == str(two)
    assert_array_equal(one.group_counts(y, other), one.rows)
    assert label_columns(other, len(y), "concept").keys() == set(frame.columns)


def test_accuracies_and_both_averages():
    result = GroupAccuracy.of(RIGHT, Y, CONCEPT)
    assert_allclose(result.accuracy, [[0.75, 1.0], [0.0, 0.5]])
    assert result.worst == 0.0
    assert result.worst_group == (1, 0)
    assert result.group_average == pytest.approx((0.75 + 1 + 0 + 0.5) / 4)
    assert result.average == pytest.approx(0.6)


def test_the_weighted_average_uses_training_shares_and_is_another_number():
    result = GroupAccuracy.of(RIGHT, Y, CONCEPT)
    assert result.weighted_average([[0.4, 0.1], [0.2, 0.3]]) == pytest.approx(0.4 * 0.75 + 0.1 * 1 + 0.3 * 0.5)
    assert result.weighted_average([[40, 10], [20, 30]]) == pytest.approx(0.55)  # counts do as well
    assert result.weighted_average(result.rows) == pytest.approx(result.average)
    assert result.weighted_average(np.ones((2, 2))) == pytest.approx(result.group_average)
    for wrong in ([0.5, 0.5], [[1, -1], [1, 1]], np.zeros((2, 2)), [[np.nan, 1], [1, 1]]):
        with pytest.raises(InputError, match="train_shares"):
            result.weighted_average(wrong)


def test_training_rows_are_counted_in_the_same_groups():
    y, predicted, concepts = several()
    result = group_accuracy(y, predicted, concepts)
    assert_array_equal(result.group_counts(y, concepts), result.rows)
    some = np.flatnonzero((y != "bee") | (concepts["size"] == 1))
    counts = result.group_counts(y[some], concepts.iloc[some])
    assert counts.sum() == len(some)
    assert counts[1, :, 0].sum() == 0 < counts[1, :, 1].sum()
    with pytest.raises(LabelError, match="'dog', for which no accuracy is known"):
        result.group_counts(np.where(y == "bee", "dog", y), concepts)


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


def test_a_line_end_in_a_name_does_not_break_a_table():
    y, predicted, concepts = several()
    broken = group_accuracy(y, predicted, pd.Series(concepts["light"].str.replace("n", "\n\u2028"), name="li\nght"))
    whole = group_accuracy(y, predicted, pd.Series(concepts["light"].str.replace("n", "xx"), name="light"))
    for one, other in ((str(broken), str(whole)), (group_table({"ERM": broken}), group_table({"ERM": whole}))):
        assert len(one.splitlines()) == len(other.splitlines())
    assert "main=ant, li\\nght=\\n\\u2028ight" in str(broken)
    long = group_table({"ERM": broken}, main="the kind of animal that the picture shows")
    assert "ant, \\n\\u2028ight  " in long


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
    for text in (str(result), group_table({"ERM": result})):
        line = next(line for line in text.splitlines() if line.startswith("no concept, in no group"))
        assert line.split()[-2:] == ["200", "100.0"]
        assert max(map(len, text.splitlines())) <= 80
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


def test_no_concept_is_lost_by_its_name():
    y, predicted, concepts = several()
    light, size = concepts["light"], concepts["size"]
    for same in ({1: light, "1": size}, pd.DataFrame(np.column_stack([light, size]), columns=["a", "a"])):
        with pytest.raises(LabelError, match="Two concepts are called"):
            group_accuracy(y, predicted, same)
    with pytest.raises(LabelError, match="no columns"):
        group_accuracy(y, predicted, {})
    result = group_accuracy(y, predicted, {"main": light, "2": size})  # the name of the main label is free
    assert_array_equal(result.correct, group_accuracy(y, predicted, concepts).correct)
    assert_array_equal(result.group_counts(y, {"main": light, "2": size}), result.rows)
    with pytest.raises(LabelError, match="There are 1 concepts; 2 are evaluated"):
        result.group_counts(y, light)


@pytest.mark.parametrize("nothing", [None, np.nan])
def test_missing_predictions_are_an_error_not_mistakes(nothing):
    y, concept = np.tile([0.0, 0.0, 1.0, 1.0], 10), np.tile([0, 1], 20)
    predicted = y.astype(object if nothing is None else float)
    predicted[:3] = nothing
    with pytest.raises(LabelError, match="3 of 40 predictions are missing"):
        group_accuracy(y, predicted, concept)
    assert group_accuracy(y[3:], predicted[3:], concept[3:]).worst == 1.0


def test_predictions_of_another_kind_are_an_error_not_zero():
    with pytest.raises(LabelError, match="No predicted value"):
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


def test_numbers_of_rows_need_not_be_whole():
    whole = exact_bounds([7, 8], [10, 10], 0.025)
    between = exact_bounds(7.5, 10, 0.025)
    assert np.all(whole[0] < between)
    assert np.all(between < whole[1])
    assert np.all(exact_bounds(0.2, 0.4, 0.025) == pytest.approx([0.0, 1.0], abs=0.05))


def test_simultaneous_bounds_are_exact_at_sidak_level():
    rows, correct = np.array([40, 200, 25]), np.array([31, 199, 0])
    got = simultaneous_bounds(correct, rows, 0.9)
    for (low, high), n, x in zip(got, rows, correct, strict=True):
        exact = binomtest(int(x), int(n)).proportion_ci(0.9 ** (1 / 3), method="exact")
        assert low == pytest.approx(exact.low, abs=1e-9)
        assert high == pytest.approx(exact.high, abs=1e-9)
    alone = np.array([simultaneous_bounds(x, n, 0.9) for x, n in zip(correct, rows, strict=True)])
    assert np.all(alone[:, 1] - alone[:, 0] < got[:, 1] - got[:, 0])


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
        low, high = simultaneous_bounds(x, n, 0.9).min(axis=0)
        covered.append(low <= truth.min() <= high)
        g = np.argmin(x / n)
        (one,) = wilson(x[g], n[g], 0.9)
        naive.append(one[0] <= truth.min() <= one[1])
    assert np.mean(covered) >= 0.9 - 0.02  # two standard errors
    if len(set(truth)) == 1:
        assert np.mean(naive) < 0.85


def test_the_interval_covers_equal_groups_exactly_computed():
    """Enumerated, at every accuracy: four groups of 40. Wilson's bounds alone break down near one."""
    n, x = 40, np.arange(41)
    truth = np.concatenate([np.linspace(0.01, 0.99, 99), 1 - np.geomspace(1e-4, 1e-2, 60)])
    mass = binom.pmf(x, n, truth[:, None])
    low, high = np.array([simultaneous_bounds(np.full(4, i), np.full(4, n), 0.95)[0] for i in x]).T
    covers = (mass * (high >= truth[:, None])).sum(axis=1) ** 4 - (mass * (low > truth[:, None])).sum(axis=1) ** 4
    assert covers.min() >= 0.95
    upper = wilson(x, np.full(41, n), 0.95**0.25)[:, 1]
    assert ((mass * (upper >= truth[:, None])).sum(axis=1) ** 4).min() < 0.7


def test_result_uses_the_simultaneous_bounds():
    result = counted([[400, 410], [380, 480]], np.full((2, 2), 500))
    bounds = simultaneous_bounds(result.correct, result.rows, 0.95)
    assert result.worst_interval() == pytest.approx(tuple(bounds.reshape(-1, 2).min(axis=0)))
    low, high = result.worst_interval()
    assert low < result.interval()[1, 0, 0] < result.worst < high
    narrow = result.worst_interval(0.5)
    assert low < narrow[0] < narrow[1] < high


def test_expected_minimum_against_enumeration():
    share, rows = np.array([0.6, 0.7, 1.0]), np.array([5, 8, 3])
    grid = [(a / 5, b / 8, binom.pmf(a, 5, 0.6) * binom.pmf(b, 8, 0.7)) for a in range(6) for b in range(9)]
    truth = sum(min(a, b, 1.0) * mass for a, b, mass in grid)
    assert expected_minimum(share, rows) == pytest.approx(truth, abs=2e-4)
    assert truth < 0.55


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
    assert abs(plain) < 0.4
    assert abs(corrected - plain) < 0.05


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
    pair = simultaneous_bounds(result.correct[[0, 1], [0, 1]], result.rows[[0, 1], [0, 1]], 0.95)
    assert result.worst_interval() == pytest.approx(tuple(pair.min(axis=0)))  # two groups, not four
    assert 0.5 < result.worst_corrected < 0.8
    assert result.weighted_average([[1, 0], [0, 1]]) == pytest.approx(0.625)
    with pytest.raises(InputError, match=r"main=0, concept=1\) has training rows"):
        result.weighted_average([[1, 1], [0, 1]])
    assert "none" in str(result)
    assert "–" in group_table({"ERM": result})
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["groups"][1]["accuracy"] is None


def test_json_has_everything_in_plain_numbers():
    y, predicted, concepts = several()
    one = group_accuracy(y, predicted, concepts["size"].to_numpy())
    saved = json.loads(json.dumps(one.to_dict(), allow_nan=False))
    assert [(g["main"], g["concept"]) for g in saved["groups"]][:4] == [("ant", 0), ("ant", 1), ("ant", 2), ("bee", 0)]
    assert sum(g["rows"] for g in saved["groups"]) == 600
    assert saved["worst_low95"] < saved["worst"] <= saved["worst_corrected"] < saved["worst_high95"]
    assert {"group_average", "average"} < set(saved)
    two = json.loads(json.dumps(group_accuracy(y, predicted, concepts).to_dict(), allow_nan=False))
    assert two["groups"][0]["concept"] == {"light": "day", "size": 0}


def test_tables_fit_a_terminal_even_with_long_names():
    result = GroupAccuracy.of(RIGHT, Y, CONCEPT, classes=("a" * 40, "b" * 40))
    text = group_table({"ERM": result, "JSE": result}, "main-task-label", "concept")
    low, high = (f"{100 * value:.1f}" for value in result.worst_interval())
    for shown in (text, str(result)):
        assert max(map(len, shown.splitlines())) <= 80
        assert all(part in shown for part in ("75.0", "worst group", low, high, "average over groups"))
    assert "main-task-label=" in text
    y, predicted, concepts = several()
    many = group_accuracy(y, predicted, concepts)
    assert "main=bee, light=night, size=2" in str(many)
    assert "kind=bee, light=night, size=2" in group_table({"ERM": many}, "kind")
    assert repr(many).startswith("GroupAccuracy(main × light × size, worst=0.")


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


@pytest.mark.parametrize("kind", ["S", object])
def test_labels_as_bytes_are_those_of_text(kind):
    y, guess, place = (
        np.array(["gull", "wren"] * 20),
        np.array(["gull", "wren", "wren", "wren"] * 10),
        np.arange(40) < 20,
    )
    found = group_accuracy(np.char.encode(y).astype(kind), np.char.encode(guess).astype(kind), place)
    if kind == "S":
        assert group_accuracy(np.char.encode(y), guess, place).average == found.average
    assert found.average == group_accuracy(y, guess, place).average == 0.75


def test_probabilities_are_not_taken_for_classes():
    y, place = np.arange(40) % 2, np.arange(40) < 20
    chances = np.where(y == 1, 1.0, 0.25)
    for form in (float, object):
        with pytest.raises(LabelError, match=r"Predicted values such as 0\.25 are no class of y"):
            group_accuracy(y, chances.astype(form), place)
    assert group_accuracy(np.where(y == 1, 1.0, 0.25), chances, place).average == 1.0  # control: 0.25 is a class


def test_intervals_of_ages_are_text_in_json():
    y, age = np.arange(40) % 2, pd.cut(np.arange(40) // 2 % 2, [-1, 0, 1])
    saved = json.loads(json.dumps(group_accuracy(y, y, age).to_dict()))
    assert saved["groups"][0]["concept"] == "(-1, 0]"
    found = leakage(np.random.default_rng(0).normal(size=(40, 2)), age, random_state=0)
    assert json.loads(json.dumps(found.to_dict()))["classes"] == ["(-1, 0]", "(0, 1]"]
