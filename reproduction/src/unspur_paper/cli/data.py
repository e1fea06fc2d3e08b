"""`unspur-paper data`: a dataset in its publisher's layout, found or downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from unspur_paper.cli.program import echo_json, json_option, say
from unspur_paper.datasets.downloads import Found, Outcome, obtain
from unspur_paper.datasets.publications import PUBLICATIONS, Publication


@click.command()
@click.argument("name", type=click.Choice(list(PUBLICATIONS)), required=False)
@click.option("--root", type=click.Path(path_type=Path), help="Folder that holds the datasets; made if needed.")
@click.option("--list", "as_list", is_flag=True, help="List the datasets, their sizes, terms and pages.")
@click.option(
    "--archive",
    "archives",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A published file that is already here; used instead of the network, and kept.",
)
@click.option("--url", "urls", multiple=True, help="Another address of a published file.")
@click.option("--unverified", is_flag=True, help="Accept files of another size or checksum than stated.")
@click.option("--keep-archive", is_flag=True, help="Keep what was downloaded in ROOT/.downloads.")
@json_option
def data(
    name: str | None,
    root: Path | None,
    as_list: bool,
    archives: tuple[Path, ...],
    urls: tuple[str, ...],
    unverified: bool,
    keep_archive: bool,
    as_json: bool,
) -> None:
    """Find or download a dataset.

    Afterwards dataset NAME is complete under a folder: what is there is used, the rest is downloaded. A download that
    was stopped goes on where it was.

    Example:
      unspur-paper data waterbirds --root data
    """
    if as_list:
        _show_list(as_json)
        return
    if name is None or root is None:
        raise click.UsageError("Name a dataset and its --root, or pass --list.")
    outcome = obtain(
        PUBLICATIONS[name],
        root,
        archives=archives,
        urls=urls,
        keep_archive=keep_archive,
        unverified=unverified,
        say=lambda text: say(text, err=as_json),
    )
    if as_json:
        echo_json(_outcome(outcome))
        return
    say(f"{name} is complete under {root}:")
    _show(outcome.found)
    if outcome.action == "found":
        say("Nothing was downloaded.")


def _show(found: list[Found]) -> None:
    wide = max(len(one.part.pattern) for one in found)
    for one in found:
        say(f"{one.part.pattern:<{wide}}  {one.words} ({one.part.what})", indent="  ", further=" " * 6)


def _outcome(outcome: Outcome) -> dict[str, Any]:
    files = [
        {"pattern": one.part.pattern, "what": one.part.what, "files": one.files, "published": one.part.published}
        for one in outcome.found
    ]
    used = [
        {"file": one.file, "from": one.origin, "bytes": one.bytes, "sha256": one.sha256, "checksum": one.checksum}
        for one in outcome.receipts
    ]
    return {"dataset": outcome.name, "root": str(outcome.root), "action": outcome.action, "layout": files, "used": used}


def _show_list(as_json: bool) -> None:
    if as_json:
        echo_json([_entry(dataset) for dataset in PUBLICATIONS.values()])
        return
    for dataset in PUBLICATIONS.values():
        say(f"{dataset.name}: {dataset.title}", further="    ")
        for line in (f"size: {_size(dataset)}", f"terms: {dataset.terms}", f"page: {dataset.page}"):
            say(line, indent="  ", further="    ")


def _entry(dataset: Publication) -> dict[str, Any]:
    archives = [
        {"file": one.file, "url": one.url, "bytes": one.size, "checksum": one.checksum, "stated_by": one.stated_by}
        for one in dataset.archives
    ]
    about = {"dataset": dataset.name, "title": dataset.title, "page": dataset.page, "terms": dataset.terms}
    return {**about, "by_hand": dataset.by_hand, "archives": archives}


def _size(dataset: Publication) -> str:
    """What there is to download, in words."""
    if not dataset.archives:
        return "depends on what is chosen (by hand)"
    sizes = [archive.size for archive in dataset.archives]
    known = [size for size in sizes if size is not None]
    text = f"{sum(known) / 1e6:,.0f} MB" if len(known) == len(sizes) else "not stated"
    return text if any(archive.url for archive in dataset.archives) else f"{text} (by hand)"
