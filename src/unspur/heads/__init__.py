"""Last layers: linear classifiers, most of them trained with concept labels."""

from importlib import import_module
from typing import TYPE_CHECKING

from unspur._names import HEADS as MODULES
from unspur.heads.base import Head as Head

if TYPE_CHECKING:
    from unspur.heads.group_dro import GroupDRO as GroupDRO
    from unspur.heads.reweighted import DFR as DFR
    from unspur.heads.reweighted import ERM as ERM
    from unspur.heads.reweighted import JTT as JTT
    from unspur.heads.reweighted import SUBG as SUBG
    from unspur.heads.reweighted import GroupWeighted as GroupWeighted

#: Every head by name, from the registry in `_names`.
HEADS: dict[str, type[Head]] = {
    name: getattr(import_module(f"unspur.heads.{module}"), name) for name, module in MODULES.items()
}
globals().update(HEADS)

__all__ = ["HEADS", "Head", *MODULES]  # noqa: PLE0604 — the registry has strings
