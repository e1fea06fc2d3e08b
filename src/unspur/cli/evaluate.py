"""`unspur evaluate`: what a removal does to a last layer, group by group."""

from __future__ import annotations

import click

from unspur.cli.console import echo_json, say, show
from unspur.cli.data import (
    caveat_about_test_rows,
    check_labels,
    check_removal_labels,
    labelled_rows,
    labelled_splits,
    labels_to_read,
    missing_values,
    note_shared_rows,
    read_like,
    read_rows,
    with_clusters,
)
from unspur.cli.options import (
    Conditions,
    LocalPath,
    cluster_option,
    json_option,
    label_options,
    other_file,
    seed_option,
    test_option,
    where_option,
)


@click.command()
@click.argument("removal", type=LocalPath())
@click.argument("file", type=LocalPath())
@label_options
@cluster_option
@where_option()
@test_option
@where_option("test")
@click.option("--validation", type=LocalPath(), help="File with rows to choose penalties on; else a fifth of FILE.")
@where_option("validation")
@seed_option
@json_option
def evaluate(
    removal: str,
    file: str,
    main: str,
    concept: tuple[str, ...],
    ignore: tuple[str, ...],
    missing_concept: str | None,
    clusters: str | None,
    where: Conditions,
    test_file: str | None,
    test_where: Conditions,
    validation: str | None,
    validation_where: Conditions,
    seed: int,
    as_json: bool,
) -> None:
    r"""Compare last layers with and without the REMOVAL, by group.

    They are trained on the rows of FILE, their penalty is chosen on validation rows, and they are judged on test rows:
    a plain layer, and one that gives every group the same weight.

    Example:
      unspur evaluate background.safetensors train.npz --test test.npz \
          --main bird --concept background
    """
    from unspur.removers import load
    from unspur.report.baselines import Evaluator, cleaned, evaluate_removal
    from unspur.report.page.verdict import accuracy_verdict
    from unspur.report.tables import group_table, penalty_lines, penalty_table

    remover = load(removal)
    labels = with_clusters((main, *concept), clusters)
    conditions = (where, test_where, validation_where)
    table = read_rows(file, labels, ignore, where, others=conditions, classes=(main, *concept))
    notes = check_labels(table, main, concept)
    table = table.like(getattr(remover, "feature_names_in_", None), remover.n_features_in_)
    missing = missing_values(missing_concept, table, concept)
    data = labelled_rows(table, main, concept, missing, clusters)
    notes += check_removal_labels(remover, data)
    test_file = other_file(file, test_file, where, test_where, "test")
    validation = other_file(file, validation, where, validation_where, "validation")
    others = {"test": (test_file, test_where), "validation": (validation, validation_where)}
    tables = {
        name: read_like(
            table, path, labels_to_read(labels, clusters, path), ignore, chosen, conditions, (main, *concept)
        )
        for name, (path, chosen) in others.items()
        if path is not None
    }
    labelled = {
        name: labelled_rows(part, main, concept, missing, clusters, like=data, what=name)
        for name, part in tables.items()
    }
    rows = labelled_splits(data, labelled, seed, clusters)
    notes += note_shared_rows(rows)
    found = evaluate_removal(Evaluator.of(rows, seed), remover, cleaned(remover, rows))
    names, caveat = ("as it is", "removed"), caveat_about_test_rows(file, held_out=test_file is None)
    if as_json:
        said = {name: line.of_layer() for name, line in zip(names, found.lines, strict=True)}
        said |= {
            f"{name}, group-weighted": line.weighted.of_layer()
            for name, line in zip(names, found.lines, strict=True)
            if line.weighted is not None
        }
        echo_json({**said, "choice": found.choice, "verdict": accuracy_verdict(found.lines), "notes": [*notes, caveat]})
        return
    results, penalties = penalty_lines(dict(zip(names, found.lines, strict=True)))
    show(group_table(results, main, penalties=penalties))
    say()
    for sentence in accuracy_verdict(found.lines):
        say(sentence)
    say()
    show(penalty_table(dict(zip(names, found.lines, strict=True))))
    for sentence in found.choice:
        say(sentence)
    say(f"\n{caveat}")
