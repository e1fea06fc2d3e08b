"""Read the rows that options name, check their labels, and divide them into splits.

Nothing heavy is imported at the top: a shell that completes options imports this module too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unspur.cli.completion import column_names
from unspur.cli.console import say
from unspur.cli.options import Conditions, RowOptions

if TYPE_CHECKING:
    from unspur._data import LabelledData
    from unspur._typing import Array, BoolArray
    from unspur.io.table import Table
    from unspur.removers import Remover
#: A column with more different values is a label only if it has no fractions and most of its values repeat.
MAX_LABEL_CLASSES = 10
#: Rows that are looked at to tell whether a column is a label.
PREVIEW_ROWS = 10_000
#: Key of `Context.meta` for the notes that were printed: test rows of FILE are read as training rows were.
NOTES_SAID = "unspur.notes"


@dataclass(frozen=True, slots=True)
class Splits:
    """The rows of FILE ("training") and, where options name them, "test" and "validation" rows; undivided.

    `missing_concept` is the value that means not known, as an estimator takes it, and `notes` say what was noted about
    the rows.
    """

    tables: dict[str, Table]
    rows: dict[str, LabelledData]
    missing_concept: Any
    notes: list[str]


def read_splits(
    row_options: RowOptions[Any],
    remover: Remover | None = None,
    *,
    shown: Mapping[str, tuple[str, ...]] | None = None,
    left_out_of: str = "the fit",
    together: bool = False,
    **reading: Any,
) -> Splits:
    """Read and check the rows that options name.

    Parameters
    ----------
    row_options : files, columns and conditions.
    remover : a saved removal. Rows get its features, in its order, and its labels are compared with those of the rows.
    shown : columns of each split that are neither features nor labels.
    left_out_of : what a note says that rows without a concept are left out of.
    together : whether rows that lack one of several concepts are left out of the fit of all of them.
    **reading : options of `read_rows`.
    """
    import numpy as np

    from unspur.io.table import tables_of_one_type

    row_options, shown = row_options.with_other_files(), shown or {}
    refuse_labels_of_other_rows(
        row_options.columns, row_options.file, test=row_options.test_file, validation=row_options.validation
    )
    files = (row_options.file, row_options.test_file, row_options.validation)
    reading |= {"others": row_options.conditions, "classes": row_options.labels, "cluster_column": row_options.clusters}
    ignore = ignored_columns(row_options.ignore, row_options.file, files)
    table = read_rows(
        row_options.file, row_options.columns + shown.get("training", ()), ignore, row_options.where, **reading
    )
    notes = check_labels(table, row_options.main, row_options.concept)
    if remover is not None:
        table = table.with_features_of(getattr(remover, "feature_names_in_", None), remover.n_features_in_)
    tables = {"training": replace(table, Z=np.asarray(table.Z))}
    clusters = {"training": row_options.clusters}
    others = {
        "test": (row_options.test_file, row_options.test_where),
        "validation": (row_options.validation, row_options.validation_where),
    }
    for name, (path, where) in others.items():
        if path is None:
            continue
        columns, clusters[name] = row_options.columns + shown.get(name, ()), row_options.clusters
        only_measured = name == "test" or remover is not None
        cluster = row_options.clusters
        if only_measured and cluster not in column_names(path) and not str(cluster).endswith(".npy"):
            columns, clusters[name] = tuple(column for column in columns if column != cluster), None
        other = read_rows(path, columns, ignored_columns(row_options.ignore, path, files), where, **reading)
        tables[name] = other.with_features_of(table.features, table.Z.shape[1])
        require_same_encoding(table, other)
    found = list(tables.values())
    tables = dict(zip(tables, tables_of_one_type(found, row_options.columns), strict=True))
    missing = missing_values(row_options.missing_concept, list(tables.values()), row_options.concept)
    labels: Any = {"main": row_options.main, "concepts": row_options.concept, "missing": missing}
    data = labelled_rows(tables["training"], **labels, clusters=clusters["training"])
    if remover is not None:
        notes += check_removal_labels(remover, data) + note_other_encoding(remover, table)
    else:
        notes += note_left_out(data, together=together, of=left_out_of)
    rows = {"training": data}
    rows |= {
        name: labelled_rows(tables[name], **labels, clusters=clusters[name], like=data, what=name)
        for name in tables
        if name != "training"
    }
    return Splits(tables, rows, shared_missing_value(missing), notes)


def _print_notes(notes: Iterable[str]) -> list[str]:
    """Print notes on standard error, each once in a run, and return them."""
    notes = list(notes)
    context = click.get_current_context(silent=True)
    said = set() if context is None else context.meta.setdefault(NOTES_SAID, set())
    for note in notes:
        if note not in said:
            say(f"Note: {note}", err=True)
        said.add(note)
    return notes


def missing_values(text: str | None, tables: Sequence[Table], concepts: Sequence[str]) -> dict[str, Any]:
    """The value of --missing-concept in the type of each concept; None for concepts that cannot have it.

    The concepts have one type in all tables. A note on standard error says so if no row has the value.
    """
    from unspur.io.files import MISSING_VALUE_WORDS

    if text is None or not concepts:
        return dict.fromkeys(concepts)
    known = {
        name: [value for table in tables for value in table.label(name).ravel().tolist() if value is not None]
        for name in concepts
    }
    found = {name: _value_of_type(text, values) for name, values in known.items()}
    if text in MISSING_VALUE_WORDS or not text.strip():  # these are missing values of a file already
        return found
    if not any(found[name] is not None and found[name] in values for name, values in known.items()):
        files = " or ".join(dict.fromkeys(str(table.path) for table in tables))
        names = " or ".join(concepts)
        _print_notes([f"no row of {files} has {names} = {text}; --missing-concept {text} has no effect."])
    return found


def shared_missing_value(missing: Mapping[str, Any]) -> Any:
    """The value that means not known in all concepts that can have it; None if it differs in type between them."""
    values = {value for value in missing.values() if value is not None}
    return values.pop() if len(values) == 1 else None


def _value_of_type(text: str, known: Sequence[Any]) -> Any:
    """`text` in the type of the values `known`; None where they are numbers, and it is not."""
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
    min_classes: int = 2,
) -> LabelledData:
    """The rows of a table with their labels, decoded, and with clusters, if a column is named.

    `missing` has the value of each concept that means not known. Rows for `what` ("test") must have the classes of the
    training rows, `like`; without it, each label must have at least `min_classes` classes. Labels have
    the names of `label_names`.
    """
    import numpy as np

    from unspur._data import LabelledData
    from unspur.clusters import cluster_codes
    from unspur.io.table import times_as_text
    from unspur.labels import class_label

    n = len(table.Z)
    known = {} if like is None else {label.name: label.classes for label in (like.main, *like.concepts)}
    where = "" if like is None else f" of the {what} rows"
    y, *labels = (
        replace(
            class_label(
                times_as_text(table.label(given)),
                name + where,
                n,
                missing=missing.get(given),
                classes=known.get(name),
                min_classes=min_classes,
            ),
            name=name,
        )
        for given, name in label_names((main, *concepts)).items()
    )
    cluster = None
    if clusters is not None:
        cluster_codes(table.label(clusters), clusters + where, n)  # refuses missing values by the name of the column
        cluster = times_as_text(table.label(clusters))
    return LabelledData(table.Z, y, tuple(labels), np.ones(n), cluster)


def conditions_on(file: str | Sequence[str], where: Conditions) -> Conditions:
    """Conditions split into column and value: at the "=" after the longest name of a column, if there are several."""
    if not any("=" in value for _, value in where):
        return where
    names = columns_of_files(file)
    found = []
    for condition in where:
        text = "=".join(condition)
        name = max((name for name in names if text.startswith(f"{name}=")), key=len, default=condition[0])
        found.append((name, text[len(name) + 1 :]))
    return tuple(found)


def columns_of_files(file: str | Sequence[str]) -> list[str]:
    """Names of the columns that a file, or any of several, has; none if it cannot be read."""
    files = [file] if isinstance(file, str) else file
    return list(dict.fromkeys(name for one in files for name in column_names(one, of_every_file=True)))


def ignored_columns(
    ignore: tuple[str, ...], file: str | Sequence[str], files: Iterable[str | Sequence[str] | None]
) -> tuple[str, ...]:
    """The columns to ignore of a file that is one of several: without those that only others of them have.

    Reading refuses a column that none of them has.
    """
    if not ignore or not (here := columns_of_files(file)):  # which reading says
        return ignore
    elsewhere = {name for one in files if one is not None for name in columns_of_files(one)}.difference(here)
    return tuple(name for name in ignore if name not in elsewhere)


def refuse_ignored_labels(labels: Sequence[str], ignore: Sequence[str]) -> None:
    """Raise UsageError if a column is both a label and ignored."""
    if both := [name for name in labels if name in ignore]:
        raise click.UsageError(f"{both[0]} is both a label and ignored; remove one of the two options.")


def refuse_labels_of_other_rows(labels: Sequence[str], file: str | Sequence[str], **others: Any) -> None:
    """Raise InputError if test or validation rows in another file would get the labels of FILE from .npy files."""
    from unspur.exceptions import InputError

    for option, other in others.items():
        if other is None or _resolved(other) == _resolved(file):
            continue
        there = columns_of_files(other)
        if strange := [name for name in labels if name.endswith(".npy") and name not in there]:
            have = "has a label" if len(strange) == 1 else "have labels"
            raise InputError(
                f"--{option} {other}: {' and '.join(strange)} {have} for the rows of FILE, not for these. Put labels "
                "beside the rows of each file, under the same names, in .npz files."
            )


def _resolved(file: str | Sequence[str]) -> list[Path]:
    return [Path(path).resolve() for path in ([file] if isinstance(file, str) else file)]


def read_rows(
    file: str | Sequence[str],
    labels: tuple[str, ...],
    ignore: tuple[str, ...],
    where: Conditions,
    *,
    others: Sequence[Conditions] = (),
    classes: Sequence[str] | None = (),
    cluster_column: str | None = None,
) -> Table:
    """The rows of a file, of several, or of a store that meet the conditions.

    Columns that conditions name are not features, nor are those of the conditions on `others`, the test and validation
    rows. In the labels `classes` (None: in all) and in `cluster_column`, words such as "NA" become missing values, with
    a note on standard error.
    """
    from unspur.io.files import read_table, with_missing_values

    refuse_ignored_labels(labels, ignore)
    where = conditions_on(file, where)
    condition_columns = [name for name, _ in where if name not in labels]
    other_condition_columns = {name for conditions in others for name, _ in conditions_on(file, conditions)} - {
        *labels,
        *condition_columns,
        *ignore,
    }
    if other_condition_columns:
        other_condition_columns &= set(columns_of_files(file))
    names = (*labels, *condition_columns, *sorted(other_condition_columns))
    unwanted = tuple(name for name in ignore if name not in condition_columns)
    table = read_table(file, names, unwanted)
    if classes is None:
        classes = [name for name in table.columns if name not in ("id", cluster_column)]
    table, notes = with_missing_values(table, classes, () if cluster_column is None else (cluster_column,))
    _print_notes(notes)
    for name, value in where:
        table = table.where(name, value)
    dropped = [name for name in condition_columns if name in ignore]
    return replace(table, columns={name: column for name, column in table.columns.items() if name not in dropped})


def carry_labels(table: Table, labels: Sequence[str]) -> Table:
    """The table with labels from other files as columns, under the names that they are written as."""
    from unspur.exceptions import InputError

    columns = dict(table.columns)
    for name in dict.fromkeys(labels):
        if name not in table.columns or name.endswith(".npy"):  # a file of labels
            column, stem = table.label(name), Path(name).stem
            columns.pop(name, None)
            if stem in columns:
                raise InputError(
                    f"{name} would be written as {stem!r}, but there already is a label of that name. Leave that out "
                    f"with --ignore {stem}, or rename the file."
                )
            columns[stem] = column
    return replace(table, columns=columns)


def check_labels(table: Table, main: str, concepts: Sequence[str]) -> list[str]:
    """Raise LabelError for labels that are not classes; note columns that may not be features, and return the notes."""
    from unspur.io.table import suspicious_feature_notes

    _require_classes(table.label(main), main)
    for concept in concepts:
        _require_classes(
            table.label(concept),
            concept,
            " (For a numeric concept use LEACE or SAL in Python, with concept_type='continuous'.)",
        )
    return _print_notes(suspicious_feature_notes(table))


def note_left_out(data: LabelledData, *, together: bool, of: str) -> list[str]:
    """Note on standard error how many rows have no concept, and what they are left out `of`; return the notes.

    With several concepts, a row is left out of the fit of those that it lacks, or (`together`) of all.
    """
    concepts = {label.name: label for label in data.concepts}
    if together and len(concepts) > 1:
        concepts = {" or no ".join(concepts): data.concept}
    notes = []
    for name, label in concepts.items():
        n, missing = len(label.present), int((~label.present).sum())
        if missing:
            have, are = ("has", "it is") if missing == 1 else ("have", "they are")
            what = of if len(concepts) == 1 else f"{of} of {name}"
            notes.append(f"{missing:,} of {n:,} rows {have} no {name}; {are} left out of {what}.")
    return _print_notes(notes)


def _require_classes(values: Array, name: str, hint: str = "") -> None:
    """Raise LabelError if a column has many fractions, or a different value in most rows."""
    import numpy as np

    from unspur._arrays import is_missing
    from unspur.exceptions import LabelError

    if values.ndim == 2 and values.shape[1] > 1:
        raise LabelError(
            f"{name} is an array of shape {values.shape}; a label is one column. Write each concept under a name of "
            "its own, and repeat --concept."
        )
    head = values[:PREVIEW_ROWS].tolist() if values.ndim == 1 else []
    if any(isinstance(value, list | dict | np.ndarray) for value in head):
        return  # `class_label` refuses such a column later
    known = list(dict.fromkeys(value for value in head if not is_missing(value)))
    numbers = [_as_number(value) for value in known]
    fractions = None not in numbers and any(number != round(number) for number in numbers if number is not None)
    if len(known) <= MAX_LABEL_CLASSES or not (fractions or len(known) > len(head) / 2):
        return
    many = len({value for value in values.tolist() if not is_missing(value)})
    shown = ", ".join(
        f"{number:.4g}" if fractions else str(value) for value, number in list(zip(known, numbers, strict=True))[:3]
    )
    raise LabelError(
        f"{name} has {many:,} distinct values, such as {shown}; a label has a few classes.{hint if fractions else ''}"
    )


def _as_number(value: Any) -> float | None:
    """A value as a finite number, also where it was read as text."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def draw_test_mask(data: LabelledData, seed: int) -> BoolArray:
    """Boolean mask of a stratified test split of `TEST_SHARE`; all commands draw the same one.

    Rows of a cluster stay together; without clusters, exact duplicates of a row do.
    """
    import numpy as np

    from unspur._data import TEST_SHARE
    from unspur.clusters import row_hashes

    if data.clusters is None:
        data = data.with_duplicate_clusters(row_hashes(np.asarray(data.X)))
    if data.clusters_are_duplicates and data.clusters is not None:
        _, first, code = np.unique(data.clusters, return_index=True, return_inverse=True)
        copies = f"{len(data) - len(first):,} of {len(data):,} rows are exact duplicates of others."
        advice = "Drop them, or say with --cluster which rows belong together."
        _print_notes([f"{copies} Copies of a row are all training rows or all test rows. {advice}"])
        data = replace(data, clusters=first[code])
    return data.held_out_mask(TEST_SHARE, np.random.default_rng(seed))


