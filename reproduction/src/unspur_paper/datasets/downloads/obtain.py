"""A dataset below a root: found there, or fetched, checked, unpacked and moved into place in one piece."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from unspur._files import atomic
from unspur._version import __version__
from unspur.exceptions import InputError
from unspur_paper.datasets.downloads.archives import unpack
from unspur_paper.datasets.downloads.checksums import checked
from unspur_paper.datasets.downloads.errors import ArchiveError
from unspur_paper.datasets.downloads.fetch import fetch, forget, is_complete
from unspur_paper.datasets.downloads.layout import Found, look, missing
from unspur_paper.datasets.downloads.place import move_into, private
from unspur_paper.datasets.downloads.publications import Archive, Part, Publication
from unspur_paper.datasets.downloads.web import check_url
from unspur_paper.files import BusyError, disk_error, hold, remove_abandoned

#: Folder of the root for what is not a dataset yet.
WORKSHOP = ".downloads"


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
    lock = f"{dataset.name}.lock"
    if not missing(dataset, root):
        if (root / WORKSHOP).exists():
            with suppress(BusyError, OSError), _workshop(root) as staging_dir:  # gone afterwards, if it is empty
                if (staging_dir / lock).exists():
                    with hold(staging_dir / lock):
                        _finish(dataset, root, plan, staging_dir, keep_archive, unverified)
        return Outcome(dataset.name, root, "found", look(root, dataset), [])
    if not plan:
        raise InputError(_by_hand(dataset, root))
    with _workshop(root) as staging_dir, hold(staging_dir / lock):
        if not missing(dataset, root):  # another process has just finished
            return Outcome(dataset.name, root, "found", look(root, dataset), [])
        say(f"{dataset.name} is not complete under {root}: no {_and(part.pattern for part in missing(dataset, root))}.")
        got = [_get(archive, origin, staging_dir, unverified, say) for archive, origin in plan]
        with private(staging_dir / f"{dataset.name}.unpacking") as folder:
            for one in got:
                _stage(one, folder, say)
            if lacking := missing(dataset, folder, root):
                _discard(got)
                raise ArchiveError(_lacking(dataset, lacking))
            move_into(folder, root)
        receipts = [one.receipt for one in got]
        _record(dataset, root, receipts)
        if not keep_archive:
            _discard(got)
    return Outcome(dataset.name, root, "unpacked", look(root, dataset), receipts)


def _finish(
    dataset: Publication,
    root: Path,
    plan: Sequence[tuple[Archive, Path | str]],
    staging_dir: Path,
    keep_archive: bool,
    unverified: bool,
) -> None:
    """What a process left to do that was killed when all was in its place: the record, and to clear up."""
    shutil.rmtree(staging_dir / f"{dataset.name}.unpacking", ignore_errors=True)
    remove_abandoned(root)
    if all(isinstance(origin, Path) or is_complete(origin, staging_dir / archive.file) for archive, origin in plan):
        got = [_get(archive, origin, staging_dir, unverified, lambda _: None) for archive, origin in plan]
        _record(dataset, root, [one.receipt for one in got])
    if not keep_archive:  # some of it may be gone already
        for archive, origin in plan:
            if isinstance(origin, str):
                forget(staging_dir / archive.file)


def _plan(dataset: Publication, archives: Sequence[Path], urls: Sequence[str]) -> list[tuple[Archive, Path | str]]:
    """Which published file comes from where; nothing if a person has to fetch them."""
    chosen: dict[Archive, Path | str] = {
        archive: archive.url for archive in dataset.archives if archive.url is not None
    }
    given: dict[Archive, Path | str] = {}
    for url in urls:
        check_url(url)
    for name, origin in [(_last(url), url) for url in urls] + [(path.name, path) for path in archives]:
        if isinstance(origin, Path) and not origin.is_file():
            raise InputError(f"There is no file {origin}.")
        archive = _match(dataset, name)
        if archive in given:
            raise InputError(f"{archive.file} is given twice, as {given[archive]} and as {origin}; one is enough.")
        given[archive] = origin
    chosen |= given
    return [(archive, chosen[archive]) for archive in dataset.archives if archive in chosen]


def _match(dataset: Publication, name: str) -> Archive:
    if len(dataset.archives) == 1:
        return dataset.archives[0]
    for archive in dataset.archives:
        if archive.file == name:
            return archive
    files = _and(archive.file for archive in dataset.archives)
    if not files:
        raise InputError(f"{dataset.name} has no published archive. {dataset.by_hand}")
    raise InputError(
        f"{name} is not a file of {dataset.name}; those are called {files}. Rename it if it is one of them."
    )


def _last(url: str) -> str:
    return PurePosixPath(unquote(urlsplit(url).path)).name


@contextmanager
def _workshop(root: Path) -> Iterator[Path]:
    """The folder for work in progress, gone again if nothing is left in it."""
    folder = root / WORKSHOP
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, folder, "Choose a --root that can be written to.") from error
    if folder.is_symlink():
        raise InputError(f"{folder} is a link; what is unpacked there could not be moved into place. Remove it.")
    remove_abandoned(folder)
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()


@dataclass(frozen=True)
class _Got:
    """A published file on this machine."""

    archive: Archive
    path: Path
    receipt: Receipt
    downloaded: bool  # and so ours to remove


def _get(archive: Archive, origin: Path | str, staging_dir: Path, unverified: bool, say: Callable[[str], None]) -> _Got:
    """A published file on this machine, compared with what is stated about it."""
    checksum = None if unverified else archive.checksum
    if isinstance(origin, Path):
        path, shown = origin, origin.name
        say(f"Using {origin}.")
        digest = checked(path, checksum, archive.stated_by)
    else:
        path, shown = staging_dir / archive.file, origin
        size = None if unverified else archive.size
        say(f"Downloading {origin}" + (f" ({size / 1e6:,.0f} MB)." if size else "."))
        digest = fetch(origin, path, size=size, checksum=checksum, stated_by=archive.stated_by)
    downloaded = isinstance(origin, str)
    if checksum is not None:
        words = f"as stated by {archive.stated_by}: {checksum}"
    elif archive.checksum is not None:
        words = f"not compared, as asked; {archive.stated_by} states {archive.checksum}"
    else:
        words = "no published checksum is known"
    if archive.checksum is not None:
        say(f"Checksum {words}.")
    else:
        used = "downloaded" if downloaded else "used"
        say(
            f"No published checksum is known; the SHA-256 of what was {used} is {digest}; compare it with a "
            "colleague's."
        )
    return _Got(archive, path, Receipt(archive.file, shown, path.stat().st_size, digest, words), downloaded)


def _stage(got: _Got, folder: Path, say: Callable[[str], None]) -> None:
    """Put the content of a file where it belongs below a private folder."""
    place = folder / got.archive.into
    if got.archive.plain:
        try:
            place.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(got.path, place / got.archive.file)
        except OSError as error:
            raise disk_error(error, place, "What was copied is removed again. Make room, then try again.") from error
        return
    say(f"Unpacking {got.path.name}.")
    try:
        unpack(got.path, place)
    except ArchiveError:
        _discard([got])  # else the same file would be refused again and again
        raise


def _discard(got: Sequence[_Got]) -> None:
    """Remove what was downloaded; files that were given stay."""
    for one in got:
        if one.downloaded:
            forget(one.path)


def _record(dataset: Publication, root: Path, receipts: list[Receipt]) -> None:
    """A small JSON beside the data, so that two copies can be compared later."""
    files = [
        {"file": one.file, "from": one.origin, "bytes": one.bytes, "sha256": one.sha256, "checksum": one.checksum}
        for one in receipts
    ]
    with atomic(root / f"{dataset.name}.download.json", overwrite=True) as path:
        text = json.dumps({"dataset": dataset.name, "unspur": __version__, "files": files}, indent=2)
        path.write_text(text + "\n", encoding="utf-8")


def _by_hand(dataset: Publication, root: Path) -> str:
    lacking = _and(part.pattern for part in missing(dataset, root))
    return f"{dataset.name} is not complete under {root}: no {lacking}. {dataset.by_hand} Page: {dataset.page}"


def _lacking(dataset: Publication, parts: list[Part]) -> str:
    needed = _and(f"{part.pattern} ({part.what})" for part in parts)
    more = f" {dataset.by_hand}" if dataset.by_hand else ""
    return f"With these files {dataset.name} would still lack {needed}; nothing was changed.{more}"


def _and(words: Iterable[str]) -> str:
    return " and ".join(words)
