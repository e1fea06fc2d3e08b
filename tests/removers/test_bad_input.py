"""Bad input gets a clear error: what was seen, what is needed, what to do. And odd input that is fine works."""

import inspect

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose
from sklearn.model_selection import GroupKFold, KFold, RepeatedStratifiedKFold, StratifiedKFold, TimeSeriesSplit

from tests.optional import pandas as pd
from tests.optional import torch
from unspur import INLP, JSE, LEACE, RLACE, RobustClassifier
from unspur.datasets import make_toy
from unspur.exceptions import ArgumentError, GroupSizeError, InputError, LabelError, NotFiniteError
from unspur.heads import ERM, JTT, GroupWeighted
from unspur.metrics import leakage


@pytest.fixture(scope="module")
def toy():
    return make_toy(600, d=6, rho=0.5, random_state=0)


def fit(toy, Z=None, y=None, concept=None, **options):
    fit_options = {k: options.pop(k) for k in list(options) if k.endswith("_val") or k == "sample_weight"}
    return JSE(**{"random_state": 0, "penalty": 0.1, **options}).fit(
        toy.Z if Z is None else Z,
        toy.y if y is None else y,
        concept=toy.concept if concept is None else concept,
        **fit_options,
    )


@pytest.mark.parametrize("estimator", [JSE(random_state=0), INLP(), RLACE(), LEACE(), ERM()])
@pytest.mark.parametrize("size", [1e-160, 1e-200, 1e-300])
def test_rows_whose_squares_vanish_are_not_called_constant(toy, estimator, size):
    with pytest.raises(InputError, match="whose squares do not fit a float64"):
        estimator.fit(size * toy.Z, toy.y, concept=toy.concept)
    with pytest.raises(InputError, match="every column of X is constant"):
        estimator.fit(np.full_like(toy.Z, 0.1), toy.y, concept=toy.concept)  # control


@pytest.mark.parametrize("size", [1e-160, 1e-200, 1e-300])
def test_leakage_of_tiny_rows_is_that_of_the_same_rows_in_another_unit(toy, size):
    found = leakage(size * toy.Z, toy.concept, random_state=0)
    assert found.accuracy == pytest.approx(leakage(toy.Z, toy.concept, random_state=0).accuracy, abs=0.01)
    assert found.accuracy > 0.6
    half = {"X_test": size * toy.Z[::2], "concept_test": toy.concept[::2]}
    assert leakage(size * toy.Z[1::2], toy.concept[1::2], **half, random_state=0).accuracy > 0.6


def test_not_finite_values_are_counted_by_column(toy):
    Z = toy.Z.copy()
    Z[3, 2] = Z[7, 2] = np.nan
    Z[1, 5] = np.inf
    with pytest.raises(NotFiniteError, match="2 NaN in column 2; 1 infinity in column 5"):
        fit(toy, Z=Z)
    with pytest.raises(NotFiniteError, match="2 NaN in column 'c'"):
        fit(toy, Z=pd.DataFrame(Z, columns=list("abcdef")))
    with pytest.raises(NotFiniteError, match="X of the validation rows must be finite; found 2 NaN"):
        fit(toy, X_val=Z[:, :], y_val=toy.y, concept_val=toy.concept)
    with pytest.raises(NotFiniteError, match="column 2"):
        fit(toy).transform(Z)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda z: z.to_sparse(), r"layout sparse coo; pass \.to_dense\(\)"),
        (lambda z: z.to_sparse_csr(), r"layout sparse csr; pass \.to_dense\(\)"),
        (lambda z: z.to("meta"), r"shape \(600, 6\) on the device 'meta', which has no values"),
        (lambda z: torch.nested.nested_tensor([z[:2], z[2:3]]), "nested tensor, whose rows differ in length"),
        (lambda z: scipy.sparse.csr_matrix(z.numpy()), r"sparse csr_matrix of shape \(600, 6\).*toarray"),
        (lambda z: scipy.sparse.coo_array(z.numpy()), r"sparse coo_array of shape \(600, 6\).*toarray"),
    ],
    ids=["coo", "csr", "meta", "nested", "scipy matrix", "scipy array"],
)
@pytest.mark.filterwarnings("ignore:.*(prototype|beta):UserWarning")
def test_arrays_without_plain_values_are_refused_in_a_sentence(toy, change, said):
    Z = change(torch.from_numpy(toy.Z))
    fitted = LEACE().fit(toy.Z, concept=toy.concept)
    for call in (
        lambda: fit(toy, Z=Z),
        lambda: LEACE().fit(Z, concept=toy.concept),
        lambda: fitted.transform(Z),
        lambda: fitted.certificate(Z, toy.y, toy.concept),
        lambda: ERM().fit(Z, toy.y),
        lambda: leakage(Z, toy.concept),
    ):
        with pytest.raises(InputError, match=said):
            call()
    plain = torch.from_numpy(toy.Z)
    assert_allclose(fitted.transform(plain), fitted.transform(toy.Z))  # control


