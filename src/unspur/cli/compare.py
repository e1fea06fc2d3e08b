"""`unspur compare`: heads with and without every remover."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unspur.cli.console import echo_json, print_path, progress_bar, say, say_command, show
from unspur.cli.data import read_parts, with_test_rows
from unspur.cli.options import (
    BALANCES,
    HEAD_NAMES,
    PATH,
    REMOVER_NAMES,
    RowOptions,
    check_output,
    force_option,
    json_option,
    row_options,
    seed_option,
    with_default,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unspur.compare import Comparison


@click.command("compare")
@row_options(test=True, validation="File with rows to choose on. Default: a fifth of each group of FILE.")
@click.option(
    "--remover",
    "removers",
    multiple=True,
    type=click.Choice(REMOVER_NAMES),
    metavar="NAME",
    help=f"Remover to try; may be repeated. Default: all, {', '.join(REMOVER_NAMES)}.",
)
@click.option(
    "--head",
    "heads",
    multiple=True,
    type=click.Choice(HEAD_NAMES),
    metavar="NAME",
    help=f"Head to try, of {', '.join(HEAD_NAMES)}; may be repeated. Default: ERM, GroupWeighted.",
)
@click.option("--csv", "csv_file", type=PATH, help="Also write the table as CSV.")
@with_default("--balance", "group", "Classes that get equal weight in every remover.", type=click.Choice(BALANCES))
@seed_option
@force_option
@json_option
def compare_command(
    rows: RowOptions,
    removers: tuple[str, ...],
    heads: tuple[str, ...],
    csv_file: Path | None,
    balance: str,
    seed: int,
    force: bool,
    as_json: bool,
) -> None:
    r"""Compare all removers, with heads on top, on FILE.

    Combinations are evaluated on held-out rows: those of --validation, or folds of FILE. Those not clearly worse than
    the best are tied with it, and marked. The output ends with the combination to take, and the command that fits it.

    Example:
      unspur compare train.csv --test test.csv --task bird \
          --concept background --head ERM --head DFR
    """
    from unspur.compare import compare
    from unspur.exceptions import InputError
    from unspur.report.tables import comparison_table

    if csv_file is not None:
        check_output(csv_file, rows.file, rows.test, rows.validation, force=force)
    parts = with_test_rows(read_parts(rows), seed)
    removers, heads = removers or REMOVER_NAMES, heads or ("ERM", "GroupWeighted")
    train, test, validation = (
        parts[name].rows() if name in parts else None for name in ("training", "test", "validation")
    )
    steps = len(removers) * (1 + len(heads))
    with progress_bar("compare", steps, shown=not as_json and sys.stderr.isatty()) as step:
        results = compare(train, test, validation, removers, heads, seed, balance, step)
    if all(result.problem for result in results):
        raise InputError(f"No combination could be evaluated. {' '.join(dict.fromkeys(r.problem for r in results))}")
    if csv_file is not None:
        _write_csv(results, csv_file, force)
    if as_json:
        commands = [_fit_command(one, rows, balance, seed) for one in results]
        found = zip(results, commands, strict=True)
        echo_json([{**one.to_dict(), "command": words and shlex.join(words)} for one, words in found])
        return
    show(comparison_table(results))
    if rows.test is None and not rows.test_where:
        say(f"\nTest rows are 30 % of each group of {rows.file}, which no remover or head has seen.")
    if csv_file is not None:
        print_path("Table", csv_file)
    _say_which_to_take(results, rows, balance, seed)


def _say_which_to_take(results: Sequence[Comparison], rows: RowOptions, balance: str, seed: int) -> None:
    """Print which combination to take, why, and the command that fits it."""
    from unspur.compare import RECOMMENDED, best_held_out, recommended_result

    take, best = recommended_result(results), best_held_out(results)
    if take is None or best is None:
        say("\nNo combination could be evaluated on held-out rows.")
        return
    recommended = next((result for result in results if result.recommended), None)
    if take.recommended:
        why = "the recommendation, which is not clearly worse than any other on held-out rows"
    elif recommended is not None and recommended.held_out is not None:
        why = f"which has the smallest loss on held-out rows, clearly smaller than that of {' + '.join(RECOMMENDED)}"
    else:
        why = "which has the smallest loss on held-out rows"
    say(f"\nTake {_name(take)}, {why}.")
    if take.remover == "none":
        say("It removes nothing, so a probe can still read the concept.")
    for result in [take, *([] if best is take else [best])]:
        if words := _fit_command(result, rows, balance, seed):
            say_command(words, "Next:" if result is take else f"Or {_name(result)}, the smallest loss:")


def _name(result: Comparison) -> str:
    return f"{result.head} without a removal" if result.remover == "none" else f"{result.remover} + {result.head}"


def _fit_command(result: Comparison, rows: RowOptions, balance: str, seed: int) -> list[str] | None:
    """Words of the command that fits a combination, or its removal alone; None without a removal."""
    from unspur.compare import class_and_options

    if result.remover == "none":
        return None
    columns = dict.fromkeys([*rows.ignore, *(name for name, _ in rows.test_where)])
    known = {name for name, _ in (*rows.where, *rows.validation_where)}
    words = rows.words(test=None, test_where=(), ignore=tuple(name for name in columns if name not in known))
    if not result.recommended:
        method, given = class_and_options(result.remover)
        words += ["--method", method, *(word for name, value in given.items() for word in (f"--{name}", f"{value:g}"))]
    words += ["--balance", balance] * (balance != "group") + ["--seed", str(seed)] * (seed != 0)
    output = "model.safetensors" if result.recommended else "removal.safetensors"
    return ["unspur", "fit", str(rows.file), *words, "--output", output]


def _write_csv(results: Sequence[Comparison], path: Path, force: bool) -> None:
    """One line for each combination."""
    import pandas as pd

    from unspur._files import atomic

    def flat(result: Comparison) -> dict[str, Any]:
        found = result.to_dict()
        accuracy, held_out = found.pop("accuracy") or {}, found.pop("held_out") or {}
        names = ("worst", "worst_low95", "worst_high95", "group_average", "average")
        probe = max((one.accuracy for one in result.probes.values()), default=None)
        plain = {name: value for name, value in found.items() if isinstance(value, str | int | float | None)}
        loss = {"held_out_loss": held_out.get("loss"), "above_best": held_out.get("above_best")}
        return {**plain, **{name: accuracy.get(name) for name in names}, **loss, "probe": probe}

    with atomic(path, overwrite=force) as temporary:
        pd.DataFrame([flat(result) for result in results]).to_csv(temporary, index=False)
