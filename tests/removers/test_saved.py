"""Saved removals whose form is sound and whose meaning is not: refused when they are read, by a sentence."""

import copy
import json
import warnings

import numpy as np
import pytest
import safetensors.numpy

from tests.optional import pandas as pd
from tests.probing import quick_probes
from unspur import INLP, JSE, LEACE, RLACE, SAL, SPLINCE, PaperVariant, load
from unspur.exceptions import ArtifactError

D = 4
RNG = np.random.default_rng(0)
Y, CONCEPT = RNG.integers(2, size=(2, 160))
Z = RNG.normal(size=(160, D))
Z[:, 0] += 3 * Y
Z[:, 1] += 3 * CONCEPT


@pytest.fixture(scope="module")
@quick_probes()
def sound(tmp_path_factory):
    """A removal with a certificate: its arrays, its metadata, and the file."""
    path = tmp_path_factory.mktemp("sound") / "leace.safetensors"
    leace = LEACE().fit(Z, Y, concept=CONCEPT)
    leace.certificate(Z[:80] + 0.01, Y[:80], CONCEPT[:80])
    leace.save(path)
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return safetensors.numpy.load(content), json.loads(header["__metadata__"]["unspur"]), path


def written(path, arrays, metadata):
    safetensors.numpy.save_file(arrays, path, metadata={"unspur": json.dumps(metadata)})
    return path


def declared(path, shapes, metadata):
    """A file in which arrays without a number have any shapes."""
    header = {name: {"dtype": "F64", "shape": list(shape), "data_offsets": [0, 0]} for name, shape in shapes.items()}
    text = json.dumps({**header, "__metadata__": {"unspur": json.dumps(metadata)}}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    return path


def test_what_is_written_again_is_read(sound, tmp_path):
    """Control of the tests below: what they change is what is refused."""
    arrays, metadata, path = sound
    again = load(written(tmp_path / "a.safetensors", arrays, metadata))
    np.testing.assert_array_equal(again.transform(Z), load(path).transform(Z))
    assert str(again.certificate_) == str(load(path).certificate_)
    more = load(written(tmp_path / "b.safetensors", {**arrays, "of_tomorrow": np.zeros(3)}, metadata))
    np.testing.assert_array_equal(more.transform(Z), again.transform(Z))


def eye(*columns, d=D):
    return np.eye(d)[:, list(columns)]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"right": np.ones((D, 9)), "left": np.ones((D, 9))}, r"'right' has shape \(4, 9\); of 4 features"),
        ({"left": np.ones((D, 2))}, r"factors of the map have shapes \(4, 1\) and \(4, 2\)"),
        ({"main": eye(0, d=7)}, r"'main' has shape \(7, 1\)"),
        ({"spurious": eye(0, d=7)}, r"'spurious' has shape \(7, 1\)"),
        ({"centre": np.zeros(5)}, r"'offset' has shape \(4,\) where 'centre' has \(5,\)"),
        ({"centre": np.zeros((D, 1))}, "expected a non-empty vector"),
        ({"centre": np.zeros(D, dtype=np.int64)}, "'centre' is of type I64"),
        ({"right": np.zeros((D, 1))}, "not a projection"),
        ({"left": np.zeros((D, 1)), "right": np.zeros((D, 1))}, "not a projection"),
        ("stretched", "not a projection"),
        ({"spurious": eye(3)}, "another subspace than 'spurious'"),
        ({"spurious": np.empty((D, 0))}, "another subspace than 'spurious'"),
        ({"spurious": eye(0, 1, 2)}, "another subspace than 'spurious'"),
        ({"right": np.empty((D, 0)), "left": np.empty((D, 0))}, "another subspace than 'spurious'"),
        ({"offset": np.ones(D)}, "inconsistent with its form"),
        ({"main": np.ones((D, 2))}, "orthonormal"),
        ({"offset": np.full(D, np.nan)}, "NaN or infinity in 'offset'"),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused(sound, tmp_path, changes, says):
    arrays, metadata, _ = sound
    if changes == "stretched":
        changes = {"right": 5.0 * arrays["right"]}
    path = written(tmp_path / "bad.safetensors", {**arrays, **changes}, metadata)
    with pytest.raises(ArtifactError, match=says) as error:
        load(path)
    assert str(path) in str(error.value)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("n", [10**9, 10**14, 2**62])
def test_shapes_that_ask_for_all_memory_are_refused_before_an_array_is_read(sound, tmp_path, n):
    _, metadata, _ = sound
    names = ("right", "left", "spurious", "main")
    for shape in ((0, n), (n, 0)):
        shapes = {"centre": (0,), "offset": (0,), **dict.fromkeys(names, shape)}
        with pytest.raises(ArtifactError, match=r"'centre' has shape \(0,\)"):
            load(declared(tmp_path / "huge.safetensors", shapes, metadata))


def put(metadata, value, *keys):
    metadata = copy.deepcopy(metadata)
    holder = metadata
    for key in keys[:-1]:
        holder = holder[key]
    holder[keys[-1]] = value
    return metadata


