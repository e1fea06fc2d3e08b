"""One file from the web, in as many attempts as it takes, and never half of one passed off as the whole."""

from __future__ import annotations

import http.client
import io
import json
import re
import time
import urllib.error
from contextlib import suppress
from dataclasses import asdict, dataclass
from email.message import Message
from pathlib import Path

from tqdm import tqdm

from unspur_paper.datasets.downloads.checksums import checked
from unspur_paper.datasets.downloads.errors import ChecksumError, DownloadError
from unspur_paper.datasets.downloads.web import InterruptedTransfer, ask, body, check_url
from unspur_paper.files import disk_error, read_json

_BLOCK = 1 << 18


_KINDS = {"url": str, "etag": (str, type(None)), "modified": (str, type(None)), "size": (int, type(None))}


@dataclass(frozen=True)
class _Remote:
    """What the server said about the file, kept beside the part that has arrived."""

    url: str
    etag: str | None
    modified: str | None
    size: int | None

    @property
    def mark(self) -> str | None:
        """What the server can compare to tell whether the file is still the same."""
        strong = self.etag is not None and not self.etag.startswith("W/")
        return self.etag if strong else self.modified


def fetch(
    url: str,
    target: Path,
    *,
    size: int | None = None,
    checksum: str | None = None,
    stated_by: str = "",
    tries: int = 5,
    pause: float = 1.0,
) -> str:
    """Download `url` to `target`, going on where an earlier call stopped, and return the SHA-256.

    Until it is whole and has the stated size and checksum, the file is called ``target.part``. A transfer that ends
    early is taken up again, at most `tries` times without getting further, after `pause`, 2 `pause`, 4 `pause`… s.
    """
    check_url(url)
    part, note = _beside(target, ".part"), _beside(target, ".json")
    if target.exists():  # whole, but not used up: the earlier call died later on, or was told to keep it
        with suppress(ChecksumError):
            if is_complete(url, target):
                return checked(target, checksum, stated_by)
        target.unlink()
    _persist(url, part, note, size, tries, pause)
    try:
        seen = checked(part, checksum, stated_by)
    except ChecksumError:
        _forget(part, note)
        raise
    part.replace(target)
    return seen


def is_complete(url: str, target: Path) -> bool:
    """Whether `target` is there as a whole, and from this address."""
    remote = _read(_beside(target, ".json"))
    return target.exists() and remote is not None and remote.url == url


def forget(target: Path) -> None:
    """Remove a fetched file and everything kept beside it."""
    _forget(target, _beside(target, ".part"), _beside(target, ".json"))


def _persist(url: str, part: Path, note: Path, size: int | None, tries: int, pause: float) -> None:
    """Attempt after attempt, until the part is the whole."""
    furthest, failures = -1, 0
    while True:
        try:
            return _attempt(url, part, note, size)
        except InterruptedTransfer as reason:
            have = _size(part)
            furthest, failures = (have, 1) if have > furthest else (furthest, failures + 1)
            if failures >= tries:
                raise DownloadError(_gave_up(url, part, _read(note), have, failures, reason)) from reason
        time.sleep(pause * 2 ** (failures - 1))


def _gave_up(url: str, part: Path, remote: _Remote | None, have: int, failures: int, reason: Exception) -> str:
    whole = f" of {remote.size:,}" if remote is not None and remote.size is not None else ""
    seen = f"{url} was not fetched: {have:,}{whole} bytes arrived, and {failures} attempts came no further ({reason})."
    if have and remote is not None and remote.mark is not None:
        return f"{seen} They are kept in {part}; the same command goes on from there."
    return f"{seen} Try again later, or pass another address with --url."


def _attempt(url: str, part: Path, note: Path, size: int | None) -> None:
    """One request: append what is still to come, or begin anew where the server cannot or the file has changed."""
    remote, have = _read(note), _size(part)
    if remote is None or remote.url != url or remote.mark is None:
        remote, have = None, 0
    if remote is not None and have == remote.size and remote.size == (size or remote.size):
        return
    resume = {"Range": f"bytes={have}-", "If-Range": remote.mark or ""} if remote is not None and have else {}
    try:
        response = ask(url, resume)
    except urllib.error.HTTPError as error:  # 416
        _forget(part, note)
        raise InterruptedTransfer("the server does not have the rest of the part that was here") from error
    with response:
        if response.status == 206:
            start, whole = _range(response.headers.get("Content-Range", ""))
            if start != have or (remote is not None and not _same(remote, response.headers, whole)):
                _forget(part, note)
                raise InterruptedTransfer("the server sent another piece than the one asked for")
        else:
            have, whole = 0, _number(response.headers.get("Content-Length"))
        if size is not None and whole not in (None, size):
            _forget(part, note)
            raise DownloadError(
                f"{url} offers {whole:,} bytes; the published file has {size:,}. It is another file. Pass another "
                f"address with --url, or --unverified if this one is meant."
            )
        headers = response.headers
        fresh = None if have else _Remote(url, headers.get("ETag"), headers.get("Last-Modified"), whole)
        _store(response, part, note, fresh, have, whole if whole is not None else size)


def _store(
    response: http.client.HTTPResponse, part: Path, note: Path, fresh: _Remote | None, have: int, whole: int | None
) -> None:
    """Append the body to the part; `fresh` is what is to be noted about a file that begins anew."""
    bar = tqdm(total=whole, initial=have, unit="B", unit_scale=True, desc=part.name.removesuffix(".part"), disable=None)
    try:
        with bar, part.open("ab" if fresh is None else "wb", buffering=0) as file:
            if fresh is not None:
                note.write_text(json.dumps(asdict(fresh)), encoding="utf-8")  # after the old part is gone
            while block := body(response, _BLOCK):
                _write(file, block)
                have += len(block)
                bar.update(len(block))
                if whole is not None and have > whole:
                    raise DownloadError(f"{response.url} sends more than the {whole:,} bytes of the published file.")
    except OSError as error:  # those of the connection have become InterruptedTransfer
        raise disk_error(
            error, part, f"What has arrived ({_size(part):,} bytes) is kept. Make room, and the same command goes on."
        ) from error
    if whole is not None and have < whole:
        raise InterruptedTransfer(f"the connection ended after {have:,} of {whole:,} bytes")


def _same(remote: _Remote, headers: Message, whole: int | None) -> bool:
    """Whether a piece belongs to the file that was begun: some servers send one without looking at the mark."""
    seen = _Remote(remote.url, headers.get("ETag", remote.etag), headers.get("Last-Modified", remote.modified), whole)
    return seen == remote


def _write(file: io.FileIO, block: bytes) -> None:
    """Write all of a block: unbuffered files may take less than they are given."""
    view = memoryview(block)
    while view:
        view = view[file.write(view) :]


def _read(note: Path) -> _Remote | None:
    """What is noted, or None if that is nothing or damaged."""
    try:
        return _Remote(**read_json(note, _KINDS))
    except (OSError, ValueError, TypeError):
        return None


def _range(header: str) -> tuple[int | None, int | None]:
    match = re.fullmatch(r"\s*bytes\s+(\d+)-\d+/(\d+|\*)\s*", header)
    return (int(match[1]), _number(match[2])) if match else (None, None)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _forget(*paths: Path) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
