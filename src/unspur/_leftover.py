"""What is left of locks, abandoned files and errors of the disk, until what uses them ends.

A temporary name says which process on which host made it, so that a later process can tell the leftovers of a dead one
from the work of a living one. Clocks are not trusted where that can be avoided.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from os import PathLike
from pathlib import Path

from unspur.exceptions import BusyError, DiskError, OutputExistsError

_TEMPORARY_NAME = re.compile(r"\.unspur-(?P<pid>\d+)-(?P<mark>[0-9a-f]+)-(?P<host>.*)\.tmp")
#: Seconds after which a file of another host, whose processes cannot be checked, counts as abandoned.
_ABANDONED_AFTER_SECONDS = 86400.0
#: Namespace of the processes of a Linux host itself, outside any container.
_HOST_PID_NAMESPACE = "4026531836"
#: Start of the marks of this process; another mark with its number is that of an earlier process.
_PROCESS_MARK = secrets.token_hex(4)


def temporary_name() -> str:
    """A new name, hidden, for something that is unfinished."""
    return f".unspur-{os.getpid()}-{_PROCESS_MARK}{secrets.token_hex(4)}-{host_id()}.tmp"


@cache
def host_id() -> str:
    """Name of the host or container in which process numbers are unique."""
    with suppress(OSError):
        container = re.sub(r"\D", "", os.readlink("/proc/self/ns/pid"))
        if container not in ("", _HOST_PID_NAMESPACE):
            return f"{platform.node()}-{container}"
    return platform.node()


@contextmanager
def staging_dir(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path` in which to make it; removed after the block, with all that is still in it.

    Errors name `path`, not the temporary folder. Leftovers of killed processes beside `path` are removed.
    """
    remove_abandoned(path.parent)
    folder = path.with_name(temporary_name())
    try:
        folder.mkdir(0o700)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(folder: Path) -> None:
    """Remove unfinished files and folders whose processes are dead; what cannot be removed stays."""
    with suppress(OSError):
        for path in folder.glob(".unspur-*.tmp"):
            if _abandoned(path):
                shutil.rmtree(path, ignore_errors=True)
                with suppress(OSError):
                    path.unlink(missing_ok=True)


def _abandoned(path: Path) -> bool:
    whose = _TEMPORARY_NAME.fullmatch(path.name)
    if whose is None:
        return False
    try:
        if whose["host"] != host_id() or os.name != "posix":  # on Windows os.kill(pid, 0) would end the process
            return time.time() - path.stat().st_mtime > _ABANDONED_AFTER_SECONDS
        if int(whose["pid"]) == os.getpid():
            return not whose["mark"].startswith(_PROCESS_MARK)
        os.kill(int(whose["pid"]), 0)
    except (FileNotFoundError, ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # alive, and somebody else's
        pass
    return False


def reserve_space(path: Path) -> None:
    """Reserve the disk space of a file of this size, or raise OSError.

    A file that is filled through a memory map needs this: if the disk becomes full on the way, a signal ends the
    process without a message.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # file systems that cannot
            raise


@contextmanager
def hold(path: Path, *, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path` for the block; raise `BusyError` if another process keeps it for `patience` seconds.

    The system releases the lock of a process that dies. Its unfinished files beside the lock are removed here.
    """
    from filelock import FileLock, Timeout  # takes a moment to import, and few commands lock anything

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


def disk_error(error: OSError, path: str | PathLike[str] | None, advice: str) -> DiskError:
    """A DiskError for an OSError while `path`, or the output (None), was written."""
    reasons = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.EFBIG: "the file would be larger than the file system or a limit of this process allows",
        errno.EROFS: "the disk can only be read",
        errno.EXDEV: "it lies on another file system",
    }
    reason = reasons.get(error.errno or 0, error.strerror or str(error))
    what = "The output" if path is None else repr(str(path))
    return DiskError(f"{what} cannot be written: {reason}. {advice}")


def output_exists(path: Path) -> OutputExistsError:
    """The error for a file or folder that must not be replaced."""
    return OutputExistsError(f"{path} exists and is kept. Choose another name, or pass overwrite=True (--force).")
