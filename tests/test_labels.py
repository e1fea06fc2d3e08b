from datetime import date

import numpy as np
import pytest

from tests.optional import pandas as pd
from unspur._arrays import to_numpy
from unspur.clusters import cluster_codes, shared_clusters
from unspur.exceptions import InputError, LabelError, MissingCodeWarning
from unspur.labels import as_numbers, class_label, label_columns, missing_values


def made(values):
    """Labels, also those that only a library of an extra can make, which is not asked before the test runs."""
    return values() if callable(values) else values


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (np.array([3, -7, 3, 3]), (-7, 3)),
        (np.array([1, 0, 1, 1], dtype=np.uint8), (0, 1)),
        (np.array([True, False, True, True]), (False, True)),
        (np.array(["water", "land", "water", "water"]), ("land", "water")),
        (np.array([2.5, 0.5, 2.5, 2.5]), (0.5, 2.5)),
        (np.array([0.7, 0.1, 0.7, 0.7], dtype=np.float32), (np.float32(0.1), np.float32(0.7))),
        (np.array(["b", "a", "b", "b"], dtype=object), ("a", "b")),
        ([1, 0, 1, 1], (0, 1)),
        (["yes", "no", "yes", "yes"], ("no", "yes")),
        (lambda: pd.Series([1, 0, 1, 1], index=[9, 7, 5, 3]), (0, 1)),
        (lambda: pd.Categorical(["b", "a", "b", "b"], categories=["b", "a"]), ("a", "b")),
    ],
    ids=[
        "integers",
        "small unsigned",
        "booleans",
        "strings",
        "two floats",
        "float32",
        "objects",
        "list",
        "list of strings",
        "series",
        "categorical",
    ],
)
def test_the_smaller_value_is_coded_zero(values, classes):
    label = class_label(made(values), "y", 4)
    np.testing.assert_array_equal(label.codes, [1, 0, 1, 1])
    assert np.issubdtype(label.codes.dtype, np.integer)
    assert label.present.all()
    assert label.classes == classes


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (np.array([2.0, 1.0, np.nan, 2.0]), (1.0, 2.0)),
        (np.array(["b", "a", None, "b"], dtype=object), ("a", "b")),
        (np.array(["b", "a", np.nan, "b"], dtype=object), ("a", "b")),
        ([1, 0, None, 1], (0, 1)),
        (["b", "a", None, "b"], ("a", "b")),
        (lambda: pd.Series([1, 0, None, 1]), (0, 1)),
        (lambda: pd.Series([1, 0, pd.NA, 1], dtype="Int64"), (0, 1)),
        (lambda: pd.Series([True, False, pd.NA, True], dtype="boolean"), (False, True)),
        (lambda: pd.Series(["b", "a", None, "b"]), ("a", "b")),
        (lambda: pd.Series(["b", "a", pd.NA, "b"], dtype="string"), ("a", "b")),
        (lambda: pd.Series(pd.Categorical(["b", "a", None, "b"])), ("a", "b")),
        (lambda: pd.Series(["b", "a", pd.NA, "b"], dtype=object), ("a", "b")),
    ],
    ids=[
        "NaN",
        "None",
        "NaN among objects",
        "None in a list",
        "None in a list of strings",
        "series of floats",
        "nullable integers",
        "nullable booleans",
        "series of strings",
        "nullable strings",
        "categorical",
        "NA object",
    ],
)
def test_a_gap_is_marked_and_coded_zero(values, classes):
    label = class_label(made(values), "concept", 4)
    np.testing.assert_array_equal(label.present, [True, True, False, True])
    np.testing.assert_array_equal(label.codes, [1, 0, 0, 1])
    assert label.classes == classes


@pytest.mark.parametrize(
    ("values", "code"),
    [
        (np.array([1, 0, -1, 1]), -1),
        (np.array([1.0, 0.0, -1.0, 1.0]), -1),
        (np.array([1, 0, -1, 1], dtype=object), -1),
        (np.array(["yes", "no", "?", "yes"]), "?"),
        (np.array(["yes", "no", "?", "yes"], dtype=object), "?"),
        (lambda: pd.Series(pd.Categorical(["yes", "no", "?", "yes"])), "?"),
    ],
    ids=["integers", "floats", "objects", "strings", "string objects", "categorical"],
)
def test_the_value_for_not_known_is_a_gap_when_asked_for(values, code):
    values = made(values)
    label = class_label(values, "concept", 4, missing=code)
    np.testing.assert_array_equal(label.present, [True, True, False, True])
    np.testing.assert_array_equal(label.codes, [1, 0, 0, 1])
    assert len(class_label(values, "concept", 4).classes) == 3  # control: without it, it is a class of its own


