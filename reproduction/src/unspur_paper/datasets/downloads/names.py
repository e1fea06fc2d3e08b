"""Names of members of an archive: which of them stay inside the folder they are written to."""

from __future__ import annotations

import re
from pathlib import Path

from unspur._text import brief
from unspur_paper.datasets.downloads.errors import ArchiveError

#: Bytes that file systems allow for one name, and for names in a row; and how many of those, where datasets have five.
LONGEST_NAME, LONGEST_PATH, DEEPEST = 255, 2000, 100


def parts_of(name: str, archive: Path) -> tuple[str, ...]:
    """The folders and the file of a member's name; `ArchiveError` if they could lead anywhere else.

    The rules of all systems hold on each, so that an archive is good everywhere or nowhere.
    """
    sizes = [len(part.encode("utf-8", "surrogateescape")) for part in name.split("/")]
    if sum(sizes) > LONGEST_PATH or max(sizes) > LONGEST_NAME or len(sizes) > DEEPEST:
        raise refused(name, archive, "has a name that is too long or too deep for a disk")
    if "\0" in name:
        raise refused(name, archive, "has a zero byte in its name")
    if "\\" in name:
        raise refused(name, archive, "has a backslash in its name, which some systems read as a folder")
    if name.startswith("/"):
        raise refused(name, archive, "has an absolute path")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        raise refused(name, archive, "leads out of the folder with '..'")
    if any(re.match("[A-Za-z]:", part) for part in parts):
        raise refused(name, archive, "names a drive")
    return parts


def refused(name: str, archive: Path, reason: str) -> ArchiveError:
    """The error for a member that is not written."""
    member = repr(brief(name, 80))
    return ArchiveError(f"Member {member} of {archive} {reason}. Nothing was unpacked; get it from its publisher.")
