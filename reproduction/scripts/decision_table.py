"""The tables inside reproduction/docs/decision-tables.md, docs/limits.md and the guides, from the records in reproduction/results/; no number is typed in.

    python reproduction/scripts/decision_table.py        # write every table again

On a page a table stands between ``<!-- table NAME: python reproduction/scripts/decision_table.py -->`` and ``<!-- end of table -->``; prose around
it is left alone. Means over runs with standard errors in brackets; differences are run by run, on the same rows, with 95 % intervals by
Student's t.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

import numpy as np
from scipy.stats import t as student_t

from unspur_paper.experiments.metrics import METRICS
from unspur_paper.experiments.records import Record, canonical, unpack
from unspur_paper.experiments.reproduce import find_experiments
from unspur_paper.experiments.variants import REMOVERS

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "reproduction" / "results"
#: Folders of pages that may have tables.
DOCS = (ROOT / "docs", ROOT / "reproduction" / "docs")
MARKED = re.compile(
    r"(<!-- table (?P<name>[\w-]+): python reproduction/scripts/decision_table\.py -->\n).*?(\n<!-- end of table -->)",
    re.S,
)
WEIGHTS = {"none": "rows", "concept": "concept", "main": "task", "group": "groups"}
#: Lines of a table of methods: (name on the page, experiment, method there); the first is what others are compared with.
Lines = tuple[tuple[str, str, str], ...]


@cache
def _records(experiment: str) -> dict[str, Record]:
    return {canonical(r.spec, "spec"): r for r in unpack(RESULTS / experiment / "exact.jsonl.xz")}


@cache
def _cells(experiment: str) -> list:
    (found,) = [e for e in find_experiments([experiment]) if e.name == experiment]
    return found.cells("exact")


def runs_of(experiment: str, method: str, **at: float) -> dict[str, Record]:
    """Records of a method at a place on the axes, by what they have in common with other methods: data and run."""
    found = {}
    for cell in _cells(experiment):
        if cell.method == method and dict(cell.at) == at:
            record = _records(experiment).get(canonical(dict(cell.spec), "spec"))
            if record is not None:
                found[canonical([cell.spec["dataset"], cell.spec["run"]], "draw")] = record
    if not found:
        raise SystemExit(f"No records of {experiment} | {method} | {at}.")
    return found


def _with_error(values: Iterable[float], digits: int = 1) -> str:
    values = np.array(list(values))
    mean = f"{values.mean():.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ({values.std(ddof=1) / np.sqrt(len(values)):.{digits}f})"


def mean(runs: dict[str, Record], metric: str) -> str:
    """Mean and standard error of a metric over runs."""
    values = [METRICS[metric](record.result) for record in runs.values()]
    return _with_error(values, 2 if metric.startswith("mse") else 1)


def difference(runs: dict[str, Record], others: dict[str, Record], metric: str = "worst_group") -> str:
    """One method minus another over the draws that both have, with its 95 % interval."""
    shared = sorted(set(runs) & set(others))
    if len(shared) < 2:
        raise SystemExit(f"Only {len(shared)} draws in common.")
    apart = np.array([METRICS[metric](runs[k].result) - METRICS[metric](others[k].result) for k in shared])
    half = student_t.ppf(0.975, len(apart) - 1) * apart.std(ddof=1) / np.sqrt(len(apart))
    return f"{apart.mean():+.1f} [{apart.mean() - half:+.1f}, {apart.mean() + half:+.1f}]"


def table(header: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A Markdown table; the first column is words."""
    names = list(header)
    rule = "| --- |" + " ---: |" * (len(names) - 1)
    return "\n".join([f"| {' | '.join(names)} |", rule, *(f"| {' | '.join(line)} |" for line in lines)])


def weights_of(runs: dict[str, Record]) -> str:
    """Which classes a remover gives equal weight; nothing where there is no remover."""
    named = next(iter(runs.values())).spec["remover"]
    kind = REMOVERS.get(named["name"])
    return "" if kind is None else WEIGHTS[named.get("balance", kind().balance)]


def methods(lines: Lines, leak: str, **at: float) -> str:
    """One data set: a line for each method. `leak` is what tells how much of the concept is left, or ""."""
    columns = ["method", "weights", "worst group", "minus ERM", "average", "removed"]
    columns += [LEAKS[leak]] if leak else []
    first = runs_of(*lines[0][1:], **at)
    written = []
    for name, experiment, method in lines:
        runs = runs_of(experiment, method, **at)
        cells = [name, weights_of(runs), mean(runs, "worst_group")]
        cells += [
            "" if name == lines[0][0] else difference(runs, first),
            mean(runs, "average"),
            mean(runs, "d_spurious"),
        ]
        cells += [mean(runs, leak)] if leak else []
        written.append([*cells, _seconds(median(record.seconds for record in runs.values()))])
    return table([*columns, "seconds"], written)


LEAKS = {
    "probe": "probe",
    "mse_spurious": "rebuilt",
}


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.0f}"


def _named(experiment: str, *names: str) -> Lines:
    return tuple((name, experiment, name) for name in names)


