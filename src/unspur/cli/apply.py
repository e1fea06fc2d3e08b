"""`unspur apply` and `unspur predict`: a saved removal, or a saved classifier, on new rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unspur.cli.completion import columns_of
from unspur.cli.console import echo_json, say, say_where, show
from unspur.cli.data import (
    carry_labels,
    check_removal_labels,
    columns_beside,
    missing_values,
    note_other_encoding,
    place_among,
    read_rows,
    refuse_ignored_labels,
)
from unspur.cli.options import (
    Conditions,
    LocalPath,
    force_option,
    ignore_option,
    in_order,
    json_option,
    memory_option,
    optional_label_options,
    refuse_input_as_output,
    where_option,
)

if TYPE_CHECKING:
    from unspur import RobustClassifier
    from unspur.io.table import Table
    from unspur.metrics import GroupAccuracy
    from unspur.removers import Remover

#: Name of the column of predicted classes, and prefix of those of probabilities.
PREDICTED, PROBABILITY = "predicted", "probability_"


def _row_by_row(output: str, *more: Callable[..., Any]) -> Callable[..., Any]:
    """FILE and the options of a verb that writes something for every row; `output` is the help of --output."""
    return in_order(
        click.argument("files", type=LocalPath(), nargs=-1, required=True, metavar="FILE..."),
        click.option("--output", required=True, type=LocalPath(), help=output),
        *more,
        click.option(
            "--label",
            "labels",
            multiple=True,
            metavar="NAME",
            shell_complete=columns_of("files"),
            help="A column to carry along unchanged, such as a label or an id; may be repeated.",
        ),
        ignore_option("A column to leave out; may be repeated."),
        where_option(),
        force_option,
        json_option,
    )


@click.command()
@click.argument("removal", type=LocalPath())
@_row_by_row("Where the rows go: .npy, .npz, .csv or .parquet, or a folder for Parquet files.")
def apply(
    removal: str,
    files: tuple[str, ...],
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
    from unspur.io.artifact import refuse_existing
    from unspur.io.files import WRITABLE_FILES, is_parquet, write_rows
    from unspur.io.parquet import clean_parquet
    from unspur.io.table import apply_removal
    from unspur.removers import load

    if Path(output).suffix.lower() not in WRITABLE_FILES and is_parquet(files):
        if where:
            raise click.UsageError("--where chooses rows for one file; a folder gets all rows of its files.")
        refuse_ignored_labels(labels, ignore)
        remover = load(removal)
        rows = clean_parquet(remover, files, output, labels, ignore, overwrite=force)
        _report_rows(output, rows, remover, as_json)
        return
    refuse_input_as_output(output, *files, removal)
    refuse_existing(output, overwrite=force)
    remover = load(removal)
    table = carry_labels(read_rows(files, labels, ignore, where), labels, output)
    if table.columns and Path(output).suffix.lower() == ".npy":
        names = ", ".join(table.columns)
        raise InputError(
            f"{output} can hold no labels, and the rows have {names}; write .npz, .csv or .parquet, or use --ignore "
            "for each of them."
        )
    clean = apply_removal(remover, table)
    note_other_encoding(remover, table)
    write_rows(clean, output, overwrite=force)
    if table.features is None and is_parquet(files) and is_parquet((output,)):
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
                "features": features,
                "removed": removed,
                "strength": remover.strength_,
            }
        )
        return
    say(f"{rows} rows, {removed} of {features} directions removed{remover.strength_note}: {output}")


@click.command()
@click.argument("model", type=LocalPath())
@_row_by_row("Where predictions go: .csv, .npz or .parquet.", optional_label_options, memory_option)
def predict(
    model: str,
    files: tuple[str, ...],
    output: str,
    main: str | None,
    concept: tuple[str, ...],
    missing_concept: str | None,
    labels: tuple[str, ...],
    ignore: tuple[str, ...],
    where: Conditions,
    memory: str | None,
    force: bool,
    as_json: bool,
) -> None:
    r"""Predict the classes of the rows of FILE by a saved MODEL.

    MODEL is what unspur fit saved. The output has the predicted class of each row and a probability for each class,
    beside the labels of FILE. With --main and --concept the accuracy is printed, group by group. Features that have
    names are found by them, and other columns are left out.

    Example:
      unspur predict birds.safetensors new.npz --output predictions.csv
      unspur predict birds.safetensors test.csv --main bird \
          --concept background --label id --output predictions.csv
    """
    from unspur._reading import PARQUET
    from unspur.io.artifact import refuse_existing
    from unspur.io.files import write_rows

    if concept and main is None:
        raise click.UsageError("--concept is for the accuracy by group; name the label that is predicted with --main.")
    kinds = (".csv", ".npz", *PARQUET)
    if Path(output).suffix.lower() not in kinds:
        raise click.UsageError(f"--output {output}: predictions are written as {', '.join(kinds)}. Name it so.")
    refuse_input_as_output(output, *files, model)
    refuse_existing(output, overwrite=force)
    classifier = _load_classifier(model)
    label_names = () if main is None else (main, *concept)
    named = tuple(dict.fromkeys((*labels, *label_names)))
    names = getattr(classifier, "feature_names_in_", None)
    ignore += columns_beside(files, names, (*named, *ignore), where)
    table = read_rows(files, named, ignore, where, memory=memory, classes=label_names)
    carried = carry_labels(table.as_in_file(), named, output)
    table = table.like(names, classifier.n_features_in_)
    note_other_encoding(classifier.remover_, table)
    predicted, probabilities = predictions(classifier, table)
    written = _written(carried, classifier, predicted, probabilities, output)
    accuracy = None
    if main is not None:
        missing = missing_values(missing_concept, [table], concept)
        accuracy = measured_accuracy(table, predicted, classifier, main, concept, missing)
    write_rows(written, output, overwrite=force)
    if accuracy is not None:
        say(f"Note: {caveat(classifier, table)}", err=True)
    _report_predictions(output, classifier, predicted, accuracy, main, as_json)


def _load_classifier(path: str) -> RobustClassifier:
    from unspur import RobustClassifier, load
    from unspur.exceptions import InputError

    model = load(path)
    if not isinstance(model, RobustClassifier):
        raise InputError(
            f"{path} holds a removal ({type(model).__name__}) without a head, so it cannot predict. unspur apply "
            "uses it; unspur fit without --method saves a classifier."
        )
    return model


def predictions(classifier: RobustClassifier, table: Table) -> tuple[Any, Any]:
    """Predicted classes (n,) and probabilities (n, K)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")  # they were matched before
        return classifier.predict(table.Z), classifier.predict_proba(table.Z)


