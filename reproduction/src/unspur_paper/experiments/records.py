"""What finished cells leave behind: a small file each while an experiment runs, one pack of them all when it is done.

A record file vouches for itself: it holds its own key and a checksum, and one that is cut off, altered or in the wrong
place counts as not there. So a run can be killed at any time, and what is read back is what was measured.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

from unspur._files import atomic
from unspur._text import brief
from unspur.exceptions import ArtifactError, InputError
from unspur_paper.files import NUMBER, remove_abandoned, require_kinds, temporary_name

#: Raised when the layout of packs changes so that older readers would misread it.
FORMAT = 1
KIND = "unspur records"
#: Bytes of text a pack may hold: some 30,000 records of 1 kB. A damaged or hostile file must not fill the memory.
LIMIT = 2**25
#: What reading a file that is not what it should be can raise.
UNREADABLE = (OverflowError, ValueError, TypeError, KeyError, AttributeError, RecursionError, lzma.LZMAError)


_KINDS = {
    "key": str,
    "spec": dict,
    "data": str,
    "version": str,
    "result": dict,
    "seconds": NUMBER,
    "warnings": [str],
}


@dataclass(frozen=True, slots=True)
class Record:
    """A finished cell: what was asked (spec, digest of the data, version of the code), and what came out."""

    key: str
    spec: dict[str, Any]
    data: str
    version: str
    result: dict[str, Any]
    seconds: float
    warnings: tuple[str, ...]


def record_key(spec: dict[str, Any], data_digest: str, version: str) -> str:
    """Name of a cell: sha256, in hex, of what its result depends on.

    The order of the spec's items does not matter and 0.5 is 0.50, but 1, 1.0 and True are three values: a spec should
    always spell a number in the same way.
    """
    return _sha256(canonical([spec, data_digest, version], "[spec, data, version]").encode())


def canonical(value: Any, name: str) -> str:
    """The one JSON text of a value: sorted keys, no spaces, floats by repr (so that they come back bit by bit).

    Tuples become lists and dicts lose their order. Anything that JSON cannot hold is refused, with its place inside the
    value called `name`.
    """
    for misfit in _misfits(value, name):
        raise InputError(
            f"{misfit}. Records hold finite numbers, strings, lists and dicts; write None for a missing one."
        )
    return _dumps(value)


def _dumps(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _misfits(value: Any, where: str) -> Iterator[str]:
    """Places where a value is not JSON, in words."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if not isinstance(name, str):  # json.dumps would turn it into one, and it would come back different
                yield f"{where} has the key {name!r}, which is not a string"
            yield from _misfits(inner, f"{where}[{name!r}]")
    elif isinstance(value, list | tuple):
        for position, inner in enumerate(value):
            yield from _misfits(inner, f"{where}[{position}]")
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield f"{where} is {float(value)}"
    elif isinstance(value, str):
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            yield f"{where} is {value!r}, which is not Unicode text"
    elif value is not None and not isinstance(value, int):
        yield f"{where} is of type {type(value).__name__}"


def _sha256(text: bytes | memoryview) -> str:
    return hashlib.sha256(text).hexdigest()


class RecordStore:
    """Records in a folder, one file each, and those of packs (`packed`), which are only read.

    Several processes may use the same folder at once. Nothing is created before the first `put`.
    """

    def __init__(self, folder: str | PathLike[str], *, packed: Iterable[Record] = ()) -> None:
        self.folder = Path(folder)
        self._packed = {record.key: record for record in packed}
        self._damaged: dict[Path, str] = {}
        self._ready = False

    @property
    def damaged(self) -> tuple[tuple[Path, str], ...]:
        """Files that `get` found and could not use, each with the reason."""
        return tuple(self._damaged.items())

    def path(self, key: str) -> Path:
        """Where the record of a key is, or would be."""
        if not re.fullmatch("[0-9a-f]{64}", key):
            raise InputError(f"{key!r} cannot name a record; pass what record_key returns (64 hexadecimal digits).")
        return self.folder / f"{key}.json"

    def get(self, key: str) -> Record | None:
        """The record of a key, from the folder or else from a pack; None if there is none that is whole."""
        path = self.path(key)
        try:
            return _decode(_bytes_of(path), key)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            self._damaged[path] = str(error)
        return self._packed.get(key)

    def put(self, record: Record) -> None:
        """Store a record: once this returns it survives a power cut, and at any time it is whole or not there.

        Takes the place of a record, or of a damaged file, of the same key.
        """
        path, text = self.path(record.key), _encode(record)
        self.prepare()
        _write(path, text)

    def prepare(self) -> None:
        """Make the folder, and remove temporary files of processes that were killed; once for each store."""
        if self._ready:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_abandoned(self.folder)
        self._ready = True


def _content(record: Record) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _encode(record: Record) -> bytes:
    content = _content(record)
    checksum = _sha256(canonical(content, "record").encode())
    return (_dumps({**content, "checksum": checksum}) + "\n").encode()


def _bytes_of(path: Path) -> bytes:
    if not path.is_file() and path.exists():
        raise ValueError("it is not a plain file")
    if path.stat().st_size > LIMIT:
        raise ValueError(f"larger than {LIMIT:,} bytes, which no record is")
    return path.read_bytes()


