"""Rows on a GPU, against what its memory can do: one evaluation, its error, and whole fits.

    PYTHONPATH=src python benchmarks/gpu.py results.json
    PYTHONPATH=src python benchmarks/gpu.py tiny.json --device cpu --n 2000 --d 24 --huge 3000 --small 2000 --repeat 3

Times on the device are by CUDA events; what includes the way to the host and back is by the clock. Times of an
evaluation are also given as a ratio to a copy of the same rows on the device in the same run. Needs torch, and triton
for the fused kernel.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import json
import pstats
import time
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unspur import JSE
from unspur._arrays import exact_products
from unspur.rows import Block, RowLabels
from unspur.rows.source import slices
from unspur.rows.torch import TorchRows
from unspur.solvers import fused
from unspur.solvers.fused import Setting, fused_losses, launched, launched_in_two, runs_on
from unspur.solvers.logistic import LogisticLosses

PARTS = ("evaluation", "sweep", "error", "fit", "huge", "angles")
#: What each parameter of the kernel is tried at, one after the other, from the best so far.
TRIED: dict[str, tuple[Any, ...]] = {
    "warps": (1, 2, 4),
    "rows": (1, 2, 4, 8, 16),
    "stages": (1, 2, 3, 4),
    "split": (True, False),
    "programs": (2, 4, 6, 8, 12, 16, 32),
}


class Clock:
    """Times of something on a device, in seconds."""

    def __init__(self, device: torch.device, repeat: int):
        self.cuda, self.repeat = device.type == "cuda", repeat

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def on_device(self, work, *given) -> dict[str, float]:
        """Of ``work(*given)``, by events around each repetition; nothing in it may wait for the device."""
        if not self.cuda:
            return self.by_the_clock(work, *given)
        for _ in range(3):
            work(*given)
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(self.repeat)]
        self.wait()
        for start, end in pairs:
            start.record()
            work(*given)
            end.record()
        self.wait()
        return _summary([start.elapsed_time(end) / 1e3 for start, end in pairs])

    def by_the_clock(self, work, *given) -> dict[str, float]:
        """From the call to its result on the host."""
        for _ in range(3):
            work(*given)
        times = []
        for _ in range(self.repeat):
            self.wait()
            start = time.perf_counter()
            work(*given)
            self.wait()
            times.append(time.perf_counter() - start)
        return _summary(times)


def _summary(times: list[float]) -> dict[str, float]:
    return {"best_s": min(times), "median_s": float(np.median(times))}


def made_up(n: int, d: int, device: torch.device, dtype: torch.dtype, seed: int = 0):
    """Rows with a spurious and a main direction whose labels agree in 80 %, made where they are, chunk by chunk."""
    generator = torch.Generator(device=device).manual_seed(seed)
    z = torch.empty((n, d), dtype=dtype, device=device)
    y = torch.empty(n, dtype=torch.int64, device=device)
    concept = torch.empty_like(y)
    for start in range(0, n, 2**18):
        rows = slice(start, min(n, start + 2**18))
        m = rows.stop - rows.start
        own = torch.randint(0, 2, (m,), generator=generator, device=device)
        same = torch.rand(m, generator=generator, device=device) < 0.8
        other = torch.where(same, own, 1 - own)
        block = torch.randn((m, d), generator=generator, device=device)
        block[:, 0] += 2.0 * own
        block[:, 1] += 2.0 * other
        z[rows], y[rows], concept[rows] = block.to(dtype), own, other
    return z, y, concept


def losses(d: int, t: int, cells: int, n: int) -> LogisticLosses:
    rng = np.random.default_rng(0)
    return LogisticLosses(
        rng.standard_normal((t, 2, d)) / np.sqrt(d),
        rng.standard_normal((t, 2)),
        np.array([0, 1]),
        rng.uniform(0.5, 1.5, (t, cells)) / n,
        0.1 * rng.standard_normal(d),
    )


def rows_and_block(z: torch.Tensor, y: torch.Tensor, concept: torch.Tensor) -> tuple[TorchRows, Block]:
    fold = np.arange(len(z)) % 5 + 1
    rows = TorchRows(z, RowLabels.of(y.cpu().numpy(), concept.cpu().numpy(), None, fold))
    return rows, rows._beside.block(z, slice(None))


def plain(statistic: LogisticLosses, rows: TorchRows, block: Block):
    """The plain tensor path, on the device."""
    if block.z.dtype.itemsize >= 4:
        return statistic(block)
    total = None
    for part in slices(rows.n_rows, rows._block_rows):
        value = statistic(rows._beside.block(rows._read(part), part))
        total = value if total is None else total + value
    return total


def evaluation(args, clock: Clock) -> dict[str, Any]:
    out = {name: _evaluated(args, clock, name) for name in ("float32", "bfloat16")}
    if fused._failed:
        out["fused kernel"] = f"not used: {fused._failed}"
        print(out["fused kernel"])
    return out


def _evaluated(args, clock: Clock, name: str) -> dict[str, Any]:
    z, y, concept = made_up(args.n, args.d, args.device, getattr(torch, name))
    copy = clock.on_device(torch.empty_like(z).copy_, z)
    out: dict[str, Any] = {"copy": copy, "copy_TB_per_s": 2 * z.numel() * z.dtype.itemsize / copy["best_s"] / 1e12}
    rows, block = rows_and_block(z, y, concept)
    setting = Setting.of(args.d)
    for lines, t in ((2, 1), (12, 6)):
        statistic = losses(args.d, t, 24, args.n)
        with exact_products(z):
            out[f"plain, {lines} lines"] = clock.on_device(plain, statistic, rows, block)
        if runs_on(z.device) and fused_losses(statistic, block) is not None:
            kernel = (launched, statistic, block, setting) if lines == 2 else (launched_in_two, statistic, block)
            out[f"fused, {lines} lines"] = clock.on_device(*kernel)
            there = clock.by_the_clock(fused_losses, statistic, block)
            out[f"fused, {lines} lines, result on the host"] = there
        out[f"sum, {lines} lines, result on the host"] = clock.by_the_clock(rows.sum, statistic)
    for value in out.values():
        if isinstance(value, dict):
            value |= {f"{k[:-2]}_of_a_copy": value[k] / copy[k] for k in ("best_s", "median_s")}
    _show(f"evaluation, {name}, n = {args.n}, d = {args.d}", out)
    return out


def sweep(args, clock: Clock) -> dict[str, Any]:
    """The kernel's parameters, one at a time from the best so far, two rounds."""
    if not runs_on(args.device):
        return {"sweep": "no GPU"}
    return {name: _swept(args, clock, name) for name in ("float32", "bfloat16")}


