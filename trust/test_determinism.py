"""The same fit gives the same answer: whatever the threads, blocks, sources, processes and order of rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from trust.repeats import FITS, REMOVERS, all_fits, digits, fit, rows, said
from unspur.rows import source as memory

PART = "determinism"
ROOT = Path(__file__).parent.parent

#: Digits that are promised where sums are added up in another order, by the type of the rows.
DIGITS = {"float64": 11, "float32": 4}
#: GroupDRO looks for a point where the worst groups are equally bad, to its tolerance of 1e-6; between orders of
#: summation it may stop a step earlier or later.
SEARCHED = {"GroupDRO": {"float64": 7, "float32": 4}}


def promised(name: str, kind: str) -> int:
    """Digits that are promised of one method."""
    return SEARCHED.get(name, DIGITS)[kind]


class Compared:
    """Counts fits against the first of their kind, and keeps the fewest digits they agree to."""

    def __init__(self, line: Any) -> None:
        self.line, self.fewest = line, {"float64": np.inf, "float32": np.inf}
        self.wrong: list[str] = []

    def add(self, what: str, kind: str, one: Any, other: Any, least: float) -> None:
        same = digits(one[0], other[0]) if np.shape(one[0]) == np.shape(other[0]) else 0.0
        self.fewest[kind] = min(self.fewest[kind], same)
        held = tuple(one[1]) == tuple(other[1]) and same >= least
        self.line.trial(held)
        if not held:
            self.wrong.append(f"{what}, {kind}: {one[1]} and {other[1]}, {said(same)}")
        told = [f"{kind} {said(worst)}" for kind, worst in self.fewest.items()]
        self.line.figure = told[0].removeprefix("float64 ") if len(set(self.fewest.values())) == 1 else ", ".join(told)
        self.line.data = {kind: None if np.isinf(worst) else worst for kind, worst in self.fewest.items()}


def kinds() -> list[str]:
    return ["float64", "float32"]


def test_threads_of_blas(tally: Any, effort: Any) -> None:
    compared = Compared(tally("1, 2 and 4 threads of BLAS"))
    for kind in kinds():
        for seed in range(effort.times(1, 10)):
            table = rows(seed=seed, kind=kind)
            for name in FITS:
                with threadpool_limits(1):
                    alone = fit(name, *table)
                for threads in (2, 4):
                    with threadpool_limits(threads):
                        compared.add(f"{name}, {threads} threads", kind, alone, fit(name, *table), promised(name, kind))
    assert compared.line.all_survived, compared.wrong


def test_blocks_of_rows(monkeypatch: pytest.MonkeyPatch, tally: Any, effort: Any) -> None:
    compared = Compared(tally("blocks of 64 and 500 rows, and all at once"))
    for kind in kinds():
        for seed in range(effort.times(1, 10)):
            table = rows(seed=seed, kind=kind)
            for name in FITS:
                whole = fit(name, *table)
                for size in (64, 500):
                    with monkeypatch.context() as patched:
                        patched.setattr(memory, "MIN_BLOCK_ROWS", size)
                        patched.setattr(memory, "MAX_BLOCK_ROWS", size)
                        compared.add(f"{name}, {size} rows", kind, whole, fit(name, *table), promised(name, kind))
    assert compared.line.all_survived, compared.wrong


def sources(Z: Any, folder: Path) -> dict[str, Any]:
    """The same rows in other places."""
    import dask.array as da
    import torch

    path = folder / "rows.npy"
    np.save(path, Z)
    return {
        "a mapped file": np.load(path, mmap_mode="r"),
        "Dask": da.from_array(Z, chunks=(250, -1)),
        "a tensor": torch.from_numpy(Z),
    }


def test_places_of_rows(tmp_path: Path, tally: Any, effort: Any) -> None:
    compared = Compared(tally("memory, mapped file, Dask, torch"))
    chosen = list(FITS) if effort.full else ["JSE", "LEACE", "ERM"]
    for kind in kinds():
        Z, y, concept = rows(kind=kind)
        for where, stored in sources(Z, tmp_path).items():
            for name in chosen:
                compared.add(
                    f"{name}, {where}", kind, fit(name, Z, y, concept), fit(name, stored, y, concept), DIGITS[kind]
                )
    assert compared.line.all_survived, compared.wrong


def _without(fold: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and rows to test on in round k."""
    return np.flatnonzero(fold != k), np.flatnonzero(fold == k)


def test_order_of_rows(tally: Any, effort: Any) -> None:
    """With the same folds: those are drawn by position, so they are passed along."""
    compared = Compared(tally("rows in another order, same folds"))
    rng = np.random.default_rng(0)
    for kind in kinds():
        Z, y, concept = rows(kind=kind)
        fold = rng.permutation(len(Z)) % 5
        for _ in range(effort.times(1, 10)):
            order = rng.permutation(len(Z))
            for name in REMOVERS:
                one, other = (
                    fit(name, Z[at], y[at], concept[at], cv=[_without(fold[at], k) for k in range(5)])
                    for at in (np.arange(len(Z)), order)
                )
                compared.add(name, kind, one, other, promised(name, kind))
    assert compared.line.all_survived, compared.wrong


def test_processes(tmp_path: Path, tally: Any, effort: Any) -> None:
    """Fresh interpreters, each with other hashes of strings and other surroundings: the same to the bit."""
    compared, here = Compared(tally("fresh processes, other hash seeds")), all_fits()
    for run in range(effort.times(2, 6)):
        out = tmp_path / f"{run}.npz"
        around = os.environ | {"PYTHONHASHSEED": str(run + 1), "UNRELATED": "x" * 37 * run}
        subprocess.run([sys.executable, "-m", "trust.repeats", str(out)], check=True, cwd=ROOT, env=around)
        with np.load(out) as there:
            for name in (name for name in here if not name.endswith("story")):
                told = tuple(here[f"{name} story"]), tuple(there[f"{name} story"])
                kind = name.rsplit(" ", 1)[1]
                compared.add(name, kind, (here[name], told[0]), (there[name], told[1]), np.inf)
    assert compared.line.all_survived, compared.wrong


def test_a_difference_would_be_noticed() -> None:
    """Control: rows that differ in the last of their digits give answers that do."""
    Z, y, concept = rows()
    one, other = fit("LEACE", Z, y, concept), fit("LEACE", Z * (1.0 + 1e-9 * np.sin(np.arange(16))), y, concept)
    assert 6 < digits(one[0], other[0]) < 12
    assert np.isinf(digits(one[0], one[0]))
