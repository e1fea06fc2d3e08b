"""Files of a reproduction: locks, the errors of a full disk, leftovers of killed processes, and small readers."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from unspur._text import brief
from unspur._typing import Array
from unspur.exceptions import OutputExistsError, UnspurError

#: Errors of the system after which there is no room left.
DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: Seconds after which something unfinished is nobody's work any more.
ABANDONED_AFTER_SECONDS = 86400.0
#: Kinds of values for `require_kinds`.
NUMBER = (int, float)


class BusyError(UnspurError):
    """Another process is at work in the same place."""


class DiskError(UnspurError, OSError):
    """There is no room on the disk, or it cannot be written to."""


def temporary_name() -> str:
    """A new name, hidden, for something that is unfinished."""
    return f".unspur-{os.getpid()}-{secrets.token_hex(8)}.tmp"


def remove_abandoned(folder: Path) -> None:
    """Remove what killed processes left unfinished a day ago or earlier; what cannot be removed stays."""
    with suppress(OSError):
        for path in folder.glob(".unspur-*.tmp"):
            if time.time() - path.stat().st_mtime > ABANDONED_AFTER_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
                with suppress(OSError):
                    path.unlink(missing_ok=True)


@contextmanager
def staging_dir(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path` in which to make it; removed after the block, with all that is still in it."""
    remove_abandoned(path.parent)
    folder = path.with_name(temporary_name())
    folder.mkdir(0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def hold(path: Path, *, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path` for the block; raise `BusyError` if another process keeps it for `patience` seconds.

    The system releases the lock of a process that dies.
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=patience)
    except Timeout:
        holder = None
        with suppress(OSError):
            holder = re.fullmatch(r"\d{1,18}", path.read_text(encoding="utf-8", errors="replace"))
        who = f"Process {holder[0]}" if holder else "Another process"
        raise BusyError(f"{who} is already at work here (it holds {path}). Wait until it ends.") from None
    try:
        with suppress(OSError):  # Windows does not allow writing to a locked file
            path.write_text(str(os.getpid()), encoding="utf-8")
        remove_abandoned(path.parent)
        yield
    finally:
        with suppress(OSError):  # before the release, so that a waiting process sees that its file is gone
            path.unlink()
        lock.release()


def disk_error(error: OSError, path: str | PathLike[str], advice: str) -> DiskError:
    """A DiskError for an OSError while `path` was written."""
    reasons = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.EFBIG: "the file would be larger than the file system or a limit of this process allows",
        errno.EROFS: "the disk can only be read",
    }
    reason = reasons.get(error.errno or 0, error.strerror or str(error))
    return DiskError(f"{str(path)!r} cannot be written: {reason}. {advice}")


def reserve_space(path: Path) -> None:
    """Reserve the disk space of a file of this size: one that is filled by a memory map cannot say that it is full."""
    if hasattr(os, "posix_fallocate"):
        with suppress_unsupported(), path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


@contextmanager
def suppress_unsupported() -> Iterator[None]:
    """Context that passes over what a file system cannot do."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raise an error if a file cannot be written because of what is there."""
    if path.is_dir():
        raise OutputExistsError(f"{path} is a folder; name a file.")
    if path.exists() and not overwrite:
        raise OutputExistsError(f"{path} exists and is kept. Choose another name, or pass --force.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder {path.parent} does not exist; create it first.")


# Reading: a ValueError says briefly what is wrong, and the caller which file it is of.


def read_json(path: str | PathLike[str], kind: Any = object) -> Any:
    """The value of a JSON file of the given kind (see `require_kinds`)."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if kind is not object:
        require_kinds(value, kind)
    return value


def require_kinds(value: Any, kind: Any, place: str = "it") -> None:
    """Raise ValueError unless a JSON value is of the given kind; messages call it `place`.

    A kind is a type or a tuple of types (booleans are not numbers); ``[kind]`` for a list; or a mapping from keys to
    kinds.
    """
    if isinstance(kind, list):
        require_kinds(value, list, place)
        for number, item in enumerate(value):
            require_kinds(item, kind[0], f"{place}[{number}]")
    elif isinstance(kind, Mapping):
        require_kinds(value, dict, place)
        for key, wanted in kind.items():
            if key not in value:
                raise ValueError(f"{place} has no {key!r}")
            require_kinds(value[key], wanted, f"{brief(key, 40)!r} of {place}")
    elif not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{place} is {brief(repr(value), 40)}, which is of another type than it should be")


def load_npy(path: str | PathLike[str], *, mapped: bool = False) -> Array:
    """The array of a .npy file, in memory or as a read-only memory map."""
    try:
        array: Array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except (TypeError, OverflowError, SyntaxError, EOFError) as error:
        raise ValueError(brief(error)) from error
    return array
