"""Experiments: their specs in TOML, the records of finished cells, and packs of those."""

from __future__ import annotations

import hashlib
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np

from trust.hostile.damage import ODD_JSON, as_json, forged, odd_fields
from trust.hostile.trials import NOT_FILES, Attacks, Reader, promised
from unspur.exceptions import ArtifactError
from unspur_paper.experiments.records import Record, RecordStore, pack, record_key, unpack
from unspur_paper.experiments.spec_file import read_experiment

SPEC = """\
title = "A test"
answers = ["tab:1"]
presets = ["exact", "paper"]
runs = 3
strength = "rho"
metrics = ["average", "worst_group"]
note = "of nothing"
compare = [["JSE", "ERM"]]
shown = ["JSE", "ERM"]

[dataset]
name = "toy"
n = 300
rho = [0, 0.5, 0.9]

[[methods]]
name = "JSE"
remover = { name = "JSE", delta = "auto" }
head = "ERM"
counted = false

[[methods]]
name = "ERM"
presets = ["exact"]
"""


def _make_spec(folder: Path) -> Path:
    (folder / "mine.toml").write_text(SPEC, encoding="utf-8")
    return folder / "mine.toml"


def _read_spec(path: Path) -> None:
    experiment = read_experiment(path)
    # Large products are no fault of a reader.
    few = all(not isinstance(value, list) or len(value) < 50 for value in experiment.dataset.values())
    for preset in experiment.presets if few else ():
        cells = experiment.cells(preset, runs=1)
        promised(all(isinstance(record_key(dict(cell.spec), "", ""), str) for cell in cells), "cells have no keys")
    promised(isinstance(experiment.title, str) and experiment.runs >= 1 and experiment.methods, "fields are none")
    promised(experiment.smoke().runs == 2, "it cannot be tried")


def spec_attacks(sound: bytes) -> Attacks:
    """Deep and long values, values of other kinds at every key, and what TOML allows and nobody expects."""
    text = sound.decode()
    deep = {
        "lists nested 100,000 times": "x = " + "[" * 100_000,
        "tables nested 5,000 times": "x = " + "{a = " * 5000,
        "a key of 5,000 parts": ".".join("a" * 5000) + " = 1",
        "a table of 5,000 parts": "[" + ".".join("a" * 5000) + "]",
        "a key of a megabyte": "a" * 2**20 + " = 1",
        "a text of a megabyte": f'title = "{"x" * 2**20}"',
        "a number of 10,000 digits": "runs = " + "9" * 10_000,
        "a number that is too large": "runs = 1e400",
        "a hexadecimal number of 10,000 digits": "runs = 0x" + "f" * 10_000,
        "10,000 tables": "[[methods]]\nname = 'x'\n" * 10_000,
        "the same key twice": "title = 'a'\ntitle = 'b'",
        "a time": "runs = 1979-05-27T07:32:00Z",
    }
    for what, value in deep.items():
        yield what, value.encode()
        yield f"{what}, and all else", (value + "\n" + text).encode()
        yield f"{what}, below all else", (text + "\n" + value + "\n").encode()
    lines = text.splitlines()
    for number, line in enumerate(lines):
        key, equals, _ = line.partition(" = ")
        for odd in _TOML if equals else ():
            yield f"{key} = {odd[:40]}", "\n".join([*lines[:number], f"{key} = {odd}", *lines[number + 1 :]]).encode()
        yield f"line {number + 1} left out", "\n".join([*lines[:number], *lines[number + 1 :]]).encode()
    for odd in _TOML:
        for key in (
            "n",
            "d",
            "rho",
            "separability_concept",
            "n_validation",
            "runs",
            "figure",
            "published",
            "illustration",
        ):
            extra = f"{key} = {odd}"
            yield extra[:60], text.replace("[dataset]", extra + "\n[dataset]").encode()
            yield f"dataset: {extra[:60]}", text.replace('name = "toy"\nn = 300', 'name = "toy"\n' + extra).encode()
        yield f"an option {odd[:40]}", text.replace('delta = "auto"', f"delta = {odd}").encode()
    yield "UTF-16", text.encode("utf-16")
    yield "Latin-1", text.replace("nothing", "n\xe4chts").encode("latin1")
    yield "NUL", text.replace("nothing", "\x00").encode()
    yield "names of nothing", text.replace('"JSE"', '""').encode()
    yield from NOT_FILES


_TOML = (
    '""',
    '"x"',
    "0",
    "-1",
    "1",
    "1.5",
    "inf",
    "-inf",
    "nan",
    "1e400",
    "9" * 30,
    "9" * 5000,
    "true",
    "[]",
    "[[]]",
    "{}",
    '["x"]',
    "[0]",
    "[nan]",
    "[inf]",
    "[true]",
    "[0, 0.0]",
    "[[0]]",
    "{ x = 1 }",
    "[{}]",
    "1979-05-27",
    "07:32:00",
    '"\\u0000"',
    "[1, 2, 3, 4]",
    '{ name = "JSE" }',
    "{ name = [] }",
    '{ name = "JSE", x = 1 }',
    "[1e308]",
    '[["JSE", "JSE"]]',
    '[["x", 1]]',
    '{ source = "removal", dataset = "toy" }',
    "{ source = [], dataset = {} }",
    '{ methods = ["JSE"], rho = 0.5 }',
    '{ methods = ["JSE"], rho = [] }',
    "{ methods = [[]], rho = {} }",
)


