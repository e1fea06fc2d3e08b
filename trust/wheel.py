"""What goes into wheel and sdist, and what must not: ``python -m trust.wheel build/dist`` builds both and compares."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from trust.declared import ROOT

SOURCE = ROOT / "src" / "unspur"
#: Files of the package that are no Python.
KINDS = (".py", ".typed", ".js", ".css", ".jinja", ".toml", ".csv")
#: Files about the package, in its .dist-info.
ABOUT = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
#: What a sdist holds besides what a wheel is made of: folders, and files at the top.
FOLDERS = ("src", "tests", "trust", "benchmarks", "docs", "examples")
FILES = {
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "PKG-INFO",
    "README.md",
    "SECURITY.md",
    ".gitignore",
    "constraints-oldest.txt",
    "constraints.txt",
    "pyproject.toml",
}
#: What is made, and nobody's to pass on.
MADE = re.compile(
    r"(^|/)(__pycache__|\.[a-z_]+_cache|\.hypothesis|build|dist|results)/|\.(pyc|npy|npz|parquet)$|(?<!tests/golden/artifacts)/[^/]*\.safetensors$"
)


def build(kind: str, folder: Path, root: Path = ROOT) -> Path:
    """A wheel or a sdist, made without a network from the tree as it is."""
    before = set(folder.glob("*"))
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder.resolve())]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    (made,) = [path for path in folder.iterdir() if path not in before and path.suffix in (".whl", ".gz")]
    return made


def wanted_in_wheel() -> set[str]:
    """Every file of the package, under the name it has in a wheel."""
    return {f"unspur/{path.relative_to(SOURCE).as_posix()}" for path in _files(SOURCE)}


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def faults_of_wheel(wheel: Path) -> list[str]:
    """What is wrong with the content of a wheel, in words."""
    with zipfile.ZipFile(wheel) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    about = {name for name in content if re.match(r"unspur-[^/]+\.dist-info/", name)}
    found, wanted = {*content} - about, wanted_in_wheel()
    faults = [f"{name} is missing" for name in sorted(wanted - found)]
    faults += [f"{name} does not belong there" for name in sorted(found - wanted)]
    faults += [f"{name} is of no known kind" for name in sorted(found) if PurePosixPath(name).suffix not in KINDS]
    faults += [f"{name} is about nothing known" for name in about if name.partition("/")[2] not in ABOUT]
    return faults + [f"{name} names {place}" for name, data in content.items() for place in places_in(data)]


def places_in(data: bytes) -> list[str]:
    """Folders of the machine that built it that a file names."""
    here = {str(ROOT), str(Path.home()), sys.prefix}
    return [place for place in sorted(here) if place != "/" and f"{place}/".encode() in data]


def faults_of_sdist(sdist: Path) -> list[str]:
    """What is wrong with the content of a sdist, in words."""
    with tarfile.open(sdist) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {path.relative_to(ROOT).as_posix() for path in _files(SOURCE)} | FILES
    faults = [f"{name} is missing" for name in sorted(wanted - found)]
    strange = [name for name in found - FILES if not name.startswith(tuple(f"{folder}/" for folder in FOLDERS))]
    return faults + [f"{name} does not belong there" for name in sorted({*strange, *filter(MADE.search, found)})]


def wheel_from_sdist(sdist: Path, folder: Path) -> Path:
    """What somebody gets who has the sdist alone."""
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(sdist) as archive:
            archive.extractall(place, filter="data")
        return build("wheel", folder, next(Path(place).iterdir()))


def digest(path: Path) -> str:
    """Of all bytes of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(target: Path) -> int:
    """Build both, compare, say what was found; the number of faults."""
    target.mkdir(parents=True, exist_ok=True)
    for path in target.iterdir():
        path.unlink()
    wheel, sdist = build("wheel", target), build("sdist", target)
    faults = faults_of_wheel(wheel) + faults_of_sdist(sdist)
    with tempfile.TemporaryDirectory() as place:
        if digest(wheel_from_sdist(sdist, Path(place))) != digest(wheel):
            faults.append("the sdist builds another wheel")
    for path in (wheel, sdist):
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")
    print(f"{len(zipfile.ZipFile(wheel).namelist())} files in the wheel, {len(faults)} faults")
    print(*faults, sep="\n", end="\n" if faults else "")
    return len(faults)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])) > 0)
