"""The command line of the reproduction: one file per command, imported when it is asked for."""

from __future__ import annotations

import click

from unspur._version import __version__
from unspur_paper.cli.program import Program

__all__ = ["main"]

SECTIONS = {
    "Get embeddings": {
        "data": "Find or download a dataset.",
        "embed": "Turn a published dataset into embeddings by a frozen network.",
        "finetune": "Train a network first, and keep its embeddings.",
    },
    "Repeat the paper": {
        "reproduce": "Run experiments and set them beside the published values.",
        "pictures": "Draw pages of birds or faces from your copy of the data.",
    },
}
EPILOG = "`unspur-paper COMMAND --help` shows the options of a command and an example."


@click.group(
    cls=Program,
    sections=SECTIONS,
    package=__name__,
    epilog=EPILOG,
    subcommand_metavar="COMMAND [OPTIONS] …",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, prog_name="unspur-paper", message="%(prog)s %(version)s")
def main() -> None:
    """The paper behind unspur, run again: datasets, networks, experiments, tables and figures."""
