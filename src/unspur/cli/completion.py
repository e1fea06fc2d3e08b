"""Completion of options in a shell: columns of the file on the same line, and names of methods."""

from __future__ import annotations

import csv
import glob
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from zipfile import BadZipFile, ZipFile

import click
from click.shell_completion import CompletionItem

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def columns_of(file: str) -> Completer:
    """A completer for columns of the parameter `file`; of several files, of the first."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
        # An argument before an option that waits for its value is not parsed yet.
        arguments = [one.name for one in ctx.command.params if isinstance(one, click.Argument)]
        given = ctx.params.get(file) or dict(zip(arguments, ctx.args, strict=False)).get(file)
        if not given:
            return []
        path = str(given if isinstance(given, str) else given[0])
        from unspur._reading import suffix_of

        if Path(path).is_file() and suffix_of(path) not in _NAMES:  # its labels are files of their own
            return [CompletionItem(incomplete, type="file")]
        names = [name for name in worth_naming(column_names(path), incomplete) if name.startswith(incomplete)]
        # Bash splits completions at spaces.
        in_bash = os.environ.get("_UNSPUR_COMPLETE", "").startswith("bash")
        return [CompletionItem(name) for name in names if not (in_bash and re.search(r"\s", name))]

    return complete


def one_of(words: Callable[[], Sequence[str]], *, files: bool = False) -> Completer:
    """Completes words that are looked up when they are needed; with `files`, names of files if none fits."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
        found = [CompletionItem(word) for word in words() if word.startswith(incomplete)]
        return found or ([CompletionItem(incomplete, type="file")] if files else [])

    return complete


def column_names(path: str | Path, *, of_every_file: bool = False) -> list[str]:
    """Names of the columns or arrays of a file or store, from its header alone; none if it cannot be read.

    For a folder or a pattern, the names in the first file that is found, or in any of them (`of_every_file`).
    """
    from unspur._reading import require_regular, suffix_of

    names = dict[str, None]()
    try:
        for file in _files_of(Path(path).expanduser()):
            require_regular(file)  # a pipe would never end
            names |= dict.fromkeys(_NAMES[suffix_of(file)](file))
            if not of_every_file:
                break
    except (OSError, ValueError, LookupError, RuntimeError, BadZipFile, ImportError, csv.Error):
        return []
    return list(names)


def _files_of(path: Path) -> Iterator[Path]:
    """The files that have the columns of what a path names: a file, a store, a folder or a pattern."""
    if glob.has_magic(str(path)) and not path.exists():
        for one in glob.iglob(str(path), recursive=True):
            yield from _files_of(Path(one))
    elif path.is_dir():
        labels = path / "labels.csv"  # of an embedding store
        yield from [labels] if labels.is_file() else chain(path.rglob("*.parquet"), path.rglob("*.pq"))
    else:
        yield path


def worth_naming(names: Sequence[str], incomplete: str) -> list[str]:
    """Names to offer: without numbered ones (f0, f1, …), which are features, unless one of them is being typed."""
    families = Counter(_family(name) for name in names)
    others = [name for name in names if families[_family(name)] < 4]
    return others if any(name.startswith(incomplete) for name in others) else list(names)


def _family(name: str) -> str:
    """A name up to its number, or the whole name."""
    found = re.fullmatch(r"(.*?)\d+", name)
    return f"{found[1]}#" if found else name


def _of_csv(path: Path) -> list[str]:
    from unspur._reading import csv_table

    with csv_table(path) as (names, _):
        return names


def _of_npz(path: Path) -> list[str]:
    with ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name != "Z.npy"]


def _of_parquet(path: Path) -> list[str]:
    from pyarrow import parquet

    return [str(name) for name in parquet.read_schema(path).names]


_NAMES: dict[str, Callable[[Path], list[str]]] = {
    **dict.fromkeys((".csv", ".tsv", ".csv.gz", ".tsv.gz"), _of_csv),
    ".npz": _of_npz,
    ".parquet": _of_parquet,
    ".pq": _of_parquet,
}
