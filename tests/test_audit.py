"""The audit: what is flagged, what is not, and what cannot be judged."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import fisher_exact

from unspur import ERM, Audit, audit
from unspur._data import LabelledData
from unspur._text import WIDTH
from unspur.auditing import (
    FLAGGED,
    AuditedColumn,
    Estimate,
    _association,
    _independence,
    _permutation_p,
    _verdict,
    bin_labels,
    holm,
)
from unspur.embed.properties import content_properties, text_properties
from unspur.exceptions import GroupSizeError, InputError, LabelError
from unspur.labels import class_label
from unspur.selection import cross_fit

N = 1200


def follows(rng, y, agreement=0.9):
    return np.where(rng.random(len(y)) < agreement, y, 1 - y)


@pytest.fixture(scope="module")
def rows():
    """Rows that show the task and a concept that travels with it, and an unweighted head that needs both."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=N)
    concept = follows(rng, y)
    X = rng.normal(size=(N, 10))
    X[:, 0] += 1.5 * y
    X[:, 1] += 2.0 * concept
    return X, y, concept


@pytest.fixture(scope="module")
def found(rows):
    """An audit of one planted column and of columns for which one of the three does not hold."""
    X, y, concept = rows
    rng = np.random.default_rng(1)
    camera = rng.integers(3, size=N)
    X = np.column_stack([X, 3.0 * camera + rng.normal(size=N)])
    given = {
        "planted": np.array(["land", "water"])[concept],
        "planted number": concept + 0.3 * rng.normal(size=N),
        "random": rng.integers(2, size=N),
        "absent": follows(rng, y),
        "camera": camera,
        "unknown in a third": [None if r < 1 / 3 else c for r, c in zip(rng.random(N), concept.tolist(), strict=True)],
    }
    return audit(X, pd.Series(y, name="bird"), given, random_state=0)


def by_name(found, name):
    return next(column for column in found.columns if column.name == name)


def test_a_column_that_is_associated_visible_and_used_is_named_and_others_are_not(found):
    flagged = {column.name for column in found.flagged}
    assert flagged == {"planted", "planted number", "unknown in a third"}
    assert found.recommended is found.columns[0]
    assert all(column.verdict == FLAGGED for column in found.flagged)


def test_each_of_the_three_is_told_from_the_other_two(found):
    assert by_name(found, "random").association.p_corrected > 0.05
    absent, camera = by_name(found, "absent"), by_name(found, "camera")
    assert absent.association.p < 1e-6 < absent.visibility.p
    assert "no sign that the embedding shows it" in absent.verdict
    assert camera.visibility.p < 1e-6
    assert camera.verdict == "no sign that it is associated with the task"


def test_a_layer_that_makes_no_errors_uses_nothing():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=N)
    concept = follows(rng, y)
    X = rng.normal(size=(N, 4)) + np.stack([20.0 * y, 2.0 * concept, 0 * y, 0 * y], axis=1)
    (column,) = audit(X, y, {"concept": concept}, random_state=0).columns
    assert column.visibility.p < 1e-6
    assert column.gap.value == 0.0
    assert not column.flagged
    assert "no sign that an unweighted head uses it" in column.verdict


def test_the_gap_is_the_difference_of_accuracies_within_classes(rows):
    X, y, concept = rows
    data = LabelledData(X, class_label(y, "y", N), (), np.ones(N))
    differences, penalty = cross_fit(ERM(), data, 5, np.random.default_rng(0))
    right = differences.max(axis=1) <= 0
    by_hand = np.mean(
        [right[(y == k) & (concept == k)].mean() - right[(y == k) & (concept != k)].mean() for k in (0, 1)]
    )
    (column,) = audit(X, y, {"concept": concept}, random_state=0).columns
    assert penalty > 0
    assert_allclose(column.gap.value, by_hand)
    assert_allclose(column.aligned - column.conflicting, by_hand)
    assert column.gap.low < by_hand < column.gap.high


