"""Where the embeddings of a cell are: a folder of stores, or made up for smoke runs.

::

    <embeddings>/waterbirds/<encoder>/seed-0     one store a run: birds, splits and scenes are drawn afresh
    <embeddings>/celeba/<encoder>                one for all runs, which draw their splits from it

and where a network was trained for each run::

    <embeddings>/waterbirds-finetuned/<encoder>/p-0.9/seed-0               at strength 0.9, on the rows of run 0
    <embeddings>/waterbirds-finetuned/<encoder>/p-0.9-adversary-1/seed-0   with an adversary of weight 1
    <embeddings>/multinli-finetuned/<encoder>/unmarked/seed-0              on pairs without the mark; any strength
    <embeddings>/multinli-finetuned/<encoder>/negation/seed-0              on pairs as they are, of three classes
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from unspur._typing import Array
from unspur.exceptions import InputError
from unspur_paper.embedding.store import MANIFEST, PROGRESS, EmbeddingStore, read_manifest
from unspur_paper.experiments.errors import DataMissingError
from unspur_paper.experiments.registry import FINETUNED, MADE_UP, MADE_UP_PIXELS, STORE_PER_RUN, without_marks
from unspur_paper.experiments.synthetic import DIGEST, synthetic_rows, synthetic_training
from unspur_paper.networks.maps import read_maps

#: Where stores are looked for and written, unless said otherwise.
EMBEDDINGS = Path("unspur-embeddings")


@dataclass(frozen=True, slots=True)
class Embedded:
    """Rows of shape (n, d), their names and label columns."""

    rows: Array
    ids: tuple[str, ...]
    labels: Mapping[str, Array]


def store_folder(embeddings: Path, dataset: str, encoder: str, seed: int) -> Path:
    """The folder of one store."""
    folder = embeddings / dataset / _plain(encoder)
    return folder / f"seed-{seed}" if dataset in STORE_PER_RUN else folder


def tuned_folder(
    embeddings: Path,
    source: str,
    encoder: str,
    seed: int,
    *,
    p: float,
    adversary: float = 0.0,
    unmarked: bool = False,
    negation: bool = False,
) -> Path:
    """The folder of the store of a network that was trained on a `source` ("waterbirds", "celeba", "multinli").

    One that was trained on `unmarked` examples has seen no strength: `p` does not matter, and an adversary would have
    nothing to find. Nor is there one with `negation`, where the concept is a word that the sentences have.
    """
    if unmarked and adversary:
        raise InputError(
            f"A network trained on unmarked examples has no concept to hide from an adversary (weight {adversary:g}). "
            "Ask for one or the other."
        )
    training = "unmarked" if unmarked else "negation" if negation else f"p-{p:g}"
    training += f"-adversary-{adversary:g}" if adversary else ""
    return embeddings / f"{source}-finetuned" / _plain(encoder) / training / f"seed-{seed}"


def _plain(encoder: str) -> str:
    return encoder.replace("/", "--")


def open_embedded(data: Mapping[str, Any], run: int, embeddings: Path) -> Embedded:
    """The rows that a run of a dataset is drawn from."""
    if data["encoder"] in (MADE_UP, MADE_UP_PIXELS):
        return Embedded(*synthetic_rows(data, run))
    store = EmbeddingStore.open(found_folder(data, run, embeddings))
    return Embedded(store.rows, store.ids, store.labels)


def store_digest(data: Mapping[str, Any], run: int, embeddings: Path) -> str:
    """Digest of those rows, and of the maps beside them; part of the key of a cell's record."""
    if data["encoder"] in (MADE_UP, MADE_UP_PIXELS):
        return DIGEST
    return _digest(found_folder(data, run, embeddings))


def kept_epoch(data: Mapping[str, Any], run: int, embeddings: Path) -> dict[str, float | None]:
    """Of the network of a run: epochs that it was trained for, and accuracies on validation rows at their end.

    None for what its store does not tell.
    """
    if data["encoder"] in (MADE_UP, MADE_UP_PIXELS):
        training = synthetic_training(data)
    else:
        manifest = read_manifest(found_folder(data, run, embeddings))
        training = manifest.get("encoder", {}).get("training") or {}
    kept = training.get("kept_epoch")
    told: dict[str, Any] = next((line for line in training.get("history", ()) if line.get("epoch") == kept), {})
    return {
        "epochs": kept,
        "validation_accuracy": told.get("validation_accuracy"),
        # Both classes of the concept count the same: by guessing, the more frequent one would be right too often.
        "adversary_accuracy": told.get("adversary_balanced_accuracy"),
    }


@lru_cache(maxsize=1024)
def _digest(folder: Path) -> str:
    rows, maps = str(read_manifest(folder)["digest"]), read_maps(folder)
    return rows if maps is None else f"{rows}+{maps.digest}"


def found_folder(data: Mapping[str, Any], run: int, embeddings: Path) -> Path:
    """The folder of the store of a run, which must be there, and of the labels that the run asks for."""
    folder, command = (place_of_tuned if data["name"] in FINETUNED else place_of_frozen)(data, run, embeddings)
    if (folder / MANIFEST).exists():
        _require_labels(data, folder)
    else:
        begun = "The embeddings are not finished" if (folder / PROGRESS).exists() else "There are no embeddings"
        raise DataMissingError(f"{begun} in {folder}. Make them with: unspur-paper {command} --embeddings {embeddings}")
    return folder


def _require_labels(data: Mapping[str, Any], folder: Path) -> None:
    """Networks of datasets whose labels can be chosen are trained for one pair of labels."""
    if data["name"] not in FINETUNED or "main" not in data:
        return
    there = read_manifest(folder).get("dataset", {}).get("settings", {})
    if any(there.get(name) != data[name] for name in ("main", "concept")):
        raise InputError(
            f"The network of {folder} was trained on {there.get('main')} and {there.get('concept')}; the experiment "
            f"asks for {data['main']} and {data['concept']}. Name another folder with --embeddings."
        )


def place_of_frozen(data: Mapping[str, Any], run: int, embeddings: Path) -> tuple[Path, str]:
    """Folder of a store, and the command that makes it."""
    seed = f" --seed {run}" if data["name"] in STORE_PER_RUN else ""
    command = f"embed {data['name']} --root DATA --encoder {data['encoder']}{seed}"
    return store_folder(embeddings, data["name"], data["encoder"], run), command


def place_of_tuned(data: Mapping[str, Any], run: int, embeddings: Path) -> tuple[Path, str]:
    """The same where the network was trained for the run."""
    source, p, adversary = FINETUNED[data["name"]], data.get("p", 0.0), data["adversary"]
    kind = {"unmarked": without_marks(data), "negation": data["name"] == "multinli-negation"}
    folder = tuned_folder(embeddings, source, data["encoder"], run, p=p, adversary=adversary, **kind)
    command = f"finetune {source} --root DATA --encoder {data['encoder']}"
    named = "".join(f" --{name}" for name, asked in kind.items() if asked)
    command += f" --seed {run}{named}" if named else f" --p {p:g} --seed {run}"
    if "main" in data:
        command += f" --task '{data['main']}' --concept '{data['concept']}'"
    return folder, command + (f" --adversary {adversary:g}" if adversary else "")
