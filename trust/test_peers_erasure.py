"""What the tests of `concept-erasure` (EleutherAI) assert, restated for our removers on random problems.

Each of its properties has a line: statistics in parts, agreement of the eraser, equal class means, classifiers that
learn nothing, least change, not better than an oracle that sees the labels, idempotence, rank, mean, kinds of labels.

Without a counterpart here:

- erasers without a bias term (``affine=False``): ours are affine, and keep the mean
- shrunken covariances: rows of deficient rank are whitened on their range instead, which is tried below
- quadratic erasure, optimal transport, square roots of matrices: only what is linear is removed here
- an eraser that needs the labels of new rows (``OracleEraser``): here it is the yardstick, not a remover
- scrubbing of language models layer by layer: removals go into networks with `unspur.surgery`, tested there
- running quantiles, grouping of tensors: no such tools
"""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from unspur import INLP, LEACE, RLACE, SAL, SPLINCE
from unspur.exceptions import LabelError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of torch, which the peer still uses
    from concept_erasure import LeaceFitter, OracleFitter

PART = "peers: concept-erasure"
CLOSED = (LEACE, SAL, SPLINCE)


@pytest.fixture(autouse=True)
def _one_thread():
    with threadpool_limits(1):
        yield


def problem(seed, classes=None, n=None, d=None):
    """Rows with correlated columns far from zero, whose means differ by concept and by a task of two classes."""
    rng = np.random.default_rng(seed)
    classes = classes or int(rng.choice([2, 2, 3, 5, 10]))
    d = d or int(rng.integers(classes + 2, 25))
    n = n or int(rng.integers(20 * classes, 600))
    concept = rng.permutation(np.arange(n) % classes)
    y = rng.permutation(np.arange(n) % 2)
    z = rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) * np.exp(rng.uniform(-3, 3)) + rng.uniform(-5, 5)
    spread = z.std()
    z += spread * (rng.standard_normal((classes, d))[concept] + rng.standard_normal((2, d))[y])
    return z, y, concept


def peer(z, concept, method="leace", fitter=LeaceFitter):
    """The eraser of the peer, without its shrinkage and its absolute tolerance."""
    columns = np.eye(concept.max() + 1)[concept]
    options = {} if fitter is OracleFitter else {"method": method, "constrain_cov_trace": False}
    fitted = fitter(z.shape[1], columns.shape[1], dtype=torch.float64, shrinkage=False, svd_tol=1e-10, **options)
    return fitted.update(torch.tensor(z), torch.tensor(columns)).eraser


def digits(ours, theirs):
    """Decimal digits in which two arrays agree, relative to the largest number."""
    error = np.abs(ours - theirs).max() / np.abs(theirs).max()
    return 16.0 if error == 0 else float(-np.log10(error))


def means(z, labels):
    return np.array([z[labels == c].mean(axis=0) for c in np.unique(labels)])


def covariance(z, labels):
    """Cov(z, indicators), shape (d, classes)."""
    return (z - z.mean(axis=0)).T @ np.eye(labels.max() + 1)[labels] / len(z)


def test_erasers_agree(tally, effort):
    """LEACE with their LEACE and SAL with their orthogonal one, on the rows of the fit and on others."""
    for method, name in ((LEACE, "leace"), (SAL, "orth")):
        line, worst = tally(f"{method.__name__} is the peer's {name!r}: digits in common"), []
        for seed in range(effort.times(75, 1000)):
            z, _, concept = problem(seed)
            fresh = z[::-1] * 1.1 + 0.3
            ours, theirs = method().fit(z, concept=concept), peer(z, concept, name)
            agreed = min(digits(ours.transform(x), theirs(torch.tensor(x)).numpy()) for x in (z, fresh))
            worst.append(agreed)
            line.trial(agreed > 8)
        other = digits((SAL if method is LEACE else LEACE)().fit(z, concept=concept).transform(z), ours.transform(z))
        line.figure = f"worst {min(worst):.1f}, median {np.median(worst):.1f}"
        line.data = {"worst": min(worst), "median": float(np.median(worst)), "another method": other}
        assert line.all_survived, line.figure
        assert other < 4