def _swept(args, clock: Clock, name: str) -> dict[str, Any]:
    z, y, concept = made_up(args.n, args.d, args.device, getattr(torch, name))
    _, block = rows_and_block(z, y, concept)
    copy = clock.on_device(torch.empty_like(z).copy_, z)["best_s"]
    statistic = losses(args.d, 1, 24, args.n)
    seen: dict[Setting, float] = {}

    def cost(setting: Setting) -> float:
        if setting not in seen:
            try:
                seen[setting] = clock.on_device(launched, statistic, block, setting)["best_s"]
            except Exception as error:  # does not fit the chip
                print(f"{setting}: {type(error).__name__}")
                seen[setting] = float("inf")
        return seen[setting]

    default = best = Setting.of(args.d)
    for _ in range(2):
        for parameter, values in TRIED.items():
            best = min((replace(best, **{parameter: value}) for value in values), key=cost)
    ranked = sorted((item for item in seen.items() if np.isfinite(item[1])), key=lambda item: item[1])
    lines = [asdict(setting) | {"seconds": s, "of_a_copy": s / copy} for setting, s in ranked]
    for line in lines[:6]:
        print(f"sweep, {name}: {line}")
    return {"copy": copy, "default": asdict(default) | {"of_a_copy": cost(default) / copy}, "tried": lines}


def error(args, clock: Clock) -> dict[str, Any]:  # noqa: ARG001
    """Largest error of loss and gradient against float64 on the same rows, relative to the largest entry of each."""
    out: dict[str, Any] = {}
    n = min(args.n, 1_000_000)
    for name in ("float32", "bfloat16", "float16"):
        z, y, concept = made_up(n, args.d, args.device, getattr(torch, name))
        rows, block = rows_and_block(z, y, concept)
        statistic = losses(args.d, 1, 24, n)
        exact = TorchRows(z.double(), rows.labels).sum(statistic)
        with exact_products(z):
            ways = {"plain": plain(statistic, rows, block).cpu().numpy()}
        if runs_on(z.device) and (found := fused_losses(statistic, block)) is not None:
            ways["fused"] = found
        for way, found in ways.items():
            out[f"{name}, {way}"] = {
                "loss": float(np.abs(found[..., 0] / exact[..., 0] - 1).max()),
                "gradient": float(np.abs(found[..., 1:] - exact[..., 1:]).max() / np.abs(exact[..., 1:]).max()),
            }
    _show(f"error against float64, n = {n}", out)
    return out


