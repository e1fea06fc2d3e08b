"""Files that an early version saved: they load for ever, and do what they did."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from tests.golden.master import differences, plain
from unspur import load
from unspur.options import from_flat_parameters

HERE = Path(__file__).parent / "artifacts"
EXPECTED = json.loads((HERE / "expected.json").read_text())
ROWS = np.array(EXPECTED.pop("rows"))


def _subset(found, wanted):
    """What of an answer the early version knew: later ones may say more."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return {key: _subset(found.get(key, "nothing"), value) for key, value in wanted.items()}
    if isinstance(wanted, list) and isinstance(found, list) and len(found) == len(wanted):
        return [_subset(one, other) for one, other in zip(found, wanted, strict=True)]
    return found


def _named_as_now(wanted):
    """An answer of the early version, whose second test was called "own"."""
    if isinstance(wanted, dict):
        return {"specific" if key == "own" else key: _named_as_now(value) for key, value in wanted.items()}
    return [_named_as_now(one) for one in wanted] if isinstance(wanted, list) else wanted


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_it_transforms_and_tells_as_it_did(name):
    remover, wanted = load(HERE / f"{name}.safetensors"), EXPECTED[name]
    np.testing.assert_allclose(remover.transform(ROWS), wanted["transform"], rtol=0, atol=1e-12)
    for part, found in (("trace", remover.trace_.to_dict()), ("certificate", remover.certificate_.to_dict())):
        expected = _named_as_now(wanted[part])
        assert not list(differences(plain(_subset(found, expected)), plain(expected), 1e-12)), part


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_its_parameters_are_those_it_had(name, tmp_path):
    remover = load(HERE / f"{name}.safetensors")
    found = remover.get_params()
    wanted = from_flat_parameters(
        type(remover).__name__, EXPECTED[name]["parameters"]
    )  # names of then, in the objects of now
    assert {key: found[key] for key in wanted} == wanted
    assert clone(remover).get_params() == found
    remover.save(tmp_path / "again.safetensors")
    assert load(tmp_path / "again.safetensors").get_params() == found


def test_there_is_a_file_for_every_expectation():
    assert {path.stem for path in HERE.glob("*.safetensors")} == set(EXPECTED)
