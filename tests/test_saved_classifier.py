"""A saved classifier is what was fitted; one whose layer cannot be meant is refused when it is read, by a sentence."""

import json
import warnings
from datetime import date
from decimal import Decimal

import numpy as np
import pytest
import safetensors.numpy

from tests.optional import pandas as pd
from unspur import DFR, JSE, LEACE, SAL, GroupDRO, RobustClassifier, load
from unspur.exceptions import ArtifactError, LabelError
from unspur.removers import load as load_removal

D = 4
RNG = np.random.default_rng(0)
Y, CONCEPT = RNG.integers(2, size=(2, 240))
Z = RNG.normal(size=(240, D))
Z[:, 0] += 2 * Y
Z[:, 1] += 2 * CONCEPT


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Arrays and metadata of a classifier."""
    path = tmp_path_factory.mktemp("sound") / "model.safetensors"
    RobustClassifier(LEACE(balance="group"), random_state=0).fit(Z, Y, concept=CONCEPT).save(path)
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return safetensors.numpy.load(content), json.loads(header["__metadata__"]["unspur"])


def written(path, arrays, metadata):
    safetensors.numpy.save_file(arrays, path, metadata={"unspur": json.dumps(metadata)})
    return path


@pytest.mark.parametrize(
    ("remover", "head"),
    [(JSE(cv=2), None), (JSE(cv=2, metric=1.0), None), (SAL(), GroupDRO())],
    ids=["JSE", "scores", "SAL"],
)
@pytest.mark.parametrize("classes", [[0, 1], ["land", "water"], [False, True]])
def test_what_was_saved_predicts_the_same(remover, head, classes, tmp_path):
    y = np.array(classes)[Y]
    model = RobustClassifier(remover, head, random_state=0).fit(Z, y, concept=CONCEPT)
    model.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert isinstance(again, RobustClassifier)
    np.testing.assert_array_equal(again.predict_proba(Z), model.predict_proba(Z))
    np.testing.assert_array_equal(again.transform(Z), model.transform(Z))
    assert again.predict(Z).astype(str).tolist() == model.predict(Z).astype(str).tolist()
    assert again.selection_.penalty == model.selection_.penalty
    np.testing.assert_array_equal(load_removal(tmp_path / "m.safetensors").transform(Z), model.transform(Z))
    again.save(tmp_path / "again.safetensors")
    np.testing.assert_array_equal(load(tmp_path / "again.safetensors").coef_, model.coef_)


@pytest.mark.parametrize("classes", [[1, 2.5], [0, 1.0], [0, True], [False, 1.5]])
def test_numbers_of_several_types_are_saved_as_numbers_of_one(classes, tmp_path):
    y = np.array(classes, dtype=object)[Y]
    model = RobustClassifier(LEACE(balance="group"), random_state=0).fit(Z, y, concept=CONCEPT)
    model.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert again.classes_.dtype == model.classes_.dtype
    assert again.predict(Z).tolist() == model.predict(Z).tolist()
    assert model.score(Z, y) == again.score(Z, y) > 0.5
    assert list(map(type, model.remover_.classes_)) == list(map(type, again.remover_.classes_))
    assert model.classes_.tolist() == classes


@pytest.mark.parametrize("classes", [[date(2020, 1, 1), date(2021, 1, 1)], [Decimal("1.5"), Decimal(2)]])
@pytest.mark.parametrize("estimator", [RobustClassifier(), GroupDRO()])
def test_classes_that_a_file_would_turn_into_text_are_refused(estimator, classes):
    y = np.array(classes, dtype=object)[Y]
    with pytest.raises(LabelError, match=rf"y holds values of type {type(classes[0]).__name__}.*Pass text"):
        estimator.fit(Z, y, concept=CONCEPT)
    assert estimator.fit(Z, y.astype(str), concept=CONCEPT).classes_.tolist() == [str(value) for value in classes]


def test_names_of_features_are_kept(tmp_path):
    frame = pd.DataFrame(Z, columns=list("abcd"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = RobustClassifier(LEACE(), random_state=0).fit(frame, Y, concept=CONCEPT)
        model.save(tmp_path / "m.safetensors")
        again = load(tmp_path / "m.safetensors")
        np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    assert list(again.feature_names_in_) == list(again.remover_.feature_names_in_) == list("abcd")
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame[list("dcba")])


@pytest.mark.parametrize(
    "parts",
    [(), (JSE(cv=2, random_state=3), GroupDRO()), (LEACE(), DFR(random_state=3))],
    ids=["default", "JSE", "LEACE"],
)
def test_a_loaded_classifier_that_is_fitted_again_is_what_the_saved_one_would_be(parts, tmp_path):
    model = RobustClassifier(*parts, cv=2, random_state=0).fit(Z, Y, concept=CONCEPT)
    model.save(tmp_path / "m.safetensors")
    load(tmp_path / "m.safetensors").save(tmp_path / "again.safetensors")
    rows = RNG.permutation(240)[:200]
    model.fit(Z[rows], Y[rows], concept=CONCEPT[rows])
    for name in ("m", "again"):
        loaded = load(tmp_path / f"{name}.safetensors").fit(Z[rows], Y[rows], concept=CONCEPT[rows])
        np.testing.assert_array_equal(loaded.coef_, model.coef_)
        assert loaded.selection_.results == model.selection_.results


def test_what_is_written_again_is_read(sound, tmp_path):
    """Control of the tests below: what they change is what is refused."""
    assert load(written(tmp_path / "m.safetensors", *sound)).predict(Z).shape == (240,)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"coef": np.zeros((3, D)), "intercept": np.zeros(3)}, "for 2 classes and 4 features"),
        ({"coef": np.empty((0, D)), "intercept": np.empty(0)}, "for 2 classes and 4 features"),
        ({"coef": np.zeros((1, D + 1))}, "do not go with the removal"),
        ({"intercept": np.zeros(2)}, "do not go with the removal"),
        ({"coef": np.zeros(D)}, "'coef' is of type F64"),
        ({"coef": np.zeros((1, D), dtype=np.float32)}, "'coef' is of type F32"),
        ({"coef": np.full((1, D), np.nan)}, "'coef' holds NaN"),
        ({"intercept": np.full(1, np.inf)}, "'intercept' holds NaN"),
        ({"coef": np.eye(D)[1:2]}, "the coefficients of its head are not zero along the removed directions"),
        ({"coef": None}, "there is no array 'coef'"),
    ],
)
def test_arrays_that_do_not_belong_to_the_removal_are_refused(sound, tmp_path, changes, says):
    arrays = {name: array for name, array in {**sound[0], **changes}.items() if array is not None}
    with pytest.raises(ArtifactError, match=f"does not describe a fitted LEACE: .*{says}"):
        load(written(tmp_path / "m.safetensors", arrays, sound[1]))


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("classes", [0], "the classes of its head"),
        ("classes", [0, 0], "the classes of its head"),
        ("classes", [0, "b"], "the classes of its head"),
        ("classes", [[0], [1]], "the classes of its head"),
        ("classes", [None, 1], "the classes of its head"),
        ("classes", [float("nan"), 1.0], "the classes of its head"),
        ("classes", [0, 7], "not those of the removal"),
        ("classes", list(range(100_000)), "not those of the removal"),
        ("head", "LEACE", "there are ERM"),
        ("penalty", -1.0, "penalty"),
        ("penalty", float("nan"), "penalty"),
        ("penalty", "0.1", "of another type"),
        ("table", [[1.0]], "not enough values"),
        ("table", [["a", 1.0]], "of another type"),
        ("table", [[1.0, float("inf")]], "is not finite"),
        ("notes", [1], "of another type"),
        ("cv", 0, "'cv' parameter"),
        ("cv", 2**70, "too large"),
    ],
)
def test_a_layer_that_cannot_be_meant_is_refused(sound, tmp_path, key, value, says):
    arrays, metadata = sound
    layer = {**metadata["classifier"], key: value}
    with pytest.raises(ArtifactError, match=f"does not describe a fitted LEACE: .*{says}"):
        load(written(tmp_path / "m.safetensors", arrays, {**metadata, "classifier": layer}))


@pytest.mark.parametrize("layer", [None, [], "x", {}])
def test_a_layer_of_another_kind_is_refused(sound, tmp_path, layer):
    arrays, metadata = sound
    with pytest.raises(ArtifactError, match="the head"):
        load(written(tmp_path / "m.safetensors", arrays, {**metadata, "classifier": layer}))


def test_a_long_name_of_a_class_takes_no_more_memory_than_it_has(tmp_path):
    """As an array of texts, every name would take as much as the longest."""
    classes = np.array([f"class {k}" for k in range(39)] + ["x" * 50_000], dtype=object)
    y = classes[np.arange(2400) % 40]
    z = np.random.default_rng(0).normal(size=(2400, D))
    concept = np.random.default_rng(1).integers(2, size=2400)
    model = RobustClassifier(LEACE(), random_state=0).fit(z, y, concept=concept)
    model.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert again.classes_.nbytes < 1000
    assert again.predict(z).tolist() == model.predict(z).tolist()


@pytest.mark.parametrize("form", [np.asarray, list, lambda y: np.array(y.tolist(), dtype=object)])
def test_whole_numbers_on_both_sides_of_2_63_stay_apart(form, tmp_path):
    classes = np.array([5, 2**63 + 5, 2**63 + 6], dtype=np.uint64)
    y = classes[Y + CONCEPT]
    model = RobustClassifier(LEACE(), random_state=0).fit(Z, form(y), concept=CONCEPT)
    assert model.classes_.tolist() == classes.tolist()
    model.save(tmp_path / "model.safetensors")
    assert load(tmp_path / "model.safetensors").score(Z, y) == model.score(Z, y) > 0.5
