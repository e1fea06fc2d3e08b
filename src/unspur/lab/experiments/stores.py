"""Where the embeddings of a cell are: a folder of stores, or made up for smoke runs.

::

    <embeddings>/waterbirds/<encoder>/seed-0     one store a run: birds, splits and scenes are drawn afresh
    <embeddings>/celeba/<encoder>                one for all runs, which draw their splits from it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from unspur._typing import Array
from unspur.exceptions import InputError
from unspur.lab.encoders.store import EmbeddingStore, read_manifest
from unspur.lab.experiments.made_up import DIGEST, made_up_rows
from unspur.lab.experiments.registry import MADE_UP, MADE_UP_PIXELS

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
    folder = embeddings / dataset / encoder.replace("/", "--")
    return folder / f"seed-{seed}" if dataset == "waterbirds" else folder


def open_embedded(data: Mapping[str, Any], run: int, embeddings: Path) -> Embedded:
    """The rows that a run of a dataset is drawn from."""
    if data["encoder"] in (MADE_UP, MADE_UP_PIXELS):
        return Embedded(*made_up_rows(data, run))
    store = EmbeddingStore.open(_found(data, run, embeddings))
    return Embedded(store.rows, store.ids, store.labels)


def store_digest(data: Mapping[str, Any], run: int, embeddings: Path) -> str:
    """Digest of those rows; part of the key of a cell's record."""
    if data["encoder"] in (MADE_UP, MADE_UP_PIXELS):
        return DIGEST
    return _digest(_found(data, run, embeddings))


@lru_cache(maxsize=1024)
def _digest(folder: Path) -> str:
    return str(read_manifest(folder)["digest"])


def _found(data: Mapping[str, Any], run: int, embeddings: Path) -> Path:
    folder = store_folder(embeddings, data["name"], data["encoder"], run)
    if not folder.is_dir():
        seed = f" --seed {run}" if data["name"] == "waterbirds" else ""
        raise InputError(
            f"There are no embeddings in {folder}. Make them with: unspur embed {data['name']} --root DATA --encoder "
            f"{data['encoder']}{seed} --embeddings {embeddings}"
        )
    return folder
