"""Threads: products of small blocks have one, and sums over many blocks use the others."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from unspur import JSE, LEACE, RobustClassifier
from unspur._resources import map_blocks, one_blas_thread, usual_threads
from unspur.datasets import make_toy
from unspur.exceptions import UnspurError
from unspur.heads import GroupWeighted
from unspur.rows import MemoryRows, RowLabels
from unspur.solvers.statistics import Covariances


def blas_threads():
    ours = [one for one in threadpool_info() if "numpy" in one["filepath"] or "scipy" in one["filepath"]]
    return max(library["num_threads"] for library in ours if library["user_api"] == "blas")


@pytest.fixture
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        if blas_threads() < 2:
            pytest.skip("this BLAS has one thread")
        yield


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    "estimator", [JSE(random_state=0), LEACE(), GroupWeighted(), RobustClassifier(random_state=0)], ids=repr
)
def test_a_fit_on_narrow_rows_has_one_thread_and_gives_the_others_back(estimator, monkeypatch):
    seen = []
    original = MemoryRows.sum

    def noted(self, statistic):
        seen.append(blas_threads())
        return original(self, statistic)

    monkeypatch.setattr(MemoryRows, "sum", noted)
    toy = make_toy(600, random_state=0)
    estimator.fit(toy.Z, toy.y, concept=toy.concept)
    assert set(seen) == {1}
    assert blas_threads() == 2
    with pytest.raises(UnspurError):
        estimator.fit(toy.Z, toy.y, concept=np.zeros(600))
    assert blas_threads() == 2
    seen.clear()
    rows = MemoryRows(toy.Z, RowLabels.of(toy.y, toy.concept))
    Covariances.of(rows)  # control: outside of a fit
    assert set(seen) == {2}


@pytest.mark.usefixtures("two_threads")
def test_blocks_run_in_several_threads_and_results_keep_their_order():
    both = threading.Barrier(2, timeout=30)

    def of_block(k):
        if k < 2:
            both.wait()  # never ends unless two blocks run at a time
        return k, threading.current_thread().name, blas_threads()

    found = list(map_blocks(of_block, range(20)))
    assert [k for k, _, _ in found] == list(range(20))
    assert len({name for _, name, _ in found}) == 2
    assert {threads for *_, threads in found} == {1}
    assert blas_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_few_results_wait_for_a_caller_that_is_slow():
    made, most = [], 0
    for taken, _ in enumerate(map_blocks(made.append, range(40)), start=1):
        time.sleep(0.005)  # in which all blocks could have been handled
        most = max(most, len(made) - taken)
    assert len(made) == 40
    assert 1 <= most <= 3


@pytest.mark.usefixtures("two_threads")
def test_blocks_run_one_by_one_where_threads_are_not_ours():
    names = []

    def outside():
        names.extend(map_blocks(lambda _: threading.current_thread().name, range(5)))

    thread = threading.Thread(target=outside, name="a worker")
    thread.start()
    thread.join()
    assert set(names) == {"a worker"}
    with threadpool_limits(1, user_api="blas"):  # what a user or a worker process asks for
        assert set(map_blocks(lambda _: threading.current_thread().name, range(5))) == {"MainThread"}


@pytest.mark.usefixtures("two_threads")
def test_sums_are_the_same_to_the_last_bit_for_any_number_of_threads():
    rng = np.random.default_rng(0)
    y, concept = rng.integers(0, 2, (2, 5000))
    rows = MemoryRows(rng.normal(size=(5000, 30)).astype(np.float32), RowLabels.of(y, concept), block_rows=300)
    several = Covariances.of(rows)
    with threadpool_limits(1, user_api="blas"):
        one = Covariances.of(rows)
    np.testing.assert_array_equal(several.xx, one.xx)
    np.testing.assert_array_equal(several.xt, one.xt)


@pytest.mark.usefixtures("two_threads")
def test_an_error_in_a_block_reaches_the_caller():
    def fails(k):
        if k == 3:
            raise ValueError("block 3")
        return k

    with pytest.raises(ValueError, match="block 3"):
        list(map_blocks(fails, range(6)))
    assert list(map_blocks(abs, range(3))) == [0, 1, 2]


@pytest.mark.usefixtures("two_threads")
def test_contexts_may_be_nested():
    with one_blas_thread():
        with one_blas_thread():
            assert blas_threads() == 1
        assert blas_threads() == 1
        assert usual_threads() == 2
    assert blas_threads() == 2
