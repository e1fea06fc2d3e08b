"""`unspur evaluate` and `unspur compare`: last layers with and without one removal, or with every remover."""

from __future__ import annotations

import csv
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from unspur.cli.console import echo_json, progress_bar, say, say_command, say_where, show
from unspur.cli.data import caveat_about_test_rows, note_shared_rows, read_splits, with_test_rows
from unspur.cli.options import (
    HEAD_NAMES,
    REMOVER_NAMES,
    Balance,
    LocalPath,
    MethodName,
    RowOptions,
    force_option,
    json_option,
    options_of_rows,
    refuse_input_as_output,
    row_options,
    seed_option,
    with_default,
)

if TYPE_CHECKING:
    from unspur.compare import Comparison

CSV_COLUMNS = [
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
    "seconds",
    "problem",
]


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


@click.command("compare")
@row_options("File with rows to choose on; else a fifth of FILE.")
@click.option(
    "--remover", "removers", multiple=True, type=MethodName(REMOVER_NAMES), help="Remover to try, repeatable (all)."
)
@click.option(
    "--head",
    "heads",
    multiple=True,
    type=click.Choice(HEAD_NAMES),
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
    given: RowOptions,
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
    from unspur.compare import compare
    from unspur.io.artifact import refuse_existing
    from unspur.report.tables import comparison_table

    if csv_file is not None:
        refuse_input_as_output(csv_file, given.file, given.validation, given.test_file)
        refuse_existing(csv_file, overwrite=force)
    read = read_splits(given, left_out_of="the fit of removers").rows
    rows = with_test_rows(read, seed, given.clusters)
    note_shared_rows(rows)
    removers, heads = removers or REMOVER_NAMES, heads or ("ERM", "GroupWeighted")
    splits = rows["training"], rows["test"], rows.get("validation")
    steps = len(removers) * (1 + len(heads))
    with progress_bar("compare", steps, shown=not as_json and sys.stderr.isatty()) as step:
        results = compare(*splits, removers, heads, seed, balance, step)
    if csv_file is not None:
        _write_csv(results, csv_file, force)
    options = click.get_current_context().params
    if as_json:
        echo_json(
            [{**result.to_dict(), "command": " ".join(_fit_command(result, options)) or None} for result in results]
        )
        return
    show(comparison_table(results))
    if empty := next((result.accuracy.empty_groups() for result in results if result.accuracy is not None), []):
        say(f"\nGroups without test rows, which are left out: {'; '.join(empty)}.")
    if "test" not in read:
        say(f"\nTest rows are 30 % of each group of {given.file}, which no remover or head has seen.")
    if csv_file is not None:
        say_where("Table", csv_file)
    _say_what_to_take(results, options)


def _say_what_to_take(results: Sequence[Comparison], options: Mapping[str, Any]) -> None:
    """Print which line to take, why, and how to fit it; also how to fit the line with the least loss."""
    from unspur.compare import RECOMMENDED, best_held_out, to_take

    take, best = to_take(results), best_held_out(results)
    if take is None or best is None:
        say("\nNo line could be judged on held-out rows.")
        return
    recommended = next((line for line in results if line.recommended), None)
    if take.recommended:
        why = "which is the recommendation, and not clearly worse than any other on held-out rows"
    elif recommended is not None and recommended.held_out is not None:
        found = recommended.held_out
        why = (
            f"which has the least loss on held-out rows. The recommendation, {_name(recommended)}, is clearly worse "
            f"there: by {found.above_best:.3f} ({found.low:.3f} – {found.high:.3f})"
        )
    else:
        tried = "could not be fitted or judged" if recommended is not None else "was not compared"
        why = f"which has the least loss on held-out rows. The recommendation, {' + '.join(RECOMMENDED)}, {tried}"
    say(f"\nTake {_name(take)}, {why}.{_what_stays(take)}")
    _say_how(take, options)
    if best is not take:
        say(f"\nThe least loss on held-out rows, level with it, has {_name(best)}.")
        _say_how(best, options)


def _what_stays(line: Comparison) -> str:
    """A sentence about the concept in rows that a line leaves as they are."""
    if line.remover != "none" or not line.probes:
        return ""
    found = "; ".join(
        f"{name} with {100 * probe.accuracy:.1f} % (chance {100 * probe.chance:.1f})"
        for name, probe in line.probes.items()
    )
    return f" It removes nothing: a probe still finds {found}. Where that must not be, take the best line that removes."


def _name(line: Comparison) -> str:
    return f"{line.head} on the rows as they are" if line.remover == "none" else f"{line.remover} + {line.head}"


def _say_how(line: Comparison, options: Mapping[str, Any]) -> None:
    words = _fit_command(line, options)
    if words:
        what = "" if line.recommended else ", the removal alone"
        say(f"\nOn the command line{what}:")
        say_command("   ", words)
    say("\nIn Python:")
    for code in line.python.splitlines():
        click.echo(f"    {code}".rstrip())


def _fit_command(line: Comparison, options: Mapping[str, Any]) -> list[str]:
    """Words of the command that fits a line, or only its removal; none for rows as they are."""
    from unspur.compare import class_and_options

    if line.remover == "none":
        return []
    words = ["unspur fit", shlex.quote(options["file"])]
    rows = {name: value for name, value in options.items() if name not in ("test_file", "test_where")}
    words += [f"{option} {shlex.quote(text)}" for option, text in options_of_rows(rows)]
    if not line.recommended:
        method, given = class_and_options(line.remover)
        words += [f"--method {method}", *(f"--{name} {value:g}" for name, value in given.items())]
    words += [f"--balance {options['balance']}"] * (options["balance"] != "group")
    words += [f"--seed {options['seed']}"] * (options["seed"] != 0)
    return [*words, f"--output {'model' if line.recommended else 'removal'}.safetensors"]


def _write_csv(results: Sequence[Comparison], path: str, force: bool) -> None:
    from unspur.io.artifact import atomic

    with atomic(Path(path), overwrite=force) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, CSV_COLUMNS)
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
            writer.writerow({name: flat.get(name, "") for name in CSV_COLUMNS})