def note_shared_rows(rows: Mapping[str, LabelledData]) -> list[str]:
    """Note on standard error how many rows are in two of the splits; return the notes."""
    from unspur.compare import shared_rows

    return _print_notes(
        shared_rows(*(rows[name].X for name in ("training", "test", "validation") if name in rows)).values()
    )


def note_single_classes(test: LabelledData) -> list[str]:
    """Note on standard error of which concepts all test rows have the same class; return the notes."""
    seen = {label.name: label.occurring_classes for label in test.concepts}
    return _print_notes(
        f"all test rows have the same {name} ({classes[0]!s:.60}), so their accuracy does not tell how rows of another "
        f"{name} fare, and no probe can be trained on them. Pass other test rows."
        for name, classes in seen.items()
        if len(classes) == 1
    )


def caveat_about_test_rows(remover: Remover, test: LabelledData | None, file: str) -> str:
    """A sentence about test rows that a saved removal has seen or may have seen; None: some rows of `file`."""
    from unspur.removers.base import HELD_OUT_ADVICE

    if test is not None and (used := remover.used_rows_note(test.X)):
        return f"{used}. {HELD_OUT_ADVICE}"
    if test is None:
        return (
            f"Test rows are 30 % of each group of {file}; if the removal was fitted on some of them, these results are "
            "too optimistic. Heads are trained on the other rows."
        )
    return (
        "A saved removal does not record its training rows; if test rows are among them, these results are too "
        "optimistic."
    )


