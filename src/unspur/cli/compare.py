"""`unspur compare`: heads with and without every remover."""

from __future__ import annotations

import csv
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from unspur.cli.completion import column_names
from unspur.cli.console import echo_json, print_path, progress_bar, say, say_command, show
from unspur.cli.data import (
    conditions_on,
    note_shared_rows,
    note_single_classes,
    read_splits,
    with_test_rows,
)
from unspur.cli.fit import fits_each_concept
from unspur.cli.options import (
    HEAD_NAMES,
    REMOVER_NAMES,
    Balance,
    LocalPath,
    MethodName,
    RowOptions,
    check_output,
    force_option,
    json_option,
    options_of_rows,
    seed_option,
    with_default,
    with_row_options,
)

if TYPE_CHECKING:
    from unspur._data import LabelledData
    from unspur.compare import Comparison
    from unspur.exceptions import Parameter

CSV_COLUMNS = [
    "remover",
    "head",
    "n_removed",
    "worst",
    "worst_low95",
    "worst_high95",
    "group_average",
    "average",
    "validation_loss",
    "held_out_loss",
    "above_best_low95",
    "above_best_high95",
    "tied_with_best",
    "recommended",
    "probe",
    "penalty",
    "seconds",
    "problem",
]


@click.command("compare")
@with_row_options("File with rows to choose on. Default: a fifth of each group of FILE.")
@click.option(
    "--remover",
    "removers",
    multiple=True,
    type=MethodName(REMOVER_NAMES),
    help="Remover to try; may be repeated. Default: all.",
)
@click.option(
    "--head",
    "heads",
    multiple=True,
    type=click.Choice(HEAD_NAMES),
    help="Head to try; may be repeated. Default: ERM, GroupWeighted.",
)
@click.option("--csv", "csv_file", type=LocalPath(), help="Also write the table as CSV.")
@with_default(
    "--balance", "group", "Classes that get equal weight in every remover.", type=click.Choice(get_args(Balance))
)
@seed_option
@force_option
@json_option
def compare_command(
    row_options: RowOptions[str],
    removers: tuple[str, ...],
    heads: tuple[str, ...],
    csv_file: str | None,
    balance: Balance,
    seed: int,
    force: bool,
    as_json: bool,
) -> None:
    r"""Compare all removers, with heads on top, on FILE.

    Combinations are evaluated on held-out rows: those of --validation, or folds of FILE. Those not clearly worse than
    the best are tied with it, and marked. The output ends with the combination to take, and with the command and the
    Python code that fit it.

    Example:
      unspur compare train.npz --test test.npz --task bird \
          --concept background --head ERM --head DFR
    """
    from unspur.compare import compare
    from unspur.exceptions import InputError
    from unspur.report.tables import comparison_table

    if csv_file is not None:
        inputs = row_options.file, row_options.validation, row_options.test_file
        check_output(csv_file, *inputs, overwrite=force, option="--csv")
    found = read_splits(row_options, left_out_of="the fit of removers", together=True)
    read = found.rows
    rows = with_test_rows(read, seed, row_options.clusters)
    note_shared_rows(rows)
    note_single_classes(rows["test"])
    removers, heads = removers or REMOVER_NAMES, heads or ("ERM", "GroupWeighted")
    splits = rows["training"], rows["test"], rows.get("validation")
    steps = len(removers) * (1 + len(heads))
    with progress_bar("compare", steps, shown=not as_json and sys.stderr.isatty()) as step:
        results = compare(
            *splits,
            removers,
            heads,
            seed,
            balance,
            step,
            missing_concept=found.missing_concept,
            format_error=lambda error: error.format(_as_option),
        )
    if all(result.problem for result in results):
        raise InputError(f"No combination could be evaluated. {' '.join(dict.fromkeys(r.problem for r in results))}")
    if csv_file is not None:
        _write_csv(results, csv_file, force)
    options = click.get_current_context().params
    other_fits = {result.remover: _note_on_other_fit(result.remover, read) for result in results}
    if as_json:
        echo_json([_as_json(result, options, other_fits[result.remover]) for result in results])
        return
    show(comparison_table(results))
    if empty := next((result.accuracy.empty_groups() for result in results if result.accuracy is not None), []):
        say(f"\nGroups without test rows, which are left out: {'; '.join(empty)}.")
    if "test" not in read:
        say(f"\nTest rows are 30 % of each group of {row_options.file}, which no remover or head has seen.")
    if csv_file is not None:
        print_path("Table", csv_file)
    _print_recommendation(results, options, other_fits)


def _as_json(result: Comparison, options: Mapping[str, Any], other_fit: str) -> dict[str, Any]:
    command = " ".join(_fit_command(result, options)) or None
    notes = [*result.notes, *([other_fit] if other_fit and not result.recommended else [])]
    return {**result.to_dict(), "notes": notes, "command": command}


def _note_on_other_fit(remover: str, rows: Mapping[str, LabelledData]) -> str:
    """How the removal that `unspur fit --method` saves differs from that of the table; "" if it does not."""
    from unspur.compare import class_and_options

    partly_known = any((rows[name].contributes & ~rows[name].concept_known).any() for name in rows if name != "test")
    if remover == "none" or not partly_known or not fits_each_concept(class_and_options(remover)[0]):
        return ""
    names = " and ".join(rows["training"].concept_names)
    return (
        "The command fits the removal of each concept on all rows that have it. The removal of the table was fitted "
        f"on the rows that have {names}, as the Python code does: there it is model.remover_."
    )


