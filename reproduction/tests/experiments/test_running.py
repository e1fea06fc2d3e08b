"""Runs: the same records wherever cells are computed, and nothing lost but the cells in flight."""

import os
import pty
import signal
import subprocess
import sys
import termios
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from unspur.exceptions import InputError
from unspur_paper.experiments import running
from unspur_paper.experiments.errors import RunStoppedError
from unspur_paper.experiments.records import RecordStore, record_key
from unspur_paper.experiments.running import Task, run

ROOT = Path(__file__).parents[3]


def cell(spec):
    """A cell that does as its spec says; in a module, so that workers can load it."""
    spec["changed"] = "by a cell that does not behave"
    if "log" in spec:
        with open(spec["log"], "ab", buffering=0) as log:
            log.write(f"{spec['seed']}\n".encode())
    time.sleep(spec.get("sleep", 0))
    if spec.get("dies") == spec["seed"]:
        os._exit(1)
    if spec.get("fails") == spec["seed"]:
        raise ArithmeticError(f"seed {spec['seed']} cannot be computed")
    if spec["seed"] % 2:
        warnings.warn(f"seed {spec['seed']} is odd\nand so on", stacklevel=1)
        np.log(np.zeros(1))
    A = np.random.default_rng(spec["seed"]).standard_normal((300, 40))
    weights = np.linalg.solve(A[:, 1:].T @ A[:, 1:], A[:, 1:].T @ A[:, 0])
    return {"weights": weights.tolist(), "padding": "x" * spec.get("padding", 0), "threads": most_threads()}


def most_threads():
    return max(pool["num_threads"] for pool in threadpool_info())


def tasks_of(number, **common):
    specs = [{"seed": seed, **common} for seed in range(number)]
    return [Task(spec, record_key(spec, "data", "1"), "data") for spec in specs]


def go(tasks, folder, compute=cell, **options):
    store = RecordStore(folder)
    return run(tasks, store, compute, version="1", **options), [store.get(task.key) for task in tasks]


def seeds_in(log):
    return sorted(map(int, log.read_text().split())) if log.exists() else []


@pytest.fixture(params=["here", "cores"])
def mode(request):
    return {"jobs": 1 if request.param == "here" else 2}


# The same everywhere


def test_every_mode_leaves_the_same_records(tmp_path, mode):
    tasks = tasks_of(40)  # more than are sent to a cluster at first
    report, found = go(tasks, tmp_path / "found", **mode)
    _, expected = go(tasks, tmp_path / "expected")
    assert (report.computed, report.reused, report.failures) == (40, 0, ())
    for one, other in zip(found, expected, strict=True):
        assert (one.key, one.spec, one.data, one.version) == (other.key, other.spec, other.data, other.version)
        np.testing.assert_allclose(one.result["weights"], other.result["weights"], rtol=1e-9, atol=0)
        assert record_key(one.spec, one.data, one.version) == one.key
        assert one.warnings == other.warnings
        assert one.result["threads"] == 1
    assert found[0].result["weights"] != found[1].result["weights"]
    assert found[0].warnings == ()
    assert found[1].warnings == ("UserWarning: seed 1 is odd", "RuntimeWarning: divide by zero encountered in log")
    assert min(one.seconds for one in found) > 0


def test_a_cell_that_fails_is_reported_and_the_others_finish(tmp_path, mode):
    report, found = go(tasks_of(6, fails=2), tmp_path, **mode)
    (failure,) = report.failures
    assert failure.spec == {"seed": 2, "fails": 2}
    assert failure.message == "ArithmeticError: seed 2 cannot be computed"
    assert "in cell" in failure.traceback
    assert [one is None for one in found] == [False, False, True, False, False, False]
    again, _ = go(tasks_of(6, fails=2), tmp_path, **mode)  # it is tried again, the others are not
    assert (report.computed, again.computed, again.reused, len(again.failures)) == (5, 0, 5, 1)


def test_results_that_cannot_be_stored_are_failures_too(tmp_path):
    returned = [{"loss": float("nan")}, {"loss": np.ones(2)}, 0.5, {"loss": 0.5}]
    specs = [{"seed": i} for i in range(len(returned))]
    tasks = [Task(spec, record_key(spec, "data", "1"), "data") for spec in specs]
    report, found = go(tasks, tmp_path, lambda spec: returned[spec["seed"]])
    said = [failure.message for failure in report.failures]
    assert [text.partition(".")[0] for text in said] == [
        "InputError: result['loss'] is nan",
        "InputError: result['loss'] is of type ndarray",
        "InputError: The result is of type float; a cell returns a dict",
    ]
    assert [one is None for one in found] == [True, True, True, False]


