"""Splits hold exactly the groups asked for, and a message says what would fit where they cannot."""

import re

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from unspur.exceptions import GroupSizeError, InputError, LabelError
from unspur_paper.datasets.resampling import agreeing, draw_splits, group_counts, largest_sizes

SIZES = {"train": 401, "validation": 100, "test": 200}


def rows(counts, seed=0):
    """Labels with these counts of (0,0), (0,1), (1,0), (1,1), in random order."""
    order = np.random.default_rng(seed).permutation(sum(counts))
    return np.repeat([0, 0, 1, 1], counts)[order], np.repeat([0, 1, 0, 1], counts)[order]


def table(y, concept):
    return np.array([[np.sum((y == a) & (concept == b)) for b in (0, 1)] for a in (0, 1)])


@pytest.mark.parametrize("p", [0.0, 0.5, 0.83, 0.9, 1.0])
def test_concepts_agree_with_exactly_the_share_asked_for_in_each_class(p):
    y = np.repeat([0, 1], [70, 30])
    concept = agreeing(y, p, np.random.default_rng(0))
    assert_array_equal(table(y, concept).diagonal(), [round(70 * p), round(30 * p)])
    if 0 < p < 1:  # drawn at random, so that another generator chooses others
        assert not np.array_equal(concept, agreeing(y, p, np.random.default_rng(1)))


@pytest.mark.parametrize("p", [0.5, 0.9])
def test_every_group_of_every_split_has_exactly_its_rows(p):
    y, concept = rows([600, 600, 600, 600])
    splits = draw_splits(y, concept, SIZES, {"train": p, "validation": p, "test": 0.5}, np.random.default_rng(0))
    expected = {
        # 201 rows of class 0 cannot be halved, and round(100.5) is 100.
        0.5: {"train": [[100, 101], [100, 100]], "validation": [[25, 25], [25, 25]]},
        0.9: {"train": [[181, 20], [20, 180]], "validation": [[45, 5], [5, 45]]},
    }[p]
    for name, counts in {**expected, "test": [[50, 50], [50, 50]]}.items():
        assert_array_equal(table(y[splits[name]], concept[splits[name]]), counts)
        assert len(splits[name]) == SIZES[name]


def test_splits_share_no_row_and_are_in_random_order():
    y, concept = rows([300, 300, 300, 300])
    splits = draw_splits(y, concept, SIZES, dict.fromkeys(SIZES, 0.8), np.random.default_rng(0))
    drawn = np.concatenate(list(splits.values()))
    assert len(np.unique(drawn)) == len(drawn) == sum(SIZES.values())
    assert 60 < y[splits["train"]][:200].sum() < 140  # by groups it would be 0


def test_draws_repeat_with_the_generator_and_differ_between_generators():
    y, concept = rows([300, 300, 300, 300])

    def draw(seed):
        return draw_splits(y, concept, SIZES, dict.fromkeys(SIZES, 0.8), np.random.default_rng(seed))["test"]

    assert_array_equal(draw(3), draw(3))
    assert len(np.intersect1d(draw(3), draw(4))) < 100


def test_rows_without_a_label_are_never_drawn():
    y, concept = rows([30, 30, 30, 30])
    concept[:15], y[15:30] = -1, -1
    enough = {"train": int(4 * table(y, concept).min())}
    drawn = draw_splits(y, concept, enough, {"train": 0.5}, np.random.default_rng(0))["train"]
    assert y[drawn].min() == 0
    assert concept[drawn].min() == 0
    with pytest.raises(GroupSizeError):  # with their labels there would be 30 of each
        draw_splits(y, concept, {"train": 120}, {"train": 0.5}, np.random.default_rng(0))
    draw_splits(*rows([30, 30, 30, 30]), {"train": 120}, {"train": 0.5}, np.random.default_rng(0))


def test_the_message_names_the_groups_their_rows_and_the_sizes_that_would_fit():
    y, concept = rows([5000, 4000, 81, 1371])
    sizes = {"train": 4500, "validation": 2000, "test": 2000}
    strengths = {"train": 0.9, "validation": 0.9, "test": 0.5}
    with pytest.raises(GroupSizeError) as caught:
        draw_splits(y, concept, sizes, strengths, np.random.default_rng(0), names=("Blond_Hair", "not Male"))
    message = str(caught.value)
    assert "4500 / 2000 / 2000 (train / validation / test)" in message
    assert "(Blond_Hair=1, not Male=0) has 81; 825 are wanted (225 / 100 / 500)" in message
    assert "(Blond_Hair=1, not Male=1) has 1371; 3425 are wanted (2025 / 900 / 500)" in message
    assert "Blond_Hair=0" not in message  # those groups have enough
    fit = largest_sizes(y, concept, sizes, strengths)
    assert f"Sizes of {' / '.join(str(size) for size in fit.values())} would fit" in message
    assert float(re.search(r"factor of ([\d.]+)", message)[1]) == pytest.approx(fit["train"] / 4500, rel=1e-2)
    draw_splits(y, concept, fit, strengths, np.random.default_rng(0))


