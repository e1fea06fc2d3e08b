"""Intervals of the metrics cover the truth at the rate they state; tests reject no more often than they state.

Truth is known because rows are made: so many of a group are right with a known probability. A cell is one setting, and
holds if it covers as many sets as go with its level (`covering.least`). All intervals here are meant to cover at 95 %
or more whatever the setting, so that most cover more often; `line.data` has rate and mean width of every cell.

Without intervals of their own, and so not here: the error of reconstruction, angles and shared variance of subspaces.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.stats import binomtest, norm
from threadpoolctl import threadpool_limits

from trust.covering import Cells, least, most
from unspur import LEACE
from unspur.metrics import GroupAccuracy, leakage, paired_difference, worst_difference
from unspur_paper.experiments.summary import Difference

PART = "intervals"
ROWS, ACCURACIES = (10, 30, 100, 500), (0.5, 0.8, 0.95, 0.99, 1.0)
UNEQUAL = np.array([[600, 10], [10, 600]])
#: Rows per group and true accuracies of several groups, by name.
GROUPS = {
    f"{shape[0]}×{shape[1]} groups of {n}, {name}": (np.full(shape, n), truth(shape))
    for shape, n, (name, truth) in product(
        ((2, 1), (2, 2), (2, 3), (3, 4)),
        ROWS,
        (
            ("all 80 %", lambda shape: np.full(shape, 0.8)),
            ("all 99 %", lambda shape: np.full(shape, 0.99)),
            ("one worst", lambda shape: np.where(np.arange(np.prod(shape)).reshape(shape) == 1, 0.5, 0.95)),
            ("graded", lambda shape: np.linspace(0.5, 1.0, int(np.prod(shape))).reshape(shape)),
        ),
    )
} | {
    "2×2 groups of 600, 10, 10, 600, worst rare": (UNEQUAL, np.array([[0.97, 0.6], [0.7, 0.97]])),
    "2×2 groups of 600, 10, 10, 600, rare 99 %": (UNEQUAL, np.array([[0.6, 0.99], [0.99, 0.6]])),
    "3×4 groups of 5 to 500, all 90 %": (np.geomspace(5, 500, 12).astype(int).reshape(3, 4), np.full((3, 4), 0.9)),
}


def drawn(rng, rows, truth, sets):
    """So many results of a classifier with known accuracies."""
    levels = tuple(tuple(range(k)) for k in rows.shape)
    return [GroupAccuracy(rows, correct, levels) for correct in rng.binomial(rows, truth, size=(sets, *rows.shape))]


def some(cells, effort, every=4):
    """All settings, or for a quick look each fourth."""
    return dict(list(cells.items())[:: 1 if effort.full else every])


def test_one_group(tally, effort):
    """Each set is a group of its own here, so that one table has them all."""
    line, cells, rng = tally("accuracy of a group"), Cells(), np.random.default_rng(1)
    for n, truth in product(ROWS, ACCURACIES):
        sets = effort.times(2000, 10_000)
        table = GroupAccuracy(np.full((sets, 1), n), rng.binomial(n, truth, size=(sets, 1)), (tuple(range(sets)), (0,)))
        low, high = np.moveaxis(table.interval(), -1, 0)
        cells.add({"setting": f"{n} rows, {100 * truth:g} %"}, low, high, truth)
    cells.told(line)
    assert not cells.failed, cells.failed


def test_a_score_interval_is_caught(tally, effort):
    """The control: intervals that are known to be too narrow somewhere fail the same count."""
    line, rng, sets = tally("control: intervals known to be too narrow are caught"), np.random.default_rng(2), 2000
    outcomes = np.arange(31)
    score = [binomtest(int(x), 30).proportion_ci(0.95, method="wilson") for x in outcomes]
    wilson = np.array([(bounds.low, bounds.high) for bounds in score])
    wald = outcomes[:, None] / 30 + np.outer(np.sqrt(outcomes * (30 - outcomes) / 30**3), norm.ppf([0.025, 0.975]))
    cells = Cells()
    for name, bounds, truth in (("Wilson's at 99.5 %", wilson, 0.995), ("Wald's at 90 %", wald, 0.9)):
        low, high = bounds[rng.binomial(30, truth, size=sets)].T
        line.trial(not cells.add({"setting": f"{name}, 30 rows"}, low, high, truth))
    line.figure = ", ".join(f"{100 * cell['rate']:.1f} %" for cell in cells.cells)
    line.data = {"cells": cells.cells}
    assert line.all_survived, cells.cells


def test_several_groups(tally, effort):
    """All groups at once, the worst of them whichever it is, and both averages."""
    lines = {
        name: (tally(what), Cells())
        for name, what in (
            ("worst", "accuracy of the worst group"),
            ("all", "accuracies of all groups at once"),
            ("group average", "average over groups"),
            ("average", "average over rows"),
        )
    }
    rng, sets = np.random.default_rng(3), effort.times(250, 2000)
    for setting, (rows, truth) in some(GROUPS, effort, 5).items():
        results = drawn(rng, rows, truth, sets)
        many = np.array([result.interval(simultaneous=True) for result in results])
        inside = np.all((many[..., 0] <= truth + 1e-12) & (truth - 1e-12 <= many[..., 1]), axis=(1, 2))
        width = np.mean(many[..., 1] - many[..., 0], axis=(1, 2))
        bounds = {
            "worst": (np.array([result.worst_interval() for result in results]).T, truth.min()),
            "all": ((np.where(inside, 0.0, 2.0), np.where(inside, 0.0, 2.0) + width), 0.0),  # 0 is held if all are
            "group average": (np.array([result.group_average_interval() for result in results]).T, truth.mean()),
            "average": (
                np.array([result.average_interval() for result in results]).T,
                np.sum(rows * truth) / rows.sum(),
            ),
        }
        for name, ((low, high), target) in bounds.items():
            lines[name][1].add({"setting": setting}, low, high, target)
    for line, cells in lines.values():
        cells.told(line)
    for _, cells in lines.values():
        assert not cells.failed, cells.failed


def test_paired_differences(tally, effort):
    """Answers before and after to the same rows: shares that only one of the two has right, down to none."""
    line, cells, rng = tally("difference of two accuracies on the same rows"), Cells(), np.random.default_rng(4)
    shares = ((0.0, 0.0), (0.02, 0.0), (0.02, 0.02), (0.1, 0.03), (0.3, 0.0), (0.5, 0.2), (0.95, 0.03))
    sets = effort.times(150, 2000)
    for n, (better, worse) in product(ROWS, shares):
        p = [(1 - better - worse) / 2, better, worse, (1 - better - worse) / 2]
        kinds = rng.choice(4, size=(sets, n), p=p)
        found = [paired_difference(kind % 2 == 0, kind < 2) for kind in kinds]
        setting = {"setting": f"{n} rows, {100 * better:g} % only after, {100 * worse:g} % only before"}
        cells.add(setting, [d.low for d in found], [d.high for d in found], better - worse)
    cells.told(line)
    assert not cells.failed, cells.failed


def test_paired_differences_of_group_averages(tally, effort):
    line, cells, rng = tally("difference of two averages over groups"), Cells(), np.random.default_rng(5)
    sets = effort.times(80, 1000)
    for sizes, (better, worse) in product(
        ([10] * 2, [30] * 4, [100] * 6, [10] * 12, [600, 10, 10, 600]), ((0.01, 0.0), (0.1, 0.03), (0.4, 0.2))
    ):
        group = np.repeat(np.arange(len(sizes)), sizes)
        # Groups differ: the further ones change twice as often.
        scale = np.where(np.arange(len(sizes)) < len(sizes) / 2, 1.0, 0.5)
        p, q = (share * scale[group] for share in (better, worse))
        draw = rng.random((sets, len(group)))
        after, before = draw < p, (draw >= p) & (draw < p + q)
        both = ~(after | before) & (rng.random(draw.shape) < 0.6)
        found = [paired_difference(b, a, group) for b, a in zip(before | both, after | both, strict=True)]
        truth = float(np.mean((better - worse) * scale))
        setting = {
            "setting": f"groups of {sorted(set(sizes))}, {len(sizes)} of them, {100 * better:g} and {100 * worse:g} %"
        }
        cells.add(setting, [d.low for d in found], [d.high for d in found], truth)
    cells.told(line)
    assert not cells.failed, cells.failed


def test_change_of_the_worst_group(tally, effort):
    """Answers to the same rows that go together, or have nothing to do with each other: what the interval is for."""
    line, cells, rng = tally("change of the worst group's accuracy"), Cells(), np.random.default_rng(6)
    sets = effort.times(150, 500)
    for setting, (rows, truth) in some(GROUPS, effort, 7).items():
        later = np.roll(truth, 1) * 0.9 + 0.05
        for together in (False, True):
            found = []
            for _ in range(sets):
                if together:
                    draws = [rng.random(n) for n in rows.ravel()]
                    counts = (
                        np.reshape([np.sum(u < p) for u, p in zip(draws, share.ravel(), strict=True)], rows.shape)
                        for share in (truth, later)
                    )
                else:
                    counts = (rng.binomial(rows, share) for share in (truth, later))
                levels = tuple(tuple(range(k)) for k in rows.shape)
                found.append(worst_difference(*(GroupAccuracy(rows, count, levels) for count in counts)))
            told = {"setting": setting, "rows": "together" if together else "independent"}
            cells.add(told, [d.low for d in found], [d.high for d in found], later.min() - truth.min())
    cells.told(line)
    assert not cells.failed, cells.failed


#: A probe that answers by the sign of one number, so that its accuracy on made rows is what they were made with.
SIGN = np.array([[-1.0], [-1.0], [1.0], [1.0]]), np.array([0, 0, 1, 1])


def judged(rng, rows, accuracy, weight=None):
    """Leakage of a probe on test rows of two classes of which it gets `accuracy` right; (n,) or a number."""
    concept = np.repeat([0, 1], rows)
    right = rng.random(len(concept)) < accuracy
    z = np.where(right, 2.0 * concept - 1, 1.0 - 2 * concept)[:, None]
    return leakage(*SIGN, X_test=z, concept_test=concept, sample_weight_test=weight, penalty=0.1)


def test_leakage_on_test_rows(tally, effort):
    """Where the probe guesses, p is below any level at most as often as that; where it knows, nearly always."""
    line, cells, rng = tally("balanced accuracy of a probe on test rows"), Cells(), np.random.default_rng(7)
    tests, null = tally("p-value of leakage where there is none, test rows"), {}
    for rows, accuracy in product(([10, 10], [30, 30], [100, 20], [500, 500]), ACCURACIES):
        sets = effort.times(80 if accuracy == 0.5 else 25, 1500 if accuracy == 0.5 else 500)
        found = [judged(rng, rows, accuracy) for _ in range(sets)]
        setting = {"setting": f"{rows[0]} and {rows[1]} rows, {100 * accuracy:g} %"}
        cells.add(setting, [leak.low for leak in found], [leak.high for leak in found], accuracy)
        if accuracy == 0.5:
            null[f"{rows[0]} and {rows[1]} rows"] = np.array([leak.p for leak in found])
    power = np.mean([judged(rng, [100, 100], 0.7).p < 0.05 for _ in range(40)])
    cells.told(line)
    told_sizes(tests, null)
    assert not cells.failed, cells.failed
    assert tests.all_survived, tests.data
    assert power > 0.9


def test_leakage_on_weighted_rows(tally, effort):
    """Weights that have nothing to do with being right, weights of rows that are harder, and those of certificates."""
    line, cells, rng = tally("balanced accuracy of a probe on weighted rows"), Cells(), np.random.default_rng(8)
    sets = effort.times(30, 500)
    for n in (30, 100, 500):
        for name, (heavy, light) in {
            "any rows heavy": (0.8, 0.8),
            "heavy rows harder": (0.6, 1.0),
            "heavy rows easier": (0.95, 0.5),
        }.items():
            bounds, truths = [], []
            for _ in range(sets):
                weight = np.exp(rng.standard_normal(2 * n))
                accuracy = np.where(weight > 2, heavy, light)
                found = judged(rng, [n, n], accuracy, weight)
                bounds.append((found.low, found.high))
                shares = (accuracy * weight).reshape(2, n).sum(axis=1) / weight.reshape(2, n).sum(axis=1)
                truths.append(float(shares.mean()))
            cells.add({"setting": f"{n} rows a class, {name}"}, *np.transpose(bounds), truths)
        task = np.tile(np.arange(n) >= n // 10, 2)  # a tenth of each class has the rarer task label
        weight = np.where(task, 1 / (n - n // 10), 1 / (n // 10))
        for name, (rare, usual) in {"rare combinations fail": (0.1, 0.99), "chance": (0.5, 0.5)}.items():
            found = [judged(rng, [n, n], np.where(task, usual, rare), weight) for _ in range(sets)]
            setting = {"setting": f"{n} rows a class, task held fixed, {name}"}
            cells.add(setting, [leak.low for leak in found], [leak.high for leak in found], (rare + usual) / 2)
    cells.told(line)
    assert not cells.failed, cells.failed


#: Rows, columns, shift of the means and prevalences of the worlds for cross-fitted probes.
FOLDED = {
    "60 rows of 3": (60, 3, 0.0, (0.5, 0.5)),
    "150 rows of 10, three classes": (150, 10, 0.0, (0.5, 0.3, 0.2)),
    "200 rows of 5, one class in seven": (200, 5, 0.0, (0.85, 0.15)),
    "60 rows of 100": (60, 100, 0.0, (0.5, 0.5)),
    "100 rows of 5, readable": (100, 5, 1.0, (0.5, 0.5)),
    "300 rows of 5, readable": (300, 5, 2.0, (0.5, 0.5)),
}


def classes(rng, n, d, shift, prevalence):
    concept = np.repeat(np.arange(len(prevalence)), np.round(n * np.array(prevalence)).astype(int))
    z = rng.standard_normal((len(concept), d))
    z[:, 0] += shift * concept
    return z, concept


def test_leakage_by_folds(tally, effort):
    """Truth is 1/k where nothing can be read, and elsewhere the mean accuracy of probes of four fifths of the rows."""
    line, cells, rng = tally("balanced accuracy of a probe, by folds"), Cells(), np.random.default_rng(9)
    tests, size = tally("p-value of leakage where there is none, by folds"), {}
    sets = effort.times(20, 400)
    with threadpool_limits(1):
        for setting, (n, d, shift, prevalence) in FOLDED.items():
            truth = 1 / len(prevalence)
            if shift:
                many = classes(rng, 10_000, d, shift, prevalence)
                fresh = [classes(rng, round(0.8 * n), d, shift, prevalence) for _ in range(sets)]
                known = [leakage(*few, X_test=many[0], concept_test=many[1], penalty=0.1).accuracy for few in fresh]
                truth = float(np.mean(known))
            found = [
                leakage(*classes(rng, n, d, shift, prevalence), penalty=0.1, random_state=int(rng.integers(2**31)))
                for _ in range(sets)
            ]
            cells.add({"setting": setting}, [leak.low for leak in found], [leak.high for leak in found], truth)
            if not shift:
                size[setting] = np.array([leak.p for leak in found])
    cells.told(line)
    told_sizes(tests, size)
    assert not cells.failed, cells.failed
    assert tests.all_survived, tests.data


def told_sizes(line, found):
    """Whether p-values under a null are uniform or larger, at four levels."""
    table = []
    for setting, p in found.items():
        for level in (0.01, 0.05, 0.1, 0.25):
            below = int(np.sum(p <= level))
            line.trial(below <= most(len(p), level))
            table.append({"setting": setting, "level": level, "sets": len(p), "below": below, "rate": below / len(p)})
    at = [entry["rate"] for entry in table if entry["level"] == 0.05]
    line.figure = f"p ≤ 0.05 in {100 * max(at):.1f} % at most, mean {100 * np.mean(at):.1f} %"
    line.data = {"cells": table}


def test_certificates(tally, effort):
    """A removal that is right, on few rows: what is left for a probe is chance, also with the task held fixed."""
    line, cells, rng = tally("intervals of certificates after a complete removal"), Cells(), np.random.default_rng(11)

    def rows(n, related):
        concept = rng.integers(2, size=n)
        y = np.where(rng.random(n) < related, concept, 1 - concept)
        z = rng.standard_normal((n, 3))
        z[:, 0] += 3 * concept
        z[:, 1] += y
        return z, y, concept

    with threadpool_limits(1):
        for related in (0.5, 0.8):
            z, y, concept = rows(200_000, 0.5)  # enough to find the axis of the concept, without the task
            remover = LEACE().fit(z, concept=concept)
            found = []
            for seed in range(effort.times(6, 120)):
                z, y, concept = rows(150, related)
                found.append(remover.certificate(z, y, concept, random_state=seed))
            for name in ("concept", "concept, task held fixed"):
                if related == 0.5 or "fixed" in name:  # related labels leave the concept readable through the task
                    after = [certificate.probe[name][1] for certificate in found]
                    setting = {"setting": f"{name}, related in {100 * related:g} % of rows"}
                    cells.add(setting, [leak.low for leak in after], [leak.high for leak in after], 0.5)
            before = [certificate.probe["concept"][0].low for certificate in found]
            assert min(before) > 0.5  # and what was there is seen
    cells.told(line)
    assert not cells.failed, cells.failed


def test_means_over_runs(tally, effort):
    """Student's intervals of experiments, for accuracies of runs that vary as those of a thousand test rows do."""
    line, cells, rng = tally("mean difference over runs of an experiment"), Cells(), np.random.default_rng(12)
    sets = effort.times(500, 5000)
    for runs, truth in product((3, 5, 10), (0.6, 0.9)):
        values = rng.binomial(1000, truth, size=(sets, runs)) / 1000 + 0.02 * rng.standard_normal((sets, runs))
        errors = values.std(axis=1, ddof=1) / np.sqrt(runs)
        half = np.array([Difference("a", "b", {}, "worst", 0.0, float(error), runs).half for error in errors])
        mean = values.mean(axis=1)
        cells.add({"setting": f"{runs} runs, {100 * truth:g} %"}, mean - half, mean + half, truth)
    cells.told(line)
    assert not cells.failed, cells.failed


def test_the_bar_itself():
    """Exactly 95 % pass, 90 % do not, with as many sets as are used here."""
    assert least(2000) <= 0.95 * 2000 - 30
    assert least(2000) > 0.9 * 2000 + 30
