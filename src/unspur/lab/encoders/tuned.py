"""A fine-tuned network on the disk: the files of its folder, what they tell, and the way back to an encoder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from unspur._reading import NUMBER, brief, read_json, require_kinds
from unspur.exceptions import ArtifactError, InputError, OutputExistsError
from unspur.lab.encoders.base import NetworkEncoder
from unspur.lab.encoders.checkpoint import AGAIN, load_checkpoint, restore

FORMAT = 1
CHECKPOINT, NETWORK, RECORD, LOCK = "checkpoint.safetensors", "network.safetensors", "training.json", ".lock"
#: What an encoder tells of its training.
_TOLD = ("settings", "history", "kept_epoch", "dataset", "seconds")
_KINDS = {
    "base": {"address": str}, "digest": str, "settings": dict, "history": [dict], "kept_epoch": int, "dataset": dict,
    "seconds": NUMBER,
}  # fmt: skip


def read_record(folder: Path) -> dict[str, Any]:
    """What ``training.json`` says."""
    path = folder / RECORD
    if not path.exists():
        begun = (folder / CHECKPOINT).exists()
        raise InputError(
            f"{folder} holds a training that is not finished; give the same command again."
            if begun
            else f"{folder} holds no fine-tuned network: it has no {RECORD}. `unspur finetune` makes one."
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


def tuned(folder: Path, encoder: NetworkEncoder) -> NetworkEncoder:
    """The encoder with the weights of a fine-tuned network; it must be the one that training began from."""
    record, path = read_record(folder), folder / NETWORK
    parts, _ = load_checkpoint(path)
    restore(encoder.network, parts.get("network", {}), path)
    encoder.network.eval()
    encoder.weights_changed()
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
            "folder, or pass overwrite=True."
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