def _written(table: Table, classifier: RobustClassifier, predicted: Any, probabilities: Any, output: str) -> Table:
    """The table to write: predictions and the labels of the rows; a .npz has the classes as well."""
    from unspur.exceptions import InputError

    added = {PREDICTED: predicted}
    if Path(output).suffix.lower() == ".npz":
        added["classes"] = classifier.classes_
    if clash := [name for name in added if name in table.columns]:
        raise InputError(f"{table.path} has a column {clash[0]!r}, its name in {output}. Rename it, or use --ignore.")
    names = [f"{PROBABILITY}{value}" for value in classifier.classes_.tolist()]
    return replace(
        table, Z=probabilities, features=names, columns={**table.columns, **added}, array=PROBABILITY.rstrip("_")
    )


def caveat(classifier: RobustClassifier, table: Table) -> str:
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


def measured_accuracy(
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
        class_label(table.label(name), name, n, missing=missing.get(name), least=1) for name in (main, *concept)
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
    return accuracy_of(right[y.present], data.select(y.present))


def _report_predictions(
    output: str,
    classifier: RobustClassifier,
    predicted: Any,
    accuracy: GroupAccuracy | float | None,
    main: str | None,
    as_json: bool,
) -> None:
    from unspur.report.tables import group_table

    counts = {str(value): int((predicted == value).sum()) for value in classifier.classes_.tolist()}
    if as_json:
        measured = accuracy if accuracy is None or isinstance(accuracy, float) else accuracy.to_dict()
        echo_json({"output": output, "rows": len(predicted), "predicted": counts, "accuracy": measured})
        return
    rows = "1 row" if len(predicted) == 1 else f"{len(predicted)} rows"
    say(f"{rows}, predicted as {', '.join(f'{name} ({n})' for name, n in counts.items())}.")
    if isinstance(accuracy, float):
        say(f"{100 * accuracy:.1f} % are right.")
    elif accuracy is not None:
        say()
        show(group_table({"accuracy": accuracy}, main))
        say()
    say_where("Predictions", output)
