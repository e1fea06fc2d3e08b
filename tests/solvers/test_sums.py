import itertools

import numpy as np
import pytest

from unspur._arrays import MIN_MATVEC_SIZE
from unspur.exceptions import GroupSizeError
from unspur.rows import CONCEPT, MAIN, Block, MemoryRows, RowLabels, StackedRows, Weighting
from unspur.solvers.logistic import LogisticLosses, loss_and_probability
from unspur.solvers.statistics import CellCounts, Moments, count_not_finite

BALANCES = ["none", "concept", "main", "group"]


class Sample:
    """A few hundred rows with labels that go together, weights (some zero) and folds 0 to 3."""

    def __init__(self, seed: int = 0, n: int = 300, d: int = 6):
        rng = np.random.default_rng(seed)
        self.z = rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
        self.concept = rng.integers(0, 2, n)
        self.y = np.where(rng.random(n) < 0.8, self.concept, 1 - self.concept)
        self.weight = rng.uniform(0.1, 4.0, n) * (rng.random(n) < 0.9)
        self.fold = rng.integers(0, 4, n)
        self.columns = RowLabels.of(self.y, self.concept, self.weight, self.fold)
        self.rows = MemoryRows(self.z, self.columns, block_rows=70)
        self.block = Block(self.z, self.columns.targets, self.columns.cell, self.columns.weight)

    def members(self, fold, y, concept):
        return (self.fold == fold) & (self.y == y) & (self.concept == concept)


@pytest.fixture(scope="module")
def sample() -> Sample:
    return Sample()


class TestCounts:
    def test_counts_rows_with_weight_and_weight_per_cell(self, sample):
        counts = CellCounts.of(sample.rows)
        assert counts.rows.shape == counts.weight.shape == (4, 2, 2)
        for fold, y, concept in itertools.product(range(4), (0, 1), (0, 1)):
            members = sample.members(fold, y, concept)
            assert counts.rows[fold, y, concept] == np.sum(members & (sample.weight > 0))
            assert counts.weight[fold, y, concept] == pytest.approx(sample.weight[members].sum())
        assert counts.rows.sum() < len(sample.z)  # control: some rows have no weight
        assert counts.n_folds == 3

    def test_counts_of_stacked_rows_are_those_of_all_parts(self):
        train, validation = Sample(1), Sample(2)
        stacked = StackedRows(
            MemoryRows(train.z, RowLabels.of(train.y, train.concept)),  # fold 0 only
            MemoryRows(validation.z, RowLabels.of(validation.y, validation.concept, fold=np.ones(300))),
        )
        counts = CellCounts.of(stacked)
        np.testing.assert_array_equal(counts.rows.sum(axis=(1, 2)), [300, 300])
        assert counts.rows[1, 1, 0] == np.sum((validation.y == 1) & (validation.concept == 0))

    def test_masks_select_folds(self, sample):
        counts = CellCounts.of(sample.rows)
        assert counts.without(2).tolist() == [True, True, False, True]
        assert counts.without(None).tolist() == [True] * 4
        assert counts.held_out_folds.tolist() == [False, True, True, True]

    @pytest.mark.parametrize("balance", BALANCES)
    @pytest.mark.parametrize("folds", [[0, 1, 2, 3], [0, 1, 3], [2], [1, 2, 3]], ids=str)
    def test_weighting_sums_to_one_and_is_equal_over_what_it_balances(self, sample, balance, folds):
        counts = CellCounts.of(sample.rows)
        omega = counts.weighting(np.isin(np.arange(4), folds), balance)(sample.block)
        inside = np.isin(sample.fold, folds)
        assert omega.sum() == pytest.approx(1, abs=1e-12)
        assert not omega[~inside].any()
        label = {
            "none": np.zeros(300),
            "concept": sample.concept,
            "main": sample.y,
            "group": 2 * sample.y + sample.concept,
        }[balance]
        classes = np.unique(label)
        for value in classes:
            members = inside & (label == value)
            assert omega[members].sum() == pytest.approx(1 / len(classes))
            # Inside a class, rows count by their own weight.
            share = sample.weight[members] / sample.weight[members].sum()
            np.testing.assert_allclose(omega[members] * len(classes), share, rtol=1e-12)

    def test_balances_differ_where_labels_go_together(self, sample):
        counts = CellCounts.of(sample.rows)
        omegas = [counts.weighting(counts.without(None), balance)(sample.block) for balance in BALANCES]
        for a, b in itertools.combinations(omegas, 2):
            assert np.abs(a - b).max() > 1e-4

    def test_an_empty_group_is_named(self, sample):
        gone = ~((sample.y == 1) & (sample.concept == 0))
        rows = MemoryRows(sample.z[gone], RowLabels.of(sample.y[gone], sample.concept[gone]))
        counts = CellCounts.of(rows)
        with pytest.raises(GroupSizeError, match=r"in \(main=1, concept=0\), so"):
            counts.weighting(counts.without(None), "group")
        for coarser in ("none", "concept", "main"):
            counts.weighting(counts.without(None), coarser)

    def test_a_group_without_weight_counts_as_empty(self, sample):
        weight = np.where((sample.y == 0) & (sample.concept == 1), 0.0, 1.0)
        counts = CellCounts.of(MemoryRows(sample.z, RowLabels.of(sample.y, sample.concept, weight)))
        with pytest.raises(GroupSizeError, match=r"in \(main=0, concept=1\), so"):
            counts.weighting(counts.without(None), "group")

    def test_a_group_missing_from_the_folds_asked_for_is_named(self, sample):
        fold = np.where((sample.y == 1) & (sample.concept == 1), 0, 1)
        counts = CellCounts.of(MemoryRows(sample.z, RowLabels.of(sample.y, sample.concept, fold=fold)))
        with pytest.raises(GroupSizeError, match=r"\(main=1, concept=1\)"):
            counts.weighting(~counts.without(1), "group")
        counts.weighting(counts.without(None), "group")

    @pytest.mark.parametrize(
        ("balance", "named"),
        [
            ("concept", r"\(main=0, concept=1\), \(main=1, concept=1\)"),
            ("group", r"\(main=0, concept=1\), \(main=1, concept=1\)"),
        ],
    )
    def test_an_empty_class_is_named_by_its_groups(self, sample, balance, named):
        none = np.zeros_like(sample.y)
        counts = CellCounts.of(MemoryRows(sample.z, RowLabels.of(sample.y, none)))
        with pytest.raises(GroupSizeError, match=named):
            counts.weighting(counts.without(None), balance)
        counts.weighting(counts.without(None), "main")


