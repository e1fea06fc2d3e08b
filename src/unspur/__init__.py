"""Remove a spurious concept from embeddings. Keep the task."""

from unspur._version import __version__
from unspur.removers import JSE, load
from unspur.subspace import AffineMap, Subspace

__all__ = ["JSE", "AffineMap", "Subspace", "__version__", "load"]
