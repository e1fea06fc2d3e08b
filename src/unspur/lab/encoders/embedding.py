"""Show every example to an encoder once and keep what comes out; a run that was stopped goes on where it was."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tqdm import tqdm

from unspur._typing import Array
from unspur._version import __version__
from unspur.exceptions import InputError, OutputExistsError
from unspur.io import atomic
from unspur.lab.datasets.examples import Examples
from unspur.lab.encoders import store as layout
from unspur.lab.encoders.base import Encoder
from unspur.lab.encoders.memory import keep_freed_memory
from unspur.lab.encoders.reduction import Reduction
from unspur.lab.encoders.store import EmbeddingStore

BATCH = 16
#: Rows between two notes of how far we are: some seconds of work at most.
NOTE_EVERY = 512
PART, PROGRESS = "rows.part.npy", "progress.json"


def embed(
    examples: Examples,
    encoder: Encoder,
    folder: str | Path,
    *,
    pca: int | None = None,
    batch: int = BATCH,
    workers: int = 2,
    overwrite: bool = False,
    progress: bool = True,
) -> EmbeddingStore:
    """Embed all examples into the store `folder`, which is created, continued, or found finished and left alone.

    With `pca`, rows are reduced to that many principal components of the rows whose split is "train" (of all, if there
    is no such column). A folder with other rows in it is an error unless `overwrite`.
    """
    if examples.kind != encoder.kind:
        raise InputError(f"{encoder.name} embeds {encoder.kind}s; {examples.name} has {examples.kind}s.")
    if len(set(examples.ids)) < len(examples) or not len(examples):
        raise InputError(f"{examples.name} needs examples with ids that all differ; it has {len(examples)}.")
    folder = Path(folder)
    wanted = {
        "dataset": {"name": examples.name, "settings": dict(examples.settings), "digest": examples.digest()},
        "encoder": {"name": encoder.name, "digest": encoder.digest, "device": encoder.device},
        "pca": pca,
    }  # fmt: skip
    finished = _finished(folder, wanted, overwrite=overwrite)
    if finished is not None:
        return finished
    folder.mkdir(parents=True, exist_ok=True)
    rows, done, spent = _begin(folder, wanted, (len(examples), encoder.width), overwrite=overwrite)
    keep_freed_memory()
    start = time.perf_counter()
    shown = None if progress else True  # None: only on a terminal
    with tqdm(total=len(examples), initial=done, unit=examples.kind, disable=shown) as bar:
        noted = done
        for at, loaded in _batches(examples, done, batch, workers):
            rows[at : at + len(loaded)] = encoder(loaded)
            done = at + len(loaded)
            bar.update(len(loaded))
            if done - noted >= NOTE_EVERY or done == len(examples):
                _require_finite(rows, noted, done, examples)
                rows.flush()
                noted = done
                _note(folder, wanted, done, spent + time.perf_counter() - start)
    return _finish(folder, wanted, rows, examples, spent + time.perf_counter() - start)


def _finished(folder: Path, wanted: dict[str, Any], *, overwrite: bool) -> EmbeddingStore | None:
    """The store, if it is there and is what is wanted."""
    if overwrite or not (folder / layout.MANIFEST).exists():
        return None
    there = layout.read_manifest(folder)
    if _same(there, wanted):
        return EmbeddingStore.open(folder)
    raise OutputExistsError(
        f"{folder} holds other embeddings ({_words(there)}) than those asked for ({_words(wanted)}). Choose another "
        "folder, or pass overwrite=True."
    )


def _begin(folder: Path, wanted: dict[str, Any], shape: tuple[int, int], *, overwrite: bool) -> tuple[Any, int, float]:
    """The unfinished rows, how many of them are done, and the seconds they took."""
    part, note = folder / PART, folder / PROGRESS
    there = _read(note)
    if there is not None and not overwrite:
        if not _same(there, wanted):
            raise OutputExistsError(
                f"{folder} holds the beginning of other embeddings ({_words(there)}). Choose another folder, or pass "
                "overwrite=True."
            )
        try:
            rows = np.lib.format.open_memmap(part, mode="r+")
        except (OSError, ValueError, EOFError):
            rows = None
        if rows is not None and rows.shape == shape and rows.dtype == np.float32:
            return rows, min(int(there["done"]), shape[0]), float(there["seconds"])
    if overwrite:  # what describes rows goes before the rows do
        for name in (layout.MANIFEST, PROGRESS, layout.ROWS, layout.LABELS, layout.REDUCTION):
            (folder / name).unlink(missing_ok=True)
    rows = np.lib.format.open_memmap(part, mode="w+", dtype=np.float32, shape=shape)
    _note(folder, wanted, 0, 0.0)
    return rows, 0, 0.0


def _batches(examples: Examples, start: int, batch: int, workers: int) -> Iterator[tuple[int, list[Any]]]:
    """Batches from `start` on, the next one being loaded while one is in use."""
    with ThreadPoolExecutor(max(1, workers)) as pool:
        ahead = None
        for at in range(start, len(examples), batch):
            members = range(at, min(at + batch, len(examples)))
            coming = at, [pool.submit(examples.__getitem__, i) for i in members]
            if ahead is not None:
                yield ahead[0], [loading.result() for loading in ahead[1]]
            ahead = coming
        if ahead is not None:
            yield ahead[0], [loading.result() for loading in ahead[1]]


def _require_finite(rows: Array, start: int, stop: int, examples: Examples) -> None:
    bad = np.flatnonzero(~np.isfinite(rows[start:stop]).all(axis=1))
    if len(bad):
        raise InputError(
            f"The encoder made NaN or infinity of {len(bad)} examples, the first {examples.ids[start + bad[0]]}. Try "
            "--precision float32."
        )


def _finish(folder: Path, wanted: dict[str, Any], rows: Any, examples: Examples, seconds: float) -> EmbeddingStore:
    """Reduce, write labels and manifest, and give the rows their name."""
    ids, labels = tuple(examples.ids), dict(examples.labels)
    if wanted["pca"] is not None:
        training = labels["split"] == "train" if "split" in labels else np.ones(len(rows), dtype=bool)
        reduction = Reduction.fit(rows[training], wanted["pca"])
        reduced = np.lib.format.open_memmap(
            folder / layout.ROWS, mode="w+", dtype=np.float32, shape=(len(rows), wanted["pca"])
        )
        for at in range(0, len(rows), 4096):
            reduced[at : at + 4096] = reduction(rows[at : at + 4096])
        reduced.flush()
        with atomic(folder / layout.REDUCTION, overwrite=True) as temporary:
            save_file({"mean": reduction.mean, "components": reduction.components}, temporary)
        rows = reduced
    else:
        (folder / PART).replace(folder / layout.ROWS)
    layout.write_labels(folder / layout.LABELS, ids, labels)
    _write(
        folder / layout.MANIFEST,
        {
            "format": layout.FORMAT, "unspur": __version__, **wanted, "rows": len(rows), "width": rows.shape[1],
            "labels": sorted(labels), "digest": layout.content_digest(rows, ids, labels),
            "seconds": round(seconds, 1), "peak_memory_mb": round(_peak_memory() / 2**20),
        },
    )  # fmt: skip
    (folder / PROGRESS).unlink(missing_ok=True)
    (folder / PART).unlink(missing_ok=True)
    return EmbeddingStore.open(folder)


def _same(there: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether two descriptions are of the same rows."""
    plain = json.loads(json.dumps(wanted))
    return all(there.get(key) == plain[key] for key in plain)


def _words(described: dict[str, Any]) -> str:
    try:
        data, encoder = described["dataset"], described["encoder"]
        return f"{data['name']} {data['digest']} by {encoder['name']} on {encoder['device']}, pca {described['pca']}"
    except (KeyError, TypeError):
        return "not readable"


def _note(folder: Path, wanted: dict[str, Any], done: int, seconds: float) -> None:
    _write(folder / PROGRESS, {**wanted, "done": done, "seconds": seconds})


def _write(path: Path, value: dict[str, Any]) -> None:
    with atomic(path, overwrite=True) as temporary:
        temporary.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _read(path: Path) -> dict[str, Any] | None:
    """A note of progress; None if there is none that can be read."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return value if isinstance(value, dict) and {"done", "seconds"} <= set(value) else None
    except (OSError, ValueError):
        return None


def _peak_memory() -> int:
    """Largest resident memory of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