def test_class_means_are_equal_and_the_mean_is_kept(tally, effort):
    """Also: nothing is left to remove, and what is taken out has no more directions than classes less one."""
    lines = {
        what: tally(what)
        for what in (
            "class means are equal after, not before",
            "the mean of all rows is kept",
            "erasing twice is erasing once",
            "no more directions than classes less one",
        )
    }
    for seed in range(effort.times(40, 300)):
        z, y, concept = problem(seed)
        for method in CLOSED:
            remover = method().fit(z, y, concept=concept)
            clean = remover.transform(z)
            scale = z.std()
            before, after = (np.ptp(means(x, concept), axis=0).max() / scale for x in (z, clean))
            lines["class means are equal after, not before"].trial(after < 1e-8 < 0.05 < before)
            lines["the mean of all rows is kept"].trial(
                np.allclose(clean.mean(axis=0), z.mean(axis=0), atol=1e-9 * scale)
            )
            lines["erasing twice is erasing once"].trial(np.abs(remover.transform(clean) - clean).max() < 1e-7 * scale)
            values = np.linalg.svd(z - clean, compute_uv=False)
            rank = int(np.sum(values > 1e-8 * values[0]))
            lines["no more directions than classes less one"].trial(rank == concept.max())
    for what, line in lines.items():
        assert line.all_survived, what


def test_classifiers_learn_nothing(tally, effort):
    """Logistic regression and a linear SVM on the erased rows have no slopes; on the rows as they are they have."""
    line, largest, least = tally("logistic regression and linear SVM have no slopes"), 0.0, np.inf
    for seed in range(effort.times(4, 40)):
        z, y, concept = problem(seed, classes=(2, 3, 5, 2)[seed % 4], n=400, d=8)
        for method in CLOSED:
            clean = method().fit(z, y, concept=concept).transform(z)
            slopes = []
            for rows, penalty in ((z, 1.0), (clean, np.inf)):  # classes that can be told apart have no minimum else
                rows = (rows - rows.mean(axis=0)) / z.std()
                logistic = LogisticRegression(C=penalty, tol=1e-10, max_iter=10_000).fit(rows, concept)
                svm = LinearSVC(dual=False, intercept_scaling=1e4, tol=1e-8, max_iter=10_000).fit(rows, concept)
                slopes.append((np.abs(logistic.coef_).max(), np.abs(svm.coef_).max()))
            line.trial(max(slopes[1]) < 1e-5 and min(slopes[0]) > 0.01)
            largest, least = max(largest, *slopes[1]), min(least, *slopes[0])
    line.figure = f"largest {largest:.0e} after, {least:.2f} or more before"
    assert line.all_survived, line.figure


def test_no_other_map_changes_rows_less(tally, effort):
    """LEACE changes rows least in any inner product at once; SPLINCE among maps that keep the task; SAL does not.

    All maps ``P`` with ``P A = 0`` are ``P₀ + D (I − A A⁺)``, so that competitors are drawn from all there are.
    The peer looks at the gradient instead; it is looked at as well.
    """
    line, gradient = tally("random competitors change rows more, in any norm"), tally("gradient of the change is zero")
    caught = 0
    for seed in range(effort.times(60, 500)):
        z, y, concept = problem(seed)
        rng, sigma = np.random.default_rng(seed), np.cov(z.T)
        d = len(sigma)
        unit = np.eye(d)
        for method in CLOSED:
            p = method().fit(z, y, concept=concept).removal_.matrix().T
            a = covariance(z, concept)
            fixed = np.hstack([a, covariance(z, y)]) if method is SPLINCE else a
            basis = np.linalg.svd(fixed / np.linalg.norm(fixed, axis=0), full_matrices=False)
            basis = basis[0][:, basis[1] > 1e-9]
            free = unit - basis @ basis.T  # D @ free leaves what is done to `fixed` as it is
            root = rng.standard_normal((d, d))
            norm = root @ root.T

            def change(q, norm=norm, sigma=sigma, unit=unit):
                return float(np.trace(norm @ (q - unit) @ sigma @ (q - unit).T))

            slope = norm @ (p - unit) @ sigma @ free
            flat = np.linalg.norm(slope) / (np.linalg.norm(norm) * np.linalg.norm((p - unit) @ sigma))
            if method is SAL:
                caught += flat > 1e-3
                continue
            gradient.trial(flat < 1e-9)
            for size in (1e-3, 0.1, 1.0):
                line.trial(change(p + size * rng.standard_normal((d, d)) @ free) > change(p))
    gradient.figure = f"not so for SAL, as it should be: {caught} of {effort.times(60, 500)}"
    assert line.all_survived
    assert gradient.all_survived
    assert caught > 0.95 * effort.times(60, 500)


