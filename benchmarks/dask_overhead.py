"""What a cluster costs: one evaluation of the pair loss on two Dask workers of this machine, against rows in memory.

Run with ``python benchmarks/dask_overhead.py`` (some GB of memory; ``--rows 20000`` for less, ``--fit`` for whole fits).
Everything is measured in this one run:

- *tasks*: transitions to "memory" that the scheduler saw (a plugin counts them);
- *bytes*: what distributed's TCP connections wrote, counted in every process by wrapping ``TCP.write``, by who wrote:
  the client (graphs), the scheduler (tasks, and results on their way to the client), the workers (results, the
  statistic passed on to a neighbour, reports). Heartbeats are in it;
- *empty*: the same evaluation with a statistic that looks at nothing, which leaves what Dask itself takes;
- *copies*: how often a chunk is held on average, after all evaluations; 1 means none was moved.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import SchedulerPlugin

from unspur import JSE, LEACE
from unspur.rows import CONCEPT, MAIN, Block, MemoryRows, RowLabels
from unspur.rows.dask import DaskRows
from unspur.solvers.logistic import LogisticLosses


def count_bytes() -> None:
    """From now on this process counts what its connections write, by what they are for."""
    from distributed.comm.tcp import TCP

    TCP.written, plain = Counter(), TCP.write

    async def write(self: Any, *arguments: Any, **options: Any) -> int:
        size = await plain(self, *arguments, **options)
        TCP.written["client" if str(self.name).startswith("Client") else "other"] += size
        return size

    TCP.write = write


def written() -> Counter[str]:
    from distributed.comm.tcp import TCP

    return Counter(TCP.written)


class Finished(SchedulerPlugin):
    """Counts tasks that were computed."""

    def __init__(self) -> None:
        self.tasks = 0

    def transition(self, key: Any, start: str, finish: str, *_: Any, **__: Any) -> None:  # noqa: ARG002
        self.tasks += start == "processing" and finish == "memory"


def rows_of_file(path: str, start: int, stop: int) -> np.ndarray:
    return np.array(np.load(path, mmap_mode="r")[start:stop])


def chunked(path: Path, z: np.ndarray, chunks: int) -> da.Array:
    """The rows as a Dask array whose chunks the workers read."""
    cuts = np.linspace(0, len(z), chunks + 1).astype(int).tolist()
    pieces = [
        da.from_delayed(dask.delayed(rows_of_file)(str(path), a, b), (b - a, z.shape[1]), z.dtype)
        for a, b in itertools.pairwise(cuts)
    ]
    return da.concatenate(pieces)


def nothing(block: Block) -> float:  # noqa: ARG001
    return 0.0


def best_ms(call: Callable[[], object], repeats: int) -> float:
    """Best of some repeats after one to warm up: what it takes where nothing else runs."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def labels_and_rows(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y, concept = rng.integers(0, 2, n), rng.integers(0, 2, n)
    concept = np.where(rng.uniform(size=n) < 0.6, y, concept)
    z = rng.standard_normal((n, d), dtype=np.float32)
    z[:, 0] += 1.5 * y
    z[:, 1] += 2.0 * concept
    return z, y, concept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=768)
    parser.add_argument("--chunks", type=int, nargs="+", default=[5, 20, 80])
    parser.add_argument("--weightings", type=int, default=6, help="those of five folds and of all rows")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--fit", action="store_true", help="whole fits as well, for the middle number of chunks")
    parser.add_argument("--output", type=Path, help="a JSON file for the figures")
    given = parser.parse_args()
    n, d, t = given.rows, given.features, given.weightings
    z, y, concept = labels_and_rows(n, d, 0)
    z = z.astype(given.dtype, copy=False)
    rng = np.random.default_rng(1)
    columns = RowLabels.of(y, concept, None, rng.integers(1, 6, n))
    loss = LogisticLosses(
        rng.standard_normal((t, 2, d)) / d**0.5,
        np.zeros((t, 2)),
        np.array([CONCEPT, MAIN]),
        rng.uniform(0.5, 1.0, (t, 24)) / n,
        np.zeros(d),
    )
    here = MemoryRows(z, columns)
    expected = here.sum(loss)
    memory = best_ms(lambda: here.sum(loss), given.repeats)
    lines = []
    options = {"n_workers": given.workers, "threads_per_worker": 1, "dashboard_address": ":0"}
    with tempfile.TemporaryDirectory() as folder, LocalCluster(**options) as cluster, Client(cluster) as client:
        path = Path(folder) / "z.npy"
        np.save(path, z)
        finished = Finished()
        cluster.scheduler.add_plugin(finished)
        count_bytes()
        client.run(count_bytes)
        for chunks in given.chunks:
            rows = DaskRows(chunked(path, z, chunks), columns)
            found = rows.sum(loss)
            empty = best_ms(lambda rows=rows: rows.sum(nothing), given.repeats)
            before, tasks = (written(), client.run(written)), finished.tasks
            start = time.perf_counter()
            for _ in range(given.repeats):
                rows.sum(loss)
            # Sent and counted: what `client.run` itself sends is a kilobyte or two.
            after, tasks = (written(), client.run(written)), finished.tasks - tasks
            took = time.perf_counter() - start
            by_workers = sum(sum(end.values()) - sum(before[1][who].values()) for who, end in after[1].items())
            held = [len(who) for key, who in client.who_has().items() if who and "_unpacked" not in str(key)]
            lines.append(
                {
                    "chunks": chunks,
                    "chunk_mb": z.nbytes / chunks / 1e6,
                    "tasks": tasks / given.repeats,
                    "client_kb": (after[0]["client"] - before[0]["client"]) / given.repeats / 1e3,
                    "scheduler_kb": (after[0]["other"] - before[0]["other"]) / given.repeats / 1e3,
                    "workers_kb": by_workers / given.repeats / 1e3,
                    "ms": best_ms(lambda rows=rows: rows.sum(loss), given.repeats),
                    "mean_ms": 1e3 * took / given.repeats,
                    "empty_ms": empty,
                    "memory_ms": memory,
                    "difference": float(np.abs(found - expected).max() / np.abs(expected).max()),
                    "copies": float(np.mean(held)),
                }
            )
            del rows
        fits = whole_fits(path, z, y, concept, given.chunks[len(given.chunks) // 2]) if given.fit else []
    report(given, lines, fits)


def whole_fits(path: Path, z: np.ndarray, y: np.ndarray, concept: np.ndarray, chunks: int) -> list[dict[str, Any]]:
    """Fits on the cluster and in memory: time, visits of the rows, and how far the answers are apart."""
    visits: Counter[str] = Counter()
    for kind in (DaskRows, MemoryRows):
        for name in ("sum", "project"):
            _counted(kind, name, z.shape[1], visits)
    found = []
    for method in (LEACE(), JSE(random_state=0)):
        figures: dict[str, Any] = {"method": type(method).__name__, "chunks": chunks}
        for where, rows in (("memory", z), ("dask", chunked(path, z, chunks))):
            visits.clear()
            start = time.perf_counter()
            method.fit(rows, y, concept=concept)
            figures[f"{where}_s"] = time.perf_counter() - start
            figures[f"{where}_visits"] = dict(visits)
            figures[where] = method.removal_.matrix()
        figures["difference"] = float(np.abs(figures.pop("memory") - figures.pop("dask")).max())
        found.append(figures)
    return found


def _counted(kind: type, name: str, width: int, visits: Counter[str]) -> None:
    """Count calls for all rows, and those for a few columns of them."""
    plain = getattr(kind, name)

    def counting(self: Any, *arguments: Any) -> Any:
        visits[f"{name} of {'rows' if self.n_features == width else 'projections'}"] += 1
        return plain(self, *arguments)

    setattr(kind, name, counting)


def report(given: argparse.Namespace, lines: list[dict[str, Any]], fits: list[dict[str, Any]]) -> None:
    print(
        f"{given.rows:,} × {given.features} {given.dtype}, {given.weightings} weightings × 2 labels, {given.workers} workers "
        f"of one thread; in memory {lines[0]['memory_ms']:.0f} ms an evaluation\n"
    )
    print(
        "| chunks | MB each | tasks | client sends | scheduler sends | workers send | ms | of it Dask | difference "
        "| copies |"
    )
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for line in lines:
        print(
            f"| {line['chunks']} | {line['chunk_mb']:.1f} | {line['tasks']:.0f} | {line['client_kb']:.0f} kB "
            f"| {line['scheduler_kb']:.0f} kB | {line['workers_kb']:.0f} kB | {line['ms']:.0f} | {line['empty_ms']:.0f} "
            f"| {line['difference']:.1e} | {line['copies']:.2f} |"
        )
    for fit in fits:
        print(
            f"\n{fit['method']}, {fit['chunks']} chunks: {fit['memory_s']:.1f} s in memory, {fit['dask_s']:.1f} s on "
            f"the cluster, difference {fit['difference']:.1e}; visits {fit['dask_visits']}"
        )
    if given.output:
        settings = {name: value for name, value in vars(given).items() if name != "output"}
        given.output.write_text(json.dumps({"settings": settings, "evaluations": lines, "fits": fits}, indent=2) + "\n")


if __name__ == "__main__":
    main()
