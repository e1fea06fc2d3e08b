"""`unspur pictures`: pages with birds or faces, made from your own copy of the data."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from unspur.lab.cli.common import force_option, seed_option
from unspur.lab.datasets.waterbirds import BACKGROUNDS, Composites
from unspur.lab.experiments.changed_pictures import changed_pictures
from unspur.lab.experiments.reproduce import find_experiments
from unspur.lab.experiments.stores import EMBEDDINGS
from unspur.lab.report.picture_page import write_changed, write_gallery


@click.command()
@click.argument("what", type=click.Choice(["celeba-pixels", "waterbirds"]))
@click.option("--root", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Folder of CUB_200_2011 and scenes, for waterbirds.")  # fmt: skip
@click.option("--embeddings", default=EMBEDDINGS, show_default=True, type=click.Path(file_okay=False, path_type=Path),
              help="Folder of embedding stores, for celeba-pixels.")  # fmt: skip
@click.option("--each", default=2, show_default=True, type=click.IntRange(1, 50), help="Pictures of every group.")
@click.option(
    "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The page, an .html file."
)
@seed_option
@force_option
def pictures(what: str, root: Path | None, embeddings: Path, each: int, output: Path, seed: int, force: bool) -> None:
    """Faces before and after every remover (celeba-pixels), or birds on their backgrounds (waterbirds).

    Example: unspur pictures celeba-pixels --output faces.html
    """
    if what == "celeba-pixels":
        (experiment,) = find_experiments([what])
        changed = changed_pictures(experiment, embeddings, each=each, run=seed)
        page = write_changed(changed, output, experiment.title, overwrite=force)
    else:
        if root is None:
            raise click.UsageError("Name the folder of CUB_200_2011 and scenes: --root.")
        birds = Composites.draw(root, root, seed)
        page = write_gallery(_groups(birds, each), output, f"Waterbirds, seed {seed}", overwrite=force)
    click.echo(f"{page}: open it in a browser.")


def _groups(birds: Composites, each: int) -> dict[str, list[tuple[str, object]]]:
    """Some training pictures of every group."""
    y, background, split = (birds.labels[name] for name in ("y", "background", "split"))
    groups = {}
    for main, kind in ((0, "landbirds"), (1, "waterbirds")):
        for concept, where in enumerate(BACKGROUNDS):
            members = np.flatnonzero((y == main) & (background == concept) & (split == "train"))
            chosen = np.random.default_rng(0).permutation(members)[:each]
            groups[f"{kind} on {where}"] = [(_species(birds.ids[i]), birds[int(i)]) for i in chosen]
    return groups


def _species(name: str) -> str:
    """Of an id such as ``141.Artic_Tern/Artic_Tern_0001@land``."""
    return name.split("/", maxsplit=1)[0].split(".", 1)[-1].replace("_", " ")
