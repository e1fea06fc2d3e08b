"""Pairs in their published groups: three classes, with and without a word of negation."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from reproduction.tests.datasets.test_multinli import TRAIN, write
from unspur.exceptions import InputError
from unspur_paper.datasets.negation import NegatedPairs, draw, is_negated
from unspur_paper.datasets.selected import negated_pairs


def test_pairs_are_as_they_are_with_their_class_and_whether_the_second_has_negation(tmp_path):
    said = "Nobody said NO, never."
    dev = [{"gold_label": "contradiction", "sentence1": "No.", "sentence2": said}, {**TRAIN[0], "sentence2": " "}]
    pairs = NegatedPairs.read(write(tmp_path / "multinli_1.0", dev=dev))
    assert (len(pairs), pairs.kind) == (4, "text")
    assert_array_equal(pairs.labels["y"], [2, 0, 1, 0])
    assert_array_equal(pairs.labels["concept"], [0, 0, 0, 1])
    assert pairs[3] == ("No.", said)
    assert pairs.ids[2] == "multinli_1.0_train:4"
    other = [{**dev[0], "sentence2": "Somebody did."}]
    assert NegatedPairs.read(write(tmp_path / "b" / "multinli_1.0", dev=other)).digest() != pairs.digest()
    with pytest.raises(InputError, match="hold no labelled pairs"):
        NegatedPairs.read(write(tmp_path / "none" / "multinli_1.0", train=[TRAIN[2]], dev=[]))


@pytest.mark.parametrize(
    ("sentence", "negated"), [("Nothing!", 1), ("I know nobody.", 1), ("He knows.", 0), ("not", 0)]
)
def test_words_of_negation_are_whole_words(sentence, negated):
    assert is_negated(sentence) == bool(negated)


def test_every_pair_is_in_one_split(tmp_path):
    splits = draw(1000, np.random.default_rng(0))
    assert {name: len(rows) for name, rows in splits.items()} == {"train": 500, "validation": 200, "test": 300}
    assert_array_equal(np.sort(np.concatenate(list(splits.values()))), np.arange(1000))
    train = [{**TRAIN[i % 2], "sentence2": f"It is {i}."} for i in range(40)]
    pairs = NegatedPairs.read(write(tmp_path / "multinli_1.0", train=train))
    one, other = negated_pairs(pairs, 0), negated_pairs(pairs, 1)
    assert len(one) == len(pairs) == len(other)
    assert one.labels["split"].tolist() != other.labels["split"].tolist()
    assert one.digest() != other.digest()
