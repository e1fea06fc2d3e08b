"""Data sets: Toy and photodigits need no download."""

from unspur.datasets.photodigits import PhotoDigits, embed_images, make_photodigits
from unspur.datasets.toy import Toy, bayes_accuracy, make_toy

__all__ = ["PhotoDigits", "Toy", "bayes_accuracy", "embed_images", "make_photodigits", "make_toy"]
