"""Removers: estimators that find a concept in rows and take it out."""

from __future__ import annotations

from os import PathLike

from unspur._reading import brief
from unspur.exceptions import ArtifactError
from unspur.io import read_artifact
from unspur.removers.base import Remover
from unspur.removers.inlp import INLP
from unspur.removers.jse import JSE
from unspur.removers.leace import LEACE, SAL, SPLINCE
from unspur.removers.rlace import RLACE

#: Every remover by name; a new one is a file, a test, and a line here.
REMOVERS: dict[str, type[Remover]] = {remover.__name__: remover for remover in (JSE, INLP, RLACE, LEACE, SAL, SPLINCE)}

__all__ = ["INLP", "JSE", "LEACE", "REMOVERS", "RLACE", "SAL", "SPLINCE", "Remover", "load"]


def load(path: str | PathLike[str]) -> Remover:
    """Read a remover that was saved with its `save` method."""
    arrays, metadata = read_artifact(path)
    method = metadata.get("method")
    if not isinstance(method, str) or method not in REMOVERS:
        raise ArtifactError(f"{path} holds a {method!r}; this version knows {', '.join(REMOVERS)}.")
    try:
        return REMOVERS[method](**metadata["parameters"])._restore(arrays, metadata)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        said = brief(repr(error))
        raise ArtifactError(f"{path} does not describe a fitted {method}: {said}. Save it again.") from error
