"""Remove a spurious concept from embeddings. Keep the task."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unspur._version import __version__

if TYPE_CHECKING:
    from unspur.heads import DFR, ERM, JTT, SUBG, GroupDRO, GroupWeighted
    from unspur.options import SGD, PaperVariant
    from unspur.removers import INLP, JSE, LEACE, RLACE, SAL, SPLINCE
    from unspur.robust import RobustClassifier, load
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
    "SGD",
    "SPLINCE",
    "SUBG",
    "AffineMap",
    "GroupDRO",
    "GroupWeighted",
    "PaperVariant",
    "RobustClassifier",
    "Subspace",
    "__version__",
    "load",
    "open_rows",
    "surgery",
]

#: Public names by module. A module is imported when one of its names is first used: shell completion imports this
#: package too, and should not wait for scikit-learn.
_HOMES = {
    "heads": ("DFR", "ERM", "JTT", "SUBG", "GroupDRO", "GroupWeighted"),
    "removers": ("INLP", "JSE", "LEACE", "RLACE", "SAL", "SPLINCE"),
    "robust": ("RobustClassifier", "load"),
    "options": ("SGD", "PaperVariant"),
    "rows": ("open_rows",),
    "subspace": ("AffineMap", "Subspace"),
    "surgery": (),
    "exceptions": (),
    "labels": (),
    "datasets": (),
    "report": (),
    "embed": (),
    "metrics": (),
}


def __getattr__(name: str) -> Any:
    """Import a public name or module on first use."""
    for home, names in _HOMES.items():
        if name == home or name in names:
            module = import_module(f"unspur.{home}")
            globals()[name] = value = module if name == home else getattr(module, name)
            return value
    raise AttributeError(f"module 'unspur' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
