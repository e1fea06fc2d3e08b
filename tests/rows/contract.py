"""What every row source promises. Subclass, write `make`, and each promise is checked for yours."""

from pathlib import Path

import numpy as np
import pytest

from unspur._arrays import to_numpy
from unspur.rows import Block, RowLabels, RowSource

N, D, N_FOLDS = 47, 5, 2
#: The rows from here on are fold 2 and nothing else is: a validation set stacked below the training rows.
TAIL = 32
CELLS = 4 * (N_FOLDS + 1)


def array(values) -> np.ndarray:
    """What a block holds, wherever it is, as NumPy sees it."""
    return np.asarray(to_numpy(values))


def row_numbers(block: Block) -> np.ndarray:
    """The first feature of row i is i."""
    return array(block.z)[:, 0].astype(np.intp)


def visits(block: Block) -> np.ndarray:
    return np.bincount(row_numbers(block), minlength=N).astype(np.float64)


def table(block: Block) -> np.ndarray:
    """Second moments of everything a block carries; any two columns out of step show up in it."""
    columns = np.column_stack(
        [
            np.ones(len(block.cell)),
            array(block.z).astype(np.float64),
            array(block.targets).astype(np.float64).T,
            array(block.weight).astype(np.float64),
            array(block.fold).astype(np.float64),
            np.eye(CELLS)[array(block.cell)],
        ]
    )
    return columns.T @ columns


def placed(shift: float):
    """Statistic that puts each row where it belongs, whatever the order of visits; its first feature is i − shift."""

    def place(block: Block) -> np.ndarray:
        z = array(block.z).astype(np.float64)
        out = np.zeros((N, z.shape[1]))
        np.add.at(out, np.rint(z[:, 0] + shift).astype(np.intp), z)
        return out

    return place


def numbered(directions: np.ndarray) -> np.ndarray:
    """The same directions behind the first axis, so that a projected row still tells its number."""
    return np.column_stack([np.eye(len(directions))[:, 0], directions])


def whole(z: np.ndarray, columns: RowLabels) -> Block:
    """All rows as one block, put together by hand."""
    return Block(z, columns.targets, columns.cell, columns.weight)


