"""`unspur apply` and `unspur predict`: a saved removal or classifier on new rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unspur._text import counted
from unspur.cli.completion import columns_of
from unspur.cli.console import echo_json, print_path, say, show
from unspur.cli.data import (
    carry_labels,
    check_removal_labels,
    columns_of_files,
    conditions_on,
    fitted_classes,
    label_names,
    missing_values,
    note_other_encoding,
    place_among,
    read_rows,
    refuse_ignored_labels,
)
from unspur.cli.options import (
    Conditions,
    LocalPath,
    RowOptions,
    check_output,
    collect_row_options,
    force_option,
    ignore_option,
    in_order,
    json_option,
    optional_label_options,
    where_option,
)

if TYPE_CHECKING:
    from unspur import RobustClassifier
    from unspur.io.table import Table
    from unspur.labels import ClassLabel
    from unspur.metrics import GroupAccuracy
    from unspur.removers import Remover

#: Name of the column of predicted classes, and prefix of those of probabilities.
PREDICTED, PROBABILITY = "predicted", "probability_"


def _row_output_options(output: str, *more: Callable[..., Any]) -> Callable[..., Any]:
    """FILE and the options of a command that writes something for every row; `output` is the help of --output."""
    return in_order(
        click.argument("file", type=LocalPath(), nargs=-1, required=True, metavar="FILE..."),
        click.option("--output", required=True, type=LocalPath(), help=output),
        *more,
        click.option(
            "--label",
            "labels",
            multiple=True,
            metavar="NAME",
            shell_complete=columns_of("file"),
            help="A column to carry along unchanged, such as a label or an id; may be repeated.",
        ),
        ignore_option("A column to leave out; may be repeated."),
        where_option(),
        force_option,
        json_option,
    )


def _refuse_strength(ctx: click.Context, parameter: click.Parameter, given: str | None) -> None:  # noqa: ARG001
    """Raise UsageError for an option of the fit."""
    if given is not None:
        raise click.UsageError(
            f"The strength is part of the file. Fit with --strength {given}, or in Python use "
            f"removal.removal_.scaled({given})."
        )


@click.command()
@click.argument("removal", type=LocalPath())
@_row_output_options("Where the rows go: .npy, .npz, .csv or .parquet, or a folder for Parquet files.")
@click.option("--strength", hidden=True, expose_value=False, callback=_refuse_strength)
def apply(
    removal: str,
    file: tuple[str, ...],
    output: str,
    labels: tuple[str, ...],
    ignore: tuple[str, ...],
    where: Conditions,
    force: bool,
    as_json: bool,
) -> None:
    """Apply a saved REMOVAL to the rows of FILE.

    FILE is a file or an embedding store. Parquet files (several, a folder or a quoted pattern) go to a folder, a piece
    at a time: files of the same names and columns, in which the features are cleaned. One .parquet file as output has
    a column for each feature instead of a column of vectors.

    Example:
      unspur apply background.safetensors new.npz --output new-clean.npz
      unspur apply background.safetensors big/*.parquet --output big-clean
    """
    from unspur.exceptions import InputError
    from unspur.io.files import WRITABLE_FILES, is_parquet, write_rows
    from unspur.io.parquet import clean_parquet
    from unspur.io.table import apply_removal
    from unspur.removers import load

    if Path(output).suffix.lower() not in WRITABLE_FILES and is_parquet(file):
        if where:
            raise click.UsageError("--where chooses rows for one file; a folder gets all rows of its files.")
        refuse_ignored_labels(labels, ignore)
        remover = load(removal)
        _refuse_features(_features_in(remover, file), {"--label": labels, "--ignore": ignore})
        rows = clean_parquet(remover, file, output, labels, ignore, overwrite=force)
        _report_rows(output, rows, remover, as_json)
        return
    check_output(output, *file, removal, overwrite=force)
    remover = load(removal)
    _refuse_features(_features_in(remover, file), {"--label": labels, "--ignore": ignore})
    table = carry_labels(read_rows(file, labels, ignore, where), labels)
    if table.columns and Path(output).suffix.lower() == ".npy":
        names = ", ".join(table.columns)
        raise InputError(
            f"{output} can hold no labels, and the rows have {names}; write .npz, .csv or .parquet, or use --ignore "
            "for each of them."
        )
    clean = apply_removal(remover, table)
    note_other_encoding(remover, table)
    write_rows(clean, output, overwrite=force)
    if table.features is None and is_parquet(file) and is_parquet((output,)):
        say(
            f"Note: the vectors became the columns z0 to z{remover.n_features_in_ - 1}. To keep the columns of the "
            "file, pass a folder as --output.",
            err=True,
        )
    _report_rows(output, len(clean.Z), remover, as_json)


def _report_rows(output: str, rows: int, remover: Remover, as_json: bool) -> None:
    features, removed = remover.n_features_in_, remover.n_removed_
    if as_json:
        echo_json(
            {
                "output": output,
                "rows": rows,
                "n_features": features,
                "n_removed": removed,
                "strength": remover.strength_,
            }
        )
        return
    say(f"{counted(rows, 'row')}, {removed} of {features} directions removed{remover.strength_note}: {output}")


@click.command()
@click.argument("model", type=LocalPath())
@_row_output_options("Where predictions go: .csv, .npz or .parquet.", optional_label_options)
@collect_row_options
def predict(
    model: str,
    row_options: RowOptions[tuple[str, ...]],
    output: str,
    labels: tuple[str, ...],
    force: bool,
    as_json: bool,
) -> None:
    r"""Predict the classes of the rows of FILE with a saved MODEL.

    MODEL is what unspur fit saved. The output has the predicted class of each row and a probability for each class,
    beside the labels of FILE. With --task and --concept the accuracy is printed, group by group. Named features
    are matched by name. Other columns are ignored.

    Example:
      unspur predict birds.safetensors new.npz --output predictions.csv
      unspur predict birds.safetensors test.csv --task bird \
          --concept background --label id --output predictions.csv
    """
    from unspur import RobustClassifier, load
    from unspur._reading import PARQUET
    from unspur.exceptions import InputError
    from unspur.io.files import write_rows

    main, concept = row_options.main, row_options.concept
    if concept and main is None:
        raise click.UsageError("--concept is for the accuracy by group; name the label that is predicted with --task.")
    kinds = (".csv", ".npz", *PARQUET)
    if Path(output).suffix.lower() not in kinds:
        raise click.UsageError(f"--output {output}: predictions are written as {', '.join(kinds)}. Name it so.")
    check_output(output, *row_options.file, model, overwrite=force)
    classifier = load(model)
    if not isinstance(classifier, RobustClassifier):
        raise InputError(
            f"{model} holds a removal ({type(classifier).__name__}) without a head, so it cannot predict. unspur apply "
            "uses it; unspur fit without --method saves a classifier."
        )
    accuracy_labels = () if main is None else row_options.labels
    in_both = _features_in(classifier, row_options.file).intersection(labels)
    named = tuple(name for name in dict.fromkeys((*labels, *accuracy_labels)) if name not in in_both)
    table = _read_rows_for(classifier, row_options, named, classes=accuracy_labels)
    carried = carry_labels(table.as_in_file(), named)
    table = _with_features_of_fit(table, classifier, classifier.remover_)
    their_values = {name: table.Z[:, table.features.index(name)] for name in sorted(in_both)} if table.features else {}
    carried = replace(carried, columns={**carried.columns, **their_values})
    predicted, probabilities = _predictions(classifier, table)
    written = _prediction_table(carried, classifier, predicted, probabilities, output)
    accuracy = None
    if main is not None:
        missing = missing_values(row_options.missing_concept, [table], concept)
        accuracy = _measured_accuracy(table, predicted, classifier, main, concept, missing)
    write_rows(written, output, overwrite=force)
    if accuracy is not None:
        say(f"Note: {_training_rows_caveat(classifier, table)}", err=True)
    _report_predictions(output, classifier, predicted, accuracy, as_json)


def _read_rows_for(model: Any, row_options: RowOptions[Any], named: tuple[str, ...], **reading: Any) -> Table:
    """The rows of FILE. Columns that are neither features of the model nor named are left out, if features have names.

    If the file has no such feature, no column is left out: reading or matching says what is missing.
    """
    needed = _features_in(model, row_options.file)
    _refuse_features(
        needed, {"--task": (row_options.main,), "--concept": row_options.concept, "--ignore": row_options.ignore}
    )
    features, columns = set(getattr(model, "feature_names_in_", ())), columns_of_files(row_options.file)
    ignore = row_options.ignore
    if not features.isdisjoint(columns):
        chosen = {name for name, _ in conditions_on(row_options.file, row_options.where)}
        ignore += tuple(name for name in columns if name not in features.union(named, ignore, chosen))
    return read_rows(row_options.file, named, ignore, row_options.where, **reading)


def _features_in(model: Any, files: tuple[str, ...]) -> set[str]:
    """Names of the features of a model, if they are columns of the files."""
    features = set(getattr(model, "feature_names_in_", ()))
    return features if features.issubset(columns_of_files(files)) else set()


def _refuse_features(features: set[str], options: Mapping[str, Sequence[str | None]]) -> None:
    """Raise InputError if options name features, which a model needs."""
    from unspur.exceptions import InputError

    for option, names in options.items():
        if name := next((name for name in names if name in features), None):
            raise InputError(
                f"{option} {name}: {name} is a feature of the model, which needs it. Leave out the option, or fit a "
                f"model without {name}."
            )


def _with_features_of_fit(table: Table, model: Any, remover: Remover) -> Table:
    """The table with the features of the fit, and a note if they were made by another network."""
    table = table.with_features_of(getattr(model, "feature_names_in_", None), model.n_features_in_)
    note_other_encoding(remover, table)
    return table


def _predictions(classifier: RobustClassifier, table: Table) -> tuple[Any, Any]:
    """Predicted classes (n,) and probabilities (n, K)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")  # they were matched before
        return classifier.predict(table.Z), classifier.predict_proba(table.Z)


def _prediction_table(
    table: Table, classifier: RobustClassifier, predicted: Any, probabilities: Any, output: str
) -> Table:
    """The table to write: predictions and the labels of the rows; a .npz has the classes as well."""
    from unspur.exceptions import InputError

    added = {PREDICTED: predicted}
    if Path(output).suffix.lower() == ".npz":
        added["classes"] = classifier.classes_
    if clash := [name for name in added if name in table.columns]:
        raise InputError(
            f"{table.path} already has a column {clash[0]!r}, which {output} needs for the results. Rename it, or "
            "leave it out with --ignore."
        )
    names = [f"{PROBABILITY}{value}" for value in classifier.classes_.tolist()]
    return replace(
        table, Z=probabilities, features=names, columns={**table.columns, **added}, array=PROBABILITY.rstrip("_")
    )


def _training_rows_caveat(classifier: RobustClassifier, table: Table) -> str:
    """What a reader must know of accuracies on these rows."""
    import numpy as np

    from unspur.clusters import fingerprint, row_hashes

    rows = table.Z
    if isinstance(rows, np.ndarray) and fingerprint(row_hashes(rows)) == classifier.remover_.training_hash_:
        return "the classifier was trained on these rows, so accuracy on new rows will be lower."
    return (
        "a saved classifier does not record its training and validation rows. If these rows are among them, accuracy "
        "on new rows will be lower."
    )


def _measured_accuracy(
    table: Table,
    predicted: Any,
    classifier: RobustClassifier,
    main: str,
    concept: tuple[str, ...],
    missing: dict[str, Any],
) -> GroupAccuracy | float | None:
    """Accuracy of predicted classes (n,) by group of the concepts that some row has, or over all rows if there is none.

    It is over all rows as well if no row has all labels, and None if no row has a main label.
    """
    import numpy as np

    from unspur._arrays import is_missing
    from unspur._data import LabelledData
    from unspur.compare import accuracy_of
    from unspur.exceptions import LabelError
    from unspur.io.table import times_as_text
    from unspur.labels import class_label

    n, known = len(table.Z), classifier.classes_

    def is_empty(name: str) -> bool:
        values = table.label(name).ravel().tolist()
        return all(is_missing(value) or value == missing.get(name) for value in values)

    if is_empty(main):
        say(f"Note: {main} is empty in all rows, so no accuracy is measured.", err=True)
        return None
    empty = [name for name in concept if is_empty(name)]
    for name in empty:
        say(f"Note: {name} is empty in all rows, so accuracy is not by group of {name}.", err=True)
    concept = tuple(name for name in concept if name not in empty)
    y, *concepts = (
        class_label(times_as_text(table.label(given)), name, n, missing=missing.get(given), min_classes=1)
        for given, name in label_names((main, *concept)).items()
    )
    places = [place_among(value, known.tolist()) for value in y.classes]
    if None in places:
        raise LabelError(
            f"{main} has the class {y.classes[places.index(None)]!r}, and the classifier was fitted for the classes "
            f"{', '.join(map(str, known.tolist()))}. Name the label that it predicts, with classes written alike."
        )
    right = predicted == known[places][y.codes]
    if concept and not np.logical_and.reduce([y.present, *(label.present for label in concepts)]).any():
        names = " and ".join((main, *concept))
        say(f"Note: no row has {names} together, so accuracy is not by group.", err=True)
        concept = ()
    if not concept:
        return float(right[y.present].mean())
    data = LabelledData(predicted, y, tuple(concepts), np.ones(n))  # rows may be in files, and are not needed
    check_removal_labels(classifier.remover_, data)
    # Groups have the names of the fit: where some labels are missing, 0 may be 0.0 in a file.
    fitted = fitted_classes(classifier.remover_, data.concept_names)
    y = replace(y, classes=tuple(known[places].tolist()))
    concepts = [_called_as(label, classes) for label, classes in zip(concepts, fitted, strict=True)]
    data = LabelledData(predicted, y, tuple(concepts), np.ones(n))
    return accuracy_of(right[y.present], data.select(y.present))


def _called_as(label: ClassLabel, classes: Sequence[Any]) -> ClassLabel:
    """The label with the names that a fit has for its classes; others keep theirs."""
    places = [place_among(value, classes) for value in label.classes]
    names = (value if k is None else classes[k] for k, value in zip(places, label.classes, strict=True))
    return replace(label, classes=tuple(names))


def _report_predictions(
    output: str,
    classifier: RobustClassifier,
    predicted: Any,
    accuracy: GroupAccuracy | float | None,
    as_json: bool,
) -> None:
    from unspur.report.tables import group_table

    counts = {str(value): int((predicted == value).sum()) for value in classifier.classes_.tolist()}
    if as_json:
        measured = accuracy if accuracy is None or isinstance(accuracy, float) else accuracy.to_dict()
        echo_json({"output": output, "rows": len(predicted), "predicted": counts, "accuracy": measured})
        return
    say(f"{counted(len(predicted), 'row')}, predicted as {', '.join(f'{name} ({n})' for name, n in counts.items())}.")
    if isinstance(accuracy, float):
        say(f"{100 * accuracy:.1f} % are right.")
    elif accuracy is not None:
        say()
        show(group_table({"accuracy": accuracy}))
        say()
    print_path("Predictions", output)
