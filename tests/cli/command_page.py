"""The tables of options in docs/command-line.md, from the program itself: ``python -m tests.cli.command_page``."""

import re
from pathlib import Path

import click

from unspur.cli import SECTIONS, main

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
VERBS = [verb for verbs in SECTIONS.values() for verb in verbs]
#: A verb's part of the page: what is written by hand, and its table.
PART = r"(?ms)^### `unspur {verb}`\n(.*?)(?=^#|\Z)"
TABLE = re.compile(r"(?m)^\| Option \|.*\n(?:\|.*\n)+")


def command(verb):
    return main.get_command(click.Context(main), verb)


def table_of(verb):
    """Options as the help has them; without --debug and --help, which all verbs have."""
    options = [one for one in command(verb).params if isinstance(one, click.Option) and one.name != "debug"]
    return "\n".join(["| Option | What it does |", "| --- | --- |", *map(_row, options)]) + "\n"


def _row(option):
    """One option: its name, what its value is, what for, and what it is if it is not given."""
    value = "" if option.is_flag else (option.metavar or _kind(option.type)).replace("|", r"\|")
    said = option.help or ""
    if option.required:
        said += " Required."
    elif option.show_default and not option.is_flag:
        said += f" Default: `{option.default}`."
    return f"| `{' '.join(filter(None, (option.opts[0], value)))}` | {said} |"


def _kind(kind):
    return "|".join(kind.choices) if isinstance(kind, click.Choice) else kind.name.upper().removesuffix(" RANGE")


def parts(page):
    """What the page says of each verb, in its order."""
    return dict(re.findall(PART.format(verb=r"(\w+)"), page))


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    for name, part in parts(text).items():
        text = text.replace(part, TABLE.sub(lambda _, verb=name: table_of(verb), part))
    PAGE.write_text(text, encoding="utf-8")