def _decode(text: bytes, key: str) -> Record:
    """The record in a file's bytes, if it would be written as exactly these bytes: no change goes unnoticed."""
    try:
        content = json.loads(text)
        del content["checksum"]
        record = _record(content)
        whole = _encode(record) == text
    except UNREADABLE as error:
        raise ArtifactError(f"cut off, or not a record ({type(error).__name__})") from error
    if not whole:
        raise ArtifactError("altered: its checksum does not fit its content")
    if record.key != key:
        raise ArtifactError(f"the record of another cell ({record.key})")
    return record


def _write(path: Path, text: bytes) -> None:
    # Not unspur._files.atomic: a record may stand for an hour of computing, so it goes to the disk (fsync) before it
    # counts as stored.
    temporary = path.with_name(temporary_name())
    try:
        with temporary.open("xb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if os.name == "posix":  # elsewhere a folder cannot be opened
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the new name, too
        finally:
            os.close(folder)


def pack(records: Iterable[Record], path: str | PathLike[str], *, overwrite: bool = False) -> None:
    """Write records to one ``.jsonl.xz`` file; equal records give equal bytes, in whatever order they come.

    The first line holds what is the same in all records, the last a checksum. Keys that `record_key` gives back are
    left out, for they do not compress.
    """
    ordered = sorted(records, key=lambda record: record.key)
    for one, other in pairwise(ordered):
        if one.key == other.key:
            raise InputError(f"Two records have the key {one.key}; pack each record once.")
    contents = [_packed(record) for record in ordered]
    same, same_spec = _same(contents), _same([record.spec for record in ordered])
    lines = [{"format": FORMAT, "kind": KIND, "records": len(ordered), "same": same, "spec": same_spec}]
    for record, content in zip(ordered, contents, strict=True):
        own = {name: value for name, value in content.items() if name not in same}
        lines.append({**own, "spec": {n: value for n, value in record.spec.items() if n not in same_spec}})
    body = "".join(canonical(line, "record") + "\n" for line in lines).encode()
    text = body + (_dumps({"sha256": _sha256(body)}) + "\n").encode()
    if len(text) > LIMIT:
        raise InputError(f"These records take {len(text):,} bytes; a pack holds up to {LIMIT:,}. Pack them in parts.")
    with atomic(path, overwrite=overwrite) as temporary:
        temporary.write_bytes(lzma.compress(text, preset=6))


def _packed(record: Record) -> dict[str, Any]:
    """What a record's line says, its spec aside."""
    content = _content(record)
    spec = content.pop("spec")
    if record.key == record_key(spec, record.data, record.version):
        del content["key"]
    return content


def _same(dicts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Items that all have, compared as JSON text: 1, 1.0 and True are equal in Python only."""
    first = {name: canonical(value, name) for name, value in dicts[0].items()} if dicts else {}
    for other in dicts[1:]:
        first = {name: text for name, text in first.items() if name in other and canonical(other[name], name) == text}
    return {name: dicts[0][name] for name in first}


def unpack(path: str | PathLike[str]) -> list[Record]:
    """The records of a pack, sorted by key, exactly as they were packed; all of them or an `ArtifactError`."""
    if not Path(path).is_file():
        raise ArtifactError(f"There is no file {path}. Run the experiment, or fetch its pack of records.")
    try:
        text = _decompressed(Path(path))
        cut = text.rindex(b"\n", 0, -1) + 1
        if json.loads(text[cut:]) != {"sha256": _sha256(memoryview(text)[:cut])}:
            raise ValueError("its checksum does not fit its content")
        header, *lines = (json.loads(line) for line in text[:cut].splitlines())
        if (header["kind"], header["format"]) == (KIND, FORMAT):
            return sorted((_unpacked(header, line) for line in lines), key=lambda record: record.key)
    except UNREADABLE as error:
        raise ArtifactError(
            f"{path} is damaged or not a pack of records ({brief(error)}). Fetch it again, or pack the records anew."
        ) from error
    raise ArtifactError(f"{path} is of another kind or format than this version reads. Upgrade unspur.")


def _decompressed(path: Path) -> bytes:
    """A pack's text; never more than `LIMIT` bytes of it are in memory."""
    decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=2**27)
    with path.open("rb") as file:
        text = decoder.decompress(file.read(LIMIT), max_length=LIMIT + 1)
    if len(text) > LIMIT:
        raise ValueError(f"it unpacks to more than {LIMIT:,} bytes")
    if not decoder.eof:
        raise ValueError("it is cut off")
    if decoder.unused_data:
        raise ValueError("something follows its end")
    return text


def _unpacked(header: dict[str, Any], line: dict[str, Any]) -> Record:
    content = {**header["same"], **line, "spec": {**header["spec"], **line["spec"]}}
    content.setdefault("key", record_key(content["spec"], content["data"], content["version"]))
    return _record(content)


def _record(content: dict[str, Any]) -> Record:
    """What was read, if its fields are of the types they should be."""
    require_kinds(content, _KINDS, "the record")
    return Record(**{**content, "warnings": tuple(content["warnings"])})
