"""Datasets from their publishers: what is there, else a download that can be resumed, checked and unpacked safely."""

from unspur_paper.datasets.downloads.errors import ArchiveError, ChecksumError, DownloadError
from unspur_paper.datasets.downloads.layout import Found, look
from unspur_paper.datasets.downloads.obtain import Outcome, Receipt, obtain
from unspur_paper.datasets.downloads.sources import SOURCES, Archive, Part, Source

__all__ = [
    "SOURCES",
    "Archive",
    "ArchiveError",
    "ChecksumError",
    "DownloadError",
    "Found",
    "Outcome",
    "Part",
    "Receipt",
    "Source",
    "look",
    "obtain",
]