def test_the_exact_test_agrees_with_fisher_for_one_class():
    rows, right = np.array([40, 15]), np.array([37, 9])
    table = [[37, 3], [9, 6]]
    assert_allclose(_permutation_p(rows, right), fisher_exact(table, "greater").pvalue, rtol=1e-6)
    assert _permutation_p(rows, np.array([37, 14])) > 0.3


def test_the_exact_test_agrees_with_permutations_for_several_classes():
    rng = np.random.default_rng(0)
    rows, right = np.array([[100, 12], [30, 10], [50, 50]]), np.array([[95, 9], [29, 9], [40, 35]])
    drawn = [rng.hypergeometric(r.sum(), n.sum() - r.sum(), n[0], 100_000) for n, r in zip(rows, right, strict=True)]

    def gap(aligned):
        return sum(a / n[0] - (r.sum() - a) / n[1] for a, n, r in zip(aligned, rows, right, strict=True))

    simulated = np.mean(gap(drawn) >= gap(right[:, 0]) - 1e-12)
    assert_allclose(_permutation_p(rows.ravel(), right.ravel()), simulated, atol=0.003)


def test_association_is_cramers_v_and_fishers_test():
    counts = np.array([[50, 20], [15, 60]])
    y, value = (np.repeat(part, counts.ravel()) for part in ([0, 0, 1, 1], [0, 1, 0, 1]))
    found = _association(counts, y, value, None)
    correlation = np.corrcoef(y, value)[0, 1]
    assert found.low < correlation < found.high
    assert_allclose(found.value, np.sqrt(correlation**2 - 1 / counts.sum()))
    assert 0.1 < fisher_exact(counts).pvalue / found.p < 1.01
    copies = _association(4 * counts, *(np.tile(part, 4) for part in (y, value, np.arange(len(y)))))
    assert copies.p > found.p / 3  # four copies of each row say no more than one
    assert _association(4 * counts, np.tile(y, 4), np.tile(value, 4), None).p < 1e-3 * found.p


def test_holm_is_holm():
    assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (lambda _: np.ones(N), "constant"),
        (lambda _: [None] * N, "missing in all rows"),
        (lambda _: np.arange(N), "looks like an id"),
        (lambda _: [f"picture {i}" for i in range(N)], "nearly unique"),
        (lambda _: [f"site {i // 4}" for i in range(N)], "fewer than 10 rows each"),
        (lambda _: np.datetime64("2020-01-01") + np.arange(N), "dates or times"),
        (lambda y: 1 - y, "equals bird"),
        (lambda y: np.array(["b", "a"])[y], "equals bird"),
        (lambda y: 5 * y + np.arange(N) % 5, "determines bird"),
        (lambda y: [f"{code:03d}" for code in 40 * y + np.arange(N) % 40], "determines bird"),
        (lambda y: np.where(np.arange(N) < 6, 1 - y, y), "too few rows in a cell"),
        (lambda _: np.zeros((N, 3, 3)), "not one value for each row"),
    ],
)
def test_what_cannot_be_judged_is_said_in_words(rows, values, reason):
    X, y, concept = rows
    found = audit(X, pd.Series(y, name="bird"), {"odd": values(y), "concept": concept}, random_state=0, probe_all=False)
    assert reason in found.skipped["odd"]
    assert [column.name for column in found.flagged] == ["concept"]
    assert reason in str(found).replace("\n    ", " ")


