"""The report of real birds: every bird pasted on land or water, at the strength of Waterbirds, by a frozen network.

    python reproduction/scripts/report_birds.py --root data --embeddings unspur-embeddings --output report-birds.html

Needs the birds and scenes of reproduction/docs/datasets.md in --root, and the store that `unspur-paper embed waterbirds --root data
--encoder efficientnet-lite0` makes. Training birds are on their own background in 95 % of pictures, test birds in half
of them. All methods see the training birds alone. `--with INLP` adds one that takes some minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
import numpy as np
from tqdm import tqdm

from unspur import JSE
from unspur._typing import Array
from unspur.exceptions import UnspurError
from unspur.report.measuring import N_STEPS
from unspur.report.page import build
from unspur.report.views import ContentSubset
from unspur_paper.datasets.waterbirds import Composites
from unspur_paper.embedding.registry import load_encoder
from unspur_paper.embedding.store import read_manifest
from unspur_paper.experiments.draws import draw
from unspur_paper.experiments.registry import DATASETS
from unspur_paper.experiments.stores import EMBEDDINGS, found_folder
from unspur_paper.rows import Rows

#: What the codes of the store mean.
BIRDS, BACKGROUNDS = ("landbird", "waterbird"), ("land", "water")


@click.command()
@click.option("--root", default="data", show_default=True, type=click.Path(path_type=Path), help="Birds and scenes.")
@click.option("--embeddings", default=str(EMBEDDINGS), show_default=True, type=click.Path(path_type=Path))
@click.option("--encoder", "encoder_name", default="efficientnet-lite0", show_default=True)
@click.option("--output", default="report-birds.html", show_default=True, type=click.Path(path_type=Path))
@click.option("--p", default=0.95, show_default=True, type=click.FloatRange(0.5, 0.99), help="Strength in training.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--with", "compared", multiple=True, default=("RLACE", "LEACE", "SPLINCE", "GroupWeighted"))
def main(
    root: Path, embeddings: Path, encoder_name: str, output: Path, p: float, seed: int, compared: tuple[str, ...]
) -> None:
    settings = {name: setting.default for name, setting in DATASETS["waterbirds"].items()}
    data = {"name": "waterbirds", **settings, "encoder": encoder_name, "p": p}
    try:
        folder = found_folder(data, seed, embeddings)
        made = read_manifest(folder)["dataset"]["settings"]
        birds = Composites.draw(root, root, made["seed"], made["sizes"], made["rule"])
        page(data, birds, seed, embeddings, output, compared)
    except UnspurError as error:
        sys.exit(
            f"The report of the birds cannot be made here. {error}\nreproduction/docs/datasets.md says where data come from."
        )


def page(data: dict, birds: Composites, seed: int, embeddings: Path, output: Path, compared: tuple[str, ...]) -> None:
    encoder = load_encoder(data["encoder"])  # first: it may not be installed
    rows = draw(data, seed, embeddings)
    train, test = _named(rows.train), _named(rows.test)
    jse = JSE(random_state=seed, verbose=sys.stderr.isatty()).fit(train[0], train[1], concept=train[2])
    with tqdm(total=N_STEPS + len(compared), desc="report", disable=None) as bar:

        def report(name: str) -> None:
            bar.set_postfix_str(name)
            bar.update()

        path = build(
            jse,
            train,
            test,
            output,
            overwrite=True,
            main="bird",
            concept="background",
            compare=compared,
            pictures=ContentSubset(birds, rows.members["test"]),
            encoder=encoder,
            reduction=rows.reduction,
            title="Birds on land and water",
            seed=seed,
            report=report,
            command=f"make report-birds  # p = {data['p']:g}, {data['encoder']}",
        )
    print(f"Report: {path} ({path.stat().st_size / 1e6:.1f} MB; open it in a browser)")


def _named(rows: Rows) -> tuple[Array, Array, Array]:
    return (rows.Z, np.array(BIRDS)[rows.y], np.array(BACKGROUNDS)[rows.concept])


if __name__ == "__main__":
    main()