def test_not_better_than_an_oracle(tally, effort):
    """An eraser that is shown the labels of the rows it erases changes them less still."""
    line, ratios = tally("an eraser that sees the labels changes rows less"), []
    for seed in range(effort.times(60, 500)):
        z, _, concept = problem(seed)
        oracle = peer(z, concept, fitter=OracleFitter)
        ideal = oracle(torch.tensor(z), torch.tensor(np.eye(concept.max() + 1)[concept])).numpy()
        assert np.ptp(means(ideal, concept), axis=0).max() < 1e-6 * z.std()  # the yardstick does what it should
        ours, best = (np.mean((x - z) ** 2) for x in (LEACE().fit(z, concept=concept).transform(z), ideal))
        line.trial(best <= ours * (1 + 1e-9))
        ratios.append(ours / best)
    line.figure = f"by a factor of {np.median(ratios):.1f} in the median"
    assert line.all_survived


def test_rows_in_parts_are_all_rows(tally, effort):
    """Updates, merges and one fit give one eraser; each update counts."""
    line, worst = tally("updates, merges and one fit agree: digits"), []
    for seed in range(effort.times(20, 300)):
        z, _, concept = problem(seed)
        whole = LEACE().fit(z, concept=concept).transform(z)
        parts = np.array_split(np.random.default_rng(seed).permutation(len(z)), 5)
        known = tuple(range(concept.max() + 1))
        step, steps, apart = LEACE(), [], []
        for part in parts:
            step.partial_fit(z[part], concept=concept[part], concept_classes=known)
            steps.append(step.transform(z))
            apart.append(LEACE().partial_fit(z[part], concept=concept[part], concept_classes=known))
        merged = apart[0]
        for other in apart[1:]:
            merged = merged.merge(other)
        agreed = min(digits(steps[-1], whole), digits(merged.transform(z), whole))
        moved = all(digits(one, two) < 6 for one, two in pairwise(steps))
        worst.append(agreed)
        line.trial(agreed > 9 and moved)
    line.figure = f"worst {min(worst):.1f}, median {np.median(worst):.1f}"
    assert line.all_survived, line.figure


def test_ways_to_write_rows_and_labels_down(tally, effort):
    """Codes, names and one column of indicators a class are one concept; arrays and tensors of any type are one Z."""
    labels, rows = tally("codes, names and indicators are one concept"), tally("arrays and tensors of any type agree")
    for seed in range(effort.times(12, 200)):
        z, _, concept = problem(seed)
        names = np.array([f"class {c}" for c in range(concept.max() + 1)])[concept]
        indicators = np.eye(concept.max() + 1, dtype=int)[concept]
        whole = LEACE().fit(z, concept=concept).transform(z)
        for same in (names, pd.Series(names, dtype="category"), indicators, torch.tensor(concept)):
            labels.trial(digits(LEACE().fit(z, concept=same).transform(z), whole) > 9)
        numbers = LEACE(concept_type="continuous").fit(z, concept=indicators[:, 1:]).transform(z)
        labels.trial(digits(numbers, whole) > 9)
        for same, least in (
            (torch.tensor(z), 9.0),
            (np.asfortranarray(z), 9.0),
            (pd.DataFrame(z), 9.0),
            (z.astype(np.float32), 3.0),
            (torch.tensor(z, dtype=torch.float32), 3.0),
        ):
            clean = LEACE().fit(same, concept=concept).transform(same)
            kept = type(clean) is torch.Tensor if isinstance(same, torch.Tensor) else True
            rows.trial(kept and digits(np.asarray(clean, dtype=np.float64), whole) > least)
    assert labels.all_survived
    assert rows.all_survived


