"""One contract for every remover: what users may rely on whichever they choose."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from tests.optional import torch
from unspur import INLP, JSE, load
from unspur.datasets import make_toy
from unspur.exceptions import InputError, LabelError, NotFiniteError
from unspur.removers import REMOVERS

#: Settings that make fits quick; methods without any have none.
SETTINGS = {name: {"cv": 0.2, "penalty": 0.1, "random_state": 0} for name in ("JSE", "INLP")}
FAST = {name: kind(**SETTINGS.get(name, {})) for name, kind in REMOVERS.items()}
#: Those that leave no linear trace of the concept in the rows they were fitted on, whatever the task.
ERASERS = ["RLACE", "LEACE", "SAL", "SPLINCE"]


@pytest.fixture(scope="module")
def toy():
    return make_toy(1500, d=8, rho=0.6, random_state=0)


@pytest.fixture(params=list(FAST))
def remover(request):
    return clone(FAST[request.param])


def fitted(remover, toy, **changes):
    given = {"X": toy.Z, "y": toy.y, "concept": toy.concept, **changes}
    return remover.fit(given.pop("X"), given.pop("y"), **given)


def test_applying_twice_is_applying_once_and_the_rank_is_as_promised(remover, toy):
    clean = fitted(remover, toy).transform(toy.Z)
    assert_allclose(remover.transform(clean), clean, atol=1e-10)
    assert np.abs(clean - toy.Z).max() > 0.1
    assert remover.removal_.rank == 8 - remover.spurious_.dim
    assert np.linalg.matrix_rank(clean - clean.mean(axis=0), tol=1e-8) == remover.removal_.rank


def test_rows_come_back_as_they_came(remover, toy):
    fitted(remover, toy)
    reference = remover.transform(toy.Z)
    for dtype, tolerance in ((np.float32, 1e-5), (np.float16, 2e-2)):
        clean = remover.transform(toy.Z.astype(dtype))
        assert clean.dtype == dtype
        assert_allclose(clean, reference, atol=tolerance)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.1)):
        clean = remover.transform(torch.tensor(toy.Z, dtype=dtype))
        assert isinstance(clean, torch.Tensor)
        assert clean.dtype == dtype
        assert_allclose(clean.double().numpy(), reference, atol=tolerance)
    frame = pd.DataFrame(toy.Z, columns=list("abcdefgh"), index=np.arange(1500) + 7)
    named = fitted(clone(remover), toy, X=frame).set_output(transform="pandas").transform(frame)
    assert list(named.columns) == list("abcdefgh")
    assert_allclose(named.to_numpy(), reference, atol=1e-10)
    with pytest.raises(ValueError, match="feature names"):
        clone(remover).fit(frame, toy.y, concept=toy.concept).transform(frame[list("hgfedcba")])


def test_float32_rows_give_the_answer_of_float64(remover, toy):
    narrow = fitted(clone(remover), toy, X=toy.Z.astype(np.float32)).transform(toy.Z)
    assert_allclose(narrow, fitted(remover, toy).transform(toy.Z), atol=1e-4)


@pytest.mark.parametrize("power", [-100, -73, 66, 110])
def test_float32_rows_of_any_size_give_the_same_answer(remover, toy, power):
    """Squares of rows below 1e-19 or above 1e19 do not fit a float32; the rows do."""
    rows, factor = toy.Z.astype(np.float32), np.float32(2.0**power)
    with np.errstate(over="ignore"):  # control: squares have lost what the rows still have
        assert not np.allclose(np.sqrt((rows * factor) ** 2) / factor, np.abs(rows), rtol=1e-3)
    one, other = fitted(clone(remover), toy, X=rows), fitted(clone(remover), toy, X=rows * factor)
    assert one.spurious_.dim == other.spurious_.dim > 0
    assert_allclose(other.removal_.matrix(), one.removal_.matrix(), atol=1e-5)


def test_scale_and_offset_change_nothing_else(remover, toy):
    reference = fitted(remover, toy).transform(toy.Z)
    for scale, offset in ((1e-6, 0.0), (1e6, 0.0), (1.0, 1e4)):
        moved = fitted(clone(remover), toy, X=toy.Z * scale + offset).transform(toy.Z * scale + offset)
        assert_allclose((moved - offset) / scale, reference, atol=1e-6)


def test_rows_without_a_concept_are_left_out_of_the_fit(remover, toy):
    """What lies in them cannot matter: there it would turn the answer."""
    n = 1000
    z, some = toy.Z[:n].copy(), toy.concept[:n].astype(float)
    some[::5] = np.nan
    known = ~np.isnan(some)
    z[~known] += 5.0 * np.arange(8)
    val = {}
    if isinstance(remover, JSE | INLP):
        val = {"X_val": toy.Z[n:], "y_val": toy.y[n:], "concept_val": toy.concept[n:]}
    gaps = remover.fit(z, toy.y[:n], concept=some, **val).transform(z)
    without = clone(remover).fit(z[known], toy.y[:n][known], concept=some[known], **val).transform(z)
    assert_allclose(gaps, without, atol=1e-6)
    counted = clone(remover).fit(z, toy.y[:n], concept=toy.concept[:n], **val).transform(z)
    assert np.abs(counted - without).max() > 0.01


def test_saved_and_read_back_it_is_the_same(remover, toy, tmp_path):
    fitted(remover, toy).save(tmp_path / "r.safetensors")
    again = load(tmp_path / "r.safetensors")
    assert type(again) is type(remover)
    np.testing.assert_array_equal(again.transform(toy.Z), remover.transform(toy.Z))
    assert str(again.trace_) == str(remover.trace_)
    assert again.concept_classes_ == remover.concept_classes_
    assert again.get_params() == remover.get_params()


def test_bad_input_is_refused_and_leaves_the_estimator_as_it_was(remover, toy):
    before = fitted(remover, toy).transform(toy.Z)
    broken = toy.Z.copy()
    broken[3, 2] = np.nan
    for changes, error, message in (
        ({"X": broken}, NotFiniteError, "1 NaN in column 2"),
        ({"concept": toy.concept[:5]}, LabelError, "5 labels for 1500 rows"),
        ({"concept": np.zeros(1500)}, LabelError, "one class only"),
        ({"sample_weight": np.ones(3)}, InputError, "1500 real numbers"),
        ({"X": np.ones((1500, 8))}, InputError, "constant"),
    ):
        with pytest.raises(error, match=message):
            fitted(remover, toy, **changes)
    np.testing.assert_array_equal(remover.transform(toy.Z), before)


def test_weights_count_like_repeated_rows(remover, toy):
    weight = np.random.default_rng(0).integers(1, 4, size=1500)
    if remover.__class__ in (JSE, INLP):
        pytest.skip("held-out shares are drawn by row; their own tests show it for the solver")
    repeated = np.repeat(np.arange(1500), weight)
    weighted = fitted(remover, toy, sample_weight=weight).transform(toy.Z)
    longer = clone(remover).fit(toy.Z[repeated], toy.y[repeated], concept=toy.concept[repeated])
    assert_allclose(weighted, longer.transform(toy.Z), atol=1e-9)
    assert np.abs(weighted - fitted(clone(remover), toy).transform(toy.Z)).max() > 1e-4


def test_balance_is_the_weighting_that_it_says(remover, toy):
    group = 2 * toy.y + toy.concept
    by_hand = 1.0 / np.bincount(group)[group]
    balanced = fitted(clone(remover).set_params(balance="group"), toy).transform(toy.Z)
    weighted = fitted(clone(remover).set_params(balance="none"), toy, sample_weight=by_hand).transform(toy.Z)
    plain = fitted(clone(remover).set_params(balance="none"), toy).transform(toy.Z)
    if remover.__class__ not in (JSE, INLP):  # there weights count in the tests too
        assert_allclose(balanced, weighted, atol=1e-9)
    assert np.abs(balanced - plain).max() > 1e-3


@pytest.mark.parametrize("name", ERASERS)
def test_no_linear_classifier_is_left_where_the_method_promises_it(name, toy):
    clean = fitted(clone(FAST[name]), toy).transform(toy.Z)
    majority = max(toy.concept.mean(), 1 - toy.concept.mean())
    probe = LogisticRegression(C=1e6)
    assert probe.fit(toy.Z, toy.concept).score(toy.Z, toy.concept) > 0.8  # before it is there
    assert probe.fit(clean, toy.concept).score(clean, toy.concept) < majority + 0.002
    assert np.abs(np.cov(clean.T, toy.concept)[:-1, -1]).max() < 1e-12


def test_it_routes_its_concept_through_a_pipeline(remover, toy):
    with sklearn.config_context(enable_metadata_routing=True):
        pipe = make_pipeline(remover, LogisticRegression())
        pipe.fit(toy.Z, toy.y, concept=toy.concept)
    assert pipe[0].spurious_.dim >= 1
