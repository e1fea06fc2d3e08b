"""`unspur compare`: every remover with every chosen last layer, one table."""

from __future__ import annotations

import csv
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import click

from unspur._data import LabelledData
from unspur.cli.console import echo_json, progress_bar, say, say_command, say_where, show
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
    options_of_rows,
    other_file,
    refuse_input_as_output,
    seed_option,
    test_option,
    where_option,
    with_default,
)
from unspur.compare import RECOMMENDED, REMOVERS, Comparison, best_held_out, class_and_options, compare, to_take
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

    Lines are judged on held-out rows: those of --validation, or folds of FILE. Those that are not clearly worse than
    the best are marked. At the end stands which line to take, and the command and the Python code that make it.

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
    options = click.get_current_context().params
    if as_json:
        made = ((result, _fit_command(result, file, options)) for result in results)
        echo_json([{**result.to_dict(), "command": " ".join(words) or None} for result, words in made])
        return
    show(comparison_table(results))
    if empty := next((result.accuracy.empty_groups() for result in results if result.accuracy is not None), []):
        say(f"\nGroups without test rows, which are left out: {'; '.join(empty)}.")
    if test_file is None:
        say(f"\nTest rows are 30 % of each group of {file}, which no remover or head has seen.")
    if csv_file is not None:
        say_where("Table", csv_file)
    _say_what_to_take(results, file, options)


def _say_what_to_take(results: Sequence[Comparison], file: str, options: Mapping[str, Any]) -> None:
    """The line to go on with, why, and what makes it; beside it the one with the least loss, where it is another."""
    take, best = to_take(results), best_held_out(results)
    if take is None or best is None:
        say("\nNo line could be judged on held-out rows.")
        return
    ours = next((line for line in results if line.recommended), None)
    if take.recommended:
        why = "which is the recommendation, and not clearly worse than any other on held-out rows"
    elif ours is not None and ours.held_out is not None:
        found = ours.held_out
        why = (
            f"which has the least loss on held-out rows. The recommendation, {_name(ours)}, is clearly worse there: "
            f"by {found.above_best:.3f} ({found.low:.3f} – {found.high:.3f})"
        )
    else:
        tried = "could not be fitted or judged" if ours is not None else "was not compared"
        why = f"which has the least loss on held-out rows. The recommendation, {' + '.join(RECOMMENDED)}, {tried}"
    say(f"\nTake {_name(take)}, {why}.{_what_stays(take)}")
    _say_how(take, file, options)
    if best is not take:
        say(f"\nThe least loss on held-out rows, level with it, has {_name(best)}.")
        _say_how(best, file, options)


def _what_stays(line: Comparison) -> str:
    """What is to be said of a line that leaves the rows as they are."""
    found = "; ".join(
        f"{name} with {100 * probe.accuracy:.1f} % (chance {100 * probe.chance:.1f})"
        for name, probe in line.probes.items()
    )
    if line.remover != "none" or not found:
        return ""
    return f" It removes nothing: a probe still finds {found}. Where that must not be, take the best line that removes."


def _name(line: Comparison) -> str:
    return f"{line.head} on the rows as they are" if line.remover == "none" else f"{line.remover} + {line.head}"


def _say_how(line: Comparison, file: str, options: Mapping[str, Any]) -> None:
    words = _fit_command(line, file, options)
    if words:
        alone = "" if line.recommended else ", the removal alone"
        say(f"\nOn the command line{alone}:")
        say_command("   ", words)
    say("\nIn Python:")
    for code in line.python.splitlines():
        click.echo(f"    {code}".rstrip())


def _fit_command(line: Comparison, file: str, options: Mapping[str, Any]) -> list[str]:
    """Words of the command that fits a line, or its removal; none for rows as they are."""
    if line.remover == "none":
        return []
    words = ["unspur fit", shlex.quote(file)]
    rows = {name: value for name, value in options.items() if name not in ("test_file", "test_where")}
    words += [f"{option} {shlex.quote(text)}" for option, text in options_of_rows(rows)]
    if not line.recommended:
        method, given = class_and_options(line.remover)
        words += [f"--method {method}", *(f"--{name} {value:g}" for name, value in given.items())]
    words += [f"--balance {options['balance']}"] * (options["balance"] != "group")
    words += [f"--seed {options['seed']}"] * (options["seed"] != 0)
    return [*words, f"--output {'model' if line.recommended else 'removal'}.safetensors"]


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
        "held_out_loss",
        "above_best_low95",
        "above_best_high95",
        "level",
        "recommended",
        "probe",
        "penalty",
    ]
    with atomic(Path(path), overwrite=force) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, [*names, "seconds", "problem"])
        writer.writeheader()
        for result in results:
            flat = result.to_dict()
            flat |= flat.pop("accuracy") or {}
            flat["probe"] = max((found.accuracy for found in result.probes.values()), default="")
            if (judged := result.held_out) is not None:
                flat |= {
                    "held_out_loss": judged.loss,
                    "above_best_low95": judged.low,
                    "above_best_high95": judged.high,
                }
            writer.writerow({name: flat.get(name, "") for name in writer.fieldnames})
