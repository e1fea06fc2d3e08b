"""Short and wrapped texts, for messages and for a terminal of 80 columns."""

from __future__ import annotations

import re
import textwrap

WIDTH = 80
#: Characters that a message quotes from another library or from a file.
MAX_QUOTED_CHARACTERS = 200
#: What `str.splitlines` breaks lines at.
_LINE_ENDS = re.compile(r"[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def one_line(text: str) -> str:
    r"""A text with line ends escaped as "\n", so that a name cannot break a table."""
    return _LINE_ENDS.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def brief(what: object, most: int = MAX_QUOTED_CHARACTERS) -> str:
    """A text on one line, shortened to `most` characters."""
    text = " ".join(str(what).split()).rstrip(".")
    return text if len(text) <= most else f"{text[: most - 1]}…"


def is_number(text: str) -> bool:
    """Whether Python reads a text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def counted(number: int, what: str) -> str:
    """A number of things: "1 row", "1,200 rows"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def filled(text: str, indent: str = "", further: str | None = None, width: int = WIDTH) -> str:
    """A text wrapped at spaces, by default to 80 columns; lines after the first start with `further`."""
    further = indent if further is None else further
    return textwrap.fill(
        text, width, initial_indent=indent, subsequent_indent=further, break_long_words=False, break_on_hyphens=False
    )
