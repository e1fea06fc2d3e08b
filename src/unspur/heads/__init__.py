"""Last layers: linear classifiers that know of a concept when they are trained."""

from unspur.heads.base import Head
from unspur.heads.dfr import DFR
from unspur.heads.erm import ERM
from unspur.heads.group_dro import GroupDRO
from unspur.heads.group_weighted import GroupWeighted
from unspur.heads.jtt import JTT
from unspur.heads.subg import SUBG

__all__ = ["DFR", "ERM", "JTT", "SUBG", "GroupDRO", "GroupWeighted", "Head"]
