"""Rows in a Dask array: the answers of rows in memory, wherever chunks are and whatever happens to their workers."""

# ruff: noqa: ARG002 — every source is made with a folder, whether it needs one or not
import os
import signal
import subprocess
import sys
import time

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

from tests.probing import quick_probes
from tests.rows.contract import RowSourceContract
from unspur import ERM, JSE, LEACE, SPLINCE, GroupWeighted
from unspur.datasets import make_toy
from unspur.exceptions import ClusterLostError, InputError, LabelError, NotFiniteError
from unspur.removers import base
from unspur.rows import RowLabels
from unspur.rows import dask as on_dask
from unspur.rows.dask import DaskRows

CHUNK = 170
TOY, OTHER = make_toy(800, rho=0.8, random_state=0), make_toy(400, rho=0.8, random_state=1)
#: A fit of some dozens of sums: one split, one penalty.
PLAIN = {"cv": 0.2, "penalty": 0.01, "random_state": 0}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(on_dask, "MIN_CHUNK_BYTES", 0)


def chunked(z: np.ndarray, *, features: int = -1) -> da.Array:
    return da.from_array(z, chunks=(CHUNK, features))


def plain_columns(n: int) -> RowLabels:
    return RowLabels.of(np.arange(n) % 2, np.arange(n) // 2 % 2)


@pytest.fixture(scope="module")
def cluster():
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with LocalCluster(**options, silence_logs="CRITICAL") as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        client.wait_for_workers(2, timeout=20)
        yield client


@pytest.fixture
def here():
    with dask.config.set(scheduler="synchronous"):
        yield


# The contract


@pytest.mark.usefixtures("here")
class TestInThisProcess(RowSourceContract):
    def make(self, z, columns, tmp_path):
        return DaskRows(da.from_array(z, chunks=((1, 0, 9, 30, 7), 2)), columns)


@pytest.mark.usefixtures("client")
class TestOnACluster(RowSourceContract):
    dtypes = (np.float64,)

    @pytest.fixture(autouse=True)
    def none_is_small(self, monkeypatch):
        monkeypatch.setattr(on_dask, "MAX_LOCAL_PROJECTION_BYTES", 0)
        monkeypatch.setattr(on_dask, "FAN_IN", 2)

    def make(self, z, columns, tmp_path):
        return DaskRows(da.from_array(z, chunks=(10, -1)), columns)

    def test_projected_rows_are_not_brought_here(self, source, z):
        assert isinstance(source.project(np.eye(z.shape[1]), np.zeros(z.shape[1])), DaskRows)


# What is computed, how often, and where


def counted(values: np.ndarray, chunks=CHUNK) -> tuple[da.Array, list[int]]:
    """A Dask array, and the list of the chunks that were computed of it, which grows."""
    asked: list[int] = []

    def note(block):
        asked.append(len(block))
        return block

    values = np.asarray(values)
    meta = np.empty((0,) * values.ndim, values.dtype)
    return da.from_array(values, chunks=(chunks, *[-1] * (values.ndim - 1))).map_blocks(note, meta=meta), asked


def test_a_fit_computes_each_chunk_and_each_label_once(here):
    given = [counted(values) for values in (TOY.Z, TOY.y, TOY.concept)]
    JSE(**PLAIN).fit(given[0][0], given[1][0], concept=given[2][0])
    assert [sum(asked) for _, asked in given] == [800, 800, 800]


def test_rows_that_do_not_fit_are_computed_again_in_each_pass_to_the_same_bits(here, monkeypatch):
    expected = LEACE().fit(chunked(TOY.Z), concept=TOY.concept).removal_.matrix()
    monkeypatch.setattr(on_dask, "available_memory", lambda: 2 * TOY.Z.nbytes - 1)
    rows, asked = counted(TOY.Z)
    np.testing.assert_array_equal(LEACE().fit(rows, concept=TOY.concept).removal_.matrix(), expected)
    assert sum(asked) >= 3 * 800


def test_small_chunks_are_put_together(monkeypatch):
    monkeypatch.setattr(on_dask, "MIN_CHUNK_BYTES", 400 * 20 * 8)
    assert on_dask.persist_rows(chunked(TOY.Z)).chunks == ((340, 340, 120), (20,))
    assert on_dask.persist_rows(da.from_array(TOY.Z, chunks=(500, 7))).chunks == ((500, 300), (20,))


@pytest.mark.usefixtures("client")
def test_fits_on_a_cluster_find_what_they_find_in_memory():
    for method in (JSE(**PLAIN), SPLINCE(), GroupWeighted()):
        found, expected = (
            fit.coef_ if hasattr(fit, "coef_") else fit.removal_.matrix()
            for fit in (method.fit(z, TOY.y, concept=TOY.concept) for z in (chunked(TOY.Z), TOY.Z))
        )
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


def gram(block):
    return np.asarray(block.z.T @ block.z, dtype=np.float64)


def test_sums_depend_on_the_chunks_and_on_nothing_else(cluster):
    z = np.random.default_rng(0).standard_normal((2000, 30))
    weights = np.random.default_rng(1).standard_normal((7, 30))  # which travel with the statistic

    def products(block):
        return np.vstack([gram(block), weights @ block.z.T @ block.z, block.weight @ block.z])

    def sums(chunk):
        return DaskRows(da.from_array(z, chunks=(chunk, -1)), plain_columns(len(z))).sum(products)

    with dask.config.set(scheduler="synchronous"):
        expected, other = sums(61), sums(67)
    with dask.config.set(scheduler="threads"):
        np.testing.assert_array_equal(sums(61), expected)
    with Client(cluster) as client:
        client.wait_for_workers(2, timeout=20)
        np.testing.assert_array_equal(sums(61), expected)
        with dask.annotate(workers=[next(iter(client.nthreads()))], allow_other_workers=False):
            np.testing.assert_array_equal(sums(61), expected)
    assert not np.array_equal(other, expected)  # control: bits do tell one order of summation from another
    np.testing.assert_allclose(other, expected, rtol=1e-10, atol=1e-9)


# Lost workers


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("evaluation", [1, 12])
def test_a_worker_killed_in_the_middle_of_a_fit_changes_nothing(client, monkeypatch, evaluation):
    z = chunked(TOY.Z)
    expected = JSE(**PLAIN).fit(z, TOY.y, concept=TOY.concept)
    asked, killed, plain = [0], [], DaskRows.sum

    def sum_and_kill(self, statistic):
        asked[0] += 1
        if asked[0] == evaluation:
            killed.append(min(client.run(os.getpid).values()))
            os.kill(killed[0], signal.SIGKILL)
        return plain(self, statistic)

    monkeypatch.setattr(DaskRows, "sum", sum_and_kill)
    found = JSE(**PLAIN).fit(z, TOY.y, concept=TOY.concept)
    np.testing.assert_array_equal(found.removal_.matrix(), expected.removal_.matrix())
    assert found.training_hash_ == expected.training_hash_
    client.wait_for_workers(2, timeout=20)
    assert len(killed) == 1  # control: it is gone, and another in its place
    assert not alive(killed[0])


def dies_once(note, block):
    """A statistic that takes its worker with it, the first time it is asked for rows of the second half."""
    if block.z[0, 0] >= 500 and not os.path.exists(note):
        with open(note, "w") as file:
            file.write(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    return np.bincount(block.z[:, 0].astype(np.intp), minlength=1000)


def test_a_worker_that_dies_over_a_chunk_is_replaced_and_no_row_is_counted_twice(client, tmp_path):
    z = np.column_stack([np.arange(1000.0), np.zeros(1000)])
    rows, note = DaskRows(da.from_array(z, chunks=(100, -1)), plain_columns(1000)), str(tmp_path / "who")
    for _ in range(2):  # the second time with what was computed again
        np.testing.assert_array_equal(rows.sum(lambda block: dies_once(note, block)), np.ones(1000))
    assert not alive(int((tmp_path / "who").read_text()))


def dies(block):
    os.kill(os.getpid(), signal.SIGKILL)


def test_rows_that_kill_every_worker_are_an_error_and_not_a_loop(client, monkeypatch):
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 1)  # quicker than three, the default
    rows = DaskRows(chunked(TOY.Z[:CHUNK]), plain_columns(CHUNK))
    with pytest.raises(ClusterLostError, match="KilledWorker"):
        rows.sum(dies)


def test_without_its_scheduler_a_fit_ends_with_an_error(tmp_path, monkeypatch):
    file = str(tmp_path / "scheduler.json")
    common = ["--scheduler-file", file, "--host", "127.0.0.1", "--no-dashboard"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    program = [sys.executable, "-m"]
    with (
        subprocess.Popen([*program, "distributed.cli.dask_scheduler", "--port", "0", *common], **quiet) as scheduler,
        subprocess.Popen([*program, "distributed.cli.dask_worker", "--no-nanny", *common], **quiet) as worker,
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
    ):
        try:
            deadline = time.monotonic() + 20
            while not os.path.exists(file) and time.monotonic() < deadline:
                time.sleep(0.05)
            client = Client(scheduler_file=file, timeout=3)
            client.wait_for_workers(1, timeout=20)
            rows, asked, plain = chunked(TOY.Z), [0], DaskRows.sum

            def sum_after_the_end(self, statistic):
                asked[0] += 1
                if asked[0] == 3:
                    scheduler.kill()
                return plain(self, statistic)

            monkeypatch.setattr(DaskRows, "sum", sum_after_the_end)
            start = time.monotonic()
            with pytest.raises(ClusterLostError, match="Dask cluster did not finish"):
                JSE(**PLAIN).fit(rows, TOY.y, concept=TOY.concept)
            assert asked[0] == 3
            assert time.monotonic() - start < 15
        finally:
            worker.kill()
            scheduler.kill()
            client.close(timeout=1)


# Lazy results


@pytest.mark.parametrize("kind", [np.float64, np.float16])
def test_transform_is_lazy_and_keeps_type_and_chunks(here, kind):
    leace, z = LEACE().fit(TOY.Z, concept=TOY.concept), OTHER.Z.astype(kind)
    lazy, asked = counted(z)
    lazy = lazy.rechunk((CHUNK, 7))
    clean = leace.transform(lazy)
    assert not asked
    assert (clean.shape, clean.dtype, clean.chunks) == (lazy.shape, lazy.dtype, lazy.chunks)
    found = clean.compute()
    assert asked
    assert found.dtype == kind
    np.testing.assert_allclose(found, leace.transform(z), rtol=0, atol=8 * np.finfo(kind).eps)


def test_answers_are_those_of_the_head_that_was_asked_and_faults_are_found_in_time(here):
    head = ERM().fit(TOY.Z, TOY.y)
    rows, asked = counted(OTHER.Z)
    expected, lazy = head.decision_function(OTHER.Z), head.decision_function(rows)
    assert not asked
    head.fit(TOY.Z, TOY.concept)
    np.testing.assert_allclose(lazy.compute(), expected, rtol=0, atol=1e-12)
    assert sum(asked) == len(OTHER.Z)
    empty = da.from_array(OTHER.Z, chunks=((0, 150, 0, 250), -1))
    np.testing.assert_array_equal(head.predict(empty), head.predict(OTHER.Z))
    z = OTHER.Z.copy()
    z[300, 4] = np.nan
    answer = head.predict(chunked(z))
    with pytest.raises(NotFiniteError, match="1 NaN in column 4"):
        answer.compute()


@pytest.mark.usefixtures("client")
def test_answers_are_computed_on_a_cluster():
    head, leace = ERM().fit(TOY.Z, np.array(["wren", "auk"])[TOY.y]), LEACE().fit(TOY.Z, concept=TOY.concept)
    np.testing.assert_array_equal(head.predict(chunked(OTHER.Z)).compute(), head.predict(OTHER.Z))
    clean = leace.transform(chunked(OTHER.Z)).compute()
    np.testing.assert_allclose(clean, leace.transform(OTHER.Z), rtol=0, atol=1e-14)


@quick_probes()
@pytest.mark.usefixtures("here")
def test_a_certificate_takes_small_arrays_and_refuses_large_ones_unread(monkeypatch):
    leace = LEACE().fit(TOY.Z, concept=TOY.concept)
    expected = leace.certificate(OTHER.Z, OTHER.y, OTHER.concept)
    given = [counted(values) for values in (OTHER.Z, OTHER.y, OTHER.concept)]
    assert leace.certificate(*(array for array, _ in given)) == expected
    monkeypatch.setattr(base, "MAX_CERTIFICATE_BYTES", 8 * 400 * 20 - 1)
    z, asked = counted(OTHER.Z)
    with pytest.raises(InputError, match="load all of it into memory"):
        leace.certificate(z, OTHER.y, OTHER.concept)
    assert not asked


# What is refused


def unknown_length(z):
    return z[z[:, 0] > 0]


def dataframe(z: np.ndarray):
    return pytest.importorskip("dask.dataframe").from_array(z)


@pytest.mark.parametrize(
    ("make", "seen"),
    [
        (lambda z: unknown_length(chunked(z)), r"\(nan, 20\).*compute_chunk_sizes"),
        (lambda z: chunked(z).astype(np.complex128), "complex128"),
        (lambda z: chunked(z)[:, 0], r"\(800,\)"),
        (lambda z: chunked(z)[:0], r"\(0, 20\)"),
        (lambda z: chunked(z).map_blocks(np.ma.masked_array, meta=np.ma.empty((0, 0))), "MaskedArray.*map_blocks"),
        (lambda z: dask.delayed(z), "Delayed.*to_dask_array"),
        (lambda z: dataframe(z), "DataFrame.*to_dask_array"),
    ],
    ids=["unknown length", "complex numbers", "one column", "no rows", "masked", "no array", "a table"],
)
def test_what_cannot_be_used_is_refused_by_what_it_is(here, make, seen):
    for fit in (LEACE().fit, JSE().fit):
        with pytest.raises(InputError, match=seen):
            fit(make(TOY.Z), TOY.y, concept=TOY.concept)


def test_rows_of_unknown_length_are_taken_once_they_are_counted(here):
    z = unknown_length(chunked(TOY.Z)).compute_chunk_sizes()
    kept = TOY.Z[:, 0] > 0
    found, expected = (LEACE().fit(a, concept=TOY.concept[kept]).removal_.matrix() for a in (z, TOY.Z[kept]))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@pytest.mark.usefixtures("client")
def test_faults_in_a_chunk_are_told_by_column_and_number():
    z = TOY.Z.copy()
    z[[3, 700], 4], z[500, 6] = np.nan, np.inf
    with pytest.raises(NotFiniteError, match="2 NaN in column 4; 1 infinite in column 6"):
        LEACE().fit(chunked(z), concept=TOY.concept)


def test_labels_of_another_length_are_refused(here):
    with pytest.raises(LabelError, match="799 labels for 800 rows"):
        LEACE().fit(chunked(TOY.Z), concept=TOY.concept[1:])
    with pytest.raises(InputError, match="799 labels"):
        DaskRows(chunked(TOY.Z), plain_columns(799))


def test_chunks_that_are_not_as_long_as_they_said_are_refused(here):
    lying = chunked(TOY.Z).map_blocks(lambda block: block[1:], dtype=np.float64, chunks=chunked(TOY.Z).chunks)
    with pytest.raises(InputError, match="does not go with"):
        DaskRows(lying, plain_columns(800)).sum(gram)
