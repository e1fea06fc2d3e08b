"""The tests of a direction against formulas written out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm
from scipy.stats import t as student

from unspur.criteria import DirectionTests, require_testable
from unspur.datasets import make_toy
from unspur.exceptions import GroupSizeError
from unspur.rows import MemoryRows, RowLabels
from unspur.solvers.held_out_losses import GroupLosses
from unspur.solvers.statistics import CellCounts

CENTRE = np.zeros(5)


def rows_with_folds(n=900, folds=1, seed=0, weight=None, **options):
    toy = make_toy(n, d=5, random_state=seed, **options)
    fold = np.arange(n) % (folds + 1) if folds == 1 else np.arange(n) % folds + 1
    rows = MemoryRows(toy.Z, RowLabels.of(toy.y, toy.concept, weight, fold))
    return toy, fold, rows, CellCounts.of(rows)


def losses_by_hand(x, label, theta):
    t = theta[0] * x + theta[1]
    return np.logaddexp(0, t) - label * t


def fit_by_hand(x, label, weight):
    """Weighted two-parameter logistic regression by plain Newton steps."""
    theta, design = np.zeros(2), np.column_stack([x, np.ones(len(x))])
    for _ in range(50):
        p = 1 / (1 + np.exp(-design @ theta))
        hessian = design.T @ (design * (weight * p * (1 - p))[:, None])
        theta = theta - np.linalg.solve(hessian, design.T @ (weight * (p - label)))
    return theta


def by_group(d, y, concept):
    return [d[(y == a) & (concept == b)] for a in (0, 1) for b in (0, 1)]


def t_by_hand(d, y, concept, delta=0.0):
    """Equal weight for the four groups, written as in the paper's appendix (with the square root that it forgot)."""
    groups = by_group(d, y, concept)
    mean = sum(g.mean() for g in groups) / 4
    variance = sum(g.var(ddof=1) / len(g) for g in groups) / 16
    return (mean - delta) / np.sqrt(variance)


def degrees_by_hand(d, y, concept):
    """Welch's degrees of freedom for a sum of four means."""
    shares = [(g.var(ddof=1) / len(g), len(g) - 1) for g in by_group(d, y, concept)]
    return sum(v for v, _ in shares) ** 2 / sum(v**2 / free for v, free in shares)


@pytest.mark.parametrize(
    ("axis", "role", "proper"),
    [
        (0, "spurious", True),
        (0, "main", False),
        (1, "main", True),
        (1, "spurious", False),
        (3, "main", False),
        (3, "spurious", False),
    ],
)
@pytest.mark.parametrize("folds", [1, 5])
def test_axes_are_attributed_to_their_own_label(axis, role, proper, folds):
    _, _, rows, counts = rows_with_folds(n=3000, rho=0.8, folds=folds)
    tests = DirectionTests()
    losses = tests.losses(rows, counts, np.tile(np.eye(5)[axis], (folds, 1)), CENTRE)
    verdict = tests.test(role, losses)
    assert verdict.proper is proper
    assert ("better than chance" in verdict.reason) == (axis == 3)


def test_each_fold_is_judged_along_its_own_direction():
    _, _, rows, counts = rows_with_folds(n=2000, folds=2, rho=0.5)
    tests = DirectionTests()
    right = tests.losses(rows, counts, np.eye(5)[[0, 0]], CENTRE)
    mixed = tests.losses(rows, counts, np.eye(5)[[0, 3]], CENTRE)
    t = [tests.test("spurious", losses).informative.t for losses in (right, mixed)]
    assert t[0] < t[1] < 0


@pytest.mark.parametrize("options", [{}, {"by_group": False}])
@pytest.mark.parametrize("folds", [1, 5])
def test_many_rows_sorted_by_group_are_tested_alike(monkeypatch, folds, options):
    weight = np.random.default_rng(1).uniform(0.2, 3, 1500)
    weight[::7] = 0.0
    _, _, rows, counts = rows_with_folds(n=1500, folds=folds, rho=0.7, weight=weight)
    directions = np.random.default_rng(2).standard_normal((2, folds, 5))
    tests = DirectionTests(**options)

    def verdicts():
        losses = tests.losses(rows, counts, directions[0], CENTRE)
        averages = tests.own_losses(rows, counts, directions, CENTRE)
        return [tests.test(role, losses).to_dict() for role in ("spurious", "main")], averages

    plain, own = verdicts()
    monkeypatch.setattr("unspur.solvers.held_out_losses.MIN_GROUPED_ROWS", 1)
    monkeypatch.setattr("unspur.rows.source.MAX_BLOCK_ROWS", 100)  # several blocks of each group
    by_group, own_by_group = verdicts()
    assert_allclose(own_by_group, own, rtol=1e-12)
    for found, wanted in zip(by_group, plain, strict=True):
        for test in ("informative", "specific"):
            assert_allclose(list(found[test].values()), list(wanted[test].values()), rtol=1e-9)
        assert found["loss_main"] == pytest.approx(wanted["loss_main"], rel=1e-11)


