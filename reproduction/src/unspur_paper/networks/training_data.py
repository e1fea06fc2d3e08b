"""Which examples a network is trained on and judged by, with the codes of both labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unspur._typing import Array, IntArray
from unspur.embed.examples import Examples
from unspur.exceptions import InputError
from unspur.labels import class_label
from unspur_paper.networks.training import Training


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Numbers of the examples to train and to judge on, and both labels of all, as codes from 0."""

    train: IntArray
    validation: IntArray
    main: Array
    concept: Array | None
    #: Of the main label.
    classes: int = 2

    @classmethod
    def of(cls, examples: Examples, training: Training, main: str, concept: str) -> TrainingData:
        """From the label split; a concept is looked at only where the training needs it."""
        split = examples.labels.get("split")
        if split is None:
            raise InputError(f"{examples.name} has no label split; mark examples as train, validation or test.")
        train, validation = (np.flatnonzero(split == name) for name in ("train", "validation"))
        if not len(train) or not len(validation):
            raise InputError(
                f"{examples.name} has {len(train)} examples of split train and {len(validation)} of validation; some "
                "of each are needed."
            )
        needed = training.adversary > 0 or training.balance == "concept"
        codes, classes = _codes(examples, main)
        return cls(train, validation, codes, _binary(examples, concept) if needed else None, classes)

    def order(self, training: Training, epoch: int) -> IntArray:
        """The examples of one epoch."""
        rng = np.random.default_rng([training.seed, epoch, 0x0DE])
        if training.balance == "none":
            return rng.permutation(self.train)
        labels = (self.main if training.balance == "main" else self.concept)[self.train]  # type: ignore[index]
        share = np.bincount(labels, minlength=2) / len(labels)
        if not share.all():
            raise InputError(f"All training examples have the same {training.balance} label; nothing can be balanced.")
        chances = 1.0 / share[labels]
        return rng.choice(self.train, size=len(self.train), p=chances / chances.sum())


def label_of(examples: Examples, name: str) -> Array:
    """A label by name."""
    if name not in examples.labels:
        raise InputError(f"{examples.name} has no label {name!r}; it has {', '.join(examples.labels)}.")
    return examples.labels[name]


def _binary(examples: Examples, name: str) -> Array:
    """A label of two values, numbers or words, as 0 for the smaller and 1."""
    codes, classes = _codes(examples, name)
    if classes > 2:
        raise InputError(
            f"{name} has {classes} classes; a concept has two here. Merge or select classes so that two are left."
        )
    return codes


def _codes(examples: Examples, name: str) -> tuple[Array, int]:
    """A label of numbers or words as codes in the order of its values, and how many those are."""
    column = np.asarray(label_of(examples, name))
    label = class_label(column, name, len(examples), missing="" if column.dtype.kind == "U" else None)
    if not label.present.all():
        raise InputError(
            f"{name} is missing for {np.sum(~label.present)} of {len(examples)} examples; leave those out."
        )
    return label.codes, max(2, len(label.classes))
