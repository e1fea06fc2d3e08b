"""Heads: linear classifiers, most of them trained with concept labels."""

from importlib import import_module
from typing import TYPE_CHECKING

from unspur._registry import HEAD_POINTS, Registry
from unspur._registry import HEADS as MODULES
from unspur.heads.base import Head as Head

if TYPE_CHECKING:
    from unspur.heads.group_dro import GroupDRO as GroupDRO
    from unspur.heads.reweighted import AFR as AFR
    from unspur.heads.reweighted import DFR as DFR
    from unspur.heads.reweighted import ERM as ERM
    from unspur.heads.reweighted import JTT as JTT
    from unspur.heads.reweighted import SUBG as SUBG
    from unspur.heads.reweighted import GroupWeighted as GroupWeighted

#: Every head by name: those in `_registry`, and those that other packages offer as ``unspur.heads``.
HEADS = Registry(
    {name: getattr(import_module(f"unspur.heads.{module}"), name) for name, module in MODULES.items()},
    HEAD_POINTS,
    Head,
)
globals().update(HEADS.own)

__all__ = ["HEADS", "Head", *MODULES]  # noqa: PLE0604 — the registry has strings
