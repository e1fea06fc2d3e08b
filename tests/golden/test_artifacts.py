"""Saved files of this format: they load, do what they did, and are written again the same."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from unspur import load

HERE = Path(__file__).parent / "artifacts"
EXPECTED = json.loads((HERE / "expected.json").read_text())
ROWS = np.array(EXPECTED.pop("rows"))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_it_transforms_and_tells_as_it_did(name, tmp_path):
    model, wanted = load(HERE / f"{name}.safetensors"), EXPECTED[name]
    np.testing.assert_allclose(model.transform(ROWS), wanted["transform"], rtol=0, atol=1e-12)
    removal = getattr(model, "remover_", model)
    assert (removal.n_removed_, removal.certificate_.rank) == (wanted["removed"], wanted["rank"])
    model.save(tmp_path / "again.safetensors")
    again = load(tmp_path / "again.safetensors")
    again = getattr(again, "remover_", again)
    assert again.get_params() == clone(removal).get_params() == removal.get_params()
    assert again.trace_.to_dict() == removal.trace_.to_dict()
    assert again.certificate_.to_dict() == removal.certificate_.to_dict()


def test_there_is_a_file_for_every_expectation():
    assert {path.stem for path in HERE.glob("*.safetensors")} == set(EXPECTED)
