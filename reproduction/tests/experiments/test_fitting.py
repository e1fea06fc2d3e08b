"""What experiments make of a named method."""

import numpy as np
import pytest

from unspur.datasets import make_toy
from unspur.exceptions import GroupSizeError, InputError
from unspur_paper.experiments.fitting import estimator, fit_removal
from unspur_paper.experiments.variants import REMOVERS, jse
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


def test_options_have_the_names_of_specs():
    rng = np.random.default_rng(0)
    for options, parameters in (
        ({"weight_decay": 0.1}, {"penalty": 0.1, "metric": 0.0}),
        ({"orthogonality": "scores"}, {"metric": 1.0}),
        ({"metric": 0.25}, {"metric": 0.25}),
        ({"cv": "null"}, {"cv": 0.2}),
        ({"cv": "null", "validation_fraction": 0.3}, {"cv": 0.3}),
    ):
        found = estimator(REMOVERS, {"name": "JSE", **options}, rng).get_params()
        assert {name: found[name] for name in parameters} == parameters
    for wrong, says in (({"learning_rate": 1.0}, "cannot be made"), ({"tests": "plane"}, "group or plain")):
        with pytest.raises(InputError, match=says):
            estimator(REMOVERS, {"name": "JSE", **wrong}, rng)


def test_variants_of_jse():
    toy = make_toy(2000, d=6, rho=0.7, random_state=0)
    rows = Rows(toy.Z, toy.y, toy.concept)

    def removal(**options):
        return fit_removal({"name": "JSE", **options}, rows, None, np.random.default_rng(0))

    usual, swapped, onto = removal(), removal(inner="spurious"), removal(output="onto_main")
    assert [found.spurious.dim for found in (usual, swapped, onto)] == [1, 1, 1]
    first = usual.spurious.basis[:, 0]
    assert abs(first @ swapped.spurious.basis[:, 0]) > 0.95
    assert np.linalg.matrix_rank(onto(rows).Z - onto(rows).Z.mean(axis=0), tol=1e-8) == onto.main.dim == 1
    np.testing.assert_allclose((usual(rows).Z - rows.Z) @ (np.eye(6) - np.outer(first, first)), 0.0, atol=1e-9)
    for options in ({"candidate": "failing"}, {"tests": "plain"}, {"delta": "auto"}, {"scalars": "training"}):
        assert removal(**options).spurious.dim >= 1


def test_the_heuristic_shifts_the_second_test_by_how_much_harder_the_concept_is():
    toy = make_toy(2000, d=6, rho=0.5, separability=(1.0, 4.0), random_state=0)
    fitted = jse({"delta": "auto", "random_state": 0}).fit(toy.Z, toy.y, concept=toy.concept)
    assert fitted.trace_.delta > 0.1
    assert jse({"random_state": 0}).fit(toy.Z, toy.y, concept=toy.concept).trace_.delta == 0.0
