"""How fast fits are: against a copy, against peers as rows and features grow, and with many directions on real birds.

    python benchmarks/speed.py evaluation scaling                    # 6 GB of memory, a quarter of an hour on two cores
    python benchmarks/speed.py birds --embeddings unspur-embeddings  # needs the store of reproduction/docs/datasets.md

Every part writes `benchmarks/results/PART.json`; `benchmarks/speed_page.py` makes the page from these. Machines are
noisy: what counts are ratios within one run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from concept_erasure import LeaceFitter
from sklearn.linear_model import LogisticRegression

from bench import correlated_rows, seconds
from unspur import JSE, LEACE, SAL, RobustClassifier
from unspur.rows import MemoryRows, RowLabels
from unspur.solvers.logistic import LogisticLosses
from unspur_paper.experiments.draws import draw
from unspur_paper.experiments.registry import DATASETS

RESULTS = Path(__file__).parent / "results"


def evaluation(given: argparse.Namespace) -> dict[str, Any]:
    """Loss and gradient of both labels, in one track and in the six of five folds, beside a copy of the rows."""
    n, d = given.rows, 768
    z, y, concept = correlated_rows(n, d, 3)
    rows = MemoryRows(z, RowLabels.of(y, concept))
    target = np.empty_like(z)
    np.copyto(target, z)  # touched
    tracks = {}
    for t in (1, 6):
        statistic = LogisticLosses(
            np.full((t, 2, d), 1e-3), np.zeros((t, 2)), np.arange(2), np.full((t, 4), 1.0 / n), np.zeros(d)
        )
        # In turn, so that a slow moment of the machine is one of both.
        times = [
            (seconds(lambda: np.copyto(target, z), 1), seconds(lambda s=statistic: rows.sum(s), 1)) for _ in range(5)
        ]
        copy, ours = np.median(times, axis=0)
        tracks[t] = {"copy": float(copy), "evaluation": float(ours), "ratio": float(ours / copy)}
    return {"n": n, "d": d, "dtype": "float32", "tracks": tracks}


def _leace(z: np.ndarray, y: np.ndarray, concept: np.ndarray) -> object:
    del y
    fitter = LeaceFitter(z.shape[1], 1, dtype=torch.float32)
    fitter.update(torch.from_numpy(z), torch.from_numpy(concept)[:, None])
    return fitter.eraser


def _regression(z: np.ndarray, y: np.ndarray, concept: np.ndarray) -> object:
    del concept
    return LogisticRegression(max_iter=1000).fit(z, y)


def _jse(**parameters: object) -> Callable[[np.ndarray, np.ndarray, np.ndarray], object]:
    return lambda z, y, concept: JSE(random_state=0, **parameters).fit(z, y, concept=concept)


METHODS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], object]] = {
    "JSE, one direction each, rows held out once": _jse(cv=0.2, penalty=0.1, max_spurious=1, max_main=1),
    "JSE, defaults": _jse(),
    "JSE, metric=0": _jse(metric=0.0),
    "LEACE of concept-erasure": _leace,
    "LogisticRegression of scikit-learn": _regression,
}


def scaling(given: argparse.Namespace) -> dict[str, Any]:
    """Seconds of one fit by n and d, float32 rows with one direction for each label."""
    points = []
    for d in (8, 20, 96, 768, 4096):
        for n in (1000, 10_000, 100_000, 1_000_000, 5_000_000, 10_000_000):
            if n * d > given.most or n < d // 4 or (n == 5_000_000 and d > 8):
                continue
            z, y, concept = correlated_rows(n, d, 1)
            z /= np.geomspace(10.0, 0.1, d, dtype=np.float32)  # as scikit-learn's default penalty expects
            for name, fit in METHODS.items():
                spent = _once_or_more(lambda fit=fit, z=z, y=y, c=concept: fit(z, y, c))
                points.append({"method": name, "n": n, "d": d, "seconds": spent})
                print(f"n = {n:,}, d = {d}: {name} {spent:.3f} s", flush=True)
    return {"points": points, "exponents": {name: _exponents(points, name) for name in METHODS}}


def wide(given: argparse.Namespace) -> dict[str, Any]:  # noqa: ARG001
    """Seconds of one fit of 500 rows by d, beside a full principal component analysis."""
    from sklearn.decomposition import PCA

    n, points = 500, []
    methods = {
        "JSE, defaults": METHODS["JSE, defaults"],
        "RobustClassifier": lambda z, y, c: RobustClassifier(random_state=0).fit(z, y, concept=c),
        "LEACE": lambda z, y, c: LEACE().fit(z, y, concept=c),
        "SAL": lambda z, y, c: SAL().fit(z, y, concept=c),
        "LEACE of concept-erasure": METHODS["LEACE of concept-erasure"],
        "LogisticRegression of scikit-learn": METHODS["LogisticRegression of scikit-learn"],
        "PCA of scikit-learn": lambda z, y, c: PCA().fit(z),  # noqa: ARG005
    }
    for d in (1000, 4000, 20_000):
        z, y, concept = correlated_rows(n, d, 1)
        for name, fit in methods.items():
            if name == "LEACE of concept-erasure" and d > 4000:  # d × d matrices
                continue
            spent = _once_or_more(lambda fit=fit, z=z, y=y, c=concept: fit(z, y, c))
            points.append({"method": name, "n": n, "d": d, "seconds": spent})
            print(f"n = {n:,}, d = {d}: {name} {spent:.3f} s", flush=True)
    return {"points": points}


def _once_or_more(call: Callable[[], object]) -> float:
    """Seconds of one call; of what is quick, the best of some after one to warm up."""
    start = time.perf_counter()
    call()
    spent = time.perf_counter() - start
    return spent if spent > 20 else min(spent, seconds(call, 1 if spent > 3 else 3))


def _exponents(points: list[dict[str, Any]], method: str) -> dict[str, Any]:
    """Least squares of log t = a + α log n + β log d over points that take more than a twentieth of a second."""
    own = [p for p in points if p["method"] == method and p["seconds"] > 0.05]
    if len(own) < 4:
        return {}
    design = np.array([[1.0, math.log(p["n"]), math.log(p["d"])] for p in own])
    (_, alpha, beta), *_ = np.linalg.lstsq(design, np.log([p["seconds"] for p in own]), rcond=None)
    return {"n": float(alpha), "d": float(beta), "points": len(own)}


def birds(given: argparse.Namespace) -> dict[str, Any]:
    """Default fits on frozen real birds at agreement 0.9, judged on validation rows and cross-fitted."""
    fits = []
    for run in range(given.draws):
        for balance in ("group", "concept"):
            for judged in ("validation rows", "five folds"):
                sample, beside = _birds(given.embeddings, run, judged)
                jse = JSE(random_state=0, balance=balance)
                spent = seconds(
                    lambda jse=jse, s=sample, b=beside: jse.fit(s.Z, s.y, concept=s.concept, **b), given.repeats
                )
                pairs = sum(step.inner > 0 for step in jse.trace_)
                fits.append(
                    {
                        "draw": run,
                        "balance": balance,
                        "judged": judged,
                        "seconds": spent,
                        "pairs": pairs,
                        "evaluations": sum(step.evaluations for step in jse.trace_ if step.inner > 0),
                        "tried": len(jse.trace_.penalty_scores),
                        "penalty": jse.trace_.penalty,
                        "n": len(sample.Z),
                        "d": sample.Z.shape[1],
                        "spurious": jse.spurious_.dim,
                        "main": jse.main_.dim,
                    }
                )
                print(fits[-1], flush=True)
    return {"fits": fits}


def _birds(embeddings: Path, run: int, judged: str) -> tuple[Any, dict[str, Any]]:
    settings = {key: setting.default for key, setting in DATASETS["waterbirds"].items()}
    chosen = draw({**settings, "name": "waterbirds", "encoder": "efficientnet-lite0", "p": 0.9}, run, embeddings)
    val = chosen.validation
    beside = {"X_val": val.Z, "y_val": val.y, "concept_val": val.concept} if judged == "validation rows" else {}
    return chosen.train, beside


#: A process that keeps one core busy, and one that times default fits of rows as MiniLM embeds them.
BUSY = "import numpy as np\nx = np.ones((300, 300))\nwhile True:\n    x = x @ x / 300"
TIMED = """
import statistics, sys, time
sys.path[:0] = {paths}
from bench import correlated_rows
from unspur import JSE
z, y, concept = correlated_rows(1438, 384, 3)
def fit():
    start = time.perf_counter()
    JSE(random_state=0).fit(z, y, concept=concept)
    return time.perf_counter() - start
