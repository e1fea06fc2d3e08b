"""The group of commands: each is imported when it is asked for, and all end in the same ways."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from inspect import cleandoc
from typing import Any, NoReturn

import click
from click.exceptions import Abort, Exit

from unspur.cli.console import printable, say

#: Exit codes and their meanings, which `docs/command-line.md` lists as well.
EXIT_CODES = {
    0: "done",
    1: "error: the message says why",
    2: "wrong usage: an unknown command or option, a missing argument, or an invalid value",
    70: "a fault of unspur itself; --debug shows where",
    130: "interrupted by Ctrl-C",
    141: "the reader closed the output pipe (… | head)",
}
#: The start of a paragraph whose lines are not wrapped: a line that ends in a colon, with indented lines below it.
VERBATIM = re.compile(r"(?m)(?<=\n\n)(?=[^\n]+:\n {2})")
DEBUG = "unspur.debug"


def _debug_option() -> click.Option:
    def remember(ctx: click.Context, _: click.Parameter, given: bool) -> None:
        ctx.meta[DEBUG] = given or ctx.meta.get(DEBUG, False)

    return click.Option(
        ["--debug"], is_flag=True, expose_value=False, callback=remember, help="Show the traceback of an error."
    )


class Program(click.Group):
    """Commands in sections, by name.

    Parameters
    ----------
    sections : title of a section -> command -> one line about it.
    package : that of the commands. Each is in the module of its name, which is imported if it is needed.
    modules : modules of the commands that have none of their own.
    """

    def __init__(
        self,
        *arguments: Any,
        sections: Mapping[str, Mapping[str, str]],
        package: str,
        modules: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.sections, self.package, self.modules = sections, package, modules or {}
        self.summaries = {name: line for commands in sections.values() for name, line in commands.items()}
        self.params.append(_debug_option())

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """All commands, in the order of the help."""
        return list(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of a name, or None."""
        if cmd_name not in self.summaries:
            return None
        if cmd_name not in self.commands:
            values = vars(import_module(f"{self.package}.{self.modules.get(cmd_name, cmd_name)}")).values()
            command = next(value for value in values if isinstance(value, click.Command) and value.name == cmd_name)
            command.short_help = self.summaries[cmd_name]
            command.help = VERBATIM.sub("\b\n", cleandoc(command.help or ""))
            command.params.append(_debug_option())
            self.add_command(command)
        return self.commands[cmd_name]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without any argument, print the help."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the sections of commands, without importing them."""
        wide = max(map(len, self.summaries))
        for title, commands in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(wide), line) for name, line in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that was typed; the error for an unknown one names the closest match."""
        if not ctx.resilient_parsing and args[0] not in self.summaries:
            near = get_close_matches(args[0], self.summaries, n=1)
            ctx.fail(f"There is no command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what goes wrong is told in words, and the exit code says what kind of end it was."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, ValueError):  # a terminal without box characters still gets its result
                stream.reconfigure(errors="replace")  # type: ignore[union-attr]
        with _exit_on_error(ctx):
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result


@contextmanager
def _exit_on_error(ctx: click.Context) -> Iterator[None]:
    """Print errors that leave the block on standard error, and end the program with their exit code."""
    try:
        yield
    except (click.ClickException, Exit):
        raise
    except (KeyboardInterrupt, Abort):
        _leave(ctx, 130, "Interrupted.")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would complain at its exit
        raise Exit(141) from None
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            _leave(ctx, 130, "Interrupted.")
        message = _message(error)
        fault = f"Fault: {type(error).__name__}: {error}\nThis is a bug in unspur; with --debug it shows where."
        _leave(ctx, 70 if message is None else 1, fault if message is None else f"Error: {message}")


def _leave(ctx: click.Context, code: int, text: str) -> NoReturn:
    """Print a message, wrapped on a terminal and else in one line, and exit."""
    if ctx.meta.get(DEBUG):
        click.echo(traceback.format_exc(), err=True, nl=False)
    if sys.stderr.isatty():
        say(text, err=True)
    else:
        click.echo(printable(text), err=True)
    raise Exit(code)


def _message(error: Exception) -> str | None:
    """What went wrong, in words; None for a fault of this package."""
    from unspur.exceptions import UnspurError

    if isinstance(error, UnspurError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"There is not enough memory ({brief_of(error)}). Give fewer rows or features, or close other programs."
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("unspur"):
        from unspur._extras import EXTRAS, command

        extra = EXTRAS.get(str(error.name).partition(".")[0], "all")
        return f"{error.name} is not installed, and this needs it: {command(extra)}."
    if isinstance(error, OSError):
        reason = (error.strerror or str(error)).removesuffix(".")
        return f"{error.filename}: {reason[:1].lower()}{reason[1:]}." if error.filename else f"{reason}."
    *_, last = traceback.walk_tb(error.__traceback__)
    raised_here = str(last[0].f_globals.get("__name__")).partition(".")[0] == "unspur"
    # scikit-learn's complaints about input are ValueErrors; ours are UnspurErrors, so one of our own is a bug.
    return str(error) if isinstance(error, ValueError) and not raised_here else None


def brief_of(error: Exception) -> str:
    """What an error says, or its kind if it says nothing."""
    from unspur._text import brief

    return brief(error) or type(error).__name__
