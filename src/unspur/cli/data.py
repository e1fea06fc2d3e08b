"""Rows that verbs read, with their labels: checked, divided into splits, and like those of another file.

Nothing heavy is imported before it is used: a shell that completes options imports this module too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unspur.cli.completion import column_names
from unspur.cli.console import say
from unspur.cli.options import Conditions

if TYPE_CHECKING:
    from unspur._data import LabelledData
    from unspur._typing import Array, BoolArray
    from unspur.io.table import Table
    from unspur.removers import Remover
#: Different values up to which a column of numbers may be classes.
MAX_LABEL_CLASSES = 10
#: Rows that tell whether a column is a label.
PREVIEW_ROWS = 10_000


def labels_to_read(labels: tuple[str, ...], clusters: str | None, path: Any) -> tuple[str, ...]:
    """The labels to read of a file whose rows are only measured on: clusters if it has them."""
    if clusters is None or (isinstance(path, str) and clusters in column_names(path)):
        return labels
    return tuple(name for name in labels if name != clusters)


def with_clusters(labels: tuple[str, ...], clusters: str | None) -> tuple[str, ...]:
    """Columns that are no features: labels, and what says which rows belong together."""
    return labels if clusters is None else (*labels, clusters)


def missing_values(text: str | None, table: Table, concepts: Sequence[str]) -> dict[str, Any]:
    """The value behind --missing-concept for each concept, in its type; None for concepts that cannot have it.

    A value that no row has is noted on standard error.
    """
    from unspur.io.files import MISSING_VALUE_WORDS

    if text is None:
        return dict.fromkeys(concepts)
    known = {name: [value for value in table.label(name).ravel().tolist() if value is not None] for name in concepts}
    found = {name: _value_of_type(text, values) for name, values in known.items()}
    if text in MISSING_VALUE_WORDS or not text.strip():  # of a column of a file these are gaps already
        return found
    if all(value is None for value in found.values()):
        are = "the concept is a number" if len(found) == 1 else "the concepts are numbers"
        raise click.BadParameter(f"{are}, {text!r} is not.", param_hint="--missing-concept")
    if not any(found[name] is not None and found[name] in values for name, values in known.items()):
        say(
            f"Note: no row of {table.path} has {' or '.join(concepts)} = {text}; --missing-concept {text} marks none "
            "of them as not known.",
            err=True,
        )
    return found


def _value_of_type(text: str, known: Sequence[Any]) -> Any:
    """What stands for `text` in a column of the values `known`; None where they are numbers, and it is not."""
    if any(isinstance(value, bool) for value in known):
        return {"True": True, "False": False}.get(text, text)
    if not known or not all(isinstance(value, int | float) for value in known):
        return text
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return None


def labelled_rows(
    table: Table,
    main: str,
    concepts: Sequence[str],
    missing: Mapping[str, Any],
    clusters: str | None = None,
    like: LabelledData | None = None,
    what: str = "validation",
) -> LabelledData:
    """The rows of a table with their labels, decoded, and clusters, if the table has them.

    `missing` has the value of each concept that means not known. `like` are the training rows, which have the classes
    to expect of rows that are for `what`.
    """
    import numpy as np

    from unspur._data import LabelledData
    from unspur.labels import class_label

    n = len(table.Z)
    known = {} if like is None else {label.name: label.classes for label in (like.main, *like.concepts)}
    where = "" if like is None else f" of the {what} rows"
    y, *labels = (
        replace(
            class_label(table.label(name), name + where, n, missing=missing.get(name), classes=known.get(name)),
            name=name,
        )
        for name in (main, *concepts)
    )
    there = clusters is not None and (clusters in table.columns or clusters.endswith(".npy"))
    return LabelledData(table.Z, y, tuple(labels), np.ones(n), table.label(str(clusters)) if there else None)


def _conditions_on(file: str | Sequence[str], where: Conditions) -> Conditions:
    """Conditions on the columns that a file has: with several "=", the longest name that one of them has."""
    if not any("=" in value for _, value in where):
        return where
    names = column_names(file if isinstance(file, str) else file[0])
    found = []
    for condition in where:
        text = "=".join(condition)
        name = max((name for name in names if text.startswith(f"{name}=")), key=len, default=condition[0])
        found.append((name, text[len(name) + 1 :]))
    return tuple(found)


def refuse_ignored_labels(labels: Sequence[str], ignore: Sequence[str]) -> None:
    """A column is used or left out, not both."""
    if both := [name for name in labels if name in ignore]:
        raise click.UsageError(f"{both[0]} is named as a label and with --ignore; it can be one of the two.")


def read_rows(
    file: str | Sequence[str],
    labels: tuple[str, ...],
    ignore: tuple[str, ...],
    where: Conditions,
    *,
    memory: str | None = None,
    scratch: str | None = None,
    progress: bool = False,
    cluster: Any = None,
    others: Sequence[Conditions] = (),
    classes: Sequence[str] = (),
) -> Table:
    """The rows of a file, of several, or of a store that meet the conditions, whose columns are no features.

    Nor are the columns that the conditions of `others`, the rows to test or validate on, name, if the file has them.
    The labels `classes` have gaps where a cell says that there is no value, with a note on standard error.
    With a Dask client as `cluster` its workers read them.
    """
    from unspur.io.files import read_table, with_gaps

    refuse_ignored_labels(labels, ignore)
    where = _conditions_on(file, where)
    deciding = [name for name, _ in where if name not in labels]
    elsewhere = {name for conditions in others for name, _ in _conditions_on(file, conditions)} - {
        *labels,
        *deciding,
        *ignore,
    }
    if elsewhere:
        elsewhere &= set(column_names(file if isinstance(file, str) else file[0]))
    names = (*labels, *deciding, *sorted(elsewhere))
    unwanted = tuple(name for name in ignore if name not in deciding)
    if cluster is None:
        table = read_table(file, names, unwanted, memory=memory, scratch=scratch, progress=progress)
    else:
        from unspur.io.dask_tables import read_dask_table

        table = read_dask_table([file] if isinstance(file, str) else file, names, unwanted, cluster)
    table, notes = with_gaps(table, classes)
    for note in notes:
        say(f"Note: {note}", err=True)
    for name, value in where:
        table = table.where(name, value)
    dropped = [name for name in deciding if name in ignore]
    return replace(table, columns={name: column for name, column in table.columns.items() if name not in dropped})


def carry_labels(table: Table, labels: Sequence[str], output: str) -> Table:
    """The table with labels of other files among its columns, under the names that they get in `output`."""
    from unspur.exceptions import InputError

    columns = dict(table.columns)
    for name in dict.fromkeys(labels):
        if name not in table.columns:
            stem = Path(name).stem
            if stem in columns:
                raise InputError(f"--label {name}: there is another label {stem!r}, its name in {output}. Rename one.")
            columns[stem] = table.label(name)
    return replace(table, columns=columns)


def check_labels(table: Table, main: str, concepts: Sequence[str]) -> list[str]:
    """Refuse labels that are no classes, and note on standard error what may be no feature; the notes are returned."""
    from unspur.io.table import odd_features

    _require_classes(table.label(main), main)
    for concept in concepts:
        _require_classes(
            table.label(concept),
            concept,
            " (Concepts that are numbers: LEACE and SAL in Python, with concept_type='continuous'.)",
        )
    notes = odd_features(table)
    for note in notes:
        say(f"Note: {note}", err=True)
    return notes


def note_left_out(data: LabelledData, *, together: bool = False, of: str = "the fit") -> list[str]:
    """Note on standard error how many rows have no concept, and what they are left out `of`; the notes are returned.

    With several, rows are left out of the fit of the concept that they lack; `together`: of all.
    """
    concepts = {label.name: label for label in data.concepts}
    if together and len(concepts) > 1:
        concepts = {" or no ".join(concepts): data.concept}
    notes = []
    for name, label in concepts.items():
        n, gone = len(label.present), int((~label.present).sum())
        if gone:
            have, are = ("has", "it is") if gone == 1 else ("have", "they are")
            what = of if len(concepts) == 1 else f"{of} of {name}"
            notes.append(f"{gone:,} of {n:,} rows {have} no {name}; {are} left out of {what}.")
            say(f"Note: {notes[-1]}", err=True)
    return notes


def _require_classes(values: Array, name: str, hint: str = "") -> None:
    """Raise LabelError where a column holds many fractions, or something else in about every row."""
    from unspur.exceptions import LabelError
    from unspur.labels import is_gap

    if values.ndim == 2 and values.shape[1] > 1:
        raise LabelError(
            f"{name} is an array of shape {values.shape}; a label is one column. Write each concept under a name of "
            "its own, and repeat --concept."
        )
    head = values[:PREVIEW_ROWS].tolist() if values.ndim == 1 else []
    if any(isinstance(value, list | dict) for value in head[:1]):
        return  # others say that this is no column of a label
    known = list(dict.fromkeys(value for value in head if not is_gap(value)))
    numbers = [_as_number(value) for value in known]
    fractions = None not in numbers and any(number != round(number) for number in numbers if number is not None)
    if len(known) <= MAX_LABEL_CLASSES or not (fractions or len(known) > len(head) / 2):
        return
    many = len({value for value in values.tolist() if not is_gap(value)})
    shown = ", ".join(
        f"{number:.4g}" if fractions else str(value) for value, number in list(zip(known, numbers, strict=True))[:3]
    )
    raise LabelError(
        f"{name} has {many:,} different values, such as {shown}; a label has a few classes.{hint if fractions else ''}"
    )


def _as_number(value: Any) -> float | None:
    """A value as a finite number, also where it was read as text."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


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


