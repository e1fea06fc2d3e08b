"""Images or texts of one's own: a table with a line for each.

::

    image,bird,background              text,text_pair,contradiction
    gulls/001.jpg,gull,water           A man sleeps.,A man is awake.,1

The column `image` holds paths inside of a folder; or `text`, and for pairs `text_pair`, holds what is to be read. A
column `id` names the examples. Every other column is a label.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspur._reading import brief
from unspur._typing import Array
from unspur.embed.examples import SHOWN, Kind, digest_of, inside_of, label_column, open_image
from unspur.exceptions import InputError
from unspur.rows.names import first_line, listed, separator, some

#: Columns that are not labels.
IMAGE, TEXT, PAIR, ID = "image", "text", "text_pair", "id"
#: Missing files that are named; more are counted.
NAMED = 3


@dataclass(frozen=True, slots=True)
class Own:
    """Examples in the order of their table.

    A label is a column of whole numbers where all its values are some, else of words.
    """

    table: Path
    root: Path
    #: A path relative to `root` for each image; a text, or a tuple of two, for each text.
    content: Sequence[Any]
    ids: Sequence[str]
    labels: Mapping[str, Array]
    settings: Mapping[str, Any]
    name: str
    kind: Kind

    @classmethod
    def read(cls, table: str | Path, root: str | Path | None = None, *, allow_outside: bool = False) -> Own:
        """From a .csv file; paths of images are relative to `root`, by default the folder of the table.

        Only with `allow_outside` may they, or links among them, lead out of it.
        """
        table = Path(table)
        root = table.parent if root is None else Path(root)
        columns = _columns(table)
        kind = _kind(columns, table)
        rows = len(next(iter(columns.values())))
        content: Sequence[Any] = columns.pop(kind)
        for number, field in enumerate(content, 1):
            if not field.strip():
                raise InputError(f"{table}: row {number} has no {kind}. Every row needs one; drop it, or fill it in.")
        if kind == "image":
            _require_files(root, content, table, allow_outside=allow_outside)
        elif PAIR in columns:
            content = list(zip(content, columns.pop(PAIR), strict=True))
        ids = columns.pop(ID, None) or (content if kind == "image" else [str(number + 1) for number in range(rows)])
        _require_distinct(ids, table)
        labels = {name: label_column(fields) for name, fields in columns.items()}
        return cls(table, root, content, ids, labels, {f"{kind}s": rows}, table.stem, kind)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Any:
        """Load one image, or give one text."""
        return open_image(self.root / self.content[index]) if self.kind == "image" else self.content[index]

    def digest(self) -> str:
        """Of the table and the images."""
        images = [self.root / name for name in self.content] if self.kind == "image" else []
        return digest_of(self.name, self.settings, self.labels, (self.table, *images))


def _columns(table: Path) -> dict[str, list[str]]:
    """Name -> fields, for a table with a header, lines, and as many fields in each."""
    if table.suffix.lower() == ".csv" and not table.exists():
        raise InputError(f"There is no file {table}.")
    if table.suffix.lower() != ".csv" or not table.is_file():
        raise InputError(f"{table} is no .csv file; a table of one's own is needed, or the name of a dataset.")
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            mark = separator(first_line(file))
            file.seek(0)
            header, *lines = [line for line in csv.reader(file, delimiter=mark) if line] or [[]]
    except UnicodeDecodeError as error:
        raise InputError(f"{table} is not UTF-8 text (byte {error.start}). Save it as UTF-8.") from error
    except csv.Error as error:
        raise InputError(f"{table} cannot be read as CSV: {brief(error)}.") from error
    if not lines:
        raise InputError(f"{table} has no rows below a header.")
    if "" in header or len(set(header)) < len(header):
        raise InputError(f"{table} needs a different name for every column; it has {some(header)}.")
    for number, line in enumerate(lines, 1):
        if len(line) != len(header):
            raise InputError(f"{table}: row {number} has {len(line)} fields; the header has {len(header)}.")
    return {name: list(fields) for name, fields in zip(header, zip(*lines, strict=True), strict=True)}


def _kind(columns: Mapping[str, Any], table: Path) -> Kind:
    if (IMAGE in columns) == (TEXT in columns):
        found = "both" if IMAGE in columns else listed(columns)
        raise InputError(f"{table} needs a column {IMAGE!r} or a column {TEXT!r}; it has {found}. Rename one.")
    if PAIR in columns and TEXT not in columns:
        raise InputError(f"{table} has a column {PAIR!r} without {TEXT!r}; a pair of texts needs both.")
    return "image" if IMAGE in columns else "text"


def _require_files(root: Path, names: Sequence[str], table: Path, *, allow_outside: bool) -> None:
    missing = [name for name in names if not inside_of(root, name, table, allow_outside=allow_outside).is_file()]
    if missing:
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        raise InputError(
            f"{len(missing)} of {len(names)} images that {table} names are not in {root}: "
            f"{', '.join(brief(name, SHOWN) for name in missing[:NAMED])}{more}. Paths are relative to --root."
        )


def _require_distinct(ids: Sequence[str], table: Path) -> None:
    seen: dict[str, int] = {}
    for number, name in enumerate(ids, 1):
        if name in seen:
            raise InputError(
                f"{table}: rows {seen[name]} and {number} are both called {brief(name, SHOWN)!r}. Drop one, or give "
                f"every row a name of its own in a column {ID!r}."
            )
        seen[name] = number
