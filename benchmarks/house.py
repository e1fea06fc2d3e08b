"""How large the code is, room by room.

::

    python benchmarks/house.py [--before CHECKOUT]

Lines are those of Python files, with docstrings and blank lines. ``--before`` counts another checkout beside this one.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Rooms of the product, by the modules or packages in them; what is in none is "other".
ROOMS = {
    "input to rows": ("_data", "labels", "_validation", "clusters", "removers.concepts"),
    "errors, registry, extras": ("exceptions", "options", "_registry", "_extras", "lab"),
    "arrays and threads": ("_arrays", "_resources"),
    "files and tables": ("_files", "_text", "io"),
    "tests of directions, trace, subspaces": ("criteria", "trace", "subspace"),
    "choosing, classifier, compare": ("selection", "robust", "compare"),
    "certificate, audit, datasets": ("certificate", "auditing", "datasets"),
    "rows": ("rows",),
    "solvers": ("solvers",),
    "removers": ("removers",),
    "heads": ("heads",),
    "metrics": ("metrics",),
    "surgery": ("surgery",),
    "embed": ("embed",),
    "report": ("report",),
    "command line": ("cli",),
}
#: Other parts of the repository, with the folders whose Python they are.
PARTS = {
    "tests": ("tests",),
    "trials": ("trust",),
    "benchmarks": ("benchmarks",),
    "reproduction": ("reproduction/src", "reproduction/tests", "reproduction/scripts"),
    "documentation and examples": ("docs", "examples"),
}


def lines(path: Path) -> int:
    """Lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def room_of(module: str) -> str:
    """The room of a module such as ``solvers.logistic``: that whose name for it is the longest."""
    fits = [(name, room) for room, names in ROOMS.items() for name in names if f"{module}.".startswith(f"{name}.")]
    return max(fits, key=lambda fit: len(fit[0]), default=("", "other"))[1]


def counted(root: Path) -> dict[str, int]:
    """Lines of every room and part of a checkout, and its number of modules."""
    source = root / "src" / "unspur"
    files = sorted(source.rglob("*.py"))
    rooms: Counter[str] = Counter()
    for path in files:
        module = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        rooms[room_of(module)] += lines(path)
    templates = [path for path in source.rglob("templates/*") if path.is_file()]
    parts = {name: sum(lines(p) for f in own for p in (root / f).rglob("*.py")) for name, own in PARTS.items()}
    return {
        **{room: rooms[room] for room in (*ROOMS, "other")},
        "PRODUCT": rooms.total(),
        "modules": len(files),
        "templates of the report": sum(map(lines, templates)),
        **parts,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="folder of a checkout to compare with")
    before = parser.parse_args().before
    now, then = counted(ROOT), None if before is None else counted(before)
    for name, value in now.items():
        print(f"{name:<40}" + (f"{then[name]:>9,}" if then else "") + f"{value:>9,}")


if __name__ == "__main__":
    main()
