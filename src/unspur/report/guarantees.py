"""What the removal guarantees and what it does not: its certificate, and what a small network still finds."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unspur._typing import Array
from unspur.certificate import Certificate
from unspur.exceptions import InputError, UsedRowsWarning
from unspur.metrics import Leakage
from unspur.removers import Remover
from unspur.report.baselines import probes
from unspur.report.inputs import Labelled
from unspur.trace import Trace, Traces

#: Test rows that a certificate is measured on: more take longer and tell little more.
ENOUGH = 5000
_TASK = "task: not measured. "


@dataclass(frozen=True, slots=True)
class Guarantees:
    """Certificate; what a linear probe and a small network find before and after removal; what was not; used rows."""

    certificate: Certificate
    linear: Mapping[str, tuple[Leakage, Leakage]]
    nonlinear: Mapping[str, tuple[Leakage, Leakage]]
    remarks: tuple[str, ...]
    used: str


def guarantees(remover: Remover, rows: Labelled, clean: Array, main: str) -> Guarantees:
    """Measured on test rows, and on the same rows with the concept removed."""
    judge = copy.copy(remover)  # a certificate is kept by who measured it, and the user's remover is not ours
    judge.__dict__.pop("feature_names_in_", None)  # rows are an array here; their names were looked at before
    if "concept_type" in judge.get_params():
        judge.set_params(concept_type="class")  # whatever it was fitted with: these are classes
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", UsedRowsWarning)
        concepts, task = rows.concept_values(), np.array(rows.y.classes)[rows.y.codes]
        try:
            certificate = judge.certificate(rows.Z, task, concepts, clusters=rows.clusters)
        except InputError as error:  # all test rows are of one class
            certificate = judge.certificate(rows.Z, None, concepts, clusters=rows.clusters)
            certificate = replace(certificate, notes=(*certificate.notes, f"{_TASK}{error}"))
    used = [str(warning.message) for warning in heard if issubclass(warning.category, UsedRowsWarning)]
    remarks = tuple(
        f"{main}: not probed. {note.removeprefix(_TASK).replace(' y=', f' {main}=')}"
        for note in certificate.notes
        if note.startswith(_TASK)
    )
    kept = tuple(note for note in certificate.notes if not note.startswith(_TASK))
    certificate = _called(replace(certificate, notes=kept), rows)
    (earlier, _), (left, problems) = (probes(part, rows, "mlp") for part in (rows.Z, clean))
    nonlinear = {name: (earlier[name], left[name]) for name in left if name in earlier}
    linear = {name: certificate.probe[name] for name in rows.concepts if name in certificate.probe}
    return Guarantees(certificate, linear, nonlinear, remarks + problems, used[0] if used else "")


def _called(certificate: Certificate, rows: Labelled) -> Certificate:
    """The certificate with concepts by their names, for which a remover knows numbers only."""
    numbered = called(rows)

    def named(part: Mapping[str, Any]) -> dict[str, Any]:
        return {_renamed(key, numbered): value for key, value in part.items()}

    return replace(
        certificate,
        covariance_left=named(certificate.covariance_left),
        probe=named(certificate.probe),
        notes=tuple(_renamed(note, numbered) for note in certificate.notes),
    )


def called(rows: Labelled) -> dict[str, str]:
    """What a remover calls the concepts, and what they are called."""
    names = list(rows.concepts)
    return {"concept": names[0]} if len(names) == 1 else {f"concept[{i}]": name for i, name in enumerate(names)}


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """A text that starts with what a concept is called by number."""
    for number, name in names.items():
        rest = text.removeprefix(number)
        if rest != text and rest[:1] in ("", ",", ":", "="):
            return name + rest.replace(f" {number}=", f" {name}=")
    return text


def renamed(trace: Trace | Traces, rows: Labelled, main: str) -> Trace | Traces:
    """The trace of a fit with concepts ("concept[1]") and main label under the names that they have."""
    parts, numbered = (trace.parts.values() if isinstance(trace, Traces) else (trace,)), called(rows)
    return trace.renamed(main, {part.concept: _renamed(part.concept, numbered) for part in parts})
