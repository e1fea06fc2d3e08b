"""How often an audit names a column that it should not, and how often it finds one that is planted."""

from __future__ import annotations

import numpy as np
import pytest

from trust.simulating import LEVEL, at_most, percent
from unspur import ERM, audit

PART = "audit"
COLUMNS = 10
#: Strength of the concept in X at which an unweighted head on many rows has a gap of so many points, at an agreement of
#: 0.9. The last test measures the gaps again.
STRENGTHS = {0: 0.14, 5: 0.75, 10: 1.09, 15: 1.38, 20: 1.66}
AGREEMENT = 0.9


def columns_of(kind, rng, y, X, clusters):
    """Ten columns for which at least one of the three does not hold; those that are visible are added to X."""
    n, found = len(y), {}
    for j in range(COLUMNS):
        drawn = [rng.integers(2, size=n), rng.integers(4, size=n), rng.normal(size=n), (rng.random(n) < 0.08) * 1][
            j % 4
        ]
        follows = np.where(rng.random(n) < (0.6, 0.75, 0.9)[j % 3], y, 1 - y) if j % 4 else rng.normal(size=n) + y
        one = {"random": "drawn", "travels, not visible": "follows", "visible, does not travel": "seen"}.get(
            kind, ("drawn", "follows", "seen")[j % 3]
        )
        if clusters is not None:  # a column of clusters, not of rows
            of_cluster = rng.integers(2, size=clusters.max() + 1)[clusters]
            agree = rng.random(clusters.max() + 1)[clusters] < 0.75
            drawn, follows = of_cluster, np.where(agree, y, 1 - y)
        if one == "seen":
            X[:, 1 + j] += 2.0 * drawn
        found[f"{one} {j}"] = follows if one == "follows" else drawn
    return found


def null_table(kind, seed, n):
    rng = np.random.default_rng([seed, n])
    clusters = np.repeat(np.arange(n // 5), 5) if kind == "all kinds, in clusters" else None
    if clusters is None:
        y, X = rng.integers(2, size=n), rng.normal(size=(n, 20))
    else:
        y = rng.integers(2, size=n // 5)[clusters]
        X = rng.normal(size=(n // 5, 20))[clusters] + 0.3 * rng.normal(size=(n, 20))
    X[:, 0] += 1.2 * y
    columns = columns_of(kind, rng, y, X, clusters)
    return audit(X, y, columns, clusters=clusters, probe_all=False, random_state=seed)


@pytest.mark.parametrize(
    "kind",
    ["random", "travels, not visible", "visible, does not travel", "all kinds", "all kinds, in clusters"],
)
def test_a_column_is_named_at_most_at_the_level(kind, tally, effort):
    tables = effort.times(8, 500)
    line = tally(f"no column is named: ten columns, {kind}")
    found = [null_table(kind, seed, 500) for seed in range(tables)]
    wrong = sum(bool(one.flagged) for one in found)
    drawn = [column for one in found for column in one.columns if column.name.startswith("drawn")]
    line.trials(tables, tables - wrong)
    line.figure = f"false alarms {percent(wrong, tables)}"
    line.data = {"tables": tables, "named": wrong, "columns": len(drawn)}
    for name in ("association", "gap"):
        rejected = sum(getattr(column, name).p <= LEVEL for column in drawn)
        line.data[name] = rejected
        # Random columns are independent, so each test by itself has to keep its level too.
        assert kind != "random" or at_most(rejected, len(drawn)), (name, rejected)
    assert at_most(wrong, tables), wrong


def planted(rng, n, strength, width=20):
    y = rng.integers(2, size=n)
    concept = np.where(rng.random(n) < AGREEMENT, y, 1 - y)
    X = rng.normal(size=(n, width))
    X[:, 0] += 2.0 * y
    X[:, 1] += strength * concept
    return X, y, concept


def finds(seed, strength, n=2000):
    rng = np.random.default_rng([seed, n])
    X, y, concept = planted(rng, n, strength)
    others = {f"random {j}": rng.integers(2, size=n) for j in range(COLUMNS - 1)}
    found = audit(X, y, {"planted": concept, **others}, probe_all=False, random_state=seed)
    return "planted" in [column.name for column in found.flagged]


@pytest.mark.parametrize("gap", STRENGTHS)
def test_a_planted_gap_is_found(gap, tally, effort):
    if not effort.full and gap in (5, 15):
        pytest.skip("points of the curve that are for the long form")
    sets = effort.times(5, 200)
    line = tally(f"a planted column is found: gap of {gap} points, n = 2,000")
    found = sum(finds(seed, STRENGTHS[gap]) for seed in range(sets))
    line.trials(sets, sets - found if gap == 0 else found)
    line.figure = f"found {100 * found / sets:.0f} %"
    line.data = {"gap": gap, "sets": sets, "found": found}
    assert gap > 0 or at_most(found, sets), found
    assert gap < 10 or found >= 0.8 * sets, found


def test_the_strengths_have_the_gaps_they_are_said_to_have(tally):
    line = tally("planted gaps are as large as they are said to be")
    for gap, strength in STRENGTHS.items():
        X, y, concept = planted(np.random.default_rng(0), 200_000, strength, width=2)
        right = ERM(penalty=1e-5).fit(X, y).predict(X) == y
        seen = np.mean(
            [right[(y == k) & (concept == k)].mean() - right[(y == k) & (concept != k)].mean() for k in (0, 1)]
        )
        assert line.trial(abs(100 * seen - gap) < 1.0), (gap, seen)
