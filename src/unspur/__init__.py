"""Remove a spurious concept from embeddings. Keep the task."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unspur._registry import HEADS, REMOVERS
from unspur._version import __version__

if TYPE_CHECKING:
    from unspur.auditing import Audit, AuditedColumn, audit
    from unspur.heads import AFR as AFR
    from unspur.heads import DFR as DFR
    from unspur.heads import ERM as ERM
    from unspur.heads import JTT as JTT
    from unspur.heads import SUBG as SUBG
    from unspur.heads import GroupDRO as GroupDRO
    from unspur.heads import GroupWeighted as GroupWeighted
    from unspur.removers import INLP as INLP
    from unspur.removers import JSE as JSE
    from unspur.removers import LEACE as LEACE
    from unspur.removers import RLACE as RLACE
    from unspur.removers import SAL as SAL
    from unspur.removers import SPLINCE as SPLINCE
    from unspur.robust import RobustClassifier, load
    from unspur.subspace import AffineMap, Subspace

__all__ = [  # noqa: PLE0604 — the registry has strings
    *REMOVERS,
    *HEADS,
    "AffineMap",
    "Audit",
    "AuditedColumn",
    "RobustClassifier",
    "Subspace",
    "__version__",
    "audit",
    "load",
    "surgery",
]

#: Public names by module. A module is imported when one of its names is first used: shell completion imports this
#: package too, and should not wait for scikit-learn.
_NAMES_BY_MODULE = {
    "heads": tuple(HEADS),
    "removers": tuple(REMOVERS),
    "robust": ("RobustClassifier", "load"),
    "auditing": ("Audit", "AuditedColumn", "audit"),
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
    for path, names in _NAMES_BY_MODULE.items():
        if name == path or name in names:
            module = import_module(f"unspur.{path}")
            globals()[name] = value = module if name == path else getattr(module, name)
            return value
    raise AttributeError(f"module 'unspur' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
