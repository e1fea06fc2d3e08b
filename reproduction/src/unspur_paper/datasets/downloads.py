"""A dataset below a root: found there, or fetched, compared with its checksum, unpacked and moved into place.

A download that was stopped goes on where it was. Archives are unpacked by Python's own readers, which write nothing
outside of the folder they are told.
"""

from __future__ import annotations

import filecmp
import hashlib
import http.client
import json
import shutil
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from tqdm import tqdm

from unspur._files import atomic
from unspur._text import brief
from unspur._version import __version__
from unspur.exceptions import InputError, OutputExistsError, UnspurError
from unspur_paper.datasets.publications import Archive, Part, Publication
from unspur_paper.files import hold, read_json

#: Folder of the root for what is not a dataset yet.
WORKSHOP = ".downloads"
#: Attempts without getting further, and seconds before the second; then twice as many, and so on.
TRIES, PAUSE = 5, 1.0
_BLOCK, _TIMEOUT = 1 << 18, 60
#: What reading an archive that is damaged can raise.
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError, EOFError, ValueError, NotImplementedError)


class DownloadError(UnspurError):
    """A file could not be fetched, or is not the one that was published."""


class ArchiveError(InputError):
    """An archive is damaged, or holds something that is not written to disk."""


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


@dataclass(frozen=True)
class Receipt:
    """A file that was used: where it came from and what it hashes to."""

    file: str
    origin: str
    bytes: int
    sha256: str
    checksum: str  #: what it was compared with, in words


@dataclass(frozen=True)
class Outcome:
    """What was done for a dataset (`action`: found or unpacked), and what is there now."""

    name: str
    root: Path
    action: str
    found: list[Found]
    receipts: list[Receipt]


def look(root: Path, dataset: Publication) -> list[Found]:
    """The files of each part below `root`; links to files and folders count as what they point to."""
    return [Found(part, sum(1 for _ in _files(root, part))) for part in dataset.layout]


def missing(dataset: Publication, *roots: Path) -> list[Part]:
    """The parts that have no file below any of the roots."""
    return [part for part in dataset.layout if not any(next(_files(root, part), None) for root in roots)]


def _files(root: Path, part: Part) -> Iterator[Path]:
    # Archives made on a Mac carry hidden twins of every file.
    return (path for path in root.glob(part.pattern) if path.is_file() and not path.name.startswith("."))


