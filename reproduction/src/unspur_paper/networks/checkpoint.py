"""Everything a fine-tuning needs to go on, as one safetensors file: weights, state of the optimiser, how far it is.

A tensor is called by its part and its name there: ``network.conv.weight``, ``optimizer.3.exp_avg``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from unspur._files import read_artifact, write_artifact
from unspur._typing import Array
from unspur.exceptions import ArtifactError

AGAIN = "Train again with --force."


def save_checkpoint(path: Path, parts: Mapping[str, Mapping[str, Any]], note: Mapping[str, Any]) -> None:
    """Replace the file at `path`, atomically; `note` is plain JSON."""
    arrays = {
        f"{part}.{name}": np.asarray(tensor.detach().cpu().numpy())
        for part, tensors in parts.items()
        for name, tensor in tensors.items()
    }
    write_artifact(path, arrays, {"note": dict(note)}, overwrite=True)


def load_checkpoint(path: Path) -> tuple[dict[str, dict[str, Array]], dict[str, Any]]:
    """Parts and note of a file."""
    try:
        arrays, metadata = read_artifact(path, oldest=1)
    except ArtifactError as error:
        raise ArtifactError(f"{error} {AGAIN}") from error
    if not isinstance(metadata.get("note"), dict):
        raise ArtifactError(f"{path} is not a network that unspur saved. {AGAIN}")
    parts: dict[str, dict[str, Array]] = {}
    for key, array in arrays.items():
        part, _, name = key.partition(".")
        parts.setdefault(part, {})[name] = array
    return parts, metadata["note"]


def restore(module: Any, found: Mapping[str, Array], path: Path) -> None:
    """Put saved tensors into a torch module, which must have the same ones."""
    import torch

    state = module.state_dict()
    odd = sorted(set(state) ^ set(found)) or [key for key in state if state[key].numel() != found[key].size]
    if odd:
        raise ArtifactError(f"{path} is of another network: {odd[0]} does not fit. Was it made with this encoder?")
    # Numbers alone are saved as arrays of one.
    module.load_state_dict({key: torch.from_numpy(found[key]).reshape(state[key].shape) for key in state})


def optimizer_tensors(optimizer: Any) -> dict[str, Any]:
    """What an optimiser remembers of each parameter."""
    return {
        f"{number}.{name}": value
        for number, kept in optimizer.state_dict()["state"].items()
        for name, value in kept.items()
        if value is not None
    }


def restore_optimizer(optimizer: Any, found: Mapping[str, Array], parameters: Iterable[Any]) -> None:
    """Put it back, in the shapes of the parameters in their order."""
    import torch

    shapes = [parameter.shape for parameter in parameters]
    state: dict[int, dict[str, Any]] = {}
    for key, array in found.items():
        number, _, name = key.partition(".")
        tensor = torch.from_numpy(array)
        shape = shapes[int(number)] if tensor.numel() == shapes[int(number)].numel() and name != "step" else ()
        state.setdefault(int(number), {})[name] = tensor.reshape(shape)
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
