"""Heads with several concepts: groups are all their combinations."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.pipeline import Pipeline

from unspur import DFR, JSE, LEACE, SUBG, GroupDRO, GroupWeighted
from unspur.datasets import make_toy


@pytest.mark.parametrize("head", [GroupWeighted(), SUBG(random_state=0), GroupDRO(), DFR(random_state=0)])
def test_two_concepts_are_the_groups_of_their_combination(head):
    toy = make_toy(1500, d=6, rho=0.6, random_state=0)
    second = np.where(toy.Z[:, 3] > 0.5, "x", "y")
    both = pd.DataFrame({"a": toy.concept, "b": second})
    by_hand = np.char.add(toy.concept.astype(str), second)
    together = head.fit(toy.Z, toy.y, concept=both).coef_.copy()
    assert_allclose(together, head.fit(toy.Z, toy.y, concept=by_hand).coef_, atol=1e-6)
    assert np.abs(together - head.fit(toy.Z, toy.y, concept=toy.concept).coef_).max() > 1e-3


def test_validation_rows_reach_a_head_only_through_the_steps_before():
    """A pipeline hands X_val on untransformed; a head must not be trained on rows with the concept in them."""
    train, held = make_toy(1200, d=6, rho=0.6, random_state=0), make_toy(800, d=6, rho=0.6, random_state=1)
    val = {"X_val": held.Z, "y_val": held.y, "concept_val": held.concept}
    leace = LEACE().fit(train.Z, concept=train.concept)
    clean = {**val, "X_val": leace.transform(held.Z)}
    by_hand = DFR(random_state=0).fit(leace.transform(train.Z), train.y, concept=train.concept, **clean).coef_
    ask = dict.fromkeys(("X_val", "y_val", "concept_val"), True)
    with sklearn.config_context(enable_metadata_routing=True):
        head = DFR(random_state=0).set_fit_request(**ask)
        pipe = Pipeline([("leace", LEACE()), ("head", head)], transform_input=["X_val"])
        pipe.fit(train.Z, train.y, concept=train.concept, **val)
        assert_allclose(pipe[1].coef_, by_hand, atol=1e-8)
        plain = Pipeline([("jse", JSE(cv=0.2, penalty=0.1, random_state=0)), ("head", DFR(random_state=0))])
        plain.fit(train.Z, train.y, concept=train.concept, **val)  # they go to JSE, and no further
    clean = plain[0].transform(train.Z)
    alone = DFR(random_state=0).fit(clean, train.y, concept=train.concept).coef_
    assert_allclose(plain[1].coef_, alone, atol=1e-8)
