"""What turns examples into rows: a network without its last layer, and how its inputs are prepared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from unspur._extras import require
from unspur.embed.examples import Kind
from unspur.exceptions import InputError

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
        require("A network needs", "torch")
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

    def autocast(self) -> Any:
        """A context in which a network computes in this precision."""
        import torch

        return torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=self.precision != "float32")

    def kernels(self) -> Any:
        """A context in which convolutions are computed in the same way every time, as far as the device can."""
        import torch

        # GPUs round the inputs of float32 convolutions to ten bits unless told not to.
        rounding = self.precision != "float32"
        return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=rounding)

    def run(self, network: Any, *inputs: Any, **named: Any) -> Any:
        """Call a network on inputs that are on the device, without gradients."""
        import torch

        with torch.inference_mode(), self.kernels(), self.autocast():
            return network(*inputs, **named)


class NetworkEncoder(ABC):
    """An encoder that is a torch network: it can be fine-tuned, and looked into.

    ::

        example ──prepare──▶ array ──batch──▶ inputs on the device ──features──▶ (batch, width)
                 in threads                                        ──feature_maps──▶ (batch, width, h, w)
    """

    kind: Kind
    width: int

    def __init__(self, network: Any, where: Where, name: str, preparation: str) -> None:
        self.network, self.where, self.name = network, where, name
        self.device = str(where)
        self._preparation = preparation
        #: How it was fine-tuned, for the manifest; empty if it was not.
        self.training: Mapping[str, Any] = {}
        self.weights_changed()

    def weights_changed(self) -> None:
        """Take the digest anew."""
        self.digest = weights_digest(self.network, self._preparation)

    @abstractmethod
    def prepare(self, example: Any) -> Any:
        """One example as small arrays; safe to call from several threads."""

    @abstractmethod
    def batch(self, prepared: Sequence[Any]) -> Any:
        """Prepared examples as inputs of the network, on its device."""

    @abstractmethod
    def features(self, inputs: Any) -> Any:
        """Embeddings of a batch, a float32 tensor of shape (batch, width), with gradients where they are recorded."""

    def feature_maps(self, inputs: Any) -> Any:  # noqa: ARG002
        """What is averaged over positions to give the features, a float32 tensor of shape (batch, width, h, w)."""
        raise InputError(
            f"{self.name} has no feature maps whose mean is the embedding; use a network that averages over positions, "
            "such as efficientnet-lite0 or resnet50."
        )

    def rows(self, prepared: Sequence[Any]) -> NDArray[np.float32]:
        """Embed a batch of prepared examples."""
        return np.asarray(self.where.run(self.features, self.batch(prepared)).cpu().numpy())

    def __call__(self, examples: Sequence[Any]) -> NDArray[np.float32]:
        """Embed a batch of examples, shape (batch, width)."""
        return self.rows([self.prepare(example) for example in examples])


def weights_digest(network: Any, preparation: str) -> str:
    """Digest of all parameters and buffers of a torch module, and of the words that say how inputs are prepared."""
    import hashlib

    total = hashlib.sha256(preparation.encode())
    for name, tensor in sorted(network.state_dict().items()):
        total.update(name.encode())
        total.update(tensor.detach().cpu().contiguous().float().numpy().tobytes())
    return total.hexdigest()[:16]
