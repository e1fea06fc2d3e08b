"""Speed and memory of the core, each figure a ratio or a time within this one run; for the last table of reproduction/docs/speed.md.

Run with ``make bench``. Nothing here is a test: machines differ and are noisy; ratios travel better than seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import scipy.optimize
import sklearn
import torch
from concept_erasure import LeaceFitter
from sklearn.linear_model import LogisticRegression

from unspur import JSE, LEACE
from unspur._resources import one_blas_thread
from unspur._typing import FloatArray
from unspur.datasets import make_toy
from unspur.rows import MemoryRows, RowLabels
from unspur.solvers.coordinates import Geometry
from unspur.solvers.orthogonal_pair import (
    CURVATURE_AT_ZERO,
    Pair,
    PairLosses,
    PairModel,
    PairSpace,
    Spectrum,
    solve_pairs,
)
from unspur.solvers.statistics import CellCounts


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table."""

    name: str
    measured: str
    goal: str = ""


def seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """Best of some repeats after one to warm up."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def correlated_rows(n: int, d: int, directions: int, *, strength: float = 1.0, seed: int = 0) -> tuple[FloatArray, ...]:
    """float32 rows with `directions` informative axes per label, anywhere on a spectrum that falls like an embedding's.

    The labels agree in four rows of five.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    concept = np.where(rng.random(n) < 0.8, y, 1 - y)
    z = rng.standard_normal((n, d), dtype=np.float32)
    axes = rng.permutation(d)[: 2 * directions]
    z[:, axes[::2]] += strength * (2 * concept - 1)[:, None]
    z[:, axes[1::2]] += strength * (2 * y - 1)[:, None]
    z *= np.geomspace(10.0, 0.1, d, dtype=np.float32)
    return z, y, concept


def pair_against_two_regressions(n: int = 10_000, d: int = 768, penalty: float = 1e-3) -> list[Figure]:
    """The pair is solved to the gradient that the regressions reach, in the same norm."""
    z, y, concept = correlated_rows(n, d, 3)
    rows = MemoryRows(z, RowLabels.of(y, concept))
    counts = CellCounts.of(rows)
    weighting = counts.weighting(counts.without(None), "none")
    space = PairSpace.of(Spectrum.of(Geometry.of_rows(rows, weighting)), penalty)
    spectrum, model = space.spectrum, PairModel(space, np.full(2, CURVATURE_AT_ZERO))
    losses = PairLosses(rows, spectrum, (weighting,))

    def gradient_norm(models: list[LogisticRegression]) -> float:
        """Of both losses with decay, under the inverse Hessian at zero."""
        both, b = np.zeros((2, d)), np.zeros(2)
        for label, fitted in enumerate(models):
            both[label], b[label] = fitted.coef_[0], fitted.intercept_[0] + spectrum.centre @ fitted.coef_[0]
        x = np.concatenate([space.project(spectrum.unit * (both @ spectrum.axes)).ravel(), b])
        gradient = losses(x[None], [0])[1][0]
        gradient[:-2] += space.decay * x[:-2]
        return float(np.sqrt(gradient @ model.solve(gradient)))

    def regressions(tol: float) -> list[LogisticRegression]:
        C = 1 / (space.decay * spectrum.unit**2 * n)
        return [LogisticRegression(C=C, tol=tol, max_iter=5000).fit(z, label) for label in (concept, y)]

    def reached(tol: float) -> float:
        """Gradient of the two regressions together, relative to zero weights."""
        return gradient_norm(regressions(tol)) / gradient_norm([])

    def pair(tol: float) -> Pair:
        """All that it takes, from the rows: moments, coordinates, start, solution."""
        geometry = Geometry.of_rows(rows, weighting)
        space = PairSpace.of(Spectrum.of(geometry), penalty)
        losses = PairLosses(rows, space.spectrum, (weighting,))
        return solve_pairs(losses, [space], losses.at_zero(), tol=tol)[0]

    figures = []
    for tol in (1e-4, 1e-6):
        gradient = reached(tol)
        ours, theirs = seconds(lambda gradient=gradient: pair(gradient)), seconds(lambda tol=tol: regressions(tol))
        name = f"one pair / two `LogisticRegression(tol={tol:g})`, n = {n:,}, d = {d}, both to a relative gradient of {gradient:.0e}"
        figures.append(Figure(name, f"{ours:.2f} s / {theirs:.2f} s = {ours / theirs:.2f}", "≤ 1.5"))
        with one_blas_thread():
            theirs = seconds(lambda tol=tol: regressions(tol))
        name = "the same, with scikit-learn given our remedy for the two thread pools (last line)"
        figures.append(Figure(name, f"{ours:.2f} s / {theirs:.2f} s = {ours / theirs:.2f}", "≤ 1.5"))
    return figures


