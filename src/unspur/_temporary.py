"""Names of what is unfinished, and the end of what will never be finished, because its process was killed.

A name says whose it is (process and host), so that a later process can tell the leftovers of a dead one from the work
of one that is still at it. It does so without the clock wherever it can: clocks are set.
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
from pathlib import Path

_NAME = re.compile(r"\.unspur-(?P<pid>\d+)-(?P<mark>[0-9a-f]+)-(?P<host>.*)\.tmp")
#: Seconds after which something of another host, whose processes cannot be asked for, is nobody's.
_DAY = 86400.0
#: The processes of a Linux host itself.
_NO_CONTAINER = "4026531836"
#: How marks of this process begin: names with its number and another mark are of an earlier process that had it.
_OURS = secrets.token_hex(4)


def temporary_name() -> str:
    """A new name, hidden, for something that is unfinished."""
    return f".unspur-{os.getpid()}-{_OURS}{secrets.token_hex(4)}-{host_id()}.tmp"


@cache
def host_id() -> str:
    """Where a process goes by its number: this host, or this container of it, which may be called like others."""
    with suppress(OSError):
        container = re.sub(r"\D", "", os.readlink("/proc/self/ns/pid"))
        if container not in ("", _NO_CONTAINER):
            return f"{platform.node()}-{container}"
    return platform.node()


@contextmanager
def staging_dir(path: Path) -> Iterator[Path]:
    """A new folder beside `path`, to make it in; after the block it is gone, with all that is still in it.

    An error is told by the name of `path`, not by one that nobody has heard of. What processes that were killed left
    beside `path` is removed.
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
    whose = _NAME.fullmatch(path.name)
    if whose is None:
        return False
    try:
        if whose["host"] != host_id() or os.name != "posix":  # os.kill(pid, 0) is no question on Windows
            return time.time() - path.stat().st_mtime > _DAY
        if int(whose["pid"]) == os.getpid():
            return not whose["mark"].startswith(_OURS)
        os.kill(int(whose["pid"]), 0)
    except (FileNotFoundError, ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # alive, and somebody else's
        pass
    return False


def take_place(path: Path) -> None:
    """Have the disk set aside what a file's size promises, or raise OSError.

    A file that is to be filled through a memory map needs this: where the disk becomes full on the way, the process
    would be ended by a signal, without a word.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # file systems that cannot
            raise
