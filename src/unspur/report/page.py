"""The page: findings as one HTML file that opens in any browser, without a network.

What a page holds of rows fits a budget. Every picture is loaded once. Sizes are tried from large to small; where even
the smallest are too many, some rows get none, and the page says how many have one.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from unspur._extras import require
from unspur._files import atomic, refuse_existing
from unspur._typing import Array, FloatArray
from unspur._version import __version__
from unspur.report import words
from unspur.report.colours import Marker, group_look, in_the_dark
from unspur.report.figures.charts import concept_name, group_bars, ladder, probe_lines, probes
from unspur.report.figures.style import as_svg
from unspur.report.results import Boundary, Findings
from unspur.report.tables import accuracy_frame, audit_frame, numeric_columns, probe_frame, trace_frame
from unspur.report.words import verdict

__all__ = ["build", "check_page", "render", "verdict", "write_page"]

#: SVG paths of markers, all of about the same area.
SHAPES: dict[Marker, str] = {
    "circle": "M4 0A4 4 0 1 1-4 0A4 4 0 1 1 4 0Z",
    "square": "M-3.5-3.5H3.5V3.5H-3.5Z",
    "triangle": "M0-4.8L4.5 3.2H-4.5Z",
    "diamond": "M0-5L5 0L0 5L-5 0Z",
    "cross": "M-4.4-2.6L-2.6-4.4L0-1.8L2.6-4.4L4.4-2.6L1.8 0L4.4 2.6L2.6 4.4L0 1.8L-2.6 4.4L-4.4 2.6L-1.8 0Z",
    "plus": "M-1.5-4.8H1.5V-1.5H4.8V1.5H1.5V4.8H-1.5V1.5H-4.8V-1.5H-1.5Z",
    "down": "M0 4.8L4.5-3.2H-4.5Z",
    "hexagon": "M2.2-3.9L4.5 0L2.2 3.9H-2.2L-4.5 0L-2.2-3.9Z",
}
#: Characters of a page, of all scores, of names and of texts of rows.
MAX_PAGE, MAX_SCORES, MAX_IDS, MAX_TEXTS = 2_900_000, 600_000, 300_000, 1_000_000
#: Characters of thumbnails at most and at least, and of the pictures of extreme rows.
MAX_THUMBNAILS, MIN_THUMBNAILS, MAX_EXTREMES = 1_300_000, 300_000, 600_000
#: Sides in pixels and qualities that are tried for thumbnails and for pictures of extreme rows, best first.
SHEET_SIZES = ((64, 70), (64, 50), (48, 55), (40, 40), (32, 35), (24, 25), (24, 12))
PICTURE_SIZES = ((192, 75), (160, 70), (128, 65), (96, 50), (72, 40), (48, 40))
#: Longest side of a sheet in pixels, which takes 100 MB while it is made; larger pictures are reduced while loaded.
_MAX_SHEET_SIDE, _MAX_COPIED_SIDE = 5_000, 1024
#: Sides in pixels up to which a picture is enlarged without smoothing.
MAX_COARSE_SIDE = 48
#: Longest text of an extreme row, and directions of each role that are shown at once; the others are folded away.
MAX_EXAMPLE_TEXT, SHOWN_FIRST = 320, 2
#: Most tests in one chart; of more, those of the directions of the concept are drawn, and the table has all.
MAX_RUNGS = 200
#: Code of rows without a known group, and of the largest score.
_UNKNOWN = _MAX_CODE = 65_535
#: Characters that would end a script element or a line of a script, or cannot be written in UTF-8 (surrogates).
_UNSAFE = {code: f"\\u{code:04x}" for code in (*map(ord, "<>&\u2028\u2029"), *range(0xD800, 0xE000))}
#: Figures, intervals and a command in a sentence.
_INTERVAL = r"\([^()]*?\d(?: – | to )[+−]?\d[^()]*?\)"
_FIGURE = r"\d[\d\u202f.,]* (?:%|of \d[\d\u202f]* directions?)|[+−]?\d+\.\d points?"
_MARKED = re.compile(f"(?P<interval>{_INTERVAL})|(?P<figure>{_FIGURE})|(?<=: )(?P<command>unspur .*)$")


def build(
    remover: Any,
    train: Any,
    test: Any,
    path: str | PathLike[str],
    *,
    title: str | None = None,
    overwrite: bool = False,
    **options: Any,
) -> Path:
    """Measure what a fitted removal does, and write a page that opens in a browser, without a network.

    Parameters
    ----------
    remover : a fitted remover of this package, or a `RobustClassifier`.
    train, test : rows with their labels, tuples (X, y, concept). Heads are trained on the first, and everything
        is measured on the second, which the removal should not have seen.
    path : the file of the page; an existing file is kept unless `overwrite`.
    title : title of the page.
    **options : options of `unspur.report.measure`: names of the labels (`main`, `concept`), `validation` rows, other
        methods to `compare` with, `pictures` or `texts` of the test rows, and more.

    Returns
    -------
    The path.

    Examples
    --------
    >>> from unspur import JSE
    >>> from unspur.datasets import make_toy
    >>> from unspur.report import build
    >>> train = make_toy(2000, rho=0.8, random_state=0)
    >>> test = make_toy(2000, rho=0.0, random_state=1)
    >>> jse = JSE(random_state=0).fit(train.Z, train.y, concept=train.concept)
    >>> build(
    ...     jse,
    ...     (train.Z, train.y, train.concept),
    ...     (test.Z, test.y, test.concept),
    ...     "report.html",
    ...     main="bird",
    ...     concept="background",
    ...     compare=["LEACE", "GroupWeighted"],
    ... )  # doctest: +SKIP
    PosixPath('report.html')
    """
    from unspur.report.measuring import measure

    check_page(path, overwrite=overwrite)
    return write_page(measure(remover, train, test, **options), path, title=title, overwrite=overwrite)


def check_page(path: str | PathLike[str], *, overwrite: bool = False) -> None:
    """Raise unless a page can be written there, before minutes are spent on its content."""
    refuse_existing(path, overwrite=overwrite)
    require("The report needs", "jinja2", "matplotlib")


def write_page(
    findings: Findings, path: str | PathLike[str], *, title: str | None = None, overwrite: bool = False
) -> Path:
    """Write the page of findings atomically: a process that is killed leaves no half-written page."""
    page = render(findings, title=title)
    with atomic(path, overwrite=overwrite) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return Path(path)


def render(findings: Findings, *, title: str | None = None) -> str:
    """The page as text, which depends on the findings alone."""
    environment, findings = _environment(), words.with_short_names(findings)
    pictures = _pictures(findings)
    axes = axes_that_fit(findings)
    first = tuple(axes.index(k) for k in findings.view.first_pair())
    found = probe_lines(findings)
    accuracy = accuracy_frame(findings, weighted=False)
    traces = findings.traces
    if sum(map(len, traces.values())) > MAX_RUNGS:
        outer = {name: tuple(step for step in trace if not step.inner) for name, trace in traces.items()}
        traces = {name: replace(trace, steps=outer[name]) for name, trace in traces.items()}
    tested = 0 < sum(map(len, traces.values())) <= MAX_RUNGS
    known: dict[str, tuple[Callable[..., Any], bool]] = {
        "groups": (group_bars, accuracy is not None),
        "ladder": (ladder, tested),
        "probes": (probes, bool(found)),
    }
    drawn = {
        name: as_svg(draw, replace(findings, traces=traces)) if there else "" for name, (draw, there) in known.items()
    }
    charts, chart_style = _as_classes(drawn, len(findings.groups))
    style = _read("page.css") + chart_style
    script = f"(() => {{\n'use strict';\n{_read('page.js')}\n}})();"
    concepts = words.join_with_and([words.named(name) for name in findings.concepts])
    certificate = findings.certificate
    parts: dict[str, Any] = {
        "findings": findings,
        "title": title or f"Removing {concepts}, keeping {words.named(findings.main)}",
        "policy": _policy(style, script),
        "style": style,
        "script": script,
        "sentences": words.sentences(findings),
        "further": words.context_sentences(findings),
        "tiles": tiles(findings),
        "charts": charts,
        "accuracy": accuracy,
        "weighted": accuracy_frame(findings, weighted=True),
        "subspaces": words.subspaces(findings),
        "axes": [findings.view.axes[k] for k in axes],
        "first": first,
        "means": group_means(findings, axes),
        "tests": [
            {"name": f"Tests{f' of {name}' if name else ''}", "frame": trace_frame(trace), "length": len(trace)}
            for name, trace in findings.traces.items()
        ],
        "meanings": direction_examples(findings, pictures),
        "probes": probe_frame(found),
        "covariance": {concept_name(findings, name): share for name, share in certificate.covariance_left.items()},
        "audit": audit_frame(findings),
    }
    template = environment.get_template("page.html.jinja")

    def page(sheet: Sheet | None) -> str:
        data = safe_json(scatter_data(findings, axes, first, sheet))
        return str(template.render(**parts, sheet=sheet, data=data))

    budget = min(MAX_THUMBNAILS, max(MIN_THUMBNAILS, MAX_PAGE - len(page(None).encode())))
    thumbnails = [pictures[row] for row in findings.drawn_rows.tolist() if row in pictures]
    return page(thumbnail_sheet(thumbnails, budget)).lstrip()


def _environment() -> Any:
    """Templates with escaping."""
    require("The report needs", "jinja2", "matplotlib")
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=words.fit,
    )
    environment.filters |= {
        name: getattr(words, name)
        for name in ("clipped", "count", "join_with_and", "named", "number", "percent", "plural")
    }
    environment.filters |= {"numeric_columns": numeric_columns, "told": _told}
    environment.globals |= {"caveat": words.CAVEAT, "group_path": _group_path, "version": __version__}
    return environment


def _told(sentence: str) -> Any:
    """A sentence with its figures in bold, its intervals in grey, and a command at its end as code."""
    from markupsafe import Markup

    elements = {"interval": 'span class="interval"', "figure": "strong", "command": "code"}
    parts, at = [], 0
    for match in _MARKED.finditer(sentence := words.fit(sentence)):
        element = elements[match.lastgroup or ""]
        parts.append(html.escape(sentence[at : match.start()]))
        parts.append(f"<{element}>{html.escape(match.group())}</{element.split()[0]}>")
        at = match.end()
    return Markup("".join(parts) + html.escape(sentence[at:]))


def _read(name: str) -> str:
    return files("unspur.report").joinpath("templates", name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """A content security policy that allows only this style, this script, and pictures inside the page."""
    style_hash, script_hash = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)
    )
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _as_classes(charts: Mapping[str, str], groups: int) -> tuple[dict[str, str], str]:
    """Charts with classes in place of styles, which the policy forbids, and a style sheet for them and for groups.

    Every colour is a custom property with a value for light and one for dark.
    """
    styles: dict[str, int] = {}
    colours = {group_look(k)[0].upper() for k in range(groups)}

    def coloured(text: str) -> str:
        found = {colour.upper() for colour in re.findall(r"#[0-9a-fA-F]{6}\b", text)}
        colours.update(found)
        return re.sub(r"#([0-9a-fA-F]{6})\b", lambda colour: f"var(--c{colour.group(1).upper()})", text)

    def as_class(match: re.Match[str]) -> str:
        plain = re.sub(
            r"font-family:[^;]*;? ?", "", re.sub(r"\bfont: ([\d.]+px)[^;]*", r"font-size: \1", match.group(1))
        )
        return f' class="c{styles.setdefault(coloured(plain), len(styles))}"'

    made = {
        name: re.sub(
            r'(fill|stroke)="(#[0-9a-fA-F]{6})"',
            lambda match: f'{match.group(1)}="{coloured(match.group(2))}"',
            re.sub(r' style="([^"]*)"', as_class, chart),
        )
        for name, chart in charts.items()
    }
    light = "".join(f"--c{colour[1:]}:{colour};" for colour in sorted(colours))
    dark = "".join(f"--c{colour[1:]}:{in_the_dark(colour)};" for colour in sorted(colours))
    looks = "".join(f"--g{k}:var(--c{group_look(k)[0][1:].upper()});" for k in range(groups))
    rules = [f".c{number}{{{style}}}" for style, number in styles.items()]
    rules += [f".g{k}{{--mark:var(--g{k})}}" for k in range(groups)]
    schemes = [
        f":root{{{light}{looks}}}",
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}",
        f":root[data-printing]{{{light}}}",
    ]
    return made, "".join([*schemes, *rules])


def _group_path(number: int) -> str:
    """SVG path of the marker of a group."""
    return SHAPES[group_look(number)[1]]


def tiles(findings: Findings) -> list[tuple[str, str, str, str, str]]:
    """Key figures as far as they are known: label, figure, unit, interval, note."""
    kept = ""
    if findings.n_main:
        stay = "more belongs to {} and stays" if findings.n_main == 1 else "more belong to {} and stay"
        kept = f"{findings.n_main} {stay.format(words.named(findings.main))}"
    removed = words.count(findings.n_removed)
    found = [("directions removed", removed, f"of {words.count(findings.n_features)}", "", kept)]
    before, after, change = findings.before.accuracy, findings.headline.accuracy, findings.headline.average_change
    if before is not None and after is not None:
        was = f"was {words.with_interval(before.worst, before.worst_interval())}"
        found.append(("worst group", f"{100 * after.worst:.1f}", "%", words.bounds(*after.worst_interval()), was))
    if change is not None and after is not None:
        now = f"now {words.with_interval(after.average, after.average_interval())}"
        interval = words.signed_bounds(change.low, change.high)
        found.append(("average over rows", words.signed(change.value), words.points(change.value), interval, now))
    if leaks := findings.after.leakage:
        name, leak = max(leaks.items(), key=lambda item: item[1].accuracy - item[1].chance)
        note, earlier = f"chance is {words.chance(leak.chance)}", findings.before.leakage.get(name)
        if earlier is not None:
            note = f"was {words.with_interval(earlier.accuracy, (earlier.low, earlier.high), 0)}; {note}"
        interval = words.bounds(leak.low, leak.high, 0)
        found.append((f"linear probe for {words.named(name)}", f"{100 * leak.accuracy:.0f}", "%", interval, note))
    return found


def safe_json(value: Any) -> str:
    """JSON that is safe inside a script element."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_UNSAFE)


