"""Save arrays (safetensors) and JSON metadata in one file, atomically and without pickle."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import safetensors
import safetensors.numpy

from unspur._files import staging_dir
from unspur._reading import brief, parse_json, require_kinds
from unspur._typing import Array
from unspur.exceptions import ArtifactError, OutputExistsError, Parameter

#: Type and shape of arrays by name, such as ``("F64", 20, 1)``.
Shapes: TypeAlias = dict[str, tuple[Any, ...]]
#: Version of the layout; increased when older readers would misread it.
FORMAT = 1
#: Most bytes of metadata. A step of a trace takes about a thousand.
MAX_HEADER_BYTES = 8 * 2**20


def refuse_existing(path: str | PathLike[str], *, overwrite: bool) -> Path:
    """The path; OutputExistsError if something is there that must not be replaced."""
    path = Path(path)
    if path.is_dir():
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