def check_removal_labels(remover: Remover, data: LabelledData) -> list[str]:
    """Note on standard error that a saved removal was fitted for labels of other names; return the notes.

    Concepts with classes that it was not fitted for raise LabelError.
    """
    from unspur.exceptions import LabelError

    parts = _parts_of_trace(remover)
    names = list(dict.fromkeys(part.concept for part in parts))
    main, concepts = data.main.name, data.concept_names
    for name, label, classes in zip(concepts, data.concepts, fitted_classes(remover, concepts), strict=True):
        if classes and (unknown := [value for value in label.classes if place_among(value, classes) is None]):
            raise LabelError(
                f"{name} has the value {unknown[0]!r}, and the removal was fitted for a concept of the classes "
                f"{', '.join(map(str, classes))}. Name the concept that it removes, or fit a removal of {name}."
            )
    mains = list(dict.fromkeys(part.main for part in parts))
    notes = []
    for what, fitted, given, unnamed in (
        ("concept", names, concepts, r"concept(\[\d+\])?"),
        ("main label", mains, [main], "y"),
    ):
        # In Python labels may have no names, and a file may be in another folder.
        named = fitted and not any(re.fullmatch(unnamed, name) for name in fitted)
        if named and {_stem(name) for name in given} - {_stem(name) for name in fitted}:
            notes.append(
                f"The removal was fitted for the {what} {' and '.join(map(repr, fitted))}, but "
                f"{' and '.join(map(repr, given))} was passed. Directions and tests refer to "
                f"{' and '.join(map(repr, fitted))}."
            )
        elif named and (others := [name for name in fitted if _stem(name) not in {_stem(one) for one in given}]):
            notes.append(
                f"The removal was fitted for the {what} {' and '.join(map(repr, others))} as well; "
                "directions and accuracies refer to all of them."
            )
    return _print_notes(notes)