def test_labels_without_plain_values_are_refused_in_a_sentence(toy):
    labels = torch.from_numpy(np.asarray(toy.concept))
    for wrong in (labels.to_sparse(), labels.to("meta")):
        with pytest.raises(InputError, match=r"to_dense|no values"):
            LEACE().fit(toy.Z, concept=wrong)
        with pytest.raises(InputError, match=r"to_dense|no values"):
            fit(toy, sample_weight=wrong.double())
    assert LEACE().fit(toy.Z, concept=labels).spurious_.dim == 1  # control


def test_large_finite_values_are_not_mistaken_for_infinity(toy):
    """The sum of a block overflows float32; its entries do not."""
    big = np.full((600, 6), 2e36, dtype=np.float32)
    with np.errstate(over="ignore"):
        assert np.isinf(big.sum())
    jse = fit(toy)
    assert np.all(np.isfinite(jse.transform(big)))


@pytest.mark.parametrize("estimator", [JSE(), INLP(), LEACE(), RLACE(), ERM(), GroupWeighted(), JTT()], ids=repr)
def test_a_concept_without_its_name_is_told_where_it_belongs(toy, estimator):
    name = type(estimator).__name__
    with pytest.raises(ArgumentError, match=rf"{name}\.fit takes X and y .* got 3 .*fit\(X, y, concept=") as told:
        estimator.fit(toy.Z, toy.y, toy.concept)
    assert isinstance(told.value, TypeError)  # as Python's own
    assert list(inspect.signature(estimator.fit).parameters)[:3] == ["X", "y", "concept"]  # which tools still see
    with pytest.raises(TypeError, match=r"missing \d required"):
        estimator.fit()


def test_fit_transform_and_partial_fit_say_so_too(toy):
    with pytest.raises(ArgumentError, match=r"LEACE\.fit_transform takes X and y .*fit_transform\(X, y, concept="):
        LEACE().fit_transform(toy.Z, toy.y, toy.concept)
    with pytest.raises(ArgumentError, match=r"LEACE\.partial_fit takes X and y"):
        LEACE().partial_fit(toy.Z, toy.y, toy.concept)


@pytest.mark.parametrize("estimator", [JSE(), LEACE(), GroupWeighted()], ids=repr)
def test_a_name_in_place_of_a_column_is_no_label(toy, estimator):
    frame = pd.DataFrame(toy.Z).add_prefix("f").assign(bg=toy.concept)
    with pytest.raises(LabelError, match=r"concept is the text 'bg', .* such as concept=frame\['bg'\], and leave"):
        estimator.fit(frame, toy.y, concept="bg")
    with pytest.raises(LabelError, match=r"concept has 1 labels for 600 rows.* If these are names of columns"):
        estimator.fit(frame, toy.y, concept=["bg"])
    with pytest.raises(LabelError, match="concept is the single value 1; each row needs one"):
        estimator.fit(frame, toy.y, concept=1)
    if not isinstance(estimator, LEACE):  # which does not look at y
        with pytest.raises(LabelError, match="y is the text 'bird', and not a value for each row"):
            estimator.fit(frame, "bird", concept=toy.concept)
    with pytest.raises(LabelError, match="concept is the text 'bg'"):
        leakage(toy.Z, "bg")


@pytest.mark.parametrize("estimator", [JSE(), LEACE(), ERM()], ids=repr)
def test_text_in_a_column_of_features_is_named_with_its_column(toy, estimator):
    frame = pd.DataFrame(toy.Z.astype(object)).add_prefix("f")
    frame["f2"] = frame["f2"].map("{:.3f}".format)  # numbers as text are numbers
    estimator.fit(frame, toy.y, concept=toy.concept)
    frame.loc[40, "f4"] = "gull 7"
    message = r"Column 'f4' of X holds text, such as 'gull 7'; features are numbers\. Leave the column out"
    with pytest.raises(InputError, match=message):
        estimator.fit(frame, toy.y, concept=toy.concept)
    with pytest.raises(InputError, match="Column 4 of X holds text, such as 'gull 7'"):
        estimator.fit(frame.to_numpy(), toy.y, concept=toy.concept)
    with pytest.raises(InputError, match=message):
        (estimator.predict if isinstance(estimator, ERM) else estimator.transform)(frame)