def axes_that_fit(findings: Findings) -> list[int]:
    """Numbers of the axes whose scores fit the budget: the first pair, then the others in their order."""
    each = len(findings.drawn_rows) * 2 * 2 * 4 / 3
    most = max(2, int(MAX_SCORES / max(each, 1.0)))
    order = dict.fromkeys((*findings.view.first_pair(), *range(len(findings.view.axes))))
    return sorted(list(order)[:most])


def scatter_data(findings: Findings, axes: Sequence[int], first: Sequence[int], sheet: Sheet | None) -> dict[str, Any]:
    """Data of the scatter: rows in `drawn_rows`, and the given axes."""
    view, shown = findings.view, np.asarray(findings.drawn_rows)
    before, after = (scores[shown][:, list(axes)] for scores in (view.before, view.after))
    both = np.vstack([before, after, np.zeros((1, len(axes)))])
    low, high = both.min(axis=0), both.max(axis=0)
    group = np.where(findings.group[shown] < 0, _UNKNOWN, findings.group[shown])
    texts = None
    if findings.content is not None and findings.content.kind == "text":
        texts = clip_texts([text_of(findings.content[i]) for i in shown.tolist()], 160, MAX_TEXTS)
    return {
        "rows": len(shown),
        "axes": [{"name": view.axes[k].name} for k in axes],
        "first": list(first),
        "low": _seven_figures(low),
        "high": _seven_figures(high),
        "before": _sixteen_bits(before, low, high),
        "after": _sixteen_bits(after, low, high),
        "group": _bytes(group, "<u2"),
        "right": _bytes(findings.correct_before[shown] + 2 * findings.correct_after[shown], "u1"),
        "groups": [{"name": name, "path": _group_path(k)} for k, name in enumerate(findings.groups)],
        "shapes": {name: SHAPES[name] for name in ("circle", "cross")},
        "ids": clip_texts([findings.ids[i] for i in shown.tolist()], 80, MAX_IDS),
        "texts": texts,
        "sheet": None if sheet is None else asdict(sheet),
        "boundary": [_boundary(one, axes) for one in (view.boundary_before, view.boundary_after)],
        "gram": [_seven_figures(line) for line in view.gram[np.ix_(list(axes), list(axes))]],
        "means": group_means(findings, axes),
        "method": findings.method,
    }


