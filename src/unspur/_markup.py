"""Small tables as HTML for notebooks and as Markdown for model cards: escaped text, and no style of their own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

from unspur._text import one_line

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
