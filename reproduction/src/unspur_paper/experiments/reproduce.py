"""Run an experiment under one preset and gather what its records say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from unspur._version import __version__
from unspur.exceptions import ArtifactError, InputError
from unspur_paper.experiments.cells import data_digest, run_cell
from unspur_paper.experiments.errors import DataMissingError
from unspur_paper.experiments.folder import experiments_folder
from unspur_paper.experiments.records import Record, RecordStore, canonical, pack, record_key, unpack
from unspur_paper.experiments.running import RunReport, Task, run
from unspur_paper.experiments.spec import Cell, Experiment
from unspur_paper.experiments.spec_file import read_experiment
from unspur_paper.experiments.stores import EMBEDDINGS
from unspur_paper.experiments.summary import Summary, summarise
from unspur_paper.files import hold

#: In the folder of experiments, but not one.
_TABLES = {"hyperparameters"}
#: Seconds to wait while another process writes the same tables and figures.
PATIENCE = 300.0


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What the records say, what this run did, and record files that could not be used, with the reason.

    `waiting` says for each cell that was not computed for want of its data what is missing; `files` were written.
    """

    summary: Summary
    report: RunReport
    damaged: tuple[tuple[Path, str], ...]
    waiting: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()


def experiment_names() -> list[str]:
    """Names of the experiments that come with the package."""
    return sorted(path.stem for path in experiments_folder().glob("*.toml") if path.stem not in _TABLES)


def find_experiments(names: Sequence[str]) -> list[Experiment]:
    """Experiments by name, by the first part of several names ("toy": all on Toy), or by the path of a TOML file."""
    known, found = experiment_names(), dict[str, Experiment]()
    for name in names:
        if name.endswith(".toml"):
            matching = [Path(name)]
        else:
            chosen = [name] if name in known else [k for k in known if k.startswith(f"{name}-")]
            matching = [experiments_folder() / f"{k}.toml" for k in chosen]
        if not matching:
            raise InputError(f"There is no experiment {name!r}. There are: {', '.join(known)}; or name a .toml file.")
        for path in matching:
            experiment = read_experiment(path)
            if found.setdefault(path.stem, experiment) != experiment or (name.endswith(".toml") and path.stem in known):
                raise InputError(f"There is another experiment called {path.stem!r}; rename {path}.")
    return list(found.values())


def reproduce(
    experiment: Experiment,
    preset: str,
    folder: Path,
    *,
    runs: int | None = None,
    only: Sequence[str] = (),
    jobs: int = 1,
    progress: bool = True,
    reuse: bool = True,
    compute: bool = True,
    embeddings: Path = EMBEDDINGS,
    write: Callable[[Summary], Sequence[Path]] | None = None,
) -> Reproduction:
    """Compute the cells that have no record in `folder`, and summarise all that have one.

    Records are kept one by one in ``records/`` and together in ``<experiment>/<preset>.jsonl.xz``. Cells are computed
    anew with each version of the code; those that this version has not computed are summarised as an earlier one left
    them, and the summary names all versions. `only` limits what is computed to some methods; with ``compute=False``
    nothing is, and the data are not needed. `embeddings` is the folder of embedding stores, for experiments that read
    some. `write` puts a summary down as files.

    Several processes may do this in one folder at once: records are read, packed and written down by one at a time, so
    that what is there in the end is what the last one saw.
    """
    cells = experiment.cells(preset, runs)
    packed = folder / experiment.name / f"{preset}.jsonl.xz"
    before, damaged = _unpacked(packed)
    store = RecordStore(folder / "records", packed=before)
    report = RunReport(0, 0, (), 0.0)
    tasks, missing = _tasks(cells, embeddings)
    wanted = {cell.method for cell in experiment.cells(preset, runs, only)}
    here = [task for cell, task in zip(cells, tasks, strict=True) if task is not None and cell.method in wanted]
    if compute and not here:
        nothing = InputError(f"{experiment.name} has no {' and no '.join(only)} under the preset {preset!r}.")
        raise next(iter(missing.values()), nothing)
    if compute:
        report = run(
            here,
            store,
            partial(run_cell, embeddings=embeddings),
            version=__version__,
            jobs=jobs,
            progress=progress,
            reuse=reuse,
        )
    writes = compute or write is not None
    with _alone(packed.parent) if writes and folder.exists() else nullcontext():
        before, damaged = _unpacked(packed)  # another process may have packed since
        records = _records(cells, tasks, store, before)
        found = [record for record in records if record is not None]
        if not found and not report.failures:
            raise InputError(
                f"There is nothing to draw of {experiment.name}, preset {preset}: {folder} has no records of it. "
                "Run it without --draw."
            )
        if writes:
            _pack(packed, before, found)
        results = [None if record is None else record.result for record in records]
        versions = ", ".join(sorted({record.version for record in found})) or __version__
        summary = summarise(experiment, preset, versions, cells, results)
        files = tuple(write(summary)) if write is not None else ()
    waiting = tuple(str(missing[i]) for i in missing if compute and records[i] is None and cells[i].method in wanted)
    return Reproduction(summary, report, (*damaged, *store.damaged), waiting, files)


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """One process at a time; the folder is gone again if nothing was put into it."""
    place.mkdir(exist_ok=True)
    try:
        with hold(place / ".lock", patience=PATIENCE):
            yield
    finally:
        with suppress(OSError):
            place.rmdir()


def _tasks(cells: Sequence[Cell], embeddings: Path) -> tuple[list[Task | None], dict[int, DataMissingError]]:
    """What there is to compute; None, and why, for cells whose data are not here."""
    tasks: list[Task | None] = []
    missing = {}
    for number, cell in enumerate(cells):
        spec = dict(cell.spec)
        try:
            digest = data_digest(spec, embeddings)
        except DataMissingError as error:
            missing[number] = error
            tasks.append(None)
        else:
            tasks.append(Task(spec, record_key(spec, digest, __version__), digest))
    return tasks, missing


def _records(
    cells: Sequence[Cell], tasks: Sequence[Task | None], store: RecordStore, packed: Sequence[Record]
) -> list[Record | None]:
    """The record of each cell: of this version, or else the packed one, which may be of another.

    Where the data of a cell are at hand, its record is of the same data. Tables can be drawn where they are not; then
    there must be one record of the cell.
    """
    known: dict[str, dict[str, Record]] = {}
    for record in packed:
        known.setdefault(canonical(record.spec, "spec"), {})[record.data] = record
    found: list[Record | None] = []
    for cell, task in zip(cells, tasks, strict=True):
        by_data = known.get(canonical(dict(cell.spec), "spec"), {})
        if task is None and len(by_data) > 1:
            raise InputError(
                f"There are records of one cell on different data ({' and '.join(by_data)}). Draw them where the data "
                "are, or keep them in different folders (--output)."
            )
        if task is None:
            found.append(next(iter(by_data.values()), None))
        else:
            found.append(store.get(task.key) or by_data.get(task.data))
    return found


def _unpacked(path: Path) -> tuple[list[Record], list[tuple[Path, str]]]:
    """Records of a pack, if there is one that is whole; else what is wrong with it."""
    if not path.exists():
        return [], []
    try:
        return unpack(path), []
    except ArtifactError as error:
        return [], [(path, str(error))]


def _pack(path: Path, before: Sequence[Record], found: Sequence[Record]) -> None:
    """Put records into the pack, in the place of those of the same cells that other versions computed."""
    together = {(canonical(record.spec, "spec"), record.data): record for record in (*before, *found)}
    if {record.key for record in together.values()} != {record.key for record in before}:
        pack(together.values(), path, overwrite=True)
