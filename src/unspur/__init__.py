"""Remove a spurious concept from embeddings. Keep the task."""

from unspur._version import __version__
from unspur.removers import JSE, LEACE, SAL, SPLINCE, load
from unspur.subspace import AffineMap, Subspace

__all__ = ["JSE", "LEACE", "SAL", "SPLINCE", "AffineMap", "Subspace", "__version__", "load"]
