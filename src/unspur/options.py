"""Settings that belong together, as one parameter of an estimator.

They are plain frozen values: equal if their fields are, cloned and saved with the estimator.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

from sklearn.utils._param_validation import (
    Interval,
    InvalidParameterError,
    StrOptions,
    validate_parameter_constraints,
)

from unspur._arrays import to_python


@dataclass(frozen=True)
class _Options:
    _constraints: ClassVar[dict[str, list[Any]]] = {}

    def __post_init__(self) -> None:
        """Check the values, as estimators check their parameters."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        validate_parameter_constraints(self._constraints, given, caller_name=type(self).__name__)
        if flags := [name for name, value in given.items() if isinstance(value, bool)]:  # Python counts True as 1
            raise InvalidParameterError(f"The {flags[0]!r} parameter of {type(self).__name__} must be a number.")


@dataclass(frozen=True)
class SGD(_Options):
    """Minibatch SGD with momentum and early stopping, in the place of ``solver="exact"``.

    The paper's solver, to explain published numbers: the exact one solves the same problems, and faster.

    Parameters
    ----------
    learning_rate : float or None, default=None
        None for the paper's value: 0.01, and 0.005 for RLACE.
    momentum : float, default=0.9
    batch_size : int, default=128
    max_epochs : int, default=50
        RLACE counts iterations instead (its `max_iter`).
    patience : int, default=5
        Epochs without improvement on held-out rows after which training stops. RLACE has no such rule.

    Examples
    --------
    >>> from unspur import JSE, SGD
    >>> JSE(solver=SGD(learning_rate=0.1), penalty=0.01)
    JSE(solver=SGD(learning_rate=0.1, momentum=0.9, batch_size=128, max_epochs=50, patience=5),
        penalty=0.01)
    """

    learning_rate: float | None = None
    momentum: float = 0.9
    batch_size: int = 128
    max_epochs: int = 50
    patience: int = 5

    _constraints: ClassVar[dict[str, list[Any]]] = {
        "learning_rate": [None, Interval(Real, 0, None, closed="neither")],
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "patience": [Interval(Integral, 1, None, closed="left")],
    }

    @classmethod
    def of(cls, solver: str | SGD) -> SGD | None:
        """The settings of a `solver` parameter: None for "exact"."""
        if isinstance(solver, SGD):
            return solver
        return None if solver == "exact" else cls()


@dataclass(frozen=True)
class PaperVariant(_Options):
    """Variants of JSE that the paper describes or compares with; use them only to reproduce its results.

    Parameters
    ----------
    inner : {"main", "spurious"}, default="main"
        Role whose directions are found in the inner loop; "spurious" swaps the loops.
    candidate : {"last_accepted", "failing"}, default="last_accepted"
        Pair that supplies the next outer direction: that of the last accepted inner step (the first if none was), or
        that of the failing one, as in the paper's pseudo-code.
    scalars : {"held_out", "training"}, default="held_out"
        Rows on which slope and intercept along a tested direction are fitted: the held-out ones, leaving out the row
        whose loss is computed; or the training rows, as in the paper.
    tests : {"group", "plain"}, default="group"
        Whether losses are averaged with equal weight over the four groups (main, concept), or over all rows alike.
    output : {"off_spurious", "onto_main"}, default="off_spurious"
        Whether rows are projected off the spurious subspace, or onto the main-task subspace.
    """

    inner: Literal["main", "spurious"] = "main"
    candidate: Literal["last_accepted", "failing"] = "last_accepted"
    scalars: Literal["held_out", "training"] = "held_out"
    tests: Literal["group", "plain"] = "group"
    output: Literal["off_spurious", "onto_main"] = "off_spurious"

    _constraints: ClassVar[dict[str, list[Any]]] = {
        "inner": [StrOptions({"main", "spurious"})],
        "candidate": [StrOptions({"last_accepted", "failing"})],
        "scalars": [StrOptions({"held_out", "training"})],
        "tests": [StrOptions({"group", "plain"})],
        "output": [StrOptions({"off_spurious", "onto_main"})],
    }


#: Longest parameter that is saved, in characters.
MAX_PARAMETER_CHARACTERS = 100_000
#: Constraints of a `solver` parameter.
SOLVER: list[Any] = [StrOptions({"exact", "sgd"}), SGD]
_KINDS = {"SGD": SGD, "PaperVariant": PaperVariant}


def is_plain(value: Any) -> bool:
    """Whether a parameter can be saved: a generator cannot be written as JSON, and folds of all rows are too long."""
    try:
        return len(json.dumps(value)) <= MAX_PARAMETER_CHARACTERS
    except TypeError:
        return False


def storable(value: Any) -> Any:
    """A class, or nested tuples of classes, for JSON; dates, decimals and the like become text."""
    if isinstance(value, tuple | list):
        return [storable(item) for item in value]
    value = to_python(value)
    return value if is_plain(value) else str(value)


def to_json(value: Any) -> Any:
    """An options object as a JSON table; any other value unchanged."""
    if not isinstance(value, _Options):
        return value
    return {"options": type(value).__name__} | {name: to_python(given) for name, given in asdict(value).items()}


def from_json(value: Any) -> Any:
    """Inverse of `to_json`."""
    if not isinstance(value, Mapping):
        return value
    given = dict(value)
    kind = given.pop("options", None)
    if kind not in _KINDS:
        raise ValueError(f"a parameter is a table of no known kind ({kind!r})")
    return _KINDS[kind](**given)


def from_flat_parameters(method: str, flat: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a method from a flat table, as in development versions and in files of experiments.

    Settings of SGD and variants of JSE become objects; `validation_fraction` of removers becomes a share in `cv`.
    Settings of SGD are dropped if the solver is exact.
    """
    given = {name: from_json(value) for name, value in flat.items()}
    if "weight_decay" in given:
        given["penalty"] = given.pop("weight_decay")
    sgd = {field.name: given.pop(field.name) for field in fields(SGD) if field.name in given}
    if sgd and given.get("solver") == "sgd":
        given["solver"] = SGD(**sgd)
    if method == "JSE":
        variant = {field.name: given.pop(field.name) for field in fields(PaperVariant) if field.name in given}
        if variant and PaperVariant(**variant) != PaperVariant():
            given["variant"] = PaperVariant(**variant)
        orthogonality = given.pop("orthogonality", "deprecated")  # `metric` until it took numbers
        if orthogonality != "deprecated":
            given["metric"] = 1.0 if orthogonality == "scores" else 0.0
        if given.get("correction") == "looks":  # its name until "familywise"
            given["correction"] = "familywise"
    if method in ("JSE", "INLP"):
        share = given.pop("validation_fraction", 0.2)
        if "cv" in given and given["cv"] is None:
            given["cv"] = share
    return given
