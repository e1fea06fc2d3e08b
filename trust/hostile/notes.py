"""Small files that programs leave for each other: notes of progress and downloads, locks, addresses of clusters."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from trust.hostile.arrays import csv, npz, parquet
from trust.hostile.saved import forged_json, json_attacks
from trust.hostile.trials import NOT_FILES, Attacks, Reader, promised
from unspur._files import hold
from unspur.cli.completion import column_names
from unspur.embed import embedding
from unspur.embed.huggingface import kind_of
from unspur.exceptions import InputError
from unspur.io.dask_tables import _require_address
from unspur_paper.datasets.downloads import fetch


def _make_note(folder: Path) -> Path:
    remote = fetch._Remote("https://a.org/x.zip", '"tag"', "Mon, 01 Jan 2024 00:00:00 GMT", 100)
    (folder / "x.zip.json").write_text(json.dumps(asdict(remote)))
    return folder / "x.zip.json"


def _read_note(path: Path) -> None:
    """A note that cannot be used counts as none: the download begins anew."""
    found = fetch._read(path)
    if found is None:
        raise InputError(f"{path.name} counts as none")
    promised(found.mark is None or isinstance(found.mark, str), "a mark that is no text")
    promised(found.size is None or isinstance(found.size, int), "a size that is no number")


def _make_progress(folder: Path) -> Path:
    (folder / "progress.json").write_text(json.dumps({"done": 3, "seconds": 1.5, "dataset": {"name": "x"}}))
    return folder / "progress.json"


def _read_progress(path: Path) -> None:
    found = embedding._read(path)
    if found is None:
        raise InputError(f"{path.name} counts as none")
    promised(int(found["done"]) == found["done"] and float(found["seconds"]) is not None, "no numbers")
    embedding._description(found)


def _make_scheduler(folder: Path) -> Path:
    (folder / "scheduler.json").write_text(json.dumps({"type": "Scheduler", "address": "tcp://127.0.0.1:1", "id": "x"}))
    return folder / "scheduler.json"


def _read_scheduler(path: Path) -> None:
    _require_address(str(path))


def _make_lock(folder: Path) -> Path:
    (folder / "x.lock").write_text("1")
    return folder / "x.lock"


def _hold(path: Path) -> None:
    with hold(path):
        pass


def lock_attacks(_: bytes) -> Attacks:
    """Processes that cannot be."""
    for text in (b"", b"x", b"-1", b"1", b"9" * 30, b"9" * 5000, b"\xff\xfe \x00 x", b"1 2 3 4", "²".encode()):
        yield f"{text[:20]!r}", text
    yield "a megabyte", b"1 " * 2**19


def _make_config(folder: Path) -> Path:
    (folder / "config.json").write_text(json.dumps({"vocab_size": 3, "architectures": ["x"]}))
    return folder / "config.json"


def _read_config(path: Path) -> None:
    promised(kind_of(path.parent, str(path.name)) in ("image", "text"), "no kind")


def _names(path: Path) -> None:
    """Names to complete: whatever they are, a shell is waiting for them."""
    names = column_names(path)
    promised(all(isinstance(name, str) for name in names), "names are no texts")


download = Reader(_make_note, _read_note, json_attacks, text=True, forged=forged_json)
progress = Reader(_make_progress, _read_progress, json_attacks, text=True, forged=forged_json)
scheduler = Reader(_make_scheduler, _read_scheduler, json_attacks, text=True, forged=forged_json)
lock = Reader(_make_lock, _hold, lock_attacks, text=True)
config = Reader(_make_config, _read_config, json_attacks, text=True, forged=forged_json)
names_of_csv = Reader(csv.make, _names, csv.attacks, text=True)
names_of_npz = Reader(npz.make, _names, lambda _: NOT_FILES, forged=npz.forged)
names_of_parquet = Reader(parquet.make, _names, lambda _: NOT_FILES, forged=parquet.forged)
