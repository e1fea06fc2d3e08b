"""Tables of an experiment: Markdown to read, CSV to compute with, a few lines for the terminal, and an index of all."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unspur._files import atomic
from unspur_paper.experiments.metrics import TITLES
from unspur_paper.experiments.presets import preset_words
from unspur_paper.experiments.summary import APART, EXPECTED, Agreement, Difference, Line, Summary
from unspur_paper.files import read_json

#: Metrics whose differences run by run are shown.
_COMPARED = (
    "average",
    "worst_group",
    "worst_group(sex)",
    "worst_group(glasses)",
    "mouth_share",
    "eyes_share",
    "inside",
)
#: What marks a summary among other JSON files.
_KIND = "unspur experiment"


def write_tables(
    summary: Summary, folder: Path, *, references: Mapping[str, tuple[str, float]], figures: Sequence[Path] = ()
) -> list[Path]:
    """Write ``<preset>.md``, ``.csv`` and ``.json`` to a folder; `references` are values to set a metric against."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        ".md": markdown(summary, references, [path.name for path in figures if path.suffix == ".svg"]),
        ".json": json.dumps(digest(summary), indent=1, ensure_ascii=False) + "\n",
    }
    written = []
    for suffix, text in texts.items():
        path = folder / f"{summary.preset}{suffix}"
        with atomic(path, overwrite=True) as temporary:
            temporary.write_text(text, encoding="utf-8")
        written.append(path)
    path = folder / f"{summary.preset}.csv"
    with atomic(path, overwrite=True) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        lines = [_flat(summary, line) for line in summary.lines]
        writer = csv.DictWriter(stream, list(lines[0]) if lines else ["experiment"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    return [*written, path]


def digest(summary: Summary) -> dict[str, Any]:
    """What the index shows of an experiment."""
    held = any(method.counted for method in summary.experiment.methods)
    return {
        "kind": _KIND,
        "experiment": summary.experiment.name,
        "title": summary.experiment.title,
        "preset": summary.preset,
        "version": summary.version,
        "runs": max((line.runs for line in summary.lines), default=0),
        "missing": summary.missing,
        "agreement": {a.method: [a.within, a.total] for a in summary.agreement if a.counted or held},
        "apart": [_apart(line) for line in summary.lines if held and abs(line.distance or 0.0) > APART],
    }


def agreement_lines(summary: Summary) -> list[str]:
    """How many published values agree, one line per method and one for all, beside what to expect."""
    rows = _with_total(summary.agreement)
    if rows and not any(row.counted for row in rows):
        return ["Published values are of other data; they stand beside ours and are not compared."]
    if not rows:
        single = any(line.published is not None for line in summary.lines)
        return [
            "One run has no standard error: nothing is compared." if single else "No published values to compare with."
        ]
    width = max(len(row.method) for row in rows)
    return [
        f"{row.method:<{width}} {row.within:>4} of {row.total:>3} published values within {APART:g} combined standard "
        f"errors: {100 * row.within / row.total:.1f} %" + ("" if row.counted else " (not counted)")
        for row in rows
    ] + [f"expected if both sides measure the same thing: {100 * EXPECTED:.1f} %"]


def markdown(summary: Summary, references: Mapping[str, tuple[str, float]], figures: Sequence[str]) -> str:
    """The page of one experiment under one preset."""
    experiment = summary.experiment
    runs = max((line.runs for line in summary.lines), default=0)
    words = preset_words(summary.preset, experiment.dataset["name"])
    parts = [
        f"# {experiment.title}",
        f"Preset `{summary.preset}`: {words}. {runs} runs, version {summary.version}. Written from the records beside "
        f"it by `{_command(summary, runs)}`.",
    ]
    if experiment.answers:
        parts.append("In the paper: " + ", ".join(f"`{label}`" for label in experiment.answers) + ".")
    if experiment.changes:
        changed = ", ".join(f"{key} = {value}" for key, value in experiment.changes.items())
        parts.append(f"Settings that are not those of the spec: {changed}. Title and names are the spec's.")
    elif experiment.note:
        parts.append(experiment.note.strip())
    if summary.missing:
        parts.append(f"**{summary.missing} cells have no record yet.**")
    parts += [f"![{Path(name).stem}]({name})" for name in figures]
    if any(a.counted for a in summary.agreement):
        parts += ["## Agreement with the paper", _agreement_table(summary.agreement)]
    parts += [_metric_section(summary, metric, references.get(metric)) for metric in experiment.metrics]
    if summary.differences and set(experiment.metrics) & set(_COMPARED):
        parts.append(_difference_section(summary))
    return "\n\n".join(parts) + "\n"


def _command(summary: Summary, runs: int) -> str:
    """What computes the page again."""
    settings = "".join(f" --set {shlex.quote(f'{key}={value}')}" for key, value in summary.experiment.changes.items())
    return f"unspur-paper reproduce {summary.experiment.name} --preset {summary.preset} --runs {runs}{settings}"


def write_index(folder: Path) -> Path:
    """``README.md`` of a folder of results: every experiment and preset that has been drawn, with its agreement."""
    found = [_digest_in(path) for path in sorted(folder.glob("*/*.json")) if path.parent.name != "records"]
    digests = [entry for entry in found if entry is not None]
    lines = ["| experiment | preset | runs | published values that agree |", "| --- | --- | ---: | --- |"]
    for entry in digests:
        name, preset, counts = entry["experiment"], entry["preset"], entry["agreement"]
        agree = ", ".join(f"{method} {within}/{total}" for method, (within, total) in counts.items()) or "–"
        lines.append(f"| [{_escaped(entry['title'])}]({name}/{preset}.md) | `{preset}` | {entry['runs']} | {agree} |")
    says = (
        f"Written by `unspur-paper reproduce`. A published value agrees if it lies within {APART:g} combined standard "
        f"errors of ours; {100 * EXPECTED:.1f} % would if both sides measured the same thing. Each page has the tables "
        "and the figure; beside it are the same as CSV, SVG and PNG, and the records (`.jsonl.xz`, one JSON line per "
        "cell)."
    )
    text = "\n".join(["# Results", "", says, "", *lines, "", *_not_reproduced(digests)])
    with atomic(folder / "README.md", overwrite=True) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return folder / "README.md"


def _apart(line: Line) -> dict[str, Any]:
    """A value that does not agree, in words and numbers."""
    assert line.published is not None
    return {
        "method": line.method,
        "at": ", ".join(f"{key} = {value}" for key, value in line.at.items()),
        "metric": TITLES.get(line.metric, line.metric),
        "ours": _number(line.mean, line.error),
        "published": _number(line.published.mean, line.published.error),
        "distance": round(line.distance or 0.0, 1),
    }


def _not_reproduced(digests: Sequence[Mapping[str, Any]]) -> list[str]:
    """The published values that the authors' program does not give back, one by one."""
    entries: dict[tuple[Any, ...], tuple[str, Any]] = {}
    for name, value in [(e["experiment"], v) for e in digests if e["preset"] == "released" for v in e["apart"]]:
        entries.setdefault(tuple(value.values()), (name, value))  # two may answer a table with the same cells
    if not entries:
        return []
    lines = [
        "## Published values that do not agree under `released`",
        "",
        "That preset repeats how the numbers were made. reproduction/docs/paper-map.md gives the reasons we know.",
        "",
        "| experiment | method | at | metric | ours | published | distance |",
        "| --- | --- | --- | --- | ---: | ---: | ---: |",
    ]
    for name, value in entries.values():
        cells = [f"`{name}`", *(str(value[k]) for k in ("method", "at", "metric", "ours", "published"))]
        lines.append("| " + " | ".join([*cells, f"{value['distance']:+.1f}"]) + " |")
    return [*lines, ""]


def _digest_in(path: Path) -> dict[str, Any] | None:
    """What `digest` wrote, or None for any other file."""
    try:
        entry = read_json(path)
    except (OSError, ValueError):
        return None
    complete = {"experiment", "title", "preset", "runs", "agreement", "apart"}
    return entry if isinstance(entry, dict) and entry.get("kind") == _KIND and complete <= entry.keys() else None


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _with_total(agreement: Sequence[Agreement]) -> list[Agreement]:
    """Per method, and for all that are counted if those are several."""
    counted = [a for a in agreement if a.counted]
    total = Agreement("all", sum(a.within for a in counted), sum(a.total for a in counted))
    return [*agreement, *([total] if len(counted) > 1 else [])]


def _agreement_table(counted: Sequence[Agreement]) -> str:
    lines = [
        f"Published values within {APART:g} combined standard errors of ours; {100 * EXPECTED:.1f} % are expected "
        "under perfect agreement.",
        "",
        "| method | within | of | share |",
        "| --- | ---: | ---: | ---: |",
    ]
    for a in _with_total(counted):
        name = _escaped(a.method) + ("" if a.counted else " (not counted)")
        lines.append(f"| {name} | {a.within} | {a.total} | {100 * a.within / a.total:.1f} % |")
    return "\n".join(lines)


def _metric_section(summary: Summary, metric: str, reference: tuple[str, float] | None) -> str:
    lines = [line for line in summary.lines if line.metric == metric]
    methods = [m.name for m in summary.experiment.methods if any(line.method == m.name for line in lines)]
    published = any(line.published is not None for line in lines)
    held = any(line.published is not None and summary.experiment.method(line.method).counted for line in lines)
    head = f"## {TITLES.get(metric, metric)}"
    says = "Mean (standard error)"
    if held:
        says += "; published; distance in combined standard errors, **bold** beyond 2"
    elif published:
        says += "; published, with other data"
    text = [head, "", f"{says}." + ("" if reference is None else f" {reference[0]}: {reference[1]:.2f}."), ""]
    axes = summary.experiment.axes
    text.append("| " + " | ".join([*axes, *map(_escaped, methods)]) + " |")
    text.append("|" + " ---: |" * len(axes) + " --- |" * len(methods))
    for place in dict.fromkeys(tuple(line.at.values()) for line in lines):
        here = {line.method: line for line in lines if tuple(line.at.values()) == place}
        most = max(line.runs for line in lines)
        cells = [_cell(here[method], held=held, most=most) if method in here else "" for method in methods]
        text.append("| " + " | ".join([*map(str, place), *cells]) + " |")
    return "\n".join(text)


def _cell(line: Line, *, held: bool, most: int) -> str:
    text = _number(line.mean, line.error) + (
        "" if line.runs == most else f" in {line.runs} run{'s' if line.runs > 1 else ''}"
    )
    if line.published is None:
        return text
    if not held:
        return f"{text}; {_number(line.published.mean, line.published.error)}"
    distance = line.distance
    apart = "" if distance is None else f"{distance:+.1f}"
    if distance is not None and abs(distance) > APART:
        apart = f"**{apart}**"
    return f"{text}; {_number(line.published.mean, line.published.error)}; {apart}"


def _number(mean: float, error: float | None) -> str:
    digits = 4 if 0 < abs(mean) < 2 else 2
    return f"{mean:.{digits}f}" + ("" if error is None else f" ({error:.{digits}f})")


def _difference_section(summary: Summary) -> str:
    first = summary.experiment.methods[0].name
    text = [
        "## Differences run by run",
        "",
        f"{first} minus the others, and pairs as named, on the same data: mean [95 % interval by Student's t].",
        "",
    ]
    pairs = list(dict.fromkeys((d.method, d.other) for d in summary.differences))
    names = [other if method == first else f"{method} − {other}" for method, other in pairs]
    axes = summary.experiment.axes
    text.append("| metric | " + " | ".join([*axes, *map(_escaped, names)]) + " |")
    text.append("| --- |" + " ---: |" * (len(axes) + len(pairs)))
    for metric in (m for m in summary.experiment.metrics if m in _COMPARED):
        lines = [d for d in summary.differences if d.metric == metric]
        for place in dict.fromkeys(tuple(d.at.values()) for d in lines):
            here = {(d.method, d.other): d for d in lines if tuple(d.at.values()) == place}
            cells = [_interval(here[pair]) if pair in here else "" for pair in pairs]
            text.append("| " + " | ".join([TITLES.get(metric, metric), *map(str, place), *cells]) + " |")
    return "\n".join(text)


def _interval(difference: Difference) -> str:
    if difference.half is None:
        return f"{difference.mean:+.2f}"
    low, high = difference.mean - difference.half, difference.mean + difference.half
    return f"{difference.mean:+.2f} [{low:+.2f}, {high:+.2f}]"


def _flat(summary: Summary, line: Line) -> dict[str, Any]:
    there = line.published
    return {
        "experiment": summary.experiment.name,
        "preset": summary.preset,
        "method": line.method,
        **line.at,
        "metric": line.metric,
        "mean": f"{line.mean:.6g}",
        "error": "" if line.error is None else f"{line.error:.3g}",
        "runs": line.runs,
        "published": "" if there is None else there.mean,
        "published_error": "" if there is None else f"{there.error:.3g}",
        "distance": "" if line.distance is None else f"{line.distance:.3f}",
    }
