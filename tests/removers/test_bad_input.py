"""Bad input gets an error in words, and odd input that is fine works."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from numpy.testing import assert_allclose
from sklearn.model_selection import GroupKFold, KFold, RepeatedStratifiedKFold, StratifiedKFold, TimeSeriesSplit

from tests.optional import torch
from unspur import INLP, JSE, LEACE, RLACE, RobustClassifier
from unspur.datasets import make_toy
from unspur.exceptions import GroupSizeError, InputError, LabelError, NotFiniteError
from unspur.heads import ERM, GroupWeighted
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


def test_not_finite_values_are_counted_and_their_columns_named(toy):
    Z = toy.Z.copy()
    Z[3, 2] = Z[7, 2] = np.nan
    Z[1, 5] = np.inf
    for given, columns in ((Z, "25"), (pd.DataFrame(Z, columns=list("abcdef")), "cf")):
        with pytest.raises(NotFiniteError, match=f"2 NaN in column {columns[0]}; 1 infinite in column {columns[1]}"):
            fit(toy, Z=given)
    with pytest.raises(NotFiniteError, match="validation rows"):
        fit(toy, X_val=Z, y_val=toy.y, concept_val=toy.concept)
    with pytest.raises(NotFiniteError):
        fit(toy).transform(Z)


@pytest.mark.parametrize(
    "change",
    [lambda z: torch.from_numpy(z).to_sparse(), lambda z: torch.from_numpy(z).to("meta"), scipy.sparse.csr_array],
    ids=["sparse tensor", "meta tensor", "scipy"],
)
@pytest.mark.filterwarnings("ignore:.*(prototype|beta):UserWarning")
def test_arrays_without_plain_values_are_refused(toy, change):
    Z = change(toy.Z)
    fitted = LEACE().fit(toy.Z, concept=toy.concept)
    for call in (
        lambda: fit(toy, Z=Z),
        lambda: LEACE().fit(Z, concept=toy.concept),
        lambda: fitted.transform(Z),
        lambda: fitted.certificate(Z, toy.y, toy.concept),
        lambda: ERM().fit(Z, toy.y),
        lambda: leakage(Z, toy.concept),
    ):
        with pytest.raises(InputError, match=r"dense"):
            call()
    assert_allclose(fitted.transform(torch.from_numpy(toy.Z)), fitted.transform(toy.Z))  # control


def test_values_of_any_finite_size_are_taken_and_those_that_cannot_be_squared_refused(toy):
    reference = fit(toy)
    for scale in (1e-100, 1e100):
        assert_allclose(fit(toy, Z=toy.Z * scale).spurious_.basis, reference.spurious_.basis, atol=1e-6)
    for scale in (1e-160, 1e160):
        for estimator in (JSE(random_state=0), INLP(), RLACE(), LEACE(), ERM()):
            with pytest.raises(InputError, match=r"order of|overflows|squares"):
                estimator.fit(toy.Z * scale, toy.y, concept=toy.concept)
    big = np.full((600, 6), 2e36, dtype=np.float32)  # the sum of a block overflows float32; its entries do not
    assert np.all(np.isfinite(reference.transform(big)))


def test_constant_columns_do_not_matter_and_rows_need_two_dimensions(toy):
    reference = fit(toy).spurious_.basis
    constant = fit(toy, Z=np.column_stack([toy.Z, np.full(600, 1e14)]))
    assert_allclose(constant.spurious_.basis[:6], reference, atol=1e-6)
    for Z, said in (
        (np.ones((600, 4)), "constant"),
        (toy.Z[:, :1], "1 feature"),
        (np.column_stack([toy.Z[:, 0], 2 * toy.Z[:, 0]]), "two free dimensions"),
    ):
        with pytest.raises(InputError, match=said):
            fit(toy, Z=Z)


@pytest.mark.parametrize("estimator", [JSE(), LEACE(), ERM()], ids=repr)
def test_text_in_a_column_of_features_is_named_with_its_column(toy, estimator):
    frame = pd.DataFrame(toy.Z.astype(object)).add_prefix("f")
    estimator.fit(frame, toy.y, concept=toy.concept)
    frame.loc[40, "f4"] = "gull 7"
    with pytest.raises(InputError, match=r"Column 'f4' of X holds text.*gull 7"):
        estimator.fit(frame, toy.y, concept=toy.concept)
    with pytest.raises(InputError, match="X holds text"):
        estimator.fit(frame.to_numpy(), toy.y, concept=toy.concept)
    with pytest.raises(InputError, match="'f4'"):
        (estimator.predict if isinstance(estimator, ERM) else estimator.transform)(frame)


def test_columns_are_those_of_the_fit(toy):
    frame = pd.DataFrame(toy.Z, columns=list("abcdef"))
    leace = LEACE().fit(frame, concept=toy.concept)
    assert leace.transform(frame).shape == toy.Z.shape
    with pytest.raises(ValueError, match="same order"):
        leace.transform(frame[list("fedcba")])
    with pytest.raises(ValueError, match="features"):
        LEACE().fit(toy.Z, concept=toy.concept).transform(toy.Z[:, :4])
    with pytest.raises(InputError, match="2 columns called 'a'"):
        LEACE().fit(frame.set_axis(list("aacdef"), axis=1), concept=toy.concept)
    with pytest.raises(ValueError, match="not fitted"):
        JSE().transform(toy.Z)


def test_a_series_as_rows_is_told_what_to_do(toy):
    rows = pd.Series(list(toy.Z))
    fitted = LEACE().fit(toy.Z, concept=toy.concept)
    for call in (
        lambda: LEACE().fit(rows, concept=toy.concept),
        lambda: fitted.transform(rows),
        lambda: leakage(rows, toy.concept),
    ):
        with pytest.raises(InputError, match=r"np\.stack"):
            call()


def test_masked_rows_are_refused_and_a_mask_without_gaps_is_not(toy):
    with pytest.raises(InputError, match="5 masked values"):
        fit(toy, Z=np.ma.masked_array(toy.Z, mask=np.arange(3600).reshape(600, 6) < 5))
    assert_allclose(fit(toy, Z=np.ma.masked_array(toy.Z)).removal_.matrix(), fit(toy).removal_.matrix())


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


def test_labels_of_any_kind_give_the_same_answer(toy):
    reference = fit(toy).removal_.matrix()
    kinds = {
        "boolean": (toy.y.astype(bool), toy.concept.astype(bool)),
        "texts": (np.array(["land", "water"])[toy.y], np.array(["a", "b"])[toy.concept]),
        "floats": (toy.y.astype(float), toy.concept * 1.0),
        "other integers": (toy.y * 5 - 3, toy.concept + 7),
        "categories": (pd.Categorical(np.array(["x", "y"])[toy.y]), pd.Series(toy.concept, dtype="Int64")),
        "lists": (toy.y.tolist(), toy.concept.tolist()),
        "tensors": (torch.from_numpy(toy.y), torch.from_numpy(toy.concept)),
    }
    for name, (y, concept) in kinds.items():
        assert_allclose(fit(toy, y=y, concept=concept).removal_.matrix(), reference, err_msg=name)
    assert fit(toy, y=kinds["texts"][0]).classes_ == ("land", "water")


@pytest.mark.parametrize("estimator", [JSE(), LEACE(), GroupWeighted()], ids=repr)
def test_labels_that_are_none_are_refused_by_name(toy, estimator):
    frame = pd.DataFrame(toy.Z).add_prefix("f")
    for concept in ("bg", ["bg"], 1, toy.concept[:10], toy.concept.astype("M8[D]"), {"bg": toy.concept[1:]}):
        with pytest.raises(LabelError, match=r"concept|bg"):
            estimator.fit(frame, toy.y, concept=concept)
    for y in ("bird", toy.y[1:], toy.y[:1], {"bird": toy.y}):
        if not isinstance(estimator, LEACE):  # which does not look at y
            with pytest.raises(LabelError, match="y "):
                estimator.fit(frame, y, concept=toy.concept)
    with pytest.raises(LabelError, match="concept of the validation rows has 3 labels"):
        fit(toy, X_val=toy.Z, y_val=toy.y, concept_val=toy.concept[:3])
    with pytest.raises(LabelError):
        leakage(toy.Z, "bg")


def test_the_concept_is_passed_by_name(toy):
    for estimator in (JSE(), LEACE(), ERM()):
        with pytest.raises(TypeError):
            estimator.fit(toy.Z, toy.y, toy.concept)


def test_weights_must_make_sense(toy):
    for weight, said in (
        (np.full(600, -1.0), "negative"),
        (np.zeros(600), "above zero"),
        (np.full(600, np.nan), "finite"),
        (np.ones(5), "one per row"),
        (np.r_[1e300, np.ones(599)], "orders of magnitude"),
        (np.ones(600, dtype=complex), "real numbers"),
        (np.ma.masked_array(np.ones(600), mask=np.arange(600) < 5), "5 missing"),
    ):
        with pytest.raises(InputError, match=f"sample_weight.*{said}"):
            fit(toy, sample_weight=weight)
    same = fit(toy).removal_.matrix()
    assert_allclose(fit(toy, sample_weight=np.full(600, 1e-200)).removal_.matrix(), same, atol=1e-9)


def test_a_group_too_small_to_test_is_named_with_a_remedy(toy):
    keep = (toy.y != 1) | (toy.concept != 0)
    keep[np.flatnonzero(~keep)[:12]] = True
    few = {"Z": toy.Z[keep], "y": toy.y[keep], "concept": toy.concept[keep]}
    with pytest.raises(GroupSizeError, match=r"\(y=1, concept=0\) has 2.*cv.*smallest_group"):
        fit(toy, **few, cv=0.2)
    assert fit(toy, **few, cv=0.2, smallest_group=2, max_spurious=0).n_features_in_ == 6
    words = {**few, "y": np.array(["land", "water"])[few["y"]], "concept": np.array(["sky", "sea"])[few["concept"]]}
    with pytest.raises(GroupSizeError, match=r"\(y=water, concept=sky\) has 2"):
        fit(toy, **words, cv=0.2)
    none = np.flatnonzero((toy.y != 1) | (toy.concept != 0))
    with pytest.raises(GroupSizeError, match=r"\(y=1, concept=0\) has 0"):
        fit(toy, X_val=toy.Z[none], y_val=toy.y[none], concept_val=toy.concept[none])


def test_an_incomplete_validation_set_is_refused(toy):
    for given in ({"X_val": toy.Z, "y_val": toy.y}, {"y_val": toy.y, "concept_val": toy.concept}):
        with pytest.raises(InputError, match="X_val, y_val and concept_val together"):
            fit(toy, **given)
    with pytest.raises(InputError, match="X_val and concept_val together"):
        INLP().fit(toy.Z, concept=toy.concept, X_val=toy.Z)  # which does not look at y
    with pytest.raises(ValueError, match="features"):
        fit(toy, X_val=toy.Z[:, :3], y_val=toy.y, concept_val=toy.concept)


def test_a_failed_fit_leaves_the_estimator_as_it_was(toy):
    jse = fit(toy)
    before = jse.transform(toy.Z)
    for wrong in ({"concept": toy.y}, {"concept": toy.concept, "X_val": toy.Z}):
        with pytest.raises(InputError):
            jse.fit(toy.Z[:, :5], toy.y, **wrong)
    np.testing.assert_array_equal(jse.transform(toy.Z), before)


def test_splits_that_are_none_are_refused(toy):
    every = np.arange(600)
    for cv, said in (
        (None, "cv"),
        ("5", "number of folds"),
        ([1, 2], "split 1 is not a pair"),
        ([(every[:500], [700])], "split 1 is not a pair"),
        ([([], [1, 2])], "training set of split 1 is empty"),
        ([(every[1:], [1, 2])], "training set and in the test set of split 1"),
        ([(every != 1, [1]), (every != 1, every == 1)], "in two test sets"),
        ([], "no row"),
        (KFold(5000), "cannot split"),
        (GroupKFold(), "Pass clusters"),
    ):
        with pytest.raises(InputError, match=said):
            fit(toy, cv=cv)
    with pytest.raises(InputError, match="in two test sets"):
        leakage(toy.Z, toy.concept, cv=RepeatedStratifiedKFold(n_splits=2, n_repeats=2))
    leakage(toy.Z, toy.concept, cv=RepeatedStratifiedKFold(n_splits=2, n_repeats=1))  # control


@pytest.mark.parametrize("remover", [JSE, INLP])
def test_splits_that_train_on_fewer_rows_than_are_outside_the_test_set_are_refused(toy, remover):
    """They would be ignored otherwise: directions are estimated from all rows outside the test set."""
    method = remover(penalty=0.1, random_state=0)
    folds = list(StratifiedKFold(5).split(toy.Z, 2 * toy.y + toy.concept))
    concept = toy.concept.astype(float)
    concept[folds[0][0][:9]] = np.nan
    known = [(train[np.isfinite(concept[train])], test) for train, test in folds]
    assert method.set_params(cv=known).fit(toy.Z, toy.y, concept=concept).spurious_.dim  # the control
    for cv in (TimeSeriesSplit(5), [(train[3:], test) for train, test in folds]):
        with pytest.raises(InputError, match="rows are neither"):
            method.set_params(cv=cv).fit(toy.Z, toy.y, concept=toy.concept)


@pytest.mark.parametrize("name", [lambda c: c, lambda c: 1 - c, lambda c: np.where(c == 1, "sea", "land")])
def test_a_method_without_a_task_still_refuses_to_remove_it(toy, name):
    for remover in (INLP(), RobustClassifier(INLP(), random_state=0)):
        with pytest.raises(LabelError, match="same label"):
            remover.fit(toy.Z, toy.y, concept=name(toy.y))
    for y in (toy.y, np.linspace(0, 1, 600)):  # controls: numbers are no such label
        INLP(max_directions=1).fit(toy.Z, y, concept=toy.concept)
    with pytest.raises(LabelError, match="10 labels for 600 rows"):
        INLP().fit(toy.Z, toy.y[:10], concept=toy.concept)
