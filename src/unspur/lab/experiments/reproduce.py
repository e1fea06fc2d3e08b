"""Run an experiment under one preset and gather what its records say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unspur._version import __version__
from unspur.exceptions import ArtifactError, InputError
from unspur.lab.experiments.cells import data_digest, run_cell
from unspur.lab.experiments.folder import experiments_folder
from unspur.lab.experiments.records import Record, RecordStore, pack, record_key, unpack
from unspur.lab.experiments.running import RunReport, Task, run
from unspur.lab.experiments.spec import Cell, Experiment, read_experiment
from unspur.lab.experiments.summary import Summary, summarise

#: In the folder of experiments, but not one.
_TABLES = {"hyperparameters"}


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What the records say, what this run did, and record files that could not be used, with the reason."""

    summary: Summary
    report: RunReport
    damaged: tuple[tuple[Path, str], ...]


def experiment_names() -> list[str]:
    """Names of the experiments that come with the package."""
    return sorted(path.stem for path in experiments_folder().glob("*.toml") if path.stem not in _TABLES)


def find_experiments(names: Sequence[str]) -> list[Experiment]:
    """Experiments by name, by the first part of their names ("toy": all on Toy), or by the path of a TOML file."""
    known, found = experiment_names(), dict[str, Experiment]()
    for name in names:
        if name.endswith(".toml"):
            matching = [Path(name)]
        else:
            matching = [experiments_folder() / f"{k}.toml" for k in known if k == name or k.startswith(f"{name}-")]
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
    dask: str | None = None,
    progress: bool = True,
    reuse: bool = True,
    compute: bool = True,
) -> Reproduction:
    """Compute the cells that have no record in `folder`, and summarise all that have one.

    Records are kept one by one in ``records/`` and together in ``<experiment>/<preset>.jsonl.xz``. `only` limits what
    is computed to some methods; with ``compute=False`` nothing is.
    """
    cells = experiment.cells(preset, runs)
    packed = folder / experiment.name / f"{preset}.jsonl.xz"
    before, damaged = _unpacked(packed)
    store = RecordStore(folder / "records", packed=before)
    digest = data_digest(experiment.dataset)
    report = RunReport(0, 0, (), 0.0)
    if compute:
        wanted = experiment.cells(preset, runs, only)
        tasks = [Task(dict(cell.spec), _key(cell, digest), digest) for cell in wanted]
        report = run(tasks, store, run_cell, version=__version__, jobs=jobs, dask=dask, progress=progress, reuse=reuse)
    records = [store.get(_key(cell, digest)) for cell in cells]
    found = [record for record in records if record is not None]
    if not found and not report.failures:
        versions = sorted({record.version for record in before}) or ["no"]
        raise InputError(
            f"There is nothing to draw of {experiment.name}, preset {preset}: {folder} has records of "
            f"{', '.join(versions)} version, this is {__version__}. Run it without --draw."
        )
    _pack(packed, before, found)
    results = [None if record is None else record.result for record in records]
    summary = summarise(experiment, preset, __version__, cells, results)
    return Reproduction(summary, report, (*damaged, *store.damaged))


def _key(cell: Cell, digest: str) -> str:
    return record_key(dict(cell.spec), digest, __version__)


def _unpacked(path: Path) -> tuple[list[Record], list[tuple[Path, str]]]:
    """Records of a pack, if there is one that is whole; else what is wrong with it."""
    if not path.exists():
        return [], []
    try:
        return unpack(path), []
    except ArtifactError as error:
        return [], [(path, str(error))]


def _pack(path: Path, before: Sequence[Record], found: Sequence[Record]) -> None:
    """Put records into the pack beside those that were there, which may be of other versions."""
    together = {record.key: record for record in (*before, *found)}
    if together != {record.key: record for record in before}:
        path.parent.mkdir(parents=True, exist_ok=True)
        pack(together.values(), path, overwrite=True)
