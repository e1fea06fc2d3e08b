"""Saved removals: read back as they were; files that are damaged or of another format are refused by a sentence."""

import json
import warnings

import numpy as np
import pytest
import safetensors.numpy

from tests.probing import quick_probes
from unspur import INLP, JSE, LEACE, RLACE, SAL, SPLINCE, load
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
    """A removal with a certificate: its arrays and its metadata."""
    path = tmp_path_factory.mktemp("sound") / "leace.safetensors"
    leace = LEACE().fit(Z, Y, concept=CONCEPT)
    leace.certificate(Z[:80] + 0.01, Y[:80], CONCEPT[:80])
    leace.save(path)
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return safetensors.numpy.load(content), json.loads(header["__metadata__"]["unspur"]), leace


def written(path, arrays, metadata):
    safetensors.numpy.save_file(arrays, path, metadata={"unspur": json.dumps(metadata)})
    return path


def test_what_is_written_again_is_read(sound, tmp_path):
    """Control of the tests below: what they change is what is refused."""
    arrays, metadata, leace = sound
    again = load(written(tmp_path / "a.safetensors", arrays, metadata))
    np.testing.assert_array_equal(again.transform(Z), leace.transform(Z))
    assert str(again.certificate_) == str(leace.certificate_)


@pytest.mark.parametrize(
    "changes",
    [
        {"left": np.ones((D, 2))},
        {"main": np.eye(7)[:, :1]},
        {"centre": np.zeros(5)},
        {"centre": np.zeros((D, 1))},
        {"main": np.ones((D, 2))},
        {"offset": np.full(D, np.nan)},
        {"right": np.full((D, 1), np.inf)},
    ],
)
def test_arrays_of_other_shapes_and_infinite_ones_are_refused(sound, tmp_path, changes):
    arrays, metadata, _ = sound
    path = written(tmp_path / "bad.safetensors", {**arrays, **changes}, metadata)
    with pytest.raises(ArtifactError) as error:
        load(path)
    assert str(path) in str(error.value)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    ("part", "value"), [("trace", {}), ("form", "neither"), ("parameters", {"balance": "often"}), ("strength", "all")]
)
def test_metadata_that_do_not_describe_a_removal_are_refused(sound, tmp_path, part, value):
    arrays, metadata, _ = sound
    with pytest.raises(ArtifactError, match="does not describe"):
        load(written(tmp_path / "bad.safetensors", arrays, {**metadata, part: value}))


@pytest.mark.parametrize(("version", "says"), [(1, "fit again"), (99, "later version")])
def test_files_of_another_format_are_refused(sound, tmp_path, version, says):
    arrays, metadata, _ = sound
    with pytest.raises(ArtifactError, match=says):
        load(written(tmp_path / "other.safetensors", arrays, {**metadata, "format": version}))


@pytest.mark.parametrize(
    "remover",
    [JSE(), JSE(metric=1.0), JSE(max_spurious=0), INLP(), RLACE(), LEACE(), SAL(), SPLINCE(), LEACE(balance="group")],
    ids=lambda remover: "".join(str(remover).split()),
)
@pytest.mark.parametrize("scale", ["plain", "far apart", "nearly collinear"])
def test_every_removal_that_is_fitted_can_be_read_again(remover, scale, tmp_path):
    z = Z.copy()
    if scale == "far apart":
        z = z * 10.0 ** np.array([8, -8, 0, 3])
    elif scale == "nearly collinear":
        z[:, 3] = z[:, 1] + 1e-6 * z[:, 3]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        remover.fit(z, Y, concept=CONCEPT)
    remover.save(tmp_path / "r.safetensors")
    again = load(tmp_path / "r.safetensors")
    np.testing.assert_array_equal(again.transform(z), remover.transform(z))
    assert again.trace_.to_dict() == remover.trace_.to_dict()
    assert again.get_params() == remover.get_params()
