"""Rows in a Dask array: the answers of rows in memory, wherever chunks are and whatever happens to their workers."""

# ruff: noqa: ARG002 — every source is made with a folder, whether it needs one or not
import gc
import os
import pickle
import signal
import subprocess
import sys
import time
import warnings

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import SchedulerPlugin

from tests.probing import quick_probes
from tests.rows.contract import RowSourceContract
from unspur import AFR, DFR, ERM, INLP, JSE, JTT, LEACE, RLACE, SAL, SGD, SPLINCE, SUBG, GroupDRO, GroupWeighted
from unspur.datasets import make_toy
from unspur.exceptions import ClusterLostError, InputError, LabelError, NotFiniteError
from unspur.removers import base, seen_rows
from unspur.rows import MemoryRows, RowLabels, rows_of
from unspur.rows import dask as on_dask
from unspur.rows.dask import DaskRows
from unspur.solvers.statistics import Covariances

CHUNK = 170
TOY, OTHER = make_toy(800, rho=0.8, random_state=0), make_toy(400, rho=0.8, random_state=1)
#: A fit of some dozens of sums: one split, one penalty.
PLAIN = {"cv": 0.2, "penalty": 0.01, "random_state": 0}


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
        return DaskRows(da.from_array(z, chunks=(10, 2)), columns)


@pytest.mark.usefixtures("here")
class TestProjectionsThatStay(RowSourceContract):
    @pytest.fixture(autouse=True)
    def none_is_small(self, monkeypatch):
        monkeypatch.setattr(on_dask, "MAX_LOCAL_PROJECTION_BYTES", 0)

    def make(self, z, columns, tmp_path):
        return DaskRows(da.from_array(z, chunks=((1, 0, 9, 30, 7), -1)), columns)

    def test_projected_rows_are_not_brought_here(self, source, z):
        assert isinstance(source.project(np.eye(z.shape[1]), np.zeros(z.shape[1])), DaskRows)


@pytest.mark.usefixtures("client")
class TestOnACluster(RowSourceContract):
    dtypes = (np.float64,)

    @pytest.fixture(autouse=True)
    def none_is_small(self, monkeypatch):
        monkeypatch.setattr(on_dask, "MAX_LOCAL_PROJECTION_BYTES", 0)

    def make(self, z, columns, tmp_path):
        return DaskRows(da.from_array(z, chunks=(20, -1)), columns)

    # Drawn by the client, hundreds of times: what these two look at was seen in this process.
    test_unequal_weights_draw_rows_in_proportion_to_them = None
    test_rows_without_weight_are_never_drawn = None


# The answers of rows in memory


REMOVERS = {
    "JSE": JSE(**PLAIN),
    "JSE, folds": JSE(cv=2, penalty=0.01, random_state=0),
    "JSE, scores": JSE(metric=1.0, **PLAIN),
    "JSE, sgd": JSE(solver=SGD(max_epochs=2), **PLAIN),
    "INLP": INLP(**PLAIN),
    "RLACE": RLACE(),
    "LEACE": LEACE(),
    "SAL": SAL(balance="concept"),
    "SPLINCE": SPLINCE(),
}


@pytest.mark.filterwarnings("ignore::unspur.exceptions.NothingRemovedWarning")
@pytest.mark.filterwarnings("ignore::unspur.exceptions.NotConvergedWarning")
@pytest.mark.parametrize("name", REMOVERS)
def test_every_remover_finds_what_it_finds_in_memory(name, here):
    expected = pickle.loads(pickle.dumps(REMOVERS[name])).fit(TOY.Z, TOY.y, concept=TOY.concept)
    found = pickle.loads(pickle.dumps(REMOVERS[name])).fit(chunked(TOY.Z, features=7), TOY.y, concept=TOY.concept)
    np.testing.assert_allclose(found.removal_.matrix(), expected.removal_.matrix(), rtol=0, atol=1e-9)
    assert found.removal_.rank < 20 or name == "JSE, sgd"  # something was removed
    assert found.training_hash_ == expected.training_hash_
    other = LEACE().fit(TOY.Z[:300], concept=TOY.concept[:300])  # control: other rows, another answer
    assert np.abs(other.removal_.matrix() - expected.removal_.matrix()).max() > 1e-3


