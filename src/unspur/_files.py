"""Files that are written whole or not at all: temporary names, locks, errors of the disk, and the artifact.

A temporary name says which process on which host made it, so that a later process can tell the leftovers of a dead one
from the work of a living one. Clocks are not trusted where that can be avoided.

An artifact is one safetensors file of arrays and JSON metadata, without pickle. It knows nothing of what it holds.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import safetensors
import safetensors.numpy

from unspur._reading import parse_json, require_kinds
from unspur._text import brief
from unspur._typing import Array
from unspur.exceptions import ArtifactError, BusyError, DiskError, OutputExistsError, Parameter

_TEMPORARY_NAME = re.compile(r"\.unspur-(?P<pid>\d+)-(?P<mark>[0-9a-f]+)-(?P<host>.*)\.tmp")
#: Seconds after which a file of another host, whose processes cannot be checked, counts as abandoned.
_ABANDONED_AFTER_SECONDS = 86400.0
#: Namespace of the processes of a Linux host itself, outside any container.
_HOST_PID_NAMESPACE = "4026531836"
#: Start of the marks of this process; another mark with its number is that of an earlier process.
_PROCESS_MARK = secrets.token_hex(4)
#: Type and shape of arrays by name, such as ``("F64", 20, 1)``.
Shapes: TypeAlias = dict[str, tuple[Any, ...]]
#: Version of the layout; increased when older readers would misread it.
FORMAT = 1
#: Most bytes of metadata. A step of a trace takes about a thousand.
MAX_HEADER_BYTES = 8 * 2**20


def temporary_name() -> str:
    """A new name, hidden, for something that is unfinished."""
    return f".unspur-{os.getpid()}-{_PROCESS_MARK}{secrets.token_hex(4)}-{host_id()}.tmp"


@cache
def host_id() -> str:
    """Name of the host or container in which process numbers are unique."""
    with suppress(OSError):
        container = re.sub(r"\D", "", os.readlink("/proc/self/ns/pid"))
        if container not in ("", _HOST_PID_NAMESPACE):
            return f"{platform.node()}-{container}"
    return platform.node()


@contextmanager
def staging_dir(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path` in which to make it; removed after the block, with all that is still in it.

    Errors name `path`, not the temporary folder. Leftovers of killed processes beside `path` are removed.
    """
    remove_abandoned(path.parent)
    folder = path.with_name(temporary_name())
    try:
        folder.mkdir(0o700)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(folder: Path) -> None:
    """Remove unfinished files and folders whose processes are dead; what cannot be removed stays."""
    with suppress(OSError):
        for path in folder.glob(".unspur-*.tmp"):
            if _abandoned(path):
                shutil.rmtree(path, ignore_errors=True)
                with suppress(OSError):
                    path.unlink(missing_ok=True)


def _abandoned(path: Path) -> bool:
    whose = _TEMPORARY_NAME.fullmatch(path.name)
    if whose is None:
        return False
    try:
        if whose["host"] != host_id() or os.name != "posix":  # on Windows os.kill(pid, 0) would end the process
            return time.time() - path.stat().st_mtime > _ABANDONED_AFTER_SECONDS
        if int(whose["pid"]) == os.getpid():
            return not whose["mark"].startswith(_PROCESS_MARK)
        os.kill(int(whose["pid"]), 0)
    except (FileNotFoundError, ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # alive, and somebody else's
        pass
    return False


def reserve_space(path: Path) -> None:
    """Reserve the disk space of a file of this size, or raise OSError.

    A file that is filled through a memory map needs this: if the disk becomes full on the way, a signal ends the
    process without a message.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # file systems that cannot
            raise


@contextmanager
def hold(path: Path, *, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path` for the block; raise `BusyError` if another process keeps it for `patience` seconds.

    The system releases the lock of a process that dies. Its unfinished files beside the lock are removed here.
    """
    from filelock import FileLock, Timeout  # takes a moment to import, and few commands lock anything

    lock = FileLock(path)
    try:
        lock.acquire(timeout=patience)
    except Timeout:
        holder = None
        with suppress(OSError):
            holder = re.fullmatch(r"\d{1,18}", path.read_text(encoding="utf-8", errors="replace"))
        who = f"Process {holder[0]}" if holder else "Another process"
        raise BusyError(f"{who} is already at work here (it holds {path}). Wait until it ends.") from None
    try:
        with suppress(OSError):  # Windows does not allow writing to a locked file
            path.write_text(str(os.getpid()), encoding="utf-8")
        remove_abandoned(path.parent)
        yield
    finally:
        with suppress(OSError):  # before the release, so that a waiting process sees that its file is gone
            path.unlink()
        lock.release()


def disk_error(error: OSError, path: str | PathLike[str] | None, advice: str) -> DiskError:
    """A DiskError for an OSError while `path`, or the output (None), was written."""
    reasons = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.EFBIG: "the file would be larger than the file system or a limit of this process allows",
        errno.EROFS: "the disk can only be read",
        errno.EXDEV: "it lies on another file system",
    }
    reason = reasons.get(error.errno or 0, error.strerror or str(error))
    what = "The output" if path is None else repr(str(path))
    return DiskError(f"{what} cannot be written: {reason}. {advice}")


