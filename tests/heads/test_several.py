"""Heads with several concepts: groups are all their combinations."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from unspur import DFR, SUBG, GroupDRO, GroupWeighted
from unspur.lab.datasets import make_toy


@pytest.mark.parametrize("head", [GroupWeighted(), SUBG(random_state=0), GroupDRO(), DFR(random_state=0)])
def test_two_concepts_are_the_groups_of_their_combination(head):
    toy = make_toy(1500, d=6, rho=0.6, random_state=0)
    second = np.where(toy.Z[:, 3] > 0.5, "x", "y")
    both = pd.DataFrame({"a": toy.concept, "b": second})
    by_hand = np.char.add(toy.concept.astype(str), second)
    together = head.fit(toy.Z, toy.y, concept=both).coef_.copy()
    assert_allclose(together, head.fit(toy.Z, toy.y, concept=by_hand).coef_, atol=1e-6)
    assert np.abs(together - head.fit(toy.Z, toy.y, concept=toy.concept).coef_).max() > 1e-3