def test_rows(data: LabelledData, seed: int) -> BoolArray:
    """A mask of 30 % of each group, shape (n,), which are test rows: the same ones for every verb.

    Rows of a cluster go to the same side; where there are no clusters, exact copies of a row do.
    """
    import numpy as np

    from unspur.certificate import row_hashes

    if data.clusters is None:
        data = data.with_duplicate_clusters(row_hashes(np.asarray(data.X)))
    if data.copies and data.clusters is not None:
        _, first, code = np.unique(data.clusters, return_index=True, return_inverse=True)
        say(
            f"Note: {len(data) - len(first):,} of {len(data):,} rows are exact copies of others. Copies of a row are "
            "all training rows or all test rows. Drop them, or say with --cluster which rows belong together.",
            err=True,
        )
        data = replace(data, clusters=first[code])
    return data.held_out(0.3, np.random.default_rng(seed))


def note_shared_rows(rows: Mapping[str, LabelledData]) -> list[str]:
    """Note on standard error how many rows are in two of the sets; the notes, if there are any, are returned."""
    from unspur.compare import shared_rows

    notes = list(shared_rows(*(rows[name].X for name in ("training", "test", "validation") if name in rows)).values())
    for note in notes:
        say(f"Note: {note}", err=True)
    return notes


def caveat_about_test_rows(file: str, *, held_out: bool) -> str:
    """What is to be said of test rows, those of a file or some of `file`, and a removal that was saved."""
    if held_out:
        return f"Test rows are 30 % of each group of {file}; rows that the removal was fitted on flatter it."
    return (
        "The removal was read from a file, which does not tell the rows that it was fitted on: if test rows are among "
        "them, they flatter it."
    )


