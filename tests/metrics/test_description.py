"""Description length: shuffled labels cost what their frequencies say, readable ones far less."""

import json

import numpy as np
import pytest

from unspur.exceptions import InputError
from unspur.metrics import DescriptionLength, description_length


def sample(n=1500, shift=3.0, prevalence=(0.5, 0.5), seed=0):
    rng = np.random.default_rng(seed)
    concept = rng.choice(len(prevalence), size=n, p=prevalence)
    z = rng.standard_normal((n, 8))
    z[np.arange(n), concept] += shift
    return z, concept


@pytest.mark.parametrize("prevalence", [(0.5, 0.5), (0.9, 0.1), (0.4, 0.3, 0.3)], ids=str)
def test_signal_compresses_and_shuffled_labels_do_not(prevalence):
    z, concept = sample(prevalence=prevalence)
    signal = description_length(z, concept, random_state=0)
    noise = description_length(z, np.random.default_rng(1).permutation(concept), random_state=0)
    assert signal.compression_over_prior > 2.5
    assert 0.93 < noise.compression_over_prior < 1.01
    assert signal.uniform_bits == noise.uniform_bits == pytest.approx(1500 * np.log2(len(prevalence)))
    if len(set(prevalence)) == 1:
        assert 0.93 < noise.compression < 1.01
    if max(prevalence) == 0.9:
        assert noise.compression > 1.7  # frequencies alone compress: why prior_bits is reported


def test_the_small_network_reads_what_is_not_linear():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((1000, 3))
    concept = z[:, 0] * z[:, 1] > 0
    linear, network = (description_length(z, concept, probe=p, random_state=0) for p in ("linear", "mlp"))
    assert linear.compression < 1.02
    assert network.compression > 1.3


def test_first_block_costs_the_uniform_code_and_the_rest_its_probabilities():
    """Rows without any information: every later block costs what a smoothed frequency code would."""
    concept = np.arange(200) % 2
    found = description_length(np.zeros((200, 2)), concept, first=199, random_state=0)
    assert found.bits == pytest.approx(200, abs=0.05)
    certain = np.column_stack([1e3 * (concept - 0.5), np.zeros(200)])
    last = description_length(certain, concept, first=100, ratio=2, penalty=1e-9, random_state=0)
    # Label of each later row: probability 1 mixed with half of 2/102.
    assert last.bits == pytest.approx(100 + 100 * -np.log2(100 / 102 + 1 / 102), rel=1e-3)


def test_frequency_code_of_a_small_case():
    """Krichevsky–Trofimov for 0, 0, 1 (any order): ½ · ¾ · (½ / 3)."""
    from unspur.metrics.information import _frequency_bits

    assert _frequency_bits(np.array([0, 1, 0]), 2) == pytest.approx(-np.log2(0.5 * 0.75 * 0.5 / 3))


def test_same_seed_same_bits_and_rare_classes_do_no_harm():
    z, concept = sample(400)
    concept[:3] = 7
    one, two = (description_length(z, concept, penalty=0.1, random_state=3) for _ in range(2))
    assert one == two
    assert np.isfinite(one.bits)
    assert one.compression > 1.5


def test_shown_and_saved():
    found = DescriptionLength(bits=100.0, uniform_bits=250.0, prior_bits=200.0, rows=250)
    assert "100 bits for 250 labels" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["compression"] == 2.5
    with pytest.raises(InputError, match="first=500"):
        description_length(*sample(400), first=500)
    with pytest.raises(InputError, match="ratio"):
        description_length(*sample(400), ratio=1.0)


@pytest.mark.parametrize(
    "blocks", [{"ratio": np.inf}, {"ratio": np.nan}, {"ratio": "a"}, {"first": np.nan}, {"first": "a"}], ids=str
)
def test_blocks_that_are_no_numbers_are_refused(blocks):
    ((name, value),) = blocks.items()
    with pytest.raises(InputError, match=f"Blocks need .*{name}={value!r}"):
        description_length(*sample(400), **blocks)


def test_a_large_ratio_is_one_block():
    z, concept = sample(400)
    one, two = (description_length(z, concept, ratio=r, penalty=0.1, random_state=0) for r in (100.0, 1e308))
    assert one == two
