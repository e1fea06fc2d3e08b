"""Embed examples into a store; an interrupted run continues where it stopped.

::

    digest of data and encoder ──▶ is there such a store? ──▶ found, and left alone
                                          │ no
                  progress.json ──▶ rows.part.npy, batch by batch ──▶ labels.csv, rows.npy ──▶ manifest.json

A store that is to be replaced stays as it is, and can be read, until all rows of the new one are there.
"""

from __future__ import annotations

import json
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from unspur._files import atomic
from unspur._typing import Array, BoolArray
from unspur._version import __version__
from unspur.exceptions import InputError, OutputExistsError, UnspurError
from unspur_paper.embedding import store as store_files
from unspur_paper.embedding.base import Encoder, NetworkEncoder
from unspur_paper.embedding.examples import Examples, loaded_batches
from unspur_paper.embedding.registry import Grey
from unspur_paper.embedding.store import EmbeddingStore, Reduction, new_rows
from unspur_paper.files import (
    DISK_FULL_ERRORS,
    NUMBER,
    BusyError,
    disk_error,
    hold,
    load_npy,
    read_json,
    require_kinds,
    reserve_space,
    staging_dir,
)

#: Examples at a time, on a CPU and on a GPU.
BATCH, GPU_BATCH = 16, 256
#: Progress is written after this many rows or seconds, whichever comes first.
ROWS_BETWEEN_NOTES, SECONDS_BETWEEN_NOTES = 512, 10.0
LOCK = ".lock"


