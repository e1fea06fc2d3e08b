"""`unspur evaluate`: what a removal does to a last layer, group by group."""

from __future__ import annotations

from typing import Any

import click

from unspur.lab.cli.common import (
    Conditions,
    LocalPath,
    aside,
    cluster_option,
    echo_json,
    json_option,
    label_options,
    missing_values,
    other_file,
    read_rows,
    seed_option,
    where_option,
    with_clusters,
)
from unspur.lab.cli.looking import look_at
from unspur.lab.cli.words import say, show


@click.command()
@click.argument("removal", type=LocalPath())
@click.argument("file", type=LocalPath())
@label_options
@cluster_option
@where_option()
@click.option("--test", "test_file", type=LocalPath(), help="File with test rows; else 30 % of each group of FILE.")
@where_option("test")
@seed_option
@json_option
def evaluate(
    removal: str,
    file: str,
    main: str,
    concept: Any,
    ignore: tuple[str, ...],
    missing_concept: str | None,
    clusters: str | None,
    where: Conditions,
    test_file: str | None,
    test_where: Conditions,
    seed: int,
    as_json: bool,
) -> None:
    r"""Compare a last layer with and without the REMOVAL, by group.

    It is trained on the rows of FILE and judged on test rows.

    Example:
      unspur evaluate background.safetensors train.npz --test test.npz \
          --main bird --concept background
    """
    import numpy as np

    from unspur import load
    from unspur.exceptions import InputError
    from unspur.lab.evaluation import held_out, judge_last_layer
    from unspur.lab.files import apply_removal
    from unspur.lab.report.tables import group_table
    from unspur.labels import binary_label

    if len(concept) > 1:
        raise click.UsageError("evaluate takes one --concept so far; report takes several.")
    (concept,) = concept
    remover = load(removal)
    labels = with_clusters((main, concept), clusters)
    table = read_rows(file, labels, ignore, where)
    look_at(table, main, [concept])
    test_file = other_file(file, test_file, where, test_where, "test")
    missing = missing_values(missing_concept, table, [concept])[concept]
    y = binary_label(table.label(main), main, len(table.Z))
    c = binary_label(table.label(concept), concept, len(table.Z), missing=missing)
    clean = apply_removal(remover, table)
    if test_file is not None:
        other = read_rows(test_file, aside(labels, clusters, test_file), ignore, test_where).like(
            table.features, table.Z.shape[1]
        )
        y_test = binary_label(other.label(main), main, len(other.Z), classes=y.classes)
        c_test = binary_label(other.label(concept), concept, len(other.Z), missing=missing, classes=c.classes)
        rows = {"as it is": (table.Z, other.Z), "removed": (clean.Z, apply_removal(remover, other).Z)}
    else:
        together = None if clusters is None else table.label(clusters)
        held = held_out(y, c, np.random.default_rng(seed), clusters=together)
        rows = {"as it is": (table.Z[~held], table.Z[held]), "removed": (clean.Z[~held], clean.Z[held])}
        y, y_test, c_test = y.select(~held), y.select(held), c.select(held)
    if not (y.present.all() and y_test.present.all()):
        raise InputError(f"{main} is missing in some rows; a last layer needs it in all.")
    results = {name: judge_last_layer((train, y), (test, y_test, c_test)) for name, (train, test) in rows.items()}
    if as_json:
        echo_json({name: result.to_dict() for name, result in results.items()})
        return
    show(group_table(results, main, concept))
    if test_file is None:
        say(f"\nTest rows are 30 % of each group of {file}; rows that the removal was fitted on flatter it.")