class RowSourceContract:
    """Promises of :class:`unspur.rows.RowSource`.

    `make` returns the source under test for an array (N, D) and its columns, of which the rows from `TAIL` on are held
    out. `dtypes` are the types that the source can hold.
    """

    dtypes: tuple[type, ...] = (np.float64, np.float32)

    def make(self, z: np.ndarray, columns: RowLabels, tmp_path: Path) -> RowSource:
        raise NotImplementedError

    def pytest_generate_tests(self, metafunc):
        if "dtype" in metafunc.fixturenames:
            metafunc.parametrize("dtype", self.dtypes, ids=lambda dtype: dtype.__name__)

    @pytest.fixture
    def z(self, dtype):
        z = np.random.default_rng(0).standard_normal((N, D))
        z[:, 0] = np.arange(N)
        return z.astype(dtype)

    @pytest.fixture
    def fold(self):
        return np.r_[np.random.default_rng(1).integers(0, 2, TAIL), np.full(N - TAIL, 2)]

    @pytest.fixture
    def columns(self, fold):
        rng = np.random.default_rng(2)
        weight = rng.uniform(0.5, 3.0, N)
        weight[[3, 20, 40]] = 0.0
        return RowLabels.of(rng.integers(0, 2, N), rng.integers(0, 2, N), weight, fold)

    @pytest.fixture
    def alike(self, columns, fold):
        """Columns whose rows weigh the same, but for three that weigh nothing."""
        return RowLabels.of(columns.targets[1], columns.targets[0], 0.3 * (columns.weight > 0), fold)

    @pytest.fixture
    def source(self, z, columns, tmp_path):
        return self.make(z, columns, tmp_path)

    def test_knows_its_size_its_folds_and_its_type(self, source, z):
        assert (source.n_rows, source.n_features, source.n_folds) == (N, D, N_FOLDS)
        assert source.dtype == z.dtype

    def test_sum_visits_every_row_exactly_once(self, source):
        np.testing.assert_array_equal(source.sum(visits), np.ones(N))

    def test_rows_arrive_with_their_own_labels_cell_and_weight(self, source, z, columns):
        expected = table(whole(z, columns))
        np.testing.assert_allclose(source.sum(table), expected, rtol=1e-12, atol=1e-9)
        # Control: each column one row out of step is seen.
        for out_of_step in (
            Block(np.roll(z, 1, axis=0), columns.targets, columns.cell, columns.weight),
            Block(z, np.roll(columns.targets, 1, axis=1), columns.cell, columns.weight),
            Block(z, columns.targets, np.roll(columns.cell, 1), columns.weight),
            Block(z, columns.targets, columns.cell, np.roll(columns.weight, 1)),
        ):
            assert not np.allclose(table(out_of_step), expected, rtol=1e-3)

    def test_blocks_hold_stored_rows_in_the_promised_shapes(self, source, z):
        def faults(block: Block) -> int:
            m = block.z.shape[0]
            as_stored = block.z.shape[1] == D and array(block.z).dtype == z.dtype
            labels = block.targets.shape == (2, m) and np.all(np.isin(array(block.targets), (0, 1)))
            return int(not (as_stored and labels and block.cell.shape == block.weight.shape == (m,)))

        assert source.sum(faults) == 0

    def test_cell_is_fold_then_main_label_then_concept(self, source, columns, fold):
        def differences(block: Block) -> np.ndarray:
            concept, main = array(block.targets)
            from_fold = np.abs(array(block.fold) - fold[row_numbers(block)]).sum()
            return np.array([from_fold, np.abs(array(block.cell) - (4 * array(block.fold) + 2 * main + concept)).sum()])

        np.testing.assert_array_equal(source.sum(differences), [0, 0])
        assert not np.array_equal(*columns.targets)  # control: the two labels can be told apart

    def test_repeated_sums_are_identical(self, source):
        first = source.sum(table)
        for _ in range(3):
            np.testing.assert_array_equal(source.sum(table), first)

    def test_projection_is_the_centred_product_in_float64(self, source, z):
        rng = np.random.default_rng(3)
        directions, centre = numbered(rng.standard_normal((D, 2))), rng.standard_normal(D)
        projected = source.project(directions, centre)
        assert (projected.n_rows, projected.n_features, projected.n_folds) == (N, 3, N_FOLDS)
        assert projected.dtype == np.float64
        exact = (z.astype(np.float64) - centre) @ directions
        error = 40 * np.finfo(z.dtype).eps * N
        np.testing.assert_allclose(projected.sum(placed(centre[0])), exact, rtol=0, atol=error)
        assert not np.allclose(exact, z @ directions, atol=1e-2)

    def test_projected_rows_keep_their_columns(self, source, z, columns):
        projected = source.project(np.eye(D), np.zeros(D))
        np.testing.assert_allclose(projected.sum(table), table(whole(z, columns)), rtol=1e-6, atol=1e-5)
        np.testing.assert_array_equal(projected.sum(visits), np.ones(N))

    def test_projection_keeps_the_signal_behind_a_large_common_offset(self, z, columns, tmp_path):
        far = (z + 1e4).astype(z.dtype)
        centre = far.mean(axis=0, dtype=np.float64)
        directions = numbered(np.random.default_rng(5).standard_normal((D, 2)))
        exact = (far.astype(np.float64) - centre) @ directions
        projected = self.make(far, columns, tmp_path).project(directions, centre).sum(placed(centre[0] - 1e4))
        naive = far @ directions.astype(z.dtype) - (centre @ directions).astype(z.dtype)
        # A constant error is an intercept and does no harm; one that varies with the row is lost signal.
        lost, lost_by_naive = (np.std(rows - exact, axis=0)[1:].max() for rows in (projected, naive))
        assert lost < 50 * np.finfo(z.dtype).eps * np.std(exact)
        assert lost_by_naive > 10 * lost

    def test_projection_onto_nothing_still_has_all_labels(self, source, columns):
        labels = source.project(np.empty((D, 0)), np.zeros(D))
        assert (labels.n_rows, labels.n_features, labels.n_folds) == (N, 0, N_FOLDS)
        np.testing.assert_allclose(labels.sum(table), table(whole(np.empty((N, 0)), columns)), rtol=1e-12)

    def test_sample_has_a_few_rows_of_each_group_that_weigh_as_much_as_all(self, source, columns, z):
        most = 5
        sample = source.sample(most, np.random.default_rng(10))
        drawn = sample.sum(visits)
        assert set(drawn) == {0.0, 1.0}
        # One row more for each fold of a group at most, where its share is no whole number; of each part of a stack.
        limit = len(getattr(source, "parts", [source])) * (most + N_FOLDS + 1)
        assert all(drawn[columns.cell & 3 == group].sum() <= limit for group in range(4))
        assert drawn.sum() < N
        rows = np.flatnonzero(drawn)
        found, wanted = sample.sum(table), table(whole(z[rows], columns.select(rows)))
        numbers = np.r_[0 : D + 3, D + 4 : found.shape[1]]  # all but the weights, which stand for more than one row
        np.testing.assert_allclose(found[np.ix_(numbers, numbers)], wanted[np.ix_(numbers, numbers)], rtol=1e-6)
        again = source.sample(most, np.random.default_rng(10))
        np.testing.assert_array_equal(again.sum(visits), drawn)
        np.testing.assert_array_equal(source.sample(N, np.random.default_rng(0)).sum(visits)[columns.weight > 0], 1)

    def test_sampled_rows_of_equal_weight_weigh_as_much_as_all_in_every_cell(self, z, alike, tmp_path):
        def weights(block: Block) -> np.ndarray:
            return np.bincount(array(block.cell), array(block.weight), minlength=CELLS)

        sample = self.make(z, alike, tmp_path).sample(4, np.random.default_rng(11))
        np.testing.assert_allclose(sample.sum(weights), np.bincount(alike.cell, alike.weight, minlength=CELLS))
        assert sample.n_rows < N
