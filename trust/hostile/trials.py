"""What is tried: a reader, a sound file of its kind, and bad ones in a fixed order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from trust.hostile.damage import damaged

#: Bytes to write, or something that is put in the place of the file in another way.
Bad: TypeAlias = bytes | Callable[[Path], object]
Attacks: TypeAlias = Iterable[tuple[str, Bad]]


#: Bytes that a trial may take beyond what the process had before it: of memory, and of address space that it asks for.
MOST = 100 << 20


@dataclass(frozen=True)
class Reader:
    """A kind of file. `make` writes a sound one, and all that lies beside it, into an empty folder and names it.

    `read` reads it and raises `BrokenPromiseError` if what it got is not what the reader promises. `attacks` are bad
    files made by hand, of the sound one. `text`: words of it may be replaced. `by_chance`: whether damage is drawn too.
    `forged` draws a file that is sound as far as its format goes, and of which one thing is wrong; every second one of
    those that are drawn is of these. `most` is the memory that a file may take, whatever it says.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], object]
    attacks: Callable[[bytes], Attacks] = lambda _: ()
    text: bool = False
    by_chance: bool = True
    forged: Callable[[bytes, np.random.Generator], bytes] | None = None
    most: int = MOST


class BrokenPromiseError(Exception):
    """A reader answered, and the answer is not what it promises."""


def promised(holds: object, what: str) -> None:
    """Raise unless a promise is kept."""
    if not holds:
        raise BrokenPromiseError(what)


def trials(reader: Reader, sound: bytes, seed: int, count: int) -> Iterator[tuple[str, Bad]]:
    """`count` bad files: attacks first (some of them, if they are more than half), then damage by chance."""
    attacks = list(reader.attacks(sound))
    share = count // 2 if reader.by_chance else count
    if len(attacks) > share:
        chosen = np.random.default_rng(seed).choice(len(attacks), share, replace=False)
        attacks = [attacks[k] for k in sorted(chosen)]
    yield from attacks
    for k in range(count - len(attacks) if reader.by_chance else 0):
        rng = np.random.default_rng([seed, k])
        if reader.forged is not None and k % 2 == 0:
            yield f"forgery {seed}.{k}", reader.forged(sound, rng)
            continue
        other = rng.permutation(np.frombuffer(sound[:4096], dtype=np.uint8)).tobytes() if k % 4 < 2 else sound[::-1]
        yield f"damage {seed}.{k}", damaged(sound, other, rng, text=reader.text)


def put(bad: Bad, path: Path) -> None:
    """Place a bad file."""
    if isinstance(bad, bytes):
        path.write_bytes(bad)
    else:
        bad(path)


def no_file(path: Path) -> None:
    """Nothing at all."""
    path.unlink()


def folder(path: Path) -> None:
    """A folder of that name."""
    path.unlink()
    path.mkdir()


def loop(path: Path) -> None:
    """A link that leads to itself."""
    path.unlink()
    path.symlink_to(path.name)


def pipe(path: Path) -> None:
    """A pipe that nobody writes to: reading it would never end."""
    path.unlink()
    os.mkfifo(path)


def device(path: Path) -> None:
    """A link to a device that never ends."""
    path.unlink()
    path.symlink_to("/dev/zero")


#: What may stand where a file should.
NOT_FILES: tuple[tuple[str, Bad], ...] = (
    ("nothing in it", b""),
    ("no file", no_file),
    ("a folder", folder),
    ("a link to itself", loop),
    ("a pipe", pipe),
    ("a device without end", device),
)
