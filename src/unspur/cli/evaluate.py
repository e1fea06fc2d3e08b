"""`unspur evaluate`: accuracy of last layers before and after a removal, by group."""

from __future__ import annotations

import click

from unspur.cli.console import echo_json, say, show
from unspur.cli.data import caveat_about_test_rows, note_shared_rows, read_splits, with_test_rows
from unspur.cli.options import LocalPath, RowOptions, json_option, row_options, seed_option


@click.command()
@click.argument("removal", type=LocalPath())
@row_options("File with rows to choose penalties on; else a fifth of FILE.")
@seed_option
@json_option
def evaluate(removal: str, given: RowOptions, seed: int, as_json: bool) -> None:
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
    splits = read_splits(given, remover)
    rows = with_test_rows(splits.rows, seed, given.clusters)
    notes = splits.notes + note_shared_rows(rows)
    found = evaluate_removal(Evaluator.of(rows, seed), remover, cleaned(remover, rows))
    lines = dict(zip(("as it is", "removed"), found.lines, strict=True))
    caveat = caveat_about_test_rows(given.file, held_out="test" not in splits.rows)
    if as_json:
        layers = {name: line.of_layer() for name, line in lines.items()}
        layers |= {f"{n}, group-weighted": line.weighted.of_layer() for n, line in lines.items() if line.weighted}
        verdict = accuracy_verdict(found.lines)
        echo_json({**layers, "choice": found.choice, "verdict": verdict, "notes": [*notes, caveat]})
        return
    results, penalties = penalty_lines(lines)
    show(group_table(results, given.main, penalties=penalties))
    say()
    for sentence in accuracy_verdict(found.lines):
        say(sentence)
    say()
    show(penalty_table(lines))
    for sentence in found.choice:
        say(sentence)
    say(f"\n{caveat}")
