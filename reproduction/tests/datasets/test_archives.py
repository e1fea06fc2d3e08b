"""Archives of every hostile kind, each beside a sound one, and the way into place."""

import io
import os
import random
import stat
import struct
import tarfile
from pathlib import Path

import pytest

from reproduction.tests.datasets.making import PLAIN, everything, lay, make_zip, tar
from unspur.exceptions import OutputExistsError
from unspur_paper.datasets.downloads import ArchiveError, archives
from unspur_paper.datasets.downloads.archives import Limits, unpack
from unspur_paper.datasets.downloads.place import move_into


def unpacked(archive, tmp_path, **limits):
    """Unpack as `obtain` does: to a folder that is new."""
    folder = tmp_path / f"out-{len(list(tmp_path.iterdir()))}"
    unpack(archive, folder, Limits(**limits))
    return {name: content for name, content in everything(folder).items() if content is not None}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz", "zip"])
def test_sound_archives_of_every_kind(tmp_path, mode):
    archive = make_zip(tmp_path / "a") if mode == "zip" else tar(tmp_path / "a", mode=mode)
    assert unpacked(archive, tmp_path) == PLAIN


def test_a_small_zip_asks_for_little_memory(tmp_path, monkeypatch):
    """Not for what the table of a million members would take."""
    asked = []
    read = archives._Guard.read

    def noted(guard, size=-1):
        asked.append(size if size >= 0 else guard.most)
        return read(guard, size)

    monkeypatch.setattr(archives._Guard, "read", noted)
    assert unpacked(make_zip(tmp_path / "a"), tmp_path) == PLAIN
    assert 0 < max(asked) <= 16 << 20


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_in_every_dialect_of_tar(tmp_path, kind):
    name = "d" * 90 + "/" + "f" * 90
    with tarfile.open(tmp_path / "a", "w:gz", format=kind) as archive:
        info = tarfile.TarInfo(name)
        info.size = 3
        root = tarfile.TarInfo("./")
        root.type = tarfile.DIRTYPE
        archive.addfile(root)
        archive.addfile(info, io.BytesIO(b"abc"))
    assert unpacked(tmp_path / "a", tmp_path) == {name: b"abc"}


def test_modes_owners_and_times_are_ignored(tmp_path):
    archive = tar(tmp_path / "a")
    unpack(archive, tmp_path / "out")
    status = (tmp_path / "out/set/a.txt").stat()
    (tmp_path / "made").touch()
    assert stat.S_IMODE(status.st_mode) == stat.S_IMODE((tmp_path / "made").stat().st_mode)
    assert status.st_uid == os.getuid()
    assert status.st_mtime > 1e9


@pytest.mark.parametrize(
    ("name", "kind", "extra", "says"),
    [
        ("/abs.txt", b"evil", {}, "absolute path"),
        ("../up.txt", b"evil", {}, "leads out"),
        ("set/../../up.txt", b"evil", {}, "leads out"),
        ("C:/drive.txt", b"evil", {}, "names a drive"),
        ("set/c:drive.txt", b"evil", {}, "names a drive"),
        ("..\\up.txt", b"evil", {}, "backslash"),
        ("a", b"evil", {"pax_headers": {"path": "zero\0byte"}}, "zero byte"),
        ("link", tarfile.SYMTYPE, {"linkname": "/etc"}, "symbolic link"),
        ("link", tarfile.SYMTYPE, {"linkname": "set/a.txt"}, "symbolic link"),
        ("link", tarfile.LNKTYPE, {"linkname": "set/a.txt"}, "hard link"),
        ("null", tarfile.CHRTYPE, {"devmajor": 1, "devminor": 3}, "device"),
        ("disk", tarfile.BLKTYPE, {}, "device"),
        ("pipe", tarfile.FIFOTYPE, {}, "pipe"),
        ("odd", b"Z", {}, "neither a plain file nor a folder"),
        ("sparse", b"evil", {"pax_headers": {"GNU.sparse.map": "0,4", "GNU.sparse.size": "9"}}, "neither a plain"),
        ("set/a.txt", b"evil", {}, "comes twice"),
        ("set/./a.txt", b"aaa", {}, "comes twice"),
        ("set/a.txt/below", b"evil", {}, "comes twice, or both"),
        ("set/sub", b"evil", {}, "comes twice, or both"),
        ("set/a.txt", tarfile.DIRTYPE, {}, "comes twice, or both"),
        ("", b"evil", {}, "has no name"),
    ],
)
def test_hostile_members_of_a_tar_are_refused_by_name(tmp_path, name, kind, extra, says):
    assert unpacked(tar(tmp_path / "good"), tmp_path) == PLAIN
    archive = tar(tmp_path / "bad", (name, kind, extra))
    with pytest.raises(ArchiveError, match=says) as error:
        unpacked(archive, tmp_path)
    assert repr(extra.get("pax_headers", {}).get("path", name)) in str(error.value)
    assert not (tmp_path / "up.txt").exists()


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("/abs.txt", stat.S_IFREG, "absolute path"),
        ("set/../../up.txt", stat.S_IFREG, "leads out"),
        ("D:x", stat.S_IFREG, "names a drive"),
        ("..\\up.txt", stat.S_IFREG, "backslash"),
        ("link", stat.S_IFLNK, "symbolic link"),
        ("null", stat.S_IFCHR, "neither a plain file nor a folder"),
        ("pipe", stat.S_IFIFO, "neither a plain file nor a folder"),
        ("set/sub", stat.S_IFREG, "comes twice, or both"),
        ("set//a.txt", stat.S_IFREG, "comes twice"),
    ],
)
def test_hostile_members_of_a_zip_are_refused_by_name(tmp_path, name, kind, says):
    assert unpacked(make_zip(tmp_path / "good"), tmp_path) == PLAIN
    with pytest.raises(ArchiveError, match=says) as error:
        unpacked(make_zip(tmp_path / "bad", (name, b"evil", kind)), tmp_path)
    assert repr(name) in str(error.value)
    assert not (tmp_path / "up.txt").exists()


