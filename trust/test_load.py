"""A thousand fits in one process leave nothing behind, and fits side by side are those of one after the other."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from trust.repeats import FITS, fit, one_fit, rows

PART = "load"
#: Bytes by which fits may grow a process: tables that are filled on first use, and half a kilobyte a fit.
TABLES, EACH = 250_000, 500


@dataclass(frozen=True)
class Footprint:
    """What a process holds: resident bytes, objects that Python tracks, open files, threads."""

    resident: int
    objects: int
    files: int
    threads: int

    def within(self, fits: int, objects: float) -> bool:
        """Whether so many fits, and no more, may have grown a process by this."""
        small = self.resident < TABLES + EACH * fits and self.objects < objects
        return small and self.files == self.threads == 0

    @classmethod
    def now(cls) -> Footprint:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # gives back what is free, so that what stays is what is held
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(
            pages * os.sysconf("SC_PAGE_SIZE"),
            len(gc.get_objects()),
            len(os.listdir("/proc/self/fd")),
            threading.active_count(),
        )


def growth(work: Callable[[], Any], times: int, warm: int = 20) -> tuple[Footprint, list[float]]:
    """By how much the process grew over `times` runs after some to warm up, and the seconds of each."""
    for _ in range(warm):
        work()
    seconds, before = [], Footprint.now()
    for _ in range(times):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    after = Footprint.now()
    return Footprint(*(getattr(after, part) - getattr(before, part) for part in vars(before))), seconds


def growth_of_fits(name: str, times: int) -> tuple[Footprint, list[float]]:
    """The same for fits of one method on a small table."""
    table = rows(160, 4)
    return growth(lambda: fit(name, *table), times, warm=max(20, times // 5))


def alone(function: Callable[..., Any], *given: Any) -> Any:
    """The answer of a function in a fresh process, whose memory nothing else has used."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, given)


def spread(seconds: list[float]) -> float:
    """90th percentile over the mean."""
    return float(np.percentile(seconds, 90) / np.mean(seconds))


def test_a_thousand_fits_leave_nothing_behind(tally: Any, effort: Any) -> None:
    line, times = tally("fits of JSE in one process"), effort.times(80, 1000)
    grown, seconds = alone(growth_of_fits, "JSE", times)
    line.trials(times, times if grown.within(times, objects=times / 10) else 0)
    line.figure = f"{grown.resident / 1e6:+.1f} MB, {grown.objects:+d} objects; time: p90 / mean {spread(seconds):.2f}"
    line.data = asdict(grown) | {"p90 over mean": spread(seconds), "mean seconds": float(np.mean(seconds))}
    assert line.all_survived, f"{grown} after {times} fits"


def growth_of_others(times: int) -> dict[str, tuple[Footprint, list[float]]]:
    return {name: growth_of_fits(name, times) for name in FITS if name != "JSE"}


def test_other_methods_leave_nothing_behind(tally: Any, effort: Any) -> None:
    line, times = tally("fits of the other methods in one process"), effort.times(25, 300)
    told = alone(growth_of_others, times)
    for grown, _ in told.values():
        line.trials(times, times if grown.within(times, objects=times / 4) else 0)
    line.data = {name: asdict(grown) | {"p90 over mean": spread(seconds)} for name, (grown, seconds) in told.items()}
    most = max(grown.resident for grown, _ in told.values())
    line.figure = f"at most {most / 1e6:+.1f} MB; time: p90 / mean {min(spread(s) for _, s in told.values()):.2f} to"
    line.figure += f" {max(spread(s) for _, s in told.values()):.2f}"
    assert line.all_survived, line.data


def leaking() -> tuple[Footprint, Footprint]:
    """Growth by fits that are kept with a copy of their rows, and by files that are left open."""
    table, kept = rows(160, 4), []
    arrays, _ = growth(lambda: kept.append((fit("SAL", *table), table[0].copy())), 300)
    files, _ = growth(lambda: kept.append(os.open(os.devnull, os.O_RDONLY)), 5)
    return arrays, files


def test_a_leak_would_be_noticed() -> None:
    """Control: 300 fits that keep a copy of their five kilobytes, and five files left open."""
    arrays, files = leaking()
    assert not arrays.within(300, objects=np.inf)
    assert arrays.objects > 30
    assert files.files == 5


def test_fits_side_by_side(tally: Any, effort: Any) -> None:
    line = tally("8 threads, spawn, fork, loky against one by one")
    jobs = [(name, seed) for name in FITS for seed in range(effort.times(2, 20))]
    serial = [one_fit(job) for job in jobs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # filters are the process's, and fits in threads set them side by side
        with ThreadPoolExecutor(8) as pool:
            by_threads = list(pool.map(one_fit, jobs))
    by_process = {}
    for how in ("spawn", "fork"):
        with multiprocessing.get_context(how).Pool(2) as pool:
            by_process[how] = pool.map(one_fit, jobs)
    by_loky = joblib.Parallel(n_jobs=2, backend="loky")(joblib.delayed(one_fit)(job) for job in jobs)
    wrong = []
    for how, answers in {"threads": by_threads, "loky": by_loky, **by_process}.items():
        for job, (one, told), (other, said) in zip(jobs, serial, answers, strict=True):
            if not line.trial(np.array_equal(one, other) and told == said):
                wrong.append((how, job, told, said, float(np.abs(one - other).max())))
    line.figure = "bit for bit" if not wrong else f"{len(wrong)} differ"
    assert line.all_survived, wrong[:5]
