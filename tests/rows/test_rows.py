"""Rows in memory: arrays of any layout, memory maps, and sets of rows one below the other."""

# ruff: noqa: ARG002 — every source is made with a folder, whether it needs one or not
import tracemalloc

import numpy as np
import pytest

from tests.rows.contract import TAIL, RowSourceContract
from unspur import ERM, JSE, LEACE
from unspur.datasets import make_toy
from unspur.exceptions import InputError
from unspur.rows import MemoryRows, RowLabels, StackedRows, rows_of, training_part, validation_part


def labels(n: int) -> RowLabels:
    return RowLabels.of(np.arange(n) % 2, np.arange(n) // 2 % 2)


def mapped(z, folder):
    np.save(folder / "z.npy", z)
    return np.load(folder / "z.npy", mmap_mode="r")


class TestMemoryRows(RowSourceContract):
    def make(self, z, columns, tmp_path):
        return MemoryRows(z, columns)


class TestTinyBlocks(RowSourceContract):
    def make(self, z, columns, tmp_path):
        return MemoryRows(z, columns, block_rows=3)


class TestStridedRows(RowSourceContract):
    def make(self, z, columns, tmp_path):
        wide = np.full((2 * len(z), 3 * z.shape[1]), np.nan, dtype=z.dtype)
        wide[1::2, ::3] = z
        return MemoryRows(wide[1::2, ::3], columns, block_rows=10)


class TestColumnMajorRows(RowSourceContract):
    def make(self, z, columns, tmp_path):
        return MemoryRows(np.asfortranarray(z), columns)


class TestMemoryMap(RowSourceContract):
    def make(self, z, columns, tmp_path):
        return rows_of(mapped(z, tmp_path), columns)


class TestStackedRows(RowSourceContract):
    def make(self, z, columns, tmp_path):
        parts = slice(None, TAIL), slice(TAIL, None)
        return StackedRows(*(MemoryRows(z[part], columns.select(part)) for part in parts))


@pytest.mark.parametrize("kind", [np.float16, np.int16, np.int64, np.uint8])
def test_rows_of_other_types_are_converted_block_by_block(kind):
    z = np.random.default_rng(0).integers(0, 100, (50, 4)).astype(kind)
    rows = MemoryRows(z, labels(50), block_rows=7)
    assert rows.dtype == (np.float32 if kind is np.float16 else np.float64)
    found = rows.sum(lambda block: block.z.T @ block.z)
    np.testing.assert_allclose(found, z.astype(float).T @ z.astype(float))
    assert rows.sum(lambda block: [block.z.dtype]) == [rows.dtype] * 8


def test_rows_in_memory_are_never_copied():
    z = np.random.default_rng(0).standard_normal((50, 4))
    assert all(MemoryRows(z, labels(50), block_rows=7).sum(lambda block: [np.shares_memory(block.z, z)]))


def fitted(estimator, rows, toy):
    """The answer, and the most bytes that were allocated at once."""
    tracemalloc.start()
    estimator.fit(rows, toy.y, concept=toy.concept)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return estimator.coef_ if hasattr(estimator, "coef_") else estimator.removal_.matrix(), peak


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int8])
def test_a_memory_map_is_fitted_in_blocks_to_the_answer_of_the_array(kind, tmp_path):
    toy = make_toy(20_000, d=200, rho=0.8, random_state=0)
    z = (10 * toy.Z if kind is np.int8 else toy.Z).astype(kind)
    same = z.astype(np.float64) if kind is np.int8 else z  # as which whole numbers in an array are taken
    for estimator in (LEACE(), ERM(), JSE(cv=0.2, penalty=0.1, random_state=0)):
        expected, usual = fitted(estimator, same, toy)
        found, peak = fitted(estimator, mapped(z, tmp_path), toy)
        np.testing.assert_array_equal(found, expected)
        assert peak < usual + same.nbytes / 4  # a copy would come on top


@pytest.mark.parametrize("shape", [(5,), (6, 3), (5, 3, 2)])
def test_rows_that_do_not_go_with_their_labels_are_refused_with_both_numbers(shape):
    with pytest.raises(InputError, match=f"{shape[0]}.* 5 labels"):
        MemoryRows(np.zeros(shape), labels(5))


def test_columns_of_different_length_are_refused():
    with pytest.raises(InputError, match="'concept': 3"):
        RowLabels.of(np.zeros(4), np.zeros(3))


def test_what_is_trained_on_and_what_is_held_out():
    parts = [MemoryRows(np.zeros((n, 2)), labels(n)) for n in (5, 3, 2)]
    stack = StackedRows(*parts)
    assert training_part(stack) is parts[0]
    assert validation_part(stack).n_rows == 5
    assert validation_part(StackedRows(*parts[:2])) is parts[1]
    assert training_part(parts[0]) is validation_part(parts[0]) is parts[0]
    single = MemoryRows(np.zeros((4, 2), np.float32), labels(4))
    assert StackedRows(parts[0], single).dtype == np.float32  # the least precise
    with pytest.raises(InputError, match=r"\[2, 3\]"):
        StackedRows(parts[0], MemoryRows(np.zeros((5, 3)), labels(5)))
