"""How hard to try, what is counted, and the table at the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from trust.tally import Line, Tally, table

PROPERTY = "tally"


@dataclass(frozen=True, slots=True)
class Effort:
    """Quick (three minutes for everything) or full (what the figures of the page need)."""

    full: bool

    def times(self, quick: int, full: int) -> int:
        """How often to try."""
        return full if self.full else quick


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("trust")
    group.addoption("--full", action="store_true", help="the long form: as many trials as the figures of the page need")
    group.addoption(
        "--record",
        type=Path,
        default=None,
        help="write all counts to this JSON file, beside those it has of other claims",
    )


@pytest.fixture(scope="session")
def effort(request: pytest.FixtureRequest) -> Effort:
    return Effort(request.config.getoption("--full"))


@pytest.fixture
def tally(
    request: pytest.FixtureRequest, record_property: Callable[[str, Any], None]
) -> Iterator[Callable[[str], Tally]]:
    """``tally("kill -9 while embedding")`` opens a line of the table, under the PART of the module."""
    opened: list[Tally] = []

    def line(what: str) -> Tally:
        opened.append(Tally(request.module.PART, what))
        return opened[-1]

    yield line
    for counted in opened:
        record_property(PROPERTY, json.dumps(asdict(counted)))


class Account:
    """Gathers what the tests counted. With workers, the process that starts them sees every report.

    The record grows with every claim that was tried, so a long run that is stopped has lost only the one it was at.
    """

    def __init__(self, record: Path | None, full: bool) -> None:
        self.record, self.full = record, full
        self.failed: set[str] = set()
        self.counted: list[tuple[str, dict[str, Any]]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        if report.when == "teardown":
            told = [json.loads(value) for name, value in report.user_properties if name == PROPERTY]
            self.counted += [(report.nodeid, line) for line in told]
            if told and self.record is not None:
                self.write(self.record)

    @property
    def lines(self) -> list[Line]:
        return [Line.of(told, held=nodeid not in self.failed, full=self.full) for nodeid, told in self.counted]

    def write(self, path: Path) -> None:
        """All lines, beside those that the record has of other claims."""
        path.parent.mkdir(parents=True, exist_ok=True)
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        again = {(line.part, line.what) for line in self.lines}
        kept = [line for line in known if (line["part"], line["what"]) not in again]
        text = json.dumps(kept + [line.to_dict() for line in self.lines], indent=1, ensure_ascii=False)
        (beside := path.with_suffix(".part")).write_text(text + "\n", encoding="utf-8")
        beside.replace(path)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.counted:
            terminalreporter.write_line("\n" + table(self.lines))


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Account(config.getoption("--record"), config.getoption("--full")))
