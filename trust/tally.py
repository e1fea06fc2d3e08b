"""What was tried, how often, what survived: the lines of one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Tally:
    """Counts of one claim. A test adds to it while it runs, so that a test that fails is counted as well."""

    part: str
    what: str
    tried: int = 0
    survived: int = 0
    #: What a reader should see beside the counts, in a few words: "size 0.031 (upper bound 0.042)".
    figure: str = ""
    #: Everything behind the figure, for the page: plain numbers and words.
    data: dict[str, Any] = field(default_factory=dict)

    def trial(self, survived: bool = True) -> bool:
        """Count one trial; returns whether it survived."""
        return self.trials(1, int(survived)) == 1

    def trials(self, tried: int, survived: int) -> int:
        """Count several trials; returns how many survived."""
        self.tried += tried
        self.survived += survived
        return survived

    @property
    def all_survived(self) -> bool:
        """Whether something was tried and nothing was lost."""
        return self.tried > 0 and self.survived == self.tried


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table: a claim, its counts and whether it held."""

    part: str
    what: str
    tried: int
    survived: int
    figure: str
    held: bool
    #: Whether it was tried in the long form.
    full: bool
    data: Mapping[str, Any]

    @classmethod
    def of(cls, tally: Mapping[str, Any], *, held: bool, full: bool) -> Line:
        """The line of one tally, as it travelled."""
        return cls(**{**tally, "held": held, "full": full})

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, ready for JSON."""
        return {**asdict(self), "data": dict(self.data)}


def table(lines: Iterable[Line]) -> str:
    """All lines in the order of their parts, at most 120 characters wide; what did not hold is marked."""
    lines = sorted(lines, key=lambda line: (line.part, line.what))
    part = max([len("part"), *(len(line.part) for line in lines)])
    what = min(56, max([len("what was tried"), *(len(line.what) for line in lines)]))
    out = [f"{'part':<{part}}  {'what was tried':<{what}}  {'tried':>7}  {'survived':>8}  "]
    for line in lines:
        told = line.what if len(line.what) <= what else line.what[: what - 1] + "…"
        end = line.figure if line.held else f"DID NOT HOLD  {line.figure}".rstrip()
        out.append(f"{line.part:<{part}}  {told:<{what}}  {line.tried:>7,}  {line.survived:>8,}  {end}".rstrip())
    lost = [line for line in lines if not line.held]
    out.append(f"{len(lines)} claims, {sum(line.tried for line in lines):,} trials, {len(lost)} claims did not hold")
    return "\n".join(out)
