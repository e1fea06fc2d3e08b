"""Labels of every supported kind become the same codes; what is no label is refused in a sentence."""

from datetime import date

import numpy as np
import pandas as pd
import pytest

from unspur import LEACE
from unspur.clusters import cluster_codes, duplicate_clusters
from unspur.exceptions import InputError, LabelError
from unspur.labels import class_label, joint_label, label_columns, missing_values, named_concepts, numeric_column

COMPLETE = {
    "integers": (np.array([3, -7, 3, 3]), (-7, 3)),
    "small unsigned": (np.array([1, 0, 1, 1], dtype=np.uint8), (0, 1)),
    "booleans": (np.array([True, False, True, True]), (False, True)),
    "texts": (np.array(["water", "land", "water", "water"]), ("land", "water")),
    "floats": (np.array([2.0, 0.0, 2.0, 2.0]), (0.0, 2.0)),
    "half precision": (np.array([2, 1, 2, 2], dtype=np.float16), (1.0, 2.0)),
    "objects": (np.array(["b", "a", "b", "b"], dtype=object), ("a", "b")),
    "list": ([1, 0, 1, 1], (0, 1)),
    "series": (pd.Series([1, 0, 1, 1], index=[9, 7, 5, 3]), (0, 1)),
    "categories": (pd.Categorical(["b", "a", "b", "b"], categories=["b", "a"]), ("a", "b")),
    "one column": (pd.DataFrame({"y": [1, 0, 1, 1]}), (0, 1)),
}
WITH_GAP = {
    "NaN": (np.array([2.0, 1.0, np.nan, 2.0]), (1.0, 2.0)),
    "None": (np.array(["b", "a", None, "b"], dtype=object), ("a", "b")),
    "list": ([1, 0, None, 1], (0, 1)),
    "NaN in a list of texts": (["b", "a", float("nan"), "b"], ("a", "b")),
    "nullable integers": (pd.Series([1, 0, pd.NA, 1], dtype="Int64"), (0, 1)),
    "nullable booleans": (pd.Series([True, False, pd.NA, True], dtype="boolean"), (False, True)),
    "nullable texts": (pd.Series(["b", "a", pd.NA, "b"], dtype="string"), ("a", "b")),
    "categories": (pd.Series(pd.Categorical(["b", "a", None, "b"])), ("a", "b")),
    "NA among objects": (pd.Series(["b", "a", pd.NA, "b"], dtype=object), ("a", "b")),
    "masked": (np.ma.array([1, 0, 0, 1], mask=[0, 0, 1, 0]), (0, 1)),
}


@pytest.mark.parametrize(("values", "classes"), COMPLETE.values(), ids=COMPLETE)
def test_classes_are_coded_in_their_order(values, classes):
    label = class_label(values, "y", 4)
    np.testing.assert_array_equal(label.codes, [1, 0, 1, 1])
    assert label.present.all()
    assert label.classes == classes
    assert all(type(value) in (int, float, bool, str) for value in label.classes)
    np.testing.assert_array_equal(class_label(values, "y_val", 4, classes=classes).codes, [1, 0, 1, 1])


@pytest.mark.parametrize(("values", "classes"), WITH_GAP.values(), ids=WITH_GAP)
def test_a_gap_is_marked_and_coded_zero(values, classes):
    label = class_label(values, "concept", 4)
    np.testing.assert_array_equal(label.present, [True, True, False, True])
    np.testing.assert_array_equal(label.codes, [1, 0, 0, 1])
    assert label.classes == classes
    assert list(label.values) == [classes[1], classes[0], None, classes[1]]


@pytest.mark.parametrize(
    ("values", "code"),
    [
        (np.array([1, 0, -1, 1]), -1),
        (np.array([1.0, 0.0, -1.0, 1.0]), -1),
        (np.array(["yes", "no", "?", "yes"]), "?"),
        (pd.Series(pd.Categorical(["yes", "no", "?", "yes"])), "?"),
    ],
)
def test_the_code_for_not_known_is_a_gap_when_asked_for(values, code):
    label = class_label(values, "concept", 4, missing=code)
    np.testing.assert_array_equal(label.present, [True, True, False, True])
    np.testing.assert_array_equal(label.codes, [1, 0, 0, 1])
    assert len(class_label(values, "concept", 4).classes) == 3  # control: without it, it is a class of its own
    assert class_label(["a", "b"], "concept", 2, missing=-1).present.all()  # of another kind it matches nothing


