"""Rows in .npy files with a budget."""

import multiprocessing
import pickle
import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from tests.rows.contract import RowSourceContract
from unspur import ERM, JSE, LEACE, open_rows
from unspur.datasets import make_toy
from unspur.exceptions import InputError, NotFiniteError
from unspur.rows import RowLabels
from unspur.rows.stored import (
    Budget,
    ConcatenatedRows,
    MemmapRows,
    StoredNpy,
    divide,
    format_size,
    parse_size,
    prefetch,
)


def saved(z, folder, name="z.npy"):
    np.save(folder / name, z)
    return folder / name


class TestStoredNpy(RowSourceContract):
    def make(self, z, columns, tmp_path):
        return StoredNpy(saved(z, tmp_path), block_rows=10).source(columns)


class TestColumnMajorStoredNpy(RowSourceContract):
    def make(self, z, columns, tmp_path):
        return StoredNpy(saved(np.asfortranarray(z), tmp_path), block_rows=7).source(columns)


class TestSelectedStoredNpy(RowSourceContract):
    def make(self, z, columns, tmp_path):
        wide = np.repeat(z, 2, axis=0)
        wide[1::2] = np.nan
        return StoredNpy(saved(wide, tmp_path), block_rows=9).select(np.arange(len(z)) * 2).source(columns)


class TestConcatenatedRows(RowSourceContract):
    def make(self, z, columns, tmp_path):
        first = StoredNpy(saved(np.repeat(z[:20], 2, axis=0), tmp_path), block_rows=6).select(slice(0, 40, 2))
        last = StoredNpy(saved(z[30:], tmp_path, "last.npy"), block_rows=11)
        return ConcatenatedRows(first, z[20:30], last).source(columns)


def test_rows_of_several_places_are_those_of_their_files(tmp_path):
    z = np.arange(60.0).reshape(30, 2)
    one, other = open_rows(saved(z[:10], tmp_path), memory=50_000), open_rows(saved(z[20:], tmp_path, "other.npy"))
    rows = ConcatenatedRows(one, z[10:20].astype(np.float32), other)
    assert (rows.shape, rows.dtype) == ((30, 2), np.float64)
    np.testing.assert_array_equal(rows.random_access_copy(), z)
    np.testing.assert_array_equal(rows.read_slice(slice(8, 22)), z[8:22])
    np.testing.assert_array_equal(rows.select([1, 11, 29]).random_access_copy(), z[[1, 11, 29]])
    assert rows.budget.total == one.budget.total + other.budget.total
    assert [rows.location_of(row).partition(" of ")[0] for row in (9, 19, 29)] == 3 * ["row 9"]
    saved(z[20:25], tmp_path, "other.npy")
    with pytest.raises(InputError, match=r"other\.npy was changed after it was opened"):
        next(iter(rows.blocks()))


@pytest.fixture(scope="module")
def toy():
    return make_toy(1200, d=8, rho=0.6, random_state=0)


@pytest.mark.parametrize("remover", [JSE(random_state=0), JSE(random_state=0, metric=1.0), LEACE()])
def test_a_fit_finds_what_it_finds_in_memory(toy, tmp_path, remover):
    stored = remover.fit(open_rows(saved(toy.Z, tmp_path)), toy.y, concept=toy.concept).removal_
    in_memory = remover.fit(toy.Z, toy.y, concept=toy.concept).removal_
    np.testing.assert_allclose(stored(toy.Z), in_memory(toy.Z), rtol=0, atol=1e-9)


def test_half_precision_arrives_as_single_precision(toy, tmp_path):
    rows = open_rows(saved(toy.Z.astype(np.float16), tmp_path), memory=400_000)
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(np.concatenate([z for _, z in rows.blocks()]), toy.Z.astype(np.float16))
    assert len(list(rows.blocks())) > 1


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, bool])
def test_whole_numbers_arrive_in_double_precision_as_in_memory(toy, tmp_path, dtype):
    z = (3 * toy.Z).astype(np.int64).clip(0).astype(dtype)
    rows = open_rows(saved(z, tmp_path), memory=400_000)
    assert rows.dtype == np.float64
    blocks = [block for _, block in rows.blocks()]
    assert {block.dtype for block in blocks} == {rows.dtype}
    np.testing.assert_array_equal(np.concatenate(blocks), z)
    np.testing.assert_array_equal(rows.random_access_copy(), z)
    assert rows.random_access_copy().dtype == np.float64
    for method in (LEACE(), ERM(random_state=0)):
        stored, in_memory = (clone(method).fit(X, toy.y, concept=toy.concept) for X in (rows, z))
        found = [one.removal_.matrix() if hasattr(one, "removal_") else one.coef_ for one in (stored, in_memory)]
        np.testing.assert_allclose(*found, rtol=0, atol=1e-7)