def test_blas_gets_one_thread_and_then_what_it_had():
    with threadpool_limits(2):
        assert most_threads() == 2
        assert running._evaluate(cell, "key", {"seed": 0}).result["threads"] == 1
        assert most_threads() == 2


def noisy(spec):
    for number in spec["numbers"]:
        warnings.warn(f"{number} " + "x" * 300, UserWarning, stacklevel=1)
        warnings.warn("imports say such things once in a process", DeprecationWarning, stacklevel=1)
        time.sleep(0.001)
    return {}


def test_warnings_are_few_short_and_told_once():
    outcome = running._evaluate(noisy, "key", {"numbers": [1, 2, 1, 1, 3, 4, 5, 6, 7]})
    assert [text[:14] for text in outcome.warnings] == [f"UserWarning: {number}" for number in range(1, 6)]
    assert {len(text) for text in outcome.warnings} == {200}


def test_cells_in_threads_do_not_mix_up_their_warnings():
    filters = list(warnings.filters)
    with ThreadPoolExecutor(8) as threads:  # as in a Dask worker with several threads
        jobs = [threads.submit(running._evaluate, noisy, "key", {"numbers": [n] * 5}) for n in range(10, 40)]
    assert [[text[:15] for text in job.result().warnings] for job in jobs] == [
        [f"UserWarning: {n}"] for n in range(10, 40)
    ]
    assert warnings.filters == filters


# What is there is not computed again


def test_records_are_reused_unless_told_otherwise(tmp_path):
    log = tmp_path / "log"
    tasks = tasks_of(4, log=str(log))
    go(tasks[:3], tmp_path / "store")
    report, _ = go(tasks, tmp_path / "store")
    assert (report.computed, report.reused) == (1, 3)
    assert seeds_in(log) == [0, 1, 2, 3]
    report, _ = go(tasks, tmp_path / "store", reuse=False)
    assert (report.computed, report.reused) == (4, 0)
    assert seeds_in(log) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_damaged_record_is_computed_again(tmp_path):
    tasks = tasks_of(4)
    _, before = go(tasks, tmp_path)
    store = RecordStore(tmp_path)
    path = store.path(tasks[2].key)
    path.write_bytes(path.read_bytes()[:-20])
    report = run(tasks, store, cell, version="1")
    assert (report.computed, report.reused) == (1, 3)
    assert [found for found, _ in store.damaged] == [path]
    assert [store.get(task.key).result for task in tasks] == [one.result for one in before]


def test_tasks_with_the_same_key_are_computed_once(tmp_path):
    tasks = tasks_of(3, log=str(tmp_path / "log"))
    report, _ = go(tasks * 3, tmp_path / "store", jobs=2)
    assert report.computed == 3
    assert seeds_in(tmp_path / "log") == [0, 1, 2]


# Runs that end early


def start(folder, number, limits="", **common):
    """A process of its own, and a group of its own, that runs cells on two cores."""
    code = f"""
import resource, signal
from reproduction.tests.experiments.test_running import go, tasks_of
signal.signal(signal.SIGINT, signal.default_int_handler)
tasks = tasks_of({number}, **{common!r})
{limits}
go(tasks, {str(folder)!r}, jobs=2)
"""
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True, stderr=subprocess.PIPE, text=True)


