"""Arrays in temporary files, for what is computed from rows and does not fit into memory."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from unspur.exceptions import InputError
from unspur.rows.budget import in_words


class Spool:
    """A new ``.npy`` file of shape (n, k), open for writing as `array`; gone when nobody holds the spool any more."""

    def __init__(self, shape: tuple[int, int], dtype: Any, what: str, folder: Path | None = None):
        size = shape[0] * shape[1] * np.dtype(dtype).itemsize
        folder = Path(tempfile.gettempdir()) if folder is None else folder
        if not folder.is_dir():
            raise InputError(f"There is no folder {folder} for temporary files; create it, or name another.")
        free = shutil.disk_usage(folder).free
        if size > free:
            raise InputError(
                f"{what} takes a temporary file of {in_words(size)}; {folder} has {in_words(free)} left. Name a "
                "folder on a larger disk (scratch, or TMPDIR), or pass more memory."
            )
        handle, name = tempfile.mkstemp(prefix="unspur-", suffix=".npy", dir=folder)
        os.close(handle)
        self.path = Path(name)
        self._finalizer = weakref.finalize(self, _remove, name)
        self.array = np.lib.format.open_memmap(self.path, mode="w+", dtype=dtype, shape=shape)


def _remove(name: str) -> None:
    Path(name).unlink(missing_ok=True)
