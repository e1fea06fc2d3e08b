"""`unspur compare`: every remover with every chosen last layer, one table."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import click

from unspur._data import LabelledData
from unspur.cli.console import echo_json, progress_bar, say, say_where, show
from unspur.cli.data import (
    check_labels,
    labelled_rows,
    labelled_splits,
    labels_to_read,
    missing_values,
    note_left_out,
    note_shared_rows,
    read_like,
    read_rows,
    with_clusters,
)
from unspur.cli.options import (
    Balance,
    Conditions,
    LocalPath,
    cluster_option,
    force_option,
    json_option,
    label_options,
    other_file,
    refuse_input_as_output,
    seed_option,
    test_option,
    where_option,
    with_default,
)
from unspur.compare import REMOVERS, Comparison, compare
from unspur.heads import HEADS
from unspur.io.artifact import atomic, refuse_existing
from unspur.report.tables import comparison_table


@click.command("compare")
@click.argument("file", type=LocalPath())
@label_options
@cluster_option
@where_option()
@click.option("--validation", type=LocalPath(), help="File with rows to choose on; else a fifth of FILE.")
@where_option("validation")
@test_option
@where_option("test")
@click.option(
    "--remover", "removers", multiple=True, type=click.Choice(list(REMOVERS)), help="Remover to try, repeatable (all)."
)
@click.option(
    "--head",
    "heads",
    multiple=True,
    type=click.Choice(list(HEADS)),
    help="Last layer to try; may be repeated. Default: ERM, GroupWeighted.",
)
@click.option("--csv", "csv_file", type=LocalPath(), help="Also write the table as CSV.")
@with_default(
    "--balance", "group", "Classes that get equal weight in every remover.", type=click.Choice(get_args(Balance))
)
@seed_option
@force_option
@json_option
def compare_command(
    file: str,
    main: str,
    concept: tuple[str, ...],
    ignore: tuple[str, ...],
    missing_concept: str | None,
    clusters: str | None,
    where: Conditions,
    validation: str | None,
    validation_where: Conditions,
    test_file: str | None,
    test_where: Conditions,
    removers: tuple[str, ...],
    heads: tuple[str, ...],
    csv_file: str | None,
    balance: Balance,
    seed: int,
    force: bool,
    as_json: bool,
) -> None:
    r"""Compare all removers, with last layers on top, on FILE.

    Example:
      unspur compare train.npz --test test.npz --main bird \
          --concept background --head ERM --head DFR
    """
    if csv_file is not None:
        refuse_input_as_output(csv_file, file, validation, test_file)
        refuse_existing(csv_file, overwrite=force)
    labels = with_clusters((main, *concept), clusters)
    conditions = (where, validation_where, test_where)
    table = read_rows(file, labels, ignore, where, others=conditions, classes=(main, *concept))
    check_labels(table, main, concept)
    validation = other_file(file, validation, where, validation_where, "validation")
    test_file = other_file(file, test_file, where, test_where, "test")
    missing = missing_values(missing_concept, table, concept)
    data = labelled_rows(table, main, concept, missing, clusters)
    note_left_out(data, together=True, of="the fit of removers")
    others: dict[str, LabelledData] = {}
    for name, path, chosen in (("validation", validation, validation_where), ("test", test_file, test_where)):
        if path is not None:
            own = labels if name == "validation" else labels_to_read(labels, clusters, path)
            other = read_like(table, path, own, ignore, chosen, conditions, (main, *concept))
            others[name] = labelled_rows(other, main, concept, missing, clusters, like=data, what=name)
    rows = labelled_splits(data, others, seed, clusters)
    note_shared_rows(rows)
    chosen_removers, chosen_heads = removers or tuple(REMOVERS), heads or ("ERM", "GroupWeighted")
    steps = len(chosen_removers) * (1 + len(chosen_heads))
    splits = rows["training"], rows["test"], rows.get("validation")
    with progress_bar("compare", steps, shown=not as_json and sys.stderr.isatty()) as report:
        results = compare(*splits, chosen_removers, chosen_heads, seed, balance, report)
    if csv_file is not None:
        _write_csv(results, csv_file, force)
    if as_json:
        echo_json([result.to_dict() for result in results])
        return
    show(comparison_table(results))
    if empty := next((result.accuracy.empty_groups() for result in results if result.accuracy is not None), []):
        say(f"\nGroups without test rows, which are left out: {'; '.join(empty)}.")
    if test_file is None:
        say(f"\nTest rows are 30 % of each group of {file}, which no remover or head has seen.")
    if csv_file is not None:
        say_where("Table", csv_file)


def _write_csv(results: Sequence[Comparison], path: str, force: bool) -> None:
    names = [
        "remover",
        "head",
        "removed",
        "worst",
        "worst_low95",
        "worst_high95",
        "group_average",
        "average",
        "validation_loss",
        "penalty",
    ]
    with atomic(Path(path), overwrite=force) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, [*names, "seconds", "problem"])
        writer.writeheader()
        for result in results:
            flat = result.to_dict()
            flat |= flat.pop("accuracy") or {}
            writer.writerow({name: flat.get(name, "") for name in writer.fieldnames})
