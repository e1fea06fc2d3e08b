"""`unspur apply` and `unspur predict`: a saved removal or classifier on new rows, those of Parquet files in batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unspur.cli.console import echo_json, note, print_path, say, show
from unspur.cli.data import as_fitted, feature_names
from unspur.cli.options import PATH, Conditions, check_output, force_option, in_order, json_option, where_option

if TYPE_CHECKING:
    from unspur._typing import Array
    from unspur.io import Table
    from unspur.metrics import GroupAccuracy

#: Name of the column of predicted classes, and prefix of those of probabilities.
PREDICTED, PROBABILITY = "predicted", "probability_"


def _options(output: str) -> Callable[..., Any]:
    """FILE and the options of a command that writes something for every row; `output` is the help of --output."""
    return in_order(
        click.argument("file", type=PATH),
        click.option("--output", required=True, type=PATH, help=output),
        click.option("--labels", type=PATH, help="A CSV file with more columns for FILE, row by row."),
        click.option(
            "--label",
            "carried",
            multiple=True,
            metavar="NAME",
            help="A column that is no feature and is carried along; needed only if the model knows no names.",
        ),
        click.option("--ignore", multiple=True, metavar="NAME", help="A column to leave out; may be repeated."),
        where_option(),
        force_option,
        json_option,
    )


def _tables(
    model: Any, file: Path, apart: tuple[str, ...], ignore: tuple[str, ...], where: Conditions, labels: Path | None
) -> Iterator[Table]:
    """The rows of FILE that meet the conditions, a batch at a time, with the features of the model; and a bar."""
    from dataclasses import replace

    from tqdm.auto import tqdm

    from unspur.exceptions import InputError
    from unspur.io import read_batches

    names, empty = feature_names(model), True
    apart = tuple(dict.fromkeys((*apart, *ignore, *(name for name, _ in where))))
    if both := set(names or ()) & set(apart):
        raise InputError(f"{min(both)} is a feature of the model, which needs it. Leave out the option that names it.")
    with tqdm(unit="row", unit_scale=True, delay=1, disable=not sys.stderr.isatty()) as bar:
        for table in read_batches(file, apart, features=names, labels=labels):
            chosen = as_fitted(model, table.matching(where))
            if len(chosen):
                empty = False
                yield replace(chosen, columns=chosen.columns.drop(columns=list(ignore)))
            bar.update(len(table))
    if empty:
        raise InputError(
            f"{file} has no rows{' where ' * bool(where)}{' and '.join('='.join(pair) for pair in where)}."
        )


@click.command()
@click.argument("removal", type=PATH)
@_options("Where the rows go: .csv, .parquet, .npz or .npy.")
def apply(
    removal: Path,
    file: Path,
    output: Path,
    labels: Path | None,
    carried: tuple[str, ...],
    ignore: tuple[str, ...],
    where: Conditions,
    force: bool,
    as_json: bool,
) -> None:
    """Apply a saved REMOVAL to the rows of FILE.

    Columns that are no features are carried along. Parquet files are read and written a batch at a time, so they may
    be larger than memory.

    Example:
      unspur apply background.safetensors new.npz --output new-clean.npz
    """
    from dataclasses import replace

    from unspur import load
    from unspur.io import writing

    check_output(output, file, removal, force=force)
    model: Any = load(removal)
    n = 0
    with writing(output, overwrite=force) as write:
        for table in _tables(model, file, carried, ignore, where, labels):
            write(replace(table, X=_like(table.X, model.transform(table.X))))
            n += len(table)
    remover = getattr(model, "remover_", model)
    removed, d = remover.n_removed_, remover.n_features_in_
    if as_json:
        echo_json(
            {"output": str(output), "rows": n, "n_features": d, "n_removed": removed, "strength": remover.strength_}
        )
        return
    say(f"{n:,} rows, {removed} of {d} directions removed{remover.strength_note}.")
    print_path("Rows", output)


def _like(X: Any, values: Any) -> Any:
    """Values as a DataFrame with the columns of X, if X is one."""
    import numpy as np
    import pandas as pd

    values = np.asarray(values)
    return pd.DataFrame(values, columns=X.columns, index=X.index) if isinstance(X, pd.DataFrame) else values


@click.command()
@click.argument("model", type=PATH)
@_options("Where predictions go: .csv, .parquet or .npz.")
@click.option("--task", metavar="NAME", help="The label that is predicted, if FILE has it, to measure the accuracy.")
@click.option("--concept", multiple=True, metavar="NAME", help="Measure it by group; may be repeated.")
def predict(
    model: Path,
    file: Path,
    output: Path,
    labels: Path | None,
    carried: tuple[str, ...],
    ignore: tuple[str, ...],
    where: Conditions,
    task: str | None,
    concept: tuple[str, ...],
    force: bool,
    as_json: bool,
) -> None:
    r"""Predict the classes of the rows of FILE with a saved MODEL.

    The output has the predicted class of each row and a probability for each class, beside the columns of FILE that
    are no features. With --task and --concept the accuracy is printed, group by group.

    Example:
      unspur predict birds.safetensors new.npz --output predictions.csv
      unspur predict birds.safetensors test.csv --task bird \
          --concept background --output predictions.csv
    """
    from dataclasses import replace

    import numpy as np
    import pandas as pd

    from unspur import RobustClassifier, load
    from unspur.exceptions import InputError
    from unspur.io import plain, writing

    if concept and task is None:
        raise click.UsageError("--concept is for the accuracy by group; name the label that is predicted with --task.")
    check_output(output, file, model, force=force, suffixes=(".csv", ".parquet", ".pq", ".npz"))
    classifier = load(model)
    if not isinstance(classifier, RobustClassifier):
        raise InputError(f"{model} holds a removal without a head; unspur apply uses it. Fit without --method.")
    names = [f"{PROBABILITY}{value}" for value in classifier.classes_.tolist()]
    measured: dict[str, list[Array]] = {name: [] for name in (PREDICTED, *([task] if task else []), *concept)}
    apart = tuple(name for name in (*carried, *measured) if name != PREDICTED)
    with writing(output, overwrite=force) as write:
        for table in _tables(classifier, file, apart, ignore, where, labels):
            predicted = classifier.predict(table.X)
            probability = pd.DataFrame(classifier.predict_proba(table.X), columns=names, index=table.columns.index)
            write(replace(table.with_columns({PREDICTED: predicted}, X=probability), array=PROBABILITY[:-1]))
            for name, values in measured.items():
                values.append(predicted if name == PREDICTED else plain(table.column(name)))
    columns = {name: np.concatenate(parts) for name, parts in measured.items()}
    accuracy = _accuracy(columns, task, concept, classifier.classes_.tolist())
    counts = {str(value): int((columns[PREDICTED] == value).sum()) for value in classifier.classes_.tolist()}
    n = len(columns[PREDICTED])
    if as_json:
        found = accuracy if accuracy is None or isinstance(accuracy, float) else accuracy.to_dict()
        echo_json({"output": str(output), "rows": n, "predicted": counts, "accuracy": found})
        return
    say(f"{n:,} rows, predicted as {', '.join(f'{name} ({count:,})' for name, count in counts.items())}.")
    if isinstance(accuracy, float):
        say(f"{100 * accuracy:.1f} % are right.")
    elif accuracy is not None:
        from unspur.report.tables import group_table

        show(group_table({"accuracy": accuracy}))
    if accuracy is not None:
        note("If rows of the fit are among these, accuracy on new rows will be lower.")
    print_path("Predictions", output)


def _accuracy(
    columns: dict[str, Array], task: str | None, concept: tuple[str, ...], classes: list[Any]
) -> GroupAccuracy | float | None:
    """Accuracy over the rows whose task is known, by group if there are concepts; None without a task."""
    import pandas as pd

    from unspur.exceptions import LabelError
    from unspur.metrics import group_accuracy

    if task is None:
        return None
    frame = pd.DataFrame(columns).convert_dtypes().dropna(subset=[task])
    if unknown := [value for value in frame[task].unique().tolist() if value not in classes]:
        raise LabelError(f"{task} has the class {unknown[0]!r}, and the model predicts {', '.join(map(str, classes))}.")
    if not concept or frame[list(concept)].isna().any(axis=1).all():
        return float((frame[PREDICTED] == frame[task]).mean())
    return group_accuracy(frame[task], frame[PREDICTED].to_numpy(), frame[list(concept)], empty="nan")
