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

Its cells are the product of all axes, methods and runs. A cell's spec is plain JSON and all that its evaluation may
depend on.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from unspur.exceptions import InputError
from unspur.lab.experiments.metrics import METRICS, expand
from unspur.lab.experiments.registry import DATASETS, HEADS, PRESETS, REMOVERS

#: Figures that `lab.report` can draw.
FIGURES = ("curves", "sizes")
#: Rows of the training pool in a smoke run.
SMOKE_ROWS = 500
_KEYS = {
    "title", "answers", "published", "presets", "runs", "strength", "metrics", "figure", "dataset", "methods", "note",
    "illustration",
}  # fmt: skip
_METHOD_KEYS = {"name", "remover", "head", "published", "presets"}


@dataclass(frozen=True, slots=True)
class Method:
    """A line of the tables: remover and last layer with their options, and the published line it is set against."""

    name: str
    remover: Mapping[str, Any]
    head: Mapping[str, Any]
    published: str
    presets: tuple[str, ...]


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
            _known(name, known, f"method of {self.name}")
        methods = [m for m in self.methods if preset in m.presets and (not only or m.name in only)]
        return list(self._product(preset, methods, self.runs if runs is None else runs))

    def smoke(self) -> Experiment:
        """The same with two runs of few rows at the last value of every axis: whether it works, in seconds."""
        smaller = {key: value[-1:] if isinstance(value, list) else value for key, value in self.dataset.items()}
        rows = smaller["n"]
        smaller["n"] = [min(SMOKE_ROWS, n) for n in rows] if isinstance(rows, list) else min(SMOKE_ROWS, rows)
        return replace(self, dataset=smaller, runs=2)

    def _product(self, preset: str, methods: Sequence[Method], runs: int) -> Iterator[Cell]:
        for values in product(*(self.dataset[axis] for axis in self.axes)):
            at = dict(zip(self.axes, values, strict=True))
            for method in methods:
                yield from (self._cell(preset, method, at, run) for run in range(runs))
        if self.illustration is not None:
            at = {axis: self.illustration[axis] for axis in self.axes}
            for method in methods:
                if method.name in self.illustration["methods"]:
                    yield self._cell(preset, method, at, 0, keep=["panels"])

    def _cell(self, preset: str, method: Method, at: Mapping[str, Any], run: int, **more: Any) -> Cell:
        spec = {
            "dataset": {**self.dataset, **at}, "remover": dict(method.remover), "head": dict(method.head),
            "preset": preset, "run": run, **more,
        }  # fmt: skip
        return Cell(spec, method.name, at)


def read_experiment(path: Path) -> Experiment:
    """Read and check a spec; what is not known is an error that lists what is."""
    try:
        text = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"There is no experiment file {path}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}.") from error
    where = path.name
    for key in text:
        _known(key, _KEYS, f"key of {where}")
    for key in ("title", "dataset", "methods", "metrics"):
        if key not in text:
            raise InputError(f"{where} has no {key!r}, which every experiment needs.")
    presets = tuple(_known(name, PRESETS, f"preset of {where}") for name in text.get("presets", ["exact"]))
    dataset = _dataset(text["dataset"], where)
    methods = tuple(_method(entry, presets, where) for entry in text["methods"])
    strength = text.get("strength", "rho")
    _known(strength, dataset, f"setting of the dataset of {where} to draw over")
    published = text.get("published")
    if published is not None and set(published) != {"source", "dataset"}:
        raise InputError(f"'published' of {where} needs a source and a dataset; got {published}.")
    return Experiment(
        name=path.stem,
        title=str(text["title"]),
        answers=tuple(text.get("answers", ())),
        published=published,
        presets=presets,
        runs=_count(text.get("runs", 30), where),
        strength=strength,
        metrics=tuple(m for name in text["metrics"] for m in expand(_known(name, METRICS, f"metric of {where}"))),
        figure=_known(text.get("figure", "curves"), FIGURES, f"figure of {where}"),
        illustration=_illustration(text.get("illustration"), dataset, methods, where),
        dataset=dataset,
        methods=methods,
        note=str(text.get("note", "")),
    )


def _dataset(settings: Any, where: str) -> dict[str, Any]:
    if not isinstance(settings, dict) or "name" not in settings:
        raise InputError(f"[dataset] of {where} needs a name: {', '.join(DATASETS)}.")
    defaults = DATASETS[_known(settings["name"], DATASETS, f"dataset of {where}")]
    for key, value in settings.items():
        _known(key, {"name", *defaults}, f"setting of dataset {settings['name']!r} in {where}")
        if value == []:
            raise InputError(f"{key} of {where} is an empty list, so the experiment has no cells.")
    # Numbers such as 0 and 0.0 must give the same cell, whichever way they are written.
    filled = {**defaults, **settings}
    return {"name": settings["name"], **{key: _like(filled[key], default) for key, default in defaults.items()}}


def _illustration(
    entry: Any, dataset: Mapping[str, Any], methods: Sequence[Method], where: str
) -> dict[str, Any] | None:
    if entry is None:
        return None
    axes = [key for key, value in dataset.items() if isinstance(value, list)]
    if set(entry) != {"methods", *axes}:
        raise InputError(f"[illustration] of {where} needs methods and a value of {', '.join(axes)}; got {entry}.")
    for name in entry["methods"]:
        _known(name, [method.name for method in methods], f"method to illustrate in {where}")
    return {**{axis: _like(entry[axis], dataset[axis][0]) for axis in axes}, "methods": list(entry["methods"])}


def _like(value: Any, default: Any) -> Any:
    if isinstance(value, list):
        return [_like(entry, default) for entry in value]
    return float(value) if isinstance(default, float) else value


def _method(entry: Any, presets: tuple[str, ...], where: str) -> Method:
    for key in entry:
        _known(key, _METHOD_KEYS, f"key of a method of {where}")
    remover, head = _named(entry.get("remover", "none")), _named(entry.get("head", "ERM"))
    _known(remover["name"], REMOVERS, f"remover of {where}")
    _known(head["name"], HEADS, f"last layer of {where}")
    own = tuple(_known(name, PRESETS, f"preset of {where}") for name in entry.get("presets", presets))
    name = entry.get("name", remover["name"])
    return Method(name, remover, head, entry.get("published", name), own)


def _named(value: Any) -> dict[str, Any]:
    return {"name": value} if isinstance(value, str) else dict(value)


def _count(value: Any, where: str) -> int:
    if not isinstance(value, int) or value < 1:
        raise InputError(f"runs of {where} must be a positive whole number; got {value!r}.")
    return value


def _known(name: Any, names: Iterable[str], what: str) -> str:
    """The name, if it is one of `names`."""
    names = sorted(names)
    if name not in names:
        close = difflib.get_close_matches(str(name), names, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise InputError(f"Unknown {what}: {name!r}.{hint} There are: {', '.join(names)}.")
    return str(name)
