"""Speed and memory of the core, each figure a ratio or a time within this one run.

Run with ``make bench``. Nothing here is a test: machines differ and are noisy; ratios travel better than seconds.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import scipy.optimize
from sklearn.linear_model import LogisticRegression

from unspur import JSE
from unspur._threads import one_scipy_thread
from unspur.lab.datasets import make_toy
from unspur.rows import CONCEPT, Columns, MemoryRows, Weighting
from unspur.solvers.orthogonal_pair import solve_pair
from unspur.solvers.whitening import Geometry, Whitening
from unspur.sums.counts import CellCounts
from unspur.sums.logistic import PairLoss
from unspur.sums.moments import Moments


def seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """Best of some repeats after one to warm up."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def correlated_rows(n: int, d: int, directions: int, *, seed: int = 0, agreement: float = 0.8, strength: float = 1.0):
    """float32 rows with `directions` informative axes per label and a spectrum that falls like an embedding's."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    concept = np.where(rng.random(n) < agreement, y, 1 - y)
    z = rng.standard_normal((n, d), dtype=np.float32)
    for k in range(directions):
        z[:, k] += strength * (2 * concept - 1) * 0.85**k
        z[:, directions + k] += strength * (2 * y - 1) * 0.85**k
    z *= np.linspace(3.0, 0.3, d, dtype=np.float32)
    return z, y, concept


def pair_against_two_regressions(n: int = 10_000, d: int = 768, weight_decay: float = 1e-3) -> None:
    z, y, concept = correlated_rows(n, d, 3)
    rows = MemoryRows(z, Columns.of(y, concept))
    counts = CellCounts.of(rows)
    weighting = counts.weighting(counts.without(None), "none")

    def pair():
        geometry = Geometry.of(Moments.of(rows, weighting), z.dtype.itemsize)
        return solve_pair(rows, weighting, Whitening.of(geometry, weight_decay), tol=1e-5)

    geometry = Geometry.of(Moments.of(rows, weighting), z.dtype.itemsize)
    decay = weight_decay * geometry.mean_variance
    reached = pair().outcome

    def relative_gradient(model: LogisticRegression, label: int) -> float:
        """In whitened coordinates, relative to zero weights: the measure that the pair is solved to."""
        whitening = Whitening.of(geometry, weight_decay)
        norms = []
        for scale in (1.0, 0.0):
            weights, b = np.zeros((2, d)), np.zeros(2)
            weights[label] = scale * model.coef_[0]
            b[label] = scale * (model.intercept_[0] + float(geometry.centre @ model.coef_[0]))
            sums = rows.sum(PairLoss(weights, b, geometry.centre, weighting))
            gradient = sums[3:].reshape(2, d)[label] + decay * weights[label]
            norms.append(np.hypot(np.linalg.norm(whitening.pull_back(gradient)), abs(2 * sums[1 + label])))
        return norms[0] / norms[1]

    def regressions(tol: float):
        return [LogisticRegression(C=1 / (decay * n), tol=tol, max_iter=5000).fit(z, label) for label in (concept, y)]

    for tol in (1e-4, 1e-5, 1e-6, 1e-7, 1e-8):  # its own tolerance is on another norm: tighten until ours agrees
        models = regressions(tol)
        gradients = [relative_gradient(model, label) for model, label in zip(models, (CONCEPT, 1), strict=True)]
        if max(gradients) <= 1e-5:
            break
    ours, theirs = seconds(pair), seconds(lambda: regressions(tol))
    print(
        f"one pair, n = {n:,}, d = {d}: {ours:.2f} s with moments and whitening, {reached.evaluations} evaluations, "
        f"relative gradient {reached.gradient:.0e}"
    )
    print(
        f"two scikit-learn regressions, same λ, relative gradients {gradients[0]:.0e} and {gradients[1]:.0e}: {theirs:.2f} s"
    )
    print(f"  ratio {ours / theirs:.2f}   (goal: at most 1.5)\n")


def one_evaluation(n: int = 100_000, d: int = 768) -> None:
    z, y, concept = correlated_rows(n, d, 3)
    rows = MemoryRows(z, Columns.of(y, concept))
    loss = PairLoss(np.full((2, d), 1e-3), np.zeros(2), np.zeros(d), Weighting(np.full(4, 1.0 / n)))
    target = np.empty_like(z)
    np.copyto(target, z)
    evaluation, copy = seconds(lambda: rows.sum(loss)), seconds(lambda: np.copyto(target, z))
    print(
        f"one evaluation of both losses and gradients, n = {n:,}, d = {d}: {1e3 * evaluation:.0f} ms, "
        f"{evaluation / copy:.1f} × a copy of Z\n"
    )


def toy_fit() -> None:
    toy = make_toy(2000, rho=0.9, random_state=0)
    fixed = JSE(cv=None, weight_decay=0.01, random_state=0)
    spent = seconds(lambda: fixed.fit(toy.Z, toy.y, concept=toy.concept), repeats=20)
    print(f"Toy fit (n = 2000, d = 20, held-out split, fixed weight decay): {1e3 * spent:.0f} ms   (goal: under 50)")
    default = JSE(random_state=0)
    spent = seconds(lambda: default.fit(toy.Z, toy.y, concept=toy.concept), repeats=5)
    print(f"Toy fit, defaults (5 folds, weight decay chosen): {1e3 * spent:.0f} ms\n")


def many_directions(n: int = 4000, d: int = 300) -> None:
    z, y, concept = correlated_rows(n, d, 14, strength=0.7)
    jse = JSE(cv=None, weight_decay=0.1, max_spurious=10, max_main=10, random_state=0)
    spent = seconds(lambda: jse.fit(z, y, concept=concept), repeats=2)
    pairs = sum(step.inner > 0 for step in jse.trace_)
    print(
        f"many directions, n = {n:,}, d = {d}: {jse.spurious_.dim} spurious, {jse.main_.dim} main, {pairs} pairs in "
        f"{spent:.2f} s, {1e3 * spent / pairs:.1f} ms a pair   (goal: about a second; the authors' program: 160–180 s)\n"
    )


def memory(n: int = 100_000, d: int = 768) -> None:
    z, y, concept = correlated_rows(n, d, 3)
    tracemalloc.start()
    JSE(cv=None, weight_decay=0.01, max_spurious=1, random_state=0).fit(z, y, concept=concept)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(
        f"peak memory above Z, n = {n:,}, d = {d}, float32: {peak / 1e6:.1f} MB, {peak / z.nbytes:.3f} of Z   (goal: 0.1)\n"
    )


def thread_pools() -> None:
    """Why `one_scipy_thread` exists: the same optimisation with and without it."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((4000, 300), dtype=np.float32)

    def objective(x):
        t = z @ x.astype(np.float32)
        return float(t @ t) / 2 + float(np.sum(np.cosh(x))), (t @ z).astype(np.float64) + np.sinh(x)

    def minimise():
        scipy.optimize.minimize(objective, np.ones(300), jac=True, method="L-BFGS-B", options={"maxiter": 100})

    plain = seconds(minimise)
    with one_scipy_thread():
        limited = seconds(minimise)
    print(
        f"L-BFGS on a product with Z, SciPy's threads left alone {1e3 * plain:.0f} ms, limited to one {1e3 * limited:.0f} ms\n"
    )


BENCHMARKS = [toy_fit, many_directions, pair_against_two_regressions, one_evaluation, memory, thread_pools]

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    names = {benchmark.__name__: benchmark for benchmark in BENCHMARKS}
    parser.add_argument("only", nargs="*", choices=[[], *names], help="names of benchmarks (all)")
    for name in parser.parse_args().only or names:
        names[name]()