def test_the_value_for_not_known_joins_the_other_gaps():
    label = class_label(np.array([1.0, 0.0, np.nan, -1.0]), "concept", 4, missing=-1)
    np.testing.assert_array_equal(label.present, [True, True, False, False])


@pytest.mark.parametrize(("values", "code"), [(["a", "b"], -1), ([0.0, 1.0], "?"), (np.array([0, 1], np.uint8), -1)])
def test_a_value_for_not_known_of_another_kind_matches_nothing(values, code):
    assert class_label(values, "concept", 2, missing=code).present.all()


@pytest.mark.parametrize("values", [np.array([[1], [0], [1]]), lambda: pd.DataFrame({"y": [1, 0, 1]})])
def test_a_column_vector_is_one_column(values):
    np.testing.assert_array_equal(class_label(made(values), "y", 3).codes, [1, 0, 1])


@pytest.mark.parametrize("values", [np.zeros((3, 2)), np.zeros((3, 1, 1)), np.array(1.0), np.zeros((1, 3))])
def test_anything_but_one_column_is_refused_with_its_shape(values):
    with pytest.raises(LabelError, match=r"y must be one column; got an array of shape \("):
        class_label(values, "y", 3)


def test_one_value_is_no_column():
    for value in (1.0, np.float64(1.0)):
        with pytest.raises(LabelError, match=r"y is the single value 1\.0; each row needs one"):
            class_label(value, "y", 3)


@pytest.mark.parametrize("given", [2, 4])
def test_a_wrong_number_of_labels_is_refused_with_both_numbers(given):
    with pytest.raises(LabelError, match=f"concept_val has {given} labels for 3 rows"):
        class_label(np.arange(given) % 2, "concept_val", 3)


@pytest.mark.parametrize("values", [np.ones(4), np.array(["a", None, "a", None], dtype=object), [np.nan, 1, 1, 1]])
def test_one_class_is_refused_by_name(values):
    with pytest.raises(LabelError, match=r"y has one class only \((1\.0|a)\)"):
        class_label(values, "y", 4)


@pytest.mark.parametrize("values", [np.full(4, np.nan), [None] * 4, lambda: pd.Series([pd.NA] * 4, dtype="Int64")])
def test_gaps_in_all_rows_are_refused_with_their_number(values):
    with pytest.raises(LabelError, match="concept is missing in all 4 rows"):
        class_label(made(values), "concept", 4)


def test_of_more_than_two_classes_each_is_told_from_the_rest():
    label = class_label(np.array(["dog", "cat", "owl", "dog", "zebra"]), "animal", 5)
    cat, dog, owl, zebra = label.binary()
    assert [part.full_name for part in (cat, owl)] == ["animal=cat", "animal=owl"]
    assert (cat.classes, zebra.classes) == (("cat", "rest"), ("rest", "zebra"))  # in the order of their names
    np.testing.assert_array_equal(dog.codes, [0, 1, 1, 0, 1])
    np.testing.assert_array_equal(zebra.codes, [0, 0, 0, 0, 1])
    two = class_label(np.array([3, 5, 3]), "y", 3)
    assert two.binary() == [two]


def test_a_continuous_column_is_refused_as_such():
    with pytest.raises(LabelError, match=r"looks continuous\. Cut it into classes"):
        class_label(np.random.default_rng(0).standard_normal(30), "concept", 30)


def test_a_complex_column_is_refused():
    with pytest.raises(LabelError, match="complex"):
        class_label(np.array([1j, 0]), "y", 2)


@pytest.mark.parametrize("classes", [None, ("a", "b")])
def test_values_of_mixed_kinds_are_refused_by_kind(classes):
    with pytest.raises(LabelError, match=r"y mixes values .*\(int, str\)"):
        class_label(np.array(["a", 1, "b"], dtype=object), "y", 3, classes=classes)