def _fit(z, y, concept, **settings) -> tuple[JSE, dict[str, Any]]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if z.is_cuda:
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
        held = torch.cuda.memory_allocated() if z.is_cuda else 0
        start = time.perf_counter()
        jse = JSE(random_state=0, **settings).fit(z, y, concept=concept)
        seconds = time.perf_counter() - start
    peak = torch.cuda.max_memory_allocated() - held if z.is_cuda else 0
    return jse, {
        "seconds": seconds,
        "spurious": jse.spurious_.dim,
        "main": jse.main_.dim,
        "evaluations": int(sum(step.evaluations for step in jse.trace_)),
        "peak_GB_beside_Z": peak / 1e9,
        "warnings": sorted({str(w.message)[:200] for w in said}),
    }


def _profile(z, y, concept, **settings) -> list[str]:
    """Where the time goes, in a run of its own: being watched takes time."""
    profile, text = cProfile.Profile(), io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        profile.runcall(JSE(random_state=0, **settings).fit, z, y, concept=concept)
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(18)
    return [line for line in text.getvalue().splitlines() if line.strip()][4:26]


def fit(args, clock: Clock) -> dict[str, Any]:  # noqa: ARG001
    z, y, concept = made_up(args.n, args.d, args.device, torch.float32)
    _fit(z[:5000], y[:5000], concept[:5000])  # kernels are compiled, libraries loaded
    out = {}
    cases: dict[str, dict[str, Any]] = {"default": {}, "metric=0": {"metric": 0.0}, "cv=0.2": {"cv": 0.2}}
    for name, settings in cases.items():
        runs = [_fit(z, y, concept, **settings)[1] for _ in range(3)]
        out[name] = min(runs, key=lambda run: run["seconds"]) | {"all_seconds": [run["seconds"] for run in runs]}
        _show(f"JSE, n = {args.n}, float32, {name}", out[name])
        out[name]["profile"] = _profile(z, y, concept, **settings)
        print("\n".join(out[name]["profile"]))
    return out


def huge(args, clock: Clock) -> dict[str, Any]:  # noqa: ARG001
    z, y, concept = made_up(args.huge, args.d, args.device, torch.bfloat16)
    out = {"GB": z.numel() * 2 / 1e9}
    for name, settings in (("cv=0.2", {"cv": 0.2}), ("default", {})):
        jse, out[name] = _fit(z, y, concept, **settings)
        start = time.perf_counter()
        clean = jse.transform(z)
        if z.is_cuda:
            torch.cuda.synchronize()
        out[name]["transform_s"] = time.perf_counter() - start
        out[name]["same_place"] = str(clean.dtype), str(clean.device)
        _show(f"JSE, n = {args.huge}, bfloat16, {name}", out[name])
        del clean
    return out


def angles(args, clock: Clock) -> dict[str, Any]:  # noqa: ARG001
    """Largest angle in radians to what float64 rows on the host give."""
    z, y, concept = made_up(args.small, args.d, args.device, torch.float64)
    reference = JSE(random_state=0).fit(z.cpu().numpy(), y, concept=concept)
    out: dict[str, Any] = {"dimensions": [reference.spurious_.dim, reference.main_.dim]}
    for name in ("float64", "float32", "bfloat16", "float16"):
        found = JSE(random_state=0).fit(z.to(getattr(torch, name)), y, concept=concept)
        same = (found.spurious_.dim, found.main_.dim) == (reference.spurious_.dim, reference.main_.dim)
        out[name] = {
            "spurious": float(found.spurious_.angles(reference.spurious_).max(initial=0.0)),
            "main": float(found.main_.angles(reference.main_).max(initial=0.0)),
            "same_dimensions": same,
        }
    _show(f"angles to float64 on the host, n = {args.small}", out)
    return out


def _without_profiles(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_profiles(part) for name, part in value.items() if name != "profile"}
    return value


def _show(title: str, values: dict[str, Any]) -> None:
    print(f"\n{title}")
    for name, value in values.items():
        text = value
        if isinstance(value, dict) and "best_s" in value:
            text = f"{1e3 * value['best_s']:9.4f} ms (median {1e3 * value['median_s']:9.4f})"
            if "best_of_a_copy" in value:
                text += f"   {value['best_of_a_copy']:.3f} of a copy"
        print(f"  {name:<42} {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--d", type=int, default=768)
    parser.add_argument("--huge", type=int, default=10_000_000)
    parser.add_argument("--small", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=50)
    args = parser.parse_args()
    results: dict[str, Any] = {"torch": torch.__version__, "numpy": np.__version__, "n": args.n, "d": args.d}
    results["device"] = torch.cuda.get_device_name() if args.device.type == "cuda" else str(args.device)
    try:
        import triton

        results["triton"] = triton.__version__
    except ImportError:
        results["triton"] = None
    print(results)
    clock = Clock(args.device, args.repeat)
    for part in args.parts:
        results[part] = globals()[part](args, clock)
        # After every part, so that what is measured is kept; profiles are to be looked at, and name folders.
        args.output.write_text(json.dumps(_without_profiles(results), indent=1) + "\n")
        if args.device.type == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
