"""What turns examples into rows: a network without its last layer, and how its inputs are prepared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from unspur.exceptions import InputError
from unspur.lab.datasets.examples import Kind

Precision = Literal["auto", "float32", "bfloat16"]


class Encoder(Protocol):
    """A batch of examples -> rows of shape (batch, width), float32."""

    #: As in the registry, or a model of the hub.
    name: str
    kind: Kind
    width: int
    #: 16 hexadecimal digits of the weights and of how inputs are prepared.
    digest: str
    #: What it runs on, in words for the manifest: "cpu, float32".
    device: str

    def __call__(self, examples: Sequence[Any]) -> NDArray[np.float32]:
        """Embed a batch."""


@dataclass(frozen=True, slots=True)
class Where:
    """Device and precision that a network runs on."""

    device: str
    precision: Literal["float32", "bfloat16"]

    @classmethod
    def choose(cls, device: str = "auto", precision: Precision = "auto") -> Where:
        """CUDA if there is one; there in bfloat16, on a CPU in float32, unless asked otherwise."""
        import torch

        if device not in ("auto", "cpu") and not device.startswith("cuda"):
            raise InputError(f"device is 'auto', 'cpu' or 'cuda'; got {device!r}.")
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise InputError("There is no CUDA device here; use --device cpu.")
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        if precision == "auto":
            precision = "bfloat16" if device.startswith("cuda") else "float32"
        if precision not in ("float32", "bfloat16"):
            raise InputError(f"precision is 'auto', 'float32' or 'bfloat16'; got {precision!r}.")
        return cls(device, precision)

    def __str__(self) -> str:
        return f"{self.device}, {self.precision}"

    def run(self, network: Any, *inputs: Any, **named: Any) -> Any:
        """Call a network on inputs that are on the device, without gradients, in this precision."""
        import torch

        kind, full = torch.device(self.device).type, self.precision == "float32"
        # GPUs round the inputs of float32 convolutions to ten bits unless told not to.
        convolutions = torch.backends.cudnn.flags(enabled=True, allow_tf32=not full)
        with torch.inference_mode(), convolutions, torch.autocast(kind, torch.bfloat16, enabled=not full):
            return network(*inputs, **named)


def weights_digest(network: Any, preparation: str) -> str:
    """Digest of all parameters and buffers of a torch module, and of the words that say how inputs are prepared."""
    import hashlib

    total = hashlib.sha256(preparation.encode())
    for name, tensor in sorted(network.state_dict().items()):
        total.update(name.encode())
        total.update(tensor.detach().cpu().contiguous().float().numpy().tobytes())
    return total.hexdigest()[:16]
