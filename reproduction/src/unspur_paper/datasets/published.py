"""Files of published datasets: where they are expected, and what their lists may name."""

from __future__ import annotations

from pathlib import Path

from unspur._text import brief
from unspur.exceptions import InputError

#: Longest file name and path, and characters of a name that a message shows.
MAX_NAME_CHARACTERS, MAX_PATH_CHARACTERS, MAX_NAME_SHOWN = 255, 2000, 80


def inside(name: str, listing: Path) -> str:
    """A path that a list of files names, unless it leads out of the folder it is meant to be in, or nowhere."""
    path = Path(name)
    if not path.parts or path.anchor or ".." in path.parts:
        raise InputError(
            f"{listing} names {brief(name, MAX_NAME_SHOWN)!r}; it may only name files inside of its folder."
        )
    if "\0" in name or max(map(len, path.parts)) > MAX_NAME_CHARACTERS or len(name) > MAX_PATH_CHARACTERS:
        raise InputError(f"{listing} names {brief(name, MAX_NAME_SHOWN)!r}, which no file is called.")
    return name


def required(root: Path, *parts: str, what: str) -> Path:
    """A file or folder of a dataset, or an error that says what is expected where."""
    path = root.joinpath(*parts)
    if not path.exists():
        raise InputError(f"{path} does not exist; it is where {what} is expected.")
    if not path.is_file() and not path.is_dir():
        raise InputError(f"{path} is neither a file nor a folder; it is where {what} is expected.")
    return path


def required_file(root: Path, *parts: str, what: str) -> Path:
    """A file of a dataset, or an error that says what is expected where."""
    path = required(root, *parts, what=what)
    if not path.is_file():
        raise InputError(f"{path} is a folder; it is where {what} is expected.")
    return path