class TestKnownClasses:
    def test_codes_follow_the_training_rows_even_when_one_class_is_absent(self):
        label = class_label(np.array(["b", "b"]), "y_val", 2, classes=("a", "b"))
        np.testing.assert_array_equal(label.codes, [1, 1])
        assert label.classes == ("a", "b")
        with pytest.raises(LabelError, match="one class"):  # control: alone, these rows could not be coded
            class_label(np.array(["b", "b"]), "y_val", 2)

    @pytest.mark.parametrize(
        ("values", "classes", "unknown"),
        [
            (np.array([0, 1, 2]), (0, 1), "2"),
            (np.array(["a", "b", "c"]), ("a", "b"), "'c'"),
            (np.array([0, 1, 1]), ("a", "b"), "0"),
            (np.array(["a", None, "c"], dtype=object), ("a", "b"), "'c'"),
        ],
    )
    def test_a_class_that_training_rows_do_not_have_is_refused_by_name(self, values, classes, unknown):
        with pytest.raises(LabelError, match=f"y_val has the value {unknown}, which the training rows do not have"):
            class_label(values, "y_val", 3, classes=classes)

    def test_the_same_classes_in_another_type_are_recognised(self):
        for values in (np.array([1.0, 0.0, 1.0]), np.array([True, False, True]), pd.Series([1, 0, 1], dtype="Int64")):
            np.testing.assert_array_equal(class_label(values, "y_val", 3, classes=(0, 1)).codes, [1, 0, 1])

    def test_gaps_stay_gaps(self):
        label = class_label(np.array([np.nan, 1.0, -1.0]), "concept_val", 3, missing=-1, classes=(0, 1))
        np.testing.assert_array_equal(label.present, [False, True, False])
        np.testing.assert_array_equal(label.codes, [0, 1, 0])


def test_label_errors_are_value_errors():
    with pytest.raises(ValueError, match="one class"):
        class_label([1, 1], "y", 2)


def test_nan_in_a_list_of_strings_is_a_gap():
    label = class_label(["a", float("nan"), "b"], "concept", 3)
    assert label.present.tolist() == [True, False, True]
    assert label.classes == ("a", "b")


def test_a_list_of_numbers_and_strings_is_refused():
    with pytest.raises(LabelError, match="mixes"):
        class_label([1, "a"], "y", 2)


def test_masked_rows_are_gaps():
    label = class_label(np.ma.array([0, 1, 1], mask=[0, 0, 1]), "concept", 3)
    assert label.present.tolist() == [True, True, False]


@pytest.mark.parametrize("kind", [np.float32, np.int64, "U5", "M8[s]", "m8[s]", bool, object])
def test_masked_values_are_missing_wherever_arrays_are_read(kind):
    values = np.arange(6).astype("M8[s]" if kind == "M8[s]" else kind)
    masked = np.ma.array(values, mask=[0, 0, 1, 0, 1, 0])
    plain = to_numpy(masked)
    gaps = np.isnat(plain) if plain.dtype.kind in "mM" else missing_values(plain, None)
    assert gaps.tolist() == [False, False, True, False, True, False]
    assert plain[[0, 1, 3, 5]].tolist() == values[[0, 1, 3, 5]].tolist()
    assert np.array_equal(masked.data, values)  # what the user has stays as it was
    assert to_numpy(np.ma.array(values)).dtype == values.dtype  # nothing is masked
    with pytest.raises(InputError, match="clusters is missing in 2 rows"):
        cluster_codes(masked, "clusters", 6)
    if kind in (np.float32, np.int64):
        assert np.isnan(as_numbers(masked)).sum() == 2


def test_dates_are_not_labels():
    with pytest.raises(LabelError, match="datetime64"):
        class_label(np.array(["2020-01-01", "2021-01-01"], dtype="M8[ns]"), "y", 2)


def test_a_missing_code_works_beside_other_gaps():
    label = class_label(pd.Series(["a", "b", None, "?"], dtype="string"), "concept", 4, missing="?")
    assert label.present.tolist() == [True, True, False, False]


