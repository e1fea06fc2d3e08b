"""Which examples a network is trained on and judged by, with the codes of both labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unspur._typing import Array, IntArray
from unspur.exceptions import InputError
from unspur_paper.embedding.examples import Examples
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
    def of(cls, examples: Examples, training: Training, main: str, concept: str, classes: int = 2) -> TrainingData:
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
        hidden = _codes(examples, concept) if needed else None
        return cls(train, validation, _codes(examples, main, classes), hidden, classes)

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


def _codes(examples: Examples, name: str, classes: int = 2) -> Array:
    """A label of so many values at most, numbers or words, as codes from 0 in their order."""
    found, codes = np.unique(np.asarray(label_of(examples, name)), return_inverse=True)
    if not 1 < len(found) <= classes:
        raise InputError(
            f"{name} has {len(found)} classes ({', '.join(map(str, found[:6]))}); needed are 2 to {classes}."
        )
    return codes
