"""What went wrong, in words, and the number the program leaves with."""

from __future__ import annotations

import errno
import io
import os
import re
import select
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

import click
from click.exceptions import Abort, Exit

from unspur.cli.console import colour_wanted, printable, wrapped

if TYPE_CHECKING:
    from unspur.exceptions import Parameter

#: Exit codes, by what they mean. `docs/command-line.md` and the help have them from here.
EXIT_CODES = {
    0: "done",
    1: "it could not be done: the message says why",
    2: "the command was misused: an unknown verb or option, a value that is none",
    70: "a fault of unspur itself; --debug shows where",
    130: "interrupted by Ctrl-C",
    141: "whoever read the output stopped reading (… | head)",
}
FAILED, MISUSED, FAULT, INTERRUPTED, READER_GONE = 1, 2, 70, 130, 141
#: Options that are called otherwise than the parameters that they are.
OPTION_NAMES = {"overwrite": "force", "X_val": "validation", "clusters": "cluster"}
CANNOT_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


@contextmanager
def errors_in_words(debug: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Errors that leave the block are told on standard error, and the program ends with their exit code.

    Where `debug` says so, the traceback comes first.
    """
    try:
        yield
    except Exit:
        raise
    except (KeyboardInterrupt, Abort):
        below = "\n" if sys.stderr.isatty() else ""  # of the ^C that a terminal shows
        _leave(INTERRUPTED, f"{below}Interrupted.", debug())
    except BrokenPipeError as error:
        if not _reader_gone():
            _leave(*_told(error), debug())
        _let_go()
        raise Exit(READER_GONE) from None
    except click.ClickException as error:
        _leave(error.exit_code, f"{_usage(error)}Error: {_one_line(error.format_message())}", debug())
    except Exception as error:
        _leave(*_told(error), debug())


def open_closed_streams() -> None:
    """Let standard streams that were closed by whoever started the program (``2>&-``) lead nowhere.

    Python has None in their place, on which nothing can be written or asked. And the next file that is opened would get
    their number, so that what a library says on standard error would end up in it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, number)
            if nowhere != number:
                os.close(nowhere)
        setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115 — to the end


def _leave(code: int, text: str, debug: bool) -> NoReturn:
    """Say it and end. On a terminal lines are broken to fit; elsewhere a message is one line, for those who grep."""
    if debug:
        click.echo(traceback.format_exc(), err=True, nl=False)
    text = printable(text)
    if sys.stderr.isatty():
        text = wrapped(text)
    for start in ("Error:", "Fault:"):
        text = re.sub(f"(?m)^{start}", click.style(start, fg="red", bold=True), text, count=1)
    with suppress(OSError):
        click.echo(text, err=True, color=colour_wanted())
    _let_go()
    raise Exit(code)


def as_option(parameter: Parameter) -> str:
    """What a parameter of the library is here: ``cv=5`` is ``--cv 5``."""
    option = f"--{OPTION_NAMES.get(parameter.name, parameter.name).replace('_', '-')}"
    return option if parameter.value is None or parameter.value is True else f"{option} {parameter.value}"


def _one_line(text: str) -> str:
    """A message of click's, which may end in a list of choices, a line each, on one line."""
    return " ".join(part.rstrip() for part in text.split("\n\t"))


def _told(error: Exception) -> tuple[int, str]:
    """Exit code and words for an error that is none of click's."""
    from unspur._extras import EXTRAS, command
    from unspur.exceptions import UnspurError

    if isinstance(error, UnspurError):
        stopped = isinstance(error.__cause__, KeyboardInterrupt)
        return INTERRUPTED if stopped else FAILED, f"Error: {error.format(as_option)}"
    if isinstance(error, MemoryError):
        said = f" ({error})" if str(error) else ""
        return FAILED, (
            f"Error: There is not enough memory{said}. Give fewer rows or features, close other programs, or, "
            "where a verb has --memory, let the rows stay in their files."
        )
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("unspur"):
        return FAILED, (
            f"Error: {error.name} is not installed, and this needs it: "
            f"{command(EXTRAS.get(str(error.name).partition('.')[0], 'all'))}."
        )
    # Libraries written in Rust tell of the operating system in a text of their own.
    told = re.search(r"\(os error (\d+)\)", str(error))
    if told and not isinstance(error, OSError):
        error = OSError(int(told[1]), os.strerror(int(told[1])))
    if isinstance(error, OSError):
        return FAILED, f"Error: {_of_system(error)}"
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):  # of pathlib, before Python 3.13
        return FAILED, f"Error: {error}: links that lead to themselves are no file. Give another."
    if isinstance(error, ValueError) and not _raised_here(error):  # scikit-learn's complaints about input are of these
        return FAILED, f"Error: {error}"
    return FAULT, (
        f"Fault: {type(error).__name__}: {str(error) or 'it says no more'}\n"
        "This is a mistake in unspur, not in what you gave it. The same command with --debug shows where it happened."
    )


def _raised_here(error: Exception) -> bool:
    """Whether it was a line of this package that failed, rather than a library that was given something odd.

    What this package complains of it raises as an `UnspurError`.
    """
    *_, last = traceback.walk_tb(error.__traceback__)
    return str(last[0].f_globals.get("__name__")).partition(".")[0] == "unspur"


def _of_system(error: OSError) -> str:
    """An error of the operating system without its number."""
    if error.errno in CANNOT_WRITE_ERRORS:
        from unspur._files import disk_error

        return str(disk_error(error, error.filename, "Make room, or write to another place."))
    if error.errno is None or error.strerror is None:
        return str(error)
    reason = error.strerror[:1].lower() + error.strerror[1:]
    return f"{error.filename}: {reason}." if error.filename else f"{error.strerror}."


def _usage(error: click.ClickException) -> str:
    """How the verb is used, above what was wrong with its options."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return ""
    return f"{context.get_usage()}\nTry '{context.command_path} --help' for help.\n\n"


def _reader_gone() -> bool:
    """Whether it is our output that nobody reads any more."""
    with suppress(io.UnsupportedOperation):  # a stream without a file
        return any(_broken(stream.fileno()) for stream in (sys.stdout, sys.stderr))
    return False


def _let_go() -> None:
    """What cannot be written any more goes nowhere; Python would complain of it at the very end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _broken(descriptor: int) -> bool:
    """Whether a pipe has no reader. What failed may be lost already, so that writing again would not tell."""
    poll = getattr(select, "poll", None)
    if poll is None:  # where this cannot be asked, it is the likeliest
        return True
    asked = poll()
    asked.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in asked.poll(0))
