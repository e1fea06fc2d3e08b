"""What experiments make of a named method."""

import numpy as np
import pytest

from unspur.datasets import make_toy
from unspur.exceptions import GroupSizeError
from unspur_paper.experiments.fitting import REMOVERS, estimator, fit_removal
from unspur_paper.rows import Rows


def test_groups_of_a_few_rows_are_tested_as_in_the_paper():
    toy = make_toy(400, d=5, rho=0.9, random_state=0)
    few = np.flatnonzero((toy.y == 1) & (toy.concept == 0))[5:]
    rows = Rows(*(np.delete(values, few, axis=0) for values in (toy.Z, toy.y, toy.concept)))
    removal = fit_removal({"name": "JSE", "max_spurious": 0}, rows, None, np.random.default_rng(0))
    assert removal.main.ambient == 5
    with pytest.raises(GroupSizeError, match="at least 10"):  # asked for, the rule of the library holds
        fit_removal({"name": "JSE", "smallest_group": 10}, rows, None, np.random.default_rng(0))
    assert estimator(REMOVERS, {"name": "LEACE"}, np.random.default_rng(0)).get_params()