def test_a_scratch_folder_must_be_there_also_for_rows_that_need_none(toy, tmp_path):
    path = saved(toy.Z, tmp_path)
    with pytest.raises(InputError, match=r"There is no folder .*nowhere for temporary files; create it"):
        open_rows(path, scratch=tmp_path / "nowhere")
    assert open_rows(path, scratch=tmp_path).shape == toy.Z.shape


def test_faults_are_named(toy, tmp_path):
    z = toy.Z.copy()
    z[700, 2] = np.nan
    with pytest.raises(NotFiniteError, match=r"1 NaN in column 2, the first in row 700 of .*z\.npy"):
        open_rows(saved(z, tmp_path))
    path = saved(toy.Z, tmp_path)
    with pytest.raises(InputError, match="is one array; features and labels are for Parquet files"):
        open_rows(path, labels=["y"])
    with pytest.raises(InputError, match=r"no column 'y' \(it has: none besides the features\)"):
        open_rows(path).column("y")
    rows = open_rows(path)
    packed = pickle.dumps(rows)
    path.write_bytes(path.read_bytes()[:-8])
    for use in (lambda: next(rows.blocks()), lambda: pickle.loads(packed)):
        with pytest.raises(InputError, match="was changed after it was opened"):
            use()
    with pytest.raises(InputError, match=r"z\.npy"):
        open_rows(path)
    with pytest.raises(InputError, match="one at a time"):
        open_rows([path, saved(toy.Z, tmp_path, "other.npy")])


@pytest.mark.parametrize("name", ["birds.csv", "birds.TSV.gz", "birds.npz"])
def test_files_of_other_kinds_are_told_what_to_become(tmp_path, name):
    (tmp_path / name).write_text("f0,f1\n1,2\n")
    with pytest.raises(InputError, match=r"birds\.\S+ is not .*open_rows reads Parquet files and \.npy arrays.*Write"):
        open_rows(tmp_path / name)


def test_a_budget_below_what_columns_need_is_refused_with_the_sum(toy, tmp_path):
    path = saved(toy.Z, tmp_path)
    with pytest.raises(InputError, match=r"memory='100 kB' .* 1,200 rows × 128 bytes .* are 153.6 kB.*'1MB'"):
        open_rows(path, memory="100kB")
    assert open_rows(path, memory="1MB").shape == toy.Z.shape


