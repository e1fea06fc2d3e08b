"""Examples on the device and recorded steps change how long a training takes, and nothing else."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("PIL")
pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from reproduction.tests.networks.tuning import PROBLEMS, TRAININGS, coloured, sentences, tune
from unspur_paper.embedding.base import Preparation
from unspur_paper.embedding.huggingface import HubVision
from unspur_paper.embedding.registry import load_encoder
from unspur_paper.networks import finetuning
from unspur_paper.networks.on_device import BLOCK, PicturesOnDevice, TextsOnDevice
from unspur_paper.networks.tuned import NETWORK, RECORD

CUDA = torch.cuda.is_available()


@pytest.fixture
def on_device(monkeypatch):
    """Have trainings keep their examples on the device, be it a CPU."""

    def feed(run, examples, workers):
        kind = PicturesOnDevice if run.encoder.kind == "image" else TextsOnDevice
        return kind(examples, run.encoder, np.concatenate([run.data.train, run.data.validation]), workers)

    return lambda: monkeypatch.setattr(finetuning._Run, "_feed", feed)


def history(folder):
    return json.loads((folder / RECORD).read_text())["history"]


def test_pictures_on_the_device_train_the_same_network(tiny_resnet, tmp_path, on_device):
    tune("image", tiny_resnet, tmp_path / "loaded")
    on_device()
    tune("image", tiny_resnet, tmp_path / "there")
    assert (tmp_path / "there" / NETWORK).read_bytes() == (tmp_path / "loaded" / NETWORK).read_bytes()
    assert history(tmp_path / "there") == history(tmp_path / "loaded")


def test_without_dropout_padding_makes_no_difference_to_texts(tiny_bert, tmp_path, on_device, monkeypatch):
    make = torch.nn.Dropout.__init__
    monkeypatch.setattr(torch.nn.Dropout, "__init__", lambda self, *_, **__: make(self, 0.0))
    longest = max(
        len(load_encoder(str(tiny_bert), device="cpu").prepare(text)["input_ids"]) for text in sentences().images
    )
    assert longest < BLOCK  # so that there is padding
    tune("text", tiny_bert, tmp_path / "loaded")
    on_device()
    tune("text", tiny_bert, tmp_path / "there")
    for one, other in zip(history(tmp_path / "there"), history(tmp_path / "loaded"), strict=True):
        assert_allclose(list(one.values()), list(other.values()), rtol=1e-4)
    # Control: another seed is another training.
    tune("text", tiny_bert, tmp_path / "other", finetuning.Training(**{**TRAININGS["text"].to_dict(), "seed": 2}))
    assert abs(history(tmp_path / "other")[0]["train_loss"] / history(tmp_path / "there")[0]["train_loss"] - 1) > 1e-3


@pytest.mark.parametrize("preparation", [None, Preparation(resize=36, crop=32, mean=(120.0,) * 3, scale=(50.0,) * 3)])
def test_gathered_pictures_are_batches_of_the_encoder(tiny_resnet, preparation):
    encoder, examples = HubVision(str(tiny_resnet), "cpu", preparation=preparation), coloured(12)
    numbers, chunk = np.array([11, 3, 4, 8, 0]), np.array([8, 11, 8])
    feed = PicturesOnDevice(examples, encoder, numbers, 2)
    expected = encoder.batch([encoder.prepare(examples[i]) for i in chunk])
    assert_array_equal(feed.inputs(chunk), expected)
    assert_array_equal(feed.rows(chunk), [3, 0, 3])
    assert feed.inputs(chunk).is_contiguous(memory_format=torch.channels_last)


def test_gathered_texts_are_those_of_the_encoder_with_padding(tiny_bert):
    encoder, examples = load_encoder(str(tiny_bert), device="cpu"), sentences(12)
    feed = TextsOnDevice(examples, encoder, np.arange(12)[::-1].copy(), 2)
    chunk = np.array([3, 5])
    found, expected = feed.inputs(chunk), encoder.batch([encoder.prepare(examples[i]) for i in chunk])
    length = expected["input_ids"].shape[1]
    assert feed.shape(chunk) == (2, min(BLOCK, encoder.max_tokens))
    for key, table in expected.items():
        assert_array_equal(found[key][:, :length], table)
    assert not found["attention_mask"][:, length:].any()


@pytest.mark.skipif(not CUDA, reason="needs a CUDA device")
@pytest.mark.parametrize("kind", ["image", "text"])
def test_recorded_steps_are_the_steps(kind, tiny_resnet, tiny_bert, tmp_path, monkeypatch):
    """On a GPU, in float32: losses with graphs and without; random numbers are the same, so dropout stays."""
    model = {"image": tiny_resnet, "text": tiny_bert}[kind]
    training = finetuning.Training(**{**TRAININGS[kind].to_dict(), "epochs": 4, "patience": None})

    def losses(folder):
        encoder = load_encoder(str(model), device="cuda", precision="float32", kind=kind)
        finetuning.finetune(PROBLEMS[kind](), encoder, folder, training, base=str(model), progress=False)
        return [line["train_loss"] for line in history(folder)]

    recorded = losses(tmp_path / "recorded")
    monkeypatch.setattr(
        finetuning, "CapturedSteps", lambda step, feed: lambda chunk: step(feed.inputs(chunk), feed.rows(chunk))
    )
    assert_allclose(recorded, losses(tmp_path / "plain"), rtol=1e-3)