def obtain(
    dataset: Publication,
    root: Path,
    *,
    archives: Sequence[Path] = (),
    urls: Sequence[str] = (),
    keep_archive: bool = False,
    unverified: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Make sure that `dataset` is complete below `root`.

    Files given as `archives` are used instead of the network and never removed; `urls` replace the published addresses.
    After an error the root holds what it held before, apart from a part of a download in its folder `WORKSHOP`.
    """
    if root.exists() and not root.is_dir():
        raise InputError(f"{root} is a file; --root must be a folder.")
    plan = _plan(dataset, archives, urls)
    if not missing(dataset, root):
        return Outcome(dataset.name, root, "found", look(root, dataset), [])
    if not plan:
        lacking = _and(part.pattern for part in missing(dataset, root))
        raise InputError(
            f"{dataset.name} is not complete under {root}: no {lacking}. {dataset.by_hand} Page: {dataset.page}"
        )
    with _workshop(root, dataset.name) as workshop:
        say(f"{dataset.name} is not complete under {root}: no {_and(part.pattern for part in missing(dataset, root))}.")
        receipts, paths = [], []
        for archive, origin in plan:
            path, receipt = _get(archive, origin, workshop, unverified, say)
            receipts.append(receipt)
            paths.append(path)
        folder = workshop / f"{dataset.name}.unpacking"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            for (archive, _), path in zip(plan, paths, strict=True):
                say(f"Unpacking {path.name}.")
                unpack(path, folder / archive.into, archive.file)
            if lacking_parts := missing(dataset, folder, root):
                needed = _and(f"{part.pattern} ({part.what})" for part in lacking_parts)
                raise ArchiveError(
                    f"With these files {dataset.name} would still lack {needed}; nothing was changed. {dataset.by_hand}"
                )
            move_into(folder, root)
        except ArchiveError:
            _discard(workshop, plan)  # else the same file would be refused again and again
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        with atomic(root / f"{dataset.name}.download.json", overwrite=True) as temporary:
            used = [{"from" if key == "origin" else key: v for key, v in asdict(one).items()} for one in receipts]
            text = json.dumps({"dataset": dataset.name, "unspur": __version__, "files": used}, indent=2)
            temporary.write_text(text + "\n", encoding="utf-8")
        if not keep_archive:
            _discard(workshop, plan)
    return Outcome(dataset.name, root, "unpacked", look(root, dataset), receipts)


@contextmanager
def _workshop(root: Path, name: str) -> Iterator[Path]:
    """The folder for work in progress, for one process at a time; gone again if nothing is left in it."""
    folder = root / WORKSHOP
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with hold(folder / f"{name}.lock"):
            yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()


def _discard(workshop: Path, plan: Sequence[tuple[Archive, Path | str]]) -> None:
    """Remove what was downloaded; files that were given stay."""
    for archive, origin in plan:
        if isinstance(origin, str):
            for name in (archive.file, f"{archive.file}.part", f"{archive.file}.json"):
                (workshop / name).unlink(missing_ok=True)


def _plan(dataset: Publication, archives: Sequence[Path], urls: Sequence[str]) -> list[tuple[Archive, Path | str]]:
    """Which published file comes from where; nothing if a person has to fetch them."""
    given: dict[Archive, Path | str] = {}
    for name, origin in [(_last(url), url) for url in urls] + [(path.name, path) for path in archives]:
        if isinstance(origin, Path) and not origin.is_file():
            raise InputError(f"There is no file {origin}.")
        if isinstance(origin, str):
            check_url(origin)
        archive = _match(dataset, name)
        if archive in given:
            raise InputError(f"{archive.file} is given twice, as {given[archive]} and as {origin}; one is enough.")
        given[archive] = origin
    chosen = {archive: archive.url for archive in dataset.archives if archive.url is not None} | given
    return [(archive, chosen[archive]) for archive in dataset.archives if archive in chosen]


def _match(dataset: Publication, name: str) -> Archive:
    if len(dataset.archives) == 1:
        return dataset.archives[0]
    for archive in dataset.archives:
        if archive.file == name:
            return archive
    if not dataset.archives:
        raise InputError(f"{dataset.name} has no published archive. {dataset.by_hand}")
    files = _and(archive.file for archive in dataset.archives)
    raise InputError(f"{name} is not a file of {dataset.name}; those are called {files}. Rename it if it is one.")


def _last(url: str) -> str:
    return PurePosixPath(unquote(urlsplit(url).path)).name


def _and(words: Iterable[str]) -> str:
    return " and ".join(words)


def _get(
    archive: Archive, origin: Path | str, workshop: Path, unverified: bool, say: Callable[[str], None]
) -> tuple[Path, Receipt]:
    """A published file on this machine, compared with what is stated about it."""
    path = origin if isinstance(origin, Path) else workshop / archive.file
    if isinstance(origin, Path):
        say(f"Using {origin}.")
    else:
        say(f"Downloading {origin}" + (f" ({archive.size / 1e6:,.0f} MB)." if archive.size else "."))
        fetch(origin, path, size=None if unverified else archive.size)
    kind, _, stated = (archive.checksum or "sha256:").partition(":")
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        seen = hashlib.file_digest(file, kind).hexdigest()
    words = f"as stated by {archive.stated_by}: {archive.checksum}"
    if archive.checksum is None:
        words = "no published checksum is known"
        say(f"No published checksum is known; the SHA-256 of {path.name} is {sha256}; compare it with a colleague's.")
    elif unverified:
        words = f"not compared, as asked; {archive.stated_by} states {archive.checksum}"
    elif seen != stated.lower():
        if isinstance(origin, str):
            path.unlink()
        raise DownloadError(
            f"{path.name} is not the published file: its {kind} is {seen}; {archive.stated_by} states {stated}. Try "
            "again; if the new file is meant, pass --unverified."
        )
    origin_name = origin.name if isinstance(origin, Path) else origin
    return path, Receipt(archive.file, origin_name, path.stat().st_size, sha256, words)


def check_url(url: str) -> None:
    """Raise `InputError` unless `url` is a plain web address."""
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname or "@" in address.netloc or " " in url:
        raise InputError(f"{brief(url, 80)!r} is not a web address; it must begin with https:// and name a host.")


def fetch(url: str, target: Path, *, size: int | None = None, pause: float = PAUSE) -> None:
    """Download `url` to `target`, going on where an earlier call stopped.

    Until it is whole, the file is called ``target.part``, and ``target.json`` has what the server said about it: a file
    that has changed meanwhile is begun anew.
    """
    part, note = (target.with_name(f"{target.name}.{end}") for end in ("part", "json"))
    if target.exists() and _noted(note).get("url") == url:  # whole, but not used up
        return
    furthest, failures = -1, 0
    while True:
        try:
            _attempt(url, part, note, size)
            part.replace(target)
            return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416:  # the part is more than the server has
                part.unlink(missing_ok=True)
            elif error.code < 500 and error.code not in (408, 425, 429):
                raise DownloadError(
                    f"{url} answered {error.code} {error.reason}. Look on the page of the dataset (unspur-paper data "
                    "--list), then pass its new address with --url, or a file downloaded by hand with --archive."
                ) from error
            reason: Exception = error
        except (ConnectionError, TimeoutError, http.client.HTTPException, urllib.error.URLError) as error:
            reason = error
        have = part.stat().st_size if part.exists() else 0
        furthest, failures = (have, 1) if have > furthest else (furthest, failures + 1)
        if failures >= TRIES:
            raise DownloadError(
                f"{url} was not fetched: {have:,} bytes arrived, and {failures} attempts came no further ({reason}). "
                "The same command goes on from there; or pass another address with --url."
            ) from reason
        time.sleep(pause * 2 ** (failures - 1))


def _attempt(url: str, part: Path, note: Path, size: int | None) -> None:
    """One request: append what is still to come, or begin anew where the server cannot or the file has changed."""
    noted, have = _noted(note), part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": f"unspur/{__version__}", "Accept-Encoding": "identity"}
    mark = noted.get("mark") if noted.get("url") == url else None
    if have and mark and have == noted.get("size"):
        return
    if have and isinstance(mark, str):
        headers |= {"Range": f"bytes={have}-", "If-Range": mark}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT) as response:
        if response.status != 206:
            have = 0
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            part.unlink()
            raise ConnectionError("the server sent another piece than the one asked for")
        length = response.headers.get("Content-Length")
        whole = have + int(length) if length else size
        if size is not None and whole != size:
            raise DownloadError(
                f"{url} offers {whole:,} bytes; the published file has {size:,}. Pass another address with --url, or "
                "--unverified if this one is meant."
            )
        if not have:
            mark = response.headers.get("ETag") or response.headers.get("Last-Modified")
            note.write_text(json.dumps({"url": url, "mark": mark, "size": whole}), encoding="utf-8")
        bar = tqdm(total=whole, initial=have, unit="B", unit_scale=True, desc=part.stem, disable=None)
        with bar, part.open("ab" if have else "wb") as file:
            while block := response.read(_BLOCK):
                file.write(block)
                have += len(block)
                bar.update(len(block))
    if whole is not None and have < whole:
        raise ConnectionError(f"the connection ended after {have:,} of {whole:,} bytes")


def _noted(note: Path) -> dict[str, object]:
    try:
        return dict(read_json(note, dict))
    except (OSError, ValueError):
        return {}


def unpack(path: Path, folder: Path, name: str) -> None:
    """Write the content of an archive, or a plain text called `name`, to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if PurePosixPath(name).suffix == ".txt":
            shutil.copyfile(path, folder / name)
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as packed:
                packed.extractall(folder)
        elif not hasattr(tarfile, "data_filter"):
            raise ArchiveError(
                f"{path} is unpacked by Python 3.11.4 or newer only; this one is older. Unpack it by hand."
            )
        else:
            with tarfile.open(path) as packed_tar:
                packed_tar.extractall(folder, filter="data")
    except _DAMAGE as error:
        raise ArchiveError(f"{path} cannot be unpacked: {brief(error)}. Nothing was unpacked; get it again.") from error


def move_into(folder: Path, root: Path) -> None:
    """Move the files below `folder` to the same places below `root`; nothing is moved if others are in the way."""
    moves = []
    for source in sorted(path for path in folder.rglob("*") if path.is_file()):
        target = root / source.relative_to(folder)
        if not target.exists():
            moves.append((source, target))
        elif not (target.is_file() and filecmp.cmp(source, target, shallow=False)):
            raise OutputExistsError(f"{target} exists with other content and is kept; nothing was unpacked.")
    for source, target in moves:
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
