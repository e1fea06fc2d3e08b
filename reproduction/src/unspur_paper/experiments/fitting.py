"""A removal and a last layer, fitted: what every dataset and preset ends with."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import null_space
from scipy.special import expit, softmax

from unspur import AFR, DFR, ERM, JTT, SUBG, AffineMap, GroupDRO, GroupWeighted, Subspace
from unspur._typing import BoolArray, FloatArray, IntArray
from unspur.exceptions import InputError, TaskLostWarning
from unspur_paper.experiments.variants import REMOVERS, jse, parameters_of
from unspur_paper.rows import Rows

#: Last layers by name.
HEADS: dict[str, type[Any]] = {kind.__name__: kind for kind in (ERM, GroupWeighted, SUBG, GroupDRO, JTT, DFR, AFR)}


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

    @classmethod
    def onto(cls, spurious: Subspace, main: Subspace, centre: FloatArray) -> Removal:
        """The projection onto the main-task subspace, through `centre`."""
        if not main.dim:
            raise InputError("No main-task direction was found, so there is none to project onto.")
        return cls(AffineMap.removing(Subspace(null_space(main.basis.T)), centre), spurious, main)

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
    fit_quietly(remover, train, validation)
    if named.get("output") == "onto_main":
        return Removal.onto(remover.spurious_, remover.main_, train.Z.mean(axis=0))
    return Removal(remover.removal_, remover.spurious_, remover.main_)


def fit_quietly(model: Any, train: Rows, validation: Rows | None) -> None:
    """Fit a remover or classifier, without warnings of a lost task: the record has the dimensions that tell."""
    given = train.arguments() | ({} if validation is None else validation.arguments("_val"))
    accepted = inspect.signature(model.fit).parameters
    with warnings.catch_warnings(action="ignore", category=TaskLostWarning):
        model.fit(**{name: value for name, value in given.items() if name in accepted})


def fit_last_layer(
    named: Mapping[str, Any], train: Rows, validation: Rows | None, rng: np.random.Generator
) -> LinearHead:
    """Fit one of the library's last layers."""
    head = estimator(HEADS, named, rng)
    head.fit(**train.arguments(), **({} if validation is None else validation.arguments("_val")))
    return LinearHead.of(head)


def estimator(kinds: Mapping[str, Any], named: Mapping[str, Any], rng: np.random.Generator) -> Any:
    """An estimator by name, with its options and a seed if it takes one."""
    if named["name"] not in kinds:
        raise InputError(f"{named['name']} is not available in this preset; there are {', '.join(kinds)}.")
    # TOML has no null.
    options = {key: None if value == "null" else value for key, value in named.items() if key != "name"}
    try:
        made = jse(options) if named["name"] == "JSE" else kinds[named["name"]](**parameters_of(named["name"], options))
    except TypeError as error:
        raise InputError(f"{named['name']} cannot be made from the options {options}: {error}.") from error
    parameters = made.get_params()
    # The paper's designs go down to a handful of rows in a group, which are tested as they are there.
    if "smallest_group" in parameters and "smallest_group" not in options:
        made.set_params(smallest_group=2)
    return made.set_params(random_state=seed(rng)) if "random_state" in parameters else made


def counts(right: BoolArray, y: IntArray, concept: IntArray) -> dict[str, list[int]]:
    """Right predictions and rows of each group 2·main + concept."""
    group, groups = 2 * y + concept, 2 * (int(y.max()) + 1)
    rows = np.bincount(group, minlength=groups)
    return {"right": np.bincount(group[right], minlength=groups).tolist(), "rows": rows.tolist()}


def seed(rng: np.random.Generator) -> int:
    """A seed for code that wants an integer."""
    return int(rng.integers(2**31 - 1))
