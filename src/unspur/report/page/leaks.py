"""What a probe still finds, as a table with a chart in each line."""

from __future__ import annotations

from dataclasses import dataclass

from unspur.metrics import Leakage
from unspur.report.page import words
from unspur.report.page.bars import Scale, Tick, Whisker, share_scale, share_ticks
from unspur.report.results import Findings


@dataclass(frozen=True, slots=True)
class Probe:
    """What one probe finds: of what, in which rows, the figures in words, and where to draw them."""

    of: str
    rows: str
    series: int
    figure: str
    interval: str
    chance: str
    p: str
    whisker: Whisker
    rule: float


@dataclass(frozen=True, slots=True)
class Part:
    """Probes that belong together: a title, what it means, and the lines."""

    title: str
    says: str
    probes: tuple[Probe, ...]


@dataclass(frozen=True, slots=True)
class Leaks:
    """All parts on one scale."""

    parts: tuple[Part, ...]
    ticks: tuple[Tick, ...]


def leaks(findings: Findings) -> Leaks:
    """Linear probes of the certificate, those of other methods, and the small network."""
    after = findings.method
    certified = [
        (f"{concept_name(findings, name)}", rows, series, leak)
        for name, pair in findings.certificate.probe.items()
        for rows, series, leak in (("as they are", 0, pair[0]), (f"after {after}", 1, pair[1]))
    ]
    task = findings.certificate.task
    kept = [] if task is None else [
        (findings.main, "as they are", 0, task[0]), (findings.main, f"after {after}", 1, task[1]),
    ]  # fmt: skip
    others = [
        (concept, f"after {judged.name}", series, leak)
        for series, judged in enumerate(findings.judged)
        if series > 1
        for concept, leak in judged.leakage.items()
    ]
    nonlinear = [
        (concept, rows, series, found[concept])
        for concept in findings.nonlinear
        for rows, series, found in (
            ("as they are", 0, findings.nonlinear_before),
            (f"after {after}", 1, findings.nonlinear),
        )
        if concept in found
    ]
    every = [leak for part in (certified, kept, others, nonlinear) for *_, leak in part]
    scale = share_scale([min(leak.low, leak.chance - 0.02) for leak in every])
    parts = [
        (
            "A linear probe for the concept",
            "Lower is better: at chance, a linear classifier learns nothing.",
            certified,
        ),
        ("A small network for the concept", _network(findings), nonlinear),
        ("A linear probe for the concept after other methods", "The same probe, for comparison.", others),
        ("A linear probe for the task", "Higher is better: this is what should stay.", kept),
    ]
    return Leaks(
        tuple(Part(title, says, tuple(_probe(*one, scale) for one in lines)) for title, says, lines in parts if lines),
        tuple(share_ticks(scale)),
    )


def concept_name(findings: Findings, name: str) -> str:
    """What a certificate calls "concept" by its own name, where there is one."""
    if len(findings.concepts) == 1 and name not in findings.concepts and name.startswith("concept"):
        return findings.concepts[0] + name.removeprefix("concept")
    return name


def _network(findings: Findings) -> str:
    found = [name for name, leak in findings.nonlinear.items() if leak.low > leak.chance]
    able = "One hidden layer of 64 units, which can find what no linear classifier finds."
    if not found:
        return f"{able} Here it does not."
    linear = [name for name, leak in findings.after.leakage.items() if leak.low > leak.chance]
    if set(found) <= set(linear):
        return f"{able} It finds the concept, as the linear probe does."
    return "One hidden layer of 64 units: it finds what the linear probe does not, and removal does not hide that."


def _probe(of: str, rows: str, series: int, leak: Leakage, scale: Scale) -> Probe:
    figure, interval = f"{100 * leak.accuracy:.1f}", words.bounds(leak.low, leak.high)
    title = f"{rows}: {figure} % ({interval})"
    whisker = Whisker(scale.at(leak.accuracy), scale.at(leak.low), scale.at(leak.high), 9.0, series, title)
    chance = f"{100 * leak.chance:.0f}"
    return Probe(
        words.clipped(of, 80),
        rows,
        series,
        figure,
        interval,
        chance,
        words.p_value(leak.p),
        whisker,
        scale.at(leak.chance),
    )
