"""Unpacking tar and zip without trusting them: members are read one by one, and their bytes counted as they come.

Modes, owners and times in an archive are ignored. Links, devices and whatever else is neither file nor folder are
refused.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspur._text import brief
from unspur_paper.datasets.downloads.errors import ArchiveError
from unspur_paper.datasets.downloads.names import parts_of, refused
from unspur_paper.files import disk_error

_BLOCK = 1 << 20
_SMALL = 16 << 20  # below this no ratio is suspicious, and no header or end of a tar is larger
_DIRECTORY = 256 << 20  # the table of a zip with a million members
_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Limits:
    """What an archive may hold: members, bytes of one and of all, and how many times its own size it may grow to."""

    members: int = 1_000_000
    single: int = 8 << 30
    total: int = 64 << 30
    ratio: int = 200


def unpack(archive: Path, folder: Path, limits: Limits | None = None) -> int:
    """Write the members of a .zip, .tar, .tar.gz, .tar.xz or .tar.bz2 below `folder`; return the number of files.

    `folder` must be private: what is in it after an error is for the caller to remove.
    """
    try:
        size = archive.stat().st_size
        if not archive.is_file():
            raise ValueError("it is not a plain file")
    except (OSError, ValueError) as error:
        raise ArchiveError(f"{archive} cannot be read: {brief(getattr(error, 'strerror', None) or error)}.") from error
    sink = _Sink(archive, folder, limits or Limits(), size)
    folder.mkdir(parents=True, exist_ok=True)
    with archive.open("rb") as file:
        head = file.read(512)
        file.seek(0)
        if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
            _unzip(_Guard(file, archive, min(_DIRECTORY, max(_SMALL, size))), sink)
        elif (opener := _opener(head)) is not None:
            with opener(file) as stream:
                _untar(_Guard(stream, archive, _SMALL), sink)
        else:
            raise ArchiveError(f"{archive} is {_guess(head)}; needed is a .zip, .tar, .tar.gz, .tar.xz or .tar.bz2.")
    return sink.files


def _opener(head: bytes) -> Callable[[Any], AbstractContextManager[Any]] | None:
    """What reads a tar that begins like this."""
    packed = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\0": lzma.open, b"BZh": bz2.open}
    for magic, opener in packed.items():
        if head.startswith(magic):
            return opener  # type: ignore[return-value]
    return nullcontext if head[257:262] == b"ustar" else None


def _guess(head: bytes) -> str:
    if not head:
        return "empty"
    if head.lstrip()[:5].lower() in (b"<!doc", b"<html"):
        return "a web page, such as servers send instead of a file when they want a login or are overloaded"
    if head[:6] == b"7z\xbc\xaf\x27\x1c":
        return "a 7z archive"
    return "not an archive"


class _Sink:
    """Where members go; refuses what is unsafe or too much."""

    def __init__(self, archive: Path, folder: Path, limits: Limits, size: int) -> None:
        self.archive, self.folder, self.limits = archive, folder, limits
        self.most = max(limits.ratio * size, _SMALL)
        self.members = self.files = self.bytes = 0

    def member(self, name: str, is_folder: bool, size: int, read: Callable[[int], bytes]) -> None:
        """Write one member; `size` is only what its header claims."""
        self.members += 1
        if self.members > self.limits.members:
            raise refused(name, self.archive, f"is one more than the {self.limits.members:,} members allowed")
        if size > self.limits.single:
            raise self._too_large(name)
        parts = parts_of(name, self.archive)
        target = self.folder.joinpath(*parts)
        if not is_folder and not parts:
            raise refused(name, self.archive, "has no name")
        try:
            (target if is_folder else target.parent).mkdir(parents=True, exist_ok=True)
            if not is_folder:
                self._file(name, target, read)
        except (FileExistsError, NotADirectoryError):  # the folder was empty: both are in the archive
            raise refused(name, self.archive, "comes twice, or both as a file and as a folder") from None
        except OSError as error:
            raise disk_error(error, target, "What was unpacked is removed again. Make room, then try again.") from error

    def _file(self, name: str, target: Path, read: Callable[[int], bytes]) -> None:
        written = 0
        with target.open("xb") as file:
            while block := read(_BLOCK):
                written += len(block)
                self.bytes += len(block)
                if written > self.limits.single:
                    raise self._too_large(name)
                if self.bytes > self.limits.total:
                    raise refused(name, self.archive, f"brings it over the {self.limits.total:,} bytes allowed in all")
                if self.bytes > self.most:
                    raise refused(name, self.archive, f"brings it to over {self.limits.ratio} times its packed size")
                file.write(block)
        self.files += 1

    def _too_large(self, name: str) -> ArchiveError:
        return refused(name, self.archive, f"is larger than the {self.limits.single:,} bytes allowed for one file")


class _Guard:
    """A readable file that gives no more at once than a sound archive needs, and calls damage by its name."""

    def __init__(self, file: Any, archive: Path, most: int) -> None:
        self.file, self.archive, self.most = file, archive, most
        self.last = b""

    def read(self, size: int = -1) -> bytes:
        if size > self.most:
            raise damaged(self.archive, f"a header claims {size:,} bytes")
        try:
            self.last = self.file.read(size if size >= 0 else self.most)
        except _DAMAGE as error:
            raise damaged(self.archive, error) from error
        return self.last

    def seek(self, offset: int, whence: int = 0) -> int:
        try:
            return int(self.file.seek(offset, whence))
        except (*_DAMAGE, ValueError) as error:
            raise damaged(self.archive, error) from error

    def tell(self) -> int:
        return int(self.file.tell())

    def seekable(self) -> bool:
        return True


def damaged(archive: Path, reason: object) -> ArchiveError:
    """The error for an archive that cannot be read to its end."""
    return ArchiveError(f"{archive} is damaged or cut off ({brief(reason)}). Nothing was unpacked; download it again.")


def _untar(file: _Guard, sink: _Sink) -> None:
    try:
        with tarfile.open(fileobj=file, mode="r:", encoding="utf-8") as tar:  # type: ignore[call-overload]
            while (member := tar.next()) is not None:
                tar.members = []  # else they pile up
                _tar_member(tar, member, sink)
    except tarfile.TarError as error:
        raise damaged(sink.archive, error) from error
    if file.last != bytes(tarfile.BLOCKSIZE):  # a damaged header ends a tar as quietly as its proper end does
        raise damaged(sink.archive, "its end is missing")
    for _ in range(_SMALL // _BLOCK):  # compressed files have their checksum at the end
        if not file.read(_BLOCK):
            return
    raise damaged(sink.archive, "there is more after its end")


def _tar_member(tar: tarfile.TarFile, member: tarfile.TarInfo, sink: _Sink) -> None:
    kinds = {
        tarfile.SYMTYPE: "is a symbolic link",
        tarfile.LNKTYPE: "is a hard link",
        tarfile.CHRTYPE: "is a device",
        tarfile.BLKTYPE: "is a device",
        tarfile.FIFOTYPE: "is a pipe",
    }
    if member.isdir():
        sink.member(member.name, True, 0, lambda _: b"")
        return
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse() or member.size < 0:
        raise refused(member.name, sink.archive, kinds.get(member.type, "is neither a plain file nor a folder"))
    content = tar.extractfile(member)
    assert content is not None  # only links and devices have none
    sink.member(member.name, False, member.size, content.read)


def _unzip(file: _Guard, sink: _Sink) -> None:
    try:
        with zipfile.ZipFile(file) as archive:  # type: ignore[call-overload]
            for info in archive.infolist():
                _zip_member(archive, info, sink)
    except (*_DAMAGE, UnicodeDecodeError, NotImplementedError) as error:  # the latter for a version to come
        raise damaged(sink.archive, error) from error


def _zip_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, sink: _Sink) -> None:
    name = info.orig_filename  # zipfile cuts the other one off at a zero byte
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind == stat.S_IFLNK:
        raise refused(name, sink.archive, "is a symbolic link")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise refused(name, sink.archive, "is neither a plain file nor a folder")
    if info.flag_bits & 0x1:
        raise refused(name, sink.archive, "is encrypted")
    if name.endswith("/"):
        sink.member(name, True, 0, lambda _: b"")
        return
    try:
        with archive.open(info) as content:

            def read(size: int) -> bytes:
                try:
                    return content.read(size)
                except _DAMAGE as error:
                    raise damaged(sink.archive, error) from error

            sink.member(name, False, info.file_size, read)
    except NotImplementedError as error:
        raise refused(name, sink.archive, f"is packed in a way that is not read here ({error})") from error