def _parts_of_trace(remover: Remover) -> list[Any]:
    """The tests of a fit, one trace for each concept or class; none for methods without tests."""
    from unspur.trace import parts_of

    return list(parts_of(remover.trace_).values())


def fitted_classes(remover: Remover, concepts: Sequence[str]) -> list[tuple[Any, ...]]:
    """Classes that a saved removal knows of each concept, found by name or by place; () where it knows none."""
    several = bool(remover.concept_classes_) and isinstance(remover.concept_classes_[0], tuple)
    known = list(remover.concept_classes_) if several else [remover.concept_classes_]
    names = list(dict.fromkeys(part.concept for part in _parts_of_trace(remover)))
    places = [
        names.index(name) if name in names else i if len(known) == len(concepts) else len(known)
        for i, name in enumerate(concepts)
    ]
    return [known[place] if place < len(known) else () for place in places]


def require_same_encoding(table: Table, other: Table) -> None:
    """Raise InputError if two stores are of different networks, or have different principal components."""
    from unspur.embed.store import encoding_difference, encoding_of
    from unspur.exceptions import InputError

    if difference := encoding_difference(encoding_of(table.path), encoding_of(other.path)):
        raise InputError(
            f"{table.path} and {other.path} were {difference}, so their columns do not mean the same. Embed both with "
            "the same network. With --pca, embed them together, as one table with a column `split`."
        )


