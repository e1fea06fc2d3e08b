"""An untrained network that averages over positions."""

from dataclasses import dataclass, field

import numpy as np
import torch

from unspur_paper.embedding.base import Device, Preparation, resize_and_crop

PREPARATION = Preparation(resize=32, crop=28, mean=(127.0,) * 3, scale=(64.0,) * 3)


@dataclass
class TinyConv:
    """An untrained network of two convolutions: 28 × 28 pixels to maps of 12 × 7 × 7."""

    width: int = 12
    name: str = "tiny"
    preparation: Preparation = PREPARATION
    where: Device = field(default_factory=lambda: Device("cpu", "float32"))

    def __post_init__(self):
        torch.manual_seed(0)
        self.network = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, stride=2, padding=1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(8, self.width, 3, stride=2, padding=1),
            torch.nn.ReLU(),
        )

    def prepare(self, example):
        return resize_and_crop(example, self.preparation)

    def batch(self, prepared):
        return (torch.from_numpy(np.stack(prepared)).permute(0, 3, 1, 2).float() - 127.0) / 64.0

    def feature_maps(self, inputs):
        return self.network(inputs)

    def rows(self, examples):
        with torch.inference_mode():
            maps = self.feature_maps(self.batch([self.prepare(example) for example in examples]))
        return maps.mean(dim=(2, 3)).numpy()