def toy_fit() -> list[Figure]:
    toy = make_toy(2000, rho=0.9, random_state=0)

    def fit(**parameters: object) -> str:
        jse = JSE(random_state=0, **parameters)
        return f"{1e3 * seconds(lambda: jse.fit(toy.Z, toy.y, concept=toy.concept), repeats=20):.0f} ms"

    return [
        Figure("Toy fit, n = 2,000, d = 20, held-out split, fixed penalty", fit(cv=0.2, penalty=0.01), "< 50 ms"),
        Figure("Toy fit, defaults (five folds, penalty chosen)", fit()),
    ]


def ten_directions(n: int = 4000, d: int = 300) -> list[Figure]:
    z, y, concept = correlated_rows(n, d, 14, strength=0.5)
    jse = JSE(cv=0.2, penalty=0.01, max_spurious=10, max_main=10, random_state=0)
    spent = seconds(lambda: jse.fit(z, y, concept=concept))
    pairs = sum(step.inner > 0 for step in jse.trace_)
    name = f"{jse.spurious_.dim} spurious and {jse.main_.dim} main-task directions, n = {n:,}, d = {d}: {pairs} pairs"
    return [Figure(name, f"{spent:.2f} s, {1e3 * spent / pairs:.0f} ms a pair", "about 1 s")]


def leace_and_its_peer(n: int, d: int, repeats: int) -> tuple[float, float]:
    """Seconds of ours and of `concept-erasure`, which gets torch tensors; both on float32 rows."""
    z, _, concept = correlated_rows(n, d, 3)
    tensor, column = torch.from_numpy(z), torch.from_numpy(concept)[:, None]

    def peer() -> object:
        fitter = LeaceFitter(d, 1, dtype=torch.float32)
        fitter.update(tensor, column)
        return fitter.eraser

    return seconds(lambda: LEACE().fit(z, concept=concept), repeats), seconds(peer, repeats)


def erasers() -> list[Figure]:
    figures = []
    for n, d, repeats, goal in ((50_000, 768, 3, "≤ 1"), (10_000, 4096, 1, "≤ 0.33")):
        ours, theirs = leace_and_its_peer(n, d, repeats)
        measured = f"{ours:.2f} s / {theirs:.2f} s = {ours / theirs:.2f}"
        figures.append(Figure(f"LEACE / `concept-erasure`, n = {n:,}, d = {d:,}", measured, goal))
    for directions, goal in ((1, "≤ 5"), (3, "")):
        z, y, concept = correlated_rows(50_000, 768, directions)
        jse = JSE(cv=0.2, penalty=0.1, random_state=0)
        ours = seconds(lambda jse=jse, z=z, y=y, c=concept: jse.fit(z, y, concept=c), 2)
        theirs = seconds(lambda z=z, c=concept: LEACE().fit(z, concept=c))
        name = f"JSE (held-out split) / LEACE, n = 50,000, d = 768, {jse.spurious_.dim} + {jse.main_.dim} directions"
        figures.append(Figure(name, f"{ours:.2f} s / {theirs:.2f} s = {ours / theirs:.1f}", goal))
    return figures


def thread_pools() -> list[Figure]:
    """Why `one_blas_thread` exists: the same optimisation with and without it."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((4000, 300), dtype=np.float32)

    def objective(x: FloatArray) -> tuple[float, FloatArray]:
        t = z @ x.astype(np.float32)
        return float(t @ t) / 2 + float(np.sum(np.cosh(x))), (t @ z).astype(np.float64) + np.sinh(x)

    def minimise() -> None:
        scipy.optimize.minimize(objective, np.ones(300), jac=True, method="L-BFGS-B", options={"maxiter": 100})

    plain = seconds(minimise)
    with one_blas_thread():
        limited = seconds(minimise)
    name = "L-BFGS on a product with Z: SciPy's own BLAS threads left alone / limited to one"
    return [Figure(name, f"{1e3 * plain:.0f} ms / {1e3 * limited:.0f} ms = {plain / limited:.1f}")]


BENCHMARKS = [
    toy_fit,
    ten_directions,
    pair_against_two_regressions,
    erasers,
    thread_pools,
]

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    names = {benchmark.__name__: benchmark for benchmark in BENCHMARKS}
    parser.add_argument("only", nargs="*", choices=[[], *names], help="names of benchmarks (all, and keep the figures)")
    only = parser.parse_args().only
    figures = []
    for name in only or names:
        for figure in names[name]():
            figures.append(figure)
            print(
                f"{figure.name}: {figure.measured}" + (f"   (goal: {figure.goal})" if figure.goal else ""), flush=True
            )
    if not only:
        versions = f"NumPy {np.__version__}, SciPy {scipy.__version__}, scikit-learn {sklearn.__version__}"
        measured = {"cores": os.cpu_count(), "versions": versions, "figures": [asdict(figure) for figure in figures]}
        output = Path(__file__).parent / "results" / "core.json"
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
