"""Folders and archives for the tests."""

import io
import tarfile
import zipfile

PLAIN = {"set/a.txt": b"aaa", "set/sub/b.txt": b"b" * 5000, "set/Ünï-名.txt": b"odd"}


def tar(path, mode="w:gz", plain=PLAIN):
    """A tar of plain files."""
    with tarfile.open(path, mode) as archive:
        for name, content in plain.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def make_zip(path, plain=PLAIN):
    """A zip of plain files."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in plain.items():
            archive.writestr(name, content)
    return path


def lay(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def everything(folder):
    """Every path below a folder with its content."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}
