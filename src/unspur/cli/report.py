"""`unspur report`: everything that a removal does, on one page."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from unspur.cli.console import echo_json, note, print_path, progress_bar, say, say_command, warnings_as_notes
from unspur.cli.data import Part, read_parts, with_test_rows
from unspur.cli.fit import fitted
from unspur.cli.options import (
    FITTING_PARAMETERS,
    HEAD_NAMES,
    PATH,
    REMOVER_NAMES,
    RowOptions,
    check_output,
    fitting_options,
    force_option,
    json_option,
    row_options,
    seed_option,
)

if TYPE_CHECKING:
    from unspur.io import Table
    from unspur.report.results import Findings

#: What a removal can be compared with.
METHODS = [name for name in (*REMOVER_NAMES, *HEAD_NAMES) if name != "none"]
root_option = click.option("--root", type=PATH, help="Folder of the pictures. Default: folder of FILE.")


@click.command("report")
@row_options(test=True, validation="File with rows for testing directions and tuning heads.")
@click.option("--output", default="report.html", show_default=True, type=PATH, help="Where the page goes.")
@click.option("--removal", type=PATH, help="A removal that unspur fit saved; else one is fitted here.")
@click.option("--save", type=PATH, help="Keep the removal that is fitted here (a .safetensors file).")
@click.option(
    "--with",
    "compared",
    multiple=True,
    type=click.Choice(METHODS),
    metavar="NAME",
    help=f"A method to compare with, may be repeated: {', '.join(METHODS)}.",
)
@click.option(
    "--show",
    "shown",
    metavar="NAME",
    help="What to show for each row: a column of paths or texts, or an array of pictures.",
)
@root_option
@click.option("--title", help="Title of the page.")
@fitting_options
@seed_option
@force_option
@json_option
def report_command(
    rows: RowOptions,
    output: Path,
    removal: Path | None,
    save: Path | None,
    compared: tuple[str, ...],
    shown: str | None,
    root: Path | None,
    title: str | None,
    seed: int,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    r"""Measure a removal and write an HTML report.

    The page is one HTML file that opens in any browser, without a network. Without --removal the concept is found in
    the rows of FILE first; without test rows 30 % of each group are held out before that.

    Example:
      unspur report birds.csv --task bird --concept background \
          --show picture --with LEACE --output birds.html
    """
    from unspur import load
    from unspur.report.measuring import N_STEPS, measure
    from unspur.report.page import check_page, write_page

    inputs = rows.file, rows.test, rows.validation, removal
    check_page(output, overwrite=force)
    check_output(output, *inputs, force=force, suffixes=(".html", ".htm"))
    if save is not None:
        check_output(save, *inputs, force=force, suffixes=(".safetensors",))
    _refuse_settings_of_another_fit(removal, save)
    model = None if removal is None else load(removal)
    parts = with_test_rows(read_parts(rows, model, () if shown is None else (shown,)), seed)
    train, test, validation = parts["training"], parts["test"], parts.get("validation")
    content = {} if shown is None else shown_content(shown, test.table, root)
    verbose = not as_json and sys.stderr.isatty()
    if model is None:
        model = _fitted_or_pooled(train, validation, {"seed": seed, "verbose": verbose, **options})
    else:
        note("If test rows are among those of the fit, these results are too optimistic.")
    if save is not None:
        model.save(save, overwrite=force)
    words = ["unspur", "report", str(rows.file), *rows.words(), *(["--removal", str(removal)] if removal else [])]
    others = {
        *rows.columns,
        shown,
        "id",
        *(name for name, _ in (*rows.where, *rows.test_where, *rows.validation_where)),
    }
    with progress_bar("report", N_STEPS + len(compared), shown=verbose) as step, warnings_as_notes():
        found = measure(
            model,
            train.rows(),
            test.rows(),
            validation=None if validation is None else validation.rows(),
            main=rows.task,
            concept=rows.concept,
            compare=compared,
            seed=seed,
            saved_path=None if removal is None and save is None else str(removal or save),
            command=shlex.join(words),
            cli_source=shlex.join([str(rows.file), *rows.words()]),
            **content,
            ids=test.table.columns["id"].astype(str).tolist() if "id" in test.table.columns else None,
            row_numbers=(str(rows.test or rows.file), test.table.columns.index.tolist()),
            columns=_plain_columns(train, others),
            callback=step,
        )
    write_page(found, output, title=title, overwrite=force)
    _print_result(found, output, save, as_json)


def _refuse_settings_of_another_fit(removal: Path | None, save: Path | None) -> None:
    """Raise UsageError for settings of a fit beside a removal that is fitted already."""
    ctx = click.get_current_context()
    typed = [name for name in FITTING_PARAMETERS if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    typed += ["save"] * (save is not None)
    if removal is not None and typed:
        raise click.UsageError(f"--{typed[0].replace('_', '-')} is for a removal that is fitted here, not --removal.")


def _fitted_or_pooled(train: Part, validation: Part | None, settings: dict[str, Any]) -> Any:
    """The fitted JSE; if validation rows are too few to test on, all rows are one set, as in `RobustClassifier`."""
    from dataclasses import replace

    import pandas as pd

    from unspur.exceptions import GroupSizeError

    try:
        return fitted("JSE", train, validation, **settings)
    except GroupSizeError as error:
        if validation is None:
            raise
        note(f"There are too few validation rows ({error}) Training and validation rows were pooled.")
    both = [train.table, validation.table]
    X = pd.concat([pd.DataFrame(one.X) for one in both], ignore_index=True)
    table = replace(
        train.table,
        X=X if train.table.features else X.to_numpy(),
        columns=pd.concat([one.columns for one in both], ignore_index=True),
    )
    return fitted("JSE", replace(train, table=table), None, **settings)


def _plain_columns(train: Part, apart: set[str | None]) -> dict[str, Any]:
    """Other columns of the training rows, which are audited."""
    from unspur.io import plain

    return {name: plain(column) for name, column in train.table.columns.items() if name not in apart}


def _print_result(found: Findings, output: Path, save: Path | None, as_json: bool) -> None:
    from unspur.report.page import verdict

    if as_json:
        echo_json(
            {
                "report": str(output),
                "removal": None if save is None else str(save),
                "n_removed": found.n_removed,
                "n_main": found.n_main,
                "n_features": found.n_features,
                "strength": found.strength,
                "results": [result.to_dict() for result in found.results],
                "selection_notes": found.selection_notes,
                "verdict": verdict(found),
                "warnings": found.warnings,
            }
        )
        return
    for sentence in verdict(found):  # warnings come first
        what, colon, command = sentence.partition(": unspur ")
        if colon:
            say_command(shlex.split(f"unspur {command}"), f"{what}:")
        else:
            say(sentence)
    if save is not None:
        print_path("Removal", save)
    print_path("Report", output)
    say("Open it in a browser.")


def shown_content(name: str, table: Table, root: Path | None) -> dict[str, Any]:
    """Pictures or texts of the rows of a table, as arguments of `measure`.

    Pictures lie in `root`, by default the folder of the table: the page that shows them may be passed on.
    """
    from unspur.embed.examples import PICTURE_SUFFIXES, inside_of
    from unspur.exceptions import InputError

    if name in table.pictures:
        return {"pictures": table.pictures[name]}
    column = table.column(name)
    if column.isna().any():
        raise InputError(f"{name} of {table.path} is empty in {column.isna().sum():,} rows; each row needs a value.")
    words = column.astype(str).tolist()
    if not all(word.lower().endswith(PICTURE_SUFFIXES) for word in words):
        return {"texts": words}
    folder = root or (table.path if table.path.is_dir() else table.path.parent)
    return {"pictures": [inside_of(folder, word, table.path) for word in words]}
