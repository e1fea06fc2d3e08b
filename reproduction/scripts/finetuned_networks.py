"""Train every network that the experiments read, several at a time, and run the experiments as their networks come.

    python reproduction/scripts/finetuned_networks.py --root DATA --work WORK --trainings 8 --cores 12 --minutes 9.5

DATA holds CUB_200_2011, scenes, celeba and multinli_1.0. WORK gets the stores (``embeddings``), scaled pictures
(``squares``) and records (``results``). What is finished is skipped and what was stopped goes on, so the command can be
given again. What matters most comes first. At the end, or after so many minutes, everything that there is to keep is
packed into WORK/paper-run.tar: a pack of records for each experiment, how each network was trained, and a log;
`merge_records.py` puts the packs into a folder of results.

On a GPU several trainings at a time pay off: batches of 32 leave most of it idle. ``--calibrate`` measures how many, and
whether kernels that are tried first are faster. Where NVIDIA's MPS can be started, trainings share the GPU through it.

Departures from the paper: EfficientNet-Lite0 for ResNet50 and MiniLM for BERT; 20 epochs on birds instead of 100; smiling
for blond hair, pictures of 112 × 112 and 3,000 / 1,500 / 1,500 faces instead of 4,500 / 2,000 / 2,000; 17,000 / 2,500 /
4,000 pairs instead of 50,000 / 5,000 / 5,000.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

BIRDS = ("waterbirds", "--encoder", "efficientnet-lite0", "--epochs", "20")
FACES = (
    *("celeba", "--encoder", "efficientnet-lite0-112", "--task", "Smiling", "--concept", "not Male"),
    *("--sizes", "3000,1500,1500"),
)
PAIRS = ("multinli", "--encoder", "minilm", "--sizes", "17000,2500,4000")
UNMARKED = (*PAIRS, "--unmarked")
NEGATION = ("multinli", "--encoder", "minilm", "--negation")
#: Most important first.
STRENGTHS = (0.9, 0.7, 0.5, 0.8, 0.6)
WEIGHTS = ("1", "0.1", "0.01")
#: Strengths of the other weights.
WEAKER = STRENGTHS[:3]
#: Strength at which maps of test pictures are kept, for Grad-CAM.
MAPPED = 0.9
#: Experiments on frozen networks, which are run last.
FROZEN = (
    *("waterbirds-variants", "waterbirds-ood", "waterbirds-ood-group", "celeba-ood", "celeba-ood-group"),
    *("waterbirds-reweighting", "celeba-reweighting", "celeba-ood-blond", "waterbirds-circulated-labels"),
    *("waterbirds-limited-labels", "celeba-limited-labels", "celeba-two-concepts"),
)
TRAINED = (
    *("celeba-finetuned", "celeba-gradcam", "waterbirds-finetuned", "waterbirds-finetuned-group", "waterbirds-gradcam"),
    *("multinli-ood", "multinli-reweighting", "multinli-clean-encoder", "multinli-negation"),
)
#: Pictures that one process scales at a time.
PIECE = 400
#: Seconds between checkpoints of a training.
NOTE_SECONDS = 25.0
#: Seconds that a process may take to begin.
PATIENCE = 90.0


def networks(seeds: int) -> Iterator[tuple[str, ...]]:
    """Arguments of `unspur-paper finetune`, what matters most first."""
    three = range(min(3, seeds))
    for seed in range(seeds):
        for p in STRENGTHS:
            yield _at(PAIRS, p, seed)
            yield _at(BIRDS, p, seed)
        yield _at(BIRDS, 0.95, seed)
        if seed in three:
            yield from (_at(FACES, p, seed) for p in STRENGTHS)
            yield from ((*kind, "--seed", str(seed)) for kind in (UNMARKED, NEGATION))
    for weight in WEIGHTS:
        # The paper has the weight 1 at all strengths, but for texts.
        for p in STRENGTHS if weight == "1" else WEAKER:
            for seed in three:
                yield from (_at(source, p, seed, weight) for source in (BIRDS, FACES))
                if p in WEAKER:
                    yield _at(PAIRS, p, seed, weight)


def _at(source: tuple[str, ...], p: float, seed: int, adversary: str = "") -> tuple[str, ...]:
    more = ("--adversary", adversary) if adversary else ()
    if p == MAPPED and source is not PAIRS and not adversary:
        more = ("--maps", "50")
    return (*source, "--p", f"{p:g}", "--seed", str(seed), *more)


def _contains(arguments: tuple[str, ...], words: str) -> bool:
    """Whether words stand in the arguments one after the other; "0.9" is not in "0.95"."""
    return f" {words} " in f" {' '.join(arguments)} "


# --- what processes do -----------------------------------------------------------------------------------------------


def serve(connection: Connection) -> None:
    """Do what is asked, one thing after the other, until there is nothing more."""
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        try:
            connection.send(("done", globals()[function](*arguments)))
        except Exception as error:
            connection.send(("failed", f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))


def warm_up(gpu: bool) -> None:
    """Import what is needed, before it is."""
    import unspur_paper.experiments.cells

    if gpu:
        import torch

        import unspur_paper.cli.finetune  # noqa: F401
        from unspur_paper.networks import finetuning

        torch.set_num_threads(1)
        finetuning.NOTE_SECONDS = NOTE_SECONDS
        if torch.cuda.is_available():
            torch.zeros(1, device="cuda")


def train(arguments: list[str]) -> dict[str, Any]:
    """Train and embed one network; what it tells."""
    import torch

    from unspur_paper.cli.finetune import finetune_command

    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        finetune_command.main(arguments, standalone_mode=False)
    gc.collect()  # graphs and what they hold
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    found: dict[str, Any] = json.loads(output.getvalue())
    return found


@cache
def pictures(source: str, root: Path, seed: int) -> Any:
    """All pictures that networks of a seed are trained on; faces are the same for all."""
    from unspur_paper.datasets.celeba import CelebA
    from unspur_paper.datasets.waterbirds import Composites

    return Composites.draw(root, root, seed) if source == "waterbirds" else CelebA.read(root)


def side_of(source: str) -> int:
    """Pixels along a side of scaled pictures: those that the network cuts its input from."""
    return 256 if source == "waterbirds" else 128


def reserve_squares(source: str, root: Path, seed: int, folder: Path) -> tuple[int, Path]:
    """Make the file of scaled pictures; how many there are to be. None if they are there."""
    from unspur_paper.datasets.squares import reserve, squares_file

    examples = pictures(source, root, seed)
    path = squares_file(examples, folder, side_of(source))
    if path.with_suffix(".json").exists():
        return 0, path
    reserve(examples, path, side_of(source))
    return len(examples), path


def fill_squares(source: str, root: Path, seed: int, path: Path, start: int, stop: int) -> None:
    """Scale some pictures."""
    from unspur_paper.datasets.squares import fill

    fill(pictures(source, root, seed), path, range(start, stop), 1)


def finish_squares(source: str, root: Path, seed: int, path: Path) -> None:
    """Note that all are there."""
    from unspur_paper.datasets.squares import finish

    finish(pictures(source, root, seed).digest(), path)


def embed_frozen(source: str, root: Path, seed: int, squares: Path, embeddings: Path) -> dict[str, Any]:
    """Embed all pictures by the network as it was downloaded."""
    from unspur_paper.datasets.squares import Squares
    from unspur_paper.embedding.embedding import embed
    from unspur_paper.embedding.registry import load_encoder
    from unspur_paper.experiments.stores import store_folder

    examples: Any = pictures(source, root, seed)
    if source == "waterbirds":
        examples = Squares.of(examples, squares, side_of(source))
    folder = store_folder(embeddings, source, "efficientnet-lite0", seed)
    folder.parent.mkdir(parents=True, exist_ok=True)
    store = embed(examples, load_encoder("efficientnet-lite0", precision="float32"), folder, progress=False)
    return {"folder": str(store.folder)}


def compute(spec: dict[str, Any], embeddings: Path) -> Any:
    """One cell: the digest of its data, and what came out."""
    from unspur._version import __version__
    from unspur_paper.experiments.cells import data_digest, run_cell
    from unspur_paper.experiments.records import record_key
    from unspur_paper.experiments.running import _evaluate

    data = data_digest(spec, embeddings)
    key = record_key(spec, data, __version__)
    return data, _evaluate(partial(run_cell, embeddings=embeddings), key, spec)


_made_up: list[Any] = []


def build_made_up(tuned: bool) -> None:
    """A training of birds on made-up pictures, to measure how fast steps are."""
    import numpy as np
    import torch

    from unspur_paper.embedding.registry import Lite0
    from unspur_paper.networks.captured import CapturedSteps
    from unspur_paper.networks.finetuning import _Run
    from unspur_paper.networks.on_device import PicturesOnDevice
    from unspur_paper.networks.training import Training
    from unspur_paper.networks.training_data import TrainingData

    class MadeUp:
        kind, name = "image", "made up"

        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> Any:
            return np.random.default_rng(index).integers(0, 255, (256, 256, 3), dtype=np.uint8)

    encoder, numbers = Lite0(), np.arange(64)
    run = _Run(Path(), {}, encoder, TrainingData(numbers, numbers, numbers % 2, None), Training(), tuned_kernels=tuned)
    run.feed = PicturesOnDevice(MadeUp(), encoder, numbers)  # type: ignore[arg-type]
    run.main, run.concept = run._labels(numbers % 2), None
    run.captured = CapturedSteps(run._step, run.feed) if torch.cuda.is_available() else None
    encoder.network.train()
    _made_up[:] = [run]
    measure_made_up(0.0)


def measure_made_up(seconds: float) -> float:
    """Steps a second."""
    import numpy as np
    import torch

    from unspur_paper.networks.captured import own_stream

    run, done, began = _made_up[0], 0, time.perf_counter()
    with own_stream(run.encoder.where.device):
        while done < 4 or time.perf_counter() - began < seconds:
            chunk = np.arange(32) + 32 * (done % 2)
            run._learn(chunk, chunk)
            done += 1
        if torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()
    return done / (time.perf_counter() - began)


def drop_made_up() -> None:
    """Forget it."""
    import torch

    _made_up.clear()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def draw_page(what: str, root: Path, embeddings: Path, path: Path) -> None:
    """A page with Grad-CAM maps, for those who have the data."""
    from unspur_paper.cli.pictures import pictures as command

    arguments = [what, "--root", str(root), "--embeddings", str(embeddings), "--output", str(path), "--force"]
    with contextlib.redirect_stdout(io.StringIO()):
        command.main(arguments, standalone_mode=False)


# --- who does it, and in which order ---------------------------------------------------------------------------------


@dataclass(eq=False)
class Job:
    """A call of a function above. Smaller `order` goes first; `after` names what must be done before."""

    function: str
    arguments: tuple[Any, ...]
    order: tuple[int, ...]
    words: str
    then: Callable[[Any], None]
    after: str = ""


@dataclass(eq=False)
class Process:
    """A process that serves, and what it is doing."""

    gpu: bool
    process: Any
    connection: Connection
    job: Job | None = None
    began: float = 0.0

    @classmethod
    def start(cls, gpu: bool, environment: dict[str, str]) -> Process:
        """Start one with more in its environment."""
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        before = {name: os.environ.get(name) for name in environment}
        os.environ.update(environment)
        process = context.Process(target=serve, args=(there,), daemon=True)
        process.start()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        there.close()
        return cls(gpu, process, here)

    def give(self, job: Job) -> None:
        """Have it do something."""
        self.job, self.began = job, time.monotonic()
        self.connection.send((job.function, job.arguments))


@dataclass
class Run:
    """Everything that is to be done, by whom, and what has been."""

    given: argparse.Namespace
    log: Any
    began: float = field(default_factory=time.monotonic)
    waiting: dict[bool, list[Job]] = field(default_factory=lambda: {True: [], False: []})
    processes: list[Process] = field(default_factory=list)
    finished: set[str] = field(default_factory=set)
    failed: int = 0
    trainings: int = 0
    tuned: bool = False
    #: What processes need in their environment to share a GPU.
    mps: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root, self.work = self.given.root.resolve(), self.given.work.resolve()
        self.embeddings, self.squares, self.results = (
            self.work / name for name in ("embeddings", "squares", "results")
        )
        self.limit = self.given.trainings

    # -- what there is to do

    def plan(self) -> None:
        """Networks, and what they need before; of those that are there already only the cells."""
        from unspur_paper.embedding.store import MANIFEST
        from unspur_paper.experiments.records import RecordStore

        self.records = RecordStore(self.results / "records")
        self.records.prepare()
        self.cells = self._cells_by_store()
        self.seen: set[str] = set()
        every = [(k, a) for k, a in enumerate(networks(self.given.seeds))]
        wanted = [
            (k, a)
            for k, a in every
            if all(_contains(a, words) for words in self.given.only)
            and not any(_contains(a, words) for words in self.given.without)
        ]
        for k, arguments in wanted:
            source = arguments[0]
            seed = int(arguments[arguments.index("--seed") + 1]) if source == "waterbirds" else 0
            folder = self.folder_of(arguments)
            if (folder / MANIFEST).exists():
                self.read_by_cells(folder, k)
                continue
            after = "" if source == "multinli" else self._need_squares(source, seed, k)
            self._need_network(k, arguments, after)
        if self.given.frozen:
            # After the last networks of texts that have no strength, of which there are few.
            order = max((k for k, a in enumerate(networks(3)) if "--unmarked" in a), default=0)
            for seed in range(5):
                self._need_frozen("waterbirds", seed, order, self._need_squares("waterbirds", seed, 1000))
            self._need_frozen("celeba", 0, order, "")

    def folder_of(self, arguments: tuple[str, ...]) -> Path:
        """Where the store of a network is to be."""
        from unspur_paper.experiments.stores import tuned_folder

        told = dict(pairwise(arguments))
        kind, encoder = {name: f"--{name}" in arguments for name in ("unmarked", "negation")}, told["--encoder"]
        return tuned_folder(
            self.embeddings,
            arguments[0],
            Path(encoder).name if Path(encoder).is_dir() else encoder,
            int(told["--seed"]),
            p=float(told.get("--p", 0.0)),
            adversary=float(told.get("--adversary", 0.0)),
            **kind,
        )

    def _cells_by_store(self) -> dict[Path, list[tuple[int, dict[str, Any]]]]:
        """Folder of a store -> the cells that read it, each with the number of its experiment."""
        from unspur_paper.experiments.registry import FINETUNED
        from unspur_paper.experiments.reproduce import find_experiments
        from unspur_paper.experiments.stores import place_of_frozen, place_of_tuned

        found: dict[Path, list[tuple[int, dict[str, Any]]]] = {}
        self.experiments = find_experiments((*TRAINED, *(FROZEN if self.given.frozen else ())))
        for number, experiment in enumerate(self.experiments):
            for cell in experiment.cells("exact"):
                data, run = cell.spec["dataset"], cell.spec["run"]
                place = (place_of_tuned if data["name"] in FINETUNED else place_of_frozen)(data, run, self.embeddings)[
                    0
                ]
                found.setdefault(place, []).append((number, dict(cell.spec)))
        return found

    def _need_squares(self, source: str, seed: int, order: int) -> str:
        """Scaled pictures; the name under which they are finished."""
        name = f"squares {source} {seed}"
        if name in self.finished or any(job.words == name for job in self.waiting[False]):
            return name
        arguments = (source, self.root, seed)

        def reserved(found: tuple[int, Path]) -> None:
            total, path = found
            left = set(range(0, total, PIECE))
            if not left:
                self.finished.add(name)

            def filled(_: Any, at: int) -> None:
                left.discard(at)
                if not left:
                    self.cpu("finish_squares", (*arguments, path), (0, order), f"{name} noted", noted)

            def noted(_: Any) -> None:
                self.say(f"{name} are there")
                self.finished.add(name)

            for at in sorted(left):
                piece = (*arguments, path, at, min(at + PIECE, total))
                self.cpu("fill_squares", piece, (0, order, at), f"{name} from {at}", partial(filled, at=at))

        self.cpu("reserve_squares", (*arguments, self.squares), (0, order), name, reserved)
        return name

    def _need_network(self, number: int, arguments: tuple[str, ...], after: str) -> None:
        """A training, and then the cells that read its store."""
        where = ["--root", str(self.root), "--embeddings", str(self.embeddings), "--workers", "2", "--json"]
        if after:
            where += ["--squares", str(self.squares)]
        words = " ".join(arguments)

        def trained(told: dict[str, Any]) -> None:
            kept = told["history"][told["kept_epoch"] - 1]
            adversary = f", adversary {kept['adversary_balanced_accuracy']:.3f}" if "adversary_loss" in kept else ""
            self.trainings += 1
            self.say(
                f"epoch {told['kept_epoch']} of {len(told['history'])}, {told['seconds']:.0f} s of training, validation "
                f"{kept['validation_accuracy']:.3f}{adversary}: {words}"
            )
            self.read_by_cells(Path(told["folder"]), number)
            if "--maps" in arguments and "--seed 0" in words:
                self._need_page(arguments[0], number)

        self.gpu("train", ([*arguments, *where],), (number,), words, trained, after)

    def _need_page(self, source: str, number: int) -> None:
        what = f"{source}-gradcam"
        if not self.given.pages:
            return
        self.cpu(
            "draw_page",
            (what, self.root, self.embeddings, self.work / f"{what}.html"),
            (2, number),
            f"page {what}",
            lambda _: None,
        )

    def _need_frozen(self, source: str, seed: int, order: int, after: str) -> None:
        """Embeddings by the network as it was downloaded; their cells go last."""
        words = f"frozen {source} {seed}"
        arguments = (source, self.root, seed, self.squares, self.embeddings)

        def embedded(told: dict[str, Any]) -> None:
            self.say(f"{words} is embedded")
            self.read_by_cells(Path(told["folder"]), 1000)

        self.gpu("embed_frozen", arguments, (order, 1 + seed), words, embedded, after)

    def read_by_cells(self, folder: Path, number: int) -> None:
        """Ask for all cells that read a store, in the order of networks and of experiments."""
        from unspur._version import __version__
        from unspur_paper.experiments.cells import data_digest
        from unspur_paper.experiments.records import canonical, record_key

        for experiment, spec in self.cells.get(folder, ()):
            text = canonical(spec, "spec")
            if text in self.seen:
                continue
            self.seen.add(text)
            if self.records.get(record_key(spec, data_digest(spec, self.embeddings), __version__)) is None:
                order = (1, number, experiment, int(1e4 * (1 - spec["dataset"].get("p", 0.0))), spec["run"])
                self.cpu("compute", (spec, self.embeddings), order, f"cell {text}", partial(self.computed, spec))

    def computed(self, spec: dict[str, Any], found: Any) -> None:
        """Keep a record."""
        from unspur._version import __version__
        from unspur_paper.experiments.running import Task, _record

        data, outcome = found
        if outcome.result is None:
            self.failed += 1
            self.say(f"cell failed: {outcome.message} {json.dumps(spec)}")
            return
        self.records.put(_record(Task(spec, outcome.key, data), __version__, outcome, outcome.result))

    def cpu(self, function: str, arguments: tuple[Any, ...], order: tuple[int, ...], words: str, then: Any) -> None:
        """Ask a process without a GPU."""
        self.waiting[False].append(Job(function, arguments, order, words, then))

    def gpu(
        self, function: str, arguments: tuple[Any, ...], order: tuple[int, ...], words: str, then: Any, after: str
    ) -> None:
        """Ask one with a GPU."""
        self.waiting[True].append(Job(function, arguments, order, words, then, after))

    # -- doing it

    def say(self, words: str) -> None:
        """A line of the log."""
        line = f"{time.monotonic() - self.began:7.1f} s  {words}"
        print(line[:300], flush=True)
        self.log.write(line + "\n")
        self.log.flush()

    def left(self) -> float:
        """Seconds until it has to stop."""
        return 60 * float(self.given.minutes) - (time.monotonic() - self.began)

    def go(self) -> None:
        """Until all is done, or the time is over."""
        while self.left() > 0 and (any(p.job for p in self.processes) or any(self.waiting.values())):
            if not self._hand_out() and not any(p.job for p in self.processes):
                self.say(f"stuck: {sum(map(len, self.waiting.values()))} wait for what has failed")
                break
            self.listen(min(1.0, max(0.0, self.left())))

    def _hand_out(self) -> bool:
        """Give work to those who have none; whether there was any."""
        given = False
        for gpu in (True, False):
            idle = [process for process in self.processes if process.gpu == gpu and process.job is None]
            if gpu:  # not more than are to train at a time
                idle = idle[: max(0, self.limit - sum(p.gpu and p.job is not None for p in self.processes))]
            ready = sorted(
                (job for job in self.waiting[gpu] if not job.after or job.after in self.finished),
                key=lambda job: job.order,
            )
            for process, job in zip(idle, ready, strict=False):
                self.waiting[gpu].remove(job)
                if job.function == "train" and self.tuned:
                    job.arguments[0].append("--tuned-kernels")
                process.give(job)
                given = True
        return given

    def listen(self, seconds: float) -> None:
        """Hear who is done, and draw the conclusions."""
        busy = {process.connection: process for process in self.processes if process.job is not None}
        for connection in wait(list(busy), timeout=seconds):
            process = busy[connection]  # type: ignore[index]
            job, process.job = process.job, None
            assert job is not None
            try:
                how, answer = process.connection.recv()
            except (EOFError, OSError):
                how, answer = "failed", "its process has died"
                self.processes.remove(process)
                self.start(process.gpu, 1)
            if how == "done":
                job.then(answer)
            elif job.function == "warm_up":
                self._without_mps(process, answer)
            else:
                self.failed += 1
                self.say(f"failed: {job.words}: {answer}")
        for process in [p for p in busy.values() if p.job and p.job.function == "warm_up"]:
            if time.monotonic() - process.began > PATIENCE:
                self._without_mps(process, f"no answer for {PATIENCE:.0f} s")

    def _without_mps(self, process: Process, why: str) -> None:
        """Start a process anew, which shares the GPU without MPS."""
        if process.gpu and not self.mps and "answer" not in why:
            sys.exit(f"A process cannot begin: {why}")
        self.say(f"a process begins anew without MPS: {why}")
        process.process.kill()
        if process in self.processes:
            self.processes.remove(process)
        if process.gpu:
            self.mps = {}
        self.start(process.gpu, 1)

    def start(self, gpu: bool, count: int) -> list[Process]:
        """Start processes and have them import what they need."""
        # Neither kind needs threads of its own beside the others.
        environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        environment |= self.mps if gpu else {"CUDA_VISIBLE_DEVICES": ""}
        started = [Process.start(gpu, environment) for _ in range(count)]
        for process in started:
            process.give(Job("warm_up", (gpu,), (), "warm up", lambda _: None))
        self.processes += started
        return started

    def all_of(self, processes: list[Process], function: str, *arguments: Any) -> list[Any]:
        """Have several do the same at the same time; other processes go on with what they have."""
        answers: list[Any] = []
        for process in processes:
            process.give(Job(function, arguments, (), function, answers.append))
        while any(process.job is not None for process in processes) and self.left() > 0:
            self._hand_out()
            self.listen(0.2)
        return answers

    def calibrate(self) -> None:
        """Measure on made-up birds whether tuned kernels are faster, and how many trainings at a time; once."""
        noted = self.work / "calibration.json"
        if noted.exists():
            self.tuned, self.limit = json.loads(noted.read_text(encoding="utf-8"))
            return
        self.limit, wanted = 0, self.limit
        while any(process.gpu and process.job for process in self.processes) and self.left() > 0:  # they are importing
            self._hand_out()
            self.listen(0.2)
        trainers = [process for process in self.processes if process.gpu]
        rates = {}
        for tuned in (False, True):
            self.all_of(trainers[:1], "build_made_up", tuned)
            rates[tuned] = sum(self.all_of(trainers[:1], "measure_made_up", 1.5))
        self.tuned = rates[True] > 1.25 * rates[False]  # they are tried anew in every process
        self.say(f"one training: {rates[False]:.0f} steps/s, tuned kernels {rates[True]:.0f}; tuned: {self.tuned}")
        self.all_of(trainers, "build_made_up", self.tuned)
        best = (0.0, wanted)
        for count in sorted({max(1, wanted // 2), max(1, 3 * wanted // 4), wanted}):
            rate = sum(self.all_of(trainers[:count], "measure_made_up", 2.0))
            self.say(f"{count} trainings at a time: {rate:.0f} steps/s in all")
            if rate > 1.03 * best[0]:
                best = (rate, count)
        self.all_of(trainers, "drop_made_up")
        self.limit = best[1]
        if self.left() > 0:
            noted.write_text(json.dumps([self.tuned, self.limit]), encoding="utf-8")

    def end(self) -> None:
        """Stop what is running, and pack what there is."""
        for process in self.processes:
            if process.job is not None and process.gpu:
                self.say(f"stopped: {process.job.words}")
            process.process.kill()
        waiting = {gpu: len(jobs) for gpu, jobs in self.waiting.items()}
        self.say(
            f"{self.trainings} networks trained, {len(self.seen)} cells asked for; not begun: {waiting[True]} networks, "
            f"{waiting[False]} others; {self.failed} failed"
        )
        self.pack()

    def pack(self) -> None:
        """Records of each experiment, how networks were trained, the log and pages, in one file."""
        from unspur.exceptions import UnspurError
        from unspur_paper.experiments.reproduce import reproduce

        for experiment in self.experiments:
            with contextlib.suppress(UnspurError):  # none of its cells has a record yet
                reproduce(
                    experiment,
                    "exact",
                    self.results,
                    compute=False,
                    embeddings=self.embeddings,
                    progress=False,
                    write=lambda _: (),
                )
        noted = self.work / "networks.json"
        noted.write_text(json.dumps(networks_told(self.embeddings), indent=1) + "\n", encoding="utf-8")
        target = self.given.output or self.work / "paper-run.tar"
        with tarfile.open(target, "w") as tar:
            for path in (*sorted(self.results.glob("*/*.jsonl.xz")), noted, Path(self.log.name)):
                inside = path.relative_to(self.results) if path.is_relative_to(self.results) else Path(path.name)
                tar.add(path, str(inside))
        self.say(f"{target}: {target.stat().st_size / 2**20:.1f} MiB")
        if self.given.output:
            for path in self.work.glob("*.html"):
                shutil.copy(path, self.given.output.parent)


def networks_told(embeddings: Path) -> list[dict[str, Any]]:
    """What the stores of fine-tuned networks tell of their training."""
    noted = []
    for path in sorted(embeddings.glob("*-finetuned/**/manifest.json")):
        manifest = json.loads(path.read_text(encoding="utf-8"))
        training = manifest["encoder"]["training"]
        kept = {key: training[key] for key in ("settings", "history", "kept_epoch", "seconds")}
        noted.append(
            {"store": str(path.parent.relative_to(embeddings)), "device": manifest["encoder"]["device"], **kept}
        )
    return noted


@contextlib.contextmanager
def mps(wanted: bool) -> Iterator[dict[str, str]]:
    """What processes need in their environment to share a GPU by NVIDIA's MPS; nothing where it cannot be had."""
    control = shutil.which("nvidia-cuda-mps-control")
    if not wanted or control is None:
        yield {}
        return
    with tempfile.TemporaryDirectory() as place:
        environment = {"CUDA_MPS_PIPE_DIRECTORY": place, "CUDA_MPS_LOG_DIRECTORY": place}
        everything = {**os.environ, **environment}
        if subprocess.run([control, "-d"], env=everything, check=False).returncode:
            yield {}
            return
        try:
            yield environment
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run([control], input="quit -t 3\n", text=True, env=everything, check=False, timeout=15)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trainings", type=int, default=1, help="trainings at a time, at most")
    parser.add_argument("--cores", type=int, default=1, help="processes that scale pictures and run experiments")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WORDS",
        help='words that a network\'s arguments must contain, as in --only="--p 0.9"; may be repeated',
    )
    parser.add_argument(
        "--without", action="append", default=[], metavar="WORDS", help="words that they must not contain; likewise"
    )
    parser.add_argument("--minutes", type=float, default=1e9, help="stop and pack after this long")
    parser.add_argument(
        "--frozen", action="store_true", help="also embed by networks that were not trained, at the end"
    )
    parser.add_argument("--pages", action="store_true", help="also draw pages with Grad-CAM maps; they hold pictures")
    parser.add_argument("--calibrate", action="store_true", help="measure first how many trainings at a time")
    parser.add_argument("--no-mps", action="store_true", help="do not start NVIDIA's MPS")
    parser.add_argument("--output", type=Path, help="the packed file (WORK/paper-run.tar)")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with (given.work / "run.log").open("a", encoding="utf-8") as log, mps(not given.no_mps) as environment:
        run = Run(given, log, began, mps=environment)
        run.say(f"MPS: {'yes' if environment else 'no'}")
        run.plan()
        run.start(False, given.cores)
        run.start(True, given.trainings)
        try:
            if given.calibrate:
                run.calibrate()
            run.go()
        finally:
            run.end()
    sys.exit(bool(run.failed))


if __name__ == "__main__":
    main()