def test_units_do_not_matter(tally, effort):
    """Erasing after any change of units and axes is the change after erasing, for LEACE; for SAL after a rotation."""
    line, control = tally("erasing goes with any change of axes and units"), 0
    for seed in range(effort.times(40, 300)):
        z, _, concept = problem(seed)
        rng, d = np.random.default_rng(seed), z.shape[1]
        stretch = rng.standard_normal((d, d)) * np.exp(rng.uniform(-2, 2, size=d))
        rotation, shift = np.linalg.qr(rng.standard_normal((d, d)))[0], rng.standard_normal(d)
        for method, change in ((LEACE, stretch), (LEACE, rotation), (SAL, rotation)):
            before = method().fit(z, concept=concept).transform(z) @ change + shift
            moved = z @ change + shift
            line.trial(digits(method().fit(moved, concept=concept).transform(moved), before) > 6)
        moved = z @ stretch
        sal = SAL().fit(z, concept=concept).transform(z) @ stretch
        control += digits(SAL().fit(moved, concept=concept).transform(moved), sal) < 3
    assert line.all_survived
    assert control > 0.9 * effort.times(40, 300)


def test_rows_of_deficient_rank(tally, effort):
    """Copies of columns, constant ones, fewer rows than columns: means are equal after, and nothing blows up."""
    line = tally("rows of deficient rank: means equal, nothing blown up")
    for seed in range(effort.times(30, 200)):
        z, _, concept = problem(seed, classes=2 + seed % 2)
        rng = np.random.default_rng(seed)
        doubled = np.column_stack([z, z[:, :2], np.ones((len(z), 1)), z @ rng.standard_normal((z.shape[1], 2))])
        wide = rng.standard_normal((40, 100)) + np.outer(concept[:40], rng.standard_normal(100))
        for rows, labels in ((doubled, concept), (wide, concept[:40])):
            for method in (LEACE, SAL):
                clean = method().fit(rows, concept=labels).transform(rows)
                apart = np.ptp(means(clean, labels), axis=0).max() / rows.std()
                line.trial(
                    apart < 1e-7
                    and np.abs(clean - rows.mean(axis=0)).max() < 20 * np.abs(rows - rows.mean(axis=0)).max()
                )
    assert line.all_survived


def test_a_constant_concept_is_an_error(tally, effort):
    """There is nothing to erase, and saying so beats the identity."""
    line = tally("a constant concept is an error in words")
    z, y, _ = problem(0)
    for method in (*CLOSED, INLP, RLACE):
        for constant in (np.zeros(len(z), dtype=int), np.full(len(z), "a")):
            with pytest.raises(LabelError, match="one class"):
                method().fit(z, y, concept=constant)
            line.trial()
    assert line.all_survived


def test_projections_that_are_searched_for(tally, effort):
    """INLP and RLACE are orthogonal projections of as many directions as they say, and do no more the second time."""
    line = tally("INLP and RLACE: orthogonal, idempotent, rank as stated")
    for seed in range(effort.times(2, 15)):
        z, y, concept = problem(seed, classes=2, n=300, d=6)
        for method in (INLP(random_state=0), RLACE()):
            remover = method.fit(z, y, concept=concept)
            p, clean = remover.removal_.matrix(), remover.transform(z)
            values = np.linalg.svd(z - clean - (z - clean).mean(axis=0), compute_uv=False)
            line.trial(
                np.allclose(p, p.T, atol=1e-8)
                and np.abs(remover.transform(clean) - clean).max() < 1e-7 * z.std()
                and int(np.sum(values > 1e-7 * values[0])) == remover.spurious_.dim > 0
            )
    assert line.all_survived
