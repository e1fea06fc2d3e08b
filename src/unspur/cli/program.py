"""The group of commands: each is imported when it is asked for, and all end in the same ways.

What goes wrong is told in words on standard error, and the exit code says what kind of end it was.
"""

from __future__ import annotations

import errno
import io
import os
import re
import select
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.exceptions import Abort, Exit

from unspur.cli.console import colour_wanted, printable, wrapped
from unspur.cli.options import option_name

if TYPE_CHECKING:
    from unspur.exceptions import Parameter

#: Key of `Context.meta` that says whether tracebacks are wanted; contexts of commands share it with the program's.
DEBUG = "unspur.debug"
#: The start of a paragraph whose lines are not wrapped: a line that ends in a colon, with indented lines below it.
VERBATIM = re.compile(r"(?m)(?<=\n\n)(?=[^\n]+:\n {2})")
#: Exit codes and their meanings, which `docs/command-line.md` and the help list as well.
EXIT_CODES = {
    0: "done",
    1: "error: the message says why",
    2: "wrong usage: an unknown command or option, a missing argument, or an invalid value",
    70: "a fault of unspur itself; --debug shows where",
    130: "interrupted by Ctrl-C",
    141: "the reader closed the output pipe (… | head)",
}
FAILED, FAULT, INTERRUPTED, READER_GONE = 1, 70, 130, 141
CANNOT_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def _remember_debug(ctx: click.Context, parameter: click.Parameter, given: bool) -> None:  # noqa: ARG001
    ctx.meta[DEBUG] = given or ctx.meta.get(DEBUG, False)