def test_all_gaps_count_alike_and_stay_gaps_among_known_classes():
    label = class_label(np.array([1.0, 0.0, np.nan, -1.0]), "concept", 4, missing=-1)
    assert label.present.tolist() == [True, True, False, False]
    again = class_label(np.array([np.nan, 1.0, -1.0]), "concept_val", 3, missing=-1, classes=(0, 1))
    assert (again.present.tolist(), again.codes.tolist()) == ([False, True, False], [0, 1, 0])
    assert missing_values(np.array([1.0, np.nan, -1.0]), -1).tolist() == [False, True, True]


REFUSED = {
    "dates": (np.array(["2020-01-01", "2021-01-01", "2020-01-01"], dtype="M8[ns]"), "datetime64"),
    "Python's dates": ([date(2020, 1, 1), date(2021, 1, 1), None], "date"),
    "durations": (np.array([1, 2, 1], dtype="m8[s]"), "timedelta64"),
    "bytes": (np.array([b"a", b"b", b"a"]), "S1"),
    "bytes among objects": ([b"a", b"b", None], "bytes"),
    "complex": (np.array([1j, 0, 1]), "complex"),
    "beyond 64 bits": (np.array([0, 2**63, 1], dtype=np.uint64), "Pass such labels as text"),
    "texts and numbers": ([1, "a", "b"], "mixes"),
    "lists in rows": (pd.Series([["a"], ["b"], ["a"]]), "several values in a row"),
    "tuples in rows": (pd.Series([("a", "b"), ("b",), ("a",)]), "tuple"),
    "numbers": (np.random.default_rng(0).standard_normal(3), "no whole number"),
    "one class": ([1, 1, 1], "one class only"),
    "one class and gaps": ([1, None, 1], "one class only"),
    "no class": ([None] * 3, "missing in all 3 rows"),
    "two columns": (np.zeros((3, 2)), "one column"),
    "no array": (np.array(1.0), "one column"),
    "a number": (1.0, "single value"),
    "a text": ("bird", "not a value for each row"),
    "too few": ([0, 1], "2 labels for 3 rows"),
    "too many": ([0, 1, 1, 0], "4 labels for 3 rows"),
    "none": ([], "0 labels for 3 rows"),
    "names of columns": (["bird", "place"], "names of columns"),
}
if hasattr(np.dtypes, "StringDType"):
    REFUSED["StringDType"] = (np.array(["a", "b", "a"], dtype=np.dtypes.StringDType()), "Unknown label type")