def test_sizes_that_fit_are_left_alone():
    y, concept = rows([600, 600, 600, 600])
    assert largest_sizes(y, concept, SIZES, dict.fromkeys(SIZES, 0.9)) == SIZES


@pytest.mark.parametrize("seed", range(60))
def test_the_largest_sizes_can_be_drawn_and_one_step_more_cannot(seed):
    rng = np.random.default_rng(seed)
    y, concept = rows(rng.integers(60, 300, size=4), seed)
    sizes = {name: int(rng.integers(100, 1000)) for name in ("train", "validation", "test")}
    strengths = {name: float(rng.choice([0.5, 0.7, 0.9, 0.95, rng.random()])) for name in sizes}
    fit = largest_sizes(y, concept, sizes, strengths)
    splits = draw_splits(y, concept, fit, strengths, rng)
    assert {name: len(drawn) for name, drawn in splits.items()} == fit
    biggest = max(sizes, key=sizes.get)
    step = fit[biggest] + 1
    if step <= sizes[biggest]:
        more = {name: size * step // sizes[biggest] for name, size in sizes.items()}
        with pytest.raises(GroupSizeError):
            draw_splits(y, concept, more, strengths, rng)


def test_counts_never_shrink_as_a_split_grows():
    """What the search for the largest sizes relies on."""
    for p in (0.0, 0.05, 0.3, 0.5, 0.75, 0.9, 0.95, 1.0):
        counts = np.array([group_counts(n, p) for n in range(4, 400)])
        assert (np.diff(counts, axis=0) >= 0).all()
        assert_array_equal(counts.sum(axis=(1, 2)), np.arange(4, 400))


def test_where_nothing_fits_the_message_says_so():
    y, concept = rows([100, 100, 0, 100])
    for call in (
        lambda: largest_sizes(y, concept, {"train": 100}, {"train": 0.5}),
        lambda: draw_splits(y, concept, {"train": 100}, {"train": 0.5}, np.random.default_rng(0)),
    ):
        with pytest.raises(GroupSizeError, match=r"\(main=1, concept=0\) has 0; 25 are wanted.*more data are needed"):
            call()
    # At strength 1 that group is not wanted.
    assert largest_sizes(y, concept, {"train": 100}, {"train": 1.0}) == {"train": 100}


@pytest.mark.parametrize(
    ("sizes", "strengths", "match"),
    [
        ({"train": 3}, {"train": 0.5}, "from 4; got 3 for train"),
        ({"train": 10.0}, {"train": 0.5}, "whole number"),
        ({"train": True}, {"train": 0.5}, "whole number"),
        ({"train": 10}, {"train": 1.1}, "between 0 and 1; got 1.1"),
        ({"train": 10}, {"train": float("nan")}, "between 0 and 1"),
        ({"train": 10, "test": 10}, {"train": 0.5}, "needs a size and a strength"),
        ({}, {}, "needs a size and a strength"),
    ],
)
def test_bad_plans_are_refused(sizes, strengths, match):
    y, concept = rows([30, 30, 30, 30])
    with pytest.raises(InputError, match=match):
        draw_splits(y, concept, sizes, strengths, np.random.default_rng(0))
    with pytest.raises(InputError, match=match):
        largest_sizes(y, concept, sizes, strengths)


@pytest.mark.parametrize(
    ("y", "concept", "match"),
    [
        ([0, 1, 2], [0, 1, 1], "y must be 0, 1 or negative"),
        ([0, 1], [0, 1, 1], "y has 2 values and concept 3"),
        ([[0, 1]], [0, 1], "one column"),
        ([0.5, 1.0], [0, 1], "whole numbers"),
    ],
)
def test_bad_labels_are_refused(y, concept, match):
    with pytest.raises(LabelError, match=match):
        draw_splits(y, concept, {"train": 4}, {"train": 0.5}, np.random.default_rng(0))


def test_agreeing_refuses_missing_labels_and_other_strengths():
    with pytest.raises(LabelError, match="1 of 3 values of y are missing"):
        agreeing([0, 1, -1], 0.5, np.random.default_rng(0))
    with pytest.raises(InputError, match="got 2"):
        agreeing([0, 1], 2, np.random.default_rng(0))
