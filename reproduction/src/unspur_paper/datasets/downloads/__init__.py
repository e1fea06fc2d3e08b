"""Datasets from their publishers: what is there, else a download that can be resumed, checked and unpacked safely."""

from unspur_paper.datasets.downloads.errors import ArchiveError, ChecksumError, DownloadError
from unspur_paper.datasets.downloads.layout import Found, look
from unspur_paper.datasets.downloads.obtain import Outcome, Receipt, obtain
from unspur_paper.datasets.downloads.publications import PUBLICATIONS, Archive, Part, Publication

__all__ = [
    "PUBLICATIONS",
    "Archive",
    "ArchiveError",
    "ChecksumError",
    "DownloadError",
    "Found",
    "Outcome",
    "Part",
    "Publication",
    "Receipt",
    "look",
    "obtain",
]
