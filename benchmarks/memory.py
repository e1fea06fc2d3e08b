"""How much memory a fit takes, for rows in memory and for files that are larger than it; prints and writes JSON.

    python benchmarks/memory.py                                  # n = 100,000 in memory, 10 GB in files
    python benchmarks/memory.py --file-rows 300000 --kinds npy   # less

Anonymous memory (RssAnon: what a process cannot give back, unlike pages of files it has mapped) is looked at every few
milliseconds while the fit runs, each fit in a process of its own. Files of random rows are made in --folder and removed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np

from unspur import JSE, open_rows

CHUNK = 20_000
#: A map, `open_rows` of the same file, of Parquet files, and of these with a decoded copy in a scratch folder.
KINDS = ["memmap", "npy", "parquet", "parquet-scratch"]


def anonymous() -> int:
    """Anonymous memory of this process in bytes."""
    return 1024 * int(re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text()).group(1))


class Peak:
    """Most anonymous memory while a block runs."""

    def __enter__(self) -> Peak:
        self.before = self.most = anonymous()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            self.most = max(self.most, anonymous())

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()
        self.most = max(self.most, anonymous())


def labels(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=n, dtype=np.int8)
    return y, np.where(rng.random(n) < 0.8, y, 1 - y).astype(np.int8)


def chunk(start: int, stop: int, d: int, y: np.ndarray, concept: np.ndarray) -> np.ndarray:
    """Some of the rows: noise with a falling spectrum, and an axis for each label."""
    z = np.random.default_rng([1, start]).standard_normal((stop - start, d), dtype=np.float32)
    z[:, 1] += 2 * concept[start:stop] - 1
    z[:, 2] += 2 * y[start:stop] - 1
    z *= np.geomspace(10.0, 0.1, d, dtype=np.float32)
    return z


def chunks(n: int, d: int):
    y, concept = labels(n)
    for start in range(0, n, CHUNK):
        stop = min(n, start + CHUNK)
        yield slice(start, stop), chunk(start, stop, d, y, concept)


def write_npy(path: Path, n: int, d: int) -> None:
    z = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, d))
    for rows, values in chunks(n, d):
        z[rows] = values
    z.flush()


def write_parquet(folder: Path, n: int, d: int) -> None:
    """Files of 200,000 rows, each one row group of some 600 MB."""
    import pyarrow as pa
    from pyarrow import parquet

    y, concept = labels(n)
    per_file, waiting = 200_000, []

    def write(number: int) -> None:
        z = np.concatenate(waiting)
        rows = slice(number * per_file, number * per_file + len(z))
        lists = pa.FixedSizeListArray.from_arrays(pa.array(z.reshape(-1)), d)
        table = pa.table({"y": y[rows], "concept": concept[rows], "embedding": lists})
        parquet.write_table(
            table,
            folder / f"part-{number:04}.parquet",
            row_group_size=per_file,
            use_dictionary=["y", "concept"],
            write_page_checksum=True,
        )
        waiting.clear()

    number = 0
    for _, values in chunks(n, d):
        waiting.append(values)
        if sum(map(len, waiting)) >= per_file:
            write(number)
            number += 1
    if waiting:
        write(number)


def fit_files(kind: str, path: str, memory: str) -> dict[str, Any]:
    """Fit with all of Z in files."""
    start = time.perf_counter()
    with Peak() as peak:
        if kind == "memmap":
            z: Any = np.load(path, mmap_mode="r")
            y, concept = labels(len(z))
        else:
            scratch = {"scratch": Path(path).parent} if kind == "parquet-scratch" else {}
            z = open_rows(path, memory=memory, **scratch)
            y, concept = labels(len(z)) if kind == "npy" else (z.column("y"), z.column("concept"))
        opened = time.perf_counter() - start
        jse = JSE(max_spurious=1, max_main=1, cv=0.2, random_state=0).fit(z, y, concept=concept)
    n, d = z.shape
    return {
        "rows": kind,
        "n": n,
        "d": d,
        "size_of_Z": n * d * 4,
        "budget": None if kind == "memmap" else memory,
        "anonymous_before": peak.before,
        "anonymous_peak": peak.most,
        "seconds": time.perf_counter() - start,
        "seconds_to_open_and_check": opened,
        "passes": getattr(z, "_passes", None),
        "spurious": jse.spurious_.dim,
        "main": jse.main_.dim,
    }


def fit_memory(n: int, d: int) -> dict[str, Any]:
    """Fit with Z in memory: once for what Python allocates, once for what the system sees."""
    z = np.empty((n, d), dtype=np.float32)
    for rows, values in chunks(n, d):
        z[rows] = values
    y, concept = labels(n)

    def fit() -> JSE:
        return JSE(max_spurious=1, max_main=1, cv=0.2, random_state=0).fit(z, y, concept=concept)

    with Peak() as peak:  # first, so that what libraries set up once is in it
        start = time.perf_counter()
        jse = fit()
        spent = time.perf_counter() - start
    tracemalloc.start()
    fit()
    allocated = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "rows": "array",
        "n": n,
        "d": d,
        "size_of_Z": z.nbytes,
        "allocated_peak": allocated,
        "share_of_Z": allocated / z.nbytes,
        "anonymous_before": peak.before,
        "anonymous_peak": peak.most,
        "anonymous_share_of_Z": (peak.most - peak.before) / z.nbytes,
        "seconds": spent,
        "spurious": jse.spurious_.dim,
        "main": jse.main_.dim,
    }


def in_new_process(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, __file__, "--only", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def told(result: dict[str, Any]) -> str:
    n, d, size, gb = result["n"], result["d"], result["size_of_Z"], 1e9
    line = f"{result['rows']}: n = {n:,}, d = {d}, {size / gb:.2f} GB: anonymous memory at most {result['anonymous_peak'] / gb:.3f} GB"
    line += f" ({result['anonymous_before'] / gb:.3f} before), {result['seconds']:.1f} s"
    if "share_of_Z" in result:
        line += f"; allocated {result['allocated_peak'] / 1e6:.1f} MB = {result['share_of_Z']:.3f} of Z"
        line += f", anonymous {result['anonymous_share_of_Z']:.3f} of Z"
    if result.get("passes"):
        line += (
            f"; {result['passes']} passes, {n * result['passes'] / result['seconds'] / 1e6:.2f} million rows a second"
        )
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="rows in memory; 0: leave that out")
    parser.add_argument("--file-rows", type=int, default=3_255_208, help="rows in files")
    parser.add_argument("--features", type=int, default=768)
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        what, *rest = given.only
        print(json.dumps(fit_memory(*map(int, rest)) if what == "array" else fit_files(what, *rest)))
        return
    results = []
    if given.rows:
        results.append(in_new_process("array", str(given.rows), str(given.features)))
        print(told(results[-1]), flush=True)
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="unspur-memory-") as folder:
        npy, parts = Path(folder, "z.npy"), Path(folder, "parts")
        if {"memmap", "npy"} & set(given.kinds):
            write_npy(npy, given.file_rows, given.features)
            for kind in [kind for kind in ("memmap", "npy") if kind in given.kinds]:
                results.append(in_new_process(kind, str(npy), given.memory))
                print(told(results[-1]), flush=True)
            npy.unlink()
        if kinds := [kind for kind in KINDS[2:] if kind in given.kinds]:
            parts.mkdir()
            write_parquet(parts, given.file_rows, given.features)
            for kind in kinds:
                results.append(in_new_process(kind, str(parts), given.memory))
                print(told(results[-1]), flush=True)
    if given.output is not None:
        text = {"threads": os.environ.get("OPENBLAS_NUM_THREADS"), "cores": os.cpu_count(), "results": results}
        given.output.write_text(json.dumps(text, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
