"""Remove a spurious concept from embeddings. Keep the task."""

from unspur import surgery
from unspur._version import __version__
from unspur.heads import DFR, ERM, JTT, SUBG, GroupDRO, GroupWeighted
from unspur.removers import INLP, JSE, LEACE, RLACE, SAL, SPLINCE, load
from unspur.rows import open_rows
from unspur.subspace import AffineMap, Subspace

__all__ = [
    "DFR",
    "ERM",
    "INLP",
    "JSE",
    "JTT",
    "LEACE",
    "RLACE",
    "SAL",
    "SPLINCE",
    "SUBG",
    "AffineMap",
    "GroupDRO",
    "GroupWeighted",
    "Subspace",
    "__version__",
    "load",
    "open_rows",
    "surgery",
]
