"""Tables as plain text for a terminal of 80 columns, as HTML for notebooks, and as Markdown for model cards."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from html import escape
from unicodedata import combining, east_asian_width

WIDTH = 80
#: Characters that a message quotes from another library or from a file.
MAX_QUOTED_CHARACTERS = 200
#: What `str.splitlines` breaks lines at.
_LINE_ENDS = re.compile(r"[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def display_width(text: str) -> int:
    """Width of a text in a terminal: two columns for a wide character, none for a combining accent."""
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


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


def padded(text: str, width: int) -> str:
    """A text padded with spaces to `width` columns."""
    return text + " " * (width - display_width(text))


def lines_of(name: str, width: int, most: int = 4) -> list[str]:
    """A name wrapped to `width` columns, at spaces if possible; beyond `most` lines its middle becomes "…"."""
    lines: list[str] = []
    for word in name.split(" "):
        first, *others = _pieces(word, width)
        if lines and display_width(lines[-1]) + 1 + display_width(first) <= width:
            lines[-1] += f" {first}"
        else:
            lines.append(first)
        lines += others
    return lines if len(lines) <= most else [*lines[: most - most // 2 - 1], "…", *lines[-(most // 2) :]]


def _pieces(word: str, width: int) -> list[str]:
    """A word in pieces of at most `width` columns."""
    pieces = [""]
    for character in word:
        if display_width(pieces[-1]) + display_width(character) > width:
            pieces.append("")
        pieces[-1] += character
    return pieces


#: Characters that mean something in Markdown, or in HTML inside of it.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>&#|~$])")


def in_markdown(text: str) -> str:
    """A text on one line that Markdown shows as it is: names come from users' data."""
    return _SPECIAL.sub(r"\\\1", one_line(text))


@dataclass(frozen=True, slots=True)
class MarkupTable:
    """A table with a caption, a header for each column and each row (its first cell), and notes below it."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def html(self) -> str:
        """A table element, and a list of notes."""
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in self.columns)
        body = "".join(
            f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in others)}</tr>'
            for first, *others in self.rows
        )
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        caption = f"<caption>{escape(self.caption)}</caption>"
        below = f"<ul>{notes}</ul>" if notes else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"

    def markdown(self) -> str:
        """The caption, if there is one, a table in pipes, and a list of notes, with empty lines between them."""
        lines = [_line(self.columns), "|" + " --- |" * len(self.columns), *map(_line, self.rows)]
        notes = "\n".join(f"- {in_markdown(note)}" for note in self.notes)
        caption = f"{in_markdown(self.caption)}:" if self.caption else ""
        return "\n\n".join(filter(None, [caption, "\n".join(lines), notes]))


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(map(in_markdown, cells))} |"
