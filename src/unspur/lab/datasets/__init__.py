"""Data sets: Toy and photodigits need no download."""

from unspur.lab.datasets.photodigits import PhotoDigits, embed_images, make_photodigits
from unspur.lab.datasets.toy import Toy, bayes_accuracy, make_toy

__all__ = ["PhotoDigits", "Toy", "bayes_accuracy", "embed_images", "make_photodigits", "make_toy"]
