"""The tables of options in docs/command-line.md, from the program itself: ``python -m tests.lab.command_page``."""

import re
from pathlib import Path

import click

from unspur.lab.cli import SECTIONS, main

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
VERBS = [verb for verbs in SECTIONS.values() for verb in verbs]
#: A verb's part of the page: what is written by hand, and its table.
PART = r"(?ms)^### `unspur {verb}`\n(.*?)(?=^#|\Z)"
TABLE = re.compile(r"(?m)^\| Option \|.*\n(?:\|.*\n)+")


def command(verb):
    return main.get_command(click.Context(main), verb)


def table_of(verb):
    """Options as the help has them; without --debug and --help, which all verbs have."""
    context = click.Context(command(verb), info_name=verb)
    records = [parameter.get_help_record(context) for parameter in command(verb).get_params(context)]
    rows = [record for record in records if record and not re.search(r"--(help|debug)\b", record[0])]
    lines = [f"| `{option}` | {_joined(text)} |" for option, text in map(_escaped, rows)]
    return "\n".join(["| Option | What it does |", "| --- | --- |", *lines]) + "\n"


def _escaped(record):
    return tuple(part.replace("|", r"\|") for part in record)


def _joined(text):
    return " ".join(text.replace("<", r"\<").split())


def parts(page):
    """What the page says of each verb, in its order."""
    return dict(re.findall(PART.format(verb=r"(\w+)"), page))


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    for name, part in parts(text).items():
        text = text.replace(part, TABLE.sub(lambda _, verb=name: table_of(verb), part))
    PAGE.write_text(text, encoding="utf-8")
