"""Rows on a GPU: one evaluation of the losses, its error against float64, and whole fits.

    PYTHONPATH=src python benchmarks/gpu.py results.json
    PYTHONPATH=src python benchmarks/gpu.py tiny.json --device cpu --n 2000 --d 24 --huge 3000 --repeat 3

The script also runs on another checkout, named by PYTHONPATH. An evaluation is timed from the call to the sums on the
host, and compared with a copy of the same rows on the device in the same run.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unspur import JSE
from unspur.rows import RowLabels
from unspur.rows.torch import TorchRows
from unspur.solvers.logistic import LogisticLosses

TYPES = ("float32", "bfloat16", "float16")


def seconds(work: Any, device: torch.device, repeat: int) -> float:
    """The shortest time of some runs, after three to warm up."""
    times = []
    for turn in range(repeat + 3):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if turn > 2:
            times.append(time.perf_counter() - start)
    return min(times)


def made_up(n: int, d: int, device: torch.device, kind: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows with a direction for each of two labels that agree in 80 %, made where they are, in chunks."""
    generator = torch.Generator(device=device).manual_seed(0)
    z = torch.empty((n, d), dtype=getattr(torch, kind), device=device)
    y = torch.empty(n, dtype=torch.int64, device=device)
    concept = torch.empty_like(y)
    for start in range(0, n, 2**18):
        rows = slice(start, min(n, start + 2**18))
        m = rows.stop - rows.start
        own = torch.randint(0, 2, (m,), generator=generator, device=device)
        other = torch.where(torch.rand(m, generator=generator, device=device) < 0.8, own, 1 - own)
        block = torch.randn((m, d), generator=generator, device=device)
        block[:, 0] += 2.0 * own
        block[:, 1] += 2.0 * other
        z[rows], y[rows], concept[rows] = block.to(z.dtype), own, other
    return z, y, concept


def losses(d: int, weightings: int, n: int) -> LogisticLosses:
    """Losses of both labels under some weightings of 24 cells."""
    rng = np.random.default_rng(0)
    return LogisticLosses(
        rng.standard_normal((weightings, 2, d)) / np.sqrt(d),
        rng.standard_normal((weightings, 2)),
        np.array([0, 1]),
        rng.uniform(0.5, 1.5, (weightings, 24)) / n,
        0.1 * rng.standard_normal(d),
    )


def labelled(z: torch.Tensor, y: torch.Tensor, concept: torch.Tensor) -> TorchRows:
    fold = np.arange(len(z)) % 5 + 1
    return TorchRows(z, RowLabels.of(y.cpu().numpy(), concept.cpu().numpy(), None, fold))


def evaluation(given: argparse.Namespace) -> dict[str, Any]:
    """Seconds of a sum, of one fold and of six, and of a copy of the rows."""
    found = {}
    for kind in TYPES:
        z, y, concept = made_up(given.n, given.d, given.device, kind)
        rows, target = labelled(z, y, concept), torch.empty_like(z)
        copy = seconds(lambda z=z, target=target: target.copy_(z), given.device, given.repeat)
        found[f"{kind}, a copy"] = copy
        for weightings in (1, 6):
            statistic = losses(given.d, weightings, given.n)
            time_of_sum = seconds(lambda rows=rows, one=statistic: rows.sum(one), given.device, given.repeat)
            found[f"{kind}, {2 * weightings} lines"] = time_of_sum
            found[f"{kind}, {2 * weightings} lines, of a copy"] = time_of_sum / copy
    return found


def error(given: argparse.Namespace) -> dict[str, Any]:
    """Largest error of losses and gradients against the same rows in float64, relative to the largest entry."""
    found = {}
    for kind in TYPES:
        z, y, concept = made_up(min(given.n, 1_000_000), given.d, given.device, kind)
        rows, exactly = labelled(z, y, concept), labelled(z.double(), y, concept)
        for weightings in (1, 6):
            statistic = losses(given.d, weightings, len(z))
            sums, exact = rows.sum(statistic), exactly.sum(statistic)
            off = np.abs(sums - exact)
            found[f"{kind}, {2 * weightings} lines, loss"] = float((off[..., 0] / np.abs(exact[..., 0])).max())
            found[f"{kind}, {2 * weightings} lines, gradient"] = float(
                off[..., 1:].max() / np.abs(exact[..., 1:]).max()
            )
    return found


def fit(given: argparse.Namespace) -> dict[str, Any]:
    """Seconds of default fits, and how far directions of each type are from those of float64 rows on the host."""
    z, y, concept = made_up(min(given.n, 100_000), given.d, given.device, "float64")
    reference, found = JSE(random_state=0).fit(z.cpu().numpy(), y.cpu(), concept=concept.cpu()), {}
    for kind in TYPES:
        same = JSE(random_state=0).fit(z.to(getattr(torch, kind)), y, concept=concept)
        found[f"{kind}, largest angle"] = float(same.spurious_.angles(reference.spurious_).max(initial=0.0))
    for kind, n in (("float32", given.n), ("bfloat16", given.n), ("bfloat16", given.huge)):
        z, y, concept = made_up(n, given.d, given.device, kind)
        times = []
        for _ in range(3 if n == given.n else 1):
            start = time.perf_counter()
            jse = JSE(random_state=0).fit(z, y, concept=concept)
            times.append(time.perf_counter() - start)
        found[f"{kind}, n = {n:,}, seconds"] = min(times)
        found[f"{kind}, n = {n:,}, dimensions"] = [jse.spurious_.dim, jse.main_.dim]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--parts", nargs="+", default=["evaluation", "error", "fit"])
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--d", type=int, default=768)
    parser.add_argument("--huge", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=30)
    given = parser.parse_args()
    name = torch.cuda.get_device_name() if given.device.type == "cuda" else str(given.device)
    results: dict[str, Any] = {"device": name, "torch": torch.__version__, "n": given.n, "d": given.d}
    warnings.simplefilter("ignore")
    for part in given.parts:
        results[part] = globals()[part](given)
        for line, value in results[part].items():
            print(
                f"{part:<12} {line:<40} {value:.4g}" if isinstance(value, float) else f"{part:<12} {line:<40} {value}"
            )
        given.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
