"""What pyproject.toml declares: every requirement with the extra that brings it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
#: What comes without an extra.
CORE = "core"
#: Extras for those who work on the package, not with it.
FOR_DEVELOPERS = ("docs", "dev")


@dataclass(frozen=True, slots=True)
class Declared:
    """One requirement of the package."""

    extra: str
    requirement: Requirement

    @property
    def name(self) -> str:
        """As an index knows it: pillow, scikit-learn."""
        return canonicalize_name(self.requirement.name)

    @property
    def lowest(self) -> Version:
        """The oldest version that is declared to work."""
        return min(Version(part.version) for part in self.requirement.specifier if part.operator == ">=")


def declared(path: Path = ROOT / "pyproject.toml", *, developers: bool = False) -> list[Declared]:
    """Everything a user can ask for, core first; references of the package to itself are left out."""
    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    listed = {CORE: project["dependencies"], **project["optional-dependencies"]}
    found = [Declared(extra, Requirement(text)) for extra, texts in listed.items() for text in texts]
    own = canonicalize_name(project["name"])
    return [one for one in found if one.name != own and (developers or one.extra not in FOR_DEVELOPERS)]
