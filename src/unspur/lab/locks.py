"""One process at a time: a file that says who is at work, and that a later process removes if its maker is dead."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unspur.lab.disk import BusyError

#: What this process holds: its own number in a lock of somebody else is a number that was used again.
_held: set[str] = set()


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold the lock file `path` for the block, or raise `BusyError`."""
    mine = f"{os.getpid()} {socket.gethostname()} {secrets.token_hex(8)}"
    while not _create(path, mine):
        theirs = _read(path)
        if theirs is None:
            continue  # gone since
        if not _dead(theirs) or not _set_aside(path, theirs):
            raise BusyError(
                f"Process {theirs.split()[0]} is already at work on this dataset (it holds {path}). Wait until it "
                f"ends; if there is no such process any more, delete that file."
            )
    _held.add(mine)
    try:
        yield
    finally:
        _held.discard(mine)
        if _read(path) == mine:
            path.unlink()


def _create(path: Path, content: str) -> bool:
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
    if not number.isdigit() or number == "0":
        return True
    if host != socket.gethostname() or os.name == "nt":  # Windows has no signal that only asks
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
    aside = path.with_name(f"{path.name}.{os.getpid()}")
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
