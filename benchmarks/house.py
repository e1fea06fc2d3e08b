"""How large the code is, and how it is divided.

Prints one table. Functions and files that a report runs, and how often labels are decoded, are measured by running
``unspur report`` on a small table under a profiler.
"""

from __future__ import annotations

import argparse
import inspect
import os
import pstats
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

BLOCK_LINES = 6

REPORT = """
import cProfile
import numpy as np
try:
    from unspur.datasets import make_toy
except ImportError:
    from unspur.lab.datasets import make_toy
toy = make_toy(1000, rho=0.8, random_state=0)
head = ["bird", "background", *(f"z{k}" for k in range(20))]
np.savetxt("birds.csv", np.vstack([head, np.column_stack([toy.y, toy.concept, toy.Z.round(4)])]), fmt="%s", delimiter=",")
from click.testing import CliRunner
try:
    from unspur.cli import main
except ImportError:
    from unspur.lab.cli import main
profile = cProfile.Profile()
profile.enable()
result = CliRunner().invoke(main, ["report", "birds.csv", "--task", "bird", "--concept", "background"])
profile.disable()
assert result.exit_code == 0, result.output
profile.dump_stats("profile")
"""


def modules(folder: Path) -> dict[Path, list[str]]:
    return {path: path.read_text(encoding="utf-8").splitlines() for path in sorted(folder.rglob("*.py"))}


def repeated_blocks(files: dict[Path, list[str]]) -> int:
    """Blocks of six or more lines that stand twice, each counted once; blank lines and imports do not count."""
    seen: Counter[tuple[str, ...]] = Counter()
    for lines in files.values():
        kept = [line.strip() for line in lines if line.strip() and not re.match(r"\s*(from|import|#)\b", line)]
        for start in range(len(kept) - BLOCK_LINES + 1):
            seen[tuple(kept[start : start + BLOCK_LINES])] += 1
    return sum(number > 1 for number in seen.values())


def of_report(root: Path) -> dict[str, int]:
    """Functions and files of the package that `unspur report` runs, and calls that decode labels."""
    paths = [str(root / "src"), str(root / "reproduction" / "src")]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "-W", "ignore", "-c", REPORT], cwd=folder, env=environment, check=True)
        stats = pstats.Stats(str(Path(folder) / "profile")).stats  # type: ignore[attr-defined]
    own = {key: value for key, value in stats.items() if f"{os.sep}src{os.sep}unspur{os.sep}" in key[0]}
    # `class_label` finds the distinct values of a label unless it is decoded already.
    decoded = sum(value[1] for (_, _, name), value in own.items() if name in ("_different", "_distinct"))
    return {
        "functions run by a report": len(own),
        "files touched": len({key[0] for key in own}),
        "labels decoded": decoded,
    }


def measured(root: Path) -> dict[str, int]:
    product, paper = modules(root / "src"), modules(root / "reproduction" / "src")
    sys.path.insert(0, str(root / "src"))
    import unspur

    texts = [root / "README.md", *(root / "docs").rglob("*.md")]
    written = ("results", "evidence", "gallery", "generated", "changelog", "contributing")
    pages = [page for page in texts if not any(name in page.as_posix() for name in written)]
    everything = [
        line
        for folder in ("src", "reproduction", "tests", "trust", "benchmarks")
        for lines in modules(root / folder).values()
        for line in lines
    ]
    return {
        "modules of the product": len(product),
        "lines of the product": sum(map(len, product.values())),
        "modules of the reproduction": len(paper),
        "lines of the reproduction": sum(map(len, paper.values())),
        "modules under 60 lines (product)": sum(len(lines) < 60 for lines in product.values()),
        "parameters of JSE": len(inspect.signature(unspur.JSE).parameters),
        "public names": len(unspur.__all__),
        "words of the README": len((root / "README.md").read_text(encoding="utf-8").split()),
        "words of the documentation": sum(len(page.read_text(encoding="utf-8").split()) for page in pages[1:]),
        "fmt: skip": sum(line.rstrip().endswith("# fmt: skip") for line in everything),
        "blocks of six lines that stand twice (product)": repeated_blocks(product),
        **of_report(root),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", nargs="?", default=".", type=Path, help="folder of a checkout; the working folder")
    for name, value in measured(parser.parse_args().checkout.resolve()).items():
        print(f"{name:<50} {value:>7,}")
