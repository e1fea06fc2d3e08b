"""Train every network that the experiments on fine-tuned networks read, several at a time.

    python reproduction/scripts/finetuned_networks.py --root DATA --embeddings unspur-embeddings --jobs 8

DATA holds CUB_200_2011, scenes and multinli_1.0. Finished networks are skipped, and those that were stopped go on, so the
command can be given again. On one GPU several at a time pay off: batches of 32 leave most of it idle.

Departures from the paper: EfficientNet-Lite0 for ResNet50 and MiniLM for BERT; 20 rounds on birds instead of 100; 17,000 / 2,500 /
4,000 pairs instead of 50,000 / 5,000 / 5,000; 5 rounds at most with an adversary on pairs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

BIRDS = ["waterbirds", "--encoder", "efficientnet-lite0", "--epochs", "20"]
PAIRS = ["multinli", "--encoder", "minilm", "--sizes", "17000,2500,4000"]
STRENGTHS = (0.9, 0.7, 0.5)


def networks(seeds: int) -> Iterator[list[str]]:
    """Arguments of `unspur-paper finetune`, what matters most first."""
    for seed in range(seeds):
        for p in STRENGTHS:
            at = ["--p", f"{p:g}", "--seed", str(seed)]
            yield [*BIRDS, *at, *(["--maps", "50"] if p == STRENGTHS[0] else [])]
            yield [*PAIRS, *at]
        yield [*PAIRS, "--unmarked", "--seed", str(seed)]
    for p in STRENGTHS:
        for seed in range(seeds):
            at = ["--p", f"{p:g}", "--seed", str(seed), "--adversary"]
            yield [*BIRDS, *at, "1"]
            for weight in ("1", "0.1", "0.01") if p == STRENGTHS[0] else ("1",):
                yield [*PAIRS, *at, weight, "--epochs", "5"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--embeddings", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2, help="threads of each that load examples")
    parser.add_argument(
        "--only", default="", help="words that the arguments must contain, such as 'waterbirds --p 0.9'"
    )
    parser.add_argument("--minutes", type=float, default=1e9, help="stop what is running after this long")
    given = parser.parse_args()
    end = time.monotonic() + 60 * given.minutes
    waiting = [arguments for arguments in networks(given.seeds) if given.only in " ".join(arguments)]
    waiting.reverse()
    running: dict[str, tuple[subprocess.Popen[str], float]] = {}
    failed = 0
    while (waiting or running) and time.monotonic() < end:
        while waiting and len(running) < given.jobs:
            arguments = waiting.pop()
            command = [
                sys.executable,
                "-m",
                "unspur_paper",
                "finetune",
                *arguments,
                "--root",
                str(given.root),
                "--embeddings",
                str(given.embeddings),
                "--workers",
                str(given.workers),
                "--json",
            ]
            running[" ".join(arguments)] = (
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True),
                time.monotonic(),
            )
        for name, (process, began) in list(running.items()):
            if process.poll() is not None:
                del running[name]
                failed += process.returncode != 0
                print(f"{time.monotonic() - began:6.0f} s  {name}: {outcome(process)}", flush=True)
        time.sleep(0.2)
    for name, (process, _) in running.items():
        process.kill()
        print(f"stopped: {name}", flush=True)
    print(f"{len(waiting)} not begun, {len(running)} stopped, {failed} failed")
    sys.exit(bool(failed))


def outcome(process: subprocess.Popen[str]) -> str:
    """How a training went, in a line."""
    output, errors = process.communicate()
    if process.returncode:
        return "failed: " + (errors.strip().splitlines() or ["no message"])[-1]
    told = json.loads(output)
    kept = told["history"][told["kept_epoch"] - 1]
    adversary = f", adversary {kept['adversary_balanced_accuracy']:.3f}" if "adversary_loss" in kept else ""
    return (
        f"round {told['kept_epoch']} of {len(told['history'])}, {told['seconds']:.0f} s, validation "
        f"{kept['validation_accuracy']:.3f}{adversary}"
    )


if __name__ == "__main__":
    main()