def note_other_encoding(remover: Remover, table: Table) -> list[str]:
    """Note on standard error that a saved removal was fitted on rows of another network; return the notes."""
    from unspur.embed.store import encoding_difference, encoding_of

    difference = encoding_difference(getattr(remover, "encoding_", None), encoding_of(table.path))
    note = (
        f"The rows of the fit and those of {table.path} were {difference}, so their columns do not mean the same, and "
        "the results are not meaningful. Embed the rows as those of the fit were."
    )
    return _print_notes([note] if difference else [])


def place_among(value: Any, classes: Sequence[Any]) -> int | None:
    """Index of a value among the classes of a file, where dates and the like are texts; None if it is none of them."""
    from unspur.io.table import time_name

    return next((k for k, one in enumerate(classes) if one == value or time_name(one) == time_name(value)), None)


def label_names(given: Sequence[str]) -> dict[str, str]:
    """What results call each label that options name: a file of labels by its stem, unless two labels share it."""
    stems = [_stem(name) for name in given]
    return {name: stem if stems.count(stem) == 1 else name for name, stem in zip(given, stems, strict=True)}


def _stem(name: str) -> str:
    return Path(name).stem if name.endswith(".npy") else name


def hold_out_test_rows(rows: dict[str, LabelledData], seed: int) -> BoolArray | None:
    """Make some of the training rows test rows if there are none; returns which of them, or None."""
    if "test" in rows:
        return None
    held = draw_test_mask(rows["training"], seed)
    rows |= {"training": rows["training"].select(~held), "test": rows["training"].select(held)}
    return held


