"""Files that are written whole or not at all, and the artifact: one safetensors file of arrays and JSON metadata."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from unspur._text import brief
from unspur._typing import Array
from unspur.exceptions import ArtifactError, OutputExistsError

#: Version of the layout; that of version 0.1 was 1.
FORMAT = 2


def refuse_existing(path: str | PathLike[str], *, overwrite: bool) -> Path:
    """The path; OutputExistsError if something is there that must not be replaced."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise OutputExistsError(f"{path} is no file and cannot be replaced by one.")
    if path.exists() and not overwrite:
        raise OutputExistsError(f"{path} exists and is kept. Choose another name, or pass overwrite (--force).")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder {path.parent} does not exist; create it first.")
    return path


@contextmanager
def atomic(path: str | PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary path that replaces `path` if the block ends without an error.

    It lies in a temporary folder beside `path`, so that anything else a library writes there is removed as well.
    """
    path = refuse_existing(path, overwrite=overwrite).resolve()  # what a link points to is replaced, not the link
    folder = path.with_name(f".unspur-{secrets.token_hex(8)}.tmp")
    try:
        folder.mkdir()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        yield folder / path.name
        refuse_existing(path, overwrite=overwrite)
        (folder / path.name).replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_artifact(
    path: str | PathLike[str], arrays: dict[str, Array], metadata: dict[str, Any], *, overwrite: bool = False
) -> None:
    """Write arrays and JSON metadata to one safetensors file."""
    text = {"unspur": json.dumps({"format": FORMAT, **metadata})}
    with atomic(path, overwrite=overwrite) as temporary:
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        temporary.write_bytes(safetensors.numpy.save(contiguous, metadata=text))  # save_file hides it from other users


def read_artifact(path: str | PathLike[str]) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays and metadata of a file written by `write_artifact`; ArtifactError for any other file."""
    if not Path(path).is_file():
        raise ArtifactError(f"There is no file {path}.")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = json.loads((file.metadata() or {}).get("unspur", "null"))
            if not isinstance(metadata, dict) or not isinstance(metadata.get("format"), int):
                raise ArtifactError(f"{path} is a safetensors file, but not one that unspur wrote.")
            if metadata["format"] < FORMAT:
                raise ArtifactError(f"{path} was saved by version 0.1 of unspur, which is no longer read; fit again.")
            if metadata["format"] > FORMAT:
                raise ArtifactError(f"{path} was saved by a later version of unspur; upgrade.")
            arrays = {name: file.get_tensor(name) for name in list(file.keys())}
    except ArtifactError:
        raise
    except Exception as error:  # whatever a damaged header makes the libraries raise
        raise ArtifactError(f"{path} is not a readable file of unspur ({brief(error)}); save it again.") from error
    if infinite := next((name for name, array in arrays.items() if not np.isfinite(array).all()), None):
        raise ArtifactError(f"{path} holds NaN or infinity in {infinite!r}; fit again.")
    return arrays, metadata
