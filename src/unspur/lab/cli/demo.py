"""`unspur demo`: the main job on embedded data, end to end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
from sklearn.decomposition import PCA

from unspur import JSE
from unspur._typing import Array
from unspur.exceptions import InputError
from unspur.io import atomic, refuse_existing
from unspur.lab.cli.common import echo_json, force_option, json_option, seed_option
from unspur.lab.datasets.photodigits import CONCEPT_NAMES, MAIN_NAMES, PhotoDigits, embed_images, make_photodigits
from unspur.lab.evaluation import judge_last_layer
from unspur.lab.report.figures import DemoFigure, draw_demo, pyplot
from unspur.lab.report.tables import group_table
from unspur.labels import BinaryLabel
from unspur.metrics import GroupAccuracy


@click.command()
@click.option("--agreement", default=0.9, show_default=True, type=click.FloatRange(0.5, 0.98),
              help="How often digit group and photograph agree in the training pictures.")  # fmt: skip
@seed_option
@click.option("--output", default="unspur-demo.png", show_default=True, help="Where the figure goes.")
@force_option
@json_option
def demo(agreement: float, seed: int, output: str, force: bool, as_json: bool) -> None:
    """Digits on photographs: find the photograph in the embeddings, remove it, keep the digit.

    Example: unspur demo --agreement 0.95
    """
    refuse_existing(output, overwrite=force)
    known = pyplot().gcf().canvas.get_supported_filetypes()  # fails before the work where matplotlib is missing
    if Path(output).suffix[1:].lower() not in known:
        raise InputError(f"{output}: a figure is one of {', '.join(f'.{kind}' for kind in sorted(known))}.")
    say = _silent if as_json else click.echo
    say(f"Digits 0–4 and 5–9 on two photographs that agree with the digit group in {agreement:.0%} of the rows.")
    sets = {
        name: make_photodigits(name, agreement=p, random_state=seed + i)  # type: ignore[arg-type]
        for i, (name, p) in enumerate((("train", agreement), ("validation", agreement), ("test", 0.5)))
    }
    features = {name: embed_images(data.images) for name, data in sets.items()}
    pca = PCA(100, random_state=0).fit(features["train"])
    Z = {name: pca.transform(rows) for name, rows in features.items()}
    train, validation = sets["train"], sets["validation"]
    jse = JSE(verbose=not as_json and sys.stderr.isatty()).fit(
        Z["train"], train.y, concept=train.concept,
        X_val=Z["validation"], y_val=validation.y, concept_val=validation.concept,
    )  # fmt: skip
    clean = {name: jse.transform(rows) for name, rows in Z.items()}
    results = {"ERM": _judge(Z, sets), "JSE": _judge(clean, sets)}
    figure = draw_demo(_content(jse, Z["test"], clean["test"], sets["test"], results))
    with atomic(output, overwrite=force) as temporary:
        figure.savefig(temporary, dpi=150)
    if as_json:
        accuracies = {name: result.to_dict() for name, result in results.items()}
        dims = {"spurious": jse.spurious_.dim, "main": jse.main_.dim, "ambient": jse.n_features_in_}
        echo_json({**dims, "figure": output, "accuracy": accuracies, "trace": jse.trace_.to_dict()})  # fmt: skip
        return
    found = f"{jse.spurious_.dim} belong to the photograph, {jse.main_.dim} to the digits"
    say(f"\nJSE tested {len(jse.trace_)} directions among {jse.n_features_in_} dimensions: {found}.\n")
    say("Test pictures, digit and photograph independent; a last layer on the rows as")
    say("they are (ERM) and with the photograph removed (JSE):\n")
    say(group_table(results, "digit", "photo"))
    say("\n± is half of a 95 % interval.")
    say(f"\nFigure: {output}")


def _silent(_: str) -> None:
    """Say nothing; the JSON document is the output."""


def _label(codes: Array, names: tuple[str, str]) -> BinaryLabel:
    return BinaryLabel(codes, np.ones(len(codes), dtype=bool), names)


def _judge(Z: dict[str, Array], sets: dict[str, PhotoDigits]) -> GroupAccuracy:
    y = {name: _label(data.y, MAIN_NAMES) for name, data in sets.items()}
    concept = _label(sets["test"].concept, CONCEPT_NAMES)
    return judge_last_layer((Z["train"], y["train"]), (Z["test"], y["test"], concept))


def _content(jse: JSE, before: Array, after: Array, test: PhotoDigits, results: dict[str, GroupAccuracy]) -> DemoFigure:
    group = 2 * test.y + test.concept
    shown = np.array([_most_colourful(test.images, np.flatnonzero(group == g)) for g in range(4)])
    names = tuple(f"{m} on {c}" for m in MAIN_NAMES for c in CONCEPT_NAMES)
    directions = np.column_stack([_first(jse.spurious_.basis), _first(jse.main_.basis)])
    before, after = ((rows - jse.removal_.centre) @ directions for rows in (before, after))
    found = jse.spurious_.dim, jse.main_.dim
    return DemoFigure(test.images[shown], before, after, group, names, found, results)


def _most_colourful(images: Array, rows: Array) -> int:
    """The row whose picture differs most between its colour channels: a patch with something to see."""
    return int(rows[np.argmax(images[rows].std(axis=3).mean(axis=(1, 2)))])


def _first(basis: Array) -> Any:
    return basis[:, 0] if basis.shape[1] else np.zeros(len(basis))