def group_means(findings: Findings, axes: Sequence[int]) -> list[list[list[float | None]]]:
    """Mean scores of all test rows: before and after, by group, by axis; None for a group without rows.

    They are rounded to three figures of the largest score of their axis.
    """
    found = []
    reach = np.abs(np.vstack([findings.view.before, findings.view.after])).max(axis=0)[list(axes)]
    unit = 10.0 ** (np.floor(np.log10(np.maximum(reach, 1e-300))) - 2)
    for scores in (findings.view.before, findings.view.after):
        groups = [scores[findings.group == number][:, list(axes)] for number in range(len(findings.groups))]
        means = [np.round(rows.mean(axis=0) / unit) * unit if len(rows) else reach * np.nan for rows in groups]
        found.append([_seven_figures(mean) for mean in means])
    return found


def clip_texts(texts: Sequence[str], most: int, budget: int) -> list[str]:
    """Texts on one line each, cut to `most` characters, or to fewer if that takes more than the budget."""
    while True:
        cut = [words.clipped(text, most) for text in texts]
        if most <= 8 or len(safe_json(cut).encode()) <= budget:
            return cut
        most = int(0.8 * most)


def text_of(content: Any) -> str:
    """One text, or two with a separator."""
    return content if isinstance(content, str) else " ∥ ".join(map(str, content))


