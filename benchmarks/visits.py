"""How often a fit visits its rows, and what a visit costs by where they live; prints two tables and writes JSON.

    python benchmarks/visits.py --output benchmarks/results/visits.json    # five minutes on two cores

A visit is one pass over all rows. What a fit does with a sample of the rows, or with a few columns computed from them,
takes a fraction of the time and is counted apart. Counts do not depend on the machine. The cost of a visit is that of
one evaluation of the losses of both labels, relative to rows in memory; sources take turns, and the best of each counts.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from distributed import Client, LocalCluster

from dask_overhead import chunked, labels_and_rows
from unspur import (
    ERM,
    INLP,
    JSE,
    LEACE,
    RLACE,
    SAL,
    SPLINCE,
    GroupDRO,
    GroupWeighted,
    RobustClassifier,
)
from unspur.rows import CONCEPT, MAIN, MemoryRows, RowLabels, RowSource, rows_of
from unspur.rows.torch import TorchRows
from unspur.solvers.logistic import LogisticLosses

METHODS: dict[str, Callable[[], Any]] = {
    "JSE, metric=0": lambda: JSE(metric=0.0, random_state=0),
    "JSE": lambda: JSE(random_state=0),
    "JSE, one direction each, cv=0.2": lambda: JSE(max_spurious=1, max_main=1, cv=0.2, random_state=0),
    "INLP": lambda: INLP(random_state=0),
    "RLACE": RLACE,
    "LEACE": LEACE,
    "SAL": SAL,
    "SPLINCE": SPLINCE,
    "ERM": ERM,
    "GroupWeighted": GroupWeighted,
    "GroupDRO": GroupDRO,
    "RobustClassifier": lambda: RobustClassifier(random_state=0),
}
CHUNKS = 8


def counted(shape: tuple[int, int]) -> Counter[str]:
    """From now on, visits of rows in memory are counted: of all, of a sample, or of a few columns."""
    visits: Counter[str] = Counter()
    for name in ("sum", "project"):
        _count(name, shape, visits)
    return visits


def _count(name: str, shape: tuple[int, int], visits: Counter[str]) -> None:
    plain = getattr(MemoryRows, name)

    def counting(self: MemoryRows, *arguments: Any) -> Any:
        if name == "sum" or arguments[0].shape[1]:  # a projection onto nothing visits no row
            whole = (self.n_rows, self.n_features) == shape
            visits["all" if whole else "sample" if self.n_features == shape[1] else "columns"] += 1
        return plain(self, *arguments)

    setattr(MemoryRows, name, counting)


def visits_of_methods(z: np.ndarray, y: np.ndarray, concept: np.ndarray) -> list[dict[str, Any]]:
    """Visits in a fit of each method."""
    visits = counted(z.shape)
    lines = []
    for name, make in METHODS.items():
        visits.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make().fit(z, y, concept=concept)
        lines.append({"method": name, **{kind: visits[kind] for kind in ("all", "sample", "columns")}})
    return lines


def sources(stack: ExitStack, folder: Path, z: np.ndarray, columns: RowLabels) -> dict[str, RowSource]:
    """The same rows in different places."""
    npy = folder / "z.npy"
    np.save(npy, z)
    cluster = stack.enter_context(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0"))
    stack.enter_context(Client(cluster))
    return {
        "memory": MemoryRows(z, columns),
        "memory map": rows_of(np.load(npy, mmap_mode="r"), columns),
        "tensor on the CPU": rows_of(torch.from_numpy(z), columns),
        "tensor on the CPU, bfloat16": TorchRows(torch.from_numpy(z).bfloat16(), columns),
        "Dask, two workers": rows_of(chunked(npy, z, CHUNKS), columns),
    }


def cost_of_visits(places: dict[str, RowSource], repeats: int) -> list[dict[str, Any]]:
    """Milliseconds of one evaluation for each source."""
    n, d = places["memory"].n_rows, places["memory"].n_features
    rng = np.random.default_rng(1)
    loss = LogisticLosses(
        rng.standard_normal((1, 2, d)) / d**0.5,
        np.zeros((1, 2)),
        np.array([CONCEPT, MAIN]),
        np.full((1, 4), 1.0 / n),
        np.zeros(d),
    )
    best = dict.fromkeys(places, float("inf"))
    for turn in range(repeats + 1):  # the first warms up
        for name, rows in places.items():
            start = time.perf_counter()
            rows.sum(loss)
            if turn:
                best[name] = min(best[name], time.perf_counter() - start)
    return [{"rows": name, "ms": 1e3 * s, "of_memory": s / best["memory"]} for name, s in best.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--output", type=Path, help="a JSON file for the figures")
    given = parser.parse_args()
    z, y, concept = labels_and_rows(given.rows, given.features, 0)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        costs = cost_of_visits(sources(stack, Path(folder), z, RowLabels.of(y, concept)), given.repeats)
    methods = visits_of_methods(z, y, concept)
    print(f"n = {given.rows:,}, d = {given.features}, float32\n\n| rows | a visit | of memory |\n| --- | ---: | ---: |")
    for line in costs:
        print(f"| {line['rows']} | {line['ms']:.0f} ms | {line['of_memory']:.2f} |")
    print("\n| method | visits | of a sample | of a few columns |\n| --- | ---: | ---: | ---: |")
    for line in methods:
        print(f"| {line['method']} | {line['all']} | {line['sample']} | {line['columns']} |")
    if given.output:
        about = {"n": given.rows, "d": given.features, "dtype": "float32", "cores": os.cpu_count(), "chunks": CHUNKS}
        given.output.write_text(json.dumps({**about, "costs": costs, "methods": methods}, indent=2) + "\n")


if __name__ == "__main__":
    main()
