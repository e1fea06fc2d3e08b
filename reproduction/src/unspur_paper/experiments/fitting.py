"""A removal and a last layer, fitted: what every dataset and preset ends with."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.utils._param_validation import InvalidParameterError

from unspur import AffineMap, Subspace, compare
from unspur._typing import BoolArray, FloatArray, IntArray
from unspur.compare import fit_remover
from unspur.exceptions import InputError, TaskLostWarning
from unspur.heads import HEADS
from unspur.options import from_flat_parameters
from unspur_paper.rows import Rows

#: Classes only: variants are options in a spec.
REMOVERS: dict[str, type[Any]] = {name: kind for name, kind in compare.REMOVERS.own.items() if isinstance(kind, type)}


@dataclass(frozen=True, slots=True)
class Removal:
    """What to do to rows (None: nothing), and the subspaces found."""

    map: AffineMap | None
    spurious: Subspace
    main: Subspace

    @classmethod
    def none(cls, ambient: int) -> Removal:
        """Rows stay as they are."""
        return cls(None, Subspace.empty(ambient), Subspace.empty(ambient))

    @classmethod
    def of(cls, spurious: Subspace, main: Subspace, centre: FloatArray) -> Removal:
        """The projection off the spurious subspace, through `centre`."""
        return cls(AffineMap.removing(spurious, centre), spurious, main)

    def __call__(self, rows: Rows) -> Rows:
        """Rows without the concept."""
        return rows if self.map is None else Rows(self.map(rows.Z), rows.y, rows.concept)


@dataclass(frozen=True, slots=True)
class LinearHead:
    """Linear logits of the main label on what the removal leaves: one for two classes, else one for each."""

    #: Shape (d,), or (d, k).
    weights: FloatArray
    #: A number, or shape (k,).
    bias: Any

    @classmethod
    def of(cls, head: Any) -> LinearHead:
        """Of a fitted last layer."""
        if len(head.coef_) > 1:
            return cls(head.coef_.T, head.intercept_)
        return cls(head.coef_[0], float(head.intercept_[0]))

    @property
    def classes_(self) -> IntArray:
        """Codes of the classes."""
        return np.arange(2 if self.weights.ndim == 1 else self.weights.shape[1])

    def logits(self, Z: FloatArray) -> FloatArray:
        """Shape (n,), or (n, k)."""
        return np.asarray(Z @ self.weights + self.bias)

    def predict_proba(self, Z: FloatArray) -> FloatArray:
        """Chances of each class, shape (n, k)."""
        logits = self.logits(Z)
        if logits.ndim > 1:
            return np.asarray(softmax(logits, axis=1))
        chance = expit(logits)
        return np.column_stack([1.0 - chance, chance])

    def right(self, rows: Rows) -> BoolArray:
        """Which rows are predicted right, shape (n,)."""
        logits = self.logits(rows.Z)
        return np.asarray((logits > 0 if logits.ndim == 1 else logits.argmax(axis=1)) == rows.y)


def fit_removal(named: Mapping[str, Any], train: Rows, validation: Rows | None, rng: np.random.Generator) -> Removal:
    """Fit one of the library's removers; validation rows go to those that can use them."""
    if named["name"] == "none":
        return Removal.none(train.Z.shape[1])
    remover = estimator(REMOVERS, named, rng)
    with warnings.catch_warnings(action="ignore", category=TaskLostWarning):  # the record has the dimensions that tell
        fit_remover(remover, train.labelled(), None if validation is None else validation.labelled())
    return Removal(remover.removal_, remover.spurious_, remover.main_)


def fit_last_layer(
    named: Mapping[str, Any], train: Rows, validation: Rows | None, rng: np.random.Generator
) -> LinearHead:
    """Fit one of the library's last layers."""
    head = estimator(HEADS, named, rng)
    held_out = {} if validation is None else validation.labelled().arguments("_val")
    head.fit(**train.labelled().arguments(), **held_out)
    return LinearHead.of(head)


def estimator(kinds: Mapping[str, Any], named: Mapping[str, Any], rng: np.random.Generator) -> Any:
    """An estimator by name, with its options and a seed if it takes one."""
    if named["name"] not in kinds:
        raise InputError(f"{named['name']} is not available in this preset; there are {', '.join(kinds)}.")
    # TOML has no null.
    options = {key: None if value == "null" else value for key, value in named.items() if key != "name"}
    if named["name"] == "JSE" and "metric" not in options:
        options.setdefault("orthogonality", "weights")  # the paper's
    try:
        made = kinds[named["name"]](**from_flat_parameters(named["name"], options))
    except (TypeError, InvalidParameterError) as error:
        raise InputError(f"{named['name']} cannot be made from the options {options}: {error}.") from error
    parameters = made.get_params()
    # The paper's designs go down to a handful of rows in a group, which are tested as they are there.
    if "smallest_group" in parameters and "smallest_group" not in options:
        made.set_params(smallest_group=2)
    return made.set_params(random_state=seed(rng)) if "random_state" in parameters else made


def seed(rng: np.random.Generator) -> int:
    """A seed for code that wants an integer."""
    return int(rng.integers(2**31 - 1))
