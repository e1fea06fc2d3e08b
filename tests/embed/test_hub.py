"""Models are found in folders and caches without a network, and nothing in them is executed."""

import json
import shutil
import socket
from pathlib import Path

import pytest

from unspur.embed.huggingface import HubText, HubVision, kind_of, model_folder, quietly
from unspur.embed.registry import load_encoder
from unspur.exceptions import InputError


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
