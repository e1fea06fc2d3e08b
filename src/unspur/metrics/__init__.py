"""How well a classifier does, group by group."""

from unspur.metrics.groups import GroupAccuracy

__all__ = ["GroupAccuracy"]