def _as_option(parameter: Parameter) -> str:
    """A parameter of the library as an option of this command; one that it does not have, as in Python."""
    from unspur.cli.program import as_option

    option = as_option(parameter)
    known = {name for one in click.get_current_context().command.params for name in one.opts}
    return option if option.partition(" ")[0] in known else f"{parameter} in Python"


def _print_recommendation(
    results: Sequence[Comparison], options: Mapping[str, Any], other_fits: Mapping[str, str]
) -> None:
    """Print which combination to take, why, and how to fit it; also how to fit the one with the smallest loss."""
    from unspur.compare import RECOMMENDED, best_held_out, recommended_result

    take, best = recommended_result(results), best_held_out(results)
    if take is None or best is None:
        say("\nNo combination could be evaluated on held-out rows.")
        return
    recommended = next((result for result in results if result.recommended), None)
    if take.recommended:
        why = "which is the recommendation, and not clearly worse than any other on held-out rows"
    elif recommended is not None and recommended.held_out is not None:
        found = recommended.held_out
        why = (
            f"which has the smallest loss on held-out rows. The recommendation, {_name(recommended)}, is clearly worse "
            f"there: by {found.above_best:.3f} ({found.low:.3f} – {found.high:.3f})"
        )
    else:
        why = f"which has the smallest loss on held-out rows. The recommendation, {' + '.join(RECOMMENDED)}, "
        if recommended is None:
            why += "was not compared"
        else:
            why += f"has no such loss. {(recommended.problem or recommended.held_out_problem).removesuffix('.')}"
    say(f"\nTake {_name(take)}, {why}.{_concept_left(take)}")
    _say_how(take, options, other_fits[take.remover])
    if best is not take:
        say(f"\n{_name(best)} has the smallest loss on held-out rows; the two are tied.")
        _say_how(best, options, other_fits[best.remover])


def _concept_left(result: Comparison) -> str:
    """A sentence about the concept in the rows if a combination has no removal."""
    if result.remover != "none" or not result.probes:
        return ""
    found = "; ".join(
        f"{name} with {100 * probe.accuracy:.1f} % (chance {100 * probe.chance:.1f})"
        for name, probe in result.probes.items()
    )
    return (
        f" It removes nothing: a probe still predicts {found}. If the concept must be removed, use the best "
        "combination with a removal."
    )


def _name(result: Comparison) -> str:
    return f"{result.head} without a removal" if result.remover == "none" else f"{result.remover} + {result.head}"


def _say_how(result: Comparison, options: Mapping[str, Any], other_fit: str) -> None:
    words = _fit_command(result, options)
    if words:
        what = "" if result.recommended else ", the removal alone"
        say(f"\nOn the command line{what}:")
        say_command("   ", words)
        if other_fit and not result.recommended:
            say(other_fit)
    say("\nIn Python:")
    for code in result.python.splitlines():
        click.echo(f"    {code}".rstrip())


def _fit_command(result: Comparison, options: Mapping[str, Any]) -> list[str]:
    """Words of the command that fits a combination, or only its removal; none without a removal."""
    from unspur.compare import class_and_options

    if result.remover == "none":
        return []
    words = ["unspur fit", shlex.quote(options["file"])]
    rows = {name: value for name, value in options.items() if name not in ("test_file", "test_where")}
    there = {name for file in (options["file"], options["validation"]) if file for name in column_names(file)}
    only_tested = set(column_names(options["test_file"] or options["file"])) - there
    rows["ignore"] = tuple(name for name in options["ignore"] if name not in only_tested)
    words += [f"{option} {shlex.quote(text)}" for option, text in options_of_rows(rows)]
    named = {options["main"], *options["concept"], options["clusters"], *options["ignore"]}
    file, validation = options["file"], options["validation"] or options["file"]
    conditions = *conditions_on(file, options["where"]), *conditions_on(validation, options["validation_where"])
    named |= {column for column, _ in conditions}
    # Columns of conditions on test rows are no features of the comparison either.
    tested = conditions_on(options["test_file"] or file, options["test_where"])
    test_columns = dict.fromkeys(column for column, _ in tested if column not in named)
    words += [f"--ignore {shlex.quote(name)}" for name in test_columns if name in there]
    if not result.recommended:
        method, given = class_and_options(result.remover)
        words += [f"--method {method}", *(f"--{name} {value:g}" for name, value in given.items())]
    words += [f"--balance {options['balance']}"] * (options["balance"] != "group")
    words += [f"--seed {options['seed']}"] * (options["seed"] != 0)
    return [*words, f"--output {'model' if result.recommended else 'removal'}.safetensors"]


def _write_csv(results: Sequence[Comparison], path: str, force: bool) -> None:
    from unspur._files import atomic

    with atomic(Path(path), overwrite=force) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, CSV_COLUMNS)
        writer.writeheader()
        for result in results:
            flat = result.to_dict()
            flat |= flat.pop("accuracy") or {}
            flat["probe"] = max((found.accuracy for found in result.probes.values()), default="")
            if (held_out := result.held_out) is not None:
                flat |= {
                    "held_out_loss": held_out.loss,
                    "above_best_low95": held_out.low,
                    "above_best_high95": held_out.high,
                }
            writer.writerow({name: flat.get(name, "") for name in CSV_COLUMNS})