class TestMoments:
    @pytest.mark.parametrize("balance", BALANCES)
    def test_are_numpys_weighted_mean_and_covariance(self, sample, balance):
        counts = CellCounts.of(sample.rows)
        weighting = counts.weighting(counts.without(2), balance)
        moments, omega = Moments.of(sample.rows, weighting), weighting(sample.block)
        np.testing.assert_allclose(moments.mean, np.average(sample.z, axis=0, weights=omega), atol=1e-12)
        np.testing.assert_allclose(moments.second, np.cov(sample.z.T, aweights=omega, ddof=0), atol=1e-12)
        # Control: the weights matter.
        assert not np.allclose(moments.mean, sample.z.mean(axis=0), atol=1e-3)

    def test_weights_need_not_sum_to_one(self, sample):
        factor = np.full(16, 7.0)
        moments = Moments.of(sample.rows, Weighting(factor))
        np.testing.assert_allclose(moments.mean, np.average(sample.z, axis=0, weights=sample.weight), atol=1e-12)
        np.testing.assert_allclose(moments.second, np.cov(sample.z.T, aweights=sample.weight, ddof=0), atol=1e-12)

    def test_float32_rows_far_from_zero_keep_their_digits(self, sample):
        far = (sample.z + 1e4).astype(np.float32)
        weighting = Weighting(np.ones(16))
        moments = Moments.of(MemoryRows(far, sample.columns, block_rows=70), weighting)
        exact = far.astype(np.float64)
        np.testing.assert_allclose(moments.mean, np.average(exact, axis=0, weights=sample.weight), rtol=1e-13)
        covariance = np.cov(exact.T, aweights=sample.weight, ddof=0)
        np.testing.assert_allclose(moments.second, covariance, rtol=1e-9, atol=1e-9)
        # Control: E[zzᵀ] − E[z]E[z]ᵀ in the type of the rows loses all of them.
        naive = far.T @ far / np.float32(300) - np.outer(far.mean(axis=0), far.mean(axis=0))
        assert np.abs(naive - np.cov(exact.T, ddof=0)).max() > 1.0

    def test_second_moment_has_the_rank_of_the_rows(self, sample):
        z = np.round(128 * sample.z) / 128  # sums of columns are exact in float32, so the rank is exactly 6
        flat = np.column_stack([z, z[:, 0] + z[:, 1], z[:, 2] - z[:, 3], np.full(300, 5.0)]).astype(np.float32)
        second = Moments.of(MemoryRows(flat, sample.columns), Weighting(np.ones(16))).second
        assert np.linalg.matrix_rank(second, tol=1e-12) == 6
        np.testing.assert_allclose(second, second.T, atol=1e-14)
        # Control: summed in the type of the rows, rounding would pass for directions.
        mean = flat.mean(axis=0)
        narrow = (flat * sample.weight.astype(np.float32)[:, None]).T @ (flat - mean)
        assert np.linalg.matrix_rank(narrow / sample.weight.sum(), tol=1e-12) > 6