DRAWN = [kind(random_state=0) for kind in (SUBG, DFR, AFR)]
HEADS = [ERM(), GroupWeighted(), GroupDRO(), JTT(), *DRAWN, ERM(solver="sgd")]


@pytest.mark.filterwarnings("ignore::unspur.exceptions.NotConvergedWarning")
@pytest.mark.parametrize("head", HEADS, ids=lambda head: f"{type(head).__name__} {getattr(head, 'solver', '')}")
def test_every_head_learns_what_it_learns_in_memory(head, here):
    if getattr(head, "solver", "") == "sgd":
        head.set_params(solver=SGD(max_epochs=2), random_state=0)
    expected = pickle.loads(pickle.dumps(head)).fit(TOY.Z, TOY.y, concept=TOY.concept)
    found = pickle.loads(pickle.dumps(head)).fit(chunked(TOY.Z), TOY.y, concept=TOY.concept)
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.intercept_, expected.intercept_, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(found.predict(chunked(OTHER.Z)), expected.predict(OTHER.Z))
    assert np.abs(expected.coef_).max() > 1e-3


@pytest.mark.parametrize("rows", [chunked, np.asarray], ids=["Dask", "NumPy"])
def test_validation_rows_may_live_elsewhere_than_training_rows(rows, here):
    held_out = {"y_val": OTHER.y, "concept_val": OTHER.concept}
    expected = JSE(**PLAIN).fit(TOY.Z, TOY.y, concept=TOY.concept, X_val=OTHER.Z, **held_out)
    found = JSE(**PLAIN).fit(chunked(TOY.Z), TOY.y, concept=TOY.concept, X_val=rows(OTHER.Z), **held_out)
    np.testing.assert_allclose(found.removal_.matrix(), expected.removal_.matrix(), rtol=0, atol=1e-9)
    for one, other in zip(found.trace_, expected.trace_, strict=True):
        assert one.verdict.proper == other.verdict.proper


def test_labels_and_weights_may_be_dask_arrays(here):
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(TOY.y))
    for method in (JSE(**PLAIN), LEACE(balance="concept"), SPLINCE()):
        expected = method.fit(TOY.Z, TOY.y, concept=TOY.concept, sample_weight=weight).removal_.matrix()
        y, concept, own = (da.from_array(np.asarray(a), chunks=99) for a in (TOY.y, TOY.concept, weight))
        found = method.fit(chunked(TOY.Z), y, concept=concept, sample_weight=own).removal_.matrix()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
        plain = method.fit(TOY.Z, TOY.y, concept=TOY.concept).removal_.matrix()
        assert np.abs(plain - expected).max() > 1e-6  # control: the weights matter


def counted(values: np.ndarray, chunks=CHUNK) -> tuple[da.Array, list[int]]:
    """A Dask array, and the list of the chunks that were computed of it, which grows."""
    asked: list[int] = []

    def note(block):
        asked.append(len(block))
        return block

    values = np.asarray(values)
    meta = np.empty((0,) * values.ndim, values.dtype)
    return da.from_array(values, chunks=(chunks, *[-1] * (values.ndim - 1))).map_blocks(note, meta=meta), asked


