"""`unspur embed`: turn pictures or texts into embeddings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from unspur.cli.console import echo_json, print_path, say, say_command
from unspur.cli.options import force_option, json_option, with_default

#: Most values of a column that a command to try takes for a label.
MOST_CLASSES = 20


@click.command("embed")
@click.argument("source")
@click.option("--encoder", required=True, help="efficientnet-lite0, minilm, owner/model of the hub, or a folder.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Folder of the embeddings.")
@click.option("--image", metavar="NAME", help="Column of the paths of pictures (image).")
@click.option("--text", metavar="NAME", help="Column of the texts (text).")
@click.option("--root", type=click.Path(path_type=Path), help="Folder that paths are relative to (the table's own).")
@with_default("--device", "auto", "What the network runs on.", metavar="auto|cpu|cuda")
@with_default("--precision", "auto", "Precision.", type=click.Choice(("auto", "float32", "bfloat16")))
@with_default("--pooling", "auto", "The row of a text.", type=click.Choice(("auto", "cls", "mean", "last")))
@click.option("--batch", type=click.IntRange(1), help="Examples at a time (16; on a GPU 256).")
@click.option("--workers", type=click.IntRange(1), help="Threads that load examples (one for each core, up to 4).")
@force_option
@json_option
def embed_command(
    source: str,
    encoder: str,
    output: Path,
    image: str | None,
    text: str | None,
    root: Path | None,
    device: str,
    precision: Any,
    pooling: Any,
    batch: int | None,
    workers: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Turn images or texts into embeddings by a frozen network.

    SOURCE is a table (.csv, .parquet) with a column image, of paths, or text. Its other columns are labels. It may also
    be a folder of class folders, a folder that the library datasets saved, or a data set of the Hugging Face hub.

    OUTPUT becomes a folder of Parquet files, which the other commands read. To resume a stopped run, run the same
    command again.

    Example:
      unspur embed pictures.csv --encoder efficientnet-lite0 --output embeddings
    """
    from unspur.embed import embed, load_encoder, read_embeddings, read_examples

    examples = read_examples(source, root=root, image=image, text=text)
    network = load_encoder(encoder, kind=examples.kind, device=device, precision=precision, pooling=pooling)
    show = not as_json and sys.stderr.isatty()
    embed(examples, network, output, batch=batch, workers=workers, overwrite=force, progress=show)
    Z, labels = read_embeddings(output)
    words = _next(output, labels)
    if as_json:
        about = {"folder": str(output), "rows": len(Z), "width": Z.shape[1], "labels": list(labels)}
        echo_json({**about, "encoder": network.name, "options": network.options, "next": " ".join(words)})
        return
    print_path("Embeddings", output)
    say(f"{len(Z):,} rows × {Z.shape[1]} by {network.name} on {network.device}", indent="  ")
    if words:
        say_command(words)


def _next(folder: Path, labels: Any) -> list[str]:
    """A command to try: with two labels of two values a fit, else an audit."""
    train = ["--where", "split=train"] if "split" in labels and (labels["split"] == "train").any() else []
    counts = labels.drop(columns=["split", "image", "text"], errors="ignore").nunique()
    two = [name for name, n in counts.items() if n == 2]
    if len(two) == 2:
        task, concept = two
        fit = ["--task", task, "--concept", concept, "--output", f"{concept}.safetensors".replace("/", "-")]
        return ["unspur", "fit", str(folder), *train, *fit]
    few = [name for name, n in counts.items() if 2 <= n <= MOST_CLASSES]
    return ["unspur", "audit", str(folder), *train, "--task", few[0]] if few else []
