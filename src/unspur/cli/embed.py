"""`unspur embed`: turn images or texts into an embedding store."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unspur._text import counted
from unspur.cli.console import echo_json, print_path, say, say_command
from unspur.cli.options import force_option, in_order, json_option, outside_option, seed_option, with_default

if TYPE_CHECKING:
    from unspur.embed.base import Encoder, Precision
    from unspur.embed.examples import Examples
    from unspur.embed.huggingface import Pooling
    from unspur.embed.store import EmbeddingStore

#: Precisions and poolings of `unspur.embed`, written out because importing that takes a while.
PRECISIONS = ("auto", "float32", "bfloat16")
POOLINGS = ("auto", "cls", "mean", "last", "pooler")


def _encoder_names() -> list[str]:
    from unspur.embed.registry import ENCODERS

    return list(ENCODERS)


def _source_names() -> list[str]:
    from unspur.embed.registry import source_names

    return list(source_names())


workers_option = click.option(
    "--workers", type=click.IntRange(1), help="Threads that load examples (one for each core, up to 4)."
)
#: Options of every command that runs a frozen network on examples.
network_options = in_order(
    click.option(
        "--encoder",
        "encoder_name",
        metavar="NAME",
        help="One of --list, owner/model of the hub, or a folder.",
    ),
    click.option("--list", "list_only", is_flag=True, help="List the encoders and stop."),
    click.option("--root", type=click.Path(path_type=Path), help="Folder of the data (a table's own folder)."),
    seed_option,
    click.option("--output", type=click.Path(path_type=Path), help="Folder of the store."),
    click.option(
        "--pca", type=click.IntRange(1), metavar="K", help="Keep K principal components of the training rows."
    ),
    with_default("--device", "auto", "What the network runs on.", metavar="auto|cpu|cuda"),
    with_default("--precision", "auto", "Precision of the network.", type=click.Choice(PRECISIONS)),
    with_default(
        "--pooling",
        "auto",
        "Pooling of tokens for text models; auto: as the model was trained.",
        type=click.Choice(POOLINGS),
    ),
    click.option("--batch", type=click.IntRange(1), help="Examples at a time (16; on a GPU 256)."),
    workers_option,
    force_option,
    json_option,
)


@click.command("embed")
@click.argument("source", type=click.Path(), required=False)
@click.option("--text", metavar="NAME", help="Column of the texts, if it is not called text.")
@network_options
@outside_option
def embed_command(
    source: str | None,
    text: str | None,
    encoder_name: str | None,
    list_only: bool,
    root: Path | None,
    allow_outside: bool,
    seed: int,
    output: Path | None,
    as_json: bool,
    **network: Any,
) -> None:
    """Turn images or texts into embeddings by a frozen network.

    The embeddings of all examples of SOURCE are written to a store, which other commands read.

    SOURCE is a table (.csv, .tsv, .csv.gz, .parquet) with a column image (paths inside of --root) or text (and
    text_pair); its other columns are labels. Or a folder: of class folders with pictures, of pictures without classes,
    of Parquet files, or one that the library datasets saved. It may also be the name of a published dataset that an
    installed package brings, such as waterbirds of the reproduction.

    To resume a stopped run, run the same command again.

    Example:
      unspur embed pictures.csv --encoder efficientnet-lite0 --output store
    """
    if list_only:
        list_encoders(as_json)
        return
    if source is None or encoder_name is None:
        raise click.UsageError("Name a SOURCE and an --encoder, or --list the encoders.")
    from unspur._extras import REPRODUCTION
    from unspur.embed.examples import TableExamples
    from unspur.embed.registry import read_source, source_names
    from unspur.embed.tables import EXAMPLE_FILES, holds_examples
    from unspur.exceptions import InputError

    published = source in source_names()
    if not published and not holds_examples(source):
        known = ", ".join(source_names()) or f"none is installed; those of the paper: {REPRODUCTION}"
        raise click.UsageError(
            f"There is no source {source!r}. Give a table ({', '.join(EXAMPLE_FILES)}), a folder, or a published "
            f"dataset ({known})."
        )
    if not published and not Path(source).exists():
        raise InputError(f"There is no file {source}.")
    if published and text is not None:
        raise click.UsageError("--text names a column of a table; the texts of a published dataset are known.")
    if output is None:
        raise click.UsageError(f"{source} needs --output, the folder of the store.")
    examples: Examples
    if not published:
        examples = TableExamples.read(source, root, allow_outside=allow_outside, text=text)
        for note in examples.notes:
            say(f"Note: {note}", err=True)
    else:
        examples = read_source(source, root, {"seed": seed})
    run(examples, encoder_name, lambda _: output, lambda store: following(store, source), as_json=as_json, **network)


def run(
    examples: Examples,
    encoder_name: str,
    folder_of: Callable[[str], Path],
    next_of: Callable[[EmbeddingStore], str | None],
    *,
    pca: int | None,
    device: str,
    precision: Precision,
    pooling: Pooling,
    batch: int | None,
    workers: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Run a network on examples, and print what came of it.

    `folder_of` returns the folder of the store for the name of an encoder, and `next_of` a command to try on the store.
    """
    from unspur.embed.embedding import embed
    from unspur.embed.registry import ENCODERS, load_encoder
    from unspur.embed.store import MANIFEST

    if pca is not None and "train" not in examples.labels.get("split", ()):
        raise click.UsageError(
            f"--pca is fitted on training rows: {examples.name} needs a label split with the value train."
        )
    # Networks outside of the registry may take pictures and texts, and must know which.
    kind: Any = None if encoder_name in ENCODERS else examples.kind
    encoder: Encoder = load_encoder(encoder_name, device=device, precision=precision, kind=kind, pooling=pooling)
    # Where a folder lies on this machine is not part of its name; a revision of the hub is.
    folder = folder_of(encoder.name if Path(encoder_name).expanduser().is_dir() else encoder_name)
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
    _print_store(store, next_of(store), found=not force and before == manifest.read_bytes(), as_json=as_json)


