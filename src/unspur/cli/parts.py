"""Rows of a table by what they are for: like those of another file, divided into training and test, with labels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unspur.cli.common import Conditions, concept_labels, concept_values, read_rows
from unspur.cli.words import say
from unspur.io.table import Table

if TYPE_CHECKING:
    from unspur._typing import Array, IntArray
    from unspur.removers import Remover
    from unspur.report.inputs import Labelled
    from unspur.selection import Rows


def read_like(
    table: Table,
    path: str,
    labels: tuple[str, ...],
    ignore: tuple[str, ...],
    where: Conditions,
    others: Sequence[Conditions] = (),
    classes: Sequence[str] = (),
) -> Table:
    """Rows of another file with the features of `table`, in its order; see `read_rows` for `others` and `classes`."""
    return read_rows(path, labels, ignore, where, others=others, classes=classes).like(table.features, table.Z.shape[1])


def divided(
    table: Table, labels: tuple[str, ...], missing: Mapping[str, Any], seed: int, clusters: str | None = None
) -> tuple[Table, Table]:
    """Training and test rows of one table: 30 % of each group are the latter, the same rows as `evaluate` takes.

    `clusters` names the column that says which rows belong together, and go to the same side; without it exact copies
    of a row do.
    """
    from unspur.labels import class_label, joint_label
    from unspur.selection import held_out

    y = class_label(table.label(labels[0]), labels[0], len(table.Z))
    c = joint_label(list(concept_labels(table, labels[1:], missing).values()))
    group = np.where(c.present, len(c.classes) * y.codes + c.codes, -1)
    together = _copies(np.asarray(table.Z), group) if clusters is None else table.label(clusters)
    held = held_out(group, 0.3, np.random.default_rng(seed), together)
    named = labels if clusters is None else (*labels, clusters)
    return _part(table, named, ~held), _part(table, named, held)


def _copies(z: Array, group: IntArray) -> IntArray | None:
    """Number of the first row that each is a copy of, shape (n,), with a note on standard error; None without copies.

    Copies are of the same group. Rows that are equal by chance, as those of a few small numbers are, are none.
    """
    from unspur.certificate import row_hashes
    from unspur.clusters import copies, measured_on_a_scale
    from unspur.compare import FIRST

    code = copies(row_hashes(z), [group])
    if code is None or not measured_on_a_scale(z[:FIRST]):
        return None
    first = np.unique(code, return_index=True)[1]
    say(
        f"Note: {len(z) - len(first):,} of {len(z):,} rows are exact copies of others. Copies of a row are all "
        "training rows or all test rows. Drop them, or say with --cluster which rows belong together.",
        err=True,
    )
    return np.asarray(first[code])


def say_shared(rows: Mapping[str, Labelled]) -> list[str]:
    """Note on standard error how many rows are in two of the sets; the notes, if there are any, are returned."""
    from unspur.compare import shared_rows

    notes = list(shared_rows(*(rows[name].Z for name in ("training", "test", "validation") if name in rows)).values())
    for note in notes:
        say(f"Note: {note}", err=True)
    return notes


def flattered(file: str, *, held_out: bool) -> str:
    """What is to be said of test rows, those of a file or some of `file`, and a removal that was saved."""
    if held_out:
        return f"Test rows are 30 % of each group of {file}; rows that the removal was fitted on flatter it."
    return (
        "The removal was read from a file, which does not tell the rows that it was fitted on: if test rows are among "
        "them, they flatter it."
    )


def of_other_labels(
    remover: Remover, table: Table, main: str, concepts: Sequence[str], missing: Mapping[str, Any]
) -> list[str]:
    """What is to be said of a saved removal that was fitted for labels of other names, also on standard error.

    Concepts of other classes than it was fitted for are refused.
    """
    from unspur.exceptions import LabelError
    from unspur.trace import Trace, Traces

    trace = remover.trace_
    parts: Sequence[Trace] = [trace] if isinstance(trace, Trace) else []
    parts = list(trace.parts.values()) if isinstance(trace, Traces) else parts
    names = list(dict.fromkeys(part.concept for part in parts))
    several = bool(remover.concept_classes_) and isinstance(remover.concept_classes_[0], tuple)
    known = list(remover.concept_classes_) if several else [remover.concept_classes_]
    for i, (name, label) in enumerate(concept_labels(table, concepts, missing).items()):
        place = names.index(name) if name in names else i if len(known) == len(concepts) else len(known)
        classes = known[place] if place < len(known) else ()
        if classes and (strange := [value for value in label.classes if not _among(value, classes)]):
            raise LabelError(
                f"{name} has the value {strange[0]!r}, and the removal was fitted for a concept of the classes "
                f"{', '.join(map(str, classes))}. Name the concept that it removes, or fit a removal of {name}."
            )
    mains = list(dict.fromkeys(part.main for part in parts))
    notes = []
    for what, fitted, given, unnamed in (
        ("concept", names, concepts, r"concept(\[\d+\])?"), ("main label", mains, [main], "y"),
    ):  # fmt: skip
        # In Python labels may have no names, and a file may lie elsewhere.
        named = fitted and not any(re.fullmatch(unnamed, name) for name in fitted)
        if named and {_stem(name) for name in given} - {_stem(name) for name in fitted}:
            notes.append(
                f"The removal was fitted for the {what} {' and '.join(map(repr, fitted))}, and "
                f"{' and '.join(map(repr, given))} is named here; what was fitted, and the tests of it, are about the "
                "former."
            )
    for note in notes:
        say(f"Note: {note}", err=True)
    return notes


def _among(value: Any, classes: Sequence[Any]) -> bool:
    """Whether a class is one of those in a file, where dates and the like are texts."""
    return any(value == one or str(value) == str(one) for one in classes)


def _stem(name: str) -> str:
    return Path(name).stem if name.endswith(".npy") else name


def _part(table: Table, labels: tuple[str, ...], mask: Any) -> Table:
    """Some of the rows; labels that are files of their own become columns."""
    n = len(table.Z)
    columns = {**table.columns, **{name: table.label(name) for name in labels}}
    columns = {name: column[mask] if column.shape[:1] == (n,) else column for name, column in columns.items()}
    kept = np.flatnonzero(mask) if table.kept is None else table.kept[mask]
    return replace(table, Z=np.asarray(table.Z)[mask], columns=columns, kept=kept)


def rows_of(
    table: Table, main: str, concepts: Sequence[str], missing: Mapping[str, Any], clusters: str | None = None
) -> Rows:
    """Rows with their labels, a concept that is not known being None; several concepts by name.

    With clusters, if the table has them.
    """
    from unspur.selection import Rows

    labels = concept_labels(table, concepts, missing)
    there = clusters is not None and (clusters in table.columns or clusters.endswith(".npy"))
    together = table.label(str(clusters)) if there else None
    return Rows(np.asarray(table.Z), table.label(main), concept_values(table, labels), together)


def labelled_parts(
    table: Table,
    others: Mapping[str, Table],
    names: tuple[str, Sequence[str]],
    missing: Mapping[str, Any],
    seed: int,
    clusters: str | None = None,
) -> dict[str, Labelled]:
    """Training rows (of `table`) and others by what they are for, with labels; test rows are held out if not given."""
    from unspur.report.inputs import labelled

    if "test" not in others:
        table, test = divided(table, (names[0], *names[1]), missing, seed, clusters)
        others = {**others, "test": test}
    train = labelled(rows_of(table, *names, missing, clusters), "training", names)
    parts = {
        name: labelled(rows_of(part, *names, missing, clusters), name, names, like=train)
        for name, part in others.items()
    }
    require_other_clusters(train, parts, clusters)
    return {"training": train, **parts}


def require_other_clusters(train: Any, others: Mapping[str, Any], column: str | None) -> None:
    """Training rows and those that are judged on must not have a cluster in common."""
    from unspur.clusters import shared_clusters
    from unspur.exceptions import InputError

    for name, part in others.items():
        if train.clusters is None or part.clusters is None:
            continue
        if both := shared_clusters(train.clusters, part.clusters):
            raise InputError(
                f"{len(both)} values of {column} are among the training rows and the {name} rows, such as "
                f"{next(iter(both))!r}: what is learnt from rows of a cluster is then judged on other rows of it. "
                f"Choose {name} rows of other clusters, or none, and whole clusters are held out."
            )
