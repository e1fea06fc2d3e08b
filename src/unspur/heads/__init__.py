"""Last layers: linear classifiers, most of them trained with concept labels."""

from unspur.heads.base import Head
from unspur.heads.group_dro import GroupDRO
from unspur.heads.reweighted import DFR, ERM, JTT, SUBG, GroupWeighted

#: Every head by name; a new one is a file, a test, and a line here.
HEADS: dict[str, type[Head]] = {head.__name__: head for head in (ERM, GroupWeighted, SUBG, GroupDRO, JTT, DFR)}

__all__ = ["DFR", "ERM", "HEADS", "JTT", "SUBG", "GroupDRO", "GroupWeighted", "Head"]
