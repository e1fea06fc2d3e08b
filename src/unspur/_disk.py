"""What can go wrong while files are written, in words."""

from __future__ import annotations

import errno
from os import PathLike

from unspur.exceptions import UnspurError


class BusyError(UnspurError):
    """Another process is at work in the same place."""


class DiskError(UnspurError):
    """The disk refuses to take what is written."""


def disk_error(error: OSError, path: str | PathLike[str], advice: str) -> DiskError:
    """An error of the operating system while `path` was written, with its reason in words."""
    reasons = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.EFBIG: "the file would be larger than the file system or a limit of this process allows",
        errno.EROFS: "the disk can only be read",
        errno.EXDEV: "it lies on another file system",
    }
    reason = reasons.get(error.errno or 0, error.strerror or str(error))
    return DiskError(f"{str(path)!r} cannot be written: {reason}. {advice}")
