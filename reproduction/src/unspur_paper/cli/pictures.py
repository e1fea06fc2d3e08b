"""`unspur-paper pictures`: pages with birds or faces, made from your own copy of the data."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from unspur._typing import Array
from unspur.exceptions import InputError
from unspur_paper.cli.program import force_option, say, seed_option
from unspur_paper.datasets.celeba import MOUTH, CelebA
from unspur_paper.datasets.waterbirds import BACKGROUNDS, Composites
from unspur_paper.embedding.base import resize_and_crop
from unspur_paper.experiments.changed_pictures import changed_pictures
from unspur_paper.experiments.gradcam_pictures import LookedAt, gradcam_pictures
from unspur_paper.experiments.reproduce import find_experiments
from unspur_paper.experiments.stores import EMBEDDINGS
from unspur_paper.files import refuse_existing
from unspur_paper.networks.maps import opacity
from unspur_paper.report.gradcam_page import BIRDS, FACES, Pictures, write_maps_page
from unspur_paper.report.picture_page import species, write_changed, write_gallery


@click.command()
@click.argument("what", type=click.Choice(["celeba-pixels", "celeba-gradcam", "waterbirds", "waterbirds-gradcam"]))
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of CUB_200_2011 and scenes, or of celeba; for all but celeba-pixels.",
)
@click.option(
    "--embeddings",
    default=EMBEDDINGS,
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of embedding stores, for all but waterbirds.",
)
@click.option("--each", default=2, show_default=True, type=click.IntRange(1, 50), help="Pictures of every group.")
@click.option(
    "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The page, an .html file."
)
@seed_option
@force_option
def pictures(what: str, root: Path | None, embeddings: Path, each: int, output: Path, seed: int, force: bool) -> None:
    """Draw pages of birds or faces from your copy of the data.

    With celeba-pixels, faces before and after every remover; with waterbirds, birds on their backgrounds; with
    waterbirds-gradcam and celeba-gradcam, where a fine-tuned network looks, for every method.

    Example:
      unspur-paper pictures celeba-pixels --output faces.html
    """
    refuse_existing(output, overwrite=force)  # before anything is fitted
    if what == "celeba-pixels":
        (experiment,) = find_experiments([what])
        changed = changed_pictures(experiment, embeddings, each=each, run=seed)
        page = write_changed(changed, output, experiment.title, overwrite=force)
    elif root is None:
        raise click.UsageError("Name the folder of CUB_200_2011 and scenes, or of celeba: --root.")
    elif what == "waterbirds":
        birds = Composites.draw(root, root, seed)
        page = write_gallery(_groups(birds, each), output, f"Waterbirds, seed {seed}", overwrite=force)
    else:
        (experiment,) = find_experiments([what])
        looked = gradcam_pictures(experiment, embeddings, each=each, run=seed)
        whole, words = (
            (CelebA.read(root), FACES) if what == "celeba-gradcam" else (Composites.draw(root, root, seed), BIRDS)
        )
        page = write_maps_page(looked, _as_shown(whole, looked), output, experiment.title, words=words, overwrite=force)
    say(f"{page}: open it in a browser.")


def _groups(birds: Composites, each: int) -> dict[str, list[tuple[str, object]]]:
    """Some training pictures of every group."""
    y, background, split = (birds.labels[name] for name in ("y", "background", "split"))
    groups = {}
    for main, kind in ((0, "landbirds"), (1, "waterbirds")):
        for concept, where in enumerate(BACKGROUNDS):
            members = np.flatnonzero((y == main) & (background == concept) & (split == "train"))
            chosen = np.random.default_rng(0).permutation(members)[:each]
            groups[f"{kind} on {where}"] = [(species(birds.ids[i]), birds[int(i)]) for i in chosen]
    return groups


def _as_shown(whole: Composites | CelebA, looked: LookedAt) -> Pictures:
    """Pictures and masks by id, cut as the network was shown them."""
    number, preparation = {name: i for i, name in enumerate(whole.ids)}, looked.preparation
    missing = [name for name in looked.ids if name not in number]
    if missing:
        raise InputError(
            f"The pictures of --root do not have {missing[0]}, of which there is a map. Name the folder that the "
            "network was fine-tuned on."
        )
    if preparation is None:
        raise InputError("The maps do not say how their pictures were cut, so they cannot be laid over them.")

    def shown(name: str) -> tuple[object, Array]:
        from PIL import Image

        i = number[name]
        mask = whole.mask(MOUTH) if isinstance(whole, CelebA) else whole.mask(i)
        return Image.fromarray(resize_and_crop(whole[i], preparation)), opacity(mask, preparation)

    return shown
