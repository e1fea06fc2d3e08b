"""Group accuracies against cases worked out by hand."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from unspur.exceptions import InputError
from unspur.lab.report.tables import group_table
from unspur.metrics import GroupAccuracy

Y = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
CONCEPT = np.array([0, 0, 0, 0, 1, 0, 1, 1, 1, 1])
RIGHT = np.array([1, 1, 1, 0, 1, 0, 1, 1, 0, 0])


def test_accuracies_and_both_averages():
    result = GroupAccuracy.of(RIGHT, Y, CONCEPT)
    assert_allclose(result.accuracy, [[0.75, 1.0], [0.0, 0.5]])
    assert result.worst == 0.0
    assert result.group_average == pytest.approx((0.75 + 1 + 0 + 0.5) / 4)
    assert result.average == pytest.approx(0.6)


def test_wilson_interval_of_a_textbook_case():
    """81 of 263: the interval printed in Newcombe (1998), 0.2553 to 0.3662."""
    right = np.r_[np.arange(263) < 81, np.ones(3)]
    result = GroupAccuracy.of(right, np.r_[np.zeros(263), 0, 1, 1], np.r_[np.zeros(263), 1, 0, 1])
    assert_allclose(result.interval()[0, 0], [0.2553, 0.3662], atol=5e-5)
    assert result.interval()[1, 1, 1] == pytest.approx(1.0)


def test_an_absent_group_is_an_error_not_a_number():
    with pytest.raises(InputError, match="No rows with main=land, concept=sea"):
        GroupAccuracy.of([1, 1], [0, 1], [0, 1], classes=("land", "water"), concept_classes=("sky", "sea"))
    with pytest.raises(InputError, match="worst"):
        GroupAccuracy.of([1, 1, 1], [0, 1, 1], [0, 1, 0])


def test_table_fits_a_terminal_even_with_long_names():
    result = GroupAccuracy.of(RIGHT, Y, CONCEPT, classes=("a" * 40, "b" * 40))
    text = group_table({"ERM": result, "JSE": result}, "main-task-label", "concept")
    assert max(map(len, text.splitlines())) <= 80
    assert "75.0" in text
    assert "worst group" in text
