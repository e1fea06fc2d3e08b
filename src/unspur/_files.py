"""Files on their way: temporary names, locks, and what can go wrong while they are written, in words.

A temporary name says whose it is (process and host), so that a later process can tell the leftovers of a dead one from
the work of one that is still at it. So does the content of a lock file. Neither needs the clock wherever that can be
avoided: clocks are set.
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

from unspur.exceptions import BusyError, DiskError

_NAME = re.compile(r"\.unspur-(?P<pid>\d+)-(?P<mark>[0-9a-f]+)-(?P<host>.*)\.tmp")
#: Seconds after which something of another host, whose processes cannot be asked for, is nobody's.
_ABANDONED_AFTER_SECONDS = 86400.0
#: The processes of a Linux host itself.
_HOST_PID_NAMESPACE = "4026531836"
#: What this process holds: its own number in a lock of somebody else is a number that was used again.
_held: set[str] = set()
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
        if container not in ("", _HOST_PID_NAMESPACE):
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
            return time.time() - path.stat().st_mtime > _ABANDONED_AFTER_SECONDS
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


@contextmanager
def hold(path: Path, *, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path` for the block; raise `BusyError` if another process keeps it for `patience` seconds.

    What processes that were killed left unfinished beside it is removed.
    """
    mine = f"{os.getpid()} {host_id()} {secrets.token_hex(8)}"
    end = time.monotonic() + patience
    while not _create(path, mine):
        theirs = _read(path)
        if theirs is None or (_dead(theirs) and _set_aside(path, theirs)):
            continue  # gone since
        if time.monotonic() >= end:
            raise BusyError(
                f"Process {theirs.split()[0]} is already at work here (it holds {path}). Wait until it ends; if there "
                "is no such process any more, delete that file."
            )
        time.sleep(0.05)
    _held.add(mine)
    try:
        remove_abandoned(path.parent)
        yield
    finally:
        _held.discard(mine)
        if _read(path) == mine:
            path.unlink()


def _create(path: Path, content: str) -> bool:
    """Make the lock with its content in it: one that is still empty would pass for one whose maker has died."""
    part = path.with_name(temporary_name())
    try:
        part.write_text(content, encoding="utf-8")
        try:
            os.link(part, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            return _create_empty_first(path, content)
    finally:
        part.unlink(missing_ok=True)
    return True


def _create_empty_first(path: Path, content: str) -> bool:
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    try:
        os.write(handle, content.encode())
    finally:
        os.close(handle)
    return True


def _read(path: Path) -> str | None:
    """The content of a lock; ``0 - -`` if its maker died before writing it."""
    for _ in range(20):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        if len(text.split()) == 3:
            return text
        time.sleep(0.01)  # made, but not yet written
    return "0 - -"


def _dead(content: str) -> bool:
    number, host, _ = content.split()
    if not re.fullmatch("[0-9]{1,18}", number) or number == "0":  # no process has such a number
        return True
    if host != host_id() or os.name == "nt":  # Windows has no signal that only asks
        return False
    if int(number) == os.getpid():
        return content not in _held
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass  # alive, of another user
    return False


def _set_aside(path: Path, judged: str) -> bool:
    """Remove the lock that was judged dead; if another process was quicker, give its new lock back."""
    aside = path.with_name(temporary_name())
    try:
        path.rename(aside)
    except FileNotFoundError:
        return True
    ours = _read(aside) == judged
    if not ours:
        with suppress(OSError):
            os.link(aside, path)
    aside.unlink()
    return ours


def disk_error(error: OSError, path: str | PathLike[str] | None, advice: str) -> DiskError:
    """An error of the operating system while `path`, or the output (None), was written, with its reason in words."""
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
