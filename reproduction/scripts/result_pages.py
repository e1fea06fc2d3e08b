"""The pages on frozen and fine-tuned networks and on the claims of the paper: templates, with numbers from results/.

    python reproduction/scripts/result_pages.py                         # write the pages, in reproduction/docs
    python reproduction/scripts/result_pages.py --frozen DIR            # first note what embedding cost, from the stores in DIR
    python reproduction/scripts/result_pages.py --finetuned DIR         # first note how networks were trained, likewise

In a template, ``{{value EXPERIMENT | METHOD | METRIC | STRENGTH}}`` is a mean with its standard error,
``{{difference EXPERIMENT | METHOD | OTHER | METRIC | STRENGTH}}`` a paired difference with its 95 % interval, and
``{{table EXPERIMENT | METRIC, … | STRENGTH}}`` a table of all methods, with the published worst group where there is one.
What stands between ``{{#EXPERIMENT}}`` and ``{{/EXPERIMENT}}`` is left out as long as there are no records of it.
"""

import argparse
import json
import re
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path

import merge_records
from paper_status import missing_values, order_share, order_table, reversed_pairs, status_table

from unspur_paper.datasets.negation import CLASSES
from unspur_paper.experiments.metrics import INSIDE_GROUPS, METRICS, TITLES
from unspur_paper.experiments.records import canonical, unpack
from unspur_paper.experiments.reproduce import find_experiments, reproduce
from unspur_paper.experiments.summary import Summary

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "reproduction" / "results"
COST = RESULTS / "frozen-cost.json"
NETWORKS = RESULTS / merge_records.NETWORKS
PAGES = ("frozen-networks", "finetuned-networks", "claims")
#: Experiments on frozen networks, whose time is counted; and those among them by name that are not.
GRID, TRAINED = ("waterbirds", "celeba"), ("finetuned", "gradcam")
#: One cell of the slowest kind, in a process of its own; what it prints is its peak memory in bytes.
_ONE_CELL = """
import resource, sys
from pathlib import Path
from unspur_paper.experiments.cells import run_cell
from unspur_paper.experiments.reproduce import find_experiments
(experiment,) = find_experiments(["waterbirds-ood"])
cell = next(c for c in experiment.cells("exact") if c.method == "JSE" and c.at == {"p": 0.9})
run_cell(cell.spec, Path(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@cache
def summary(name: str) -> Summary:
    (experiment,) = [e for e in find_experiments([name]) if e.name == name]
    nowhere = Path("not-there")  # records know what data they are of
    return reproduce(experiment, "exact", RESULTS, compute=False, embeddings=nowhere).summary


def place(name: str, at: str) -> dict[str, float]:
    """Where on the axes "0.9" or "0.9, labelled=500" is."""
    strength, *others = (part.strip() for part in at.split(","))
    pairs = [other.split("=") for other in others]
    return {summary(name).experiment.strength: float(strength), **{key: float(number) for key, number in pairs}}


def line(name: str, method: str, metric: str, at: str):
    wanted = place(name, at)
    found = [li for li in summary(name).lines if (li.method, li.metric, li.at) == (method, metric, wanted)]
    if len(found) != 1:
        raise SystemExit(f"{len(found)} values for {name} | {method} | {metric} | {at}")
    return found[0]


def value(name: str, method: str, metric: str, at: str) -> str:
    """Mean and standard error; in how many runs, if other values of the experiment are of more."""
    found = line(name, method, metric, at)
    fewer = found.runs < max(li.runs for li in summary(name).lines)
    runs = f" in {found.runs} run{'s' if found.runs > 1 else ''}" if fewer else ""
    return f"{found.mean:.1f}" + ("" if found.error is None else f" ({found.error:.1f})") + runs


def mean(name: str, method: str, metric: str, at: str) -> str:
    return f"{line(name, method, metric, at).mean:.1f}"


def published(name: str, method: str, metric: str, at: str) -> str:
    there = line(name, method, metric, at).published
    return "–" if there is None else f"{there.mean:.1f} ({there.error:.1f})"


def difference(name: str, method: str, other: str, metric: str, at: str) -> str:
    wanted = method, other, metric, place(name, at)
    found = [d for d in summary(name).differences if (d.method, d.other, d.metric, d.at) == wanted]
    if len(found) != 1:
        raise SystemExit(f"{len(found)} differences for {name} | {method} | {other} | {metric} | {at}")
    (d,) = found
    if d.half is None:
        return f"{d.mean:+.1f} (one run)"
    return f"{d.mean:+.1f} [{d.mean - d.half:+.1f}, {d.mean + d.half:+.1f}]"


def table(name: str, metrics: str, at: str) -> str:
    wanted = [metric.strip() for metric in metrics.split(",")]
    lines = [
        "| method | "
        + " | ".join(TITLES.get(m, m) for m in wanted)
        + " | first minus it, "
        + TITLES.get(wanted[0], wanted[0])
        + " | published |",
        "| --- |" + " ---: |" * (len(wanted) + 2),
    ]
    first, here = summary(name).experiment.methods[0].name, place(name, at)
    measured = {li.method for li in summary(name).lines if (li.metric, li.at) == (wanted[0], here)}
    for method in (m.name for m in summary(name).experiment.methods if m.name in measured):
        cells = [value(name, method, metric, at) for metric in wanted]
        apart = "" if method == first else difference(name, first, method, wanted[0], at)
        lines.append("| " + " | ".join([method, *cells, apart, published(name, method, wanted[0], at)]) + " |")
    return "\n".join(lines)


def strengths(name: str, metric: str, methods: str) -> str:
    """A metric by strength: one line for each of the METHODS between semicolons that has records."""
    found = {
        (li.method, li.at[summary(name).experiment.strength]): li for li in summary(name).lines if li.metric == metric
    }
    places = sorted({at for _, at in found})
    lines = [f"| {TITLES.get(metric, metric)} | " + " | ".join(f"{at:g}" for at in places) + " |"]
    lines.append("| --- |" + " ---: |" * len(places))
    for method in (part.strip() for part in methods.split(";")):
        cells = [value(name, method, metric, f"{at}") if (method, at) in found else "–" for at in places]
        if set(cells) != {"–"}:
            lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def reweighting(pairs: str) -> str:
    """Remove, then reweight, against reweighting alone: one line an experiment and strength."""
    lines = [
        "| experiment | strength | JSE + GW-ERM | GW-ERM | difference of the worst group |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for pair in pairs.split(","):
        name, at = pair.split()
        both, alone = (value(name, method, "worst_group", at) for method in ("JSE + GW-ERM", "GW-ERM"))
        apart = difference(name, "JSE + GW-ERM", "GW-ERM", "worst_group", at)
        lines.append(f"| `{name}` | {at} | {both} | {alone} | {apart} |")
    return "\n".join(lines)


@cache
def told_networks() -> dict[str, dict]:
    """What is known of the training of each network, by its store."""
    return {network["store"]: network for network in merge_records.read_networks(NETWORKS)}


def networks(source: str) -> str:
    """Of the networks trained on a source, one line a strength and adversary: epochs, accuracies, seconds."""
    found: dict[str, list[dict]] = {}
    for store, network in told_networks().items():
        if store.startswith(f"{source}-finetuned/"):
            found.setdefault(store.split("/")[2], []).append(network)
    lines = [
        "| networks | how many | trained on | epochs kept | accuracy on validation rows, % | adversary, % | seconds each |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for name, group in found.items():
        kept = [network["history"][network["kept_epoch"] - 1] for network in group]
        adversary = _range([100 * k["adversary_balanced_accuracy"] for k in kept if "adversary_loss" in k])
        lines.append(
            f"| {name} | {len(group)} | {group[0]['device']} | {_range([n['kept_epoch'] for n in group], 0)} | "
            f"{_range([100 * k['validation_accuracy'] for k in kept])} | {adversary} | "
            f"{_range([n['seconds'] for n in group], 0)} |"
        )
    return "\n".join(lines)


def _range(numbers: list[float], digits: int = 1) -> str:
    if not numbers:
        return "–"
    low, high = (f"{number:.{digits}f}" for number in (min(numbers), max(numbers)))
    return low if low == high else f"{low} to {high}"


def _against(source: str, weight: str, strength: str = "") -> list[list[dict]]:
    """Histories of the networks of a source that were trained against an adversary of this weight."""
    name = re.compile(rf"{source}-finetuned/[^/]+/p-{re.escape(strength) or '[0-9.]+'}-adversary-{re.escape(weight)}/")
    return [network["history"] for store, network in told_networks().items() if name.match(store)]


def adversary_range(source: str, weight: str, strength: str, what: str, first: str, last: str = "") -> str:
    """Lowest and highest accuracy of "main" or "adversary", classes counting alike, from one epoch to another.

    Epochs count from the end where they are negative; no last epoch is the end. The strength "all" is all of them.
    """
    key = {"main": "validation_balanced_accuracy", "adversary": "adversary_balanced_accuracy"}[what]
    histories = _against(source, weight, "" if strength == "all" else strength)
    epochs = slice(int(first), int(last) if last else None)
    return _range([100 * epoch[key] for history in histories for epoch in history[epochs]])


def adversary_count(source: str, weight: str, what: str, low: str, high: str) -> str:
    """ "N of M" networks whose last accuracy of "main" or "adversary" is between two bounds."""
    key = {"main": "validation_balanced_accuracy", "adversary": "adversary_balanced_accuracy"}[what]
    found = [100 * history[-1][key] for history in _against(source, weight)]
    return f"{sum(float(low) <= accuracy <= float(high) for accuracy in found)} of {len(found)}"


#: Last epochs over which the accuracy of an adversary is followed.
LAST_EPOCHS = 5


def adversaries() -> str:
    """Networks that were trained against an adversary, by strength and weight.

    What the adversary reads of the concept on validation rows, what a fresh probe reads on test rows after PCA, and what
    a plain layer on top is worth.
    """
    lines = [
        "| data | p | λ | networks | main label, validation, % | adversary, validation, % | "
        f"adversary in the last {LAST_EPOCHS} epochs | fresh probe, test, % | worst group | average | published worst group |",
        "| --- |" + " ---: |" * 10,
    ]
    for name in ("waterbirds-finetuned", "celeba-finetuned", "multinli-ood"):
        if not (RESULTS / name / "exact.jsonl.xz").exists():
            continue
        experiment = summary(name).experiment
        source = experiment.dataset["name"].removesuffix("-finetuned")
        weights = {m.name: m.dataset["adversary"] for m in experiment.methods if m.dataset.get("adversary")}
        measured = {(li.at["p"], li.method) for li in summary(name).lines}
        for p, method in sorted(measured, key=lambda key: (-key[0], -weights.get(key[1], 0.0))):
            if method not in weights:
                continue
            weight, strength = f"{weights[method]:g}", f"{p:g}"
            found = [line(name, method, metric, strength) for metric in ("probe", "worst_group", "average")]
            cells = [
                f"`{name}`",
                strength,
                weight,
                str(found[0].runs),
                adversary_range(source, weight, strength, "main", "-1"),
                adversary_range(source, weight, strength, "adversary", "-1"),
                adversary_range(source, weight, strength, "adversary", f"-{LAST_EPOCHS}"),
                *(f"{li.mean:.1f}" + ("" if li.error is None else f" ({li.error:.1f})") for li in found),
                published(name, method, "worst_group", strength),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def negation_groups(methods: str) -> str:
    """Accuracy in each group of the published MultiNLI, and how many test rows it has."""
    name, at = "multinli-negation", 100.0
    where = ("without", "with")
    lines = [
        "| method | " + " | ".join(f"{kind}, {words} negation" for kind in CLASSES for words in where) + " |",
        "| --- |" + " ---: |" * 6,
    ]
    rows: list[list[int]] = []
    for method in (part.strip() for part in methods.split(";")):
        results = [result for (place, _), result in runs_of(name, method).items() if place == at]
        rows = [result["rows"] for result in results]
        accuracy = [
            sum(100 * result["right"][group] / result["rows"][group] for result in results) / len(results)
            for group in range(6)
        ]
        lines.append(f"| {method} | {' | '.join(f'{number:.1f}' for number in accuracy)} |")
    counts = [[run[group] for run in rows] for group in range(6)]
    lines.append(f"| test rows | {' | '.join(_range(group, 0) for group in counts)} |")
    errors = [f"{50 / min(group) ** 0.5:.1f}" for group in counts]
    lines.append(f"| standard error of a run, at most | {' | '.join(errors)} |")
    return "\n".join(lines)


def differences(rows: str) -> str:
    """Paired differences of the worst group: a line for each "EXPERIMENT, METHOD, OTHER, STRENGTH" between semicolons."""
    lines = ["| experiment | p | method | minus | worst group | average |", "| --- | ---: | --- | --- | ---: | ---: |"]
    for row in rows.split(";"):
        name, method, other, at = (part.strip() for part in row.split("/"))
        apart = " | ".join(difference(name, method, other, metric, at) for metric in ("worst_group", "average"))
        lines.append(f"| `{name}` | {at} | {method} | {other} | {apart} |")
    return "\n".join(lines)


def inside(name: str, at: str) -> str:
    """Shares of the maps on the bird, in all and group by group, and how far the first method is from each other."""
    who = [f"{kind} on {where}" for kind in ("landbirds", "waterbirds") for where in ("land", "water")]
    lines = [f"| method | on the bird, % | {' | '.join(who)} | first minus it |", "| --- |" + " ---: |" * 6]
    first = summary(name).experiment.methods[0].name
    measured = {li.method for li in summary(name).lines}
    for method in (m.name for m in summary(name).experiment.methods if m.name in measured):
        cells = [value(name, method, "inside", at), *(mean(name, method, metric, at) for metric in INSIDE_GROUPS)]
        cells.append("" if method == first else difference(name, first, method, "inside", at))
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def runs_of(name: str, method: str) -> dict[tuple, dict]:
    """Results of a method, by place on the axes and run."""
    (experiment,) = [e for e in find_experiments([name]) if e.name == name]
    records = unpack(RESULTS / name / "exact.jsonl.xz")
    known = {canonical(r.spec, "spec"): r.result for r in records}
    found = {}
    for cell in experiment.cells("exact"):
        result = known.get(canonical(dict(cell.spec), "spec"))
        if cell.method == method and result is not None:
            found[(*cell.at.values(), cell.spec["run"])] = result
    return found


def of_run(name: str, method: str, metric: str, at: str, run: str) -> str:
    """One run alone."""
    return f"{METRICS[metric](runs_of(name, method)[(float(at), int(run))]):.1f}"


def lost(rows: str) -> str:
    """What another method does for the runs in which JSE loses the task, and for the others.

    A line for each "EXPERIMENT / METHOD / OTHER" between semicolons: OTHER minus METHOD.
    """
    lines = [
        "| experiment | instead of it | task | runs | worst group | average |",
        "| --- | --- | --- | ---: | ---: | ---: |",
    ]
    for row in rows.split(";"):
        name, method, other = (part.strip() for part in row.split("/"))
        mine, theirs = runs_of(name, method), runs_of(name, other)
        for word, is_lost in (("lost", True), ("kept", False)):
            keys = [k for k in mine if k in theirs and (not mine[k]["d_main"] and mine[k]["d_spurious"] > 0) == is_lost]
            apart = [
                f"{sum(METRICS[m](theirs[k]) - METRICS[m](mine[k]) for k in keys) / len(keys):+.1f}" if keys else "–"
                for m in ("worst_group", "average")
            ]
            lines.append(f"| `{name}` | {other} | {word} | {len(keys)} | {' | '.join(apart)} |")
    return "\n".join(lines)


def cost(what: str) -> str:
    noted = json.loads(COST.read_text(encoding="utf-8"))
    if what == "embedding":
        lines = ["| store | rows | seconds | rows a second | peak memory, MB |", "| --- | ---: | ---: | ---: | ---: |"]
        for store in noted["stores"]:
            rate = store["rows"] / store["seconds"]
            lines.append(
                f"| {store['store']} ({store['device']}) | {store['rows']:,} | {store['seconds']:.0f} | "
                f"{rate:.0f} | {store['peak_memory_mb']:,} |"
            )
        return "\n".join(lines)
    if what == "memory":
        return f"{noted['cell_peak_bytes'] / 2**20:.0f} MB"
    lines = ["| experiment | cells | seconds of one core |", "| --- | ---: | ---: |"]
    packs = sorted(
        path
        for kind in GRID
        for path in RESULTS.glob(f"{kind}-*/exact.jsonl.xz")
        if not any(word in path.parent.name for word in TRAINED)
    )
    seen, total = set(), 0.0
    for path in packs:
        records = {r.key: r for r in unpack(path) if r.key not in seen}
        seen |= set(records)
        seconds = sum(r.seconds for r in records.values())
        total += seconds
        lines.append(f"| `{path.parent.name}` | {len(records)} | {seconds:.0f} |")
    return "\n".join([*lines, f"| all, cells in two experiments counted once | {len(seen)} | {total:.0f} |"])


_FILLERS = {
    f.__name__: f
    for f in (
        value,
        mean,
        published,
        difference,
        differences,
        strengths,
        table,
        reweighting,
        cost,
        networks,
        lost,
        inside,
        of_run,
        adversaries,
        negation_groups,
        adversary_range,
        adversary_count,
        status_table,
        missing_values,
        order_table,
        order_share,
        reversed_pairs,
    )
}


def rendered(page: str) -> str:
    def fill(match: re.Match[str]) -> str:
        name, _, arguments = match[1].strip().partition(" ")
        return _FILLERS[name](*(part.strip() for part in arguments.split("|") if part.strip()))

    def section(match: re.Match[str]) -> str:
        return match[2] if (RESULTS / match[1] / "exact.jsonl.xz").exists() else ""

    template = Path(__file__).with_name(f"{page}.template.md").read_text(encoding="utf-8")
    there = re.sub(r"\{\{#(.+?)\}\}\n+(.*?)\{\{/\1\}\}\n+", section, template, flags=re.S)
    filled = re.sub(r"\{\{(.+?)\}\}", fill, there, flags=re.S)
    return "\n\n".join(_reflowed(part) for part in filled.rstrip("\n").split("\n\n")) + "\n"


def _reflowed(paragraph: str) -> str:
    """Lines of at most a hundred characters; headings, tables and pictures stay as they are."""
    if paragraph.lstrip("\n")[:1] in ("#", "|", "!"):
        return paragraph
    items = re.split(r"\n(?=- )", paragraph)
    indent = "  " if paragraph.startswith("- ") else ""
    return "\n".join(
        textwrap.fill(item, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        for item in items
    )


def note_networks(embeddings: Path) -> None:
    noted = []
    for path in sorted(embeddings.glob("*-finetuned/**/manifest.json")):
        manifest = json.loads(path.read_text(encoding="utf-8"))
        training = manifest["encoder"]["training"]
        kept = {key: training[key] for key in ("settings", "history", "kept_epoch", "seconds")}
        noted.append(
            {"store": str(path.parent.relative_to(embeddings)), "device": manifest["encoder"]["device"], **kept}
        )
    merge_records.write_networks(merge_records.merged_networks([], noted), NETWORKS)


def note_costs(embeddings: Path) -> None:
    stores = []
    for path in sorted(embeddings.glob("*/**/manifest.json")):
        manifest = json.loads(path.read_text(encoding="utf-8"))
        kept = {key: manifest[key] for key in ("rows", "width", "seconds", "peak_memory_mb", "digest")}
        stores.append(
            {"store": str(path.parent.relative_to(embeddings)), "device": manifest["encoder"]["device"], **kept}
        )
    ran = subprocess.run([sys.executable, "-c", _ONE_CELL, str(embeddings)], check=True, capture_output=True, text=True)
    noted = {"stores": stores, "cell_peak_bytes": int(ran.stdout.split()[-1])}
    COST.write_text(json.dumps(noted, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frozen", type=Path)
    parser.add_argument("--finetuned", type=Path)
    options = parser.parse_args()
    if options.frozen is not None:
        note_costs(options.frozen)
    if options.finetuned is not None:
        note_networks(options.finetuned)
    for name in PAGES:
        written = ROOT / "reproduction" / "docs" / f"{name}.md"
        written.write_text(rendered(name), encoding="utf-8")
        print(written)
