"""Reads the TOML file of an experiment; what is not known is an error that lists what is."""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unspur._text import brief
from unspur.exceptions import InputError
from unspur_paper.experiments.fitting import HEADS
from unspur_paper.experiments.metrics import BUNDLES, METRICS, OF_TRAINED
from unspur_paper.experiments.presets import ON_EMBEDDINGS, PRESETS, RECOMMENDED, has_method, known_options
from unspur_paper.experiments.published import published_values
from unspur_paper.experiments.records import canonical
from unspur_paper.experiments.registry import DATASETS, EMBEDDED, FINETUNED, PUBLISHED
from unspur_paper.experiments.spec import Experiment, Method
from unspur_paper.experiments.variants import REMOVERS

#: Figures that `report` can draw, and how many axes they need.
FIGURES = {"curves": 1, "sizes": 2}
#: Names of files and folders beside the results of an experiment.
RESERVED = {"records", "smoke", "hyperparameters"}
#: Characters of a value that a message shows.
SHOWN = 80
_KEYS = {
    "title",
    "answers",
    "published",
    "comparable",
    "compare",
    "presets",
    "runs",
    "strength",
    "metrics",
    "figure",
    "dataset",
    "methods",
    "note",
    "illustration",
    "shown",
}
_METHOD_KEYS = {"name", "remover", "head", "published", "counted", "presets", "dataset", "runs", "strengths"}


def read_experiment(path: Path) -> Experiment:
    """Read and check a spec; what is not known is an error that lists what is."""
    try:
        text = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"There is no experiment file {path}.") from None
    except (ValueError, OSError, RecursionError) as error:  # of which TOMLDecodeError is the first
        raise InputError(f"{path} is not valid TOML: {brief(error)}.") from error
    return _Reader(path.name).experiment(path.stem, text)


def with_settings(experiment: Experiment, changes: Mapping[str, str]) -> Experiment:
    """The same with other settings of its dataset, given as in TOML: ``{"encoder": "resnet50", "p": "[0.5, 0.9]"}``."""
    reader = _Reader(experiment.name)
    values = {key: _toml_value(text) for key, text in changes.items()}
    for key, value in values.items():
        reader.known(key, DATASETS[experiment.dataset["name"]], f"setting of {experiment.dataset['name']!r}")
        if key == experiment.strength and not isinstance(value, list):
            values[key] = [value]
    dataset = reader.dataset({**experiment.dataset, **values})
    for method in experiment.methods:
        reader.own_settings({"dataset": dict(method.dataset)}, dataset)
    reader.measurable(experiment.metrics, dataset)
    axes = [key for key, value in dataset.items() if isinstance(value, list)]
    reader.known(experiment.strength, axes, "axis to draw over ('strength')")
    comparable = any(method.counted for method in experiment.methods)
    return replace(
        experiment,
        dataset=dataset,
        figure=reader.figure(None, axes),
        illustration=experiment.illustration if set(axes) == set(experiment.axes) else None,
        published=None if comparable and set(changes) - {experiment.strength} else experiment.published,
        changes={**experiment.changes, **changes},
    )


