"""What the tests of faults run, and how they tell whether a run that was disturbed ended like one that was not.

A *work* is a command that writes files. Its undisturbed result is everything below its folder: names, modes, contents,
less the times that some of them hold. So a temporary file that is left for good is a difference, like a wrong number.
"""

import atexit
import hashlib
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from trust.nursery import End, Fault, Job, Nursery
from unspur_paper.experiments.records import unpack

#: What takes long to import, and what forks may share.
COMMANDS = (
    "sklearn.linear_model",
    "pyarrow.parquet",
    "PIL.Image",
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "jinja2",
    "unspur.io.files",
    "unspur.io.parquet",
    "unspur.report",
    *(f"unspur.cli.{verb}" for verb in ("fit", "saved", "embed", "report")),
    *(f"unspur_paper.cli.{verb}" for verb in ("reproduce", "data")),
)
#: Nothing goes wrong.
PEACE = Fault()
#: What files say of time and memory, which differ from run to run.
TIMES = {"seconds", "peak_memory_mb", "checksum"}
#: Bytes for what a process says, which goes to a file as well.
SAID = 400


@dataclass(frozen=True)
class Work:
    """A command, what is in its folder before, and which of its files count only together with a last one."""

    name: str
    command: tuple[str, ...]
    settings: dict = field(default_factory=dict)
    #: Puts something there first.
    before: Callable[[Path], None] = lambda _: None
    #: The file that is written last, and without which the others are no result yet.
    seal: str | None = None

    def job(self, folder: Path, fault: Fault = PEACE) -> Job:
        return Job(self.command, folder, fault, self.settings)


@dataclass(frozen=True)
class Undisturbed:
    """How it ends when nothing happens."""

    work: Work
    result: dict[str, str]
    old: dict[str, str]
    moments: tuple[str, ...]
    #: Bytes of the largest file, and of all.
    largest: int
    total: int


def undisturbed(nursery: Nursery, work: Work) -> Undisturbed:
    """Run the work in peace, twice: what differs then would differ always."""
    ends, results, above = [], [], Path(tempfile.mkdtemp(dir=place()))
    for number in range(2):
        folder = fresh(above / str(number), work)
        old = snapshot(folder)
        ends.append(nursery.run(work.job(folder)))
        assert ends[-1].code == 0, ends[-1].said
        results.append(snapshot(folder))
    assert results[0] == results[1], differences(*results)
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return Undisturbed(work, results[0], old, ends[0].moments, max(sizes), sum(sizes))


def fresh(folder: Path, work: Work) -> Path:
    folder.mkdir(parents=True)
    work.before(folder)
    return folder


def disturbed(nursery: Nursery, peace: Undisturbed, folder: Path, fault: Fault) -> tuple[End, str]:
    """The work with a fault and then again without; how the first ended, and what is wrong ("" if nothing is)."""
    folder = fresh(folder, peace.work)
    first = nursery.run(peace.work.job(folder, fault))
    return first, half_read(peace, folder) or rerun(nursery, peace, folder)


def rerun(nursery: Nursery, peace: Undisturbed, folder: Path) -> str:
    """What is wrong with the work once it is done again without a fault."""
    again = nursery.run(peace.work.job(folder))
    if again.code:
        return f"the rerun ended with {again.code}: {again.said[-400:]}"
    return differences(peace.result, snapshot(folder))


def half_read(peace: Undisturbed, folder: Path) -> str:
    """A file under its own name that is neither the old one nor the new one: a reader would take it. "" for none."""
    if peace.work.seal is not None and not (folder / peace.work.seal).exists():
        return ""
    for name, content in snapshot(folder).items():
        if name in peace.result and content not in (peace.result[name], peace.old.get(name)):
            return f"{name} could be read, half-written"
    return ""


def differences(wanted: dict[str, str], found: dict[str, str]) -> str:
    """In words; "" if there are none."""
    odd = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    told = [
        f"{name} ({'missing' if name not in found else 'left over' if name not in wanted else 'differs'})"
        for name in odd
    ]
    return ", ".join(told[:5])


def snapshot(folder: Path) -> dict[str, str]:
    """Everything below a folder: mode and content, but for times."""
    return {
        str(path.relative_to(folder)): f"{path.stat().st_mode:o} {'' if path.is_dir() else _content(path)}"
        for path in sorted(folder.rglob("*"))
    }


def _content(path: Path) -> str:
    content = path.read_bytes()
    with suppress(ValueError):  # cut off: compared as it is
        if path.suffix == ".json":
            content = json.dumps(_timeless(json.loads(content)), sort_keys=True).encode()
        elif path.name.endswith(".jsonl.xz"):
            content = repr([replace(record, seconds=0.0) for record in unpack(path)]).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def _timeless(value: object) -> object:
    if isinstance(value, dict):
        return {key: _timeless(inner) for key, inner in value.items() if key not in TIMES}
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value