def with_test_rows(rows: Mapping[str, LabelledData], seed: int, clusters: str | None) -> dict[str, LabelledData]:
    """Training, test and perhaps validation rows; test rows are some of the training rows if there are none.

    Splits must not have clusters, the values of the column `clusters`, in common.
    """
    from unspur._data import decode_rows

    rows = dict(rows)
    hold_out_test_rows(rows, seed)
    train = decode_rows(rows.pop("training"), "training")
    rows = {"training": train, **{name: decode_rows(part, name, like=train) for name, part in rows.items()}}
    require_disjoint_clusters(rows, clusters)
    return rows


def require_disjoint_clusters(rows: Mapping[str, LabelledData], column: str | None) -> None:
    """Raise InputError if training rows and other splits share a cluster."""
    from unspur.clusters import shared_clusters
    from unspur.exceptions import InputError
    from unspur.io.table import class_name

    train = rows["training"]
    for name, part in rows.items():
        if part is train or train.clusters is None or part.clusters is None:
            continue
        if both := shared_clusters(train.clusters, part.clusters):
            raise InputError(
                f"{len(both)} values of {column} are among the training rows and the {name} rows, such as "
                f"{min(map(class_name, both))!r}; the {name} set would not be independent. Pass {name} rows from other "
                f"clusters, or no {name} rows, to hold out whole clusters automatically."
            )