def _boundary(boundary: Boundary | None, axes: Sequence[int]) -> dict[str, Any] | None:
    if boundary is None:
        return None
    return {"offset": float(boundary.offset), "along": _seven_figures(np.asarray(boundary.along)[list(axes)])}


def _sixteen_bits(scores: FloatArray, low: FloatArray, high: FloatArray) -> str:
    """Scores (n, m) as integers from 0 (`low`) to 65,535 (`high`), axis by axis, in Base64."""
    width = np.where(high > low, high - low, 1.0)
    return _bytes(np.round((scores - low) / width * _MAX_CODE).T, "<u2")


def _bytes(values: Array, kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode()


def _seven_figures(values: Any) -> list[float | None]:
    """Numbers for JSON to seven figures; None for those that are not finite."""
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in np.asarray(values).tolist()]


@dataclass(frozen=True, slots=True)
class Sheet:
    """Thumbnails of the first `count` rows in a grid of so many columns, `size` pixels each."""

    source: str
    size: int
    columns: int
    count: int


def _pictures(findings: Findings) -> dict[int, Any]:
    """Small pictures of all rows on the page, by number; those of extreme rows are larger."""
    if findings.content is None or findings.content.kind != "image":
        return {}
    require("A page with pictures needs", "PIL")
    most = dict.fromkeys(findings.drawn_rows.tolist(), SHEET_SIZES[0][0])
    most |= dict.fromkeys(extreme_rows(findings), PICTURE_SIZES[0][0])
    return {row: _fitted(findings.content[row], side) for row, side in most.items()}


