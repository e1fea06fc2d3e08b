"""Turn images and texts into rows with a frozen network without its last layer.

::

    load_encoder("resnet50") ──▶ Encoder
                                    │
    images, texts, pairs ──batch──▶ prepare ──▶ network ──▶ pool ──▶ rows (batch, width), float32
                                                                       │
                                                                       ▼
                                                                 embedding store

A registry name, a model of the Hugging Face hub (`owner/model`) or a folder. Weights are read as numbers only, and
`Encoder.digest` tells them apart. Importing this loads no network library; loading an encoder does.
"""

from unspur.embed.base import Encoder
from unspur.embed.registry import ENCODERS, Entry, load_encoder

__all__ = ["ENCODERS", "Encoder", "Entry", "load_encoder"]
