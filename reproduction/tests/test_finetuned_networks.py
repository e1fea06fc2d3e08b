"""The driver trains what the experiments read, and runs them as their networks come."""

import json
import subprocess
import sys
import tarfile
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from unspur_paper.experiments.records import canonical, unpack
from unspur_paper.experiments.reproduce import find_experiments

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "reproduction" / "scripts"))
try:
    import finetuned_networks
finally:
    sys.path.pop(0)

#: The driver with one small network, and one experiment on it.
SMALL = """
import sys
sys.path.insert(0, {scripts!r})
import finetuned_networks as driver

driver.PAIRS = ("multinli", "--encoder", {model!r}, "--sizes", "60,40,40", "--epochs", "2", "--pca", "4")
driver.TRAINED = ({spec!r},)
if __name__ == "__main__":
    driver.main()
"""
SPEC = """
title = "Small"
runs = 2
metrics = ["accuracy", "probe"]

[dataset]
name = "multinli-finetuned"
encoder = "tiny-bert"
p = [0.9]
pca = 4

[[methods]]
name = "ERM"

[[methods]]
name = "LEACE"
remover = "LEACE"
"""


def run_of(tmp_path, **options):
    given = {
        "root": tmp_path,
        "work": tmp_path,
        "trainings": 1,
        "frozen": False,
        "seeds": 5,
        "only": [],
        "without": [],
        **options,
    }
    return finetuned_networks.Run(Namespace(**given), None)


def test_every_network_is_read_by_an_experiment_and_every_store_is_made(tmp_path):
    run = run_of(tmp_path)
    made = [run.folder_of(arguments) for arguments in finetuned_networks.networks(5)]
    assert len(set(made)) == len(made)
    assert set(made) == set(run._cells_by_store())


def test_what_matters_most_comes_first():
    order = [" ".join(arguments) for arguments in finetuned_networks.networks(5)]
    plain = [arguments for arguments in order if "--adversary" not in arguments]
    assert order[: len(plain)] == plain  # every plain network before the first adversary
    seeds = [arguments.split("--seed ")[1][0] for arguments in plain]
    assert seeds == sorted(seeds)
    weights = [arguments.split("--adversary ")[1] for arguments in order[len(plain) :]]
    assert weights == sorted(weights, key=float, reverse=True)
    assert sum("--maps" in arguments for arguments in order) == 8


def test_some_networks_can_be_left_out(tmp_path):
    run = run_of(tmp_path, only=["waterbirds", "--p 0.9"], without=["--adversary", "--seed 0"])
    run.plan()
    wanted = [job.arguments[0][:-7] for job in run.waiting[True]]
    assert [(a[0], a[a.index("--p") + 1], a[a.index("--seed") + 1]) for a in wanted] == [
        ("waterbirds", "0.9", str(seed))
        for seed in (1, 2, 3, 4)  # and not those at 0.95
    ]


@pytest.fixture
def small(tiny_bert, tmp_path):
    """Run the driver on a few sentences, with options; what it says."""
    pytest.importorskip("transformers")
    scripts, spec = str(ROOT / "reproduction" / "scripts"), tmp_path / "small.toml"
    spec.write_text(SPEC, encoding="utf-8")
    program = tmp_path / "small.py"
    program.write_text(SMALL.format(scripts=scripts, model=str(tiny_bert), spec=str(spec)), encoding="utf-8")
    data, rng = tmp_path / "data" / "multinli_1.0", np.random.default_rng(0)
    data.mkdir(parents=True)
    lines = [
        {
            "gold_label": ("contradiction", "neutral")[i % 2],
            "sentence1": f"the {('bird', 'fish')[i % 2]} sees",
            "sentence2": " ".join(rng.choice(["a", "the", "big", "green", "sees", "over", "water"], size=5)),
        }
        for i in range(100)
    ]
    for name in ("train", "dev_matched"):
        (data / f"multinli_1.0_{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def run(*options):
        where = ["--root", str(data.parent), "--work", str(tmp_path / "w")]
        command = [sys.executable, str(program), *where, "--only=multinli", "--only=--p 0.9", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_networks_are_trained_their_experiments_run_and_the_records_packed(small, tmp_path):
    said = small("--seeds", "2", "--minutes", "4", "--cores", "2", "--trainings", "2")
    # Two plain networks, and six with an adversary, which no cell reads.
    assert "8 networks trained, 4 cells asked for; not begun: 0 networks, 0 others; 0 failed" in said
    with tarfile.open(tmp_path / "w" / "paper-run.tar") as tar:
        assert {"small/exact.jsonl.xz", "networks.json", "run.log"} == set(tar.getnames())
        told = json.load(tar.extractfile("networks.json"))
    assert len(told) == 8
    (experiment,) = find_experiments([str(tmp_path / "small.toml")])
    wanted = {canonical(dict(cell.spec), "spec") for cell in experiment.cells("exact")}
    records = unpack(tmp_path / "w" / "results" / "small" / "exact.jsonl.xz")
    assert {canonical(record.spec, "spec") for record in records} == wanted
    # Given again, there is nothing left to do.
    again = small("--seeds", "2", "--minutes", "4")
    assert "0 networks trained, 4 cells asked for; not begun: 0 networks, 0 others; 0 failed" in again


def test_it_stops_in_time_and_goes_on(small, tmp_path):
    said = small("--seeds", "1", "--minutes", "0.01")
    assert "0 networks trained, 0 cells asked for; not begun: 4 networks" in said
    assert (tmp_path / "w" / "paper-run.tar").exists()
    assert "4 networks trained, 2 cells asked for; not begun: 0" in small("--seeds", "1", "--minutes", "4")
