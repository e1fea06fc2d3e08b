"""Names of members of an archive: which of them stay inside the folder they are written to."""

from __future__ import annotations

import re

from unspur.lab.datasets.downloads.errors import ArchiveError


def parts_of(name: str) -> tuple[str, ...]:
    """The folders and the file of a member's name; `ArchiveError` if they could lead anywhere else.

    The rules of all systems hold on each, so that an archive is good everywhere or nowhere.
    """
    if "\0" in name:
        raise refused(name, "has a zero byte in its name")
    if "\\" in name:
        raise refused(name, "has a backslash in its name, which some systems read as a folder")
    if name.startswith("/"):
        raise refused(name, "has an absolute path")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        raise refused(name, "leads out of the folder with '..'")
    if any(re.match("[A-Za-z]:", part) for part in parts):
        raise refused(name, "names a drive")
    return parts


def refused(name: str, reason: str) -> ArchiveError:
    """The error for a member that is not written."""
    return ArchiveError(f"Member {name!r} {reason}. Nothing was unpacked; get the archive from its publisher.")
