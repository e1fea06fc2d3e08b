"""What can go wrong between a publisher and a folder, in words."""

from __future__ import annotations

import errno
from os import PathLike

from unspur.exceptions import InputError, UnspurError


class DownloadError(UnspurError):
    """A file could not be fetched."""


class ChecksumError(DownloadError):
    """A file is not the one that was published."""


class BusyError(UnspurError):
    """Another process is at work on the same dataset."""


class DiskError(UnspurError):
    """The disk refuses to take what is written."""


class ArchiveError(InputError):
    """An archive is damaged, or holds something that is never written to disk."""


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
