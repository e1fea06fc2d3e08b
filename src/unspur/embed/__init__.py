"""Turn pictures and texts into rows with a frozen network.

::

    table, folder, data set ──read_examples──▶ Examples ─┬─embed──▶ part-00000.parquet, … ──read_embeddings──▶ Z, labels
                              load_encoder ──▶ Encoder ──┘

Importing this loads no network library; `load_encoder` does.
"""

from unspur.embed.encoders import Encoder, load_encoder
from unspur.embed.examples import Examples, read_examples
from unspur.embed.parts import embed, read_embeddings
from unspur.embed.properties import content_properties

__all__ = ["Encoder", "Examples", "content_properties", "embed", "load_encoder", "read_embeddings", "read_examples"]
