"""Folders and archives, sound and hostile, for the tests."""

import io
import tarfile
import zipfile

PLAIN = {"set/a.txt": b"aaa", "set/sub/b.txt": b"b" * 5000, "set/Ünï-名.txt": b"odd"}


def tar(path, *members, mode="w:gz", plain=PLAIN):
    """A tar of plain files and then `members`: (name, type or content, attributes)."""
    with tarfile.open(path, mode) as archive:
        for name, content in plain.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.uid, info.mtime = len(content), 0o4777, 4711, 1
            archive.addfile(info, io.BytesIO(content))
        for name, kind, extra in members:
            info = tarfile.TarInfo(name)
            content = kind if len(kind) != 1 else b""
            info.type, info.size = (kind, 0) if len(kind) == 1 else (tarfile.REGTYPE, len(content))
            for key, value in extra.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(content))
    return path


def make_zip(path, *members, plain=PLAIN):
    """A zip of plain files and then `members`: (name, content, file type)."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in plain.items():
            archive.writestr(name, content)
        for name, content, kind in members:
            info = zipfile.ZipInfo("x")
            info.filename = name
            info.external_attr = (kind | 0o777) << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return path


def lay(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def everything(folder):
    """Every path below a folder with its content."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}