@pytest.mark.parametrize(
    ("keys", "value", "says"),
    [
        (("form",), "keep", "another subspace than 'main'"),
        (("classes",), [{"a": 1}], "neither a text nor a number"),
        (("classes",), [[["a"]]], "neither a text nor a number"),
        (("feature_names",), [1, 2, 3, 4], "is 1, which is of another type"),
        (("feature_names",), ["a", "b"], "2 names for 4 features"),
        (("column_names",), [0, 1], "2 names for 4 features"),
        (("column_names",), 4, "'column_names' is 4, which is of another type"),
        (("parameters", "balance"), "often", "'balance' parameter of LEACE must be"),
        (("parameters", "missing_concept"), {"a": [1]}, "a parameter is a table of no known kind"),
        (("parameters", "missing_concept"), ["a"], "'missing_concept' parameter of LEACE must be"),
        (("trace", "removed"), -1, "negative count"),
        (("trace", "condition"), 10**400, "a number of 401 digits"),
        (("certificate", "removed"), 3, "certificate is that of another removal"),
        (("certificate", "rank"), 10**9, "certificate is that of another removal"),
        (("certificate", "method"), "JSE", "certificate is that of another removal"),
    ],
)
def test_metadata_that_cannot_be_meant_are_refused(sound, tmp_path, keys, value, says):
    arrays, metadata, _ = sound
    with pytest.raises(ArtifactError, match=says) as error:
        load(written(tmp_path / "bad.safetensors", arrays, put(metadata, value, *keys)))
    assert len(str(error.value)) < 500


def test_the_folds_of_all_rows_are_not_saved_as_a_parameter(tmp_path):
    folds = [[list(range(0, 80)), list(range(80, 160))], [list(range(80, 160)), list(range(0, 80))]]
    for k, cv in enumerate((folds, [[part * 300 for part in fold] for fold in folds])):
        jse = JSE(cv=folds, penalty=0.1).fit(Z, Y, concept=CONCEPT).set_params(cv=cv)
        jse.save(tmp_path / f"{k}.safetensors")
        assert (load(tmp_path / f"{k}.safetensors").cv == folds) == (k == 0)


@pytest.mark.parametrize(
    "remover",
    [
        JSE(),
        JSE(variant=PaperVariant(output="onto_main")),
        JSE(metric=1.0),
        JSE(metric=1.0, variant=PaperVariant(output="onto_main")),
        JSE(max_spurious=0),
        INLP(),
        RLACE(),
        LEACE(),
        SAL(),
        SPLINCE(),
        LEACE(balance="group"),
    ],
    ids=lambda remover: "".join(str(remover).split()),
)
@pytest.mark.parametrize("scale", ["plain", "far apart", "nearly collinear"])
def test_every_removal_that_is_fitted_can_be_read_again(remover, scale, tmp_path):
    """Control: no check is so narrow that rounding of a hard problem fails it."""
    z = Z.copy()
    if scale == "far apart":
        z = z * 10.0 ** np.array([8, -8, 0, 3])
    elif scale == "nearly collinear":
        z[:, 3] = z[:, 1] + 1e-6 * z[:, 3]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        remover.fit(z, Y, concept=CONCEPT)
    remover.save(tmp_path / "r.safetensors")
    np.testing.assert_array_equal(load(tmp_path / "r.safetensors").transform(z), remover.transform(z))


@pytest.mark.parametrize("level", [np.float64(0.05), np.float32(0.05)])
@pytest.mark.parametrize("remover", [JSE, INLP])
def test_a_level_that_is_a_number_of_numpy_is_saved(remover, level, tmp_path):
    """As a grid of `GridSearchCV` passes it."""
    found = remover(significance_level=level, random_state=0).fit(Z, Y, concept=CONCEPT)
    found.save(tmp_path / "r.safetensors")
    again = load(tmp_path / "r.safetensors")
    assert json.dumps(again.trace_.to_dict()) == json.dumps(found.trace_.to_dict())
    assert again.significance_level == level


def test_removals_of_many_classes_can_be_read_again(tmp_path):
    rng = np.random.default_rng(1)
    concept = rng.integers(4, size=400)
    z = rng.normal(size=(400, 6)) * 10.0 ** rng.integers(-6, 6, size=6)
    z += np.eye(6)[concept] * z.std(axis=0)
    for k, leace in enumerate((LEACE(), SAL(), SPLINCE())):
        leace.fit(z, rng.integers(2, size=400), concept=np.column_stack([concept, concept % 3]))
        leace.save(tmp_path / f"{k}.safetensors")
        np.testing.assert_array_equal(load(tmp_path / f"{k}.safetensors").transform(z), leace.transform(z))


def test_names_that_json_cannot_hold_are_left_out_of_the_file(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(100, 3)), columns=pd.date_range("2020-01-01", periods=3))
    LEACE().fit(X, concept=rng.integers(2, size=100)).save(tmp_path / "saved.safetensors")
    assert load(tmp_path / "saved.safetensors").transform(X).shape == (100, 3)
