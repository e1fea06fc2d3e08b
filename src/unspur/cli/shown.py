"""What --show names: a column of paths or texts, an array of pictures, or the examples that a store was made of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from unspur._typing import Array
    from unspur.embed.examples import Examples
    from unspur.io.tables import Table


def is_column(show: str | None) -> bool:
    """Whether --show names something that is read with the rows."""
    from unspur.embed.sources import source_names

    return show is not None and show not in source_names() and Path(show).suffix.lower() != ".csv"


def refuse_unread_dataset(show: str, rows: Path) -> None:
    """Refuse the name of the dataset that a store was made of, where no installed package can read it."""
    from unspur._extras import REPRODUCTION
    from unspur.embed.store import MANIFEST, read_manifest

    if (rows / MANIFEST).exists() and read_manifest(rows)["dataset"]["name"] == show:
        raise click.UsageError(
            f"{rows} was made of {show}, which no installed package can read. Datasets of the paper come with the "
            f"reproduction: {REPRODUCTION}."
        )


def shown(show: str, table: Table, root: Path | None, *, allow_outside: bool = False) -> dict[str, Any]:
    """Pictures or texts of the rows of a table, as arguments of `find`.

    Pictures lie in `root`, by default the folder of the table; elsewhere only with `allow_outside`: what they show gets
    onto a page that others may be given.
    """
    if not is_column(show):
        return _of_store(show, table, root, allow_outside=allow_outside)
    values = table.label(show)
    if values.ndim > 1:
        return {"pictures": values}
    _require_all(values, show, table.path)
    words = [str(value) for value in values.tolist()]
    if not _are_pictures(words):
        return {"texts": words}
    folder = (table.path if table.path.is_dir() else table.path.parent) if root is None else root
    from unspur.embed.examples import inside_of

    return {"pictures": [inside_of(folder, word, table.path, allow_outside=allow_outside) for word in words]}


def _are_pictures(words: Sequence[str]) -> bool:
    from unspur.report.row_content import PICTURES

    return all(Path(word).suffix.lower() in PICTURES for word in words)


def _require_all(values: Array, show: str, path: Path) -> None:
    from unspur.exceptions import InputError

    gaps = sum(value is None or value != value for value in values.tolist())
    if gaps:
        raise InputError(f"{show} of {path} is empty in {gaps} rows; all rows that are shown need something to show.")


def _of_store(show: str, table: Table, root: Path | None, *, allow_outside: bool) -> dict[str, Any]:
    """The examples of a store's rows, which are found by their ids."""
    import numpy as np

    from unspur.exceptions import InputError
    from unspur.report.row_content import Part

    if "id" not in table.columns:
        raise click.UsageError(f"--show {show} is for the rows of an embedding store, which have ids; {table.path} has "
                               "none. Name one of its columns.")  # fmt: skip
    examples = _examples(show, table.path, root, allow_outside=allow_outside)
    number = {name: i for i, name in enumerate(examples.ids)}
    ids = [str(name) for name in table.columns["id"].tolist()]
    strange = [name for name in ids if name not in number]
    if strange:
        raise InputError(
            f"{len(strange)} rows of {table.path} are not among the examples of {show}, the first {strange[0]!r}. Name "
            "what the store was made of."
        )
    part = Part(examples, np.array([number[name] for name in ids]))
    return {"pictures" if examples.kind == "image" else "texts": part}


def _examples(show: str, store: Path, root: Path | None, *, allow_outside: bool) -> Examples:
    """The dataset that a store was made of, as its manifest says it was drawn."""
    from unspur.embed.own import Own
    from unspur.embed.sources import load_source, source_names
    from unspur.embed.store import read_manifest

    if show not in source_names():
        return Own.read(show, root, allow_outside=allow_outside)
    if root is None:
        raise click.UsageError(f"--show {show} needs --root, the folder of its data.")
    return load_source(show).read(root, read_manifest(store)["dataset"]["settings"])
