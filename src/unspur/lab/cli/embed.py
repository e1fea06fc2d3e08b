"""`unspur embed`: images or texts become an embedding store."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import click
import numpy as np

from unspur.exceptions import InputError
from unspur.lab.cli.common import (
    LocalPath,
    echo_json,
    force_option,
    json_option,
    outside_option,
    seed_option,
    sizes_option,
)
from unspur.lab.cli.completion import one_of
from unspur.lab.cli.words import say, say_command, say_where
from unspur.lab.datasets.celeba import CelebA
from unspur.lab.datasets.examples import Examples
from unspur.lab.datasets.multinli import MultiNLI
from unspur.lab.datasets.own import Own
from unspur.lab.datasets.waterbirds import Composites, LabelRule, read_published
from unspur.lab.encoders import ENCODERS, load_encoder
from unspur.lab.encoders.base import Encoder, Precision
from unspur.lab.encoders.embedding import BATCH, embed
from unspur.lab.encoders.store import MANIFEST, EmbeddingStore
from unspur.lab.experiments.stores import EMBEDDINGS, store_folder

#: Main label and concept to try first.
LABELS = {
    "waterbirds": ("y", "background"),
    "waterbirds-published": ("y", "background"),
    "celeba": ("Smiling", "Male"),
    "multinli": ("y", "concept"),
}
#: Sources whose examples are there twice, once with each value of the concept; and what to do with them.
TWINS = {"waterbirds": "unspur reproduce waterbirds-ood --runs 1 --embeddings", "multinli": None}
#: Options that only some sources have.
ONLY_FOR = {
    "scenes": ("waterbirds",),
    "sizes": ("waterbirds",),
    "rule": ("waterbirds", "waterbirds-published"),
    "limit": ("celeba",),
}


@click.command("embed")
@click.argument("source", type=LocalPath(), required=False, shell_complete=one_of(lambda: list(LABELS), files=True))
@click.option("--encoder", "encoder_name", metavar="NAME", shell_complete=one_of(lambda: list(ENCODERS), files=True),
              help="One of --list, owner/model of the hub, or a folder.")  # fmt: skip
@click.option("--list", "list_only", is_flag=True, help="List the encoders and stop.")
@click.option("--root", type=LocalPath(path_type=Path), help="Folder of the data (a table's own folder).")
@outside_option
@click.option("--scenes", type=LocalPath(path_type=Path), help="Folder of the scenes, if it is not --root.")
@seed_option
@click.option("--rule", type=click.Choice(get_args(LabelRule)), help="Which birds are waterbirds (species).")
@sizes_option("Birds in each split (the paper's).")
@click.option("--limit", type=click.IntRange(1), help="Only the first so many images.")
@click.option("--embeddings", default=str(EMBEDDINGS), show_default=True, type=LocalPath(path_type=Path),
              help="Folder of all stores, in which this one gets its place.")  # fmt: skip
@click.option("--output", type=LocalPath(path_type=Path), help="Folder of this store instead.")
@click.option("--pca", type=click.IntRange(1), metavar="K", help="Keep K principal components of the training rows.")
@click.option("--device", default="auto", show_default=True, metavar="auto|cpu|cuda", help="What the network runs on.")
@click.option("--precision", default="auto", show_default=True, type=click.Choice(get_args(Precision)),
              help="Of the network's numbers.")  # fmt: skip
@click.option("--batch", default=BATCH, show_default=True, type=click.IntRange(1), help="Examples at a time.")
@click.option("--workers", default=2, show_default=True, type=click.IntRange(1), help="Threads that load examples.")
@force_option
@json_option
def embed_command(
    source: str | None,
    encoder_name: str | None,
    list_only: bool,
    root: Path | None,
    allow_outside: bool,
    seed: int,
    embeddings: Path,
    output: Path | None,
    pca: int | None,
    device: str,
    precision: Precision,
    batch: int,
    workers: int,
    force: bool,
    as_json: bool,
    **special: Any,
) -> None:
    """Turn images or texts into embeddings by a frozen network.

    Every example of SOURCE is shown to it, and what it says is kept in a store, which other verbs read.

    SOURCE is waterbirds (pasted from CUB and scenes), waterbirds-published, celeba, multinli, or a table of one's own:
    a .csv file with a column image (paths inside of --root) or text (and text_pair); its other columns are labels.

    A run that is stopped goes on where it was when the command is given again.

    Example:
      unspur embed waterbirds --root data --encoder efficientnet-lite0
    """
    if list_only:
        _list(as_json)
        return
    if source is None or encoder_name is None:
        raise click.UsageError("Name a SOURCE and an --encoder, or --list the encoders.")
    if source not in LABELS and Path(source).suffix.lower() != ".csv":
        raise click.UsageError(f"There is no source {source!r}. Known are {', '.join(LABELS)}, or a .csv file.")
    if source not in LABELS and not Path(source).exists():
        raise InputError(f"There is no file {source}.")
    for option, sources in ONLY_FOR.items():
        if special[option] is not None and source not in sources:
            raise click.UsageError(f"--{option} is for {' and '.join(sources)} only.")
    if source not in LABELS and output is None:
        raise click.UsageError(f"{source} needs --output, the folder of the store.")
    for option, given in (("pca", pca), ("limit", special["limit"]), ("sizes", special["sizes"])):
        if given is not None and output is None:
            raise click.UsageError(f"--{option} needs --output: the place of {source} is for all of its rows.")
    examples = _examples(source, root, seed, allow_outside=allow_outside, **special)
    if pca is not None and "train" not in examples.labels.get("split", ()):
        raise click.UsageError(f"--pca is fitted on training rows: {source} needs a label split with the value train.")
    encoder = load_encoder(encoder_name, device=device, precision=precision, kind=_kind(encoder_name, examples))
    folder = output or store_folder(embeddings, source, _known_as(encoder_name, encoder), seed)
    if not as_json:
        say(
            f"{len(examples)} {examples.kind}s of {examples.name} by {encoder.name} ({encoder.width} numbers each) on "
            f"{encoder.device} -> {folder}"
        )
    found = (folder / MANIFEST).exists() and not force
    store = embed(
        examples, encoder, folder, pca=pca, batch=batch, workers=workers, overwrite=force, progress=not as_json
    )
    place = embeddings if output is None and seed == 0 else None
    following = _following(store, source, LABELS.get(source) or _binary(store), place)
    _tell(store, following, found=found, as_json=as_json)


def _examples(
    source: str,
    root: Path | None,
    seed: int,
    *,
    allow_outside: bool,
    scenes: Path | None,
    sizes: dict[str, int] | None,
    rule: LabelRule | None,
    limit: int | None,
) -> Examples:
    if source not in LABELS:
        return Own.read(source, root, allow_outside=allow_outside)
    if root is None:
        raise click.UsageError(f"{source} needs --root, the folder of its data; unspur data fetches some.")
    if source == "waterbirds":
        return Composites.draw(root, scenes or root, seed, sizes, rule or "species")
    if source == "waterbirds-published":
        return read_published(root, rule)
    return CelebA.read(root, limit) if source == "celeba" else MultiNLI.read(root)


def _kind(name: str, examples: Examples) -> Any:
    """What a network of pictures and texts is to take; others say so themselves."""
    return None if name in ENCODERS else examples.kind


def _known_as(name: str, encoder: Encoder) -> str:
    """Where a folder lies on this machine is not part of its name; a revision of the hub is."""
    return encoder.name if Path(name).expanduser().is_dir() else name


def _binary(store: EmbeddingStore) -> tuple[str, str]:
    """The first two labels with two values, or words that say what is to be put there."""
    two = [name for name, column in store.labels.items() if name != "split" and len(np.unique(column)) == 2]
    return (two[0], two[1]) if len(two) > 1 else (two[0] if two else "LABEL", "CONCEPT")


def _following(store: EmbeddingStore, source: str, labels: Sequence[str], embeddings: Path | None) -> str | None:
    """A command to try on a store, if there is one. A fit is not, where rows would judge their twins."""
    if source in TWINS:
        return f"{TWINS[source]} {shlex.quote(str(embeddings))}" if TWINS[source] and embeddings else None
    main, concept = labels
    train = " --where split=train" if "train" in store.labels.get("split", ()) else ""
    return (
        f"unspur fit {shlex.quote(str(store.folder))}{train} --main {shlex.quote(main)} --concept "
        f"{shlex.quote(concept)} --output {shlex.quote(concept)}.safetensors"
    )


def _tell(store: EmbeddingStore, following: str | None, *, found: bool, as_json: bool) -> None:
    about = store.manifest
    rate = len(store) / about["seconds"] if about.get("seconds") else None
    rows, width = store.rows.shape
    if as_json:
        echo_json({
            "folder": str(store.folder), "found": found, "rows": rows, "width": width, "digest": store.digest,
            "dataset": about["dataset"], "encoder": about["encoder"], "pca": about["pca"], "labels": list(store.labels),
            "rows_per_second": rate, "peak_memory_mb": about.get("peak_memory_mb"), "next": following,
        })  # fmt: skip
        return
    if found:
        say("They are there already; nothing was embedded.")
    say_where("Store", store.folder)
    say(f"{rows} rows × {width}, digest {store.digest}", indent="  ")
    speed = "" if rate is None else f"{rate:.1f} rows a second"
    memory = "" if not about.get("peak_memory_mb") else f"at most {about['peak_memory_mb']} MB of memory"
    if speed or memory:
        say(", ".join(filter(None, (speed, memory))), indent="  ")
    if following is not None:
        say_command("Next:", re.split(r" (?=--)", following))


def _list(as_json: bool) -> None:
    if as_json:
        echo_json([
            {"name": name, "kind": entry.kind, "width": entry.width, "what": entry.words, "needs": entry.needs}
            for name, entry in ENCODERS.items()
        ])  # fmt: skip
        return
    wide = max(map(len, ENCODERS))
    for name, entry in ENCODERS.items():
        width = "width of its own" if entry.width is None else f"{entry.width} numbers"
        below = " " * (wide + 2)
        say(f"{entry.kind}s, {width}: {entry.words}", indent=f"{name:<{wide}}  ", further=below)
        say(f"needs {', '.join(entry.needs)}", indent=below)
    say("Or a model of the Hugging Face hub as owner/model, or its folder.")
