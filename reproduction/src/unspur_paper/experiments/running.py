"""Cells are computed on the cores of this machine, and stored as they come in.

Where a cell runs changes how long it takes and nothing else: every mode goes through `_evaluate`. Records are written
by this process only, so workers need no disk in common, and a run that is killed loses the cells in flight.
"""

from __future__ import annotations

import copy
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from unspur._version import __version__
from unspur.exceptions import InputError
from unspur_paper.experiments.errors import RunStoppedError
from unspur_paper.experiments.records import Record, RecordStore, canonical

Compute = Callable[[dict[str, Any]], dict[str, Any]]

#: These depend on what a process did before (imports, garbage), not on the cell.
INCIDENTAL = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)

_one_cell = threading.Lock()


@dataclass(frozen=True, slots=True)
class Task:
    """A cell to compute, the key of its record, and the digest of the data it reads."""

    spec: dict[str, Any]
    key: str
    data: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A cell that raised an error: which one, and what it said."""

    spec: dict[str, Any]
    message: str
    traceback: str


@dataclass(frozen=True, slots=True)
class RunReport:
    """How many cells were computed and how many found; those that failed; and how long it took."""

    computed: int
    reused: int
    failures: tuple[Failure, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a worker sends back; `result` is None exactly if the cell failed."""

    key: str
    result: dict[str, Any] | None
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    message: str = ""
    traceback: str = ""
    version: str = ""


def run(
    tasks: Iterable[Task],
    store: RecordStore,
    compute: Compute,
    *,
    version: str,
    jobs: int = 1,
    progress: bool = True,
    reuse: bool = True,
) -> RunReport:
    """Compute the tasks that have no record yet (with `reuse=False`: all) and store each record as it arrives.

    `jobs` counts processes (1: none but this one; -1: one per core). A cell that raises is a `Failure` and the others
    go on. Ctrl-C, a disk that is full or a worker that dies end the run with `RunStoppedError`; calling again goes on
    from there. Tasks with the same key are computed once.
    """
    start = time.perf_counter()
    if jobs != -1 and jobs < 1:
        raise InputError(f"jobs is {jobs}; pass a number of processes, or -1 for one per core.")
    cells = {task.key: task for task in tasks}
    todo = {key: task for key, task in cells.items() if not reuse or store.get(key) is None}
    reused, computed, failures = len(cells) - len(todo), 0, list[Failure]()
    hidden = not progress or not sys.stderr.isatty()
    # smoothing=0: cells differ in length, and the mean since the start foretells the rest better than the last few.
    bar = tqdm(total=len(cells), initial=reused, unit="cell", smoothing=0, dynamic_ncols=True, disable=hidden)
    try:
        store.prepare()
        with bar, closing(_outcomes(compute, list(todo.values()), jobs)) as outcomes:
            for outcome in outcomes:
                task = todo[outcome.key]
                if outcome.result is None:
                    failures.append(Failure(task.spec, outcome.message, outcome.traceback))
                    bar.set_postfix(failed=len(failures), refresh=False)
                else:
                    store.put(_record(task, version, outcome, outcome.result))
                    computed += 1
                bar.update()
    except (KeyboardInterrupt, OSError, BrokenExecutor) as error:
        stored = sum(store.get(key) is not None for key in cells)  # counted: an interrupt may come right after a write
        raise RunStoppedError(
            f"The run stopped before its end ({_in_words(error)}). {stored} of {len(cells)} cells are stored in "
            f"{store.folder}; once the cause is gone, the same command goes on from there"
            + ("." if reuse else " (not --fresh).")
        ) from error
    return RunReport(computed, reused, tuple(failures), time.perf_counter() - start)


def _record(task: Task, version: str, outcome: _Outcome, result: dict[str, Any]) -> Record:
    return Record(task.key, task.spec, task.data, version, result, outcome.seconds, outcome.warnings)


def _in_words(error: BaseException) -> str:
    """Kind and first line: joblib's errors go on for a page."""
    first = str(error).partition("\n")[0].rstrip(".")
    return "interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {first}"


def _evaluate(compute: Compute, key: str, spec: dict[str, Any]) -> _Outcome:
    """One cell, the same in every mode: one BLAS thread, warnings kept, errors turned into values."""
    # BLAS threads and warning filters belong to the process, so that two cells in two threads would undo each other's.
    with _one_cell, threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for category in INCIDENTAL:
            warnings.simplefilter("ignore", category)
        start = time.perf_counter()
        try:
            result = compute(copy.deepcopy(spec))  # a cell that changes it would do so in this process only
            if not isinstance(result, dict):
                raise InputError(f"The result is of type {type(result).__name__}; a cell returns a dict.")
            canonical(result, "result")  # what cannot be stored is the failure of this cell, not of the run
        except Exception as error:
            return _failed(key, error, traceback.format_exc())
        seconds = round(time.perf_counter() - start, 3)
        return _Outcome(key, result, seconds, _summary(caught), version=__version__)


def _failed(key: str, error: BaseException, trace: str) -> _Outcome:
    return _Outcome(key, None, message=f"{type(error).__name__}: {error}", traceback=trace)


def _summary(caught: Sequence[warnings.WarningMessage]) -> tuple[str, ...]:
    """Category and first line of each warning, without repeats; five of them tell what was going on."""
    lines = [f"{item.category.__name__}: {str(item.message).strip().partition(chr(10))[0]}"[:200] for item in caught]
    return tuple(dict.fromkeys(lines))[:5]


def _outcomes(compute: Compute, tasks: Sequence[Task], jobs: int) -> Generator[_Outcome, None, None]:
    """Outcomes as they come, in any order; closing the generator ends the workers."""
    if not tasks:
        return
    if jobs == 1:
        yield from (_evaluate(compute, task.key, task.spec) for task in tasks)
    else:
        yield from _on_cores(compute, tasks, jobs)


def _on_cores(compute: Compute, tasks: Sequence[Task], jobs: int) -> Generator[_Outcome, None, None]:
    import joblib

    # batch_size=1: joblib would hold back the results of short cells until a batch of them is done.
    parallel = joblib.Parallel(n_jobs=jobs, backend="loky", return_as="generator_unordered", batch_size=1)
    outcomes = parallel(joblib.delayed(_evaluate)(compute, task.key, task.spec) for task in tasks)
    try:
        for outcome in outcomes:  # noqa: UP028 — `yield from` would close joblib's generator outside the block below
            yield outcome
    finally:
        # Joblib warns of what it cancels; RunStoppedError says it better.
        with warnings.catch_warnings(action="ignore"):
            outcomes.close()
