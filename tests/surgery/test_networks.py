"""Removals inside networks as people have them: a classifier of transformers, and a convolutional one."""

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from tests.surgery.maps import D, error, make, rows
from unspur import surgery
from unspur.exceptions import InputError

REMOVAL = make("oblique remove")


@pytest.fixture(scope="module")
def classifier():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30,
        hidden_size=D,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=12,
        num_labels=3,
    )
    return transformers.BertForSequenceClassification(config).eval()


@pytest.fixture(scope="module")
def batch():
    return {"input_ids": torch.from_numpy(np.random.default_rng(0).integers(30, size=(4, 9)))}


def logits(model, batch, **options):
    with torch.inference_mode():
        answer = model(**batch, **options)
    return answer.logits if hasattr(answer, "logits") else answer[0]


def test_what_the_classifier_reads_is_asked_for(classifier, batch):
    with surgery.attach(classifier, "bert", REMOVAL), pytest.raises(InputError) as caught:
        logits(classifier, batch)
    assert "'last_hidden_state' (4, 9, 24), 'pooler_output' (4, 24)" in str(caught.value)
    plain = logits(classifier, batch)
    with surgery.attach(classifier, "bert", REMOVAL, output="last_hidden_state"):
        assert torch.equal(logits(classifier, batch), plain)  # why: the classifier does not read it


@pytest.mark.parametrize("how", ["output", "position", "input"])
def test_logits_are_those_of_a_folded_classifier(classifier, batch, how):
    plain = logits(classifier, batch)
    options, call = {
        "output": ({"path": "bert", "output": "pooler_output"}, {}),
        "position": ({"path": "bert", "output": 1}, {"return_dict": False}),
        "input": ({"path": "classifier", "where": "input"}, {}),
    }[how]
    with surgery.attach(classifier, removal=REMOVAL, **options):
        attached = logits(classifier, batch, **call)
    with torch.inference_mode():
        pooled = classifier.bert(**batch).pooler_output
        folded = surgery.fold(REMOVAL, classifier.classifier)(pooled)
    assert error(attached, folded) < 1e-5
    assert error(attached, plain) > 1e-3  # control: they do change
    assert torch.equal(logits(classifier, batch), plain)


def test_a_layer_inside_changes_every_token(classifier, batch):
    with surgery.attach(classifier, "bert.encoder.layer.0", REMOVAL):
        attached = logits(classifier, batch)
    assert error(attached, logits(classifier, batch)) > 1e-4
    with torch.inference_mode(), surgery.attach(classifier, "bert.encoder.layer.1", REMOVAL):
        states = classifier.bert(**batch).last_hidden_state
    with torch.inference_mode():
        expected = REMOVAL(classifier.bert(**batch).last_hidden_state.numpy())
    assert error(states, expected) < 1e-5


def test_channels_of_a_convolutional_network():
    """The mean over positions of cleaned maps is the cleaned mean, so that a folded layer says what comes out."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, D, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(D, 2)
    ).eval()
    pictures = torch.from_numpy(rows(5, 3, 10, 10)).float()
    with torch.inference_mode():
        plain = network(pictures)
        with surgery.attach(network, "2", REMOVAL, axis=1):
            attached = network(pictures)
        folded = surgery.fold(REMOVAL, network[5])(network[:5](pictures))
        with surgery.attach(network, "2", REMOVAL), pytest.raises(InputError, match=r"Axis 1 has: pass axis=1"):
            network(pictures)
    assert error(attached, folded) < 1e-5
    assert error(attached, plain) > 1e-3  # control


def resnet():
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, D], depths=[1, 1], num_labels=3)
    return transformers.ResNetForImageClassification(config)


def lite0():
    return pytest.importorskip("efficientnet_lite_pytorch").EfficientNet.from_name("efficientnet-lite0")


@pytest.mark.parametrize(
    ("make_network", "path", "linear", "width"),
    [
        (resnet, "classifier", "classifier.1", D),
        (resnet, "classifier.1", "classifier.1", D),
        (lite0, "_fc", "_fc", 1280),
    ],
    ids=["N × C × 1 × 1", "N × C", "EfficientNet-Lite0"],
)
def test_the_input_of_the_last_layer_of_a_convolutional_network(make_network, path, linear, width):
    torch.manual_seed(0)
    network = make_network().eval()
    removal, pictures, layer = make("oblique remove", width), torch.randn(2, 3, 64, 64), network.get_submodule(linear)

    def run():
        with torch.inference_mode():
            out = network(pictures)
        return out.logits if hasattr(out, "logits") else out

    plain, weight, bias = run(), layer.weight.clone(), layer.bias.clone()
    with surgery.attach(network, path, removal, where="input"):
        attached = run()
    assert error(attached, plain) > 1e-2
    folded = surgery.fold(removal, layer)
    layer.load_state_dict(folded.state_dict())
    assert error(attached, run()) < 1e-5
    layer.load_state_dict({"weight": weight, "bias": bias})
    assert torch.equal(run(), plain)
