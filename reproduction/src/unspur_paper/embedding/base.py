"""Encoders, which turn examples into rows, and the preparation of pictures for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from unspur._extras import require
from unspur.exceptions import InputError
from unspur_paper.embedding.examples import Kind

Precision = Literal["auto", "float32", "bfloat16"]


class Encoder(Protocol):
    """A batch of examples -> rows of shape (batch, width), float32."""

    #: Name in the registry, or of a model of the hub.
    name: str
    kind: Kind
    width: int
    #: Hash of the weights and of the preparation of inputs, 16 hexadecimal digits.
    digest: str
    #: Device and precision as the manifest has them: "cpu, float32".
    device: str

    def __call__(self, examples: Sequence[Any]) -> NDArray[np.float32]:
        """Embed a batch of texts, of pairs of texts, or of what `as_rgb` takes for pictures."""


@dataclass(frozen=True, slots=True)
class Device:
    """Device and precision of a network."""

    device: str
    precision: Literal["float32", "bfloat16"]

    @classmethod
    def choose(cls, device: str = "auto", precision: Precision = "auto") -> Device:
        """Resolve "auto": CUDA with bfloat16 if there is a GPU, else the CPU with float32."""
        require("A network needs", "torch")
        import torch

        if device not in ("auto", "cpu") and not device.startswith("cuda"):
            raise InputError(f"device is 'auto', 'cpu' or 'cuda'; got {device!r}.")
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise InputError("There is no CUDA device here; pass --device cpu.")
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

    def kernels(self, *, tuned: bool = False) -> Any:
        """A context in which convolutions are deterministic, as far as the device allows.

        `tuned` ones are the fastest of several that are tried first, which pays off if they run many times.
        """
        import torch

        # GPUs round the inputs of float32 convolutions to ten bits unless told not to.
        rounding = self.precision != "float32"
        return torch.backends.cudnn.flags(enabled=True, benchmark=tuned, deterministic=True, allow_tf32=rounding)

    def run(self, network: Any, *inputs: Any, **named: Any) -> Any:
        """Call a network on inputs that are on the device, without gradients."""
        import torch

        with torch.inference_mode(), self.kernels(), self.autocast():
            return network(*inputs, **named)


class NetworkEncoder(ABC):
    """An encoder that is a torch network, which can be fine-tuned and has feature maps.

    ::

        example ──prepare──▶ array ──batch──▶ inputs on the device ──features──▶ (batch, width)
                 in threads                                        ──feature_maps──▶ (batch, width, h, w)
    """

    kind: Kind
    width: int
    #: Most tokens of an example; None if there is no limit.
    max_tokens: int | None = None

    def __init__(self, network: Any, where: Device, name: str, preparation: str) -> None:
        self.network, self.where, self.name = network, where, name
        self.device = str(where)
        self._preparation = preparation
        #: Record of the fine-tuning for the manifest; empty without fine-tuning.
        self.training: Mapping[str, Any] = {}
        self.update_digest()

    def update_digest(self) -> None:
        """Compute the digest again."""
        self.digest = weights_digest(self.network, self._preparation)

    @abstractmethod
    def prepare(self, example: Any) -> Any:
        """One example as small arrays; thread-safe."""

    def is_cut(self, example: Any, prepared: Any) -> bool:  # noqa: ARG002
        """Whether an example was truncated when it was prepared."""
        return False

    @abstractmethod
    def batch(self, prepared: Sequence[Any]) -> Any:
        """Prepared examples as inputs of the network, on its device."""

    @abstractmethod
    def features(self, inputs: Any) -> Any:
        """Embeddings of a batch, a float32 tensor of shape (batch, width), with gradients where they are recorded."""

    def feature_maps(self, inputs: Any) -> Any:  # noqa: ARG002
        """Feature maps whose mean over positions is the features, a float32 tensor of shape (batch, width, h, w)."""
        raise InputError(
            f"{self.name} has no feature maps whose mean is the embedding; use a network that averages over positions, "
            "such as efficientnet-lite0 or resnet50."
        )

    def rows(self, prepared: Sequence[Any]) -> NDArray[np.float32]:
        """Embed a batch of prepared examples."""
        import torch

        try:
            return np.asarray(self.where.run(self.features, self.batch(prepared)).cpu().numpy())
        except torch.cuda.OutOfMemoryError as error:
            raise InputError(
                f"{self.name} ran out of memory on {self.where.device} with batches of {len(prepared)}. Pass fewer, "
                f"such as --batch {max(1, len(prepared) // 4)}, or --device cpu."
            ) from error

    def __call__(self, examples: Sequence[Any]) -> NDArray[np.float32]:
        """Embed a batch of examples, shape (batch, width)."""
        return embed_batch(self, examples)


def embed_batch(encoder: Any, examples: Sequence[Any]) -> NDArray[np.float32]:
    """Prepare and embed a batch; InputError for a single example."""
    if isinstance(examples, str) or not isinstance(examples, Iterable):
        raise InputError(
            f"{encoder.name} takes a list of {encoder.kind}s; got one {type(examples).__name__}. Pass a list, even of "
            "one."
        )
    prepared = [encoder.prepare(example) for example in examples]
    made: NDArray[np.float32] = encoder.rows(prepared) if prepared else np.empty((0, encoder.width), np.float32)
    return made


def weights_digest(network: Any, preparation: str) -> str:
    """Hash of the parameters and buffers of a torch module and of the description of its inputs."""
    import hashlib

    total = hashlib.sha256(preparation.encode())
    for name, tensor in sorted(network.state_dict().items()):
        total.update(name.encode())
        total.update(tensor.detach().cpu().contiguous().float().numpy().tobytes())
    return total.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Preparation:
    """Scale the whole picture to `resize` × `resize`, cut out the middle `crop` × `crop`, then (x - mean) / scale.

    Aspect ratios are not kept, as in the usual preparation of Waterbirds: nothing at the margins is lost but what the
    crop takes. Values x lie between 0 and 255.
    """

    resize: int
    crop: int
    mean: tuple[float, float, float]
    scale: tuple[float, float, float]


#: The usual preparation for networks trained on ImageNet.
IMAGENET = Preparation(resize=256, crop=224, mean=(123.675, 116.28, 103.53), scale=(58.395, 57.12, 57.375))


def resize_and_crop(image: Any, preparation: Preparation) -> NDArray[np.uint8]:
    """The middle of one picture (PIL), scaled: shape (crop, crop, 3) of one in colours, (crop, crop) of a mask."""
    from PIL import Image

    side, crop = preparation.resize, preparation.crop
    margins = ((side - crop) / 2, (side + crop) / 2)
    left, right, top, bottom = (margin * length / side for length in image.size for margin in margins)
    # Scaling only what is kept gives the same pixels as scaling all and cutting.
    return np.asarray(image.resize((crop, crop), Image.Resampling.BILINEAR, box=(left, top, right, bottom)))


def stacked(arrays: Sequence[NDArray[Any]], device: str) -> Any:
    """Arrays of one shape as one tensor on a device."""
    import torch

    kind = torch.from_numpy(np.empty(0, arrays[0].dtype)).dtype
    # A GPU copies from pinned memory several times as fast.
    batch = torch.empty((len(arrays), *arrays[0].shape), dtype=kind, pin_memory=device.startswith("cuda"))
    np.stack(arrays, out=batch.numpy())
    return batch.to(device, non_blocking=True)


def batch_tensor(squares: Sequence[NDArray[np.uint8]], preparation: Preparation, device: str) -> Any:
    """Pictures as one tensor of shape (batch, 3, crop, crop) on a device, shifted and stretched per colour there."""
    return standardise(stacked(squares, device), *colour_scale(preparation, device))


def colour_scale(preparation: Preparation, device: str) -> tuple[Any, Any]:
    """Mean and scale of the colours as tensors of shape (1, 3, 1, 1) on a device."""
    import torch

    mean, scale = (
        torch.tensor(colours, device=device).reshape(1, 3, 1, 1) for colours in (preparation.mean, preparation.scale)
    )
    return mean, scale


def standardise(pixels: Any, mean: Any, scale: Any) -> Any:
    """Pictures of shape (batch, crop, crop, 3) in bytes -> (batch, 3, crop, crop), shifted and stretched per colour."""
    # Channels last in memory, as the pictures are: what convolutions are fastest with.
    return (pixels.permute(0, 3, 1, 2).float() - mean) / scale
