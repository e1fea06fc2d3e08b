"""Output of the command line: wrapped text without control characters, colour on terminals, JSON."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import click

from unspur._text import WIDTH, filled

#: Characters that move a cursor or hide text: all controls but line feeds, and marks of direction.
CONTROL_CHARACTERS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def colour_wanted(environment: Mapping[str, str] = os.environ) -> bool | None:
    """Whether to use colour: never, always, or (None) if the stream is a terminal."""
    if environment.get("NO_COLOR"):
        return False
    if any(environment.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return False if environment.get("TERM") == "dumb" else None


def printable(text: str) -> str:
    """Text with control characters escaped; names of labels and files may hold any."""
    return CONTROL_CHARACTERS.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def wrapped(text: str, indent: str = "", further: str | None = None) -> str:
    """Paragraphs wrapped at spaces to the width of the terminal, at most 80 columns; words stay whole."""
    width = min(WIDTH, shutil.get_terminal_size().columns)
    return "\n".join(filled(line, indent, further, width) for line in text.split("\n"))


def say(text: str = "", *, indent: str = "", further: str | None = None, err: bool = False) -> None:
    """Print wrapped text."""
    click.echo(wrapped(printable(text), indent, further), err=err)


def print_path(what: str, path: object) -> None:
    """Print a path on one line, however long, so that it can be copied."""
    click.echo(printable(f"{what}: {path}"))


def say_command(label: str, words: Iterable[str]) -> None:
    """Print a command to try next, over several lines if it is long.

    Each of `words` stays on one line, such as an option with its value.
    """
    lines, start = [label], " " * 4
    for word in words:
        if lines[-1] != label and len(lines[-1]) + len(word) + 3 > WIDTH:
            lines[-1] += " \\"
            lines.append(f"{start}{word}")
        else:
            lines[-1] += f" {word}"
    click.echo(printable("\n".join(lines)))


@contextmanager
def progress_bar(title: str, total: int, *, shown: bool) -> Iterator[Callable[[str], None]]:
    """A progress bar on standard error, if `shown`; yields a function to call with the name of each step."""
    from tqdm.auto import tqdm

    with tqdm(total=total, desc=title, disable=not shown) as bar:

        def step(name: str) -> None:
            bar.set_postfix_str(name)
            bar.update()

        yield step


def show(table: object) -> None:
    """Print a table or a trace: the header is bold, accepted lines have a green mark, rejected ones are dim."""
    lines = printable(str(table)).split("\n")
    shown, rejected = list[str](), False
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        rejected = line.startswith("✗") or (rejected and line.startswith("        "))
        if following.startswith("──") and not any("──" in earlier for earlier in shown):
            shown.append(click.style(line, bold=True))
        elif line.startswith("✓"):
            shown.append(click.style("✓", fg="green") + line[1:])
        else:
            shown.append(click.style(line, dim=True) if rejected else line)
    click.echo("\n".join(shown))


def echo_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(value, indent=2, default=_json_default))


def _json_default(value: Any) -> Any:
    """Convert NumPy numbers to Python numbers, and dates, times and decimals to text; TypeError for anything else."""
    from unspur._arrays import to_python

    plain = to_python(value)
    if isinstance(plain, date | time | timedelta | Decimal):  # a datetime is a date
        return str(plain)
    if plain is value:
        raise TypeError(f"{type(value).__name__} has no JSON form")
    return plain
