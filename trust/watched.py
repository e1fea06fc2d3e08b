"""A user's day with everything it asks of the system written down: ``python -B -m trust.watched FOLDER STEPS``.

An audit hook sees what Python itself sees: names looked up, connections, files opened for writing, processes started,
objects made from pickles. The last line of the output is JSON, a list of (step, event, what).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

NETWORK = (
    "socket.bind",
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.sendto",
    "urllib.Request",
)
PROCESSES = (
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "os.system",
    "subprocess.Popen",
)
PICKLES = ("pickle.find_class",)
CHANGES = (
    "os.chmod",
    "os.link",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.symlink",
    "os.truncate",
    "shutil.rmtree",
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

seen: list[tuple[str, str, str]] = []
step = "start"


def hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        path, mode, flags = arguments
        writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool(flags & WRITING)
        if writes and path != os.devnull:
            seen.append((step, "write", str(path)))
    elif event in NETWORK:
        seen.append((step, "network", f"{event} {arguments[1:] if event.startswith('socket.') else arguments[:1]}"))
    elif event in PROCESSES:
        seen.append((step, "process", f"{event} {arguments[:2]}"))
    elif event in PICKLES:
        seen.append((step, "pickle", ".".join(map(str, arguments))))
    elif event in CHANGES:
        seen.append(
            (step, "write", " -> ".join(str(part) for part in arguments if isinstance(part, str | bytes | Path)))
        )


def day(folder: Path) -> dict[str, Callable[[], Any]]:
    """The steps, each by itself; later ones use what earlier ones left in `have`."""
    have: dict[str, Any] = {}

    def toy() -> None:
        from unspur.datasets import make_toy

        have["train"], have["test"] = (make_toy(600, d=10, rho=rho, random_state=i) for i, rho in enumerate((0.8, 0.0)))

    def fit() -> None:
        import unspur

        train = have["train"]
        have["removers"] = [
            make().fit(train.Z, train.y, concept=train.concept)
            for make in (unspur.JSE, unspur.INLP, unspur.RLACE, unspur.LEACE, unspur.SAL, unspur.SPLINCE)
        ]
        for head in (unspur.ERM, unspur.GroupWeighted, unspur.SUBG, unspur.GroupDRO, unspur.JTT, unspur.DFR):
            head().fit(train.Z, train.y, concept=train.concept)

    def page() -> None:
        from unspur.report.page import build

        train, test = ((part.Z, part.y, part.concept) for part in (have["train"], have["test"]))
        build(have["removers"][0], train, test, folder / "report.html")

    def demo() -> None:
        from unspur.cli import main

        main(["demo", "--json", "--output", str(folder / "demo.png")], standalone_mode=False)

    def load() -> None:
        from unspur import load

        for k, remover in enumerate(have["removers"]):
            load(folder / f"{k}.safetensors").transform(have["test"].Z)
            del remover

    return {
        "import": lambda: __import__("unspur"),
        "import everything": lambda: exec("from unspur import *", {}),
        "make rows": toy,
        "fit": fit,
        "transform": lambda: [remover.transform(have["test"].Z) for remover in have["removers"]],
        "save": lambda: [r.save(folder / f"{k}.safetensors") for k, r in enumerate(have["removers"])],
        "load": load,
        "report": page,
        "demo": demo,
    }


if __name__ == "__main__":
    steps = day(Path(sys.argv[1]))
    sys.addaudithook(hook)
    for step in sys.argv[2].split(","):
        steps[step]()
    print("\n" + json.dumps(seen))