def test_a_column_that_the_task_determines_and_one_that_is_balanced(rows):
    X = rows[0]
    y = np.arange(N) % 4
    found = audit(X, pd.Series(y, name="y"), {"even": y % 2, "balanced": np.arange(N) // 4 % 2}, random_state=0)
    assert "y determines it" in found.skipped["even"]
    assert "independent of y" in found.skipped["balanced"]
    assert str(found).endswith("No column could be judged.")


def test_nearly_the_task_is_named_but_not_recommended():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=3000)
    twin = follows(rng, y, 0.99)
    X = rng.normal(size=(3000, 5))
    X[:, 0] += 6.0 * twin
    found = audit(X, y, {"second opinion": twin}, random_state=0)
    assert [column.name for column in found.flagged] == ["second opinion"]
    assert found.recommended is None
    assert "not recommended" in " ".join(str(found).split())


def test_the_first_column_that_can_be_removed_and_tested_is_recommended():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=1500)
    few, many = follows(rng, y, 0.965), follows(rng, y, 0.8)
    X = rng.normal(size=(1500, 6))
    X[:, 0] += 1.0 * y
    X[:, 1] += 4.0 * few
    X[:, 2] += 2.0 * many
    given = {"few": few, "many": many, "rare value": np.where(np.arange(1500) < 4, "odd", np.array(["a", "b"])[many])}
    found = audit(X, y, given, random_state=0)
    flagged = {column.name: column.smallest_group for column in found.flagged}
    assert flagged["few"] == np.bincount(2 * y + few).min() < 34 <= np.bincount(2 * y + many).min() == flagged["many"]
    assert flagged["rare value"] < 4  # which the audit pools, and a report would not
    assert found.recommended.name == "many"
    sampled = replace(found, n_rows_total=10 * found.rows)  # of all rows there are ten times as many
    assert not sampled.has_small_group(by_name(found, "few"))
    alone = audit(X, y, {"few": few}, random_state=0)
    assert alone.flagged
    assert alone.recommended is None
    assert "the smallest group of few has" in alone.conclusion


def test_an_interval_without_zero_is_not_called_no_sign():
    associated, visible = Estimate(0.4, 0.3, 0.5, 0.0), Estimate(0.8, 0.7, 0.9, 0.0)
    gap = Estimate(0.05, 0.01, 0.09, 0.01)
    column = AuditedColumn("place", "classes", ("a", "b"), 900, 50, associated, visible, 0.5, gap, 0.9, 0.85)
    words = "associated with the task and visible; its use is not significant after correction for 20 columns"
    assert _verdict(column, False, True, True, False, 20) == words
    assert "its visibility is not significant" in _verdict(column, False, True, False, False, 20)
    assert "association with the task is not significant" in _verdict(column, False, False, False, False, 20)
    assert "three together are not significant" in _verdict(column, False, True, True, True, 20)
    unclear = replace(column, gap=Estimate(0.05, -0.01, 0.09, 0.2))
    assert "no sign that an unweighted head uses it" in _verdict(unclear, False, True, True, False, 20)


