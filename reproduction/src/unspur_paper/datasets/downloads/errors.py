"""What can go wrong between a publisher and a folder, in words."""

from __future__ import annotations

from unspur.exceptions import InputError, UnspurError


class DownloadError(UnspurError):
    """A file could not be fetched."""


class ChecksumError(DownloadError):
    """A file is not the one that was published."""


class ArchiveError(InputError):
    """An archive is damaged, or holds something that is never written to disk."""
