"""The command line: one file per verb."""

from __future__ import annotations

import click

from unspur._version import __version__
from unspur.lab.cli.apply import apply
from unspur.lab.cli.common import Program
from unspur.lab.cli.compare import compare_command
from unspur.lab.cli.data import data
from unspur.lab.cli.demo import demo
from unspur.lab.cli.embed import embed_command
from unspur.lab.cli.evaluate import evaluate
from unspur.lab.cli.finetune import finetune_command
from unspur.lab.cli.fit import fit
from unspur.lab.cli.pictures import pictures
from unspur.lab.cli.reproduce import reproduce_command

__all__ = ["main"]


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="unspur")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def main(debug: bool) -> None:
    """Remove a spurious concept from embeddings. Keep the task."""


for verb in (
    demo,
    fit,
    apply,
    evaluate,
    compare_command,
    data,
    embed_command,
    finetune_command,
    reproduce_command,
    pictures,
):
    main.add_command(verb)
