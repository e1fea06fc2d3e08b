"""`unspur apply`: a saved removal on new rows."""

from __future__ import annotations

import click
import numpy as np

from unspur import load
from unspur.io import refuse_existing
from unspur.lab.cli.common import echo_json, force_option, json_option
from unspur.lab.files import read_table, write_rows


@click.command()
@click.argument("removal", type=click.Path())
@click.argument("file", type=click.Path())
@click.option("--output", required=True, help="Where the rows go (.npy, .npz, .csv or .parquet).")
@click.option("--label", "labels", multiple=True, metavar="NAME", help="A label column to carry along unchanged.")
@click.option("--ignore", multiple=True, metavar="NAME", help="A column to leave out.")
@force_option
@json_option
def apply(
    removal: str, file: str, output: str, labels: tuple[str, ...], ignore: tuple[str, ...], force: bool, as_json: bool
) -> None:
    """Apply the saved REMOVAL to the rows of FILE.

    Example: unspur apply background.safetensors new.npz --output new-clean.npz
    """
    refuse_existing(output, overwrite=force)
    remover = load(removal)
    table = read_table(file, labels, ignore)
    clean = remover.removal_(table.Z)
    if not np.all(np.isfinite(clean)):
        remover.transform(table.Z)  # names the column
    write_rows(table, clean, output, overwrite=force)
    if as_json:
        echo_json({"output": output, "rows": len(clean), "features": clean.shape[1], "removed": remover.spurious_.dim})
        return
    click.echo(f"{len(clean)} rows, {remover.spurious_.dim} of {clean.shape[1]} directions removed: {output}")