def _record(number: int = 0) -> Record:
    spec = {"dataset": {"name": "toy", "rho": 0.5}, "remover": {"name": "JSE"}, "run": number}
    key = record_key(spec, "digest", "1")
    return Record(key, spec, "digest", "1", {"average": 0.5, "groups": [1, None]}, 1.5, ("slow",))


def _make_record(folder: Path) -> Path:
    store = RecordStore(folder)
    store.put(_record())
    return store.path(_record().key)


def _read_record(path: Path) -> None:
    """A record is as it was put, or is not there with the reason."""
    store = RecordStore(path.parent)
    found = store.get(path.stem)
    if found is not None:
        promised(found.key == path.stem, "the record of another cell")
        promised(
            all(map(isinstance, _fields(found), (str, dict, str, str, dict, float | int, tuple))),
            "fields of another type",
        )
    else:
        # Counted as refused: the store answers with None and keeps the reason.
        told = dict(store.damaged).get(path)
        promised(told or not path.exists(), "nobody says why it is not read")
        raise ArtifactError(f"{path.name}: {told or 'not there'}")


def _fields(record: Record) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in ("key", "spec", "data", "version", "result", "seconds", "warnings"))


def record_attacks(sound: bytes) -> Attacks:
    """Values of other kinds, with a checksum that fits them."""
    yield from ODD_JSON.items()
    content = json.loads(sound)
    for what, value in odd_fields(content):
        yield what, as_json(value)
        if isinstance(value, dict):
            yield f"{what}, vouched for", _vouched(value)
    yield from NOT_FILES


def _vouched(content: dict[str, Any]) -> bytes:
    plain = {name: value for name, value in content.items() if name != "checksum"}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    checksum = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    whole = json.dumps({**plain, "checksum": checksum}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return (whole + "\n").encode("utf-8", "surrogatepass")


def _make_pack(folder: Path) -> Path:
    pack([_record(number) for number in range(5)], folder / "toy.jsonl.xz")
    return folder / "toy.jsonl.xz"


def _read_pack(path: Path) -> None:
    records = unpack(path)
    promised(all(isinstance(record.key, str) for record in records), "keys are no texts")
    for record in records:
        promised(
            all(map(isinstance, _fields(record), (str, dict, str, str, dict, float | int, tuple))),
            "fields of another type",
        )
    RecordStore(path.parent, packed=records)


def pack_attacks(sound: bytes) -> Attacks:
    """Bombs, and lines of other kinds with a checksum that fits them."""
    lines = lzma.decompress(sound).splitlines()[:-1]
    for what, text in ODD_JSON.items():
        yield f"not packed: {what}", text
        yield f"the first line: {what}", _packed([text, *lines[1:]])
        yield f"a line: {what}", _packed([lines[0], text, *lines[2:]])
        yield f"the last line: {what}", lzma.compress(b"\n".join([*lines, text]))
    for number in (0, 1):
        for what, value in odd_fields(json.loads(lines[number])):
            yield f"line {number}: {what}", _packed([*lines[:number], as_json(value), *lines[number + 1 :]])
    yield "a bomb of a gigabyte", _bomb
    yield "a record twice", _packed([lines[0], lines[1], lines[1]])
    yield "two packs", sound + sound
    yield "another way to pack", lzma.compress(lzma.decompress(sound), format=lzma.FORMAT_ALONE)
    yield from NOT_FILES


def _packed(lines: list[bytes]) -> bytes:
    body = b"".join(line + b"\n" for line in lines)
    return lzma.compress(body + json.dumps({"sha256": hashlib.sha256(body).hexdigest()}).encode() + b"\n", preset=0)


def _bomb(path: Path) -> None:
    packer = lzma.LZMACompressor(preset=0)
    with path.open("wb") as file:
        for _ in range(1024):
            file.write(packer.compress(bytes(2**20)))
        file.write(packer.flush())


spec = Reader(_make_spec, _read_spec, spec_attacks, text=True)


def forged_record(sound: bytes, rng: np.random.Generator) -> bytes:
    """Other values, with a checksum that fits them."""
    value = forged(json.loads(sound), rng)
    return _vouched(value) if isinstance(value, dict) else as_json(value)


def forged_pack(sound: bytes, rng: np.random.Generator) -> bytes:
    """The same in a line of a pack."""
    lines = lzma.decompress(sound).splitlines()[:-1]
    number = int(rng.integers(len(lines)))
    return _packed([*lines[:number], forged_record(lines[number], rng).strip(), *lines[number + 1 :]])


record = Reader(_make_record, _read_record, record_attacks, text=True, forged=forged_record)
packs = Reader(_make_pack, _read_pack, pack_attacks, forged=forged_pack)
