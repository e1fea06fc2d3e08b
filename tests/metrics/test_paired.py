"""Paired differences against a likelihood maximised by brute force, against all outcomes, and against known truth."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import multinomial, norm

from unspur.exceptions import InputError
from unspur.metrics import GroupAccuracy, paired_difference, worst_difference


def answers(both, better, worse, neither):
    """Right or wrong, before and after, for so many rows of each kind."""
    counts = [both, better, worse, neither]
    return np.repeat([True, False, True, False], counts), np.repeat([True, True, False, False], counts)


def score(delta, better, worse, n, step=0.0):
    """The score statistic of a difference, its likelihood maximised numerically; `step` corrects for continuity."""

    def unlikely(q):
        p = q + delta
        rest = 1 - p - q
        logs = [(better, p), (worse, q), (n - better - worse, rest)]
        return -sum(k * np.log(max(share, 1e-300)) for k, share in logs if k)

    low, high = max(0.0, -delta), (1 - delta) / 2
    q = minimize_scalar(unlikely, bounds=(low, high), method="bounded", options={"xatol": 1e-12}).x
    return (better - worse - n * delta - step) / np.sqrt(n * (2 * q + delta - delta**2))


@pytest.mark.parametrize("counts", [(36, 12, 2, 0), (20, 3, 9, 18), (5, 4, 1, 2), (300, 40, 1, 59)])
def test_bounds_are_where_a_score_test_starts_to_reject(counts):
    found = paired_difference(*answers(*counts))
    _, better, worse, _ = counts
    n = sum(counts)
    assert found.value == pytest.approx((better - worse) / n)
    z, step = norm.ppf(0.975), (1 + (better + worse) / n) / 2
    assert score(found.low, better, worse, n, step) == pytest.approx(z, abs=1e-4)
    assert score(found.high, better, worse, n, -step) == pytest.approx(-z, abs=1e-4)


@pytest.mark.parametrize("n", [2, 5, 10, 30])
def test_the_interval_covers_at_any_shares(n):
    """Summed over all outcomes, not drawn; the score test without its correction covers less."""
    outcomes = [(b, c) for b in range(n + 1) for c in range(n + 1 - b)]
    found = [paired_difference(*answers(n - b - c, b, c, 0)) for b, c in outcomes]
    low, high = (np.array([getattr(d, side) for d in found]) for side in ("low", "high"))
    counts = np.array([(b, c, n - b - c) for b, c in outcomes])
    shares = [0.0, 0.001, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.97, 0.99]
    rates, plain = [], []
    for better in shares:
        for worse in {share for share in (*shares, 1 - better) if better + share <= 1}:
            mass = multinomial.pmf(counts, n, [better, worse, 1 - better - worse])
            truth = better - worse
            rates.append(mass[(low <= truth + 1e-9) & (truth - 1e-9 <= high)].sum())
            if n == 10 and worse and better + worse < 1:
                without = [abs(score(truth, b, c, n)) <= norm.ppf(0.975) for b, c in outcomes]
                plain.append(mass[without].sum())
    assert min(rates) >= 0.95
    assert min(plain, default=0.0) < 0.94


def test_pairing_is_used():
    """The same two accuracies differ clearly where the same rows are right, and not where others are."""
    together, apart = (paired_difference(*answers(*counts)) for counts in ((120, 15, 1, 64), (61, 74, 60, 5)))
    assert together.value == pytest.approx(apart.value)
    assert together.low > 0 > apart.low
    assert together.high < apart.high


@pytest.mark.parametrize("counts", [(10, 0, 0, 0), (0, 0, 0, 3), (0, 5, 0, 0), (0, 0, 7, 0), (0, 1, 0, 0)])
def test_few_rows_and_no_discordant_ones_leave_room_for_doubt(counts):
    found = paired_difference(*answers(*counts))
    assert -1 <= found.low <= found.value <= found.high <= 1
    assert found.high - found.low > 0.2


CASES = [
    ([12], [(0.8, 0.08, 0.04)]),
    ([200], [(0.9, 0.01, 0.0)]),
    ([400], [(0.7, 0.15, 0.02)]),
    ([9, 9, 9, 9], [(0.5, 0.3, 0.1)] * 4),
    ([600, 8, 8, 600], [(0.95, 0.01, 0.01), (0.5, 0.3, 0.05), (0.5, 0.3, 0.05), (0.95, 0.01, 0.01)]),
    ([200] * 4, [(0.9, 0.003, 0.003)] * 4),
]


@pytest.mark.parametrize(("rows", "shares"), CASES)
def test_intervals_cover_the_truth(rows, shares):
    """Also for groups of a few rows, and where next to none change; 600 samples tell 93.2 from 95 %."""
    rng, repeats = np.random.default_rng(0), 600
    group = np.repeat(np.arange(len(rows)), rows)
    truth = np.mean([better - worse for _, better, worse in shares])
    hit = 0
    for _ in range(repeats):
        kind = np.concatenate([rng.choice(4, size=n, p=[*p, 1 - sum(p)]) for n, p in zip(rows, shares, strict=True)])
        found = paired_difference(np.isin(kind, (0, 2)), np.isin(kind, (0, 1)), group)
        hit += found.low <= truth <= found.high
    assert hit / repeats >= 0.932


def test_groups_count_the_same_however_large_they_are():
    one, other = answers(800, 100, 0, 100), answers(2, 0, 4, 4)
    group = np.repeat([5, 3], [1000, 10])  # any numbers do
    before, after = (np.concatenate(parts) for parts in zip(one, other, strict=True))
    assert paired_difference(before, after, group).value == pytest.approx((0.1 - 0.4) / 2)
    assert paired_difference(before, after).value == pytest.approx((100 - 4) / 1010)
    # The small group is what is not known well.
    assert paired_difference(before, after, group).high > 0.0


def test_both_averages_have_intervals_that_hold_them():
    accuracy = GroupAccuracy(
        rows=np.array([[500, 20], [20, 0]]), correct=np.array([[450, 10], [20, 0]]), levels=((0, 1), (0, 1))
    )
    low, high = accuracy.average_interval()
    assert low < accuracy.average < high
    below, above = accuracy.group_average_interval()
    assert below < accuracy.group_average < above
    assert above - below > high - low  # two groups of twenty rows count as much as that of five hundred
    with pytest.raises(InputError, match="level"):
        accuracy.average_interval(95)


@pytest.mark.parametrize(
    ("rows", "truth"),
    [
        ([[300, 12], [9, 300]], [[0.97, 0.6], [0.8, 0.97]]),
        ([[10] * 4] * 3, [[0.5] * 4] * 3),  # from score intervals of the groups: 92 %
        ([[5, 100] * 2] * 3, [[0.6, 0.97] * 2] * 3),  # 92 %
    ],
)
def test_the_interval_of_the_group_average_covers(rows, truth):
    """1000 samples tell 93.5 from 95 %."""
    rng, rows, truth = np.random.default_rng(1), np.array(rows), np.array(truth)
    levels = tuple(tuple(range(k)) for k in rows.shape)
    bounds = np.array(
        [GroupAccuracy(rows, rng.binomial(rows, truth), levels).group_average_interval() for _ in range(1000)]
    )
    assert np.mean((bounds[:, 0] <= truth.mean()) & (truth.mean() <= bounds[:, 1])) >= 0.935
    usual = 2 * 1.96 * np.sqrt(np.sum(truth * (1 - truth) / rows)) / rows.size
    assert usual < np.mean(bounds[:, 1] - bounds[:, 0]) < 1.5 * usual  # not bought with width


def test_the_change_of_the_worst_group_covers_whichever_group_that_is():
    truth = np.array([[0.9, 0.55], [0.6, 0.95]]), np.array([[0.85, 0.8], [0.78, 0.9]])
    rows = np.full((2, 2), 150)
    rng, hits, wide = np.random.default_rng(0), 0, []
    for _ in range(400):
        before, after = (GroupAccuracy(rows, rng.binomial(rows, share), ((0, 1), (0, 1))) for share in truth)
        change = worst_difference(before, after)
        assert change.low <= change.value <= change.high
        hits += change.low <= truth[1].min() - truth[0].min() <= change.high
        wide.append(change.high - change.low)
    assert hits >= 380
    assert np.mean(wide) < 0.4  # an interval that covers everything would, too


def test_no_change_of_the_worst_group_is_not_called_one():
    accuracy = GroupAccuracy(np.full((2, 2), 50), np.array([[40, 30], [35, 45]]), ((0, 1), (0, 1)))
    change = worst_difference(accuracy, accuracy)
    assert change.value == 0.0
    assert change.low < 0.0 < change.high


def test_answers_that_are_neither_right_nor_wrong_are_refused():
    words = np.array(["cat", "dog"] * 5)
    for given in (words, np.arange(10), np.full(10, np.nan), words.astype(object)):
        with pytest.raises(InputError, match="is right"):
            paired_difference(given, np.ones(10))
    assert paired_difference(np.zeros(10), np.ones(10, dtype=int)).value == 1.0


@pytest.mark.parametrize("missing", [np.nan, None])
def test_rows_of_an_unknown_group_are_left_out(missing):
    rng = np.random.default_rng(0)
    before, after, group = rng.random(300) < 0.6, rng.random(300) < 0.8, rng.integers(3, size=300).astype(object)
    known = rng.random(300) < 0.7
    kept = paired_difference(before[known], after[known], group=group[known].astype(int))
    group[~known] = missing
    assert paired_difference(before, after, group=group) == kept
    assert paired_difference(before, after, group=np.where(known, group, 3)) != kept  # control
    with pytest.raises(InputError, match=r"group has shape \(2,\); 300 values are needed"):
        paired_difference(before, after, group=[0, 1])
    with pytest.raises(InputError, match="group is missing in all 300 rows"):
        paired_difference(before, after, group=[missing] * 300)