def test_labels_of_several_classes_are_coded_in_their_order():
    label = class_label(["c", "a", None, "b", "a"], "kind", 5)
    assert label.classes == ("a", "b", "c")
    np.testing.assert_array_equal(label.codes[label.present], [2, 0, 1, 0])
    assert label.present.tolist() == [True, True, False, True, True]
    again = class_label([b"b", b"c", b"a", b"a", b"a"], "kind", 5, classes=label.classes)
    np.testing.assert_array_equal(again.codes, [1, 2, 0, 0, 0])
    np.testing.assert_array_equal(label.select([3, 0]).codes, [1, 2])


@pytest.mark.parametrize(
    ("values", "missing"), [(["a", "b", "-1"], -1), ([0, 1, -1], "-1"), (["a", "nan", "b"], float("nan"))]
)
def test_a_code_of_another_type_than_the_labels_is_warned_of(values, missing):
    with pytest.warns(MissingCodeWarning, match="is never .* in 1 row; these are treated as a class"):
        class_label(np.array(values), "sea", 3, missing=missing)
    class_label(np.array(["a", "b", "c"]), "sea", 3, missing=-1)  # warnings are errors here


@pytest.mark.parametrize("odd", ["", "  ", "nan"])
def test_a_text_that_looks_like_a_missing_value_is_warned_of(odd):
    values = np.array(["sea", odd, "land", odd])
    with pytest.warns(MissingCodeWarning, match=f"place is '{odd}' in 2 rows.*pass None.*missing_concept='{odd}'"):
        assert len(class_label(values, "place", 4).classes) == 3
    assert class_label(values, "place", 4, missing=odd).classes == ("land", "sea")  # warnings are errors here
    class_label(np.array(["none", "some", "", "none"]), "place", 4, missing="")


def test_concepts_that_no_row_has_both_of_are_told_so():
    from unspur import LEACE

    half, Z = np.arange(40) < 20, np.random.default_rng(0).standard_normal((40, 3))
    concept = {"a": np.where(half, np.arange(40) % 2, np.nan), "b": np.where(half, np.nan, np.arange(40) % 2)}
    with pytest.raises(LabelError, match="No row has all of a, b known"):
        LEACE().fit(Z, concept=concept)


def test_a_dict_that_a_search_did_not_split_is_refused_with_what_to_pass():
    columns = {"light": [0, 1, 1, 0], "size": [0, 1, 2, 0]}
    assert list(label_columns(columns, 4, "concept")) == ["light", "size"]  # the control
    with pytest.raises(LabelError, match=r"light has 4 labels for 2 rows of X\..*pass a DataFrame"):
        label_columns(columns, 2, "concept")


@pytest.mark.parametrize("kind", ["datetime64[D]", "datetime64[ns]", "timedelta64[h]"])
def test_dates_are_numbers_and_a_missing_date_is_a_missing_number(kind):
    days = np.array([1, 5, "NaT", 3]).astype("timedelta64[D]").astype(kind if kind[0] == "t" else "timedelta64[D]")
    given = days if kind[0] == "t" else (np.datetime64("2020-01-01") + days).astype(kind)
    numbers = as_numbers(given)
    assert np.isnan(numbers).tolist() == [False, False, True, False]
    assert (numbers[1] - numbers[0]) / (numbers[3] - numbers[0]) == 2.0
    for column in (pd.Series(given), pd.Series(given).dt.tz_localize("UTC") if kind[0] == "d" else pd.Series(given)):
        again = as_numbers(column)
        assert np.isnan(again).tolist() == [False, False, True, False]
        assert (again[1] - again[0]) / (again[3] - again[0]) == 2.0
    assert np.array_equal(as_numbers(pd.Series([1, None], dtype="Int64")), [1.0, np.nan], equal_nan=True)


def _kinds_of_dates(times):
    """The same times in UTC, of which one is missing, as columns of every kind."""
    naive = pd.Series(times)
    zoned = naive.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")
    return {
        "microseconds": times.astype("datetime64[us]"),
        "nanoseconds": times.astype("datetime64[ns]"),
        "zoned": zoned,
        "zoned, in seconds": zoned.dt.as_unit("s"),
        "objects with a zone": zoned.astype(object),
        "objects of Python": np.array(times.astype("datetime64[us]").tolist(), dtype=object),
        "column of a frame": label_columns(pd.DataFrame({"d": zoned, "n": range(len(times))}), len(times), "c")["d"],
    }


