"""Checksums of files of any size."""

from __future__ import annotations

import hashlib
from pathlib import Path

from unspur_paper.datasets.downloads.errors import ChecksumError


def checked(path: Path, checksum: str | None, stated_by: str) -> str:
    """The SHA-256 of a file, after comparing the file with a `checksum` such as ``md5:…``."""
    name, _, stated = (checksum or "").partition(":")
    hashes = {algorithm: hashlib.new(algorithm, usedforsecurity=False) for algorithm in {"sha256", name} - {""}}
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            for one in hashes.values():
                one.update(block)
    if checksum is not None and (seen := hashes[name].hexdigest()) != stated.lower():
        raise ChecksumError(
            f"{path.name} is not the published file: its {name} is {seen}; {stated_by or 'the publisher'} states "
            f"{stated}. It may be damaged, or published anew. Try again; if the new file is meant, pass --unverified."
        )
    return hashes["sha256"].hexdigest()
