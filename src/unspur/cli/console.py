"""What commands print: wrapped text without control characters, JSON, and progress bars."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from textwrap import TextWrapper
from typing import Any

import click

#: Widest line of text.
WIDTH = 80
#: Characters that move a cursor or hide text: all controls but line feeds, and marks of direction.
CONTROL_CHARACTERS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Text with control characters escaped; names of columns and files may hold any."""
    return CONTROL_CHARACTERS.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def say(text: str = "", *, indent: str = "", further: str | None = None, err: bool = False) -> None:
    """Print paragraphs, wrapped at spaces to the width of the terminal, at most 80 columns.

    Lines start with `indent`, and from the second line of a paragraph on with `further`.
    """
    width = min(WIDTH, shutil.get_terminal_size().columns)
    wrap = TextWrapper(width, indent, indent if further is None else further)
    wrap.break_long_words = wrap.break_on_hyphens = False
    click.echo("\n".join(wrap.fill(line) for line in printable(text).split("\n")), err=err)


def show(table: object) -> None:
    """Print a table as it is."""
    click.echo(printable(str(table)))


def note(text: str) -> None:
    """Print a note on standard error, once in a run."""
    context = click.get_current_context(silent=True)
    said = set() if context is None else context.find_root().meta.setdefault("unspur.notes", set())
    if text not in said:
        say(f"Note: {text}", err=True)
    said.add(text)


def print_path(what: str, path: object) -> None:
    """Print a path on one line, however long, so that it can be copied."""
    click.echo(printable(f"{what}: {path}"))


def say_command(words: Iterable[str], label: str = "Next:") -> None:
    """Print a command to try, an option with its values on one line."""
    pieces: list[str] = []
    for word in words:
        if pieces and pieces[-1].startswith("--") and not word.startswith("--"):
            pieces[-1] += f" {shlex.quote(word)}"
        else:
            pieces.append(shlex.quote(word))
    lines = [label]
    for piece in pieces:
        if len(lines[-1]) + len(piece) + 3 > WIDTH and lines != [label]:
            lines[-1] += " \\"
            lines.append(f"    {piece}")
        else:
            lines[-1] += f" {piece}"
    click.echo(printable("\n".join(lines)))


def echo_json(value: Any) -> None:
    """Print one JSON document."""
    from unspur._arrays import to_python

    click.echo(json.dumps(value, indent=2, default=lambda one: _plain(one, to_python)))


def _plain(value: Any, to_python: Callable[[Any], Any]) -> Any:
    plain = to_python(value)
    return str(value) if plain is value else plain


@contextmanager
def progress_bar(title: str, total: int, *, shown: bool) -> Iterator[Callable[[str], None]]:
    """A progress bar on standard error, if `shown`; yields a function to call with the name of each step."""
    from tqdm.auto import tqdm

    with tqdm(total=total, desc=title, disable=not shown, delay=1) as bar:

        def step(name: str) -> None:
            bar.set_postfix_str(name, refresh=False)
            bar.update()

        yield step


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """A context in which the warnings of this package are printed as notes."""
    show_otherwise = warnings.showwarning

    def print_note(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        if category.__module__.startswith("unspur"):
            note(str(message))
        else:
            show_otherwise(message, category, *where, **more)

    with warnings.catch_warnings():
        from unspur import exceptions

        for category in vars(exceptions).values():
            if (
                isinstance(category, type)
                and issubclass(category, Warning)
                and category.__module__ == exceptions.__name__
            ):
                warnings.simplefilter("always", category)
        warnings.showwarning = print_note
        yield
