"""docs/benchmarks.md with its picture, and reproduction/docs/speed.md, from the figures in benchmarks/results.

    python benchmarks/speed_page.py

Nothing on the pages is typed in. A part that was not measured is named, with the command that measures it.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
DETAILS = ROOT / "reproduction" / "docs" / "speed.md"
PICTURE = ROOT / "docs" / "images" / "scaling.svg"
#: Colours that are told apart by people who do not see all of them; the same method always has the same.
COLOURS = ("#0072b2", "#56b4e9", "#cc79a7", "#d55e00", "#009e73", "#000000")

#: The peer that fits are compared with, as `benchmarks/speed.py` calls it.
LEACE = "LEACE of concept-erasure"

COMMANDS = {
    "core": "make bench",
    "evaluation": "python benchmarks/speed.py evaluation",
    "scaling": "python benchmarks/speed.py scaling",
    "wide": "python benchmarks/speed.py wide",
    "birds": "python benchmarks/speed.py birds --embeddings unspur-embeddings",
    "threads": "python benchmarks/speed.py threads",
    "startup": "python benchmarks/speed.py startup",
    "gpu": "python benchmarks/gpu.py benchmarks/results/gpu.json",
    "embed": "python benchmarks/embed_speed.py benchmarks/results/embed.json",
    "memory": "python benchmarks/memory.py --output benchmarks/results/memory.json",
    "dask": "python benchmarks/dask_overhead.py --fit --output benchmarks/results/dask.json",
    "visits": "python benchmarks/visits.py --output benchmarks/results/visits.json",
    "dask64": "python benchmarks/dask_overhead.py --fit --dtype float64 --output benchmarks/results/dask64.json",
}


def figures(folder: Path = RESULTS) -> dict[str, Any]:
    """What has been measured, by part."""
    return {
        name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        for name in COMMANDS
        if (folder / f"{name}.json").is_file()
    }


def table(header: str, lines: list[list[str]]) -> list[str]:
    """A table of numbers; the first column, and those whose name begins with "<", are words."""
    names = [name.strip() for name in header.split("|")]
    rule = "|".join(" --- " if not k or name.startswith("<") else " ---: " for k, name in enumerate(names))
    return [
        "| " + " | ".join(name.removeprefix("<") for name in names) + " |",
        f"|{rule}|",
        *("| " + " | ".join(line) + " |" for line in lines),
    ]


def paragraph(text: str) -> list[str]:
    """Lines of at most a hundred characters; those of a list item are indented."""
    indent = "  " if text.startswith("- ") else ""
    return textwrap.wrap(text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def reflowed(lines: Iterable[str]) -> list[str]:
    """The lines of a page, with paragraphs as `paragraph` has them."""
    out: list[str] = []
    for prose, group in groupby(lines, lambda line: bool(line) and line[0] not in "#|!-"):
        part = list(group)
        out += paragraph(" ".join(part)) if prose else part
    return out


def page(measured: dict[str, Any]) -> str:
    """What a fit costs, as Markdown."""
    lines = [
        "# Speed and memory",
        "",
        "Times of whole fits. [Speed in detail](../reproduction/docs/speed.md) has goals, single evaluations and comparisons with other",
        "packages. The command below each heading measures its figures, and `python benchmarks/speed_page.py` writes this page.",
        "Machines are noisy, so trust ratios within one run more than seconds.",
    ]
    parts = (
        ("scaling", "One fit, by rows and features", scaling),
        ("wide", "More features than rows", wide),
        ("birds", "Many directions: frozen birds", birds),
        ("gpu", "On a GPU", gpu_fits),
        ("embed", "Embedding of pictures", embedding),
        ("memory", "Memory", memory),
        ("dask", "On a cluster", cluster_fits),
        ("visits", "Visits of the rows", visits),
        ("threads", "Beside other work", threads),
        ("startup", "Start of the program", startup),
    )
    return "\n".join(reflowed(lines + sections(measured, parts))) + "\n"


def details(measured: dict[str, Any]) -> str:
    """What lies behind those times, as Markdown."""
    lines = [
        "# Speed in detail",
        "",
        "Goals, single evaluations of the loss, and comparisons with other packages.",
        "[Speed and memory](../../docs/benchmarks.md) has the times of whole fits. The command below each heading measures its",
        "figures and stores them in [benchmarks/results](../../benchmarks/results); `python benchmarks/speed_page.py` writes both pages.",
    ]
    if set(COMMANDS) <= set(measured):
        lines += ["", "## Goals", "", *goals(measured)]
    parts = (
        ("evaluation", "One evaluation against a copy", evaluation),
        ("gpu", "On a GPU", gpu_evaluations),
        ("dask", "On a cluster", cluster_evaluations),
        ("core", "Other comparisons", core),
    )
    return "\n".join(reflowed(lines + sections(measured, parts))) + "\n"


Part = tuple[str, str, Callable[[dict[str, Any]], list[str]]]


def sections(measured: dict[str, Any], parts: Iterable[Part]) -> list[str]:
    """A section for each part: its name, its heading, and what writes it."""
    lines: list[str] = []
    for name, title, write in parts:
        lines += ["", f"## {title}", "", f"`{COMMANDS[name]}`", ""]
        lines += write(measured) if name in measured else ["Not measured yet."]
    return lines


def evaluation(measured: dict[str, Any]) -> list[str]:
    given = measured["evaluation"]
    lines = [
        [f"{t}", f"{1e3 * line['copy']:.0f} ms", f"{1e3 * line['evaluation']:.0f} ms", f"**{line['ratio']:.2f}**"]
        for t, line in given["tracks"].items()
    ]
    return [
        f"Loss and gradient of both labels over n = {given['n']:,} rows of d = {given['d']}, {given['dtype']}, compared with",
        f"`np.copyto` of the same array into a touched buffer ({given['cores']} cores, NumPy {given['numpy']}, medians, measured in",
        "turn). A track is one set of row weights. A validation set needs one track, and five folds need six.",
        "",
        *table("tracks | copy | evaluation | ratio", lines),
    ]


def scaling(measured: dict[str, Any]) -> list[str]:
    points, exponents = measured["scaling"]["points"], measured["scaling"]["exponents"]
    methods = list(exponents)
    sizes = sorted({(p["d"], p["n"]) for p in points})
    spent = {(p["method"], p["d"], p["n"]): p["seconds"] for p in points}
    lines = [
        [f"{d:,}", f"{n:,}", *(_seconds(spent.get((m, d, n))) for m in methods), _ratio(spent, methods, d, n)]
        for d, n in sizes
    ]
    grown = [
        f"{name}: t ∝ n^{found['n']:.2f} d^{found['d']:.2f} ({found['points']} points)"
        for name, found in exponents.items()
        if found
    ]
    return [
        f"Float32 rows in memory with one direction for each label ({measured['scaling']['cores']} cores). Exponents fitted to points",
        "above 0.05 s:",
        "",
        *(f"- {line}" for line in grown),
        "",
        "![Seconds of one fit against the number of rows, a panel for each number of features, and for 500 rows against the number of features](images/scaling.svg)",
        "",
        *table("d | n | " + " | ".join(methods) + " | first / LEACE", lines),
    ]


def wide(measured: dict[str, Any]) -> list[str]:
    points = measured["wide"]["points"]
    spent = {(p["method"], p["d"]): p["seconds"] for p in points}
    widths = sorted({p["d"] for p in points})
    lines = [
        [method, *(_seconds(spent.get((method, d))) for d in widths)]
        for method in dict.fromkeys(p["method"] for p in points)
    ]
    return [
        f"{points[0]['n']} float32 rows ({measured['wide']['cores']} cores). No d × d matrix is formed, so times grow linearly in d.",
        "",
        *table("method | " + " | ".join(f"d = {d:,}" for d in widths), lines),
    ]


def _ratio(spent: dict[Any, float], methods: list[str], d: int, n: int) -> str:
    ours, theirs = (spent.get((method, d, n)) for method in (methods[0], LEACE))
    return "" if ours is None or theirs is None else f"{ours / theirs:.2f}"


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{1e3 * value:.0f} ms" if value < 1 else f"{value:.1f} s"


def birds(measured: dict[str, Any]) -> list[str]:
    fits = measured["birds"]["fits"]
    lines = []
    for balance, judged in dict.fromkeys((f["balance"], f["judged"]) for f in fits):
        own = [f for f in fits if (f["balance"], f["judged"]) == (balance, judged)]
        pairs = [
            f["pairs"] + f["tried"] - 1 for f in own
        ]  # the first pair of the decay that was chosen is not solved again
        lines.append(
            [
                balance,
                judged,
                _span([f["seconds"] for f in own], ".2f", " s"),
                _span(pairs, "d"),
                _span([1e3 * f["seconds"] / p for f, p in zip(own, pairs, strict=True)], ".1f", " ms"),
                _span([f["evaluations"] / f["pairs"] for f in own], ".1f"),
                _span([f["spurious"] for f in own], "d"),
                _span([f["main"] for f in own], "d"),
            ]
        )
    n, d = fits[0]["n"], fits[0]["d"]
    return [
        f"n = {n:,}, d = {d}, agreement 0.9, default parameters except `balance` ({measured['birds']['cores']} cores, best of some",
        f"repeats, smallest to largest of {len({f['draw'] for f in fits})} draws). Pairs include those of the penalties tried. The",
        "authors' program takes 239 s for 58 pairs on one thread.",
        "",
        *table("balance | judged on | fit | pairs | a pair | evaluations a pair | d_spurious | d_main", lines),
    ]


def _span(values: list[Any], form: str, unit: str = "") -> str:
    low, high = min(values), max(values)
    return f"{low:{form}}{unit}" if low == high else f"{low:{form}} – {high:{form}}{unit}"


def goals(measured: dict[str, Any]) -> list[str]:
    """What was asked for, what was measured, whether that is enough, and what the hardware would allow."""
    lines = []

    def line(what: str, value: float, goal: float, form: str = ".2f", unit: str = "", limit: str = "") -> None:
        met = "yes" if value <= goal else "**no**"
        lines.append([what, f"{value:{form}}{unit}", f"≤ {goal:g}{unit}", met, limit])

    tracks = measured["evaluation"]["tracks"]
    once = "0.5: rows are read, and not written"
    line("evaluation of one track / copy, in memory, n = 1,000,000, d = 768", tracks["1"]["ratio"], 2, limit=once)
    line("evaluation of six tracks / copy", tracks["6"]["ratio"], 2.2, limit="0.5; 12 operations a byte take longer")
    spent = {(p["method"], p["d"], p["n"]): p["seconds"] for p in measured["scaling"]["points"]}
    methods = list(measured["scaling"]["exponents"])
    first, default, leace = (spent[m, 768, 100_000] for m in (*methods[:2], LEACE))
    line(
        "JSE, one direction each, rows held out once / LEACE of concept-erasure, n = 100,000, d = 768", first / leace, 3
    )
    line("JSE, defaults / the same", default / leace, 3)
    narrow = ((1_000_000, 20, 2), (5_000_000, 8, 6))
    for n, d, goal in (size for size in narrow if (methods[1], size[1], size[0]) in spent):
        line(f"JSE, defaults, n = {n:,}, d = {d}", spent[methods[1], d, n], goal, unit=" s")
    of_wide = {(p["method"], p["d"]): p["seconds"] for p in measured["wide"]["points"]}
    for method, d, goal in (("SAL", 4000, 0.1), ("JSE, defaults", 4000, 0.5), ("JSE, defaults", 20_000, 3)):
        limit = "2nd² operations of a Gram matrix of n = 500 rows: under 10 ms"
        line(f"{method}, n = 500, d = {d:,}", of_wide[method, d], goal, unit=" s", limit=limit)
    for judged, goal in (("validation rows", 0.1), ("five folds", 0.3)):
        own = [f for f in measured["birds"]["fits"] if f["judged"] == judged and f["balance"] == "group"]
        line(
            f"frozen birds, default fit, judged on {judged}: slowest draw",
            max(f["seconds"] for f in own),
            goal,
            unit=" s",
        )
        line(
            f"the same, a pair: slowest draw{' (each solved six times)' if judged == 'five folds' else ''}",
            max(1e3 * f["seconds"] / (f["pairs"] + f["tried"]) for f in own),
            3,
            ".1f",
            " ms",
        )
    for found in measured["threads"]["lines"]:
        beside = f"{found['busy']} busy processes beside it" if found["busy"] else "nothing beside it"
        line(f"JSE, defaults, 1,438 × 384: threads as they are / one thread, {beside}", found["ratio"], 1.2)
    slowest = max(measured["startup"]["seconds"].items(), key=lambda item: item[1])
    line(f"`unspur {slowest[0]} --help`, the slowest of its kind", slowest[1], 0.3, unit=" s")
    gpu = measured["gpu"]
    for kind in ("float32", "bfloat16"):
        ratio = gpu["evaluation"][f"{kind}, 2 lines, of a copy"]
        line(f"GPU, evaluation of one track / copy, {kind}", ratio, 2, limit="1: rows are read twice")
    for kind, n, goal in (("float32", 1_000_000, 1), ("bfloat16", 10_000_000, 6)):
        line(
            f"GPU, JSE, defaults, {kind}, n = {n:,}, d = 768",
            gpu["fit"][f"{kind}, n = {n:,}, seconds"],
            goal,
            unit=" s",
        )
    embedded = measured["embed"]
    limit = f"the network alone: {embedded['device']['network']:,.0f}; decoding in {max(map(int, embedded['host']))} threads: {max(embedded['host'].values()):,.0f}"
    lines.append(
        _at_least("GPU, pictures embedded a second, Lite0", embedded["whole"]["pictures_per_second"], 2000, limit)
    )
    for kind, bound in (("float32", 1e-5), ("bfloat16", 1e-2)):
        line(f"GPU, {kind}: largest angle to the float64 answer", gpu["fit"][f"{kind}, largest angle"], bound, ".0e")
    results = {r["rows"]: r for r in measured["memory"]["results"]}
    line("most anonymous memory, memory map of 3 GB", results["memmap"]["anonymous_peak"] / 1e9, 1, unit=" GB")
    jse = next(f for f in measured["dask"]["fits"] if f["method"] == "JSE")
    line("JSE on two Dask workers / in memory", jse["dask_s"] / jse["memory_s"], 1.5, limit="1: as many cores")
    line(
        "Dask, JSE on float64 rows: difference of the matrix applied to that in memory",
        max(f["difference"] for f in measured["dask64"]["fits"]),
        1e-9,
        ".0e",
    )
    return table("what | measured | goal | met | < limit", lines)


def _at_least(what: str, value: float, goal: float, limit: str) -> list[str]:
    return [what, f"{value:,.0f}", f"≥ {goal:,}", "yes" if value >= goal else "**no**", limit]


def embedding(measured: dict[str, Any]) -> list[str]:
    given = measured["embed"]
    lines = [
        ["the whole of `unspur embed`", f"{given['whole']['pictures_per_second']:,.0f}"],
        *([f"decoding and scaling, {t} thread{'s' * (t != '1')}", f"{v:,.0f}"] for t, v in given["host"].items()),
        ["copies to the device, and the network", f"{given['device']['copies and network']:,.0f}"],
    ]
    return [
        f"{given['whole']['pictures']:,} JPEG pictures of {given['size']} pixels ({given['bytes_per_picture'] / 1000:.0f} kB), {given['encoder']}, {given['where']},",
        f"{given['device_name']} with {given['cores']} cores.",
        "",
        *table("what | pictures a second", lines),
    ]


def threads(measured: dict[str, Any]) -> list[str]:
    given = measured["threads"]
    lines = [
        [f"{f['busy']}", _seconds(f["default"]), _seconds(f["one_thread"]), f"{f['ratio']:.2f}"] for f in given["lines"]
    ]
    return [
        f"Default JSE on {given['n']:,} × {given['d']} float32 rows ({given['cores']} cores), with the threads that a process has by",
        "itself and with `OMP_NUM_THREADS=1`, in turn, beside processes that each keep a core busy.",
        "",
        *table("busy processes | threads as they are | one thread | ratio", lines),
    ]


def startup(measured: dict[str, Any]) -> list[str]:
    verbs = measured["startup"]["seconds"]
    return table("verb | `--help`", [[verb, f"{spent:.2f} s"] for verb, spent in verbs.items()])


def gpu_evaluations(measured: dict[str, Any]) -> list[str]:
    given = measured["gpu"]
    lines = [[name, f"{1e3 * value:.2f} ms"] for name, value in given["evaluation"].items() if "of a copy" not in name]
    errors = [[name, f"{value:.0e}"] for name, value in given["error"].items()]
    return [
        f"{given['device']}, torch {given['torch']}; n = {given['n']:,}, d = {given['d']}, rows on the device. Two lines are both",
        "labels of one track, and twelve are those of six tracks. Times include the way of the sums to the host.",
        "",
        *table("evaluation | best", lines),
        "",
        "Error against float64 on the same rows, relative to the largest entry:",
        "",
        *table("rows | error", errors),
    ]


def gpu_fits(measured: dict[str, Any]) -> list[str]:
    given = measured["gpu"]
    fits = given["fit"]
    times = [
        [
            name.removesuffix(", seconds"),
            f"{value:.2f} s",
            " + ".join(map(str, fits[name.replace("seconds", "dimensions")])),
        ]
        for name, value in fits.items()
        if name.endswith("seconds")
    ]
    angles = [[name.partition(",")[0], f"{value:.0e}"] for name, value in fits.items() if name.endswith("angle")]
    return [
        f"{given['device']}, torch {given['torch']}; default JSE, d = {given['d']}, rows on the device.",
        "",
        *table("rows | fit | directions", times),
        "",
        "Largest angle (radians) to the directions of float64 rows on the host, n = 100,000:",
        "",
        *table("rows | angle", angles),
    ]


def memory(measured: dict[str, Any]) -> list[str]:
    words = {"array": "array", "memmap": "memory map", "zarr": "Dask array over Zarr, read anew in each pass"}
    lines = [
        [
            words[r["rows"]],
            f"{r['n']:,} × {r['d']}",
            f"{r['size_of_Z'] / 1e9:.2f} GB",
            f"{r['anonymous_peak'] / 1e9:.2f} GB",
            f"{r['seconds']:.0f} s",
        ]
        for r in measured["memory"]["results"]
    ]
    return [
        "`JSE(max_spurious=1, max_main=1, cv=0.2)`, each in its own process. Anonymous memory excludes pages of mapped files,",
        "which the system can take back. For the array it includes the array.",
        "",
        *table("rows | shape | size of Z | most anonymous memory | fit", lines),
    ]


def cluster_evaluations(measured: dict[str, Any]) -> list[str]:
    out: list[str] = []
    for name in ("dask", "dask64"):
        if name not in measured:
            continue
        lines = [
            [
                f"{line['chunks']}",
                f"{line['chunk_mb']:.1f} MB",
                f"{line['tasks']:.0f}",
                f"{line['client_kb']:.0f} kB",
                f"{line['scheduler_kb']:.0f} kB",
                f"{line['workers_kb']:.0f} kB",
                f"{line['ms']:.0f} ms",
                f"{line['empty_ms']:.0f} ms",
                f"{line['memory_ms']:.0f} ms",
                f"{line['difference']:.0e}",
            ]
            for line in measured[name]["evaluations"]
        ]
        columns = "chunks | size | tasks | client sends | scheduler sends | workers send | time | of it Dask alone | in memory | difference"
        settings = measured[name]["settings"]
        out += [
            "",
            f"{_rows_on_workers(measured[name])}, {settings['weightings']} weightings × 2 labels, {settings['workers']} workers with one thread each on",
            "one machine. Each evaluation:",
            "",
            *table(columns, lines),
        ]
    return out[1:]


def cluster_fits(measured: dict[str, Any]) -> list[str]:
    lines = [
        [
            f"{f['method']}, {_rows_on_workers(measured[name])}",
            f"{f['chunks']}",
            f"{f['memory_s']:.1f} s",
            f"{f['dask_s']:.1f} s",
            f"{f['difference']:.0e}",
        ]
        for name in ("dask", "dask64")
        if name in measured
        for f in measured[name]["fits"]
    ]
    workers = measured["dask"]["settings"]["workers"]
    return [
        f"{workers} workers with one thread each on one machine. The difference is that of the matrix applied to rows.",
        "",
        *table("fit | chunks | in memory | on the cluster | difference", lines),
        "",
        "[Big data](guides/big-data.md) is the guide.",
    ]


def visits(measured: dict[str, Any]) -> list[str]:
    given = measured["visits"]
    costs = [[c["rows"], f"{c['ms']:.0f} ms", f"{c['of_memory']:.2f}"] for c in given["costs"]]
    counts = [[m["method"], f"{m['all']}", f"{m['sample']}", f"{m['columns']}"] for m in given["methods"]]
    return [
        f"n = {given['n']:,}, d = {given['d']}, {given['dtype']} ({given['cores']} cores, {given['chunks']} chunks). A visit is one pass over all",
        "rows, here one evaluation of the losses of both labels. Sources take turns, and the best of each counts.",
        "",
        *table("rows | a visit | of one in memory", costs),
        "",
        "How often a fit visits all rows, a sample of them, or a few columns computed from them. Counts do not depend on the",
        "machine; how many directions the rows have changes them.",
        "",
        *table("method | all rows | a sample | a few columns", counts),
    ]


def _rows_on_workers(given: dict[str, Any]) -> str:
    settings = given["settings"]
    return f"{settings['rows']:,} × {settings['features']} {settings['dtype']}"


def core(measured: dict[str, Any]) -> list[str]:
    given = measured["core"]
    return [
        f"{given['cores']} cores, {given['versions']}; best of several repeats. [Architecture](../../docs/architecture.md) explains the two",
        "thread pools, under *Threads*.",
        "",
        *table("what | measured | goal", [[f["name"], f["measured"], f["goal"]] for f in given["figures"]]),
    ]


def picture(measured: dict[str, Any]) -> None:
    """Seconds on logarithmic axes: against rows, a panel for each number of features, and against features."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "unspur"
    import matplotlib.pyplot as plt

    panels = [
        (f"d = {d:,}", "n", [p for p in measured["scaling"]["points"] if p["d"] == d])
        for d in sorted({p["d"] for p in measured["scaling"]["points"]})
    ]
    wide = measured["wide"]["points"] if "wide" in measured else []
    panels += [(f"n = {wide[0]['n']:,}", "d", wide)] if wide else []
    methods = [*measured["scaling"]["exponents"], "PCA of scikit-learn"]
    figure, grid = plt.subplots(2, (len(panels) + 1) // 2, figsize=(9, 6), sharey=True, layout="constrained")
    axes = list(grid.ravel())
    for axis, (title, along, points) in zip(axes, panels, strict=False):
        for method, colour, marker in zip(methods, COLOURS, "osv^DX", strict=True):
            if own := sorted((p[along], p["seconds"]) for p in points if p["method"] == method):
                axis.loglog(*zip(*own, strict=True), color=colour, marker=marker, markersize=4, label=method)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("rows" if along == "n" else "features")
        axis.grid(alpha=0.3)
    for axis in axes[len(panels) :]:
        axis.remove()
    for row in grid:
        row[0].set_ylabel("seconds of one fit")
    named = {
        name: line for axis in axes[: len(panels)] for line, name in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(named.values(), named, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    measured = figures()
    PAGE.write_text(page(measured), encoding="utf-8")
    DETAILS.write_text(details(measured), encoding="utf-8")
    if "scaling" in measured:
        picture(measured)
    print(f"{PAGE}, {DETAILS}; not measured: {', '.join(sorted(COMMANDS.keys() - measured.keys())) or 'nothing'}")
