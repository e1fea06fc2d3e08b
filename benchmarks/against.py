"""Speed and answers of this checkout beside those of another one, in one run.

::

    python benchmarks/against.py CHECKOUT [--only NAME] [--repeats 3]

Each fit runs in a process of its own, one BLAS thread, the two checkouts in turn. The time of a checkout is its best.
The last columns compare answers: dimensions of the removal, and accuracy in the worst group on new rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Rows, features; JSE and RobustClassifier are fitted with their defaults.
SHAPES = {
    "100,000 x 768": (100_000, 768),
    "4,775 x 300": (4_775, 300),
    "1,000,000 x 20": (1_000_000, 20),
    "500 x 4,000": (500, 4_000),
}
DASK = "Dask 200,000 x 768"
JOB = """
import json, sys, time, warnings
import numpy as np
warnings.simplefilter("ignore")
name, n, d, place = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
rng = np.random.default_rng(0)
def rows(n):
    y = rng.permutation(np.arange(n) % 2)
    concept = np.where(rng.random(n) < 0.85, y, 1 - y)
    X = rng.standard_normal((n, d), dtype=np.float32) * np.exp(-np.arange(d, dtype=np.float32) / d)
    X[:, 0] += 1.2 * (2 * y - 1)
    X[:, 1] += 1.5 * (2 * concept - 1)
    X[:, 2] += 0.7 * (2 * concept - 1)
    X[:, 3] += 0.7 * (2 * y - 1)
    return X, y, concept
def work():
    import unspur
    X, y, concept = rows(n)
    new, y_new, concept_new = rows(10_000)
    estimator = getattr(unspur, name)(random_state=0) if name == "JSE" else getattr(unspur, name)()
    client = None
    if place == "dask":
        import dask.array as da
        from distributed import Client, LocalCluster
        client = Client(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None))
        X = da.from_array(X, chunks=(n // 20, d)).persist()
        from distributed import wait
        wait(X)
        # Arrays of Dask are fitted where they are.
    start = time.perf_counter()
    estimator.fit(X, y, concept=concept)
    seconds = time.perf_counter() - start
    remover = estimator if name == "JSE" else estimator.remover_
    answer = {"seconds": seconds, "removed": remover.spurious_.dim}
    if name != "JSE":
        right = np.asarray(estimator.predict(new)) == y_new
        answer["worst"] = min(float(right[(y_new == a) & (concept_new == b)].mean()) for a in (0, 1) for b in (0, 1))
    if client is not None:
        client.close()
    print(json.dumps(answer))
if __name__ == "__main__":
    work()
"""


def run(checkout: Path, job: Path, *arguments: object) -> dict[str, float]:
    """One fit in a process of its own."""
    around = {
        **os.environ,
        "PYTHONPATH": str(checkout / "src"),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-W", "ignore", str(job), *map(str, arguments)]
    done = subprocess.run(command, env=around, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{checkout}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Print one line a fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="folder of the other checkout")
    parser.add_argument("--only", default="", help="lines whose name contains this")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    job = ROOT / "build" / "against_job.py"
    job.parent.mkdir(exist_ok=True)
    job.write_text(JOB, encoding="utf-8")
    lines = [
        (f"{name}, {shape}", name, *size, "memory")
        for name in ("JSE", "RobustClassifier")
        for shape, size in SHAPES.items()
    ]
    lines.append((f"JSE, {DASK}", "JSE", 200_000, 768, "dask"))
    print(f"{'fit':<34}{'other, s':>9}{'this, s':>9}{'ratio':>7}   removed   worst group")
    for line, *arguments in lines:
        if given.only not in line:
            continue
        found = {where: [] for where in (given.checkout, ROOT)}
        for _ in range(given.repeats):
            for where, answers in found.items():
                answers.append(run(where.resolve(), job, *arguments))
        other, this = (min(answer["seconds"] for answer in answers) for answers in found.values())
        (a, *_), (b, *_) = found.values()
        worst = f"{a['worst']:.3f} {b['worst']:.3f}" if "worst" in a else ""
        print(
            f"{line:<34}{other:>9.2f}{this:>9.2f}{this / other:>7.2f}   {a['removed']} {b['removed']}       {worst}",
            flush=True,
        )


if __name__ == "__main__":
    main()
