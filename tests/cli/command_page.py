"""Pages that describe a program, with tables of its options: ``python -m tests.cli.command_page`` writes them."""

import re
from dataclasses import dataclass
from pathlib import Path

import click

from unspur.cli import main

DOCS = Path(__file__).parents[2] / "docs"
TABLE = re.compile(r"(?m)^\| Option \|.*\n(?:\|.*\n)+")


@dataclass(frozen=True)
class CommandPage:
    """A page with a section for every verb of a program: what is written by hand, and a table of options."""

    name: str
    program: click.Group
    path: Path

    @property
    def text(self):
        return self.path.read_text(encoding="utf-8")

    @property
    def verbs(self):
        return list(self.program.summaries)

    def command(self, verb):
        return self.program.get_command(click.Context(self.program), verb)

    def options_of(self, verb):
        return {name for parameter in self.command(verb).params for name in parameter.opts if name.startswith("--")}

    def table_of(self, verb):
        """Options as the help has them; without --debug and --help, which all verbs have."""
        options = [one for one in self.command(verb).params if isinstance(one, click.Option) and not one.hidden]
        options = [one for one in options if one.name != "debug"]
        return "\n".join(["| Option | What it does |", "| --- | --- |", *map(_row, options)]) + "\n"

    def parts(self):
        """What the page says of each verb, in its order."""
        return dict(re.findall(rf"(?ms)^### `{self.name} (\w+)`\n(.*?)(?=^#|\Z)", self.text))

    def commands(self):
        """Verb and the rest of every line that is a command."""
        return re.findall(rf"(?m)^{self.name} (\w+)\b(.*)", self.text)

    def write_tables(self):
        text = self.text
        for verb, part in self.parts().items():
            text = text.replace(part, TABLE.sub(lambda _, verb=verb: self.table_of(verb), part))
        self.path.write_text(text, encoding="utf-8")


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


PAGE = CommandPage("unspur", main, DOCS / "command-line.md")

if __name__ == "__main__":
    PAGE.write_tables()