TOY = (
    *_named("toy-ood", "ERM", "JSE"),
    *_named("toy-orthogonality", "JSE, scores"),
    *_named("toy-ood", "INLP", "LEACE", "RLACE"),
    *_named("toy-reweighting", "GW-ERM", "SUBG", "GDRO", "JTT"),
)
_REMOVERS = ("INLP", "LEACE", "RLACE", "SAL", "SPLINCE")
BIRDS = (
    *_named("waterbirds-ood", "ERM", "JSE"),
    *_named("waterbirds-variants", "JSE, Δ auto", "JSE, scores"),
    *_named("waterbirds-ood", "JSE, metric 0.25", *_REMOVERS),
    *_named("waterbirds-ood-group", "JSE", "JSE, metric 0.25", "JSE, scores", *_REMOVERS),
    *_named("waterbirds-ood", "GW-ERM", "DFR", "AFR"),
    *_named("waterbirds-reweighting", "SUBG", "GDRO", "JTT"),
    *_named("waterbirds-ood-group", "JSE + GW-ERM", "RobustClassifier"),
)
FACES = (
    *_named("celeba-ood", "ERM", "JSE", "JSE, metric 0.25", *_REMOVERS),
    *_named("celeba-ood-group", "JSE", "JSE, metric 0.25", *_REMOVERS),
    *_named("celeba-ood", "GW-ERM", "DFR", "AFR"),
    *_named("celeba-reweighting", "SUBG", "GDRO", "JTT"),
    *_named("celeba-ood-group", "JSE + GW-ERM", "RobustClassifier"),
)
TUNED_BIRDS = (
    *_named("waterbirds-finetuned", "ERM", "JSE", "JSE, Δ auto", "JSE, metric 0.25", "JSE, scores", *_REMOVERS),
    *_named("waterbirds-finetuned-group", "JSE", "JSE, Δ auto", "JSE, metric 0.25", "JSE, scores", *_REMOVERS),
    *_named("waterbirds-finetuned", "GW-ERM", "DFR", "AFR"),
    *_named("waterbirds-finetuned-group", "JSE, scores + GW-ERM", "RobustClassifier"),
)
TUNED_FACES = (
    *_named("celeba-finetuned", "ERM", "JSE", "JSE, Δ auto", "JSE, metric 0.25", "JSE, scores", *_REMOVERS),
    *_named("celeba-finetuned", "GW-ERM", "SUBG", "GDRO", "JTT", "DFR", "AFR"),
    *_named("celeba-finetuned", "JSE, scores + GW-ERM", "RobustClassifier"),
)
PAIRS = (
    *_named("multinli-ood", "ERM", "JSE", "JSE, Δ auto", "JSE, metric 0.25", "JSE, scores", "INLP", "LEACE"),
    ("LEACE", "multinli-ood", "LEACE, groups"),
    *_named("multinli-ood", "RLACE", "SAL", "SPLINCE", "GW-ERM", "DFR", "AFR"),
    *_named("multinli-reweighting", "SUBG", "GDRO", "JTT"),
    *_named("multinli-ood", "JSE, scores + GW-ERM", "RobustClassifier"),
)


@dataclass(frozen=True)
class Column:
    """A data set in the overview: the strength, and where each method was run on it."""

    title: str
    lines: Lines
    at: dict[str, float]


#: What each data set is in the overview; where removers were run under two sets of weights, the groups.
OVERVIEW = (
    Column("Toy", TOY, {"rho": 0.9}),
    Column("frozen birds", BIRDS, {"p": 0.9}),
    Column("frozen faces", FACES, {"p": 0.9}),
    Column("fine-tuned birds", TUNED_BIRDS, {"p": 0.9}),
    Column("fine-tuned faces", TUNED_FACES, {"p": 0.9}),
    Column("fine-tuned sentence pairs", PAIRS, {"p": 0.9}),
)
SHOWN = (
    *("ERM", "JSE", "JSE, metric 0.25", "JSE, scores", "INLP", "LEACE", "RLACE", "SPLINCE"),
    *("GW-ERM", "SUBG", "GDRO", "JTT", "DFR", "AFR", "RobustClassifier"),
)


def overview() -> str:
    """Worst group of every method on every data set; of several lines of a method the last, which weighs groups."""
    lines = []
    for name in SHOWN:
        cells = []
        for column in OVERVIEW:
            where = {label: (experiment, method) for label, experiment, method in column.lines}
            runs = runs_of(*where[name], **column.at) if name in where else {}
            shown = mean(runs, "worst_group") if runs else "–"
            cells.append(f"*{shown}*" if runs and weights_of(runs) == WEIGHTS["none"] else shown)
        lines.append([name, *cells])
    runs = [str(len(runs_of(*column.lines[0][1:], **column.at))) for column in OVERVIEW]
    return table(["worst group, %", *(column.title for column in OVERVIEW)], [*lines, ["runs", *runs]])


