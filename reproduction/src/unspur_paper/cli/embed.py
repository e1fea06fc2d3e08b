"""`unspur-paper embed`: a published dataset becomes an embedding store where experiments look for it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, get_args

import click

from unspur_paper.cli.options import sizes_option
from unspur_paper.cli.program import echo_json, force_option, json_option, print_path, say, seed_option
from unspur_paper.datasets.sources import SOURCES, read_source
from unspur_paper.datasets.waterbirds import LabelRule
from unspur_paper.embedding.base import Precision
from unspur_paper.embedding.embedding import embed
from unspur_paper.embedding.registry import ENCODERS, load_encoder
from unspur_paper.embedding.store import MANIFEST, EmbeddingStore
from unspur_paper.experiments.stores import EMBEDDINGS, store_folder

workers_option = click.option(
    "--workers", type=click.IntRange(1), help="Threads that load examples (one for each core, up to 4)."
)
device_option = click.option(
    "--device", default="auto", show_default=True, metavar="auto|cpu|cuda", help="What the network runs on."
)
precision_option = click.option(
    "--precision",
    default="auto",
    show_default=True,
    type=click.Choice(get_args(Precision)),
    help="Precision of the network.",
)
embeddings_option = click.option(
    "--embeddings",
    default=EMBEDDINGS,
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder of all stores, in which this one gets its place.",
)
#: Options that only some sources have.
ONLY_FOR = {
    "scenes": ("waterbirds",),
    "sizes": ("waterbirds",),
    "rule": ("waterbirds", "waterbirds-published"),
    "limit": ("celeba",),
}


@click.command("embed")
@click.argument("source", type=click.Choice(list(SOURCES)), required=False)
@click.option("--encoder", "encoder_name", metavar="NAME", help="One of --list, owner/model of the hub, or a folder.")
@click.option("--list", "list_only", is_flag=True, help="List the encoders and stop.")
@click.option("--root", type=click.Path(path_type=Path), help="Folder of the data.")
@seed_option
@click.option("--output", type=click.Path(path_type=Path), help="Folder of the store.")
@click.option("--pca", type=click.IntRange(1), metavar="K", help="Keep K principal components of the training rows.")
@device_option
@precision_option
@click.option("--batch", type=click.IntRange(1), help="Examples at a time (16; on a GPU 256).")
@workers_option
@force_option
@json_option
@click.option("--scenes", type=click.Path(path_type=Path), help="Folder of the scenes, if it is not --root.")
@click.option("--rule", type=click.Choice(get_args(LabelRule)), help="Which birds are waterbirds (species).")
@sizes_option("Birds in each split (the paper's).")
@click.option("--limit", type=click.IntRange(1), help="Only the first so many images.")
@embeddings_option
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
    pca: int | None,
    device: str,
    precision: Precision,
    batch: int | None,
    workers: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Turn a published dataset into embeddings by a frozen network.

    SOURCE is a dataset such as waterbirds (pasted from CUB and scenes), celeba or multinli. The store goes to a folder
    of SOURCE and encoder, where experiments look for theirs, unless --output names another. Strengths of the
    correlation are drawn later, by experiments. Texts are embedded by their [CLS] token, as in the paper.

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
    for option, given in (("pca", pca), ("limit", limit), ("sizes", sizes)):
        if given is not None and output is None:
            raise click.UsageError(f"--{option} needs --output: the place of {source} is for all of its rows.")
    examples = read_source(source, root, {"seed": seed, **special})
    if pca is not None and "train" not in examples.labels.get("split", ()):
        raise click.UsageError(f"--pca is fitted on training rows, and {source} has no label split.")
    # Networks outside of the registry may take pictures and texts, and must know which.
    kind: Any = None if encoder_name in ENCODERS else examples.kind
    encoder = load_encoder(encoder_name, device=device, precision=precision, kind=kind)
    # Where a folder lies on this machine is not part of its name; a revision of the hub is.
    known_as = encoder.name if Path(encoder_name).expanduser().is_dir() else encoder_name
    folder = output or store_folder(embeddings, source, known_as, seed)
    if not as_json:
        say(
            f"{len(examples)} {examples.kind}s of {examples.name} by {encoder.name} ({encoder.width} numbers each) on "
            f"{encoder.device} -> {folder}"
        )
    manifest = folder / MANIFEST
    before = manifest.read_bytes() if manifest.is_file() else None
    store = embed(
        examples, encoder, folder, pca=pca, batch=batch, workers=workers, overwrite=force, progress=not as_json
    )
    _tell(store, found=not force and before == manifest.read_bytes(), as_json=as_json)
    if source == "waterbirds" and output is None and seed == 0 and not as_json:
        print_path(
            "Next", f"unspur-paper reproduce waterbirds-ood --runs 1 --embeddings {shlex.quote(str(embeddings))}"
        )


def _tell(store: EmbeddingStore, *, found: bool, as_json: bool) -> None:
    about, (rows, width) = store.manifest, store.rows.shape
    if as_json:
        kept = {name: about.get(name) for name in ("dataset", "encoder", "pca", "seconds", "cut")}
        made = {"folder": str(store.folder), "found": found, "rows": rows, "width": width, "digest": store.digest}
        echo_json({**made, **kept, "labels": list(store.labels)})
        return
    if found:
        say("The store is already complete; nothing was embedded.")
    print_path("Store", store.folder)
    say(f"{rows:,} rows × {width}, digest {store.digest}", indent="  ")
    if (cut := about.get("cut")) and cut["texts"]:
        say(f"Note: {cut['texts']:,} of {rows:,} texts were cut after {cut['max_tokens']} tokens.", err=True)


def list_encoders(as_json: bool) -> None:
    """Print what encoders there are."""
    if as_json:
        echo_json(
            [
                {"name": name, "kind": one.kind, "width": one.width, "what": one.description, "needs": one.needs}
                for name, one in ENCODERS.items()
            ]
        )
        return
    wide = max(map(len, ENCODERS))
    for name, entry in ENCODERS.items():
        width = "width of its own" if entry.width is None else f"{entry.width} numbers"
        below = " " * (wide + 2)
        say(f"{entry.kind}s, {width}: {entry.description}", indent=f"{name:<{wide}}  ", further=below)
        say(f"needs {', '.join(entry.needs)}", indent=below)
    say("Or a model of the Hugging Face hub as owner/model, or its folder.")
