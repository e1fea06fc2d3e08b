"""Pictures and an encoder that cost nothing: digits, and the brightness of the strips they can be cut into."""

import hashlib
import os
import signal
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

N = 60


def digits(n=N):
    from PIL import Image
    from sklearn.datasets import load_digits

    return [
        Image.fromarray((16 * image).clip(0, 255).astype(np.uint8)).convert("RGB") for image in load_digits().images[:n]
    ]


@dataclass
class Pictures:
    """Digits as a dataset; the last third is for testing."""

    images: list = field(default_factory=digits)
    labels: dict = None
    ids: list = None
    settings: dict = field(default_factory=dict)
    name: str = "digits"
    kind: str = "image"

    def __post_init__(self):
        n = len(self.images)
        if self.labels is None:
            self.labels = {"odd": np.arange(n) % 2, "split": np.where(np.arange(n) < 2 * n // 3, "train", "test")}
        if self.ids is None:
            self.ids = [f"digit {i}" for i in range(n)]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index]

    def digest(self):
        total = hashlib.sha256(repr([self.settings, self.ids, sorted(self.labels)]).encode())
        for image in self.images:
            total.update(image.tobytes())
        return total.hexdigest()[:16]


@dataclass
class Strips:
    """Mean brightness of eight strips and of eight columns; keeps a list of how many examples each call had."""

    name: str = "strips"
    digest: str = "0123456789abcdef"
    device: str = "cpu, float32"
    calls: list = field(default_factory=list)
    kind: ClassVar[str] = "image"
    width: ClassVar[int] = 16

    def __call__(self, examples: list[Any]):
        self.calls.append(len(examples))
        pixels = np.stack([np.asarray(image.convert("L"), dtype=np.float32) for image in examples])
        return np.concatenate([pixels.mean(axis=1), pixels.mean(axis=2)], axis=1)


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
