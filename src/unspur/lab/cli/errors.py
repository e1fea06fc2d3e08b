"""What went wrong, in words, and the number the program leaves with."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import click
from click.exceptions import Abort, Exit

from unspur.lab.cli.words import colour_wanted, printable, wrapped

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
#: What errors of the library advise in Python, and what that is here.
AS_OPTIONS = (("pass overwrite=True", "pass --force"), ("pass limit=", "pass --limit "))
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


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
        _leave(INTERRUPTED, "Interrupted.", debug())
    except BrokenPipeError as error:
        if not _reader_gone():
            _leave(*_told(error), debug())
        raise Exit(READER_GONE) from None
    except click.ClickException as error:
        _leave(error.exit_code, f"{_usage(error)}Error: {error.format_message()}", debug())
    except Exception as error:
        _leave(*_told(error), debug())


def _leave(code: int, text: str, debug: bool) -> NoReturn:
    """Say it and end. On a terminal lines are broken to fit; elsewhere a message is one line, for those who grep."""
    if debug:
        click.echo(traceback.format_exc(), err=True, nl=False)
    text = printable(text)
    for old, new in AS_OPTIONS:
        text = text.replace(old, new)
    if sys.stderr.isatty():
        text = wrapped(text)
    for start in ("Error:", "Fault:"):
        text = re.sub(f"(?m)^{start}", click.style(start, fg="red", bold=True), text, count=1)
    with suppress(BrokenPipeError):
        click.echo(text, err=True, color=colour_wanted())
    raise Exit(code)


def _told(error: Exception) -> tuple[int, str]:
    """Exit code and words for an error that is none of click's."""
    from unspur.exceptions import UnspurError

    if isinstance(error, UnspurError):
        return FAILED, f"Error: {error}"
    if isinstance(error, MemoryError):
        said = f" ({error})" if str(error) else ""
        return FAILED, (
            f"Error: There is not enough memory{said}. Give fewer rows or features, close other programs, or, "
            "where a verb has --memory, let the rows stay in their files."
        )
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("unspur"):
        return FAILED, (
            f"Error: {error.name} is not installed, and this needs it. pip install 'unspur[all]' brings all there is."
        )
    # Libraries written in Rust tell of the operating system in a text of their own.
    told = re.search(r"\(os error (\d+)\)", str(error))
    if told and not isinstance(error, OSError):
        error = OSError(int(told[1]), os.strerror(int(told[1])))
    if isinstance(error, OSError):
        return FAILED, f"Error: {_of_system(error)}"
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
    if error.errno in FULL:
        from unspur.lab.disk import disk_error

        return str(disk_error(error, error.filename or "the output", "Make room, or write to another place."))
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
    """Whether it is our output that nobody reads any more; then what is left of it goes nowhere, without complaint."""
    gone = False
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            gone = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return gone