def debug_option() -> click.Option:
    """``--debug``, which may stand before the command or after it."""
    return click.Option(
        ["--debug"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_remember_debug,
        help="Show the traceback of an error.",
    )


class Program(click.Group):
    """Commands in sections, by name.

    Parameters
    ----------
    sections : title of a section -> command -> one line about it.
    package : that of the commands. Each is in the module of its name, which is imported if needed.
    modules : other modules of commands that have no module of their own.
    moved : commands that went to another program -> its name.
    """

    def __init__(
        self,
        *arguments: Any,
        sections: Mapping[str, Mapping[str, str]],
        package: str,
        modules: Mapping[str, str] | None = None,
        moved: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.sections, self.package, self.modules, self.moved = sections, package, modules or {}, moved or {}
        self.params.append(debug_option())

    @property
    def summaries(self) -> dict[str, str]:
        """One line for each command."""
        return {name: line for commands in self.sections.values() for name, line in commands.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of the help."""
        return [*self.summaries, *(name for name in super().list_commands(ctx) if name not in self.summaries)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, or None."""
        known = super().get_command(ctx, cmd_name)
        if known is not None or cmd_name not in self.summaries:
            return known
        values = vars(import_module(f"{self.package}.{self.modules.get(cmd_name, cmd_name)}")).values()
        command = next(value for value in values if isinstance(value, click.Command) and value.name == cmd_name)
        command.short_help = self.summaries[cmd_name]
        command.help = VERBATIM.sub("\b\n", cleandoc(command.help or ""))
        command.params.append(debug_option())
        self.add_command(command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before the command; without any argument, print the help."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the sections of commands, without importing them."""
        wide = max(map(len, self.summaries))
        for title, commands in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(wide), line) for name, line in commands.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the lines below the commands without wrapping them."""
        if self.epilog:
            formatter.write_paragraph()
            for line in self.epilog.splitlines():
                formatter.write(f"{line}\n")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that was typed; the error for an unknown one names the closest match."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and name not in self.list_commands(ctx):
            if name in self.moved:
                from unspur._extras import REPRODUCTION

                ctx.fail(f"{name!r} went to the reproduction: {self.moved[name]} {name}. Install it: {REPRODUCTION}.")
            near = get_close_matches(name.lower(), self.list_commands(ctx), n=1)
            ctx.fail(f"There is no command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Complete commands, without importing them, and options."""
        from click.shell_completion import CompletionItem

        commands = [
            CompletionItem(name, help=line) for name, line in self.summaries.items() if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Prepare the streams, and parse the arguments."""
        open_closed_streams()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # a terminal without box characters still gets its result
        extra.setdefault("color", colour_wanted())
        with exit_on_error():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        with exit_on_error(lambda: bool(ctx.meta.get(DEBUG))), warnings.catch_warnings():
            # A warning of Pillow about large pictures; `open_image` bounds the memory that they take.
            warnings.filterwarnings("ignore", r"Image size \(\d+ pixels\) exceeds limit")
            return super().invoke(ctx)


@contextmanager
def exit_on_error(debug: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Print errors that leave the block on standard error, and end the program with their exit code.

    If `debug` returns True, the traceback comes first.
    """
    try:
        yield
    except Exit:
        raise
    except (KeyboardInterrupt, Abort):
        below = "\n" if sys.stderr.isatty() else ""  # a terminal shows ^C on this line
        _leave(INTERRUPTED, f"{below}Interrupted.", debug())
    except BrokenPipeError as error:
        if not _reader_gone():
            _leave(*_message(error), debug())
        _discard_unwritten()
        raise Exit(READER_GONE) from None
    except click.ClickException as error:
        # A message may end in a list of choices, one a line.
        said = " ".join(part.rstrip() for part in error.format_message().split("\n\t"))
        _leave(error.exit_code, f"{_usage(error)}Error: {said}", debug())
    except Exception as error:
        _leave(*_message(error), debug())


def open_closed_streams() -> None:
    """Open standard streams on os.devnull if whoever started the program has closed them (``2>&-``).

    Python has None in their place. The next file to be opened would get their number, so that what a library writes to
    standard error would end up in that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:
            devnull = os.open(os.devnull, os.O_RDWR)
            os.dup2(devnull, number)
            if devnull != number:
                os.close(devnull)
        setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115 — to the end


def _leave(code: int, text: str, debug: bool) -> NoReturn:
    """Print a message and exit. Lines are wrapped on a terminal; elsewhere a message is one line, for grep."""
    if debug:
        click.echo(traceback.format_exc(), err=True, nl=False)
    text = printable(text)
    if sys.stderr.isatty():
        text = wrapped(text)
    for start in ("Error:", "Fault:"):
        text = re.sub(f"(?m)^{start}", click.style(start, fg="red", bold=True), text, count=1)
    with suppress(OSError):
        click.echo(text, err=True, color=colour_wanted())
    _discard_unwritten()
    raise Exit(code)


def as_option(parameter: Parameter) -> str:
    """A parameter of the library as an option: ``cv=5`` is ``--cv 5``."""
    option = option_name(parameter.name)
    return option if parameter.value is None or parameter.value is True else f"{option} {parameter.value}"


def _message(error: Exception) -> tuple[int, str]:
    """Exit code and message of an error that does not come from click."""
    from unspur._extras import EXTRAS, command
    from unspur.exceptions import UnspurError

    if isinstance(error, UnspurError):
        stopped = isinstance(error.__cause__, KeyboardInterrupt)
        return INTERRUPTED if stopped else FAILED, f"Error: {error.format(as_option)}"
    if isinstance(error, MemoryError):
        detail = f" ({error})" if str(error) else ""
        return FAILED, (
            f"Error: There is not enough memory{detail}. Give fewer rows or features, or close other programs."
        )
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("unspur"):
        return FAILED, (
            f"Error: {error.name} is not installed, and this needs it: "
            f"{command(EXTRAS.get(str(error.name).partition('.')[0], 'all'))}."
        )
    # Libraries written in Rust have errors of the operating system as text.
    number = re.search(r"\(os error (\d+)\)", str(error))
    if number and not isinstance(error, OSError):
        error = OSError(int(number[1]), os.strerror(int(number[1])))
    if isinstance(error, OSError):
        return FAILED, f"Error: {_system_message(error)}"
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):  # of pathlib, before Python 3.13
        return FAILED, f"Error: {error}: the symbolic link points to itself. Pass another path."
    if isinstance(error, ValueError) and not _raised_here(error):  # scikit-learn's complaints about input are of these
        return FAILED, f"Error: {error}"
    return FAULT, (
        f"Fault: {type(error).__name__}: {str(error) or '(no message)'}\n"
        "This is a bug in unspur. The same command with --debug shows where it happened."
    )


def _raised_here(error: Exception) -> bool:
    """Whether a line of this package raised the error. On purpose it raises an `UnspurError`, so this is a bug."""
    *_, last = traceback.walk_tb(error.__traceback__)
    return str(last[0].f_globals.get("__name__")).partition(".")[0] == "unspur"


def _system_message(error: OSError) -> str:
    """An error of the operating system without its number."""
    if error.errno in CANNOT_WRITE_ERRORS:
        from unspur._files import disk_error

        return str(disk_error(error, error.filename, "Make room, or write to another place."))
    if error.errno is None or error.strerror is None:
        return str(error)
    reason = error.strerror[:1].lower() + error.strerror[1:]
    return f"{error.filename}: {reason}." if error.filename else f"{error.strerror}."


def _usage(error: click.ClickException) -> str:
    """Usage of the command, to be printed above the message."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return ""
    return f"{context.get_usage()}\nTry '{context.command_path} --help' for help.\n\n"


def _reader_gone() -> bool:
    """Whether the pipe that broke is one of the standard streams."""
    with suppress(io.UnsupportedOperation):  # a stream without a file
        return any(_broken(stream.fileno()) for stream in (sys.stdout, sys.stderr))
    return False


def _discard_unwritten() -> None:
    """Send what cannot be written any more to os.devnull; else Python would complain at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _broken(descriptor: int) -> bool:
    """Whether a pipe has no reader. Writing again would not tell, as the buffer may be empty by now."""
    if not hasattr(select, "poll"):  # on Windows: assume so
        return True
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
