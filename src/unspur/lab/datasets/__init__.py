"""Data sets: Toy and photodigits need no download."""

from unspur.lab.datasets.toy import Toy, make_toy

__all__ = ["Toy", "make_toy"]