def test_own_losses_are_of_each_label_along_its_own_direction():
    _, _, rows, counts = rows_with_folds(n=1500, folds=5, rho=0.7)
    tests, directions = DirectionTests(), np.random.default_rng(3).standard_normal((2, 5, 5))
    found = tests.own_losses(rows, counts, directions, CENTRE)
    for label, own, direction in zip(("concept", "main"), found, directions, strict=True):
        assert_allclose(own, tests.summarise(tests.losses(rows, counts, direction, CENTRE), label), rtol=1e-9)


def test_only_relative_weights_matter_and_equal_weights_are_no_weights():
    weight = np.random.default_rng(0).uniform(0.2, 3, 900)
    t = {}
    for name, w in (("none", None), ("ones", np.full(900, 5.0)), ("some", weight), ("scaled", 1e6 * weight)):
        _, _, rows, counts = rows_with_folds(weight=w, rho=0.5)
        tests = DirectionTests()
        t[name] = tests.test("main", tests.losses(rows, counts, np.eye(5)[[1]], CENTRE)).specific.t
    assert_allclose(t["none"], t["ones"], rtol=1e-9)
    assert_allclose(t["some"], t["scaled"], rtol=1e-9)
    assert abs(t["none"] - t["some"]) > 1e-3


def test_effective_size_of_a_group_is_the_squared_sum_over_the_sum_of_squares():
    w = np.array([1.0, 1.0, 2.0, 4.0])
    d = np.array([0.1, 0.4, -0.2, 0.3])
    sums = summed(w, d)
    assert_allclose(sums.effective_rows, 8**2 / 22)
    equal = summed(np.ones(4), d)
    assert_allclose(equal.variances_of_means[0], d.var(ddof=1) / 4)


def summed(w, d):
    """Sums of one group in which every series is `d`."""
    squares = np.tile(np.array([[[w**2 @ d]], [[w**2 @ d**2]]]), (1, 5, 1))
    return GroupLosses(np.array([[w.sum()], [w @ w]]), np.tile([[w @ d]], (5, 1)), squares)


def test_weighted_means_vary_as_much_as_is_said_where_heavy_rows_vary_more():
    rng = np.random.default_rng(0)
    w = np.repeat([1.0, 10.0], [40, 10])
    drawn = rng.standard_normal((20_000, 50)) * np.repeat([0.1, 1.0], [40, 10])
    said = np.mean([summed(w, d).variances_of_means[0, 0] for d in drawn[:4000]])
    assert_allclose(said, np.var(drawn @ w / w.sum()), rtol=0.1)
    by_size = drawn[:4000].var(axis=1, ddof=1).mean() / summed(w, drawn[0]).effective_rows[0]
    assert by_size < 0.5 * said  # as if weight and loss had nothing to do with each other