class TestCountNotFinite:
    def counts(self, z):
        none = np.zeros(len(z), dtype=np.intp)
        return count_not_finite(MemoryRows(z, RowLabels.of(none, none), block_rows=4))

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_counts_gaps_and_infinities_by_column(self, dtype):
        z = np.random.default_rng(0).standard_normal((30, 4)).astype(dtype)
        z[[0, 13, 29], 1] = np.nan
        z[5, 2], z[6, 2], z[7, 3] = np.inf, -np.inf, np.inf
        counts = self.counts(z)
        np.testing.assert_array_equal(counts, [[0, 3, 0, 0], [0, 0, 2, 1]])

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_finite_rows_have_none_even_when_their_sum_overflows(self, dtype):
        z = np.full((9, 3), np.finfo(dtype).max, dtype=dtype)
        with np.errstate(over="ignore"):
            assert np.isinf(z.sum())
        counts = self.counts(z)
        assert not counts.any()
        z[8, 0] = np.nan
        assert self.counts(z).any()


def naive_loss(parameters, sample: Sample, omega, centre) -> float:
    """Σ ω [ℓ(concept) + ℓ(main)] by the textbook formula, one label after the other."""
    intercepts, weights = parameters[:2], parameters[2:].reshape(2, -1)
    total = 0.0
    for position, label in ((CONCEPT, sample.concept), (MAIN, sample.y)):
        t = (sample.z - centre) @ weights[position] + intercepts[position]
        p = 1 / (1 + np.exp(-t))
        total -= np.sum(omega * np.where(label == 1, np.log(p), np.log(1 - p)))
    return float(total)


def pair_loss(parameters, centre, weighting, centred=False):
    """Statistic that gives the loss of both labels, then its gradient in intercepts and weights."""
    losses = LogisticLosses.of_one(parameters[2:].reshape(2, -1), parameters[:2], centre, weighting, centred=centred)
    return lambda block: flat(losses(block))


def flat(sums):
    return np.concatenate([[sums[..., 0].sum()], sums[..., 1].ravel(), sums[..., 2:].ravel()])


both_ways = pytest.mark.parametrize("centred", [False, True], ids=["logits shifted", "rows centred"])


