"""What of a dataset lies below a root."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unspur_paper.datasets.downloads.publications import Part, Publication


@dataclass(frozen=True)
class Found:
    """How many files of one part there are."""

    part: Part
    files: int

    @property
    def words(self) -> str:
        """The count, and what the publisher has where that is more."""
        published = self.part.published
        if published is not None and 0 < self.files < published:
            return f"{self.files:,} of {published:,} published files"
        return f"{self.files:,} file{'' if self.files == 1 else 's'}"


def look(root: Path, dataset: Publication) -> list[Found]:
    """The files of each part below `root`; links to files and folders count as what they point to."""
    return [Found(part, sum(1 for _ in _files(root, part))) for part in dataset.layout]


def missing(dataset: Publication, *roots: Path) -> list[Part]:
    """The parts that have no file below any of the roots."""
    return [part for part in dataset.layout if not any(next(_files(root, part), None) for root in roots)]


def _files(root: Path, part: Part) -> Iterator[Path]:
    # Archives made on a Mac carry hidden twins of every file.
    return (path for path in root.glob(part.pattern) if path.is_file() and not path.name.startswith("."))
