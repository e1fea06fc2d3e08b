"""Workers that die, leave and join, and a scheduler that dies, in mid-fit: the same bits, or in good time an error."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip("distributed")

import dask.array as da
from distributed import Client, LocalCluster

from trust.faults import commands, fresh, peace_of, rerun
from trust.nursery import Job
from unspur import JSE
from unspur.datasets import make_toy
from unspur.exceptions import ClusterLostError
from unspur.rows.dask import DaskRows

PART = "faults"
TOY = make_toy(2000, rho=0.8, random_state=0)
#: Seconds in which a fit has to say that its scheduler is gone.
BOUND = 30.0
PROGRAM = [sys.executable, "-m"]
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def fit():
    return JSE(random_state=0, cv=3).fit(da.from_array(TOY.Z, chunks=(250, -1)), TOY.y, concept=TOY.concept)


def same(found, expected) -> bool:
    equal = np.array_equal(found.removal_.matrix(), expected.removal_.matrix())
    return equal and str(found.trace_) == str(expected.trace_)


@contextmanager
def at_sum(number, happens):
    """Have something happen when a fit asks for its n-th sum; yields the number of sums asked for."""
    asked, plain = [0], DaskRows.sum

    def counted(self, statistic):
        asked[0] += 1
        if asked[0] == number:
            happens()
        return plain(self, statistic)

    DaskRows.sum = counted
    try:
        yield asked
    finally:
        DaskRows.sum = plain


@contextmanager
def processes(folder, workers=2):
    """A scheduler and workers as processes of their own; yields its file, the scheduler and the workers."""
    file = str(folder / "scheduler.json")
    common = ["--scheduler-file", file, "--host", "127.0.0.1", "--no-dashboard"]
    started = [subprocess.Popen([*PROGRAM, "distributed.cli.dask_scheduler", "--port", "0", *common], **QUIET)]
    command = [*PROGRAM, "distributed.cli.dask_worker", "--no-nanny", "--nthreads", "1", *common]
    started += [subprocess.Popen(command, **QUIET) for _ in range(workers)]
    try:
        end = time.monotonic() + 60
        while not os.path.exists(file) and time.monotonic() < end:
            time.sleep(0.05)
        yield file, started[0], started[1:]
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.fixture
def local():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        yield cluster, client


def test_a_worker_killed_or_replaced_in_mid_fit_changes_no_bit(local, effort, tally):
    cluster, client = local
    line, rng, wrong = tally("Dask worker killed, or leaves and joins, in a fit"), random.Random(0), []
    with at_sum(0, None) as asked:
        expected = fit()
    sums = asked[0]

    def kill():
        os.kill(rng.choice(sorted(client.run(os.getpid).values())), signal.SIGKILL)

    def leave_and_join():
        cluster.scale(3)
        client.wait_for_workers(3, timeout=60)
        client.retire_workers([rng.choice(sorted(client.nthreads()))])
        cluster.scale(2)

    for number in range(effort.times(2, 16)):
        moment, happens = rng.randint(1, sums), (kill, leave_and_join)[number % 2]
        with at_sum(moment, happens):
            line.trial(ok := same(fit(), expected))
        client.wait_for_workers(2, timeout=60)
        wrong += [] if ok else [f"{happens.__name__} at sum {moment}"]
    line.figure = f"at one of {sums} sums; the same bits"
    assert line.all_survived, wrong


def test_a_scheduler_that_dies_is_told_of_in_time_and_a_new_cluster_gives_the_same_bits(effort, tally, tmp_path):
    line, rng, wrong, took = tally("Dask scheduler dies in a fit; a new cluster"), random.Random(1), [], []
    with at_sum(0, None) as asked:
        expected = fit()  # on the threads of this process
    for number in range(effort.times(1, 8)):
        moment, folder = rng.randint(2, asked[0]), tmp_path / str(number)
        folder.mkdir()
        with processes(folder) as (file, scheduler, _):
            client = Client(scheduler_file=file, timeout=30)
            client.wait_for_workers(2, timeout=60)
            line.trial(ok := same(fit(), expected))  # from the second on: after the one before has died
            wrong += [] if ok else ["a new cluster gave other bits"]
            start = time.monotonic()
            try:
                with at_sum(moment, scheduler.kill):
                    fit()
                told = "it ended without an error"
            except ClusterLostError:
                told = "" if time.monotonic() - start < BOUND else "it took too long to say so"
            except Exception as error:
                told = f"it raised {error!r}"
            took.append(time.monotonic() - start)
            client.close(timeout=1)
        line.trial(not told)
        wrong += [f"at sum {moment}: {told}"] if told else []
    line.figure = f"said within {max(took):.0f} s; the same bits on a new one"
    assert line.all_survived, wrong


@pytest.mark.parametrize("who", ["worker", "scheduler"])
def test_reproduce_on_a_cluster_that_loses_one_of_its_own(who, effort, tally, tmp_path):
    if not effort.full:
        pytest.skip("tried in the full form; in the quick one they die in a fit")
    line, nursery, peace, wrong = tally(f"Dask {who} dies in reproduce"), commands(), peace_of("reproduce"), []
    for number in range(4):
        folder = fresh(tmp_path / str(number) / "results", peace.work)
        with processes(folder.parent) as (file, scheduler, workers):
            with Client(scheduler_file=file, timeout=30) as client:
                client.wait_for_workers(2, timeout=60)
            doomed = workers[number % 2] if who == "worker" else scheduler
            killer = subprocess.Popen([sys.executable, "-c", KILLER, str(doomed.pid), str(folder / "r/records")])
            end = nursery.run(Job((*peace.work.command, "--dask", file), folder))
            killer.kill()
            killer.wait()
            gone = doomed.poll() is not None
        odd = "" if end.code == 0 or (end.code == 1 and "stopped before its end" in end.said) else end.said[-400:]
        odd = odd or ("" if who == "scheduler" or end.code == 0 else "the other worker did not go on")
        odd = odd or rerun(nursery, peace, folder)
        if gone:
            line.trial(not odd)
        wrong += [odd] if odd else []
    line.figure = "the other one goes on" if who == "worker" else "stored cells are kept, a rerun goes on"
    assert not wrong, wrong
    assert line.tried


#: Kills a process once the first record is there.
KILLER = """
import os, signal, sys, time
while not (os.path.isdir(sys.argv[2]) and any(n.endswith(".json") for n in os.listdir(sys.argv[2]))):
    time.sleep(0.002)
os.kill(int(sys.argv[1]), signal.SIGKILL)
"""
