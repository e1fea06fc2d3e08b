"""The command line: verbs in modules that are imported when a verb is asked for."""

from __future__ import annotations

import click

from unspur._version import __version__
from unspur.cli.program import Program

__all__ = ["main"]

#: Verbs by section, each with one line of at most 62 characters.
SECTIONS = {
    "Look": {
        "demo": "Take the photograph out from behind digits, end to end.",
        "audit": "Say which columns are associated with the task, and used.",
        "report": "Write a page that shows all that a removal does.",
        "card": "Write the section of a model card about a saved MODEL.",
    },
    "Remove a concept": {
        "fit": "Fit a classifier that does not use the concept, or a removal.",
        "predict": "Predict the classes of the rows of FILE by a saved MODEL.",
        "apply": "Apply a saved REMOVAL to the rows of FILE.",
        "evaluate": "Compare heads with and without the REMOVAL, by group.",
        "compare": "Compare all removers, with heads on top, on FILE.",
    },
    "Get embeddings": {"embed": "Turn images or texts into embeddings by a frozen network."},
    "Set up": {"completion": "Print the script that lets a shell complete unspur's words."},
}
#: Verbs that went to the reproduction, whose command has them.
MOVED = ("data", "finetune", "reproduce", "pictures")
EPILOG = """\
`unspur VERB --help` shows the options of a verb and an example.

Exit codes: 0 success, 1 error, 2 wrong usage, 70 internal error of unspur,
130 interrupted, 141 output pipe closed. See docs/command-line.md."""


@click.group(
    cls=Program,
    sections=SECTIONS,
    home=__name__,
    modules={"apply": "saved", "predict": "saved", "card": "saved", "evaluate": "compare"},
    moved=dict.fromkeys(MOVED, "unspur-paper"),
    epilog=EPILOG,
    subcommand_metavar="VERB [OPTIONS] …",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, prog_name="unspur", message="%(prog)s %(version)s")
def main() -> None:
    """Remove a spurious concept from embeddings. Keep the task."""