def thumbnail_sheet(pictures: Sequence[Any], budget: int) -> Sheet | None:
    """The best sheet of at most `budget` characters; None without pictures."""
    if not pictures:
        return None
    native, columns = max(max(picture.size) for picture in pictures), math.ceil(math.sqrt(len(pictures)))
    for side, quality in SHEET_SIZES:
        side = min(side, native)
        if columns * side <= _MAX_SHEET_SIDE and len(text := _sheet(pictures, side, quality)) <= budget:
            return Sheet(text, side, columns, len(pictures))
    side, quality = min(SHEET_SIZES[-1][0], native), SHEET_SIZES[-1][1]
    kept = pictures[: (_MAX_SHEET_SIDE // side) ** 2]
    while len(text := _sheet(kept, side, quality)) > budget and len(kept) > 1:
        kept = kept[: max(1, int(0.95 * len(kept) * budget / len(text)))]
    return Sheet(text, side, math.ceil(math.sqrt(len(kept))), len(kept))


def _sheet(pictures: Sequence[Any], side: int, quality: int) -> str:
    """Pictures side by side, each whole on a grey square, as a data address."""
    from PIL import Image, ImageOps

    columns = math.ceil(math.sqrt(len(pictures)))
    whole = Image.new("RGB", (columns * side, -(-len(pictures) // columns) * side), (128, 128, 128))
    for k, picture in enumerate(pictures):
        tile = ImageOps.pad(picture, (side, side), color=(128, 128, 128))
        whole.paste(tile, (k % columns * side, k // columns * side))
    return _address(whole, quality)


def sources(pictures: Sequence[Any], budget: int) -> list[str]:
    """Pictures as data addresses, as large as `budget` allows for all; "" for those that do not fit."""
    texts: list[str] = []
    for side, quality in PICTURE_SIZES:
        texts = [_address(_fitted(picture, side), quality) for picture in pictures]
        if sum(map(len, texts)) <= budget:
            return texts
    left = budget - np.cumsum([len(text) for text in texts])
    return [text if rest >= 0 else "" for text, rest in zip(texts, left, strict=True)]


def _fitted(picture: Any, side: int) -> Any:
    """A copy in RGB of at most `side` × `side` pixels."""
    picture = picture if picture.mode == "RGB" else picture.convert("RGB")
    times = max(picture.size) // _MAX_COPIED_SIDE + 1
    small = picture.reduce(times) if times > 1 else picture.copy()
    small.thumbnail((side, side))
    return small


def _address(picture: Any, quality: int) -> str:
    """A picture as a data address."""
    buffer = io.BytesIO()
    picture.save(buffer, "webp", quality=quality, method=4)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()


def direction_examples(
    findings: Findings, pictures: Mapping[int, Any]
) -> list[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]]:
    """What directions mean, by role: how many of how many, those shown at once, and the rest.

    Each has the rows at both of its ends. `pictures` are those of rows by number.
    """
    rows = list(dict.fromkeys(row for row in extreme_rows(findings) if row in pictures))
    found = dict(zip(rows, sources([pictures[row] for row in rows], MAX_EXTREMES), strict=True))
    texts = findings.content if findings.content is not None and findings.content.kind == "text" else None

    def example(row: int, axis: int) -> dict[str, Any]:
        return {
            "id": words.clipped(str(findings.ids[row]), 80),
            "group": int(findings.group[row]),
            "score": words.number(float(findings.view.before[row, axis])),
            "source": found.get(row, ""),
            "text": "" if texts is None else words.clipped(text_of(texts[row]), MAX_EXAMPLE_TEXT),
            "coarse": row in pictures and max(pictures[row].size) <= MAX_COARSE_SIDE,
        }

    roles = []
    for role, name, total in (("spurious", "concept", findings.n_removed), ("main", "task", findings.n_main)):
        ones = []
        for extremes in findings.extremes:
            axis = findings.view.axes[extremes.axis]
            if axis.role == role:
                pairs = (("low", extremes.low), ("high", extremes.high))
                ends = [(end, [example(row, extremes.axis) for row in rows.tolist()]) for end, rows in pairs]
                ones.append({"name": axis.name, "role": role, "ends": ends})
        counted = f"the first {len(ones)} of {words.plural(total, f'{name} direction')}" if len(ones) < total else ""
        if ones:
            roles.append((counted, ones[:SHOWN_FIRST], ones[SHOWN_FIRST:]))
    return roles


def extreme_rows(findings: Findings) -> list[int]:
    """Rows that `direction_examples` shows pictures of."""
    return [row for extremes in findings.extremes for end in (extremes.low, extremes.high) for row in end.tolist()]