def test_lengths_that_differ_are_both_named(toy):
    with pytest.raises(LabelError, match="y has 599 labels for 600 rows"):
        fit(toy, y=toy.y[1:])
    with pytest.raises(LabelError, match="concept has 10 labels for 600 rows"):
        fit(toy, concept=toy.concept[:10])
    with pytest.raises(InputError, match=r"sample_weight is float64 of shape \(5,\); 600 real numbers"):
        fit(toy, sample_weight=np.ones(5))
    with pytest.raises(LabelError, match="concept_val has 3 labels"):
        fit(toy, X_val=toy.Z, y_val=toy.y, concept_val=toy.concept[:3])


def test_weights_must_make_sense(toy):
    for weight in (np.full(600, -1.0), np.zeros(600), np.full(600, np.nan)):
        with pytest.raises(InputError, match="sample_weight must be finite and not negative"):
            fit(toy, sample_weight=weight)
    for weight, message in (
        (np.r_[1e300, np.ones(599)], "orders of magnitude"),
        (np.ones(600, dtype=complex), "real numbers"),
        (np.ma.masked_array(np.ones(600), mask=np.arange(600) < 5), "found 5 missing"),
    ):
        with pytest.raises(InputError, match=message):
            fit(toy, sample_weight=weight)
    same = fit(toy).removal_.matrix()
    assert_allclose(fit(toy, sample_weight=np.full(600, 1e-200)).removal_.matrix(), same, atol=1e-9)


def test_a_group_too_small_to_test_is_named_with_a_remedy(toy):
    keep = (toy.y != 1) | (toy.concept != 0)
    keep[np.flatnonzero(~keep)[:12]] = True
    few = {"Z": toy.Z[keep], "y": toy.y[keep], "concept": toy.concept[keep]}
    with pytest.raises(GroupSizeError, match=r"\(y=1, concept=0\) has 2; .*at least 10.*cv=5.*smallest_group=2"):
        fit(toy, **few, cv=0.2)
    assert fit(toy, **few, cv=3, max_spurious=0).n_features_in_ == 6
    assert fit(toy, **few, cv=0.2, smallest_group=2, max_spurious=0).n_features_in_ == 6
    words = {**few, "y": np.array(["land", "water"])[few["y"]], "concept": np.array(["sky", "sea"])[few["concept"]]}
    with pytest.raises(GroupSizeError, match=r"\(y=water, concept=sky\) has 2"):
        fit(toy, **words, cv=0.2)
    none = np.flatnonzero((toy.y != 1) | (toy.concept != 0))
    with pytest.raises(GroupSizeError, match=r"\(y=1, concept=0\) has 0.*more rows with X_val="):
        fit(toy, X_val=toy.Z[none], y_val=toy.y[none], concept_val=toy.concept[none])


def test_an_incomplete_validation_set_is_refused(toy):
    with pytest.raises(InputError, match="X_val, y_val and concept_val together"):
        fit(toy, X_val=toy.Z, y_val=toy.y)
    with pytest.raises(InputError, match="X_val, y_val and concept_val together"):
        fit(toy, y_val=toy.y, concept_val=toy.concept)
    with pytest.raises(InputError, match="needs X_val and concept_val together"):
        INLP().fit(toy.Z, concept=toy.concept, X_val=toy.Z)  # which does not look at y
    with pytest.raises(ValueError, match="features"):
        fit(toy, X_val=toy.Z[:, :3], y_val=toy.y, concept_val=toy.concept)


def test_constant_rows_and_one_column_are_refused(toy):
    with pytest.raises(InputError, match="constant"):
        fit(toy, Z=np.ones((600, 4)))
    with pytest.raises(InputError, match="1 feature"):
        fit(toy, Z=toy.Z[:, :1])