fit()
print(statistics.median(fit() for _ in range(5)))
"""


def threads(given: argparse.Namespace) -> dict[str, Any]:  # noqa: ARG001
    """Default fits with the threads that a process has by itself, and with one, beside other work on all cores."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    free = {name: value for name, value in os.environ.items() if name not in one}
    lines = []
    for busy in (0, os.cpu_count() or 1, 2 * (os.cpu_count() or 1)):
        with _neighbours(busy, {**free, **one}):
            # In turn, so that a slow moment of the machine is one of both.
            times = [(_timed(free), _timed({**free, **one})) for _ in range(5)]
        default, single = (statistics.median(part) for part in zip(*times, strict=True))
        lines.append({"busy": busy, "default": default, "one_thread": single, "ratio": default / single})
        print(lines[-1], flush=True)
    return {"n": 1438, "d": 384, "lines": lines}


def _timed(environment: dict[str, str]) -> float:
    program = TIMED.format(paths=[str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=environment, stdout=subprocess.PIPE, check=True
    )
    return float(done.stdout)


@contextmanager
def _neighbours(number: int, environment: dict[str, str]) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", BUSY], env=environment) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def startup(given: argparse.Namespace) -> dict[str, Any]:  # noqa: ARG001
    """Seconds from the shell to the help of a verb; best of five."""
    verbs = {}
    for verb in ("fit", "compare", "report", "embed", "audit"):
        command = [sys.executable, "-m", "unspur", verb, "--help"]
        verbs[verb] = seconds(lambda c=command: subprocess.run(c, stdout=subprocess.DEVNULL, check=True), 5)
        print(verb, verbs[verb], flush=True)
    return {"seconds": verbs}


PARTS = {part.__name__: part for part in (evaluation, scaling, wide, birds, threads, startup)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of `evaluation`")
    parser.add_argument("--most", type=int, default=800_000_000, help="most numbers of an array of `scaling`")
    parser.add_argument("--embeddings", type=Path, default=Path("unspur-embeddings"))
    parser.add_argument("--draws", type=int, default=3, help="draws of `birds`")
    parser.add_argument("--repeats", type=int, default=5, help="of each fit of `birds`; the best counts")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    given.output.mkdir(parents=True, exist_ok=True)
    for name in given.parts:
        measured = {"cores": os.cpu_count(), "numpy": np.__version__, **PARTS[name](given)}
        (given.output / f"{name}.json").write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
        if name == "evaluation":
            print(json.dumps(measured["tracks"]))