def check_removal_labels(remover: Remover, data: LabelledData) -> list[str]:
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
    main, concepts = data.main.name, data.concept_names
    for i, label in enumerate(data.concepts):
        name = label.name
        place = names.index(name) if name in names else i if len(known) == len(concepts) else len(known)
        classes = known[place] if place < len(known) else ()
        if classes and (strange := [value for value in label.classes if not _is_one_of(value, classes)]):
            raise LabelError(
                f"{name} has the value {strange[0]!r}, and the removal was fitted for a concept of the classes "
                f"{', '.join(map(str, classes))}. Name the concept that it removes, or fit a removal of {name}."
            )
    mains = list(dict.fromkeys(part.main for part in parts))
    notes = []
    for what, fitted, given, unnamed in (
        ("concept", names, concepts, r"concept(\[\d+\])?"),
        ("main label", mains, [main], "y"),
    ):
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


def _is_one_of(value: Any, classes: Sequence[Any]) -> bool:
    """Whether a class is one of those in a file, where dates and the like are texts."""
    return any(value == one or str(value) == str(one) for one in classes)


def _stem(name: str) -> str:
    return Path(name).stem if name.endswith(".npy") else name


def labelled_splits(
    data: LabelledData, others: Mapping[str, LabelledData], seed: int, clusters: str | None = None
) -> dict[str, LabelledData]:
    """Training rows and others by what they are for; test rows are some of `data` if not given."""
    from unspur._data import labelled

    if "test" not in others:
        held = test_rows(data, seed)
        data, others = data.select(~held), {**others, "test": data.select(held)}
    train = labelled(data, "training")
    parts = {name: labelled(part, name, like=train) for name, part in others.items()}
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
