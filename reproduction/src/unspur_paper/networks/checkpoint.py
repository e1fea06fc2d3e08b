"""Everything a fine-tuning needs to go on, as one safetensors file: weights, state of the optimiser, how far it is.

A tensor is called by its part and its name there: ``network.conv.weight``, ``optimizer.3.exp_avg``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from unspur._files import atomic
from unspur._text import brief
from unspur._typing import Array
from unspur.exceptions import ArtifactError

FORMAT = 1
AGAIN = "Train again with --force."


def save_checkpoint(path: Path, parts: Mapping[str, Mapping[str, Any]], note: Mapping[str, Any]) -> None:
    """Replace the file at `path`, atomically; `note` is plain JSON."""
    arrays = {
        f"{part}.{name}": np.ascontiguousarray(tensor.detach().cpu().numpy())
        for part, tensors in parts.items()
        for name, tensor in tensors.items()
    }
    content = safetensors.numpy.save(arrays, {"unspur": json.dumps({"format": FORMAT, "note": dict(note)})})
    with atomic(path, overwrite=True) as temporary:
        temporary.write_bytes(content)


def load_checkpoint(path: Path) -> tuple[dict[str, dict[str, Array]], dict[str, Any]]:
    """Parts and note of a file."""
    if not path.is_file():
        raise ArtifactError(f"There is no file {path}. {AGAIN}")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            note = json.loads((file.metadata() or {})["unspur"])["note"]
            arrays = {name: file.get_tensor(name) for name in list(file.keys())}
    except Exception as error:  # whatever a damaged header makes the library raise
        raise ArtifactError(f"{path} is not a readable safetensors file ({brief(error)}). {AGAIN}") from error
    if not isinstance(note, dict):
        raise ArtifactError(f"{path} is not a network that unspur saved. {AGAIN}")
    parts: dict[str, dict[str, Array]] = {}
    for key, array in arrays.items():
        part, _, name = key.partition(".")
        parts.setdefault(part, {})[name] = array
    return parts, note


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
