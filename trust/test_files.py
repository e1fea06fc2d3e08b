"""A damaged file is read as something valid or refused in words, and a killed write leaves the file that was there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from trust.declared import ROOT
from unspur import LEACE, load
from unspur.exceptions import UnspurError
from unspur.io import read_table

PART = "files"


def written(folder: Path) -> dict[str, Any]:
    """One file of each kind, and what reads it."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 3)), np.arange(40) % 2
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(label=y)
    LEACE().fit(X, concept=y).save(folder / "removal.safetensors")
    frame.to_csv(folder / "rows.csv", index=False)
    frame.to_parquet(folder / "rows.parquet")
    np.savez(folder / "rows.npz", Z=X, label=y)
    np.save(folder / "rows.npy", X)
    readers: dict[str, Any] = dict.fromkeys(
        ("rows.csv", "rows.parquet", "rows.npz"), lambda p: read_table(p, ["label"])
    )
    return {"removal.safetensors": load, **readers, "rows.npy": read_table}


def damage(content: bytes, cut: float, flips: list[tuple[float, int]]) -> bytes:
    """The first part of a file, with some bytes changed."""
    damaged = bytearray(content[: int(cut * len(content))] if cut < 1 else content)
    for place, value in flips:
        if damaged:
            damaged[int(place * (len(damaged) - 1))] ^= value
    return bytes(damaged)


DAMAGES = st.tuples(
    st.floats(0, 1.5), st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), min_size=1, max_size=4)
)


def test_damaged_files_are_read_or_refused_in_words(tally: Any, effort: Any, tmp_path: Path) -> None:
    line, readers = tally("damaged files: something valid, or one error of ours"), written(tmp_path)
    contents = {name: (tmp_path / name).read_bytes() for name in readers}
    wrong: list[str] = []
    refused = 0

    def judge(name: str, how: tuple[float, list[tuple[float, int]]]) -> None:
        nonlocal refused
        path = tmp_path / f"damaged-{name}"
        path.write_bytes(damage(contents[name], *how))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                readers[name](path)
            line.trial()
        except UnspurError as error:
            refused += 1
            line.trial(0 < len(str(error)) < 1000)
        except Exception as error:
            line.trial(False)
            wrong.append(f"{name}, {how}: {type(error).__name__}: {error}")

    quiet = settings(
        max_examples=effort.times(300, 2000),
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    quiet(given(st.sampled_from(sorted(readers)), DAMAGES)(judge))()
    line.figure = f"{refused} of {line.tried} refused"
    assert line.all_survived, "\n".join(wrong[:10])
    assert refused > line.tried / 4  # the damage is no trifle


SAVE = """
import sys
import numpy as np
from unspur import LEACE
rng = np.random.default_rng(1)
remover = LEACE().fit(rng.standard_normal((600, 2000)), concept=np.arange(600) % 2)
print("ready", flush=True)
while True:
    remover.save(sys.argv[1], overwrite=True)
"""


def test_a_killed_write_leaves_the_file_that_was_there(tally: Any, effort: Any, tmp_path: Path) -> None:
    line, path = tally("kill -9 while a removal is saved: the file is whole"), tmp_path / "removal.safetensors"
    LEACE().fit(np.random.default_rng(0).standard_normal((600, 2000)), concept=np.arange(600) % 2).save(path)
    for trial in range(effort.times(3, 30)):
        process = subprocess.Popen([sys.executable, "-c", SAVE, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.01 + 0.003 * (trial % 20))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        line.trial(load(path).removal_.left.shape[0] == 2000)
    assert line.all_survived
