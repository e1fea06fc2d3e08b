"""The kind of orthogonality is chosen by what a last layer loses on rows that were held out."""

import numpy as np
import pytest

from tests.entangled import entangled_rows
from tests.labelled_rows import Rows
from unspur import JSE
from unspur.datasets import make_toy
from unspur.selection import select_orthogonality


def toy(n, seed):
    made = make_toy(n, rho=0.8, random_state=seed)
    return Rows(made.Z, made.y, made.concept)


def entangled(n, seed):
    return Rows(*entangled_rows(n, seed))


@pytest.mark.parametrize(("make", "expected"), [(toy, "weights"), (entangled, "scores")])
@pytest.mark.parametrize("given", [True, False], ids=["validation rows", "a fifth held out"])
def test_each_wins_where_it_is_right(make, expected, given):
    jse = JSE(cv=0.2, random_state=0)
    chosen, losses = select_orthogonality(jse, make(3000, 0), make(1500, 1) if given else None)
    assert chosen.metric == float(expected == "scores")
    assert expected == min(losses, key=losses.get)
    assert abs(losses["weights"] - losses["scores"]) > 0.005
    assert not hasattr(jse, "removal_")
    assert chosen.transform(make(10, 2).Z).shape == make(10, 2).Z.shape


def test_without_validation_rows_the_winner_is_fitted_on_all_rows():
    rows = entangled(2500, 0)
    chosen, _ = select_orthogonality(JSE(cv=0.2, random_state=0), rows)
    again = JSE(cv=0.2, random_state=0, metric=chosen.metric).fit(rows.Z, rows.y, concept=rows.concept)
    np.testing.assert_array_equal(chosen.transform(rows.Z), again.transform(rows.Z))
