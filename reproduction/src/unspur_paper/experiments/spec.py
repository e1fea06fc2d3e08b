"""An experiment is data: one TOML file that names data, methods, presets, runs and what it answers in the paper.

::

    title = "Accuracy out of distribution, by strength of the correlation"
    answers = ["tab:Toy_1", "tab:Toy_2"]              # labels in the paper's source
    published = { source = "removal", dataset = "toy" }
    presets = ["released", "exact"]
    runs = 100
    strength = "rho"                                  # the axis that curves are drawn over
    metrics = ["accuracy"]

    [dataset]
    name = "toy"
    rho = [0.0, 0.5, 0.9]                             # a list is an axis of the product

    [[methods]]
    name = "JSE adjusted delta"                       # as in the tables
    remover = { name = "JSE", delta = "auto" }        # or a plain name
    head = "ERM"
    published = "JSE"                                 # its line in the published values, if it has another name there

Where the published values were made with other data (another network), ``comparable = false`` shows them beside ours
without counting agreement. ``compare = [["A", "B"]]`` adds differences A − B to those of the first method from all
others. ``shown = ["A", "B"]`` are the methods that figures show, if not all. A method may have
``dataset = { pca = 0 }``, settings of its own that leave the drawn rows the same.

Its cells are the product of all axes, methods and runs. A cell's spec is plain JSON and all that its evaluation may
depend on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from unspur.exceptions import InputError
from unspur_paper.experiments.presets import complete_head, complete_remover
from unspur_paper.experiments.registry import MADE_UP, MADE_UP_PIXELS, PIXELS

#: Rows of the training pool in a smoke run; and what else is cut down where embeddings are made up.
SMOKE_ROWS = 500
_SMOKE_EMBEDDED = {"n": 400, "n_validation": 200, "n_test": 400, "pca": 20, "labelled": 250, "p": 0.9}


@dataclass(frozen=True, slots=True)
class Method:
    """A line of the tables: remover and last layer with their options, and the published line it is set against.

    One that is not `counted` stands beside the published line without being held to it. `source` is where that line is
    published, if not where the experiment's are; `dataset` has settings that are the method's own. `runs` is the number
    of its runs if there are fewer than of others, and `strengths` where it is run if not everywhere.
    """

    name: str
    remover: Mapping[str, Any]
    head: Mapping[str, Any]
    published: str
    counted: bool
    presets: tuple[str, ...]
    source: str | None = None
    dataset: Mapping[str, Any] = field(default_factory=dict)
    runs: int | None = None
    strengths: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One evaluation: its spec, the method's name, and where on the axes it lies."""

    spec: Mapping[str, Any]
    method: str
    at: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Experiment:
    """A spec, read and checked."""

    name: str
    title: str
    answers: tuple[str, ...]
    published: Mapping[str, str] | None
    presets: tuple[str, ...]
    runs: int
    strength: str
    metrics: tuple[str, ...]
    figure: str
    #: Where on the axes, and for which methods, the rows themselves are drawn; None for nowhere.
    illustration: Mapping[str, Any] | None
    dataset: Mapping[str, Any]
    methods: tuple[Method, ...]
    note: str
    #: Pairs of methods whose differences are shown besides those of the first from all others.
    compare: tuple[tuple[str, str], ...] = ()
    #: Methods that figures show, where all would be too many; none for all.
    shown: tuple[str, ...] = ()
    #: Settings of the dataset that are not those of the file, as they were given.
    changes: Mapping[str, str] = field(default_factory=dict)

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the dataset's settings that vary."""
        return tuple(key for key, value in self.dataset.items() if isinstance(value, list))

    def method(self, name: str) -> Method:
        """A method by its name."""
        return next(method for method in self.methods if method.name == name)

    def cells(self, preset: str, runs: int | None = None, only: Sequence[str] = ()) -> list[Cell]:
        """The product of axes, methods (all, or `only` some) and runs, for one preset."""
        known = [method.name for method in self.methods]
        for name in only:
            if name not in known:
                raise InputError(f"{self.name} has no method {name!r}. There are: {', '.join(known)}.")
        methods = [m for m in self.methods if preset in m.presets and (not only or m.name in only)]
        return list(self._product(preset, methods, self.runs if runs is None else runs))

    def smoke(self) -> Experiment:
        """The same with two runs of few rows at the last value of every axis: whether it works, in seconds.

        Embeddings are made up.
        """
        most = _SMOKE_EMBEDDED if "encoder" in self.dataset else {"n": SMOKE_ROWS}
        if self.dataset.get("labelled"):
            most = {**most, "p": 0.8}  # so that the library tests directions in the smallest group of those rows

        def smaller(settings: Mapping[str, Any]) -> dict[str, Any]:
            short = {key: value[-1:] if isinstance(value, list) else value for key, value in settings.items()}
            for key in short.keys() & most.keys():
                value = short[key]
                short[key] = [min(v, most[key]) for v in value] if isinstance(value, list) else min(value, most[key])
            return short

        dataset = smaller(self.dataset)
        if "encoder" in dataset:
            dataset["encoder"] = MADE_UP_PIXELS if dataset["encoder"] in PIXELS else MADE_UP
        if "judged" in dataset:
            dataset["judged"] = "validation rows"  # six times as fast
        methods = tuple(replace(method, dataset=smaller(method.dataset), strengths=None) for method in self.methods)
        return replace(self, dataset=dataset, methods=methods, runs=2, published=None)

    def _product(self, preset: str, methods: Sequence[Method], runs: int) -> Iterator[Cell]:
        for values in product(*(self.dataset[axis] for axis in self.axes)):
            at = dict(zip(self.axes, values, strict=True))
            for method in methods:
                if method.strengths is None or at[self.strength] in method.strengths:
                    fewer = runs if method.runs is None else min(runs, method.runs)
                    yield from (self._cell(preset, method, at, run) for run in range(fewer))
        if self.illustration is not None:
            at = {axis: self.illustration[axis] for axis in self.axes}
            for method in methods:
                if method.name in self.illustration["methods"]:
                    yield self._cell(preset, method, at, 0, keep=["panels"])

    def _cell(self, preset: str, method: Method, at: Mapping[str, Any], run: int, **more: Any) -> Cell:
        data = {**self.dataset, **at, **method.dataset}
        spec = {
            "dataset": data,
            "remover": complete_remover(preset, data["name"], method.remover),
            "head": complete_head(preset, data["name"], method.head),
            "preset": preset,
            "run": run,
            **more,
        }
        return Cell(spec, method.name, at)