def test_a_date_is_the_same_number_in_every_unit_and_kind_of_object():
    days = np.array(["1960-02-29", "NaT", "1970-01-02", "2024-12-31", "2061-07-01"], dtype="datetime64[D]")
    times = days.astype("datetime64[s]") + np.timedelta64(3661, "s")
    wanted = np.array([-310_517_939.0, np.nan, 90_061.0, 1_735_606_861.0, 2_887_405_261.0])
    for kind, column in _kinds_of_dates(times).items():
        np.testing.assert_array_equal(as_numbers(column), wanted, err_msg=kind)
    fractions = times.astype("datetime64[us]") + np.timedelta64(123_457, "us")
    np.testing.assert_array_equal(as_numbers(fractions), as_numbers(fractions.astype("datetime64[ns]")))
    whole_days = [value.item() for value in days]
    np.testing.assert_array_equal(as_numbers(whole_days), as_numbers(days))
    months = pd.Series(days).dt.to_period("M")
    np.testing.assert_array_equal(as_numbers(months), as_numbers(days.astype("datetime64[M]")))
    far = np.array(["9999-12-31"], dtype="datetime64[D]")  # nanoseconds do not reach so far
    assert as_numbers(far) == as_numbers(pd.Series(far).dt.tz_localize("UTC")) == 253_402_214_400.0
    assert as_numbers(np.array([2], dtype="timedelta64[h]")) == as_numbers(np.array([7200], dtype="timedelta64[s]"))
    with pytest.raises((TypeError, ValueError)):
        as_numbers([date(2020, 1, 1), 3.0])


def test_numbers_that_no_type_holds_together_are_refused():
    label = class_label(np.array([0.5, 2**53, 0.5], dtype=object), "y", 3)  # the control
    assert label.classes == (0.5, 2**53)
    with pytest.raises(LabelError, match=r"y mixes floats with the integer 9007199254740993, .* as text"):
        class_label(np.array([0.5, 2**53 + 1, 0.5], dtype=object), "y", 3)
    assert class_label(np.array([2**60, 2**60 + 1], dtype=object), "y", 2).classes == (2**60, 2**60 + 1)


def test_clusters_of_dates_are_the_same_in_any_unit():
    days = np.array(["2020-01-01", "2020-02-01", "2020-03-01"], dtype="datetime64[D]")
    for unit in ("D", "ms", "ns"):
        found = shared_clusters(days[:2].astype("datetime64[D]"), days[1:].astype(f"datetime64[{unit}]"))
        assert found == {np.datetime64("2020-02-01")}
    assert not shared_clusters(days[:1], days[1:].astype("datetime64[ns]"))


@pytest.mark.parametrize(
    "value", [["a"], ("a", "b"), {"a": 1}, np.array(["a", "b"]), []], ids=["list", "tuple", "dict", "array", "empty"]
)
def test_several_values_in_a_row_are_no_label(value):
    values = np.empty(4, dtype=object)
    values[:] = [None, "a", "b", "a"]
    class_label(values, "tags", 4)  # control
    values[2] = value
    with pytest.raises(LabelError, match="tags holds several values in a row, such as"):
        class_label(values, "tags", 4)


@pytest.mark.parametrize("missing", [None, np.nan, "NA"])
def test_numbers_among_objects_may_be_missing_in_any_spelling(missing):
    values = np.array([1, 2.5, pd.NA if missing == "NA" else missing], dtype=object)
    for form in (list, pd.Series):
        np.testing.assert_array_equal(as_numbers(form(values)), [1.0, 2.5, np.nan])
    np.testing.assert_array_equal(as_numbers(values), [1.0, 2.5, np.nan])
    np.testing.assert_array_equal(as_numbers(values[:, None]), [[1.0], [2.5], [np.nan]])
    with pytest.raises((TypeError, ValueError)):
        as_numbers(np.array([1, "two"], dtype=object))


def test_no_labels_are_refused_with_their_number():
    with pytest.raises(LabelError, match="concept has 0 labels for 800 rows of X"):
        class_label([], "concept", 800)
