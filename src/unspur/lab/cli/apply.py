"""`unspur apply`: a saved removal on new rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from unspur import load
from unspur.exceptions import InputError
from unspur.io import refuse_existing
from unspur.lab.cli.common import (
    Conditions,
    echo_json,
    force_option,
    json_option,
    read_rows,
    refuse_input_as_output,
    where_option,
)
from unspur.lab.files import apply_removal, write_rows


@click.command()
@click.argument("removal", type=click.Path())
@click.argument("file", type=click.Path())
@click.option("--output", required=True, help="Where the rows go (.npy, .npz, .csv or .parquet).")
@click.option("--label", "labels", multiple=True, metavar="NAME", help="A label column to carry along unchanged.")
@click.option("--ignore", multiple=True, metavar="NAME", help="A column to leave out.")
@where_option()
@force_option
@json_option
def apply(
    removal: str,
    file: str,
    output: str,
    labels: tuple[str, ...],
    ignore: tuple[str, ...],
    where: Conditions,
    force: bool,
    as_json: bool,
) -> None:
    """Apply the saved REMOVAL to the rows of FILE, a file or an embedding store.

    Example: unspur apply background.safetensors new.npz --output new-clean.npz
    """
    refuse_input_as_output(output, file, removal)
    refuse_existing(output, overwrite=force)
    remover = load(removal)
    table = read_rows(file, labels, ignore, where)
    of_files = {Path(name).stem: table.label(name) for name in labels if name not in table.columns}
    table = replace(table, columns=table.columns | of_files)
    if table.columns and Path(output).suffix.lower() == ".npy":
        raise InputError(f"{output} can hold no labels; write .npz, .csv or .parquet, or use --ignore for them.")
    clean = apply_removal(remover, table)
    write_rows(clean, output, overwrite=force)
    if as_json:
        rows, features = clean.Z.shape
        echo_json({"output": output, "rows": rows, "features": features, "removed": remover.spurious_.dim})
        return
    click.echo(f"{len(clean.Z)} rows, {remover.spurious_.dim} of {clean.Z.shape[1]} directions removed: {output}")