def patched(path, target, *changes):
    """A copy of a zip with bytes of its headers overwritten: (signature, offset, bytes)."""
    data = bytearray(path.read_bytes())
    for signature, offset, value in changes:
        at = data.index(signature) + offset
        data[at : at + len(value)] = value
    target.write_bytes(data)
    return target


def test_encrypted_unknown_and_zero_byte_members_of_a_zip(tmp_path):
    good = make_zip(tmp_path / "good", plain={"a.txt": b"aaa"})
    assert unpacked(good, tmp_path) == {"a.txt": b"aaa"}
    encrypted = patched(good, tmp_path / "e", (b"PK\1\2", 8, b"\1"), (b"PK\3\4", 6, b"\1"))
    with pytest.raises(ArchiveError, match="encrypted"):
        unpacked(encrypted, tmp_path)
    unknown = patched(good, tmp_path / "u", (b"PK\1\2", 10, struct.pack("<H", 98)))
    with pytest.raises(ArchiveError, match="not read here"):
        unpacked(unknown, tmp_path)
    zero = patched(good, tmp_path / "z", (b"PK\1\2", 46, b"a\0txt"), (b"PK\3\4", 30, b"a\0txt"))
    with pytest.raises(ArchiveError, match="zero byte"):
        unpacked(zero, tmp_path)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"members": 2}, "one more than the 2 members"),
        ({"single": 4000}, "larger than the 4,000 bytes"),
        ({"total": 5001}, "over the 5,001 bytes allowed in all"),
    ],
)
@pytest.mark.parametrize("make", [tar, make_zip])
def test_limits(tmp_path, make, limits, says):
    archive = make(tmp_path / "a")
    exact = {"members": 3, "single": 5000, "total": 5006}
    assert unpacked(archive, tmp_path, **exact) == PLAIN
    with pytest.raises(ArchiveError, match=says):
        unpacked(archive, tmp_path, **limits)


@pytest.mark.parametrize("make", [tar, make_zip])
def test_bombs_are_stopped_by_what_they_unpack_to(tmp_path, make):
    archive = make(tmp_path / "a", plain={"zeros": bytes(20 << 20)})
    assert archive.stat().st_size < 100_000
    assert len(unpacked(archive, tmp_path, ratio=2000)["zeros"]) == 20 << 20
    with pytest.raises(ArchiveError, match="over 200 times its packed size"):
        unpacked(archive, tmp_path)
    sizes = [path.stat().st_size for path in tmp_path.rglob("zeros")]
    assert min(sizes) <= 16 << 20


def test_a_zip_that_understates_a_member_is_refused(tmp_path):
    good = make_zip(tmp_path / "good", plain={"a.txt": b"a" * 1000})
    bad = patched(good, tmp_path / "bad", (b"PK\1\2", 24, struct.pack("<I", 10)))
    with pytest.raises(ArchiveError, match="damaged"):
        unpacked(bad, tmp_path)


def test_a_header_that_claims_gigabytes_takes_no_memory(tmp_path):
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 1 << 33
    (tmp_path / "a").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(10240))
    with pytest.raises(ArchiveError, match="a header claims"):
        unpacked(tmp_path / "a", tmp_path)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz", "zip"])