@pytest.mark.parametrize(("values", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_label_is_refused_by_name(values, said):
    with pytest.raises(LabelError, match=said) as told:
        class_label(values, "place", 3)
    assert "place" in str(told.value)
    assert isinstance(told.value, ValueError)


def test_known_classes_code_other_rows_and_others_are_refused():
    label = class_label(np.array(["b", "b"]), "y_val", 2, classes=("a", "b"))
    assert (label.codes.tolist(), label.classes) == ([1, 1], ("a", "b"))
    for values in (np.array([1.0, 0.0]), np.array([True, False]), pd.Series([1, 0], dtype="Int64")):
        assert class_label(values, "y_val", 2, classes=(0, 1)).codes.tolist() == [1, 0]
    with pytest.raises(LabelError, match="y_val has the value 'c', which the training rows do not have"):
        class_label(["a", "c"], "y_val", 2, classes=("a", "b"))
    with pytest.raises(LabelError, match="the training rows do not have"):
        class_label([0, 1], "y_val", 2, classes=("a", "b"))


def test_decoded_labels_are_recoded_and_lose_classes_that_do_not_occur():
    label = class_label(["c", "a", None, "b", "a"], "kind", 5)
    assert label.classes == ("a", "b", "c")
    some = class_label(label.select([1, 3]), "kind", 2)
    assert (some.codes.tolist(), some.classes) == ([0, 1], ("a", "b"))
    assert label.recode(("c", "b", "a")).codes[label.present].tolist() == [0, 2, 1, 2]
    with pytest.raises(LabelError, match="'c'"):
        label.recode(("a", "b"))
    with pytest.raises(LabelError, match="one class"):
        label.select([1, 4]).occurring()


def test_of_more_than_two_classes_each_is_told_from_the_rest():
    label = class_label(np.array(["dog", "cat", "owl", "dog", "zebra"]), "animal", 5)
    cat, dog, owl, zebra = label.binary()
    assert [part.full_name for part in (cat, owl)] == ["animal=cat", "animal=owl"]
    assert (cat.classes, zebra.classes) == (("cat", "rest"), ("rest", "zebra"))  # in the order of their names
    assert (dog.codes.tolist(), zebra.codes.tolist()) == ([0, 1, 1, 0, 1], [0, 0, 0, 0, 1])
    two = class_label(np.array([3, 5, 3]), "y", 3)
    assert two.binary() == [two]


def test_a_joint_label_has_all_combinations():
    one, two = class_label(["a", "b", None], "one", 3), class_label([1, 0, 1], "two", 3)
    joint = joint_label([one, two])
    assert joint.classes == (("a", 0), ("a", 1), ("b", 0), ("b", 1))
    assert (joint.codes[:2].tolist(), joint.present.tolist()) == ([1, 2], [True, True, False])


@pytest.mark.parametrize(
    "concept",
    [
        {"light": [0, 1, 1, 0], "size": [0, 1, 2, 0]},
        pd.DataFrame({"light": [0, 1, 1, 0], "size": [0, 1, 2, 0]}),
        np.array([[0, 0], [1, 1], [1, 2], [0, 0]]),
        [[0, 0], [1, 1], [1, 2], [0, 0]],
    ],
    ids=["mapping", "frame", "array", "list"],
)
def test_several_concepts_are_columns_with_names(concept):
    columns = label_columns(concept, 4, "concept")
    named = named_concepts(concept, ["light", "size"])
    assert list(named) == ["light", "size"]
    assert list(columns) in (["light", "size"], ["concept[0]", "concept[1]"])
    for found in (columns, named):
        assert [np.asarray(column).tolist() for column in found.values()] == [[0, 1, 1, 0], [0, 1, 2, 0]]


def test_concepts_need_names_and_rows_of_their_own():
    with pytest.raises(LabelError, match=r"light has 4 labels for 2 rows of X\..*pass a DataFrame"):
        label_columns({"light": [0, 1, 1, 0]}, 2, "concept")  # a search does not split a dict
    with pytest.raises(LabelError, match="Two concepts are called '1'"):
        label_columns({1: [0, 1], "1": [1, 0]}, 2, "concept")
    with pytest.raises(LabelError, match="no columns"):
        label_columns({}, 2, "concept")
    with pytest.raises(InputError, match="number of concepts is 2"):
        named_concepts(np.zeros((3, 2)), ["one"])
    half, Z = np.arange(40) < 20, np.random.default_rng(0).standard_normal((40, 3))
    concept = {"a": np.where(half, np.arange(40) % 2, np.nan), "b": np.where(half, np.nan, np.arange(40) % 2)}
    with pytest.raises(LabelError, match="No row has all of a, b known"):
        LEACE().fit(Z, concept=concept)


@pytest.mark.parametrize(
    "values",
    [
        [1, 2.5, None],
        np.array([1, 2.5, np.nan]),
        pd.Series([1, 2.5, pd.NA], dtype="Float64"),
        np.array([[1], [2.5], [-1]]),
    ],
)
def test_numbers_may_be_missing_in_any_spelling(values):
    np.testing.assert_array_equal(numeric_column(values, "age", 3, missing=-1), [1.0, 2.5, np.nan])


@pytest.mark.parametrize(
    "values", [["1", "2", "3"], [1, "two", 3], np.array([1, 2, 3], dtype="M8[D]"), [1, 2], [1, 2, np.inf]]
)
def test_what_is_no_number_is_refused(values):
    with pytest.raises(LabelError, match="age"):
        numeric_column(values, "age", 3)


@pytest.mark.parametrize(
    "values", [["b", "a", "b"], [2, 1, 2], np.array([2, 1, 2], dtype="M8[D]"), pd.Series(["b", "a", "b"])]
)
def test_clusters_are_coded_in_their_order(values):
    assert cluster_codes(values, "film", 3).tolist() == [1, 0, 1]
    with pytest.raises(InputError, match="film has shape"):
        cluster_codes(values, "film", 4)


def test_clusters_may_not_be_missing():
    with pytest.raises(InputError, match="film is missing in 2 rows"):
        cluster_codes(["a", None, float("nan")], "film", 3)


def test_duplicates_are_equal_rows_without_different_labels():
    hashes = np.array([5, 7, 5, 7, 9, 5], dtype=np.uint64)
    codes = duplicate_clusters(hashes)
    assert (codes[0], codes[1]) == (codes[2], codes[3])
    assert len(set(codes.tolist())) == 3
    apart = duplicate_clusters(hashes, [["a", "b", None, "c", "d", "a"]])  # rows 1 and 3 differ in their label
    assert apart[1] != apart[3]
    assert apart[0] == apart[2] == apart[5]
    assert duplicate_clusters(hashes[:2]) is None
    assert duplicate_clusters(hashes[:4], [[0, 0, 1, 1]]) is None