def wait_for(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def group_is_gone(process):
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_after_kill_9_only_what_is_missing_is_computed(tmp_path):
    log, folder = tmp_path / "log", tmp_path / "store"
    tasks = tasks_of(10, sleep=0.2, log=str(log))
    process = start(folder, 10, sleep=0.2, log=str(log))
    wait_for(lambda: len(list(folder.glob("*.json"))) >= 3)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    stored, begun = {path.stem for path in folder.glob("*.json")}, seeds_in(log)
    assert 3 <= len(stored) < 10
    assert len(begun) <= len(stored) + 4  # of each worker one in flight, and one done that is not stored yet
    report, found = go(tasks, folder)
    missing = [task.spec["seed"] for task in tasks if task.key not in stored]
    assert (report.computed, report.reused) == (len(missing), len(stored))
    assert seeds_in(log) == sorted(begun + missing)
    _, expected = go(tasks_of(10), tmp_path / "undisturbed")
    assert [one.result for one in found] == [one.result for one in expected]


def test_ctrl_c_ends_the_workers_and_says_how_to_go_on(tmp_path):
    process = start(tmp_path, 40, sleep=0.2)
    wait_for(lambda: len(list(tmp_path.glob("*.json"))) >= 2)
    assert not group_is_gone(process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, said = process.communicate(timeout=15)
    assert process.returncode == 1
    stored = len(list(tmp_path.glob("*.json")))
    assert f"(interrupted). {stored} of 40 cells are stored in {tmp_path}; once" in said
    wait_for(lambda: group_is_gone(process), 10)
    assert len(list(tmp_path.iterdir())) == stored  # and no temporary files


def test_a_worker_that_dies_stops_the_run_and_a_new_one_goes_on(tmp_path):
    tasks = tasks_of(8, sleep=0.05, dies=5)
    with pytest.raises(RunStoppedError, match=r"TerminatedWorkerError.* [1-7] of 8 cells are stored"):
        go(tasks, tmp_path, jobs=2)
    del tasks[5]
    report, found = go(tasks, tmp_path, jobs=2)
    assert report.computed + report.reused == 7
    assert None not in found


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a disk needs rights that this user does not have")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_full_disk_stops_the_run_and_keeps_what_is_there(small_disk, jobs):
    tasks = tasks_of(40)
    with pytest.raises(RunStoppedError, match=r"No space left on device.* of 40 cells are stored") as stopped:
        go(tasks, small_disk, jobs=jobs)
    store = RecordStore(small_disk)
    kept = [task for task in tasks if store.get(task.key) is not None]
    assert 5 < len(kept) < 40
    assert f"{len(kept)} of 40" in str(stopped.value)
    assert len(list(small_disk.iterdir())) == len(kept)
    assert not store.damaged
    subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
    report, found = go(tasks, small_disk, jobs=jobs)
    assert (report.computed, report.reused) == (40 - len(kept), len(kept))
    assert None not in found


def test_a_record_that_the_system_will_not_write_stops_the_run(tmp_path):
    go(tasks_of(6, padding=10_000)[:2], tmp_path)
    limits = "resource.setrlimit(resource.RLIMIT_FSIZE, (8000, resource.RLIM_INFINITY))"
    process = start(tmp_path, 6, limits=limits, padding=10_000)
    _, said = process.communicate(timeout=30)
    assert "OSError: [Errno 27] File too large" in said
    assert f"2 of 6 cells are stored in {tmp_path}; once the cause is gone" in said
    assert len(list(tmp_path.iterdir())) == 2
    report, _ = go(tasks_of(6, padding=10_000), tmp_path)
    assert (report.computed, report.reused) == (4, 2)


def test_jobs_is_a_number_of_processes(tmp_path):
    for jobs in (0, -2):
        with pytest.raises(InputError, match=f"jobs is {jobs}"):
            go(tasks_of(1), tmp_path, jobs=jobs)


# Progress


def on_a_terminal(monkeypatch, *args, **options):
    """What a run shows on a terminal."""
    terminal, other_end = pty.openpty()
    termios.tcsetwinsize(other_end, (24, 80))
    with os.fdopen(other_end, "w") as stderr, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        go(*args, **options)
        print("END", file=stderr, flush=True)
        shown = ""
        while "END" not in shown:
            shown += os.read(terminal, 4096).decode()
    os.close(terminal)
    return shown.partition("END")[0]


def test_progress_goes_to_terminals_and_starts_at_what_was_there(tmp_path, monkeypatch, capsys):
    tasks = tasks_of(8, fails=7)
    go(tasks[:5], tmp_path / "a")
    shown = on_a_terminal(monkeypatch, tasks, tmp_path / "a")
    assert "5/8" in shown
    assert "8/8" in shown
    assert "failed=1" in shown
    assert "0/8" not in shown
    assert "0/8" in on_a_terminal(monkeypatch, tasks, tmp_path / "b")
    assert on_a_terminal(monkeypatch, tasks, tmp_path / "c", progress=False) == ""
    assert capsys.readouterr().err == ""  # neither of the run before, which had no terminal
