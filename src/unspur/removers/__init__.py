"""Removers: estimators that find a concept in rows and remove it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any

from unspur._files import read_artifact
from unspur._registry import REMOVER_POINTS, Registry
from unspur._registry import REMOVERS as MODULES
from unspur._text import brief
from unspur._typing import Array
from unspur.exceptions import ArtifactError
from unspur.removers.base import Remover as Remover

if TYPE_CHECKING:
    from unspur.removers.inlp import INLP as INLP
    from unspur.removers.jse import JSE as JSE
    from unspur.removers.leace import LEACE as LEACE
    from unspur.removers.leace import RLACE as RLACE
    from unspur.removers.leace import SAL as SAL
    from unspur.removers.leace import SPLINCE as SPLINCE

#: Every remover by name: those in `_registry`, and those that other packages offer as ``unspur.removers``.
REMOVERS = Registry(
    {name: getattr(import_module(f"unspur.removers.{module}"), name) for name, module in MODULES.items()},
    REMOVER_POINTS,
    Remover,
)
globals().update(REMOVERS.own)

__all__ = ["REMOVERS", "Remover", "load", "read_saved", *MODULES]  # noqa: PLE0604 — the registry has strings


def load(path: str | PathLike[str]) -> Remover:
    """Read a remover that was saved with its `save` method, alone or with a head.

    Raises ArtifactError for an inconsistent file. Safe for files from untrusted sources.
    """
    remover: Remover = read_saved(path)
    return remover


def read_saved(path: str | PathLike[str], with_layer: Callable[..., Any] | None = None) -> Any:
    """The remover of a file, or the result of `with_layer` for it and its saved head."""
    arrays, metadata = read_artifact(path)
    with artifact_errors(path, f"a fitted {_method(path, metadata)}"):
        layer = {name: arrays.pop(name) for name in ("coef", "intercept") if name in arrays}
        remover = restore(path, arrays, metadata)
        if with_layer is None or "classifier" not in metadata:
            return remover
        return with_layer(remover, layer, metadata["classifier"])


def restore(path: str | PathLike[str], arrays: dict[str, Array], metadata: dict[str, Any]) -> Remover:
    """The remover that arrays and metadata describe; inside `artifact_errors`."""
    method = _method(path, metadata)
    remover: Remover = REMOVERS[method](**metadata["parameters"])
    return remover._restore(arrays, metadata)


def _method(path: str | PathLike[str], metadata: dict[str, Any]) -> str:
    method = metadata.get("method")
    if not isinstance(method, str) or method not in REMOVERS:
        how = " If another package made it, install that package."
        if method == "Scrubbing":
            how = " Read it with unspur.surgery.Scrubbing.load."
        raise ArtifactError(f"{path} holds a {brief(repr(method), 40)}; this version knows {', '.join(REMOVERS)}.{how}")
    return method


@contextmanager
def artifact_errors(path: str | PathLike[str], what: str) -> Iterator[None]:
    """Raise errors about missing or wrong parts of a file as an ArtifactError that names it."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        said = brief(error) if isinstance(error, ValueError) else brief(repr(error))
        raise ArtifactError(f"{path} does not describe {what}: {said}. Save it again.") from error
