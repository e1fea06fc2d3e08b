"""Datasets from their publishers: what is there, else a download that can be resumed, checked and unpacked safely."""

from unspur.lab.datasets.downloads.errors import ArchiveError, ChecksumError, DownloadError
from unspur.lab.datasets.downloads.layout import Found, look
from unspur.lab.datasets.downloads.obtain import Outcome, Receipt, obtain
from unspur.lab.datasets.downloads.sources import SOURCES, Archive, Part, Source

__all__ = [
    "SOURCES", "Archive", "ArchiveError", "ChecksumError", "DownloadError", "Found",
    "Outcome", "Part", "Receipt", "Source", "look", "obtain",
]  # fmt: skip
