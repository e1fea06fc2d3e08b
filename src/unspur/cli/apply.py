"""`unspur apply`: a saved removal on new rows."""

from __future__ import annotations

from pathlib import Path

import click

from unspur.cli.completion import columns_of
from unspur.cli.console import echo_json, say
from unspur.cli.data import carry_labels, read_rows, refuse_ignored_labels
from unspur.cli.options import (
    Conditions,
    LocalPath,
    force_option,
    ignore_option,
    json_option,
    refuse_input_as_output,
    where_option,
)


@click.command()
@click.argument("removal", type=LocalPath())
@click.argument("files", type=LocalPath(), nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--output",
    required=True,
    type=LocalPath(),
    help="Where the rows go: .npy, .npz, .csv or .parquet, or a folder for Parquet files.",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME",
    shell_complete=columns_of("files"),
    help="A label column to carry along unchanged; may be repeated.",
)
@ignore_option("A column to leave out; may be repeated.")
@where_option()
@force_option
@json_option
def apply(
    removal: str,
    files: tuple[str, ...],
    output: str,
    labels: tuple[str, ...],
    ignore: tuple[str, ...],
    where: Conditions,
    force: bool,
    as_json: bool,
) -> None:
    """Apply a saved REMOVAL to the rows of FILE.

    FILE is a file or an embedding store. Parquet files (several, a folder or a quoted pattern) go to a folder, a piece
    at a time: files of the same names and columns, in which the features are cleaned.

    Example:
      unspur apply background.safetensors new.npz --output new-clean.npz
      unspur apply background.safetensors big/*.parquet --output big-clean
    """
    from unspur.exceptions import InputError
    from unspur.io.artifact import refuse_existing
    from unspur.io.files import is_parquet, write_rows
    from unspur.io.parquet import clean_parquet
    from unspur.io.table import FILE_SUFFIXES, apply_removal
    from unspur.removers import load

    if Path(output).suffix.lower() not in FILE_SUFFIXES and is_parquet(files):
        if where:
            raise click.UsageError("--where chooses rows for one file; a folder gets all rows of its files.")
        refuse_ignored_labels(labels, ignore)
        remover = load(removal)
        rows = clean_parquet(remover, files, output, labels, ignore, overwrite=force)
        _report(output, rows, remover.n_features_in_, remover.spurious_.dim, as_json)
        return
    refuse_input_as_output(output, *files, removal)
    refuse_existing(output, overwrite=force)
    remover = load(removal)
    table = carry_labels(read_rows(files, labels, ignore, where), labels, output)
    if table.columns and Path(output).suffix.lower() == ".npy":
        raise InputError(f"{output} can hold no labels; write .npz, .csv or .parquet, or use --ignore for them.")
    clean = apply_removal(remover, table)
    write_rows(clean, output, overwrite=force)
    rows, features = clean.Z.shape
    _report(output, rows, features, remover.spurious_.dim, as_json)


def _report(output: str, rows: int, features: int, removed: int, as_json: bool) -> None:
    if as_json:
        echo_json({"output": output, "rows": rows, "features": features, "removed": removed})
        return
    say(f"{rows} rows, {removed} of {features} directions removed: {output}")
