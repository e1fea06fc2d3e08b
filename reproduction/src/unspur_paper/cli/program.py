"""The group of commands, what they print, and how errors are told: in words, on standard error."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from inspect import cleandoc
from typing import Any, TypeVar

import click

from unspur.exceptions import UnspurError

F = TypeVar("F", bound=Callable[..., Any])
#: Exit code of a run that was interrupted.
INTERRUPTED = 130

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
force_option = click.option("--force", is_flag=True, help="Replace the output if it exists.")
seed_option = click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(0, 2**32 - 1), help="Random seed."
)


def in_order(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, in this order in the help."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def say(text: str = "", *, indent: str = "", further: str | None = None, err: bool = False) -> None:
    """Print text, wrapped at spaces to the width of the terminal, at most 80 columns."""
    further = indent if further is None else further
    width = min(80, shutil.get_terminal_size().columns)
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    lines = [
        textwrap.fill(line, width, initial_indent=indent, subsequent_indent=further, **options)
        for line in text.split("\n")
    ]
    click.echo("\n".join(lines), err=err)


def print_path(what: str, path: object) -> None:
    """Print a path on one line, however long, so that it can be copied."""
    click.echo(f"{what}: {path}")


def echo_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(value, indent=2, default=lambda number: number.item()))


class Program(click.Group):
    """Commands in sections, each in the module of its name, which is imported when it is asked for.

    Parameters
    ----------
    sections : title of a section -> command -> one line about it.
    package : that of the commands.
    """

    def __init__(
        self, *arguments: Any, sections: Mapping[str, Mapping[str, str]], package: str, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.sections, self.package = sections, package
        self.summaries = {name: line for commands in sections.values() for name, line in commands.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """All commands, in the order of the help."""
        return list(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of a name, or None."""
        if cmd_name not in self.summaries:
            return None
        values = vars(import_module(f"{self.package}.{cmd_name}")).values()
        command = next(value for value in values if isinstance(value, click.Command) and value.name == cmd_name)
        command.short_help = self.summaries[cmd_name]
        command.help = cleandoc(command.help or "").replace("Example:\n", "\b\nExample:\n")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that was typed; the error for an unknown one names the closest match."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and name not in self.summaries:
            near = get_close_matches(name.lower(), self.summaries, n=1)
            ctx.fail(f"There is no command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the sections of commands, without importing them."""
        wide = max(map(len, self.summaries))
        for title, commands in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(wide), line) for name, line in commands.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; errors that are raised on purpose end it with a message."""
        try:
            return super().invoke(ctx)
        except UnspurError as error:
            click.echo(f"Error: {error}", err=True)
            sys.exit(INTERRUPTED if isinstance(error.__cause__, KeyboardInterrupt) else 1)
        except BrokenPipeError:
            raise
        except OSError as error:
            reason = (error.strerror or str(error)).rstrip(".")
            click.echo(f"Error: {f'{error.filename}: ' if error.filename else ''}{reason}.", err=True)
            sys.exit(1)
