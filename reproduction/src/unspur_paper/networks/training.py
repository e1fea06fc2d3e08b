"""How a network is fine-tuned: optimiser, epochs, stopping and, where a concept is to be unlearned, the adversary.

::

    main label:   min over network and last layer   mean of log(1 + exp(−±(w·z + b)))
    adversary:    min over its own layer of its loss on the concept; the network sees the gradient of that loss times −λ
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from unspur.exceptions import InputError

Optimizer = Literal["sgd", "adam"]
Balance = Literal["none", "main", "concept"]


@dataclass(frozen=True, slots=True)
class Training:
    """Settings of one fine-tuning.

    Parameters
    ----------
    momentum : of SGD; Adam has its own.
    weight_decay : added to the gradient as ``weight_decay · weights``.
    batch : examples a step. Epochs are cut into steps of nearly equal size, none larger than this.
    epochs : passes through as many examples as there are to train on.
    patience : epochs without a lower loss on the main label of validation examples after which it stops, keeping the
        best; None goes to the end and keeps that.
    balance : "main" or "concept" draws examples with replacement so that the classes of that label are equally
        frequent; "none" shows each example once an epoch.
    adversary : λ, the weight of the reversed gradient; 0 for no adversary.
    seed : of the last layer's start, the order of examples, and what the network itself draws (dropout).
    """

    optimizer: Optimizer = "sgd"
    learning_rate: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 1e-3
    batch: int = 32
    epochs: int = 100
    patience: int | None = None
    balance: Balance = "none"
    adversary: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, kinds in (("optimizer", Optimizer), ("balance", Balance)):
            if getattr(self, name) not in get_args(kinds):
                raise InputError(f"{name} is one of {', '.join(get_args(kinds))}; got {getattr(self, name)!r}.")
        for name, least in (("batch", 1), ("epochs", 1), ("patience", 1), ("seed", 0)):
            value = getattr(self, name)
            if not (value is None and name == "patience") and (not isinstance(value, int) or value < least):
                raise InputError(f"{name} is a whole number from {least}; got {value!r}.")
        if not 0.0 < self.learning_rate < float("inf"):
            raise InputError(f"learning_rate is a positive number; got {self.learning_rate}.")
        for name in ("weight_decay", "adversary"):
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise InputError(f"{name} is a number from 0; got {getattr(self, name)}.")
        if not 0.0 <= self.momentum < 1.0:
            raise InputError(f"momentum is a number from 0 to below 1; got {self.momentum}.")

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, ready for JSON."""
        return asdict(self)

    def with_settings(self, given: Mapping[str, Any]) -> Training:
        """The same with those settings that are given, which are not None; a patience of 0 is none at all."""
        found = {name: value for name, value in given.items() if value is not None}
        if found.get("patience") == 0:
            found["patience"] = None
        return replace(self, **found)


#: The paper's settings for each of its datasets.
PAPER: dict[str, Training] = {
    "waterbirds": Training(),
    "celeba": Training(weight_decay=1e-4, batch=128, epochs=50),
    "multinli": Training(optimizer="adam", learning_rate=1e-5, weight_decay=1e-4, epochs=10, patience=1),
}
#: What it changes for adversarial removal: Adam; for pictures the rates of its last table, on batches balanced in the
#: concept. It has none for texts, where it saw no convergence; here all epochs are run, to see what becomes of it.
ADVERSARIAL: dict[str, dict[str, Any]] = {
    "waterbirds": {"optimizer": "adam", "learning_rate": 1e-3, "weight_decay": 1e-4, "balance": "concept"},
    "celeba": {"optimizer": "adam", "learning_rate": 1e-3, "weight_decay": 1e-4, "balance": "concept"},
    "multinli": {"patience": None},
}


def paper_training(dataset: str, *, adversary: float = 0.0) -> Training:
    """The paper's settings for a dataset; for one that it has not, those of Waterbirds."""
    base = PAPER.get(dataset, PAPER["waterbirds"])
    return replace(base, adversary=adversary, **ADVERSARIAL.get(dataset, {})) if adversary else base
