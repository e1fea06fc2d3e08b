"""What concept labels are worth: accuracy of the worst group with none, few and all of them.

    python reproduction/scripts/few_labels.py run --embeddings unspur-embeddings --output unspur-results/few-labels.jsonl
    python reproduction/scripts/few_labels.py pack unspur-results/few-labels.jsonl

The protocol was written down before the study was run, with one exception: "LEACE, inferred" first had the default
balance, and was changed to balance="group" after three draws of faces were seen. `GroupWeighted(unknown="infer")` was
written with draws 0 to 9 of these sets at hand, so the study has draws 10 to 14. All draws of birds have the same birds in
each split, with backgrounds drawn afresh, so their intervals are too narrow.

Sets (strength 0.9; test rows at strength ½, where concept and task are independent)
    toy, photodigits, birds, faces    as in regret.py; birds need stores, or links to one, seed-10 to seed-14
    pairs                             sentence pairs of MultiNLI in a frozen MiniLM, with '!!' as the concept: 3,000
                                      training, 1,000 validation and 4,000 test rows (of the development set)
Sets whose store is not there are left out.

Labels
    The task is known for all rows. The concept is known for k training rows, drawn at random, the same for all methods:
    k = 0, 50, 200, 1,000 and all. It is known for no validation row.

Methods without labels, whose parameters are chosen on validation rows by the classes of y (`selection.tune_head`)
    ERM; ERM with equal weight for classes; JTT; AFR; DFR with classes as groups (class-balanced retraining on half of
    the training rows)
Methods with k labels
    JTT and AFR, chosen by group    trained on rows without a label, parameters chosen by groups on the labelled rows,
                                    and fitted again on all training rows; with all labels, a fifth of the rows chooses
    group-weighted, labelled rows   GroupWeighted; a fifth of the labelled rows chooses the penalty, and all of them train
    group-weighted, inferred        the same with unknown="infer"
    RobustClassifier                its defaults, on labelled rows
    RobustClassifier, inferred      with the head GroupWeighted(unknown="infer")
    LEACE, inferred                 the same with LEACE(balance="group"), which tests nothing and so can be fitted to
                                    few labels
With all labels, nothing is inferred, and methods with and without have the same figures.

Heads have the grids of `unspur_paper.experiments.choosing.GRIDS`, with smaller penalties if there is only that to
choose. A method that cannot be fitted (JSE needs ten held-out rows of each group) has no figure.

Figures
    Accuracy of the worst of the four groups and its mean over groups, on test rows: means over draws, with 95 %
    intervals (Student) of the former. Differences between methods are paired by draw.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from regret import DATASETS, Run, records, splits
from scipy.stats import t as student
from sklearn.base import clone

from unspur import AFR, DFR, ERM, JTT, LEACE, GroupWeighted, RobustClassifier
from unspur.exceptions import UnspurError
from unspur.metrics import group_accuracy
from unspur_paper.datasets.resampling import agreeing
from unspur_paper.embedding.store import EmbeddingStore, is_store
from unspur_paper.experiments.choosing import GRIDS
from unspur_paper.experiments.stores import store_folder
from unspur_paper.experiments.variants import RENAMED
from unspur_paper.rows import Rows

RESULTS = Path(__file__).parents[1] / "results" / "few-labels.jsonl.xz"
PAGE = Path(__file__).parents[1] / "docs" / "few-labels.md"
SETS = ("toy", "photodigits", "birds", "faces", "pairs")
STRENGTH, DRAWS = 0.9, range(10, 15)
#: Numbers of labelled rows; 0 stands alone, None is all.
LABELS: tuple[int | None, ...] = (50, 200, 1000, None)
#: Training, validation and test rows of pairs.
PAIRS = (3000, 1000, 4000)
PENALTY = {"penalty": (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6)}


def _grid(name: str) -> dict[str, Any]:
    """The grid of a head by the names of its parameters."""
    return {RENAMED.get(option, option): values for option, values in GRIDS[name].items()}


def pairs(number: int, embeddings: Path) -> tuple[Rows, Rows, Rows]:
    """Training, validation and test rows of a draw from sentence pairs, each of which is there without and with '!!'."""
    store = EmbeddingStore.open(store_folder(embeddings, "multinli", "minilm", 0))
    y, concept, source = (store.labels[name] for name in ("y", "concept", "source"))
    if np.any(concept != np.arange(len(y)) % 2):
        raise SystemExit("The store of pairs must have every pair twice, first without and then with the mark.")
    rng = np.random.default_rng([number, 20])
    train, test = (rng.permutation(np.flatnonzero(source[::2] == name)) for name in ("train", "dev_matched"))
    parts = []
    cuts = (train[: PAIRS[0]], train[PAIRS[0] : PAIRS[0] + PAIRS[1]], test[: PAIRS[2]])
    for members, p in zip(cuts, (STRENGTH, STRENGTH, 0.5), strict=True):
        rows = np.sort(2 * members + agreeing(y[2 * members], p, rng))
        parts.append(Rows(np.asarray(store.rows[rows], dtype=np.float32), y[rows], concept[rows]))
    return tuple(parts)  # type: ignore[return-value]


def is_there(name: str, number: int, embeddings: Path) -> bool:
    """Whether a draw of a set can be made."""
    if name in ("toy", "photodigits"):
        return True
    data = {"name": "multinli", "encoder": "minilm"} if name == "pairs" else DATASETS[name]
    return is_store(store_folder(embeddings, data["name"], data["encoder"], number))


#: A method, the number of labels (None for all), and what fits it: returns a classifier, and more for the record.
Task = tuple[str, int | None, Callable[[], tuple[Any, dict[str, Any]]]]


def tasks(train: Rows, validation: Rows, number: int) -> Iterator[Task]:
    """Every method with every number of labels."""

    def chosen(head: Any, grid: Any, rows: Any, held_out: Any = None) -> tuple[Any, dict[str, Any]]:
        from unspur.selection import tune_head

        found = tune_head(head.set_params(random_state=number), grid, rows, held_out, seed=number)
        return found.head, {"parameters": found.parameters}

    unlabelled, held_out = (train.Z, train.y, None), (validation.Z, validation.y, None)
    free = {
        "ERM": (ERM(), PENALTY),
        "ERM, classes weighted": (ERM(balance="main"), PENALTY),
        "DFR, classes as groups": (DFR(balance="main"), PENALTY),
        "JTT": (JTT(), _grid("JTT")),
        "AFR": (AFR(), _grid("AFR")),
    }
    for method, (head, grid) in free.items():
        yield method, 0, lambda h=head, g=grid: chosen(h, g, unlabelled, held_out)
    order = np.random.default_rng([number, 21]).permutation(len(train.y))
    for labels in LABELS:
        known = np.zeros(len(train.y), dtype=bool)
        known[order[:labels]] = True
        concept = np.where(known, train.concept, np.nan)

        def by_group(head: Any, grid: Any, known: Any = known) -> tuple[Any, dict[str, Any]]:
            if known.all():
                return chosen(head, grid, (train.Z, train.y, train.concept))
            few, others = ((train.Z[own], train.y[own]) for own in (known, ~known))
            found, more = chosen(head, grid, (*others, None), (*few, train.concept[known]))
            return clone(found).fit(train.Z, train.y), more

        def robust(remover: Any, unknown: str, concept: Any = concept) -> tuple[Any, dict[str, Any]]:
            model = RobustClassifier(remover, GroupWeighted(unknown=unknown), random_state=number)
            model.fit(train.Z, train.y, concept=concept)
            return model, {"parameters": model.selection_.parameters, "removed": model.remover_.spurious_.dim}

        for method in ("JTT", "AFR"):
            yield f"{method}, chosen by group", labels, lambda m=method, f=by_group: f(*free[m])
        rows = (train.Z, train.y, concept)
        yield "group-weighted, labelled rows", labels, lambda r=rows: chosen(GroupWeighted(), PENALTY, r)
        yield "RobustClassifier", labels, lambda f=robust: f(None, "ignore")
        yield "LEACE, inferred", labels, lambda f=robust: f(LEACE(balance="group"), "infer")
        if labels is not None:
            infer = GroupWeighted(unknown="infer")
            yield "group-weighted, inferred", labels, lambda r=rows, h=infer: chosen(h, PENALTY, r)
            yield "RobustClassifier, inferred", labels, lambda f=robust: f(None, "infer")


def evaluate(name: str, number: int, embeddings: Path, done: set[Any]) -> Iterator[dict[str, Any]]:
    """A line for every method and number of labels that is not done."""
    warnings.simplefilter("ignore")
    drawn = pairs(number, embeddings) if name == "pairs" else splits(Run(name, STRENGTH, number), embeddings)
    train, validation, test = drawn
    for method, labels, fit in tasks(train, validation, number):
        if (name, number, labels, method) in done:
            continue
        start, line = time.perf_counter(), {"set": name, "run": number, "labels": labels, "method": method}
        try:
            head, more = fit()
        except UnspurError as error:
            yield {**line, "problem": str(error)}
            continue
        found = group_accuracy(test.y, head.predict(test.Z), test.concept)
        accuracy = {"worst": round(float(found.worst), 5), "group_average": round(float(found.group_average), 5)}
        yield {**line, **accuracy, "seconds": round(time.perf_counter() - start, 2), **more}


#: Methods in the order of the page, and what each is called there.
WITHOUT_LABELS = {
    "ERM": "`ERM`",
    "ERM, classes weighted": '`ERM(balance="main")`',
    "DFR, classes as groups": '`DFR(balance="main")`',
    "JTT": "`JTT`",
    "AFR": "`AFR`",
}
WITH_LABELS = {
    "JTT, chosen by group": "`JTT`, chosen by group",
    "AFR, chosen by group": "`AFR`, chosen by group",
    "group-weighted, labelled rows": "`GroupWeighted`",
    "group-weighted, inferred": '`GroupWeighted(unknown="infer")`',
    "RobustClassifier": "`RobustClassifier`",
    "RobustClassifier, inferred": '`RobustClassifier`, head `GroupWeighted(unknown="infer")`',
    "LEACE, inferred": 'the same with `LEACE(balance="group")`',
}
#: What is the same method if nothing is left to infer.
NOT_INFERRED = {
    "group-weighted, inferred": "group-weighted, labelled rows",
    "RobustClassifier, inferred": "RobustClassifier",
}
NAMES = {"toy": "Toy", "photodigits": "digits", "birds": "birds", "faces": "faces", "pairs": "pairs"}
MARKS = ("<!-- few labels: begin -->\n", "<!-- few labels: end -->")
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "missing-labels.md"


class Results:
    """Accuracies in percent, by set, number of labels and method: a value for each draw."""

    def __init__(self, lines: list[dict[str, Any]]):
        self._found: dict[tuple[str, int | None, str], dict[int, tuple[float, float]]] = {}
        for line in lines:
            values = self._found.setdefault((line["set"], line["labels"], line["method"]), {})
            if "worst" in line:
                values[line["run"]] = 100 * line["worst"], 100 * line["group_average"]
        self.sets = [name for name in SETS if any(name == key[0] for key in self._found)]
        self.draws = len({line["run"] for line in lines})

    def values(self, name: str, labels: int | None, method: str) -> dict[int, tuple[float, float]]:
        """Worst group and mean of the groups by draw."""
        method = NOT_INFERRED.get(method, method) if labels is None else method
        return self._found.get((name, labels, method), {})

    def cell(self, name: str, labels: int | None, method: str) -> str:
        """Means over draws, if there is a value for all of them."""
        values = self.values(name, labels, method)
        if len(values) < self.draws:
            return "–" if not values else f"– ({len(values)} of {self.draws} fits)"
        worst, average = np.array(list(values.values())).T
        return f"{worst.mean():.1f} ± {half_width(worst):.1f} / {average.mean():.1f}"

    def gain(self, name: str, labels: int | None, method: str, base: tuple[int | None, str]) -> str:
        """Mean paired difference in the worst group, with its interval."""
        one, other = self.values(name, labels, method), self.values(name, *base)
        paired = np.array([one[run][0] - other[run][0] for run in one if run in other])
        return "–" if len(paired) < self.draws else f"{paired.mean():+.1f} ± {half_width(paired):.1f}"


def half_width(values: np.ndarray) -> float:
    """Half of the 95 % interval of a mean (Student)."""
    return float(student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def heading(first: str, columns: list[str]) -> list[str]:
    return [f"| {first} | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns)]


def number_words(labels: int | None) -> str:
    return "all" if labels is None else f"{labels:,}"


def short_table(found: Results) -> list[str]:
    """Worst-group accuracy with and without inferred concepts."""
    columns = [NAMES[name] for name in found.sets]
    text = heading("rows with a known concept", columns)

    def row(label: str, labels: int | None, method: str) -> str:
        means = [[worst for worst, _ in found.values(name, labels, method).values()] for name in found.sets]
        return f"| {label} | " + " | ".join(f"{np.mean(m):.1f}" for m in means) + " |"

    text.append(row("none: `ERM`", 0, "ERM"))
    text.append(row('none: `ERM(balance="main")`', 0, "ERM, classes weighted"))
    for labels in LABELS[:-1]:
        for method in ("group-weighted, labelled rows", "group-weighted, inferred"):
            text.append(row(f"{number_words(labels)}: {WITH_LABELS[method]}", labels, method))
    text.append(row("all: `GroupWeighted`", None, "group-weighted, labelled rows"))
    return text


def page(lines: list[dict[str, Any]]) -> str:
    """The page, from the records."""
    found = Results(lines)
    text = [
        "# What concept labels are worth",
        "",
        "<!-- written by reproduction/scripts/few_labels.py page; do not edit -->",
        "",
        "Accuracy in percent on test rows where task and concept are independent, for heads trained on rows in which "
        "they agree nine times in ten. The task is known for all training rows, the concept for some, drawn at random. "
        f"Means over {found.draws} draws; ± is half of a 95 % interval. The protocol is at the top of "
        "`reproduction/scripts/few_labels.py`, and the records are in `reproduction/results/few-labels.jsonl.xz`. "
        "No published figures stand beside these. Of the sources of AFR we read the README of its authors' program "
        "(github.com/AndPotap/afr), which has settings but no accuracies, and whose networks are fine-tuned.",
        "",
        "## In short",
        "",
        "Worst group.",
        "",
        *short_table(found),
        "",
        "What inferring the concept of the other rows adds to `GroupWeighted` on the labelled rows, paired by draw:",
        "",
        *heading("rows with a known concept", [NAMES[name] for name in found.sets]),
    ]
    for labels in LABELS[:-1]:
        base = (labels, "group-weighted, labelled rows")
        cells = [found.gain(name, labels, "group-weighted, inferred", base) for name in found.sets]
        text.append(f"| {number_words(labels)} | " + " | ".join(cells) + " |")
    text += [
        "",
        'What the labels add to `ERM(balance="main")`, which needs none, paired by draw:',
        "",
        *heading('`GroupWeighted(unknown="infer")` with', [NAMES[name] for name in found.sets]),
    ]
    for labels in LABELS:
        base = (0, "ERM, classes weighted")
        cells = [found.gain(name, labels, "group-weighted, inferred", base) for name in found.sets]
        text.append(f"| {number_words(labels)} | " + " | ".join(cells) + " |")
    text += ["", "## All methods", "", "Worst group ± half of its interval / mean of the groups."]
    for name in found.sets:
        text += ["", f"### {NAMES[name]}", "", *heading("without labels", ["worst / mean of the groups"])]
        text += [f"| {label} | {found.cell(name, 0, method)} |" for method, label in WITHOUT_LABELS.items()]
        text += ["", *heading("rows with a known concept", [number_words(labels) for labels in LABELS])]
        for method, label in WITH_LABELS.items():
            cells = [found.cell(name, labels, method) for labels in LABELS]
            text.append(f"| {label} | " + " | ".join(cells) + " |")
    text += [
        "",
        "A dash: the method could not be fitted to some draws. JSE tests directions on ten held-out rows of each group "
        "at least, which 50 labelled rows do not have. With all labels nothing is inferred.",
        "",
        "Without labels, parameters were chosen by the classes of y. Those of `JTT` and `AFR` can then only be chosen "
        "well if classes tell what groups would. Compare the same heads with parameters chosen by group.",
        "",
        "Pairs are embeddings of a network that was not trained for the task. Hardly any of it can be read from them, "
        "as the means of the groups show; the worst group mostly tells how errors are divided among the groups.",
        "",
        "All draws of birds have the same birds in each split, with backgrounds drawn afresh, so their intervals are too "
        "narrow.",
    ]
    return "\n".join(text) + "\n"


def guide(lines: list[dict[str, Any]], text: str) -> str:
    """The how-to guide with the short table written anew."""
    before, rest = text.split(MARKS[0])
    return before + MARKS[0] + "\n".join(short_table(Results(lines))) + "\n" + MARKS[1] + rest.split(MARKS[1])[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "pack", "page"])
    parser.add_argument("parts", type=Path, nargs="*", help="files that runs were written to, for pack")
    parser.add_argument("--embeddings", type=Path, default=Path("unspur-embeddings"))
    parser.add_argument("--only", default="", help="one of the sets")
    parser.add_argument("--output", type=Path, default=Path("unspur-results/few-labels.jsonl"))
    given = parser.parse_args()
    if given.what == "pack":
        with lzma.open(RESULTS, "wt") as packed:
            packed.writelines(json.dumps(line) + "\n" for path in given.parts for line in records(path))
    if given.what in ("page", "pack"):
        lines = records(RESULTS)
        PAGE.write_text(page(lines), encoding="utf-8")
        GUIDE.write_text(guide(lines, GUIDE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    finished = records(given.output) if given.output.exists() else []
    done = {(line["set"], line["run"], line["labels"], line["method"]) for line in finished}
    given.output.parent.mkdir(exist_ok=True)
    for number in DRAWS:
        for name in SETS:
            if given.only not in ("", name) or not is_there(name, number, given.embeddings):
                continue
            with given.output.open("a") as file:
                for line in evaluate(name, number, given.embeddings, done):
                    file.write(json.dumps(line) + "\n")
                    file.flush()
            print(name, number, flush=True)


if __name__ == "__main__":
    main()
