"""Last layers: linear classifiers, most of them trained with concept labels."""

from importlib import import_module

from unspur._names import HEADS as MODULES
from unspur.heads.base import Head
from unspur.heads.group_dro import GroupDRO
from unspur.heads.reweighted import DFR, ERM, JTT, SUBG, GroupWeighted

#: Every head by name; a new one is a file, a test, and a line in `_names`.
HEADS: dict[str, type[Head]] = {
    name: getattr(import_module(f"unspur.heads.{module}"), name) for name, module in MODULES.items()
}
globals().update(HEADS)

__all__ = ["DFR", "ERM", "HEADS", "JTT", "SUBG", "GroupDRO", "GroupWeighted", "Head"]
