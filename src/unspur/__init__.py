"""Remove a spurious concept from embeddings. Keep the task."""

from unspur._version import __version__
from unspur.removers import INLP, JSE, LEACE, RLACE, SAL, SPLINCE, load
from unspur.subspace import AffineMap, Subspace

__all__ = ["INLP", "JSE", "LEACE", "RLACE", "SAL", "SPLINCE", "AffineMap", "Subspace", "__version__", "load"]
