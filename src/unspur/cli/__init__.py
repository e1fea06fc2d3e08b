"""The command line: commands in modules that are imported when they are asked for."""

from __future__ import annotations

import click

from unspur._version import __version__
from unspur.cli.program import Program

__all__ = ["main"]

#: Commands by section, each with one line of at most 62 characters.
SECTIONS = {
    "Inspect": {
        "demo": "Run the whole method on digits placed on photographs.",
        "audit": "Find columns that may be spurious.",
        "report": "Measure a removal and write an HTML report.",
    },
    "Remove a concept": {
        "fit": "Fit a classifier that does not use the concept, or a removal.",
        "predict": "Predict the classes of the rows of FILE with a saved MODEL.",
        "apply": "Apply a saved REMOVAL to the rows of FILE.",
        "compare": "Compare all removers, with heads on top, on FILE.",
    },
    "Get embeddings": {"embed": "Turn images or texts into embeddings by a frozen network."},
}
EPILOG = """\
\b
`unspur COMMAND --help` shows the options of a command and an example.
Exit codes: 0 success, 1 error, 2 wrong usage, 70 internal error of unspur,
130 interrupted, 141 output pipe closed. See docs/command-line.md."""


@click.group(
    cls=Program,
    sections=SECTIONS,
    package=__name__,
    modules={"apply": "saved", "predict": "saved"},
    epilog=EPILOG,
    subcommand_metavar="COMMAND [OPTIONS] …",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, prog_name="unspur", message="%(prog)s %(version)s")
def main() -> None:
    """Remove a spurious concept from embeddings. Keep the task."""