def embed(
    examples: Examples,
    encoder: Encoder,
    folder: str | Path,
    *,
    pca: int | None = None,
    half: bool = False,
    batch: int | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> EmbeddingStore:
    """Embed all examples into the store `folder`, which is created, continued, or found finished and left alone.

    With `pca`, rows are reduced to that many principal components of the rows whose split is "train" (of all, if there
    is no such column). `half` keeps them in float16, whose rounding is far below that of a network in bfloat16. A store
    with other rows in it is an error unless `overwrite`; a folder with other files in it always is. A stopped run goes
    on where it was, with `overwrite` as well.

    `batch` examples at a time go through the network, by default 16, on a GPU 256. `workers` threads load them, by
    default one for each core, up to 4.
    """
    if batch is None:
        batch = GPU_BATCH if encoder.device.startswith("cuda") else BATCH
    _check(examples, encoder, pca, batch)
    _require_own_folder(Path(folder))
    wanted: dict[str, Any] = {
        "dataset": {"name": examples.name, "settings": dict(examples.settings), "digest": examples.digest()},
        "encoder": {"name": encoder.name, "digest": encoder.digest, "device": encoder.device},
        "pca": pca,
    }
    if half:
        wanted["half"] = True
    if isinstance(encoder, NetworkEncoder) and encoder.training:
        wanted["encoder"]["training"] = dict(encoder.training)
    work = _Embedding(Path(folder), examples, encoder, wanted, overwrite)
    found = work.finished()
    if found is not None:
        work.tidy()
        return found
    work.folder.mkdir(parents=True, exist_ok=True)
    try:
        with hold(work.folder / LOCK):
            found = work.finished()  # while we waited for the lock, perhaps
            if found is not None:
                return found
            done, spent, cut = work.begin()
            seconds, cut = work.fill(done, spent, cut, batch, workers, progress=progress)
            return work.finish(seconds, cut)
    except OSError as error:
        if error.errno not in DISK_FULL_ERRORS:
            raise
        advice = "Make room and give the same command again: what is finished is kept."
        raise disk_error(error, folder, advice) from error


def _check(examples: Examples, encoder: Encoder, pca: int | None, batch: int) -> None:
    """Check everything that can be checked before anything is embedded."""
    if examples.kind != encoder.kind:
        raise InputError(f"{encoder.name} embeds {encoder.kind}s; {examples.name} has {examples.kind}s.")
    if len(set(examples.ids)) < len(examples) or not len(examples):
        raise InputError(f"{examples.name} needs examples with ids that all differ; it has {len(examples)}.")
    if "id" in examples.labels:
        raise InputError("A label cannot be called 'id': that is the column of names. Rename it.")
    odd = [name for name, column in examples.labels.items() if np.shape(column) != (len(examples),)]
    if odd:
        raise InputError(f"{examples.name} has {len(examples)} examples; {odd[0]} does not have one value per row.")
    if batch < 1:
        raise InputError(f"batch is a number of examples, 1 at least; got {batch}.")
    rows = int(_training(examples).sum())
    if pca is not None and not 1 <= pca <= min(rows, encoder.width):
        raise InputError(
            f"pca {pca} is out of range: {rows} training rows of {encoder.width} features allow at most "
            f"{min(rows, encoder.width)}."
        )


def _training(examples: Examples) -> BoolArray:
    """Mask of the examples that the reduction is fitted on."""
    split = examples.labels.get("split")
    return np.ones(len(examples), dtype=bool) if split is None else np.asarray(split == "train")


@dataclass(frozen=True, slots=True)
class _Embedding:
    """A store that is being made; `wanted` describes its dataset and encoder."""

    folder: Path
    examples: Examples
    encoder: Encoder
    wanted: dict[str, Any]
    overwrite: bool

    def finished(self) -> EmbeddingStore | None:
        """The store, if it is complete and matches `wanted`."""
        if self.overwrite or not (self.folder / store_files.MANIFEST).exists():
            return None
        there = store_files.read_manifest(self.folder)
        if _matches(there, self.wanted):
            return EmbeddingStore.open(self.folder)
        begun = _read(self.folder / store_files.PROGRESS)
        if begun is not None and _matches(begun, self.wanted):  # a run with `overwrite` that was stopped
            return None
        raise OutputExistsError(
            f"{self.folder} holds other embeddings ({_description(there)}) than those asked for "
            f"({_description(self.wanted)}). Choose another folder, or pass --force."
        )

    def tidy(self) -> None:
        """Remove leftovers of a process that was killed after the store was complete."""
        progress, part = self.folder / store_files.PROGRESS, self.folder / store_files.PART
        begun = _read(progress)
        if begun is not None and not _matches(begun, self.wanted):  # rows that are to replace these; they may go on
            return
        if any(path.exists() for path in (self.folder / LOCK, progress, part)):
            with suppress(BusyError, OSError), hold(self.folder / LOCK):  # a store that can only be read stays as it is
                progress.unlink(missing_ok=True)
                part.unlink(missing_ok=True)

    def begin(self) -> tuple[int, float, int]:
        """Number of rows that are done, the seconds they took, and the number of truncated texts."""
        folder, shape = self.folder, (len(self.examples), self.encoder.width)
        part, there = folder / store_files.PART, _read(folder / store_files.PROGRESS)
        whole = (folder / store_files.MANIFEST).exists()  # rows that are replaced when these are finished
        if there is not None and _matches(there, self.wanted):
            done = int(there["done"])
            if done == shape[0] and not whole and not part.exists() and (folder / store_files.ROWS).exists():
                (folder / store_files.ROWS).replace(part)  # stopped just before the manifest
            left = False  # by a process that was killed after the manifest
            with suppress(UnspurError):  # a manifest that is damaged is of another store
                left = whole and done == shape[0] and _matches(store_files.read_manifest(folder), self.wanted)
            if _is_part(part, shape) and 0 <= done <= shape[0] and not left:
                reserve_space(part)  # the process may have died before it did
                return done, float(there["seconds"]), int(there.get("cut", 0))
        elif there is not None and not self.overwrite:
            raise OutputExistsError(
                f"{folder} holds the beginning of other embeddings ({_description(there)}). Choose another folder, or "
                "pass --force."
            )
        self._note(0, 0.0, 0)  # first: from here on the folder is known as the beginning of these rows
        if not whole:
            self._remove_store()
        new_rows(part, shape)
        return 0, 0.0, 0

    def _remove_store(self) -> None:
        """Remove the files of a store; the manifest first, without which the others count for nothing."""
        for name in (store_files.MANIFEST, store_files.ROWS, store_files.LABELS, store_files.REDUCTION):
            (self.folder / name).unlink(missing_ok=True)

    def fill(
        self, done: int, spent: float, cut: int, batch: int, workers: int | None, *, progress: bool
    ) -> tuple[float, int]:
        """Embed the remaining rows; return the seconds for all rows and the number of truncated texts."""
        examples, start = self.examples, time.perf_counter()
        rows = np.lib.format.open_memmap(self.folder / store_files.PART, mode="r+")
        noted, last = done, start
        shown = None if progress else True  # None: only on a terminal
        batches = loaded_batches(self._load, range(done, len(examples)), batch, workers)
        with closing(batches), tqdm(total=len(examples), initial=done, unit=examples.kind, disable=shown) as bar:
            for loaded in batches:
                made = np.asarray(self._run([example for example, _ in loaded]))
                cut += sum(was_cut for _, was_cut in loaded)
                if made.shape != (len(loaded), self.encoder.width):
                    raise InputError(
                        f"{self.encoder.name} made {made.shape} of {len(loaded)} examples; it promises "
                        f"{self.encoder.width} numbers for each."
                    )
                rows[done : done + len(loaded)] = made
                done += len(loaded)
                bar.update(len(loaded))
                now = time.perf_counter()
                if done - noted >= ROWS_BETWEEN_NOTES or now - last >= SECONDS_BETWEEN_NOTES or done == len(examples):
                    _require_finite(rows, noted, done, examples)
                    rows.flush()
                    self._note(done, spent + now - start, cut)
                    noted, last = done, now
        return spent + time.perf_counter() - start, cut

    def _load(self, index: int) -> tuple[Any, bool]:
        """One example, prepared if the encoder can do that in a thread, and whether it was truncated."""
        example, encoder = self.examples[index], self.encoder
        if not isinstance(encoder, NetworkEncoder | Grey):
            return example, False
        prepared = encoder.prepare(example)
        return prepared, isinstance(encoder, NetworkEncoder) and encoder.is_cut(example, prepared)

    def _run(self, loaded: list[Any]) -> Array:
        return self.encoder.rows(loaded) if isinstance(self.encoder, NetworkEncoder | Grey) else self.encoder(loaded)

    def finish(self, seconds: float, cut: int) -> EmbeddingStore:
        """Make all files beside the store that they replace, remove it, rename them, write the manifest."""
        folder, part = self.folder, self.folder / store_files.PART
        rows = np.lib.format.open_memmap(part, mode="r")
        _require_different(rows, self.encoder.name)
        with staging_dir(folder / store_files.ROWS) as made:
            store_files.write_labels(made / store_files.LABELS, self.examples.ids, self.examples.labels)
            ids, labels = store_files.read_labels(made / store_files.LABELS)  # as they will be read
            half = "half" in self.wanted
            if self.wanted["pca"] is not None or half:
                rows = _rewritten(rows, _training(self.examples), self.wanted["pca"], made, half=half)
            shape, digest = rows.shape, store_files.content_digest(rows, ids, labels)
            del rows  # some systems rename no file that is open
            self._remove_store()
            if self.wanted["pca"] is None and not half:
                part.replace(folder / store_files.ROWS)
            for path in made.iterdir():
                path.replace(folder / path.name)
        tokens = getattr(self.encoder, "max_tokens", None)
        _write(
            folder / store_files.MANIFEST,
            {
                "format": store_files.FORMAT,
                "unspur": __version__,
                **self.wanted,
                **({} if tokens is None else {"cut": {"texts": cut, "max_tokens": tokens}}),
                "rows": shape[0],
                "width": shape[1],
                "labels": sorted(labels),
                "digest": digest,
                "labels_digest": store_files.file_digest(folder / store_files.LABELS),
                "seconds": round(seconds, 1),
            },
        )
        (folder / store_files.PROGRESS).unlink(missing_ok=True)
        part.unlink(missing_ok=True)
        return EmbeddingStore.open(folder)

    def _note(self, done: int, seconds: float, cut: int) -> None:
        _write(self.folder / store_files.PROGRESS, {**self.wanted, "done": done, "seconds": seconds, "cut": cut})


def _require_own_folder(folder: Path) -> None:
    """Raise OutputExistsError if a folder holds files and no store."""
    if store_files.is_store(folder) or not folder.is_dir():
        return
    other = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    if other:
        raise OutputExistsError(
            f"{folder} is not an embedding store and holds other files, such as {other[0]}. Name a folder of its own."
        )


def _is_part(path: Path, shape: tuple[int, int]) -> bool:
    try:
        rows = load_npy(path, mapped=True)
        return bool(rows.shape == shape and rows.dtype == np.float32)
    except (OSError, ValueError):
        return False


def _require_finite(rows: Array, start: int, stop: int, examples: Examples) -> None:
    bad = np.flatnonzero(~np.isfinite(rows[start:stop]).all(axis=1))
    if len(bad):
        raise InputError(
            f"The encoder returned NaN or infinity for {len(bad)} examples, the first {examples.ids[start + bad[0]]}. "
            "Look at that one; or begin again with --precision float32 and --force."
        )


def _require_different(rows: Array, encoder: str) -> None:
    """Raise InputError if there are several rows and all are the same, up to rounding."""
    for at in range(0, len(rows), 4096):
        part = rows[at : at + 4096]
        if np.abs(part - rows[0]).max() > 1e-6 * np.abs(rows[0]).max():
            return
    if len(rows) > 1:
        raise InputError(
            f"{encoder} returned the same embedding for all {len(rows)} examples, so it cannot tell them apart. Choose "
            "another encoder, and pass --force or another folder."
        )


def _rewritten(rows: Array, training: BoolArray, k: int | None, folder: Path, *, half: bool) -> Array:
    """Write the rows reduced to `k` components, in half precision, or both, into a folder; return them."""
    reduction = None if k is None else Reduction.fit(rows[training], k)
    made = new_rows(folder / store_files.ROWS, (len(rows), rows.shape[1] if k is None else k), half=half)
    for at in range(0, len(rows), 4096):
        part = rows[at : at + 4096] if reduction is None else reduction(rows[at : at + 4096])
        largest = np.abs(part).max()
        if half and largest > np.finfo(np.float16).max:
            raise InputError(f"Rows have values of up to {largest:.3g}, which float16 does not hold (65504 at most).")
        made[at : at + 4096] = part
    made.flush()
    if reduction is not None:
        reduction.write(folder / store_files.REDUCTION)
    return made


def _matches(there: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether a description has all that is wanted, in the same precision."""
    plain = {"half": None, **json.loads(json.dumps(wanted))}
    return all(there.get(key) == plain[key] for key in plain)


def _description(described: dict[str, Any]) -> str:
    try:
        data, encoder = described["dataset"], described["encoder"]
        half = ", half" if described.get("half") else ""
        network = f"{encoder['name']} on {encoder['device']}"
        return f"{data['name']} {data['digest']} by {network}, pca {described['pca']}{half}"
    except (KeyError, TypeError):
        return "not readable"


def _write(path: Path, value: dict[str, Any]) -> None:
    with atomic(path, overwrite=True) as temporary:
        temporary.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _read(path: Path) -> dict[str, Any] | None:
    """The progress file, or None if it cannot be read."""
    try:
        noted = dict(read_json(path, {"done": int, "seconds": NUMBER}))
        require_kinds(noted.get("cut", 0), int, "'cut'")
        return noted
    except (OSError, ValueError):
        return None