def refuse_existing(path: str | PathLike[str], *, overwrite: bool) -> Path:
    """The path; OutputExistsError if something is there that must not be replaced."""
    as_folder = os.fspath(path).endswith(("/", os.sep))  # which Path leaves out
    path = Path(path)
    if path.is_dir() or as_folder:
        raise OutputExistsError(f"{path} is a folder; name a file.")
    if path.exists() and not overwrite:
        raise output_exists(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder {path.parent} does not exist; create it first.")
    return path


def output_exists(path: Path) -> OutputExistsError:
    """The error for a file or folder that must not be replaced."""
    return OutputExistsError(
        "{path} exists and is kept. Choose another name, or pass {overwrite}.",
        path=path,
        overwrite=Parameter("overwrite", True),
    )


@contextmanager
def atomic(path: str | PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary path that replaces `path`, keeping its mode, if the block ends without an error.

    It lies in a temporary folder beside `path`, so that anything else a library writes there is removed as well.
    """
    path = refuse_existing(path, overwrite=overwrite)
    if path.exists() and not path.is_file():
        raise OutputExistsError(f"{path} is not a regular file and cannot be replaced by one.")
    path = path.resolve()  # what a link points to is replaced, not the link
    with staging_dir(path) as folder:
        temporary = folder / path.name
        temporary.touch()
        new = temporary.stat()  # of the mode that new files get; the umask could only be read by changing it
        yield temporary
        temporary.chmod((path.stat() if path.exists() else new).st_mode & 0o777)
        refuse_existing(path, overwrite=overwrite)
        temporary.replace(path)


def write_artifact(
    path: str | PathLike[str], arrays: dict[str, Array], metadata: dict[str, Any], *, overwrite: bool = False
) -> None:
    """Write arrays and JSON metadata to one safetensors file."""
    text = {"unspur": json.dumps({"format": FORMAT, **metadata})}
    if (size := len(json.dumps(text))) > MAX_HEADER_BYTES - 2**20:  # names and shapes come on top
        raise ArtifactError(f"{path} would have {size:,} bytes of metadata, more than are read. Use joblib to keep it.")
    with atomic(path, overwrite=overwrite) as temporary:
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        try:
            safetensors.numpy.save_file(contiguous, temporary, metadata=text)
        except safetensors.SafetensorError as error:
            raise _of_system(error, path) from error


def _of_system(error: safetensors.SafetensorError, path: str | PathLike[str]) -> Exception:
    """The error of the system behind one of safetensors, such as a full disk, from the number in its text."""
    number = re.search(r"\(os error (\d+)\)", str(error))
    return error if number is None else OSError(int(number[1]), os.strerror(int(number[1])), str(path))


def read_artifact(
    path: str | PathLike[str], check: Callable[[dict[str, Any], Shapes], object] | None = None
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays and metadata of a file written by `write_artifact`.

    `check` gets the metadata with the type and the shape of each array, and raises ArtifactError before one is read.
    """
    if not Path(path).is_file():
        raise ArtifactError(f"There is no file {path}.")
    try:
        _require_header(path)
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = _metadata(path, (file.metadata() or {}).get("unspur"))
            names = list(file.keys())
            if check is not None:
                slices = {name: file.get_slice(name) for name in names}
                check(metadata, {name: (str(part.get_dtype()), *part.get_shape()) for name, part in slices.items()})
            arrays = {name: file.get_tensor(name) for name in names}
    except ArtifactError:
        raise
    except (safetensors.SafetensorError, TypeError, AttributeError, ValueError) as error:
        # AttributeError is of types that NumPy does not have, ValueError of shapes that it cannot have.
        how = "It may be cut off; save it again."
        if Path(path).suffix.lower() != ".safetensors":
            how = "Is it a removal that unspur fit saved? FILE and REMOVAL may be swapped."
        raise ArtifactError(f"{path} is not a readable safetensors file ({brief(error)}). {how}") from error
    return arrays, metadata


def _require_header(path: str | PathLike[str]) -> None:
    """Refuse a header that is too long before it is parsed; safetensors refuses one that is cut off."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if MAX_HEADER_BYTES < size < os.stat(path).st_size:
        raise ValueError(f"its header has {size:,} bytes, more than the {MAX_HEADER_BYTES:,} that are read")


def _metadata(path: str | PathLike[str], text: str | None) -> dict[str, Any]:
    """The metadata of an artifact, checked before any array is read, since foreign files can be large."""
    if text is None:
        raise ArtifactError(f"{path} is a safetensors file, but not one that unspur wrote.")
    try:
        metadata = parse_json(text)
        require_kinds(metadata, {"format": int}, "the metadata")
    except ValueError as error:
        raise ArtifactError(f"{path} has damaged metadata ({brief(error)}). Save it again.") from error
    version = metadata["format"]
    if version > FORMAT:
        raise ArtifactError(f"{path} has format {version}; this version reads up to {FORMAT}. Upgrade unspur.")
    return dict(metadata)
