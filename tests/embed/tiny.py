"""An untrained network that averages over positions, and photographs for it.

Run as a program it writes their maps in a process of its own, which dies on the way: FOLDER WHEN.
"""

import json
import sys
from dataclasses import dataclass, field

import numpy as np
import torch
from PIL import Image

from tests.embed.conftest import crops
from tests.embed.strips import Pictures, die
from unspur.embed.base import Preparation, Where, opacity, square
from unspur.embed.store import Reduction
from unspur_paper.networks.maps import write_maps

PREPARATION = Preparation(resize=32, crop=28, mean=(127.0,) * 3, scale=(64.0,) * 3)


@dataclass
class TinyConv:
    """An untrained network of two convolutions: 28 × 28 pixels to maps of 12 × 7 × 7."""

    width: int = 12
    name: str = "tiny"
    preparation: Preparation = PREPARATION
    where: Where = field(default_factory=lambda: Where("cpu", "float32"))

    def __post_init__(self):
        torch.manual_seed(0)
        self.network = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, stride=2, padding=1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(8, self.width, 3, stride=2, padding=1),
            torch.nn.ReLU(),
        )

    def prepare(self, example):
        return square(example, self.preparation)

    def batch(self, prepared):
        return (torch.from_numpy(np.stack(prepared)).permute(0, 3, 1, 2).float() - 127.0) / 64.0

    def feature_maps(self, inputs):
        return self.network(inputs)

    def rows(self, examples):
        with torch.inference_mode():
            maps = self.feature_maps(self.batch([self.prepare(example) for example in examples]))
        return maps.mean(dim=(2, 3)).numpy()


def photographs(n=20):
    return Pictures(images=crops("china.jpg", n // 2) + crops("flower.jpg", n // 2))


def left_half(_):
    """A mask whose left half is inside, cut like a picture."""
    mask = Image.new("L", (40, 30), 0)
    mask.paste(255, (0, 0, 20, 30))
    return opacity(mask, PREPARATION)


def main(folder, at):
    """Write the maps of the tests, and die on the way."""
    tiny, shown = TinyConv(), photographs()
    reduction = Reduction.fit(tiny.rows(shown.images), 6)
    if at == "features":
        real, calls = tiny.feature_maps, []
        tiny.feature_maps = lambda inputs: die() if len(calls) == 2 else (calls.append(1), real(inputs))[1]
    else:
        json.dumps = lambda *_, **__: die()
    write_maps(shown, range(5, 20), tiny, reduction, left_half, folder, batch=4, progress=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