def _binary(store: EmbeddingStore) -> tuple[str, str]:
    """Names of the first two labels with two values, or placeholders; only a concept may have missing values."""
    two: dict[str, bool] = {}
    for name, column in store.labels.items():
        values = set(column.tolist())
        known = {value for value in values if value not in (None, "NA", "nan", "NaN") and str(value).strip()}
        if name != "split" and len(known) == 2:
            two[name] = len(known) < len(values)
    main = next((name for name, missing in two.items() if not missing), "LABEL")
    return main, next((name for name in two if name != main), "CONCEPT")


def following(store: EmbeddingStore, source: str) -> str | None:
    """A command to try on a store; none for paired rows, whose twins could be among the test rows."""
    from unspur.embed.registry import load_source, source_names

    known = load_source(source) if source in source_names() else None
    if known is not None and known.paired:
        return None
    train = " --where split=train" if "train" in store.labels.get("split", ()) else ""
    labels = [name for name in store.labels if name != "split"]
    if known is None and not labels:
        return f"unspur predict MODEL.safetensors {shlex.quote(str(store.folder))} --output predictions.csv"
    if known is None and len(labels) > 2:  # which of them is the task, the user knows; an audit finds concepts
        return f"unspur audit {shlex.quote(str(store.folder))}{train} --task LABEL"
    main, concept = _binary(store) if known is None else known.labels
    output = re.sub(r"[/\\]", "-", concept) + ".safetensors"
    return (
        f"unspur fit {shlex.quote(str(store.folder))}{train} --task {shlex.quote(main)} --concept "
        f"{shlex.quote(concept)} --output {shlex.quote(output)}"
    )


def _print_store(store: EmbeddingStore, following: str | None, *, found: bool, as_json: bool) -> None:
    about = store.manifest
    rate = len(store) / about["seconds"] if about.get("seconds") else None
    rows, width = store.rows.shape
    if as_json:
        echo_json(
            {
                "folder": str(store.folder),
                "found": found,
                "rows": rows,
                "width": width,
                "digest": store.digest,
                "dataset": about["dataset"],
                "encoder": about["encoder"],
                "pca": about["pca"],
                "labels": list(store.labels),
                "rows_per_second": rate,
                "peak_memory_mb": about.get("peak_memory_mb"),
                "cut": about.get("cut"),
                "pooling": about.get("pooling"),
                "normalised": about.get("normalised"),
                "next": following,
            }
        )
        return
    if found:
        say("The store is already complete; nothing was embedded.")
    print_path("Store", store.folder)
    say(f"{counted(rows, 'row')} × {width}, digest {store.digest}", indent="  ")
    speed = "" if rate is None else f"{rate:.1f} rows a second"
    memory = "" if not about.get("peak_memory_mb") else f"at most {about['peak_memory_mb']} MB of memory"
    if speed or memory:
        say(", ".join(filter(None, (speed, memory))), indent="  ")
    if (cut := about.get("cut")) and cut["texts"]:
        are, were = ("is", "was") if cut["texts"] == 1 else ("are", "were")
        say(
            f"Note: {cut['texts']:,} of {rows:,} texts {are} longer than {cut['max_tokens']} tokens and {were} cut.",
            err=True,
        )
    if following is not None:
        say_command(shlex.split(following))


def list_encoders(as_json: bool) -> None:
    """Print what encoders there are."""
    from unspur.embed.registry import ENCODERS

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
