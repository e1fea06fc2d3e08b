"""`unspur card`: a saved removal or classifier in words and tables, for a model card."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from unspur.cli.apply import caveat, measured_accuracy, predictions
from unspur.cli.console import say, say_where
from unspur.cli.data import (
    check_removal_labels,
    columns_beside,
    labelled_rows,
    missing_values,
    note_other_encoding,
    read_rows,
)
from unspur.cli.options import (
    Conditions,
    LocalPath,
    cluster_option,
    force_option,
    ignore_option,
    optional_label_options,
    refuse_input_as_output,
    seed_option,
    where_option,
)

if TYPE_CHECKING:
    from unspur import RobustClassifier
    from unspur.certificate import Certificate
    from unspur.metrics import GroupAccuracy
    from unspur.removers import Remover


@click.command()
@click.argument("model", type=LocalPath())
@click.argument("files", type=LocalPath(), nargs=-1, metavar="[FILE...]")
@click.option("--output", type=LocalPath(), help="Where the card goes (.md); without it, to standard output.")
@click.option("--title", default="", help="Heading of the card.")
@optional_label_options
@cluster_option
@ignore_option("A column to leave out; may be repeated.")
@where_option()
@seed_option
@force_option
def card(
    model: str,
    files: tuple[str, ...],
    output: str | None,
    title: str,
    main: str | None,
    concept: tuple[str, ...],
    missing_concept: str | None,
    clusters: str | None,
    ignore: tuple[str, ...],
    where: Conditions,
    seed: int,
    force: bool,
) -> None:
    r"""Write the section of a model card about a saved MODEL.

    MODEL is what unspur fit saved: a classifier, or a removal. The card is Markdown. It says what was removed, what the
    model is for and what it does not guarantee, where it comes from, and how its directions were tested.

    With the rows of FILE and their labels it also has a certificate and, for a classifier, the accuracy by group. Give
    rows that were not used in the fit.

    Example:
      unspur card birds.safetensors
      unspur card birds.safetensors test.npz --main bird \
          --concept background --output birds.md
    """
    from unspur import RobustClassifier, load
    from unspur.io.artifact import atomic, refuse_existing
    from unspur.report import card as model_card

    if files and not (main and concept):
        raise click.UsageError("Rows are measured with their labels: name them with --main and --concept.")
    if not files and (main or concept or where or clusters):
        raise click.UsageError("--main, --concept, --cluster and --where are about rows; give a FILE with them.")
    if output is not None:
        refuse_input_as_output(output, *files, model)
        refuse_existing(output, overwrite=force)
    saved = load(model)
    certificate = accuracy = None
    if files:
        assert main is not None
        certificate, accuracy = _measured(
            saved,
            files,
            ignore,
            where,
            seed,
            main=main,
            concept=concept,
            missing_concept=missing_concept,
            clusters=clusters,
        )
    text = model_card(saved, certificate=certificate, accuracy=accuracy, title=title)
    if output is None:
        click.echo(text, nl=False)
        return
    with atomic(output, overwrite=force) as temporary:
        temporary.write_text(text, encoding="utf-8")
    kind = "classifier" if isinstance(saved, RobustClassifier) else "removal"
    say_where(f"Card of the {kind}", output)


def _measured(
    model: Remover | RobustClassifier,
    files: tuple[str, ...],
    ignore: tuple[str, ...],
    where: Conditions,
    seed: int,
    *,
    main: str,
    concept: tuple[str, ...],
    missing_concept: str | None,
    clusters: str | None,
) -> tuple[Certificate, GroupAccuracy | None]:
    """The certificate on rows of files, and the accuracy by group of a classifier."""
    from unspur import RobustClassifier
    from unspur.compare import probed_rows
    from unspur.exceptions import InputError
    from unspur.metrics import GroupAccuracy
    from unspur.report.measuring import fitted_remover, measure_certificate

    remover = fitted_remover(model)
    if getattr(remover, "concept_type", "class") == "continuous":
        raise InputError(
            "The removal is of a number, and a card measures classes. In Python, pass the certificate of the numbers: "
            "unspur.report.card(model, certificate=model.certificate(X, y, concept))."
        )
    named = (main, *concept) if clusters is None else (main, *concept, clusters)
    names = getattr(remover, "feature_names_in_", None)
    ignore += columns_beside(files, names, (*named, *ignore), where)
    table = read_rows(files, named, ignore, where, classes=(main, *concept), cluster_column=clusters)
    table = table.like(names, remover.n_features_in_)
    note_other_encoding(remover, table)
    missing = missing_values(missing_concept, [table], concept)
    rows = labelled_rows(table, main, concept, missing, clusters)
    check_removal_labels(remover, rows)
    few = rows.select(probed_rows(rows, seed))
    certificate, used = measure_certificate(remover, few, seed)
    accuracy: Any = None
    if isinstance(model, RobustClassifier):
        predicted, _ = predictions(model, table)
        accuracy = measured_accuracy(table, predicted, model, main, concept, missing)
        say(f"Note: {used or caveat(model, table)}", err=True)
    elif used:
        say(f"Note: {used}", err=True)
    return certificate, accuracy if isinstance(accuracy, GroupAccuracy) else None
