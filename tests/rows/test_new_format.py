"""A file format that the package does not know: one class and one line in `ARRAY_READERS`, and everything opens it."""

from pathlib import Path

import numpy as np
import pytest

from tests.rows.contract import RowSourceContract
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