def _toml_value(text: str) -> Any:
    """A number, list or quoted text; anything else is the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _shown(value: Any) -> str:
    """A value as a message shows it."""
    return brief(repr(value), SHOWN)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Checks the contents of one file; `where` is its name, for messages."""

    where: str

    def experiment(self, name: str, text: dict[str, Any]) -> Experiment:
        """The experiment in a parsed file."""
        if name in RESERVED:
            raise InputError(f"An experiment cannot be called {name!r}: results have a folder of that name. Rename it.")
        self.known_keys(text, _KEYS, "the file")
        for key in ("title", "dataset", "methods", "metrics"):
            if key not in text:
                raise InputError(f"{self.where} has no {key!r}, which every experiment needs.")
        presets = tuple(self.names(text.get("presets", ["exact"]), PRESETS, "presets"))
        dataset = self.dataset(text["dataset"])
        axes = [key for key, value in dataset.items() if isinstance(value, list)]
        for preset in presets if dataset["name"] in EMBEDDED else ():
            self.known(preset, ON_EMBEDDINGS, f"preset on {dataset['name']}")
        usual = "p" if "p" in dataset else "rho"
        strength = self.known(text.get("strength", usual), axes, "axis to draw over ('strength')")
        comparable = text.get("comparable", True)
        if not isinstance(comparable, bool):
            raise InputError(f"'comparable' of {self.where} is true or false; got {_shown(comparable)}.")
        methods = self.methods(text["methods"], presets, dataset, strength, comparable)
        wanted = self.names(text["metrics"], [*METRICS, *BUNDLES], "metrics")
        metrics = [m for metric in wanted for m in BUNDLES.get(metric, (metric,))]
        self.measurable(metrics, dataset)
        return Experiment(
            name=name,
            title=self.text(text["title"], "title"),
            answers=tuple(self.text(label, "answers") for label in self.list(text.get("answers", []), "answers")),
            published=self.published(text.get("published"), dataset, strength, methods, comparable),
            presets=presets,
            runs=self.whole(text.get("runs", 30), "runs"),
            strength=strength,
            metrics=tuple(dict.fromkeys(metrics)),
            figure=self.figure(text.get("figure"), axes),
            illustration=self.illustration(text.get("illustration"), dataset, axes, methods, presets),
            dataset=dataset,
            methods=methods,
            note=self.text(text.get("note", ""), "note"),
            compare=self.pairs(text.get("compare", []), methods),
            shown=tuple(self.names(text["shown"], [method.name for method in methods], "shown"))
            if "shown" in text
            else (),
        )

    def dataset(self, entry: Any) -> dict[str, Any]:
        """All settings of the dataset; a list of values is an axis."""
        entry = self.table(entry, "dataset")
        name = self.known(entry.get("name"), DATASETS, "dataset")
        settings = DATASETS[name]
        self.known_keys(entry, {"name", *settings}, f"dataset {name!r}")
        filled: dict[str, Any] = {"name": name}
        for key, setting in settings.items():
            value = entry.get(key, setting.default)
            if value == []:
                raise InputError(f"{key} of {self.where} is an empty list, so the experiment has no cells.")
            several = isinstance(value, list)
            values = [self.value(name, key, one) for one in (value if several else [value])]
            if len(set(values)) < len(values):
                raise InputError(f"{key} of {self.where} has a value twice: {_shown(value)}.")
            filled[key] = values if several else values[0]
        return filled

    def value(self, dataset: str, key: str, value: Any) -> int | float | str:
        """One value of a setting, always written the same way: 0 and 0.0 must give the same cell."""
        setting = DATASETS[dataset][key]
        kind = type(setting.default)
        if kind is str:
            right = isinstance(value, str)
        else:
            right = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not right or (kind is int and not isinstance(value, int)) or not setting.valid(value):
            raise InputError(f"{key} of {self.where} must be {setting.needs}; got {_shown(value)}.")
        return kind(value)

    def methods(
        self, entries: Any, presets: Sequence[str], dataset: Mapping[str, Any], strength: str, comparable: bool
    ) -> tuple[Method, ...]:
        """All methods, each with a name of its own."""
        found = [
            self.method(self.table(entry, "methods"), presets, dataset, strength, comparable)
            for entry in self.list(entries, "methods")
        ]
        names = [method.name for method in found]
        if not names or len(set(names)) < len(names):
            raise InputError(f"{self.where} needs methods with names of their own; got {_shown(names)}.")
        return tuple(found)

    def method(
        self,
        entry: Mapping[str, Any],
        presets: Sequence[str],
        dataset: Mapping[str, Any],
        strength: str,
        comparable: bool,
    ) -> Method:
        """One method, with options that all of its presets have."""
        self.known_keys(entry, _METHOD_KEYS, "a method")
        remover = self.named(entry.get("remover", "none"), (*REMOVERS, "none", "true axis"), "remover")
        head = self.named(entry.get("head", "ERM"), (*HEADS, RECOMMENDED), "last layer")
        if head["name"] == RECOMMENDED and (remover["name"] != "none" or dataset["name"] not in EMBEDDED):
            raise InputError(
                f"{RECOMMENDED} of {self.where} has a remover of its own and is for rows of embedding stores; leave "
                "out 'remover', or choose another last layer."
            )
        own = tuple(self.names(entry.get("presets", list(presets)), presets, "presets of a method"))
        for preset in own:
            for part in (remover, head):
                if not has_method(preset, part["name"]):
                    raise InputError(f"The preset {preset!r} has no {part['name']!r}, which {self.where} asks for.")
                options = known_options(preset, part["name"])
                for key in part:
                    if key != "name":
                        self.known(key, options, f"option of {part['name']} under the preset {preset!r}")
        name = self.text(entry.get("name", remover["name"]), "name of a method")
        line = entry.get("published", name)
        source = None
        if isinstance(line, dict):
            if set(line) != {"source", "method"}:
                raise InputError(f"'published' of {_shown(name)} in {self.where} is a name, or a source and a method.")
            source = self.text(line["source"], "source of a published line")
            line = line["method"]
        published = self.text(line, "published line of a method")
        counted = entry.get("counted", comparable)
        if not isinstance(counted, bool):
            raise InputError(f"'counted' of {_shown(name)} in {self.where} is true or false; got {_shown(counted)}.")
        runs = self.whole(entry["runs"], "runs of a method") if "runs" in entry else None
        settings = self.own_settings(entry, dataset)
        strengths = self.strengths(entry["strengths"], dataset[strength]) if "strengths" in entry else None
        return Method(name, remover, head, published, counted, own, source, settings, runs, strengths)

    def strengths(self, value: Any, all_of_them: Sequence[Any]) -> tuple[Any, ...]:
        """Where one method is run: some of the values of the axis."""
        found = self.list(value, "strengths of a method")
        if not found or any(one not in all_of_them for one in found):
            raise InputError(
                f"'strengths' of a method in {self.where} are some of {_shown(list(all_of_them))}; got {_shown(found)}."
            )
        return tuple(found)

    def own_settings(self, entry: Mapping[str, Any], dataset: Mapping[str, Any]) -> dict[str, Any]:
        """Settings of the dataset that one method has for itself, which must not change the rows that are drawn."""
        own, known = self.table(entry.get("dataset", {}), "dataset of a method"), DATASETS[dataset["name"]]
        for key in own:
            self.known(key, [name for name, setting in known.items() if not setting.drawn], "setting of a method")
            if isinstance(dataset[key], list):
                raise InputError(f"{key} of {self.where} is an axis; a method cannot have a value of its own.")
        return {key: self.value(dataset["name"], key, value) for key, value in own.items()}

    def measurable(self, metrics: Sequence[str], dataset: Mapping[str, Any]) -> None:
        """Metrics of a second concept need one, and those of a trained network such a network."""
        trained = [metric for metric in metrics if metric in OF_TRAINED]
        if trained and dataset["name"] not in FINETUNED:
            raise InputError(
                f"{self.where} measures {trained[0]!r}, which is for networks that were trained for a run: datasets "
                f"{', '.join(FINETUNED)}."
            )
        second = [metric for metric in metrics if "glasses" in metric]
        if second and dataset.get("second", "none") == "none":
            raise InputError(f"{self.where} measures {second[0]!r}, for which its dataset needs a 'second' concept.")

    def pairs(self, entry: Any, methods: Sequence[Method]) -> tuple[tuple[str, str], ...]:
        """Pairs of methods to compare."""
        known, found = [method.name for method in methods], []
        for pair in self.list(entry, "compare"):
            if not isinstance(pair, list) or len(pair) != 2 or pair[0] == pair[1]:
                raise InputError(f"'compare' of {self.where} is a list of pairs of methods; got {_shown(pair)}.")
            found.append((self.known(pair[0], known, "method"), self.known(pair[1], known, "method")))
        return tuple(found)

    def named(self, value: Any, names: Iterable[str], what: str) -> dict[str, Any]:
        """A name, or a table with a name and options."""
        entry = {"name": value} if isinstance(value, str) else self.table(value, what)
        canonical(entry, f"the {what} of {self.where}")  # dates and NaN are TOML, and nothing that a record could hold
        return {**entry, "name": self.known(entry.get("name"), names, what)}

    def published(
        self, entry: Any, dataset: Mapping[str, Any], strength: str, methods: Sequence[Method], comparable: bool
    ) -> dict[str, str] | None:
        """Source and dataset of the published values, which must be for these settings."""
        if entry is None:
            return None
        entry = self.table(entry, "published")
        if set(entry) != {"source", "dataset"}:
            raise InputError(f"'published' of {self.where} needs a source and a dataset; got {_shown(entry)}.")
        values = published_values()
        self.known(entry["dataset"], PUBLISHED, "dataset of published values")
        self.known(entry["source"], {k[0] for k in values if k[1] == entry["dataset"]}, "source of published values")
        there = {k[2] for k in values if k[:2] == (entry["source"], entry["dataset"])}
        if not there & {method.published for method in methods if method.source is None}:
            raise InputError(f"No method of {self.where} has published values; there are some of {sorted(there)}.")
        for method in methods:
            line = (method.source, entry["dataset"], method.published)
            if method.source is not None and line not in {k[:3] for k in values}:
                raise InputError(
                    f"{_shown(method.name)} of {self.where}: there are no published values {_shown(line)}."
                )
        names, settings = PUBLISHED[entry["dataset"]]
        name = dataset["name"] if dataset["name"] in names else names[0]
        paper = {"name": name} | {k: settings.get(k, v.default) for k, v in DATASETS[name].items()}
        other = {key: dataset[key] for key in paper if key != strength and dataset.get(key) != paper[key]}
        if other and comparable:
            raise InputError(f"The values published for {entry['dataset']!r} are not for {other} of {self.where}.")
        return {key: str(value) for key, value in entry.items()}

    def figure(self, value: Any, axes: Sequence[str]) -> str:
        """The kind of figure that fits the axes."""
        if value is None:
            value = "curves" if len(axes) == 1 else "sizes"
        self.known(value, FIGURES, "figure")
        if len(axes) != FIGURES[value]:
            raise InputError(
                f"{self.where} varies {', '.join(axes) or 'nothing'}; a figure of {value!r} needs {FIGURES[value]} "
                f"such lists. Make the others single values."
            )
        return str(value)

    def illustration(
        self,
        entry: Any,
        dataset: Mapping[str, Any],
        axes: Sequence[str],
        methods: Sequence[Method],
        presets: Sequence[str],
    ) -> dict[str, Any] | None:
        """Where on the axes, and for which methods, rows are drawn."""
        if entry is None:
            return None
        entry = self.table(entry, "illustration")
        if set(entry) != {"methods", *axes}:
            raise InputError(
                f"[illustration] of {self.where} needs methods and {', '.join(axes)}; got {_shown(entry)}."
            )
        everywhere = [method.name for method in methods if set(presets) <= set(method.presets)]
        chosen = self.names(entry["methods"], everywhere, "methods of the illustration")
        return {**{axis: self.value(dataset["name"], axis, entry[axis]) for axis in axes}, "methods": chosen}

    def known_keys(self, entry: Mapping[str, Any], keys: Iterable[str], what: str) -> None:
        """Refuse keys that mean nothing."""
        for key in entry:
            self.known(key, keys, f"key of {what}")

    def known(self, name: Any, names: Iterable[str], what: str) -> str:
        """The name, if it is one of `names`."""
        names = sorted(names)
        if not isinstance(name, str) or name not in names:
            close = difflib.get_close_matches(brief(name, SHOWN), names, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            there = f" There are: {', '.join(brief(name, SHOWN) for name in names)}." if names else " There are none."
            raise InputError(f"Unknown {what} in {self.where}: {_shown(name)}.{hint}{there}")
        return name

    def names(self, value: Any, names: Iterable[str], what: str) -> list[str]:
        """A list of known names, each once."""
        names = list(names)
        found = [self.known(name, names, f"name in {what!r}") for name in self.list(value, what)]
        if not found:
            raise InputError(f"{what!r} of {self.where} is an empty list.")
        return list(dict.fromkeys(found))

    def list(self, value: Any, what: str) -> list[Any]:
        """A list."""
        if not isinstance(value, list):
            raise InputError(f"{what!r} of {self.where} must be a list; got {_shown(value)}.")
        return value

    def table(self, value: Any, what: str) -> dict[str, Any]:
        """A table of keys and values."""
        if not isinstance(value, dict):
            raise InputError(f"{what!r} of {self.where} must be a table of keys and values; got {_shown(value)}.")
        return value

    def text(self, value: Any, what: str) -> str:
        """A string."""
        if not isinstance(value, str):
            raise InputError(f"{what!r} of {self.where} must be a text; got {_shown(value)}.")
        return value

    def whole(self, value: Any, what: str) -> int:
        """A positive whole number."""
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{what!r} of {self.where} must be a positive whole number; got {_shown(value)}.")
        return value
