"""A saved classifier is what was fitted; one whose layer cannot be meant is refused when it is read, by a sentence."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy

from unspur import DFR, JSE, LEACE, SAL, GroupDRO, RobustClassifier, load
from unspur.exceptions import ArtifactError
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


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"coef": np.zeros((3, D)), "intercept": np.zeros(3)}, "for 2 classes and 4 features"),
        ({"coef": np.empty((0, D)), "intercept": np.empty(0)}, "for 2 classes and 4 features"),
        ({"coef": np.zeros((1, D + 1))}, "shapes"),
        ({"intercept": np.zeros(2)}, "shapes"),
    ],
)
def test_arrays_that_do_not_belong_to_the_removal_are_refused(sound, tmp_path, changes, says):
    arrays = {name: array for name, array in {**sound[0], **changes}.items() if array is not None}
    with pytest.raises(ArtifactError, match=f"does not describe a fitted LEACE: .*{says}"):
        load(written(tmp_path / "m.safetensors", arrays, sound[1]))


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("classes", [0, 1, 2], "for 3 classes"),
        ("head", "LEACE", "there are ERM"),
        ("parameters", {"penalty": -1.0}, "penalty"),
        ("table", [[1.0]], "not enough values"),
        ("cv", 0, "'cv' parameter"),
    ],
)
def test_a_layer_that_cannot_be_meant_is_refused(sound, tmp_path, key, value, says):
    arrays, metadata = sound
    layer = {**metadata["classifier"], key: value}
    with pytest.raises(ArtifactError, match=f"does not describe a fitted LEACE: .*{says}"):
        load(written(tmp_path / "m.safetensors", arrays, {**metadata, "classifier": layer}))
