"""Whether a linear probe of ours finds what scikit-learn's find, on rows that are hard for one or the other."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from trust.covering import most
from trust.probe_contest import FRESH, TROUBLES, Case, peers
from unspur import JSE, LEACE
from unspur.exceptions import InputError
from unspur.metrics import leakage

PART = "probes"
#: Points of balanced accuracy that ours may be below the best of theirs, the rows from which on that is promised, and
#: the share of cases in which it must hold.
POINTS, PROMISED, SHARE = 2.0, 1000, 0.95
#: What the quick form tries: each made one of the probes blind.
HARDEST = {
    "none": {"features": "nearly collinear", "n": 1000, "d": 20, "prevalence": (0.5, 0.5)},
    "outliers, scaled": {"features": "gaussian", "n": 1500, "d": 20, "prevalence": (0.5, 0.5)},
    "outliers, anywhere": {"features": "binary", "n": 1200, "d": 30, "prevalence": (0.4, 0.4, 0.2)},
    "outliers, one column": {"features": "sparse", "n": 1000, "d": 20, "prevalence": (0.8, 0.2)},
    "one huge column": {"features": "gaussian", "n": 1000, "d": 20, "prevalence": (0.9, 0.1)},
    "mixed scales": {"features": "correlated", "n": 1200, "d": 40, "prevalence": (0.5, 0.5)},
    "offset": {"features": "heavy tails", "n": 1000, "d": 30, "prevalence": (0.7, 0.3)},
}
#: Cases of each trouble in the long form.
CASES = 143


def contest(case):
    """Balanced accuracy on fresh rows of our probe, and of the best of scikit-learn's, trained on the same rows."""
    z, concept, _ = case.rows(case.n, 0)
    fresh, truth, _ = case.rows(FRESH, 1, equal=True)
    if case.removal != "none":
        others, labels, task = case.rows(max(case.n, 1000), 2)
        remover = LEACE() if case.removal == "LEACE" else JSE(cv=0.2, penalty=0.1, max_spurious=1, random_state=0)
        try:
            remover.fit(others, task, concept=labels if case.removal == "LEACE" else (labels > 0).astype(int))
            z, fresh = remover.transform(z), remover.transform(fresh)
        except InputError:  # too few rows of a group: then the rows as they are
            pass
    ours = leakage(z, concept, X_test=fresh, concept_test=truth, random_state=0).accuracy
    theirs = peers(z, concept, fresh, truth)
    name = max(theirs, key=lambda one: theirs[one])
    return ours, name, theirs[name]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_ours_is_not_below_the_best_of_scikit_learns(trouble, tally, effort):
    """Balanced accuracy on 20,000 fresh rows with as many of each class; no probe has seen them."""
    line = tally(f"linear probe against scikit-learn's best, {'rows as drawn' if trouble == 'none' else trouble}")
    first = TROUBLES.index(trouble) * CASES
    cases = [Case.drawn(first + k, trouble=trouble) for k in range(CASES)]
    if not effort.full:
        cases = [Case.drawn(first, trouble=trouble, removal="none", **HARDEST[trouble])]
    gaps, smaller, lost = [], [], []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases:
            ours, name, theirs = contest(case)
            gap = 100 * (ours - theirs)
            (gaps if case.n >= PROMISED else smaller).append(gap)
            if case.n >= PROMISED and not line.trial(gap >= -POINTS):
                lost.append({"case": str(case), "ours": round(ours, 4), "theirs": round(theirs, 4), "best": name})
    line.figure = f"n ≥ 1,000: {_told(gaps)}" + (f"; 200 to 999 rows: {_told(smaller)}" if smaller else "")
    line.data = {"gaps": np.round(gaps, 2).tolist(), "smaller": np.round(smaller, 2).tolist(), "lost": lost}
    assert line.survived >= SHARE * line.tried, lost


def _told(gaps):
    below, above = (int(np.sum(np.sign(sign) * np.array(gaps) > POINTS)) for sign in (-1, 1))
    return (
        f"{np.median(gaps):+.1f} points in the median, {min(gaps):+.1f} to {max(gaps):+.1f}; below by more than "
        f"{POINTS:g} in {below} of {len(gaps)}, above in {above}"
    )


#: Rows and columns without the concept, and whether their tails are heavy.
NULLS = {
    "60 rows of 3": (60, 3, (0.5, 0.5), False),
    "150 rows of 10, three classes": (150, 10, (0.5, 0.3, 0.2), False),
    "200 rows of 5, one class in seven": (200, 5, (0.85, 0.15), False),
    "60 rows of 100": (60, 100, (0.5, 0.5), False),
    "300 rows of 5, heavy tails": (300, 5, (0.5, 0.5), True),
}


def test_choosing_among_probes_keeps_the_level(tally, effort):
    """Where there is nothing to read, a probe that was chosen on training rows is no better than one that was not."""
    line, rng, cells = tally("p-value of leakage where there is none, probe chosen"), np.random.default_rng(21), []
    with threadpool_limits(1):
        for setting, (n, d, prevalence, heavy) in NULLS.items():
            concept = np.repeat(np.arange(len(prevalence)), np.round(n * np.array(prevalence)).astype(int))
            sets = effort.times(4, 400)
            p = []
            for seed in range(sets):
                rows = rng.standard_t(2, (len(concept), d)) if heavy else rng.standard_normal((len(concept), d))
                p.append(leakage(rows, concept, random_state=seed).p)
            for level in (0.01, 0.05, 0.1, 0.25):
                below = int(np.sum(np.array(p) <= level))
                line.trial(below <= most(sets, level))
                cells.append({"setting": setting, "level": level, "sets": sets, "below": below})
    at = [cell["below"] / cell["sets"] for cell in cells if cell["level"] == 0.05]
    line.figure = f"p ≤ 0.05 in {100 * max(at):.1f} % at most, mean {100 * np.mean(at):.1f} %"
    line.data = {"cells": cells}
    assert line.all_survived, cells


@pytest.mark.parametrize("related", [0.0, 0.2])
def test_r2_of_numbers(related, tally, effort):
    """Nothing is found where there is nothing, and what there is where there is something."""
    line, rng = tally(f"R² of a numeric concept, true value {related:g}"), np.random.default_rng(22)
    found = []
    for seed in range(effort.times(12, 300)):
        z = rng.standard_normal((400, 10))
        number = np.sqrt(related) * z[:, 0] + np.sqrt(1 - related) * rng.standard_normal(400)
        found.append(leakage(z, number, concept_type="continuous", random_state=seed))
    mean, below = np.mean([(leak.r2, leak.p <= 0.05) for leak in found], axis=0)
    line.figure = f"mean R² {mean:.3f}, p ≤ 0.05 in {100 * below:.1f} %"
    if related:
        right = sum(leak.p <= 0.05 for leak in found)
        line.trials(len(found), right)
        assert right >= 0.9 * len(found)
    else:
        wrong = sum(leak.p <= 0.05 for leak in found)
        line.trials(len(found), len(found) - wrong)
        assert wrong <= most(len(found), 0.05)
