"""Arrays in temporary files, for what is computed from rows and does not fit into memory."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from unspur._temporary import remove_abandoned, take_place, temporary_name
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
            raise _no_room(what, size, folder, f"has {in_words(free)} left")
        remove_abandoned(folder)
        self.path = folder / temporary_name()
        os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        self._finalizer = weakref.finalize(self, _remove, str(self.path))
        try:
            self.array = np.lib.format.open_memmap(self.path, mode="w+", dtype=dtype, shape=shape)
            take_place(self.path)
        except OSError as error:  # others take room as well; a quota, a limit of this process
            self._finalizer()
            raise _no_room(what, size, folder, f"refuses it ({error.strerror})") from error


def _no_room(what: str, size: int, folder: Path, but: str) -> InputError:
    return InputError(
        f"{what} takes a temporary file of {in_words(size)}; {folder} {but}. Name a folder on a larger disk (scratch, "
        "or TMPDIR), or pass more memory."
    )


def _remove(name: str) -> None:
    Path(name).unlink(missing_ok=True)