def chosen(population: Sequence[int], count: int, seed: int) -> list[int]:
    """Some of them, by seed; all, if there are no more."""
    return sorted(random.Random(seed).sample(population, min(count, len(population))))


def kills(peace: Undisturbed, moments: int, bytes_: int, seed: int) -> Iterable[Fault]:
    """kill -9 at some of the moments, and in the middle of a write."""
    for moment in chosen(range(1, len(peace.moments) + 1), moments, seed):
        yield Fault(kill_at=moment)
    for size in chosen(range(1, peace.largest), bytes_, seed + 1):
        yield Fault(cut_at=size)


# One process for all tests


@cache
def place() -> Path:
    """A folder for all of these tests, gone when they end."""
    folder = Path(tempfile.mkdtemp(prefix="unspur-faults-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def nursery_of(*modules: str) -> Nursery:
    """The nursery of these tests: what it imports is imported once for all of them."""
    nursery = Nursery(Path(tempfile.mkdtemp(dir=place())), *modules)
    atexit.register(nursery.close)
    return nursery


def commands() -> Nursery:
    """A nursery for command lines."""
    return nursery_of(*COMMANDS)


@cache
def peace_of(name: str) -> Undisturbed:
    """One of the works, as it ends undisturbed."""
    return undisturbed(commands(), works()[name])


@cache
def works() -> dict[str, Work]:
    """Every verb that writes a file, on rows that take no time."""
    folder = place() / "rows"
    folder.mkdir()
    return _works(rows(folder))


# Works


def rows(folder: Path, n: int = 900) -> dict[str, Path]:
    """Small files of rows, a removal, pictures and a table of them, for all works together."""
    import csv

    import numpy as np
    import pyarrow as pa
    from PIL import Image
    from pyarrow import parquet

    from unspur import LEACE
    from unspur.datasets import make_toy

    toy = make_toy(n, rho=0.8, random_state=0)
    labels = {"bird": toy.y, "water": toy.concept}
    np.savez(folder / "rows.npz", Z=toy.Z, **labels)
    LEACE().fit(toy.Z, concept=toy.concept).save(folder / "removal.safetensors")
    (folder / "many").mkdir()
    for number in range(3):
        part = slice(300 * number, 300 * number + 300)
        table = {f"z{j}": toy.Z[part, j] for j in range(toy.Z.shape[1])}
        parquet.write_table(pa.table(table), folder / "many" / f"{number}.parquet")
    rng = np.random.default_rng(0)
    with (folder / "pictures.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "y", "split"])
        for number in range(24):
            Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(folder / f"{number}.png")
            writer.writerow([f"{number}.png", number % 2, "train" if number < 16 else "test"])
    (folder / "mine.toml").write_text(MINE)
    return {name: folder / name for name in ("rows.npz", "removal.safetensors", "many", "pictures.csv", "mine.toml")}


def _works(files: dict[str, Path]) -> dict[str, Work]:
    many = str(files["many"])
    removal, table = str(files["removal.safetensors"]), str(files["rows.npz"])
    labels = ("--task", "bird", "--concept", "water")
    found = [Work("fit", ("fit", table, *labels, "--output", "r.safetensors", "--force"), before=_old("r.safetensors"))]
    found += [
        Work(f"apply {kind}", ("apply", removal, table, "--output", f"clean.{kind}", "--force"))
        for kind in ("npz", "csv", "parquet")
    ]
    found += [
        Work("apply folder", ("apply", removal, many, "--output", "clean", "--force")),
        Work(
            "apply into empty folder",
            ("apply", removal, many, "--output", "there", "--force"),
            before=lambda folder: (folder / "there").mkdir(),
        ),
        Work("report", ("report", table, *labels, "--output", "page.html", "--save", "r.safetensors", "--force")),
        Work(
            "embed",
            (
                "embed",
                str(files["pictures.csv"]),
                "--encoder",
                "grey-50",
                "--output",
                "store",
                "--batch",
                "4",
                "--pca",
                "3",
            ),
            {"unspur.embed.embedding:ROWS_BETWEEN_NOTES": 8},
            seal="store/manifest.json",
        ),
        Work("reproduce", ("reproduce", str(files["mine.toml"]), "--jobs", "1", "--output", "r")),
    ]
    return {work.name: work for work in found}


#: Six cells that take no time.
MINE = """
title = "Mine"
presets = ["exact"]
runs = 3
metrics = ["average", "worst_group"]

[dataset]
name = "toy"
n = 300
d = 6
rho = [0.8]

[[methods]]
name = "ERM"

[[methods]]
name = "LEACE"
remover = "LEACE"
"""


def _old(name: str) -> Callable[[Path], None]:
    """A result of the past that the new one replaces."""
    return lambda folder: (folder / name).write_bytes(b"old")
