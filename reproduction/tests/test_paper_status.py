"""Every published value has a status, and statuses follow the records."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def status(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "reproduction" / "scripts"))
    import paper_status

    yield paper_status
    sys.modules.pop("paper_status")


def test_no_published_value_is_without_a_status(status):
    counts = status.counts()
    assert sum(number.total() for number in counts.values()) == len(status.published_values()) == 1775
    assert counts["delta", "toy gamma_sp=6 gamma_mt=2"]["reproduced"] == 40


def test_a_value_is_reproduced_within_two_standard_errors_only(status, monkeypatch):
    key = ("removal", "toy", "JSE", 0.5, "worst_group")
    value = status.published_values()[key]

    def answer(errors):
        own = status.Own(value.mean + errors * 2**0.5 * value.error, value.error, "toy-ood/released")
        monkeypatch.setattr(status, "own_value", lambda _: own)
        return status.status_of(key, value)

    assert answer(1.9) == "reproduced"
    assert answer(2.1) == "not reproduced"


def test_a_value_that_is_called_compared_by_order_is_compared(status):
    called = [
        key for key, value in status.published_values().items() if status.status_of(key, value) == "compared by order"
    ]
    places = {(source, dataset) for source, dataset, *_ in called}
    compared = [
        one
        for source, dataset in places
        for kind in status.KINDS
        for methods in status.compared(source, dataset, kind)
        for one in methods
    ]
    assert len(called) == len(compared) == 1195


def test_order_of_methods_is_that_of_the_means(status, monkeypatch):
    published = status.published_values()

    def with_sign(sign):
        monkeypatch.setattr(status, "own_value", lambda key, _: status.Own(sign * published[key].mean, 0.01, "record"))
        return status.compared("removal", "waterbirds")

    same, opposite = with_sign(1.0), with_sign(-1.0)
    assert status.rank_correlation(same)[0] > 0.7 > -0.7 > status.rank_correlation(opposite)[0]
    assert all(pair.own > 0 for pair in status.clear_pairs(same))
    assert all(pair.own < 0 for pair in status.clear_pairs(opposite))
    assert len(status.clear_pairs(same)) > 20
