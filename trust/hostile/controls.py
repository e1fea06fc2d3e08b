"""Readers that do what none may do, to see that it is noticed."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np

from trust.hostile.bounded import CANARY
from trust.hostile.trials import Reader, promised
from unspur.exceptions import InputError


class _Attack:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch ../{CANARY}",)


def _make(folder: Path) -> Path:
    (folder / "file").write_bytes(b"sound")
    return folder / "file"


def _reader(misbehave: Callable[[Path], object], bad: bytes = b"bad") -> Reader:
    def read(path: Path) -> None:
        if path.read_bytes() != b"sound":
            misbehave(path)

    return Reader(_make, read, lambda _: [("bad", bad)], by_chance=False)


def _hangs(_: Path) -> None:
    while True:
        pass


def _waits(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.with_name("pipe").read_bytes()


def _says(message: str) -> Callable[[Path], None]:
    def misbehave(_: Path) -> None:
        raise InputError(message)

    return misbehave


def _refuses_after_asking(path: Path) -> None:
    try:
        bytearray(64 << 30)
    except MemoryError as error:
        raise InputError(f"{path.name} does not fit into memory.") from error


hangs = _reader(_hangs)
waits = _reader(_waits)
crashes = _reader(lambda _: os.kill(os.getpid(), signal.SIGSEGV))
eats_memory = _reader(lambda _: bytearray(64 << 30))
takes_memory = _reader(lambda _: bytearray(150 << 20))
asks_for_memory = _reader(lambda _: np.empty(300 << 17))
hides_its_hunger = _reader(_refuses_after_asking)
runs_code = _reader(lambda path: pickle.loads(path.read_bytes()), pickle.dumps(_Attack()))
writes_elsewhere = _reader(lambda path: (path.parent.parent / "cwd" / "evil").write_bytes(b"x"))
has_another_error = _reader(lambda path: {}[path.name])
names_nothing = _reader(_says("Something is wrong."))
breaks_its_promise = _reader(lambda _: promised(False, "the answer is wrong"))