class TestLogisticLosses:
    @pytest.fixture
    def setting(self, sample):
        rng = np.random.default_rng(3)
        counts = CellCounts.of(sample.rows)
        weighting = counts.weighting(counts.without(1), "group")
        return 0.5 * rng.standard_normal(2 + 12), rng.standard_normal(6), weighting

    @both_ways
    def test_value_is_the_weighted_loss_of_both_labels(self, sample, setting, centred):
        parameters, centre, weighting = setting
        seen = sample.rows.sum(pair_loss(parameters, centre, weighting, centred))
        assert seen.shape == (3 + 12,)
        assert seen[0] == pytest.approx(naive_loss(parameters, sample, weighting(sample.block), centre), rel=1e-12)
        swapped = np.r_[parameters[1::-1], parameters[8:], parameters[2:8]]
        other = sample.rows.sum(pair_loss(swapped, centre, weighting, centred))[0]
        assert abs(other - seen[0]) > 1e-3  # control: which label is which matters

    @both_ways
    def test_gradient_is_that_of_central_differences(self, sample, setting, centred):
        parameters, centre, weighting = setting
        omega, step = weighting(sample.block), 1e-5
        differences = np.array(
            [
                naive_loss(parameters + e, sample, omega, centre) - naive_loss(parameters - e, sample, omega, centre)
                for e in step * np.eye(14)
            ]
        ) / (2 * step)
        gradient = sample.rows.sum(pair_loss(parameters, centre, weighting, centred))[1:]
        np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-8)
        assert np.abs(gradient).min() > 1e-5  # control: there is a slope to compare in every parameter

    def test_centring_rows_or_logits_gives_the_same(self, sample, setting):
        parameters, centre, weighting = setting
        shifted, centred = (sample.rows.sum(pair_loss(parameters, centre, weighting, c)) for c in (False, True))
        np.testing.assert_allclose(shifted, centred, rtol=1e-11, atol=1e-12)
        elsewhere = sample.rows.sum(pair_loss(parameters, centre + 0.1, weighting))
        assert not np.allclose(elsewhere, shifted, rtol=1e-3)

    @both_ways
    def test_float32_rows_give_float64_sums_within_their_precision(self, sample, setting, centred):
        statistic = pair_loss(*setting, centred)
        narrow = MemoryRows(sample.z.astype(np.float32), sample.columns, block_rows=70).sum(statistic)
        assert narrow.dtype == np.float64
        wide = sample.rows.sum(statistic)
        np.testing.assert_allclose(narrow, wide, rtol=1e-5, atol=1e-6)
        assert not np.array_equal(narrow, wide)

    def test_centred_rows_keep_the_signal_of_float32_far_from_zero(self, sample, setting):
        parameters, _, weighting = setting
        far = (sample.z + 1e4).astype(np.float32)
        centre = far.mean(axis=0).astype(np.float64)
        exact = MemoryRows(far.astype(np.float64), sample.columns).sum(pair_loss(parameters, centre, weighting))
        rows = MemoryRows(far, sample.columns)
        centred, shifted = (rows.sum(pair_loss(parameters, centre, weighting, c)) for c in (True, False))
        np.testing.assert_allclose(centred, exact, rtol=1e-5, atol=1e-6)
        assert np.abs(shifted - exact).max() > 1e-4  # control: this is what `centred` is for

    @both_ways
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_one_large_block_equals_many_small_ones(self, setting, centred, dtype):
        large = Sample(4, n=900, d=150)
        assert large.z.size > MIN_MATVEC_SIZE > 100 * 150  # the two ways of multiplying
        rng = np.random.default_rng(5)
        parameters, centre = 0.05 * rng.standard_normal(302), rng.standard_normal(150)
        statistic = pair_loss(parameters, centre, setting[2], centred)
        z = large.z.astype(dtype)
        together, apart = (MemoryRows(z, large.columns, block_rows=size).sum(statistic) for size in (900, 100))
        error = 200 * np.finfo(dtype).eps
        np.testing.assert_allclose(together, apart, rtol=error, atol=error * np.abs(apart).max())

    @both_ways
    @pytest.mark.parametrize("size", [1e4, -1e4])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_extreme_logits_give_finite_sums(self, centred, size, dtype):
        y = np.array([0, 1])
        z = np.ones((2, 3), dtype=dtype)
        weights = np.zeros((2, 3))
        weights[MAIN, 0] = size
        statistic = LogisticLosses.of_one(
            weights, np.zeros(2), np.zeros(3), Weighting(np.full(4, 0.5)), centred=centred
        )
        seen = flat(MemoryRows(z, RowLabels.of(y, np.array([0, 1]))).sum(statistic))
        assert np.isfinite(seen).all()
        # One of the two rows is wrong by |t|, the other right; the concept is undecided.
        assert seen[0] == pytest.approx(0.5 * abs(size) + np.log(2))
        assert seen[1 + MAIN] == pytest.approx(0.5 * np.sign(size))

    @both_ways
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_several_weightings_in_one_visit_are_each_alone(self, sample, setting, centred, dtype):
        rng = np.random.default_rng(8)
        counts = CellCounts.of(sample.rows)
        weightings = [counts.weighting(counts.without(k), "group") for k in (None, 1, 2)]
        weights, intercepts = 0.5 * rng.standard_normal((3, 2, 6)), rng.standard_normal((3, 2))
        rows = MemoryRows(sample.z.astype(dtype), sample.columns, block_rows=70)
        factors = np.stack([weighting.factor for weighting in weightings])
        together = rows.sum(LogisticLosses(weights, intercepts, np.arange(2), factors, setting[1], centred))
        alone = [
            rows.sum(LogisticLosses.of_one(w, b, setting[1], weighting, centred=centred))[0]
            for w, b, weighting in zip(weights, intercepts, weightings, strict=True)
        ]
        error = 500 * np.finfo(dtype).eps
        np.testing.assert_allclose(together, alone, rtol=error, atol=error * np.abs(alone).max())
        one = LogisticLosses(weights[:1, 1:], intercepts[:1, 1:], np.array([MAIN]), factors[:1], setting[1], centred)
        np.testing.assert_allclose(rows.sum(one)[0, 0], alone[0][MAIN], rtol=error, atol=error * np.abs(alone).max())
        assert np.abs(alone[0] - alone[1]).max() > 1e-3  # control: weightings and weights differ

    @pytest.mark.parametrize("size", [60.0, 85.0, 120.0, 1e30])
    def test_float32_logits_neither_overflow_nor_lose_the_loss(self, size):
        t = np.array([-size, size], dtype=np.float32)
        loss, p = loss_and_probability(t, np.ones(2, dtype=np.float32))
        assert loss.dtype == p.dtype == np.float32
        np.testing.assert_allclose(loss, [size, 0.0], rtol=1e-6)
        np.testing.assert_allclose(p, [0.0, 1.0], atol=1e-20)

    def test_loss_and_probability_hold_at_the_ends(self):
        t = np.array([-1e4, -800.0, -40.0, 0.0, 40.0, 800.0, 1e4])
        loss, p = loss_and_probability(t, np.ones(7))
        np.testing.assert_allclose(loss, [1e4, 800, 40, np.log(2), 0, 0, 0], rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(p, [0, 0, np.exp(-40), 0.5, 1, 1, 1], rtol=1e-12)
        mirrored, q = loss_and_probability(-t, np.zeros(7))
        np.testing.assert_allclose(mirrored, loss, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(p + q, 1)
