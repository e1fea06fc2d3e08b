"""Removers: estimators that find a concept in rows and take it out."""

from __future__ import annotations

from os import PathLike

from unspur.exceptions import ArtifactError
from unspur.io import read_artifact
from unspur.removers.base import Remover
from unspur.removers.jse import JSE

#: Every remover by name; a new one is a file, a test, and a line here.
REMOVERS: dict[str, type[Remover]] = {"JSE": JSE}

__all__ = ["JSE", "REMOVERS", "Remover", "load"]


def load(path: str | PathLike[str]) -> Remover:
    """Read a remover that was saved with its `save` method."""
    arrays, metadata = read_artifact(path)
    method = metadata.get("method")
    if not isinstance(method, str) or method not in REMOVERS:
        raise ArtifactError(f"{path} holds a {method!r}; this version knows {', '.join(REMOVERS)}.")
    try:
        return REMOVERS[method](**metadata["parameters"])._restore(arrays, metadata)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(f"{path} does not describe a fitted {method}: {error!r}. Save it again.") from error