def in_many_folds(seed, *, signal):
    """The concept's direction in one noisy dimension, the difference of its means without each of 50 folds."""
    rng = np.random.default_rng(seed)
    n, folds = 200, 50
    y, concept = np.tile([0, 0, 1, 1], n // 4), np.tile([0, 1, 0, 1], n // 4)
    fold = 1 + rng.permutation(np.repeat(np.arange(folds), n // folds))
    z = rng.standard_normal((n, 1)) + signal * (2.0 * concept[:, None] - 1.0)
    rows = MemoryRows(z, RowLabels.of(y, concept, fold=fold))
    without = [
        z[(fold != k) & (concept == 1)].mean(0) - z[(fold != k) & (concept == 0)].mean(0) for k in 1 + np.arange(folds)
    ]
    tests = DirectionTests()
    return tests.test("spurious", tests.losses(rows, CellCounts.of(rows), np.array(without), np.zeros(1)))


def test_a_direction_that_points_away_from_its_label_predicts_nothing():
    """Rows that are left out lie where their direction does not: in many small folds that looks like knowledge."""
    verdicts = [in_many_folds(seed, signal=0.0) for seed in range(150)]
    assert sum(verdict.informative.p < 0.05 for verdict in verdicts) <= 9  # 5 %, and a little
    assert any(verdict.informative.difference == 0.0 for verdict in verdicts)
    assert in_many_folds(0, signal=0.5).informative.p < 0.01


def test_a_null_direction_is_accepted_at_most_at_the_level():
    """Concept and task equally present along v: the second test is at its boundary."""
    wrong = informative = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        y, concept = rng.integers(2, size=(2, 600))
        z = rng.standard_normal((600, 5))
        z[:, 0] += 0.8 * (y + concept - 1)
        rows = MemoryRows(z, RowLabels.of(y, concept, fold=np.ones(600, dtype=int)))
        tests = DirectionTests()
        losses = tests.losses(rows, CellCounts.of(rows), np.eye(5)[[0]], CENTRE)
        wrong += tests.test("spurious", losses).proper
        noise = tests.losses(rows, CellCounts.of(rows), np.eye(5)[[2]], CENTRE)
        informative += tests.test("spurious", noise).informative.t < -norm.ppf(0.95)
    assert wrong <= 18  # 5 % of 200, with three standard deviations of luck
    assert wrong >= 2
    assert informative <= 18


def test_a_constant_direction_is_no_evidence():
    _, _, rows, counts = rows_with_folds()
    tests = DirectionTests()
    verdict = tests.test("main", tests.losses(rows, counts, np.zeros((1, 5)), CENTRE))
    assert not verdict.proper
    assert np.isfinite([verdict.informative.t, verdict.specific.t, verdict.informative.p]).all()


def groups_of(sizes, weight=None):
    """Held-out rows with given sizes of the groups 00, 01, 10, 11."""
    group = np.repeat(np.arange(4), sizes)
    rows = np.random.default_rng(0).standard_normal((len(group), 5))
    return MemoryRows(rows, RowLabels.of(group >> 1, group & 1, weight, fold=np.ones(len(group), dtype=int)))


def test_small_groups_are_named_with_their_size_and_a_remedy():
    counts = CellCounts.of(groups_of([12, 12, 9, 12]))
    with pytest.raises(
        GroupSizeError, match=r"\(main=1, concept=0\) has 9; the tests need at least 10.*cv=5.*group 9 "
    ):
        require_testable(counts, by_group=True, smallest=10, remedy="Use cv=5.")
    require_testable(counts, by_group=True, smallest=9, remedy="")
    require_testable(counts, by_group=False, smallest=10, remedy="")
    with pytest.raises(GroupSizeError, match=r"has 1; .* in each\. Use cv=5\.$"):  # 1 is none
        require_testable(CellCounts.of(groups_of([12, 12, 1, 12])), by_group=True, smallest=10, remedy="Use cv=5.")


def test_plain_tests_need_two_rows_as_well():
    counts = CellCounts.of(groups_of([12] * 4, np.r_[1.0, np.zeros(46), 1e-9]))
    with pytest.raises(GroupSizeError, match=r"rows: 1\.0 \(effective, under weights\); the tests need at least 2"):
        require_testable(counts, by_group=False, smallest=10, remedy="")


def test_weights_make_a_group_smaller():
    """Twelve rows, one of which has nearly all the weight, are not twelve."""
    weight = np.ones(48)
    require_testable(CellCounts.of(groups_of([12] * 4, 0.3 * weight)), by_group=True, smallest=12, remedy="")
    weight[:12] = [1.0, *[0.01] * 11]
    with pytest.raises(GroupSizeError, match=r"\(main=0, concept=0\) has 1\.\d \(effective"):
        require_testable(CellCounts.of(groups_of([12] * 4, weight)), by_group=True, smallest=10, remedy="")


def test_degrees_of_freedom_are_those_of_the_groups_that_vary_most():
    """Ten noisy rows beside thousands: about nine degrees, and a threshold that is wider than the normal one."""
    rows = groups_of([3000, 10, 3000, 3000])
    tests = DirectionTests()
    specific = tests.test("main", tests.losses(rows, CellCounts.of(rows), np.eye(5)[[0]], CENTRE)).specific
    assert 8 < specific.df < 12
    assert specific.p > norm.cdf(-abs(specific.t))
    assert_allclose(specific.scaled(0.05, 1.0), specific.t / -student.ppf(0.05, specific.df))
    even = groups_of([3000] * 4)
    assert tests.test("main", tests.losses(even, CellCounts.of(even), np.eye(5)[[0]], CENTRE)).specific.df > 5000


def test_folds_that_share_their_noise_widen_the_second_test():
    """Directions that correlate by 1 − f/(K − 1) are noise by a share f; the first test stays as it is."""
    _, _, rows, counts = rows_with_folds(n=4000, folds=5, rho=0.5)
    tests = DirectionTests()
    same = np.tile(np.eye(5)[0], (5, 1))
    assert tests.losses(rows, counts, same, CENTRE).shared_noise == pytest.approx(0, abs=1e-9)
    share = 0.5
    wide = np.random.default_rng(0).standard_normal((4000, 10))
    columns = RowLabels.of(*np.random.default_rng(1).integers(2, size=(2, 4000)), fold=np.arange(4000) % 5 + 1)
    # The same true part in all, and noise that two folds of five have three quarters of in common.
    noise = np.linalg.cholesky(0.75 * np.ones((5, 5)) + 0.25 * np.eye(5))
    apart = np.hstack([np.sqrt(1 - share) * same, np.sqrt(share) * noise])
    noisy = MemoryRows(wide, columns)
    losses = tests.losses(noisy, CellCounts.of(noisy), apart, np.zeros(10))
    assert losses.shared_noise == pytest.approx(share, abs=0.05)
    with_noise, without = (tests.test("main", value) for value in (losses, replace(losses, shared_noise=0.0)))
    assert with_noise.specific.error == pytest.approx(without.specific.error * np.sqrt(1 + 2 * losses.shared_noise))
    assert with_noise.informative == without.informative
