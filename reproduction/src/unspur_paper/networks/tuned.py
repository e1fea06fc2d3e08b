"""A fine-tuned network on the disk: the files of its folder, what they tell, and the way back to an encoder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from unspur._extras import require
from unspur._text import brief
from unspur.exceptions import ArtifactError, InputError, OutputExistsError
from unspur_paper.embedding.base import Device, NetworkEncoder
from unspur_paper.embedding.registry import ENCODERS, could_be_on_the_hub, load_encoder
from unspur_paper.files import NUMBER, read_json, require_kinds
from unspur_paper.networks.checkpoint import AGAIN, load_checkpoint, restore

FORMAT = 1
CHECKPOINT, NETWORK, RECORD, LOCK = "checkpoint.safetensors", "network.safetensors", "training.json", ".lock"
#: What an encoder tells of its training.
_TOLD = ("settings", "history", "kept_epoch", "dataset", "seconds")
_KINDS = {
    "base": {"address": str},
    "digest": str,
    "settings": dict,
    "history": [dict],
    "kept_epoch": int,
    "dataset": dict,
    "seconds": NUMBER,
}


def read_record(folder: Path) -> dict[str, Any]:
    """What ``training.json`` says."""
    path = folder / RECORD
    if not path.exists():
        begun = (folder / CHECKPOINT).exists()
        raise InputError(
            f"{folder} holds a training that is not finished; give the same command again."
            if begun
            else f"{folder} holds no fine-tuned network: it has no {RECORD}. `unspur-paper finetune` makes one."
        )
    try:
        record = read_json(path, {"format": int})
        if (version := record["format"]) == FORMAT:
            require_kinds(record, _KINDS)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path} is damaged ({brief(error)}). {AGAIN}") from error
    if version != FORMAT:
        raise ArtifactError(f"{path} has format {version}; this version reads {FORMAT}.")
    return dict(record)


def is_finetuned(folder: Path) -> bool:
    """Whether the folder holds a fine-tuned network, or one in the making."""
    return (folder / RECORD).is_file() or (folder / CHECKPOINT).is_file()


def load(folder: Path, **options: Any) -> NetworkEncoder:
    """The network of a folder of `unspur-paper finetune`, with its trained weights."""
    return tuned(folder, _base(folder, **options))


def tuned(folder: Path, encoder: NetworkEncoder) -> NetworkEncoder:
    """The encoder with the weights of a fine-tuned network; it must be the one that training began from."""
    record, path = read_record(folder), folder / NETWORK
    parts, _ = load_checkpoint(path)
    restore(encoder.network, parts.get("network", {}), path)
    encoder.network.eval()
    encoder.update_digest()
    if encoder.digest != record["digest"]:
        raise ArtifactError(f"{path} is not the network of {RECORD}, or was trained from another version of the base.")
    encoder.name = f"{encoder.name} fine-tuned"
    encoder.training = told(record)
    return encoder


def told(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a network tells of its training, in the manifest of a store: part of the record."""
    return {key: record[key] for key in _TOLD}


def require_same(there: Mapping[str, Any], wanted: Mapping[str, Any], folder: Path) -> None:
    """Whether what is there was trained in the way that is wanted."""
    plain = json.loads(json.dumps(wanted))
    other = [f"{key}: {', '.join(found)}" for key in plain if (found := list(_differences(there.get(key), plain[key])))]
    if other:
        raise OutputExistsError(
            f"{folder} holds a network of another training: it differs in {'; in '.join(other)}. Choose another "
            "folder, or pass --force."
        )


def _differences(there: Any, wanted: Any, name: str = "") -> Iterator[str]:
    """What differs in two settings, or in two tables of them, in words: "epochs 2 instead of 20"."""
    if isinstance(there, Mapping) and isinstance(wanted, Mapping):
        for key in dict.fromkeys((*wanted, *there)):
            yield from _differences(there.get(key), wanted.get(key), f"{name}{key} ")
    elif there != wanted:
        yield f"{name}{_value(there)} instead of {_value(wanted)}"


def _value(value: Any) -> str:
    return "none" if value is None else str(value)


def _base(folder: Path, device: str = "auto", precision: Any = "auto", kind: Any = None) -> NetworkEncoder:
    """The network that the one in `folder` was trained from; its settings and code are needed, whatever the weights."""
    address = str(read_record(folder)["base"]["address"])
    require(f"{folder} needs", "torch", extra="encoders")
    Device.choose(device, precision)  # what is wrong with these is not wrong with the base
    try:
        base = load_encoder(address, device=device, precision=precision, kind=kind)
    except InputError as error:
        raise InputError(
            f"{folder} holds a network that was trained from {address}, {_why(address, folder, error)}"
        ) from error
    assert isinstance(base, NetworkEncoder)  # nothing else was ever trained
    return base


def _why(address: str, folder: Path, error: InputError) -> str:
    """Why a base cannot be loaded, and what to do."""
    if address in ENCODERS or Path(address).expanduser().is_dir() or could_be_on_the_hub(address.partition("@")[0]):
        return f"which is needed and cannot be loaded: {error}"
    return (
        "which is needed and is not there any more. Put it back; or, if it was moved, write its new place into "
        f"{folder / RECORD}, as the address of the base: whether it is the same network is checked."
    )
