"""Where findings come from: parameters, versions, digests, and lines of Python that make the same removal again."""

from __future__ import annotations

import inspect
import platform
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy
import sklearn

from unspur._typing import Array
from unspur._version import __version__
from unspur.certificate import fingerprint, row_hashes
from unspur.options import SGD, PaperVariant
from unspur.removers import Remover
from unspur.report.results import Origin

#: Parameters that change nothing that is found.
SILENT = ("verbose",)


def origin_of(
    remover: Remover,
    rows: Mapping[str, Array],
    *,
    command: str,
    saved: str | None,
    validated: bool,
    remarks: tuple[str, ...],
) -> Origin:
    """`rows` are those of each kind by name; `saved` is where the removal is, if it was kept."""
    digests = {"rows of the fit": str(remover.training_hash_)}
    digests |= {f"{name} rows": fingerprint(row_hashes(z)) for name, z in rows.items()}
    return Origin(
        parameters={name: _plain(value) for name, value in sorted(used_parameters(remover).items())},
        versions={
            "unspur": __version__, "python": platform.python_version(), "numpy": np.__version__,
            "scipy": scipy.__version__, "scikit-learn": sklearn.__version__,
        },
        digests=digests,
        command=command,
        snippet=snippet(remover, saved=saved, validated=validated),
        remarks=remarks,
    )  # fmt: skip


def snippet(remover: Remover, *, saved: str | None = None, validated: bool = False) -> str:
    """Python that loads the removal, or fits it with the same parameters, and uses it."""
    kind = type(remover).__name__
    name = kind.lower()
    if saved is not None:
        lines = ["from unspur import load", "", f"{name} = load({saved!r})"]
    else:
        arguments = ", ".join(f"{key}={value!r}" for key, value in changed_parameters(remover).items())
        objects = [type(value).__name__ for value in changed_parameters(remover).values() if _is_object(value)]
        rows = ", X_val=Z_val, y_val=y_val, concept_val=concept_val" if validated and _takes_validation(remover) else ""
        lines = [
            f"from unspur import {', '.join([kind, *objects])}",
            "",
            "# Z, y, concept: training rows (n, d), their main label and their concept",
            f"{name} = {kind}({arguments})",
            f"{name}.fit(Z, y, concept=concept{rows})",
        ]
    return "\n".join(
        [
            *lines,
            f"Z_clean = {name}.transform(Z)  # same shape, without the concept",
            f"print({name}.trace_)",
            f"print({name}.certificate(Z_test, y_test, concept_test))  # on rows that the fit has not seen",
        ]
    )


def used_parameters(remover: Remover) -> dict[str, Any]:
    """Parameters that had a part in what was found, without those of a solver or of a share that was not used."""
    given = remover.get_params(deep=False)
    idle = {*SILENT, *(["variant"] if given.get("variant") is None else [])}
    # `max_iter` is that of the exact solver where there is a tolerance, else (RLACE) that of the schedule.
    if given.get("solver") == "exact":
        idle |= set() if "tol" in given else {"max_iter", "stop_below"}
    elif "solver" in given and "tol" in given:
        idle |= {"tol", "max_iter"}
    return {name: value for name, value in given.items() if name not in idle}


def changed_parameters(remover: Remover) -> dict[str, Any]:
    """Parameters that differ from their defaults and can be written down."""
    defaults = {name: given.default for name, given in inspect.signature(type(remover)).parameters.items()}
    return {
        name: value if _is_object(value) else _plain(value)
        for name, value in remover.get_params(deep=False).items()
        if name not in SILENT and not _same(value, defaults.get(name)) and _can_be_written(value)
    }


def _takes_validation(remover: Remover) -> bool:
    return "X_val" in inspect.signature(remover.fit).parameters  # type: ignore[attr-defined]


def _same(value: Any, other: Any) -> bool:
    return type(value) is type(other) and bool(value == other) if not isinstance(value, np.generic) else value == other


def _is_object(value: Any) -> bool:
    return isinstance(value, SGD | PaperVariant)


def _can_be_written(value: Any) -> bool:
    return _is_object(value) or isinstance(value, bool | int | float | str | np.generic | None)


def _plain(value: Any) -> Any:
    """A parameter as a plain number or word; anything else by its kind, since its text may hold an address."""
    value = value.item() if isinstance(value, np.generic) else value
    if _is_object(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str | None) else type(value).__name__
