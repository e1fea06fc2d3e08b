"""From a private folder to the place where a dataset belongs: all of it or nothing, and never over other files."""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unspur.exceptions import OutputExistsError
from unspur_paper.files import disk_error


@contextmanager
def private(folder: Path) -> Iterator[Path]:
    """A new empty `folder` that is gone after the block; what a process that died left under that name is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def move_into(folder: Path, root: Path) -> None:
    """Move what is in `folder` to the same places below `root`, on the same file system.

    Files that are there with the same content stay; with other content, or links in the way, and nothing is moved.
    """
    moves = list(_plan(folder, root))
    try:
        for source, target in moves:
            source.rename(target)
    except BaseException as error:
        for source, target in reversed(moves):
            if not source.exists() and target.exists():
                target.rename(source)
        if isinstance(error, OSError):
            raise disk_error(error, target, "What had been moved is removed again.") from error
        raise


def _plan(folder: Path, root: Path) -> Iterator[tuple[Path, Path]]:
    """The fewest moves that bring everything in `folder` below `root`."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        source, target = Path(entry.path), root / entry.name
        if target.is_symlink():
            raise OutputExistsError(
                f"{target} is a link, and nothing is unpacked through links. Remove it, or choose another --root."
            )
        if not target.exists():
            yield source, target
        elif source.is_dir() and target.is_dir():
            yield from _plan(source, target)
        elif not (source.is_file() and target.is_file() and filecmp.cmp(source, target, shallow=False)):
            raise OutputExistsError(
                f"{target} exists with other content and is kept; nothing was unpacked. Move it away, or choose "
                "another --root."
            )
