"""`unspur-paper embed`: a published dataset becomes an embedding store where experiments look for it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, get_args

import click

from unspur.cli.embed import following, list_encoders, network_options, run
from unspur.cli.options import LocalPath
from unspur.embed.registry import read_source, source_names
from unspur.embed.store import EmbeddingStore
from unspur_paper.cli.options import sizes_option
from unspur_paper.datasets.waterbirds import LabelRule
from unspur_paper.experiments.stores import EMBEDDINGS, store_folder
from unspur_paper.networks.tuned import pooling_in_experiments

SOURCES = source_names()
#: Options that only some sources have.
ONLY_FOR = {
    "scenes": ("waterbirds",),
    "sizes": ("waterbirds",),
    "rule": ("waterbirds", "waterbirds-published"),
    "limit": ("celeba",),
}


@click.command("embed")
@click.argument("source", type=click.Choice(SOURCES), required=False)
@network_options
@click.option("--scenes", type=LocalPath(path_type=Path), help="Folder of the scenes, if it is not --root.")
@click.option("--rule", type=click.Choice(get_args(LabelRule)), help="Which birds are waterbirds (species).")
@sizes_option("Birds in each split (the paper's).")
@click.option("--limit", type=click.IntRange(1), help="Only the first so many images.")
@click.option(
    "--embeddings",
    default=str(EMBEDDINGS),
    show_default=True,
    type=LocalPath(path_type=Path),
    help="Folder of all stores, in which this one gets its place.",
)
def embed_command(
    source: str | None,
    encoder_name: str | None,
    list_only: bool,
    root: Path | None,
    seed: int,
    output: Path | None,
    embeddings: Path,
    scenes: Path | None,
    sizes: dict[str, int] | None,
    rule: LabelRule | None,
    limit: int | None,
    as_json: bool,
    **network: Any,
) -> None:
    """Turn a published dataset into embeddings by a frozen network.

    SOURCE is a dataset such as waterbirds (pasted from CUB and scenes), celeba or multinli. The store goes to a folder
    of SOURCE and encoder, where experiments look for theirs, unless --output names another. Strengths of the
    correlation are drawn later, by experiments. Texts are embedded by their [CLS] token, as in the paper, unless
    --pooling names another way.

    To resume a stopped run, run the same command again.

    Example:
      unspur-paper embed waterbirds --root data --encoder efficientnet-lite0
    """
    if list_only:
        list_encoders(as_json)
        return
    if source is None or encoder_name is None:
        raise click.UsageError("Name a SOURCE and an --encoder, or --list the encoders.")
    special = {"scenes": scenes, "sizes": sizes, "rule": rule, "limit": limit}
    for option, sources in ONLY_FOR.items():
        if special[option] is not None and source not in sources:
            raise click.UsageError(f"--{option} is for {' and '.join(sources)} only.")
    pooling = None if network["pooling"] == "auto" else network["pooling"]
    for option, given in (("pca", network["pca"]), ("limit", limit), ("sizes", sizes), ("pooling", pooling)):
        if given is not None and output is None:
            raise click.UsageError(f"--{option} needs --output: the place of {source} is for all of its rows.")
    network["pooling"] = pooling or pooling_in_experiments(encoder_name)
    examples = read_source(source, root, {"seed": seed, **special})

    def folder_of(encoder: str) -> Path:
        return output or store_folder(embeddings, source, encoder, seed)

    def next_of(store: EmbeddingStore) -> str | None:
        if source == "waterbirds" and output is None and seed == 0:
            return f"unspur-paper reproduce waterbirds-ood --runs 1 --embeddings {shlex.quote(str(embeddings))}"
        return following(store, source)

    run(examples, encoder_name, folder_of, next_of, as_json=as_json, **network)
