# ruff: noqa: ARG002 — every source is made with a folder, whether it needs one or not
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from tests.rows.contract import TAIL, TRAINING, RowSourceContract, row_numbers, table, take, visits, whole
from unspur.exceptions import InputError
from unspur.rows import Block, MemoryRows, RowLabels, StackedRows, Weighting, rows_of, training_part, validation_part
from unspur.rows.stored import MemmapRows, open_npy


def plain_columns(n: int) -> RowLabels:
    return RowLabels.of(np.arange(n) % 2, np.arange(n) // 2 % 2)


def saved(z: np.ndarray, folder: Path, name: str = "z.npy") -> Path:
    np.save(folder / name, z)
    return folder / name


class TestMemoryRows(RowSourceContract):
    def make(self, z, columns, tmp_path):
        return MemoryRows(z, columns)


class TestMemoryRowsInTinyBlocks(RowSourceContract):
    def make(self, z, columns, tmp_path):
        return MemoryRows(z, columns, block_rows=3)

    def test_comes_in_blocks_of_the_size_asked_for(self, source):
        sizes = source.sum(lambda block: [len(block.cell)])
        assert sizes == [3] * 15 + [2]


class TestMemoryRowsOneByOne(RowSourceContract):
    def make(self, z, columns, tmp_path):
        return MemoryRows(z, columns, block_rows=1)


class TestStridedMemoryRows(RowSourceContract):
    def make(self, z, columns, tmp_path):
        wide = np.full((2 * len(z), 3 * z.shape[1]), np.nan, dtype=z.dtype)
        wide[1::2, ::-3] = z
        view = wide[1::2, ::-3]
        assert not view.flags.c_contiguous
        assert not view.flags.f_contiguous
        return MemoryRows(view, columns, block_rows=10)


class TestColumnMajorMemoryRows(RowSourceContract):
    def make(self, z, columns, tmp_path):
        return MemoryRows(np.asfortranarray(z), columns, block_rows=10)


class TestReadOnlyMemoryRows(RowSourceContract):
    def make(self, z, columns, tmp_path):
        z = z.copy()
        z.setflags(write=False)
        for column in (columns.targets, columns.cell, columns.weight):
            column.setflags(write=False)
        return MemoryRows(z, columns, block_rows=10)


class TestMemmapRows(RowSourceContract):
    def make(self, z, columns, tmp_path):
        return MemmapRows(saved(z, tmp_path), columns, block_rows=10)


class TestColumnMajorMemmapRows(RowSourceContract):
    def make(self, z, columns, tmp_path):
        return MemmapRows(saved(np.asfortranarray(z), tmp_path), columns)


class TestStackedRows(RowSourceContract):
    def make(self, z, columns, tmp_path):
        train = MemoryRows(z[:TAIL], take(columns, slice(TAIL)), block_rows=10)
        validation = MemmapRows(saved(z[TAIL:], tmp_path), take(columns, slice(TAIL, None)))
        return StackedRows(train, validation)

    def test_rows_below_the_first_part_are_never_trained_on(self, source):
        everywhere = Weighting(np.ones_like(TRAINING.factor))
        drawn = sum(
            visits(block) for _ in range(40) for block in source.minibatches(8, np.random.default_rng(0), everywhere)
        )
        assert drawn[:TAIL].sum() == drawn.sum() > 0


def test_rows_in_memory_are_never_copied():
    z = np.random.default_rng(0).standard_normal((50, 4))[:, ::2]
    rows = MemoryRows(z, plain_columns(50), block_rows=20)
    assert rows.sum(lambda block: int(np.shares_memory(block.z, z))) == 3
    assert not np.shares_memory(z.copy(), z)


def test_number_of_rows_in_a_block_changes_a_sum_by_rounding_only():
    z = np.random.default_rng(1).standard_normal((3000, 40))

    def total(block: Block) -> np.ndarray:
        return block.z.T @ block.z

    sums = [MemoryRows(z, plain_columns(3000), block_rows=size).sum(total) for size in (None, 1, 999, 10**6)]
    for other in sums[1:]:
        np.testing.assert_allclose(other, sums[0], rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("shape", [(5,), (6, 3), (5, 3, 2)])
def test_rows_that_do_not_go_with_their_labels_are_refused_with_both_numbers(shape):
    with pytest.raises(InputError, match=rf"{re.escape(str(shape))}.* 5 labels"):
        MemoryRows(np.zeros(shape), plain_columns(5))


def test_columns_of_different_length_are_refused():
    with pytest.raises(InputError, match=r"'concept': 3"):
        RowLabels.of([0, 1], [0, 1, 1])


class Unreadable(np.ndarray):
    """Rows that must not be looked at."""

    def __getitem__(self, rows):
        raise AssertionError("Z was read")


def test_projection_onto_nothing_does_not_read_rows_in_memory():
    rows = MemoryRows(np.zeros((20, 3)).view(Unreadable), plain_columns(20))
    labels = rows.project(np.empty((3, 0)), np.zeros(3))
    assert labels.sum(lambda block: len(block.cell)) == 20
    with pytest.raises(AssertionError, match="Z was read"):
        rows.project(np.ones((3, 1)), np.zeros(3))


def _kilobytes_in_memory(path: Path) -> int:
    """How much of a mapped file this process has touched."""
    mapping = Path("/proc/self/smaps").read_text().split(str(path), 1)[1]
    return int(re.search(r"Rss:\s+(\d+) kB", mapping).group(1))


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's account of mapped pages")
def test_projection_onto_nothing_does_not_read_a_file(tmp_path):
    path = saved(np.zeros((5000, 16)), tmp_path, "only-labels-are-read.npy")
    rows = MemmapRows(path, plain_columns(5000))
    assert rows.project(np.empty((16, 0)), np.zeros(16)).sum(lambda block: len(block.cell)) == 5000
    assert _kilobytes_in_memory(path) == 0
    rows.project(np.ones((16, 1)), np.zeros(16))
    assert _kilobytes_in_memory(path) > 500


class TestFiles:
    z = np.random.default_rng(2).standard_normal((60, 8))

    def test_rows_in_a_file_travel_as_its_path(self, tmp_path):
        def bytes_for(source, width: int) -> int:
            z = np.zeros((60, width))
            columns = plain_columns(60)
            return len(pickle.dumps(source(z, columns)))

        def in_file(z, columns):
            return MemmapRows(saved(z, tmp_path), columns)

        assert bytes_for(in_file, 2000) < bytes_for(in_file, 2) + 100
        assert bytes_for(MemoryRows, 2000) > bytes_for(MemoryRows, 2) + 900_000  # control: an array travels whole

    def test_a_relative_path_is_found_from_another_folder(self, tmp_path, monkeypatch):
        saved(self.z, tmp_path)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path)
        packed = pickle.dumps(MemmapRows("z.npy", plain_columns(60)))
        monkeypatch.chdir(tmp_path / "elsewhere")
        np.testing.assert_allclose(pickle.loads(packed).sum(lambda block: block.z.sum(axis=0)), self.z.sum(axis=0))

    def test_a_file_is_mapped_not_loaded_and_cannot_be_written_to(self, tmp_path):
        mapped = open_npy(saved(self.z, tmp_path))
        assert isinstance(mapped, np.memmap)
        np.testing.assert_array_equal(mapped, self.z)
        with pytest.raises(ValueError, match="read-only"):
            mapped[0, 0] = 1.0

    @pytest.mark.parametrize(
        ("content", "seen"),
        [
            (np.array([[1.0, None]], dtype=object), "z.npy"),
            (np.zeros(5), r"float64 of shape \(5,\)"),
            (np.zeros((2, 3, 4)), r"float64 of shape \(2, 3, 4\)"),
            (np.zeros((5, 3), dtype=np.complex128), "complex128"),
            (np.array([["a", "b"]]), "U1"),
        ],
        ids=["objects", "one column", "three axes", "complex", "strings"],
    )
    def test_a_file_of_something_else_is_refused_by_what_it_holds(self, tmp_path, content, seen):
        np.save(tmp_path / "z.npy", content, allow_pickle=True)
        with pytest.raises(InputError, match=seen):
            open_npy(tmp_path / "z.npy")

    @pytest.mark.parametrize("kept", [0, 3, 9, 60, 200, -1], ids=lambda kept: f"{kept} bytes")
    def test_a_file_that_is_cut_off_is_refused_by_name(self, tmp_path, kept):
        path = saved(self.z, tmp_path)
        assert open_npy(path).shape == (60, 8)
        path.write_bytes(path.read_bytes()[:kept])
        with pytest.raises(InputError, match=re.escape(str(path))):
            open_npy(path)

    def test_a_pickle_in_a_file_is_refused_and_not_run(self, tmp_path):
        path = tmp_path / "z.npy"
        path.write_bytes(pickle.dumps(self.z))
        with pytest.raises(InputError, match=r"numpy\.save"):
            open_npy(path)

    def test_a_file_with_the_wrong_number_of_rows_is_refused(self, tmp_path):
        with pytest.raises(InputError, match="59 labels"):
            MemmapRows(saved(self.z, tmp_path), plain_columns(59))


class TestChoice:
    z = np.random.default_rng(3).standard_normal((40, 6))

    @pytest.fixture
    def mapped(self, tmp_path):
        return np.load(saved(self.z, tmp_path), mmap_mode="r")

    def test_a_map_of_a_whole_file_is_served_from_the_file(self, mapped):
        assert isinstance(rows_of(mapped, plain_columns(40)), MemmapRows)
        assert type(rows_of(self.z, plain_columns(40))) is MemoryRows

    @pytest.mark.parametrize(
        "part",
        [np.s_[5:], np.s_[:-1], np.s_[::2], np.s_[::-1], np.s_[:, :3], np.s_[:, ::-1], np.s_[np.arange(40)[::-1]]],
        ids=str,
    )
    def test_a_part_of_a_map_is_served_as_the_array_it_is(self, mapped, part):
        rows = rows_of(mapped[part], plain_columns(len(self.z[part])))
        assert type(rows) is MemoryRows
        np.testing.assert_array_equal(rows.sum(lambda block: list(block.z)), self.z[part])

    def test_what_is_computed_from_a_map_is_served_as_the_array_it_is(self, mapped):
        for computed in (mapped + 1.0, mapped.copy(), np.asarray(mapped), mapped.astype(np.float32)):
            rows = rows_of(computed, plain_columns(40))
            assert type(rows) is MemoryRows
            np.testing.assert_array_equal(rows.sum(lambda block: list(block.z)), np.asarray(computed))

    def test_a_raw_file_is_served_as_the_array_it_is(self, tmp_path):
        raw = np.memmap(tmp_path / "z.bin", dtype=np.float64, mode="w+", shape=(40, 6))
        raw[:] = self.z
        assert type(rows_of(raw, plain_columns(40))) is MemoryRows


class TestStacking:
    z = np.random.default_rng(4).standard_normal((30, 3))

    def parts(self, *dtypes):
        return [MemoryRows(self.z.astype(dtype), plain_columns(30)) for dtype in dtypes]

    def test_what_is_trained_on_and_what_is_held_out(self):
        train, validation, more = self.parts(np.float64, np.float64, np.float64)
        stack = StackedRows(train, validation)
        assert training_part(stack) is train
        assert validation_part(stack) is validation
        assert validation_part(StackedRows(train, validation, more)).parts == (validation, more)
        assert (
            training_part(train) is validation_part(train) is train
        )  # folds of one source: every row is both in its turn

    def test_type_of_a_stack_is_the_least_precise(self):
        assert StackedRows(*self.parts(np.float64, np.float32)).dtype == np.float32
        assert StackedRows(*self.parts(np.float32, np.float64)).dtype == np.float32
        assert StackedRows(*self.parts(np.float64, np.float64)).dtype == np.float64

    def test_parts_of_different_width_are_refused_with_both_widths(self):
        with pytest.raises(InputError, match=r"\[2, 3\]"):
            StackedRows(MemoryRows(self.z, plain_columns(30)), MemoryRows(self.z[:, :2], plain_columns(30)))

    def test_a_stack_of_stacks_is_one_stack(self):
        z = np.column_stack([np.arange(47.0), np.random.default_rng(5).standard_normal((47, 4))])
        columns = plain_columns(47)
        cuts = [slice(0, 10), slice(10, 11), slice(11, 47)]
        a, b, c = (MemoryRows(z[rows], take(columns, rows)) for rows in cuts)
        nested = StackedRows(StackedRows(a, b), c)
        np.testing.assert_allclose(nested.sum(table), table(whole(z, columns)), rtol=1e-12, atol=1e-9)
        assert nested.sum(lambda block: row_numbers(block).tolist()) == list(range(47))


def test_a_map_that_was_changed_in_memory_is_not_taken_for_its_file(tmp_path):
    np.save(tmp_path / "z.npy", np.zeros((2, 2)))
    changed = np.load(tmp_path / "z.npy", mmap_mode="c")
    changed += 100
    rows = rows_of(changed, RowLabels.of([0, 1], [0, 1]))
    assert rows.sum(lambda block: block.z.sum()) == 400


def test_a_mapped_source_finds_its_file_after_a_change_of_folder(tmp_path, monkeypatch):
    np.save(tmp_path / "z.npy", np.ones((2, 2)))
    monkeypatch.chdir(tmp_path)
    rows = MemmapRows("z.npy", RowLabels.of([0, 1], [0, 1]))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert pickle.loads(pickle.dumps(rows)).sum(lambda block: block.z.sum()) == 4


def test_minibatches_without_any_weight_are_refused():
    rows = MemoryRows(np.ones((3, 2)), RowLabels.of([0, 1, 0], [0, 1, 1]))
    with pytest.raises(InputError, match="positive weight"):
        next(rows.minibatches(2, np.random.default_rng(0), Weighting(np.zeros(4))))