def delta() -> str:
    """Toy with an easy concept: Δ = 0 and the heuristic, by strength."""
    lines = []
    for rho in (0.0, 0.5, 0.7, 0.8, 0.9):
        zero, auto = (runs_of("toy-delta", method, rho=rho) for method in ("JSE delta=0", "JSE adjusted delta"))
        lost = [not record.result["d_main"] and record.result["d_spurious"] > 0 for record in zero.values()]
        cells = [mean(runs, metric) for metric in ("worst_group", "average") for runs in (zero, auto)]
        lines.append([f"{rho:g}", *cells, difference(auto, zero), f"{100 * np.mean(lost):.0f} %"])
    names = (
        "worst group, Δ = 0",
        "auto",
        "average, Δ = 0",
        "auto",
        "worst group, auto minus 0",
        "no main-task direction, Δ = 0",
    )
    return table(["ρ", *names], lines)


def labels() -> str:
    """Birds and faces with few rows of known concept: worst group and average."""
    names = ("JSE", "JSE, metric 0.25", "RobustClassifier", "GW-ERM", "SUBG", "GDRO", "ERM")
    lines = []
    for words, experiment in (("birds", "waterbirds-limited-labels"), ("faces", "celeba-limited-labels")):
        for known in (500, 1000, 1500):
            found = [runs_of(experiment, name, p=0.9, labelled=known) for name in names]
            cells = [f"{mean(runs, 'worst_group')} / {mean(runs, 'average')}" for runs in found]
            lines.append([f"{words}, {known:,}", *cells])
    return table(["rows with a known concept", *names], lines)


def orthogonality() -> str:
    """Toy where the assumption holds, where label vectors stand at 75°, and scores instead of weights."""
    lines = []
    for rho in (0.0, 0.5, 0.9):
        for words, experiment, names in (
            ("90°", "toy-orthogonality", ("JSE", "JSE, scores", "ERM")),
            ("75°", "toy-nonorthogonal", ("JSE", None, "ERM")),
        ):
            cells = [
                mean(runs_of(experiment, n, rho=rho), m) if n else "–"
                for m in ("worst_group", "average")
                for n in names
            ]
            lines.append([f"{words}, ρ = {rho:g}", *cells])
    who = ("JSE", "JSE, scores", "ERM")
    return table(["label vectors", *(f"{m}, {n}" for m in ("worst group", "average") for n in who)], lines)


def power() -> str:
    """How often a spurious direction is found on Toy, by rows and strength."""
    strengths = (0.5, 0.8, 0.9, 0.95, 0.98)
    lines = [
        [f"{n:,}", words, *(_share(runs_of("toy-power", method, n=n, rho=rho)) for rho in strengths)]
        for n in (500, 1000, 2000, 4000)
        for words, method in (
            ("five folds", "cross-fitted, last accepted"),
            ("one fifth", "a fifth held out, last accepted"),
        )
    ]
    return table(["rows", "tested on", *(f"ρ = {rho:g}" for rho in strengths)], lines)


def _share(runs: dict[str, Record]) -> str:
    return f"{np.mean([METRICS['any_spurious'](record.result) for record in runs.values()]):.0f} %"


def two_concepts() -> str:
    """Faces: sex and glasses, one, the other or both removed."""
    metrics = {
        "worst_group(sex)": "worst group, by sex",
        "worst_group(glasses)": "by glasses",
        "average": "average over rows",
        "d_spurious": "removed",
    }
    names = ("ERM", "JSE sex", "JSE glasses", "JSE both", "GW-ERM")
    found = {name: runs_of("celeba-two-concepts", name, p=0.8) for name in names}
    return table(["method", *metrics.values()], [[name, *(mean(found[name], m) for m in metrics)] for name in names])


TABLES: dict[str, Callable[[], str]] = {
    "overview": overview,
    "toy": lambda: methods(TOY, "mse_spurious", rho=0.9),
    "birds": lambda: methods(BIRDS, "", p=0.9),
    "faces": lambda: methods(FACES, "", p=0.9),
    "tuned-birds": lambda: methods(TUNED_BIRDS, "probe", p=0.9),
    "tuned-faces": lambda: methods(TUNED_FACES, "probe", p=0.9),
    "pairs": lambda: methods(PAIRS, "probe", p=0.9),
    "delta": delta,
    "labels": labels,
    "orthogonality": orthogonality,
    "power": power,
    "two-concepts": two_concepts,
}


def pages() -> list[Path]:
    """The pages that have tables of ours."""
    found = [page for folder in DOCS for page in sorted(folder.rglob("*.md"))]
    found = [page for page in found if not page.is_relative_to(ROOT / "docs" / "evidence")]  # copies, for the site
    return [page for page in found if MARKED.search(page.read_text(encoding="utf-8"))]


def rendered(text: str) -> str:
    """A page with its tables written again."""
    return MARKED.sub(lambda found: found[1] + "\n" + TABLES[found["name"]]() + "\n" + found[3], text)


if __name__ == "__main__":
    for page in pages():
        page.write_text(rendered(page.read_text(encoding="utf-8")), encoding="utf-8")
        print(page)
