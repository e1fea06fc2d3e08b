"""A file format that the package does not know: one class and one line in `ARRAY_READERS`, and everything opens it."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tests.rows.contract import RowSourceContract
from unspur import open_rows
from unspur.exceptions import InputError
from unspur.io.files import read_table
from unspur.rows.backends import ARRAY_READERS
from unspur.rows.source import slices
from unspur.rows.stored import Budget, StoredRows, parse_size

D = 5


class RawRows(StoredRows):
    """Rows of `D` numbers in double precision, one after the other, without a header."""

    def __init__(self, path, *, memory="1GB", progress=False, scratch=None):
        self.shape, self.dtype = (Path(path).stat().st_size // (8 * D), D), np.dtype(np.float64)
        self.feature_names, self.column_names = None, []
        self.budget = Budget(parse_size(memory), self.shape[0], 8 * D)
        self.budget.require_enough(str(path))
        super().__init__([path], progress=progress, scratch=scratch)

    def _chunks(self):
        for rows in slices(self.budget.rows, self.budget.chunk_rows):
            count, offset = (rows.stop - rows.start) * D, 8 * D * rows.start
            yield rows, np.fromfile(self._paths[0], count=count, offset=offset).reshape(-1, D)

    def location_of(self, row):
        return f"row {row} of {self.name}"

    def _whole_column(self, name):
        raise NotImplementedError(name)


class TestRawRows(RowSourceContract):
    dtypes = (np.float64,)

    def make(self, z, columns, tmp_path):
        z.tofile(tmp_path / "z.raw")
        return RawRows(tmp_path / "z.raw").source(columns)


@pytest.fixture
def z():
    return np.random.default_rng(0).standard_normal((300, D))


@pytest.fixture
def file(z, tmp_path, monkeypatch):
    monkeypatch.setitem(ARRAY_READERS, ".raw", RawRows)
    z.tofile(tmp_path / "rows.raw")
    return tmp_path / "rows.raw"


def test_its_rows_are_read_or_stay_where_they_are(file, z):
    assert_array_equal(np.concatenate([block for _, block in open_rows(file).blocks()]), z)
    table = read_table(file)
    assert isinstance(table.Z, np.ndarray)
    assert_array_equal(table.Z, z)


def test_labels_are_files_of_their_own(file, z):
    np.save(file.parent / "bird.npy", z[:, 0] > 0)
    assert_array_equal(read_table(file).label(str(file.parent / "bird.npy")), z[:, 0] > 0)
    with pytest.raises(InputError, match=r"no column 'bird' .* Labels of a \.raw file are \.npy files\.$"):
        read_table(file).label("bird")
    with pytest.raises(InputError, match="no named columns, so there is no 'bird' to ignore"):
        read_table(file, ignore=("bird",))


def test_messages_name_it_among_the_kinds_that_can_be_read(file, tmp_path):
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(InputError, match=r"known are \.npy, \.raw, \.npz"):
        read_table(tmp_path / "a.txt")
    np.save(tmp_path / "a.npy", np.ones((2, D)))
    for reader in (read_table, open_rows):
        with pytest.raises(InputError, match=r"one of 2 files|cannot be mixed"):
            reader([file, tmp_path / "a.npy"])
    file.unlink()
    with pytest.raises(InputError, match="There is no file"):
        read_table(file)