def test_labels_of_any_kind_give_the_same_answer(toy):
    reference = fit(toy).removal_.matrix()
    kinds = {
        "boolean": (toy.y.astype(bool), toy.concept.astype(bool)),
        "strings": (np.array(["land", "water"])[toy.y], np.array(["a", "b"])[toy.concept]),
        "floats": (toy.y.astype(float), toy.concept * 1.0),
        "other integers": (toy.y * 5 - 3, toy.concept + 7),
        "categories": (pd.Categorical(np.array(["x", "y"])[toy.y]), pd.Series(toy.concept, dtype="Int64")),
        "lists": (toy.y.tolist(), toy.concept.tolist()),
    }
    for name, (y, concept) in kinds.items():
        assert_allclose(fit(toy, y=y, concept=concept).removal_.matrix(), reference, err_msg=name)
    assert fit(toy, y=kinds["strings"][0]).classes_ == ("land", "water")


def test_read_only_strided_and_integer_rows_work_and_are_not_changed(toy):
    reference = fit(toy).removal_.matrix()
    frozen = toy.Z.copy()
    frozen.setflags(write=False)
    wide = np.zeros((1200, 12))
    wide[::2, ::2] = toy.Z
    for Z in (frozen, wide[::2, ::2], np.asfortranarray(toy.Z)):
        before = Z.copy()
        jse = fit(toy, Z=Z)
        jse.transform(Z)
        assert_allclose(jse.removal_.matrix(), reference, atol=1e-8)
        np.testing.assert_array_equal(Z, before)
    integers = np.round(toy.Z * 10).astype(int)
    assert_allclose(fit(toy, Z=integers).removal_.matrix(), fit(toy, Z=integers.astype(float)).removal_.matrix())


def test_a_failed_fit_leaves_the_estimator_as_it_was(toy):
    jse = fit(toy)
    before = jse.transform(toy.Z)
    for wrong in ({"concept": toy.y}, {"concept": toy.concept, "X_val": toy.Z}):
        with pytest.raises(InputError):
            jse.fit(toy.Z[:, :5], toy.y, **wrong)
    np.testing.assert_array_equal(jse.transform(toy.Z), before)
    fresh = JSE()
    with pytest.raises(InputError):
        fresh.fit(toy.Z * np.nan, toy.y, concept=toy.concept)
    with pytest.raises(ValueError, match="not fitted"):
        fresh.transform(toy.Z)


def test_masked_rows_are_refused_and_a_mask_without_gaps_is_not(toy):
    with pytest.raises(InputError, match="5 masked values"):
        fit(toy, Z=np.ma.masked_array(toy.Z, mask=np.arange(3600).reshape(600, 6) < 5))
    assert_allclose(fit(toy, Z=np.ma.masked_array(toy.Z)).removal_.matrix(), fit(toy).removal_.matrix())


def test_splits_that_are_none_are_refused_by_name(toy):
    every = np.arange(600)
    for cv, message in (
        ("5", "cv must be a number of folds"),
        ([1, 2], "split 1 is not a pair"),
        ([(every[:500], [700])], "split 1 is not a pair"),
        ([(None, [1, 2])], "split 1 is not a pair"),
        ([([], [1, 2])], "training set of split 1 is empty"),
        ([(every[1:], [1, 2])], "2 rows are in the training set and in the test set of split 1"),
        ([(every != 1, [1]), (every != 1, every == 1)], "in two test sets"),
        ([], "no row"),
    ):
        with pytest.raises(InputError, match=message):
            fit(toy, cv=cv)


@pytest.mark.parametrize("remover", [JSE, INLP])
def test_splits_that_train_on_fewer_rows_than_are_outside_the_test_set_are_refused(toy, remover):
    """They would be ignored otherwise: directions are estimated from all rows outside the test set."""
    method = remover(penalty=0.1, random_state=0)
    folds = list(StratifiedKFold(5).split(toy.Z, 2 * toy.y + toy.concept))
    concept = toy.concept.astype(float)
    concept[folds[0][0][:9]] = np.nan
    known = [(train[np.isfinite(concept[train])], test) for train, test in folds]
    assert method.set_params(cv=known).fit(toy.Z, toy.y, concept=concept).spurious_.dim  # the control
    for cv, message in (
        (TimeSeriesSplit(5), "400 rows are neither .* split 1.*ordered in time.*X_val"),
        ([(train[3:], test) for train, test in folds], "3 rows are neither .* Leave rows out of X, or pass clusters="),
        ([(np.r_[train, train[:4]], test) for train, test in folds], "4 rows are more than once in the training set"),
    ):
        with pytest.raises(InputError, match=message):
            method.set_params(cv=cv).fit(toy.Z, toy.y, concept=toy.concept)


