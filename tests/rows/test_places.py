"""Removers and heads give the same answers wherever rows live."""

import pickle
import warnings
from contextlib import ExitStack

import numpy as np
import pytest

from unspur import AFR, DFR, ERM, INLP, JSE, JTT, LEACE, RLACE, SAL, SPLINCE, SUBG, GroupDRO, GroupWeighted
from unspur._arrays import to_numpy
from unspur.datasets import make_toy

TOY, OTHER = make_toy(800, rho=0.8, random_state=0), make_toy(400, rho=0.8, random_state=1)
THREE = np.where(TOY.Z[:, 5] > 0.8, 2, TOY.y)
ESTIMATORS = {
    "JSE": JSE(random_state=0, penalty=0.01),
    "JSE, one fold": JSE(random_state=0, cv=0.2),
    "JSE, scores": JSE(random_state=0, cv=0.2, metric=1.0, penalty=0.1),
    "INLP": INLP(random_state=0, cv=0.2, penalty=0.01),
    "RLACE": RLACE(),
    "LEACE": LEACE(),
    "SAL": SAL(balance="concept"),
    "SPLINCE": SPLINCE(),
    "ERM": ERM(),
    "GroupWeighted": GroupWeighted(),
    "GroupDRO": GroupDRO(),
    "JTT": JTT(),
    "SUBG": SUBG(random_state=0),
    "DFR": DFR(random_state=0, n_draws=2),
    "AFR": AFR(random_state=0),
}
HEADS = [name for name, estimator in ESTIMATORS.items() if hasattr(estimator, "predict")]


def on_dask(z):
    return pytest.importorskip("dask.array").from_array(np.asarray(z), chunks=(170, 7))


def as_tensor(kind, device="cpu"):
    def made(z):
        torch = pytest.importorskip("torch")
        if device == "cuda" and not torch.cuda.is_available():
            pytest.skip("NO GPU HERE: what is promised of tensors on a GPU was not checked")
        return torch.tensor(z, dtype=getattr(torch, kind), device=device)

    return made


#: How rows get there, and the largest difference to rows in memory, relative to the largest number.
PLACES = {
    "dask": (on_dask, 1e-9),
    "float32 tensor": (as_tensor("float32"), 1e-4),
    "bfloat16 tensor": (as_tensor("bfloat16"), 0.05),
    "float32 on a GPU": (as_tensor("float32", "cuda"), 1e-4),
    "bfloat16 on a GPU": (as_tensor("bfloat16", "cuda"), 0.05),
}


@pytest.fixture(params=PLACES)
def place(request, monkeypatch):
    """Where rows are; those of a CPU are served as those of a device would be, and small chunks stay apart."""
    monkeypatch.setattr("unspur.rows.source._numpy_sees", lambda _: False)
    with ExitStack() as stack:
        if request.param == "dask":
            stack.enter_context(pytest.importorskip("dask").config.set(scheduler="synchronous"))
            monkeypatch.setattr("unspur.rows.dask.MIN_CHUNK_BYTES", 0)
        yield PLACES[request.param]


def fitted(name, rows, y, concept, **given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pickle.loads(pickle.dumps(ESTIMATORS[name])).fit(rows, y, concept=concept, **given)


def require_close(found, expected, tolerance):
    np.testing.assert_allclose(to_numpy(found), expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in HEADS])
def test_removers_find_what_they_find_in_memory(name, place):
    there, tolerance = place
    z, other = there(TOY.Z), there(OTHER.Z)
    expected, found = (fitted(name, rows, TOY.y, TOY.concept) for rows in (TOY.Z, z))
    require_close(found.removal_.matrix(), expected.removal_.matrix(), tolerance)
    clean = found.transform(other)
    assert (type(clean), clean.shape, clean.dtype) == (type(z), other.shape, other.dtype)
    require_close(np.asarray(to_numpy(clean)), found.removal_(np.asarray(to_numpy(other), dtype=float)), tolerance)
    assert np.abs(expected.removal_.matrix() - np.eye(20)).max() > 0.1  # something was removed


@pytest.mark.parametrize("y", [TOY.y, THREE], ids=["two classes", "three classes"])
@pytest.mark.parametrize("name", HEADS)
def test_heads_learn_what_they_learn_in_memory_and_answer_in_kind(name, y, place):
    there, tolerance = place
    z, other = there(TOY.Z), there(OTHER.Z)
    expected, found = (fitted(name, rows, y, TOY.concept) for rows in (TOY.Z, z))
    # Sums in another order let the outer loop of GroupDRO stop elsewhere within its tolerance of 1e-6.
    require_close(found.coef_, expected.coef_, max(tolerance, 1e-6) if name == "GroupDRO" else tolerance)
    plain = np.asarray(to_numpy(other), dtype=float)
    for ask in ("decision_function", "predict_proba", "predict_log_proba"):
        answer = getattr(found, ask)(other)
        assert type(answer) is type(z)
        require_close(np.asarray(to_numpy(answer)), getattr(found, ask)(plain), 2e-5)
    np.testing.assert_array_equal(found.predict(other), found.predict(plain))
    assert found.score(z, y) == found.score(np.asarray(to_numpy(z), dtype=float), y) > 0.6


@pytest.mark.parametrize("home", ["memory", "there"])
def test_validation_rows_may_live_elsewhere_than_training_rows(home, place):
    there, tolerance = place
    held_out = {"y_val": OTHER.y, "concept_val": OTHER.concept}
    expected = fitted("JSE", TOY.Z, TOY.y, TOY.concept, X_val=OTHER.Z, **held_out)
    judges = OTHER.Z if home == "memory" else there(OTHER.Z)
    found = fitted("JSE", there(TOY.Z), TOY.y, TOY.concept, X_val=judges, **held_out)
    require_close(found.removal_.matrix(), expected.removal_.matrix(), tolerance)


def test_leace_goes_on_wherever_rows_live(place):
    there, tolerance = place
    parts = LEACE()
    for part in (slice(300), slice(300, None)):
        parts.partial_fit(there(TOY.Z[part]), concept=TOY.concept[part])
    expected = LEACE().fit(TOY.Z, concept=TOY.concept).removal_.matrix()
    require_close(parts.removal_.matrix(), expected, tolerance)


def test_labels_and_weights_may_live_there_too(place):
    there, tolerance = place
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 800)
    expected = fitted("JSE, one fold", TOY.Z, TOY.y, TOY.concept, sample_weight=weight)
    columns = [there(np.asarray(column, dtype=float)[:, None])[:, 0] for column in (TOY.y, TOY.concept, weight)]
    found = fitted("JSE, one fold", there(TOY.Z), *columns[:2], sample_weight=columns[2])
    require_close(found.removal_.matrix(), expected.removal_.matrix(), tolerance)
