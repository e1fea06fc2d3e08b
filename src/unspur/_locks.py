"""One process at a time: a file that says who is at work, and that a later process removes if its maker is dead."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unspur._disk import BusyError
from unspur._temporary import host_id, remove_abandoned, temporary_name

#: What this process holds: its own number in a lock of somebody else is a number that was used again.
_held: set[str] = set()


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
