"""Every estimator still gives the answers it gave: maps, traces, coefficients, group tables, certificates, warnings."""

import pytest

from tests.golden.cases import CASES, SINGLE, answer, machine
from tests.golden.master import MACHINE, differences, plain, read

MASTER = read()
SAME_MACHINE = MASTER.pop(MACHINE) == machine()
FLOAT32 = 1e-5


def tolerance(key):
    """1e-10 on the kind of machine that wrote the master; on others solvers end at other digits within their tolerance.

    Probes of certificates stop as soon as their loss no longer falls by much, so theirs are the coarsest.
    """
    if key.endswith(SINGLE):
        return FLOAT32
    if SAME_MACHINE:
        return 1e-10
    return 0.02 if "certificate" in key or "leakage" in key else 1e-6


def test_every_case_has_an_entry_and_every_entry_a_case():
    assert set(CASES) == set(MASTER)


@pytest.mark.parametrize("key", sorted(CASES))
def test_the_answer_is_that_of_the_master(key):
    assert not list(differences(plain(answer(key)), MASTER[key], tolerance(key)))


def test_the_comparison_sees_a_number_a_verdict_and_a_missing_key():
    wanted = {"a": [1.0, 2.0], "b": True, "c": {"d": 0.5}}
    assert not list(differences({"a": [1.0, 2.0 + 1e-12], "b": True, "c": {"d": 0.5}}, wanted, 1e-10))
    for other in ({**wanted, "a": [1.0, 2.0 + 1e-9]}, {**wanted, "b": False}, {"a": [1.0, 2.0], "b": True}):
        assert list(differences(other, wanted, 1e-10))