def test_scales_at_the_end_of_floating_point(toy):
    reference = fit(toy)
    for scale in (1e-100, 1e100):
        assert_allclose(fit(toy, Z=toy.Z * scale).spurious_.basis, reference.spurious_.basis, atol=1e-6)
    for scale in (1e-150, 1e160):
        with pytest.raises(InputError, match=r"of the order of .*Rescale"):
            fit(toy, Z=toy.Z * scale)


def test_a_huge_constant_column_and_a_huge_noisy_one(toy):
    reference = fit(toy).spurious_.basis
    constant = fit(toy, Z=np.column_stack([toy.Z, np.full(600, 1e14)]))
    assert_allclose(constant.spurious_.basis[:6], reference, atol=1e-6)
    stretched = toy.Z.copy()
    stretched[:, 5] *= 100
    assert fit(toy, Z=stretched, penalty="auto").spurious_.dim == 1
    with pytest.raises(InputError, match="two free dimensions, and 1 of 2"):
        fit(toy, Z=np.column_stack([toy.Z[:, 0], 2 * toy.Z[:, 0]]), penalty=0.1)


def test_unfitted_and_wrong_width_transforms_are_refused(toy):
    with pytest.raises(ValueError, match="not fitted"):
        JSE().transform(toy.Z)
    with pytest.raises(ValueError, match="6 features"):
        fit(toy).transform(toy.Z[:, :4])


def test_no_folds_at_all_are_refused_with_what_to_pass():
    toy = make_toy(200, random_state=0)
    with pytest.raises(InputError, match=r"Pass cv=0\.2 for that, or cv=5"):
        JSE(cv=None).fit(toy.Z, toy.y, concept=toy.concept)


@pytest.mark.parametrize("name", [lambda c: c, lambda c: 1 - c, lambda c: np.where(c == 1, "sea", "land")])
def test_a_method_without_a_task_still_refuses_to_remove_it(toy, name):
    for remover in (INLP(), RobustClassifier(INLP(), random_state=0)):
        with pytest.raises(LabelError, match="are the same label in all 600 rows"):
            remover.fit(toy.Z, toy.y, concept=name(toy.y))
    INLP(max_directions=1).fit(toy.Z, toy.y, concept=toy.concept)  # control
    INLP(max_directions=1).fit(toy.Z, np.linspace(0, 1, 600), concept=toy.concept)  # numbers are no such label


@pytest.mark.parametrize("remover", [INLP(), LEACE()], ids=lambda remover: type(remover).__name__)
@pytest.mark.parametrize("number", [1, 10])
def test_a_task_of_fewer_rows_is_refused_where_it_is_only_compared(toy, remover, number):
    with pytest.raises(LabelError, match=f"y has {number} labels for 600 rows"):
        remover.fit(toy.Z, toy.y[:number], concept=toy.concept)


def test_only_a_splitter_that_asks_for_groups_is_told_about_clusters(toy):
    with pytest.raises(InputError, match="greater than the number of samples") as told:
        fit(toy, cv=KFold(5000))
    assert "clusters" not in str(told.value)
    with pytest.raises(InputError, match="Pass clusters="):
        fit(toy, cv=GroupKFold())


def test_a_row_is_held_out_once_in_leakage_too(toy):
    with pytest.raises(InputError, match="in two test sets"):
        leakage(toy.Z, toy.concept, cv=RepeatedStratifiedKFold(n_splits=2, n_repeats=2))
    leakage(toy.Z, toy.concept, cv=RepeatedStratifiedKFold(n_splits=2, n_repeats=1))  # control


def test_a_group_without_rows_is_noted_where_it_is_not_refused(toy):
    kept = (toy.y == 1) | (toy.concept == 0)
    made = RobustClassifier(LEACE(), random_state=0).fit(toy.Z[kept], toy.y[kept], concept=toy.concept[kept])
    assert any("No training row has y and concept = (0, 1)" in note for note in made.notes_)
    whole = RobustClassifier(LEACE(), random_state=0).fit(toy.Z, toy.y, concept=toy.concept)
    assert not any("No training row" in note for note in whole.notes_)


def test_a_series_as_rows_is_told_what_to_do():
    Z, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    rows = pd.Series(list(Z))
    fitted = LEACE().fit(Z, concept=y)
    for call in (lambda: LEACE().fit(rows, concept=y), lambda: fitted.transform(rows), lambda: leakage(rows, y)):
        with pytest.raises(InputError, match=r"X is a Series of 60 values.* np\.stack\(X\)"):
            call()