def test_cut_or_damaged_archives_are_refused_wherever_the_damage_is(tmp_path, mode):
    noise = {f"set/{i}": random.Random(i).randbytes(3000) for i in range(4)}
    archive = make_zip(tmp_path / "a", plain=noise) if mode == "zip" else tar(tmp_path / "a", mode=mode, plain=noise)
    whole = archive.read_bytes()
    assert unpacked(archive, tmp_path) == noise
    used = len(whole) if mode != "w" else 4 * 3584  # the rest is filler
    for cut in range(0, used, used // 12):
        archive.write_bytes(whole[:cut])
        with pytest.raises(ArchiveError):
            unpacked(archive, tmp_path)
    if mode != "w":  # a plain tar has no checksums of its content
        for at in range(8, used, used // 12):
            archive.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
            try:
                assert unpacked(archive, tmp_path) == noise  # a byte nobody needs, such as a time
            except ArchiveError:
                continue
    else:  # but its headers have, and damage to one must not read as the end
        archive.write_bytes(whole[:3584] + b"?" + whole[3585:])
        with pytest.raises(ArchiveError, match="its end is missing"):
            unpacked(archive, tmp_path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\n<!DOCTYPE html><html>quota exceeded", "a web page"),
        (b"7z\xbc\xaf\x27\x1c rest", "a 7z archive"),
        (b"just text", "not an archive"),
    ],
)
def test_what_is_no_archive_is_called_what_it_is(tmp_path, content, says):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(ArchiveError, match=says):
        unpacked(tmp_path / "a", tmp_path)


def test_moving_joins_what_is_there_and_overwrites_nothing(tmp_path):
    root = lay(tmp_path / "root", {"set/a.txt": b"aaa", "set/own": b"mine"})
    move_into(lay(tmp_path / "new", PLAIN), root)
    assert {k: v for k, v in everything(root).items() if v is not None} == PLAIN | {"set/own": b"mine"}
    for files in ({"set/a.txt": b"bbb"}, {"set/sub": b"now a file"}, {"set/a.txt/x": b""}):
        before = everything(root)
        folder = lay(tmp_path / f"new{len(list(tmp_path.iterdir()))}", {"another": b"x", **files})
        for path in (*folder.rglob("*"), *root.rglob("*")):
            os.utime(path, (1, 1))  # neither time nor size tells
        with pytest.raises(OutputExistsError, match="exists with other content and is kept"):
            move_into(folder, root)
        assert everything(root) == before


def test_nothing_is_moved_through_a_link(tmp_path):
    elsewhere = lay(tmp_path / "elsewhere", {"own": b"mine"})
    root = tmp_path / "root"
    root.mkdir()
    (root / "set").symlink_to(elsewhere)
    with pytest.raises(OutputExistsError, match="is a link"):
        move_into(lay(tmp_path / "new", PLAIN), root)
    assert everything(elsewhere) == {"own": b"mine"}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_move_that_fails_half_way_is_undone(tmp_path, monkeypatch, error):
    root = lay(tmp_path / "root", {"own": b"mine"})
    folder = lay(tmp_path / "new", {"a": b"1", "b": b"2", "c": b"3"})
    rename, calls = Path.rename, []

    def failing(self, target):
        calls.append(target)
        if len(calls) == 3:
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises((Exception, KeyboardInterrupt), match="disk is full" if isinstance(error, OSError) else None):
        move_into(folder, root)
    assert everything(root) == {"own": b"mine"}


@pytest.mark.parametrize("name", ["f" * 300, "d/" * 1500 + "f", "d/" * 120 + "f", "é" * 200])
def test_names_that_no_disk_takes_are_refused_with_the_name_of_the_archive(tmp_path, name):
    assert len(unpacked(tar(tmp_path / "good", ("f" * 200, b"evil", {})), tmp_path)) == len(PLAIN) + 1
    for archive in (tar(tmp_path / "bad.tgz", (name, b"evil", {})), make_zip(tmp_path / "bad.zip", (name, b"x", 0))):
        with pytest.raises(ArchiveError, match=r"of .*bad\.\w+ has a name that is too long") as error:
            unpacked(archive, tmp_path)
        assert len(str(error.value)) < 500


def test_a_zip_of_a_version_to_come_is_refused(tmp_path):
    whole = make_zip(tmp_path / "a.zip").read_bytes()
    table = whole.index(b"PK\x01\x02")
    (tmp_path / "a.zip").write_bytes(whole[: table + 6] + b"\xff" + whole[table + 7 :])
    with pytest.raises(ArchiveError, match=r"a\.zip is damaged"):
        unpacked(tmp_path / "a.zip", tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without pipes")
def test_what_is_no_file_is_no_archive(tmp_path):
    os.mkfifo(tmp_path / "a.zip")
    (tmp_path / "b.zip").mkdir()
    for name in ("a.zip", "b.zip", "c.zip"):
        with pytest.raises(ArchiveError, match=f"{name} cannot be read"):
            unpacked(tmp_path / name, tmp_path)


def test_a_member_of_a_zip_without_a_name_is_refused(tmp_path):
    with pytest.raises(ArchiveError, match=r"Member '' of .*a\.zip has no name"):
        unpacked(make_zip(tmp_path / "a.zip", ("", b"x", stat.S_IFREG)), tmp_path)