@pytest.mark.parametrize(
    ("text", "size"),
    [("1GB", 10**9), ("1.5 GiB", 3 * 2**29), ("512mb", 512 * 10**6), ("1g", 10**9), ("7", 7), (1000, 1000)],
)
def test_amounts_of_memory_are_read_as_written(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1 furlong", 0, -5, 1.5, None, "0.1", True, "1iB"])
def test_other_amounts_are_refused(text):
    with pytest.raises(InputError, match="not an amount of memory"):
        parse_size(text)


def test_budgets_add_up():
    for total in (10**6, 10**8, 10**10):
        budget = Budget(total, rows=2000, row_bytes=3072, overhead=10_000)
        if total < budget.needed:
            with pytest.raises(InputError, match=format_size(total)):
                budget.require_enough("it")
            continue
        assert budget.reading + 2 * budget.room + 128 * budget.rows <= total
    assert format_size(1) == "1 bytes"
    assert format_size(1_000_001) == "1.1 MB"


def test_rows_that_are_used_together_share_a_budget(toy, tmp_path):
    large = open_rows(saved(toy.Z.astype(np.float16), tmp_path), memory="1MB")
    small = open_rows(saved(toy.Z[:100], tmp_path, "small.npy"), memory="1MB")
    shares = divide(10**6, [large.budget, small.budget])
    assert 0.99e6 < sum(shares) <= 10**6
    assert shares[0] > 5 * shares[1]
    fewer = large.with_memory(shares[0])
    assert fewer.budget.total == shares[0]
    assert fewer.budget.room < large.budget.room
    assert fewer._rows_at_once < large._rows_at_once
    np.testing.assert_array_equal(np.concatenate([z for _, z in fewer.blocks()]), toy.Z.astype(np.float16))
    assert large.budget.total == 10**6  # control: a view, not a change
    with pytest.raises(
        InputError, match=r"memory='160 kB' is too little for training and validation .* Pass memory='1MB'"
    ):
        divide(160_000, [large.budget, small.budget])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([3, 1, 2], r"Row 1 was named after row 3; rows of files come in their order, each once"),
        ([1, 2, 2], "Row 2 was named after row 2"),
        (np.array([5, 3], dtype=np.uint8), "Row 3 was named after row 5"),
        ([-1], "Row -1 was named; there are rows 0 to 1,199"),
        ([0, 1200], "Row 1200 was named"),
        (slice(None, None, -1), "A slice with step -1"),
        (np.ones(7, dtype=bool), r"A mask of shape \(7,\) does not go with 1,200 rows"),
        ([0.0, 1.0], "named by float64"),
        ([[0, 1]], r"of shape \(1, 2\)"),
    ],
)
def test_rows_in_another_order_are_refused_rather_than_sorted(toy, tmp_path, rows, message):
    stored = open_rows(saved(toy.Z, tmp_path))
    with pytest.raises(InputError, match=message):
        stored.select(rows)


def test_masks_slices_and_increasing_indices_name_the_same_rows(toy, tmp_path):
    stored = open_rows(saved(toy.Z, tmp_path))
    mask = np.zeros(1200, dtype=bool)
    mask[10:1100:3] = True
    for rows in (mask, slice(10, 1100, 3), slice(10, -100, 3), np.arange(10, 1100, 3), list(range(10, 1100, 3))):
        chosen = stored.select(rows)
        np.testing.assert_array_equal(np.concatenate([z for _, z in chosen.blocks()]), toy.Z[10:1100:3])
        with pytest.raises(InputError, match="there are rows 0 to 363"):
            chosen.select([364])  # of those that are left
    assert len(stored.select([])) == 0


def test_asking_for_pages_says_which_row_comes_next(tmp_path):
    mapped = np.load(saved(np.ones((1000, 100)), tmp_path), mmap_mode="r")
    assert prefetch(mapped, 0, 80_000) == 100
    assert prefetch(mapped, 950, 80_000) == 1000
    assert prefetch(mapped, 1000, 80_000) == 1000
    assert prefetch(np.ones((10, 2)), 0, 32) == 2  # an array in memory needs none


def _anonymous() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"RssAnon:\s+(\d+) kB", status).group(1))


def _most_anonymous(path: Path, how: str) -> int:
    """The most anonymous memory that two passes over a file take."""
    n, d = np.load(path, mmap_mode="r").shape
    columns = RowLabels.of(np.arange(n) % 2, np.arange(n) % 2)
    before, most, done = _anonymous(), [0], threading.Event()

    def watch():
        while not done.is_set():
            most[0] = max(most[0], _anonymous() - before)
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    loaded = np.load(path) if how == "loaded" else None
    rows = open_rows(path, memory="20MB").source(columns) if how == "stored" else MemmapRows(path, columns)
    for _ in range(2):
        assert rows.sum(lambda block: block.z.sum(dtype=np.float64)) == n * d
    done.set()
    watcher.join()
    return max(most[0], _anonymous() - before) if loaded is not None else most[0]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's account of anonymous memory")
@pytest.mark.parametrize("how", ["stored", "mapped", "loaded"])
def test_visiting_a_file_takes_no_memory_of_its_own(tmp_path, how):
    n, d = 100_000, 128  # more than the C library would keep for later
    path = tmp_path / "z.npy"
    z = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, d))
    z[:] = 1.0
    z.flush()
    # In a process of its own: memory of earlier tests must not be freed while we measure.
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        most = pool.apply(_most_anonymous, (path, how))
    if how == "loaded":  # control: the measurement sees what an array in memory takes
        assert most > 0.9 * z.nbytes
    else:
        assert most < 0.3 * z.nbytes
