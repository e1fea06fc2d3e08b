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

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unspur.embed.base import Encoder
    from unspur.embed.embedding import embed
    from unspur.embed.examples import TableExamples
    from unspur.embed.properties import content_properties
    from unspur.embed.registry import ENCODERS, Entry, load_encoder
    from unspur.embed.store import EmbeddingStore

__all__ = [
    "ENCODERS",
    "EmbeddingStore",
    "Encoder",
    "Entry",
    "TableExamples",
    "content_properties",
    "embed",
    "load_encoder",
]

#: Names whose modules are imported on first use: a report on a table needs none of them.
_HOMES = {
    **dict.fromkeys(("ENCODERS", "Entry", "load_encoder"), "registry"),
    "Encoder": "base",
    "embed": "embedding",
    "TableExamples": "examples",
    "content_properties": "properties",
    "EmbeddingStore": "store",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'unspur.embed' has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f"unspur.embed.{_HOMES[name]}"), name)
    return value