LABELLED = {
    "JSE": (JSE(**PLAIN), TOY.y, TOY.concept),
    "JSE, several": (JSE(max_spurious=1, max_main=1, **PLAIN), TOY.y, np.column_stack([TOY.concept, TOY.Z[:, 3] > 0])),
    "JSE, three classes": (JSE(max_spurious=1, max_main=1, **PLAIN), np.where(TOY.Z[:, 5] > 1, 2, TOY.y), TOY.concept),
    "SPLINCE": (SPLINCE(), TOY.y, TOY.concept),
    "INLP": (INLP(tests="group", max_directions=1, **PLAIN), TOY.y, TOY.concept),
    "GroupDRO": (GroupDRO(), TOY.y, TOY.concept),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", LABELLED)
def test_labels_and_weights_are_computed_once_in_a_fit(name, here):
    method, *labels = LABELLED[name]
    given = [counted(values) for values in (*labels, np.ones(len(TOY.y)))]
    (y, _), (concept, _), (weight, _) = given
    method.fit(chunked(TOY.Z), y, concept=concept, sample_weight=weight)
    for _, asked in given:
        assert sum(asked) == len(TOY.y)


def test_a_label_that_nothing_depends_on_is_not_computed(here):
    y, asked = counted(TOY.y)
    LEACE().fit(chunked(TOY.Z), y, concept=TOY.concept)
    assert not asked
    LEACE(balance="main").fit(chunked(TOY.Z), y, concept=TOY.concept)
    assert asked


def test_labels_of_unknown_length_are_counted_when_they_are_computed(here):
    kept = TOY.Z[:, 9] > -1.5
    y, concept = (da.from_array(np.asarray(a), chunks=99) for a in (TOY.y, TOY.concept))
    y, concept = y[da.from_array(kept, chunks=99)], concept[da.from_array(kept, chunks=99)]
    assert np.isnan(y.shape[0])
    for method in (JSE(**PLAIN), SPLINCE()):
        expected = method.fit(TOY.Z[kept], TOY.y[kept], concept=TOY.concept[kept]).removal_.matrix()
        found = method.fit(chunked(TOY.Z[kept]), y, concept=concept).removal_.matrix()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
        with pytest.raises(LabelError, match=f"{kept.sum()} labels for 800 rows of X"):
            method.fit(chunked(TOY.Z), y, concept=TOY.concept)


def test_validation_rows_of_unknown_length_are_refused_as_such(here):
    several = np.column_stack([OTHER.concept, OTHER.Z[:, 3] > 0])
    held_out = {"X_val": unknown_length(chunked(OTHER.Z)), "y_val": OTHER.y, "concept_val": several}
    with pytest.raises(InputError, match="compute_chunk_sizes"):
        JSE(**PLAIN).fit(TOY.Z, TOY.y, concept=np.column_stack([TOY.concept, TOY.Z[:, 3] > 0]), **held_out)


def test_integers_become_float64_as_they_do_in_arrays(here):
    z = np.random.default_rng(6).integers(-9, 9, (400, 5))
    y, concept = z[:, 2] + z[:, 3] > 0, z[:, 0] + z[:, 1] > 0
    for method in (LEACE(), JSE(**PLAIN)):
        expected = method.fit(z, y, concept=concept).transform(z)
        lazy, asked = counted(z, 90)
        found = method.fit(lazy, y, concept=concept).transform(da.from_array(z, chunks=90))
        assert sum(asked) == 400  # computed once, as integers and as what they become
        assert found.dtype == np.float64
        np.testing.assert_allclose(found.compute(), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_rows_of_few_digits_give_the_sums_of_the_same_rows_in_memory(kind, here):
    z = TOY.Z.astype(kind)
    ours, theirs = (make(array, plain_columns(800)) for make, array in ((DaskRows, chunked(z)), (MemoryRows, z)))
    assert ours.dtype == theirs.dtype == np.float32
    np.testing.assert_allclose(ours.sum(gram), theirs.sum(gram), rtol=1e-4, atol=1e-3)
    assert type(rows_of(chunked(z), plain_columns(800))) is DaskRows


def gram(block):
    return np.asarray(block.z.T @ block.z, dtype=np.float64)


@pytest.mark.usefixtures("client")
def test_fits_on_a_cluster_find_what_they_find_in_memory():
    for method in (JSE(**PLAIN), SPLINCE(), RLACE()):
        expected = method.fit(TOY.Z, TOY.y, concept=TOY.concept).removal_.matrix()
        found = method.fit(chunked(TOY.Z), TOY.y, concept=TOY.concept).removal_.matrix()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    expected, found = (GroupWeighted().fit(z, TOY.y, concept=TOY.concept).coef_ for z in (TOY.Z, chunked(TOY.Z)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


# The same bits everywhere


def test_sums_depend_on_the_chunks_and_on_nothing_else(cluster, monkeypatch):
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
        monkeypatch.setattr(on_dask, "MAX_TASK_BYTES", 61 * 30 * 8 * 3)  # three chunks to a task
        np.testing.assert_array_equal(sums(61), expected)
        monkeypatch.setattr(on_dask, "MAX_SENT_BYTES", 0)  # workers pass the statistic on
        np.testing.assert_array_equal(sums(61), expected)
        monkeypatch.setattr(on_dask, "MAX_PARTIAL_SUM_BYTES", 0)  # no sum comes here before it is complete
        np.testing.assert_array_equal(sums(61), expected)
    assert not np.array_equal(other, expected)  # control: bits do tell one order of summation from another
    np.testing.assert_allclose(other, expected, rtol=1e-10, atol=1e-9)


class Term(str):
    """Shows how it was added up."""

    def __add__(self, other):
        return Term(f"({self}{other})")


def test_sums_are_added_in_pairs_of_neighbours_whoever_has_them():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        tree = on_dask._SumTree(11)
        for numbers in np.split(rng.permutation(11), np.sort(rng.integers(0, 12, 3))):
            part = on_dask._SumTree(11, [((0, k), Term("abcdefghijk"[k])) for k in numbers])
            for place, value in part.sums.items():
                tree.add(place, value)
        assert tree.total == "((((ab)(cd))((ef)(gh)))((ij)k))"


def test_results_that_add_up_in_place_leave_what_dask_keeps_alone(here):
    one, other = ([np.arange(3.0)], [np.ones(2)])
    assert len(on_dask._added(one, other)) == 2
    assert len(one) == 1

    class Growing(list):
        __add__ = list.__iadd__

    one = Growing([1])
    assert on_dask._added(one, Growing([2])) == [1, 2]
    assert one == [1]
    assert one + Growing([2]) is one  # control: by itself it does grow
    z = np.random.default_rng(1).standard_normal((300, 4))
    found, expected = (Covariances.of(rows_of(a, plain_columns(300))) for a in (da.from_array(z, chunks=(20, 4)), z))
    np.testing.assert_allclose(found.xx, expected.xx, rtol=1e-12)


# Lost workers


def killed_during(monkeypatch, client, evaluation):
    """A worker process is killed when a fit asks for its n-th sum; returns the list that its id will be in."""
    asked, killed, plain = [0], [], DaskRows.sum

    def sum_and_kill(self, statistic):
        asked[0] += 1
        if asked[0] == evaluation:
            killed.append(sorted(client.run(os.getpid).values())[evaluation % 2])
            os.kill(killed[0], signal.SIGKILL)
        return plain(self, statistic)

    monkeypatch.setattr(DaskRows, "sum", sum_and_kill)
    return killed


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("evaluation", [1, 4, 12])
def test_a_worker_killed_in_the_middle_of_a_fit_changes_nothing(client, monkeypatch, evaluation):
    z = chunked(TOY.Z)
    expected = JSE(**PLAIN).fit(z, TOY.y, concept=TOY.concept)
    killed = killed_during(monkeypatch, client, evaluation)
    found = JSE(**PLAIN).fit(z, TOY.y, concept=TOY.concept)
    np.testing.assert_array_equal(found.removal_.matrix(), expected.removal_.matrix())
    assert found.training_hash_ == expected.training_hash_
    assert str(found.trace_) == str(expected.trace_)
    client.wait_for_workers(2, timeout=20)
    assert len(killed) == 1  # control: it is gone, and another in its place
    assert not alive(killed[0])
    assert killed[0] not in client.run(os.getpid).values()


def dies_once(note, block):
    """A statistic that takes its worker with it, the first time it is asked for rows of the second half."""
    if block.z[0, 0] >= 500 and not os.path.exists(note):
        with open(note, "w") as file:
            file.write(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    return visits_of_1000(block)


def visits_of_1000(block):
    return np.bincount(block.z[:, 0].astype(np.intp), minlength=1000)


def test_a_worker_that_dies_over_a_chunk_is_replaced_and_no_row_is_counted_twice(client, tmp_path):
    z = np.column_stack([np.arange(1000.0), np.zeros(1000)])
    rows = DaskRows(da.from_array(z, chunks=(100, -1)), plain_columns(1000))
    note = tmp_path / "who"
    np.testing.assert_array_equal(rows.sum(lambda block: dies_once(str(note), block)), np.ones(1000))
    assert not alive(int(note.read_text()))
    np.testing.assert_array_equal(rows.sum(visits_of_1000), np.ones(1000))  # with what was computed again


def dies(block):
    os.kill(os.getpid(), signal.SIGKILL)


def test_rows_that_kill_every_worker_are_an_error_and_not_a_loop(client, monkeypatch):
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 1)  # quicker than three, the default
    rows = DaskRows(chunked(TOY.Z[:CHUNK]), plain_columns(CHUNK))
    with pytest.raises(ClusterLostError, match=r"KilledWorker.*memory of a worker"):
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


# What travels, what is kept


def test_only_sums_come_to_the_client(client, monkeypatch):
    monkeypatch.setattr(on_dask, "MAX_LOCAL_PROJECTION_BYTES", 0)
    came, plain = [], Client.gather

    def gather(*arguments, **options):
        results = plain(*arguments, **options)
        came.append(len(pickle.dumps(results)))
        return results

    monkeypatch.setattr(Client, "gather", gather)
    z = np.random.default_rng(2).standard_normal((20_000, 20))
    rows = DaskRows(da.from_array(z, chunks=(2_500, -1)), plain_columns(len(z)))
    rows.sum(gram)
    rows.project(np.eye(20)[:, :5], np.zeros(20)).sum(gram)
    assert len(came) == 2  # none for a projection
    assert max(came) < 8 * (400 * 8 + 500)  # at most one for each chunk
    np.testing.assert_array_equal(np.concatenate(rows.sum(everything)), z)  # control: a result that is not small
    assert came[-1] > z.nbytes
    monkeypatch.setattr(on_dask, "MAX_PARTIAL_SUM_BYTES", 1000)
    for _ in range(2):
        rows.sum(gram)
    assert len(came) == 3 + 1 + 2  # what is too large is found out once
    assert came[-1] < 400 * 8 + 500  # the sum of all


class Finished(SchedulerPlugin):
    """Names of the tasks that were computed."""

    def __init__(self):
        self.names = []

    def transition(self, key, start, finish, *args, **kwargs):
        if (start, finish) == ("processing", "memory"):
            self.names.append(str(key))


def test_one_task_visits_all_chunks_of_a_worker_unless_they_are_large(cluster, client, monkeypatch):
    z = np.random.default_rng(3).standard_normal((4000, 10))
    rows = DaskRows(da.from_array(z, chunks=(200, -1)), plain_columns(4000))
    expected = rows.sum(gram)
    holders = {worker for workers in client.who_has(rows._z).values() for worker in workers}
    finished = Finished()
    cluster.scheduler.add_plugin(finished, name="finished")

    def tasks():
        finished.names.clear()
        np.testing.assert_array_equal(rows.sum(gram), expected)
        return len(finished.names)

    try:
        assert tasks() == len(holders) <= 2  # of one thread each
        monkeypatch.setattr(on_dask, "MAX_TASK_BYTES", z.nbytes / 10)
        rows._workers._groups = {}  # they are formed again when chunks have moved
        assert 10 <= tasks() <= 11
        monkeypatch.setattr(on_dask, "MAX_PARTIAL_SUM_BYTES", 0)
        assert tasks() > 20  # control: one for each chunk, and those that add
    finally:
        cluster.scheduler.remove_plugin("finished")


def everything(block):
    return [block.z]


def wait_until(what):
    deadline = time.monotonic() + 10
    while not what() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert what()


def test_workers_keep_chunks_while_a_source_lives_and_no_longer(cluster, client):
    rows = DaskRows(chunked(TOY.Z), plain_columns(800))
    rows.sum(gram)
    held = cluster.scheduler.tasks
    wait_until(lambda: sum(task.state == "memory" for task in held.values()) == 2 * 5)  # chunks and columns
    scores = rows.project(np.eye(20)[:, :2], np.zeros(20))
    del rows, scores
    wait_until(lambda: not held)


def test_a_fit_computes_every_chunk_once(here):
    made = []

    def note(block):
        made.append(len(block))
        return block

    z = chunked(TOY.Z).map_blocks(note, dtype=np.float64, meta=np.empty((0, 0)))
    concept = np.random.default_rng(3).integers(0, 3, len(TOY.y))  # three fits, each against the rest
    for fit in (
        lambda: JSE(**PLAIN).fit(z, TOY.y, concept=TOY.concept),
        lambda: INLP(**PLAIN).fit(z, TOY.y, concept=concept),
        lambda: RLACE().fit(z, TOY.y, concept=TOY.concept),
        lambda: ERM().fit(z, TOY.y),
    ):
        made.clear()
        gc.collect()  # arrays of older versions of Dask are in cycles, and what is still there is not computed again
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # random labels: nothing to remove
            fit()
        assert sum(made) == len(TOY.Z)


def test_columns_travel_at_two_bytes_a_row():
    rng = np.random.default_rng(4)
    labels, fold = rng.integers(0, 2, (2, 1000)), rng.integers(0, 6, 1000)
    for weight, size in ((labels[0], 2), (rng.uniform(size=1000), 9)):
        columns = RowLabels.of(*labels, weight, fold)
        packed = on_dask._Packed.of(columns, slice(100, 900))
        assert len(pickle.dumps(packed)) < 800 * size + 1000
        found = packed.unpack()
        for name in ("targets", "cell", "weight"):
            got, given = getattr(found, name), getattr(columns, name)[..., 100:900]
            np.testing.assert_array_equal(got, given)
            assert got.dtype == given.dtype
        assert found.n_folds == 5
    numbers = RowLabels(rng.standard_normal((3, 1000)), np.zeros(1000, dtype=np.intp), np.ones(1000), 0)
    np.testing.assert_array_equal(on_dask._Packed.of(numbers, slice(5, 9)).unpack().targets, numbers.targets[:, 5:9])


@quick_probes()
@pytest.mark.usefixtures("here")
def test_of_too_many_rows_only_the_fingerprint_is_kept(monkeypatch):
    whole = LEACE().fit(TOY.Z, concept=TOY.concept)
    monkeypatch.setattr(seen_rows, "MAX_HASHES", 100)
    many = LEACE().fit(chunked(TOY.Z), concept=TOY.concept)
    assert many._training_rows.hashes is None
    assert many.training_hash_ == whole.training_hash_
    some = LEACE().fit(chunked(TOY.Z[:500]), concept=TOY.concept[:500])
    rest = LEACE().fit(TOY.Z[500:], concept=TOY.concept[500:])
    assert some.training_hash_ != whole.training_hash_
    assert some.merge(rest).training_hash_ == whole.training_hash_
    some.partial_fit(TOY.Z[500:], concept=TOY.concept[500:])
    assert some.training_hash_ == whole.training_hash_
    notes = many.certificate(OTHER.Z, OTHER.y, OTHER.concept).notes
    assert any("too many rows" in note for note in notes)
    assert not any("too many rows" in note for note in whole.certificate(OTHER.Z, OTHER.y, OTHER.concept).notes)


# transform


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("features", [-1, 7])
def test_transform_is_lazy_and_right_and_keeps_type_and_chunks(here, kind, features):
    leace, z = LEACE().fit(TOY.Z, concept=TOY.concept), OTHER.Z.astype(kind)
    asked = []

    def note(block):
        asked.append(len(block))
        return block

    lazy = chunked(z, features=features).map_blocks(note, dtype=kind, meta=np.empty((0, 0), dtype=kind))
    clean = leace.transform(lazy)
    assert isinstance(clean, da.Array)
    assert not asked
    assert (clean.shape, clean.dtype, clean.chunks) == (lazy.shape, lazy.dtype, lazy.chunks)
    found = clean.compute()
    assert asked
    assert found.dtype == kind
    np.testing.assert_allclose(found, leace.transform(z), rtol=0, atol=8 * np.finfo(kind).eps)
    assert np.abs(found - z).max() > 0.1


ANSWERS = ("decision_function", "predict", "predict_proba", "predict_log_proba")
WORDS = np.array(["wren", "auk", "kite"])


@pytest.mark.parametrize("labels", [TOY.y, WORDS[np.where(TOY.Z[:, 5] > 1, 2, TOY.y)]], ids=["two classes", "three"])
def test_answers_of_a_head_are_lazy_and_right_and_read_each_row_once(here, labels):
    head = ERM().fit(TOY.Z, labels)
    for name in ANSWERS:
        expected = getattr(head, name)(OTHER.Z)
        lazy, asked = counted(OTHER.Z)
        found = getattr(head, name)(lazy.rechunk((CHUNK, 7)))
        assert isinstance(found, da.Array)
        assert not asked
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        values = found.compute()
        assert sum(asked) == len(OTHER.Z)
        assert values.dtype == expected.dtype
        np.testing.assert_array_equal(values, expected) if name == "predict" else np.testing.assert_allclose(
            values, expected, rtol=0, atol=1e-12
        )
    empty = da.from_array(OTHER.Z, chunks=((0, 150, 0, 250), -1))
    np.testing.assert_array_equal(head.predict(empty), head.predict(OTHER.Z))
    rows, asked = counted(TOY.Z)
    y, seen = counted(labels)
    assert head.score(rows, y) == head.score(TOY.Z, labels)
    assert sum(asked) == sum(seen) == len(TOY.y)


def test_answers_are_those_of_the_head_that_was_asked_and_faults_are_found_in_time(here):
    head = ERM().fit(TOY.Z, TOY.y)
    expected, lazy = head.decision_function(OTHER.Z), head.decision_function(chunked(OTHER.Z))
    head.fit(TOY.Z, TOY.concept)
    assert np.abs(head.decision_function(OTHER.Z) - expected).max() > 0.1
    np.testing.assert_allclose(lazy.compute(), expected, rtol=0, atol=1e-12)
    z = OTHER.Z.copy()
    z[300, 4] = np.nan
    answer = head.predict(chunked(z))
    with pytest.raises(NotFiniteError, match="1 NaN in column 4"):
        answer.compute()


@pytest.mark.usefixtures("client")
def test_heads_answer_on_a_cluster():
    head = ERM().fit(TOY.Z, WORDS[TOY.y])
    np.testing.assert_array_equal(head.predict(chunked(OTHER.Z)).compute(), head.predict(OTHER.Z))


@quick_probes()
@pytest.mark.usefixtures("here")
def test_a_certificate_takes_small_arrays_and_refuses_large_ones_unread(monkeypatch):
    leace = LEACE().fit(TOY.Z, concept=TOY.concept)
    expected = leace.certificate(OTHER.Z, OTHER.y, OTHER.concept)
    given = [counted(values) for values in (OTHER.Z, OTHER.y, OTHER.concept)]
    assert leace.certificate(*(array for array, _ in given)) == expected
    assert [sum(asked) for _, asked in given] == [400, 400, 400]
    with pytest.raises(InputError, match="compute_chunk_sizes"):
        leace.certificate(unknown_length(chunked(OTHER.Z)), OTHER.y, OTHER.concept)
    large = da.zeros((20_000_000, 20), chunks=(10_000, -1))
    with pytest.raises(
        InputError, match=r"\(20000000, 20\), 3\.2 GB.* the limit is 2 GB.* pass X\[::2000\], with y\[::2000\]"
    ):
        leace.certificate(large, da.zeros(20_000_000), da.zeros(20_000_000))
    monkeypatch.setattr(base, "MAX_CERTIFICATE_BYTES", 8 * 400 * 20 - 1)
    z, asked = counted(OTHER.Z)
    with pytest.raises(InputError, match="a certificate would load all of it into memory"):
        leace.certificate(z, OTHER.y, OTHER.concept)
    assert not asked
    monkeypatch.setattr(base, "MAX_CERTIFICATE_BYTES", 8 * 400 * 20)
    leace.certificate(z, OTHER.y, OTHER.concept)


@pytest.mark.usefixtures("client")
def test_transform_runs_on_a_cluster():
    leace = LEACE().fit(TOY.Z, concept=TOY.concept)
    clean = leace.transform(chunked(OTHER.Z)).compute()
    np.testing.assert_allclose(clean, leace.transform(OTHER.Z), rtol=0, atol=1e-14)


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
    with pytest.raises(NotFiniteError, match="2 NaN in column 4; 1 infinity in column 6"):
        LEACE().fit(chunked(z), concept=TOY.concept)


def test_labels_of_another_length_are_refused(here):
    with pytest.raises(LabelError, match="799 labels for 800 rows"):
        LEACE().fit(chunked(TOY.Z), concept=TOY.concept[1:])
    with pytest.raises(InputError, match="799 labels"):
        DaskRows(chunked(TOY.Z), plain_columns(799))


def test_chunks_that_are_not_as_long_as_they_said_are_refused(here):
    lying = chunked(TOY.Z).map_blocks(lambda block: block[1:], dtype=np.float64, chunks=chunked(TOY.Z).chunks)
    with pytest.raises(InputError, match=r"(169 rows where the array says 170|119 .* 120)"):
        LEACE().fit(lying, concept=TOY.concept)