def test_numbers_are_binned_and_rare_values_pooled(rows):
    X, y, _ = rows
    rng = np.random.default_rng(2)
    rare = np.where(rng.random(N) < 0.98, rng.choice(["a", "b"], N), [f"r{i}" for i in range(N)])
    zeros = np.where(rng.random(N) < 0.8, 0.0, rng.random(N))
    found = audit(X, y, {"rare": rare, "zeros": zeros, "age": rng.normal(size=N)}, random_state=0)
    assert by_name(found, "rare").values == ("a", "b", "other")
    assert by_name(found, "zeros").values == ("≤ 0", "> 0")
    age = by_name(found, "age")
    assert age.kind == "number"
    assert len(age.values) == 3
    assert "3 bins" in age.notes[0]
    part = zeros[: N // 4]  # bins of a part are those of all rows that the part has
    assert np.array_equal(bin_labels(zeros, part)[: N // 4], bin_labels(part))
    assert set(bin_labels(np.append(zeros, 9.0), part)) == set(bin_labels(part))
    assert bin_labels([*zeros, None], zeros)[-1] == ""
    typed = pd.DataFrame({"codes": pd.array([*range(30)] * 40, dtype="Int64"), "kind": pd.Categorical(rare)})
    kinds = {column.name: column.kind for column in audit(X, y, typed, max_probes=0, random_state=0).columns}
    assert kinds == {"codes": "number", "kind": "classes"}  # as their dtypes say
    assert (
        "constant" not in audit(X, y, {"written": zeros.astype(str)}, max_probes=0, random_state=0).skipped["written"]
    )
    years = np.repeat(np.arange(1990.0, 2023.0), 10)
    assert set(bin_labels(years)) == {"≤ 2000", "2000 – 2011", "> 2011"}
    assert set(bin_labels(zeros)) == {"≤ 0", "> 0"}
    assert np.mean(bin_labels(-zeros) == bin_labels(-zeros)[np.argmax(-zeros)]) > 0.7
    with pytest.raises(LabelError, match="constant"):
        bin_labels(np.ones(N))


def test_values_that_are_not_compared_are_named(rows):
    X, y, concept = rows
    sky = np.where((np.arange(N) < 200) & (y == 1), "sky", np.array(["land", "water"])[concept])
    sky[np.flatnonzero(y == 0)[:4]] = "sky"
    found = audit(X, y, {"sky": sky, "two": concept}, random_state=0)
    column = by_name(found, "sky")
    assert column.chance == 0.5
    assert "visible and gap leave out 'sky': too few rows with some class of y" in column.notes
    assert not by_name(found, "two").notes


def test_clusters_widen_intervals_and_are_counted_once(rows):
    X, y, concept = rows
    repeated = [np.tile(part, (5, 1) if part.ndim == 2 else 5) for part in (X, y, concept)]
    clusters = np.tile(np.arange(N), 5)
    alone = audit(X, y, {"c": concept}, random_state=0).columns[0]
    (told,) = audit(*repeated[:2], {"c": repeated[2]}, clusters=clusters, random_state=0).columns
    noticed = audit(*repeated[:2], {"c": repeated[2]}, random_state=0)
    nearly = repeated[0] + 1e-9 * np.random.default_rng(0).normal(size=(5 * N, 10))
    (blind,) = audit(nearly, repeated[1], {"c": repeated[2]}, random_state=0).columns

    def width(estimate):
        return estimate.high - estimate.low

    for name in ("association", "gap"):
        one, five, ignored = (width(getattr(column, name)) for column in (alone, told, blind))
        assert ignored < 0.6 * one < five
    assert "exact duplicates" in noticed.notes[0]
    assert width(noticed.columns[0].gap) > 1.5 * width(blind.gap)


@pytest.mark.parametrize("of_others", ["one cluster", "a cluster each"])
def test_a_class_of_the_task_in_one_cluster_is_refused(rows, of_others):
    """Without that cluster no layer knows the class, so its rows have no prediction to count."""
    X, y, concept = rows
    clusters = np.where(y == 0, -1, np.arange(N) if of_others == "a cluster each" else N)
    with pytest.raises(GroupSizeError, match=r"y = 0 lie in 1 cluster\b.*one fold.*Pass rows of more clusters"):
        audit(X, y, {"c": concept}, clusters=clusters, random_state=0)


def test_few_clusters_cannot_be_judged(rows):
    X, y, concept = rows
    found = audit(X, y, {"c": concept}, clusters=np.arange(N) % 8, random_state=0)
    assert "too few clusters in a cell" in found.skipped["c"]


def test_more_classes_frames_and_a_sample_of_rows():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=3000)
    concept = np.where(rng.random(3000) < 0.8, y, rng.integers(3, size=3000))
    X = rng.normal(size=(3000, 6))
    X[np.arange(3000), y] += 1.5
    X[np.arange(3000), 3 + concept] += 2.5
    frame = pd.DataFrame({"place": concept, "noise": rng.integers(4, size=3000)})
    found = audit(pd.DataFrame(X), y, frame, max_rows=2000, random_state=0)
    assert [column.name for column in found.flagged] == ["place"]
    assert found.rows == 2000
    assert "2,000 rows were drawn at random from 3,000." in found.notes
    rare = np.where(np.arange(3000) < 12, 3, y)
    with pytest.raises(GroupSizeError, match=r"y is 3 in \d of 2,000 rows;.* Pass max_rows 3000, or leave"):
        audit(X, rare, frame, max_rows=2000, random_state=0)
    assert audit(X, rare, frame, max_rows=3000, random_state=0, max_probes=0).rows == 3000


def test_many_columns_are_bounded_and_only_the_first_are_probed(rows):
    X, y, concept = rows
    rng = np.random.default_rng(0)
    given = {f"c{j}": rng.integers(2, size=N) for j in range(300)} | {"planted": concept}
    found = audit(X, y, given, max_probes=2, random_state=0)
    assert [column.name for column in found.flagged] == ["planted"]
    assert sum(column.visibility is not None for column in found.columns) == 2
    assert len(str(found).splitlines()) < 60
    assert not audit(X, y, {"planted": concept}, max_probes=0, random_state=0).flagged


def test_the_table_fits_a_terminal_and_json_holds_everything(found):
    worst = Estimate(-0.999, -1.0, -0.998, 1.0)
    sure = Estimate(1.0, 0.99, 1.0, 0.0)
    hardest = replace(found.columns[0], name="a name\nof birds " * 9, gap=worst, visibility=sure, flagged=False)
    long = Audit(
        found.main, (*found.columns, hardest), {"x" * 30: "it is constant (1)"}, found.rows, found.rows, 0.9, 0.05
    )
    assert max(map(len, str(long).splitlines())) <= WIDTH
    assert long.to_frame().loc["planted", ["flagged", "gap"]].tolist() == [True, by_name(found, "planted").gap.value]
    told = json.loads(json.dumps(found.to_dict()))
    assert [column["name"] for column in told["columns"]] == [column.name for column in found.columns]
    assert told["columns"][0]["gap"]["low"] == found.columns[0].gap.low


def test_a_series_names_the_task(rows):
    X, y, concept = rows
    named, unnamed = (audit(X, pd.Series(y, name=name), {"c": concept}, random_state=0) for name in ("bird", None))
    assert (named.main, unnamed.main) == ("bird", "y")


def test_bad_input_is_refused_in_words(rows):
    X, y, concept = rows
    with pytest.raises(LabelError, match=f"{N - 1} labels for {N} rows"):
        audit(X, y, {"c": concept[1:]})
    with pytest.raises(LabelError, match="columns is empty: it has no columns"):
        audit(X, y, {})
    with pytest.raises(LabelError, match="one class only"):
        audit(X, np.zeros(N), {"c": concept})
    with pytest.raises(GroupSizeError, match="in 3 of 1,200 rows"):
        audit(X, np.where(np.arange(N) < 3, 7, y), {"c": concept})
    with pytest.raises(InputError, match="level is a probability"):
        audit(X, y, {"c": concept}, level=5)
    with pytest.raises(InputError, match="NaN"):
        audit(np.where(np.arange(10) == 0, np.nan, X), y, {"c": concept})


class Texts:
    """Texts as content."""

    kind = "text"

    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def test_properties_of_texts():
    found = text_properties("See <b>HERE</b>: https://a.b 42!")
    assert found["text links"] == 1
    assert found["text mark-up"] == 2
    assert found["text digits"] == 2 / 32
    assert 0.2 < found["text capitals"] < 0.4
    several = content_properties(Texts("abcd", "x."))
    assert several["text length"].tolist() == [4, 2]
    assert several["text punctuation"].tolist() == [0, 0.5]


def test_few_large_clusters_do_not_look_like_an_association():
    """Labels of clusters that are independent: the test of 5 % rejected 28 % if two of 300 clusters have most rows."""

    def rejected(size, agree=0.0):
        found = []
        for seed in range(200):
            rng = np.random.default_rng(seed)
            y, other = rng.random((2, len(size))) < 0.3
            value = np.where(rng.random(len(size)) < agree, y, other)
            y, value, cluster = (np.repeat(label.astype(int), size) for label in (y, value, np.arange(len(size))))
            counts = np.zeros((2, 2), dtype=int)
            np.add.at(counts, (y, value), 1)
            if counts.sum(axis=0).all() and counts.sum(axis=1).all():
                found.append(_independence(counts, y, value, cluster) <= 0.05)
        return np.mean(found)

    for large in (1, 2, 3):
        assert rejected(np.where(np.arange(300) < large, 600, 2)) < 0.08
    equal = np.full(300, 8)
    assert rejected(equal) < 0.08  # the controls
    assert rejected(equal, agree=0.5) > 0.95
