"""How much memory a fit takes, for an array, a memory map and a Dask array in files; prints and writes JSON.

    python benchmarks/memory.py --output benchmarks/results/memory.json
    python benchmarks/memory.py --file-rows 100000 --kinds memmap    # less

Anonymous memory (RssAnon: what a process cannot give back, unlike pages of files it has mapped) is looked at every few
milliseconds while the fit runs, each fit in a process of its own. Files of random rows are made in --folder and removed.
Dask counts as larger than memory here, so it reads its chunks anew in each pass.
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
from pathlib import Path
from typing import Any

import numpy as np

from unspur import JSE

CHUNK = 20_000
KINDS = ("array", "memmap", "zarr")


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


def labels(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=n, dtype=np.int8)
    return y, np.where(rng.random(n) < 0.8, y, 1 - y).astype(np.int8)


def write_npy(path: Path, n: int, d: int) -> None:
    """Noise with a falling spectrum, and an axis for each label."""
    z = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, d))
    y, concept = labels(n)
    for start in range(0, n, CHUNK):
        rows = slice(start, min(n, start + CHUNK))
        block = np.random.default_rng([1, start]).standard_normal((rows.stop - start, d), dtype=np.float32)
        block[:, 1] += 2 * concept[rows] - 1
        block[:, 2] += 2 * y[rows] - 1
        z[rows] = block * np.geomspace(10.0, 0.1, d, dtype=np.float32)
    z.flush()


def fit(kind: str, path: str) -> dict[str, Any]:
    """Fit with the rows of a file."""
    if kind == "array":
        z: Any = np.load(path)
    elif kind == "memmap":
        z = np.load(path, mmap_mode="r")
    else:
        import dask.array as da

        from unspur.rows import dask as on_dask

        on_dask.available_memory = lambda: 0
        z = da.from_zarr(path)
    n, d = z.shape
    y, concept = labels(n)
    with Peak() as peak:
        start = time.perf_counter()
        jse = JSE(max_spurious=1, max_main=1, cv=0.2, random_state=0).fit(z, y, concept=concept)
        spent = time.perf_counter() - start
    return {
        "rows": kind,
        "n": n,
        "d": d,
        "size_of_Z": 4 * n * d,
        "anonymous_before": peak.before,
        "anonymous_peak": peak.most,
        "seconds": spent,
        "spurious": jse.spurious_.dim,
        "main": jse.main_.dim,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="rows in memory")
    parser.add_argument("--file-rows", type=int, default=1_000_000, help="rows in files")
    parser.add_argument("--features", type=int, default=768)
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        print(json.dumps(fit(*given.only)))
        return
    results = []
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="unspur-memory-") as folder:
        path = Path(folder, "z.npy")
        for kind in given.kinds:
            write_npy(path, given.rows if kind == "array" else given.file_rows, given.features)
            if kind == "zarr":
                import dask.array as da

                da.from_array(np.load(path, mmap_mode="r"), chunks=(CHUNK, -1)).to_zarr(f"{folder}/z.zarr")
            where = f"{folder}/z.zarr" if kind == "zarr" else str(path)
            done = subprocess.run([sys.executable, __file__, "--only", kind, where], capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(done.stderr)
            results.append(json.loads(done.stdout.splitlines()[-1]))
            print(results[-1], flush=True)
    if given.output is not None:
        text = {"threads": os.environ.get("OPENBLAS_NUM_THREADS"), "cores": os.cpu_count(), "results": results}
        given.output.write_text(json.dumps(text, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
