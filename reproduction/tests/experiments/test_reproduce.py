"""`unspur-paper reproduce`, end to end: real cells, real processes."""

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner
from numpy.testing import assert_allclose

from unspur._version import __version__
from unspur_paper.cli import main
from unspur_paper.experiments.metrics import METRICS
from unspur_paper.experiments.records import unpack
from unspur_paper.experiments.reproduce import experiment_names, find_experiments, reproduce
from unspur_paper.experiments.spec import Experiment
from unspur_paper.experiments.spec_file import read_experiment

#: What is drawn, where there is something to draw with.
FIGURES = (".svg", ".png") if find_spec("matplotlib") else ()
MINE = """
title = "A small one"
presets = ["released"]
runs = 4
metrics = ["average", "worst_group"]

[dataset]
name = "toy"
n = 300
d = 5
rho = [0.5, 0.9]

[[methods]]
name = "JSE"
remover = "JSE"

[[methods]]
name = "ERM"
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(MINE, encoding="utf-8")
    return path


def unspur(*arguments, expect=0):
    done = CliRunner().invoke(main, ["reproduce", *map(str, arguments)])
    assert done.exit_code == expect, done.output
    return done.output


def table(folder, name="mine", preset="released"):
    with (folder / name / f"{preset}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


#: Specs that differ from another one in rows alone.
LIKE_ANOTHER = {
    "celeba-ood-blond",
    "celeba-ood-group",
    "celeba-reweighting",
    "multinli-reweighting",
    "waterbirds-circulated-labels",
    "waterbirds-finetuned-group",
    "waterbirds-limited-labels",
    "waterbirds-ood-group",
}


@pytest.mark.parametrize("name", [name for name in experiment_names() if name not in LIKE_ANOTHER])
def test_a_smoke_run_of_every_kind(name, tmp_path, monkeypatch):
    if name != "toy-ood":  # one spec in both its runs, the others in one
        smoke = Experiment.smoke
        monkeypatch.setattr(Experiment, "smoke", lambda experiment: replace(smoke(experiment), runs=1))
    told = unspur(name, "--smoke", "--jobs", 1, "--output", tmp_path)
    experiment = find_experiments([name])[0] if name != "toy" else None
    folder = tmp_path / "smoke" / name
    for preset in experiment.presets:
        lines = table(tmp_path / "smoke", name, preset)
        methods = {m.name for m in experiment.smoke().methods if preset in m.presets}
        assert {line["method"] for line in lines} == methods
        assert {line["metric"] for line in lines} == set(experiment.metrics)
        assert all(0 <= float(line["mean"]) <= 100 for line in lines)
        for suffix in (".md", ".json", ".jsonl.xz", *FIGURES):
            assert (folder / f"{preset}{suffix}").stat().st_size > 100
        assert FIGURES or "No figures: install matplotlib with pip install '.[report]' in" in " ".join(told.split())
        assert f"preset {preset}" in told
    assert f"]({name}/{experiment.presets[0]}.md)" in (tmp_path / "smoke" / "README.md").read_text(encoding="utf-8")


class TestRuns:
    def test_a_second_run_computes_nothing_and_draws_the_same(self, mine, tmp_path):
        assert "16 cells computed, 0 found" in unspur(mine, "--jobs", 1, "--output", tmp_path / "r")
        before = {path: path.read_bytes() for path in (tmp_path / "r" / "mine").iterdir()}
        assert "0 cells computed, 16 found" in unspur(mine, "--jobs", 1, "--output", tmp_path / "r")
        assert {path: path.read_bytes() for path in (tmp_path / "r" / "mine").iterdir()} == before

    def test_the_pack_alone_is_enough_to_draw_from(self, mine, tmp_path):
        unspur(mine, "--jobs", 1, "--output", tmp_path / "r")
        before = table(tmp_path / "r")
        for path in (tmp_path / "r" / "records").iterdir():
            path.unlink()
        assert "nothing computed" in unspur(mine, "--draw", "--output", tmp_path / "r")
        assert table(tmp_path / "r") == before

    def test_fewer_runs_do_not_throw_records_away(self, mine, tmp_path):
        unspur(mine, "--jobs", 1, "--output", tmp_path / "r")
        unspur(mine, "--runs", 2, "--jobs", 1, "--output", tmp_path / "r")
        assert {line["runs"] for line in table(tmp_path / "r")} == {"2"}
        assert "0 cells computed, 16 found" in unspur(mine, "--jobs", 1, "--output", tmp_path / "r")

    def test_only_one_method_then_the_rest(self, mine, tmp_path):
        told = unspur(mine, "--only", "ERM", "--jobs", 1, "--output", tmp_path / "r")
        assert "8 cells computed" in told
        assert {line["method"] for line in table(tmp_path / "r")} == {"ERM"}
        assert "8 cells computed, 8 found" in unspur(mine, "--jobs", 1, "--output", tmp_path / "r")

    def test_fresh_computes_again(self, mine, tmp_path):
        unspur(mine, "--runs", 1, "--jobs", 1, "--output", tmp_path / "r")
        assert "4 cells computed" in unspur(mine, "--runs", 1, "--fresh", "--jobs", 1, "--output", tmp_path / "r")

    def test_a_truncated_record_is_noticed_and_computed_again(self, mine, tmp_path):
        unspur(mine, "--runs", 2, "--jobs", 1, "--output", tmp_path / "r")
        before = table(tmp_path / "r")
        victim = sorted((tmp_path / "r" / "records").glob("*.json"))[3]
        victim.write_bytes(victim.read_bytes()[:-40])
        (tmp_path / "r" / "mine" / "released.jsonl.xz").unlink()  # else the record would be taken from there
        told = unspur(mine, "--runs", 2, "--jobs", 1, "--output", tmp_path / "r")
        assert "1 cells computed, 7 found" in told
        assert victim.name in told
        assert table(tmp_path / "r") == before

    def test_a_damaged_pack_is_told_and_made_anew(self, mine, tmp_path):
        unspur(mine, "--runs", 2, "--jobs", 1, "--output", tmp_path / "r")
        packed = tmp_path / "r" / "mine" / "released.jsonl.xz"
        whole = packed.read_bytes()
        packed.write_bytes(whole[:-30])
        assert "released.jsonl.xz could not be used" in unspur(
            mine, "--runs", 2, "--jobs", 1, "--output", tmp_path / "r"
        )
        assert packed.read_bytes() == whole

    def test_another_version_computes_anew_and_draws_what_it_has_not_computed(self, mine, tmp_path, monkeypatch):
        unspur(mine, "--runs", 2, "--jobs", 1, "--output", tmp_path / "r")
        page, packed = tmp_path / "r" / "mine" / "released.md", tmp_path / "r" / "mine" / "released.jsonl.xz"
        whole, before = page.read_bytes(), unpack(packed)
        monkeypatch.setattr("unspur_paper.experiments.reproduce.__version__", "9.9")
        unspur(mine, "--runs", 2, "--draw", "--output", tmp_path / "r")
        assert page.read_bytes() == whole  # names the version that computed it
        assert f"version {__version__}." in page.read_text(encoding="utf-8")
        assert "4 cells computed, 0 found" in unspur(mine, "--runs", 1, "--jobs", 1, "--output", tmp_path / "r")
        after = unpack(packed)
        assert sorted(record.version for record in after) == sorted(4 * [__version__] + 4 * ["9.9"])
        assert {json.dumps(record.spec) for record in after} == {json.dumps(record.spec) for record in before}
        unspur(mine, "--runs", 2, "--draw", "--output", tmp_path / "r")
        assert f"version {__version__}, 9.9." in page.read_text(encoding="utf-8")

    def test_foreign_files_in_the_folder_do_no_harm(self, mine, tmp_path):
        (tmp_path / "r" / "other").mkdir(parents=True)
        (tmp_path / "r" / "other" / "package.json").write_text('{"name": "x"}', encoding="utf-8")
        (tmp_path / "r" / "other" / "cut.json").write_text('{"na', encoding="utf-8")
        (tmp_path / "r" / "other" / "old.json").write_text('{"kind": "unspur experiment"}', encoding="utf-8")
        unspur(mine, "--runs", 1, "--jobs", 1, "--output", tmp_path / "r")
        assert "package" not in (tmp_path / "r" / "README.md").read_text(encoding="utf-8")

    def test_one_failing_cell_is_reported_with_its_spec_and_the_rest_is_done(self, mine, tmp_path):
        mine.write_text(MINE.replace('remover = "JSE"', 'remover = { name = "JSE", delta = "of" }'), encoding="utf-8")
        told = unspur(mine, "--runs", 2, "--jobs", 1, "--output", tmp_path / "r", expect=1)
        assert "4 cells failed" in told
        assert "'delta': 'of'" in told
        assert {line["method"] for line in table(tmp_path / "r")} == {"ERM"}

    def test_json(self, mine, tmp_path):
        words = ["reproduce", str(mine), "--runs", "2", "--jobs", "1", "--json", "--output", str(tmp_path / "r")]
        told = json.loads(CliRunner().invoke(main, words).stdout)
        assert told[0]["experiment"] == "mine"
        assert told[0]["missing"] == 0
        assert told[0]["runs"] == 2
        assert all(Path(name).exists() for name in told[0]["files"])

    def test_listing_and_misuse(self, tmp_path):
        told = unspur("--list")
        assert all(name in told for name in experiment_names())
        listed = json.loads(CliRunner().invoke(main, ["reproduce", "--list", "--json"]).stdout)
        assert [one["name"] for one in listed] == list(experiment_names())
        assert all(one["title"] in " ".join(told.split()) for one in listed)  # the same, for people
        assert "Name an experiment" in unspur(expect=2)
        assert "toy-delta" in unspur("tou", "--output", tmp_path, expect=1)
        assert "There are: exact" in unspur("toy-power", "--preset", "released", "--output", tmp_path, expect=1)
        assert "There are: ERM, INLP" in unspur("toy-ood", "--only", "jse", "--output", tmp_path, expect=1)
        for pair in (("--smoke", "--runs", 5), ("--draw", "--fresh"), ("--draw", "--only", "JSE")):
            assert "contradict each other" in unspur("toy-ood", *pair, "--output", tmp_path, expect=2)
        assert not list(tmp_path.iterdir())

    def test_a_method_that_only_some_experiments_have_runs_there(self, tmp_path):
        told = unspur(
            "toy-delta",
            "toy-reweighting",
            "--only",
            "JTT",
            "--preset",
            "released",
            "--smoke",
            "--jobs",
            1,
            "--output",
            tmp_path,
        )
        assert "toy-reweighting, 2 cells, preset released" in told
        assert "toy-delta" not in told

    def test_presets_without_the_method_are_left_out_unless_they_were_asked_for(self, tmp_path):
        path = tmp_path / "mine.toml"
        text = MINE.replace('["released"]', '["exact", "released"]') + 'presets = ["released"]\n'
        path.write_text(text, encoding="utf-8")
        told = unspur(path, "--only", "ERM", "--smoke", "--jobs", 1, "--output", tmp_path)
        assert "preset released" in told
        assert "preset exact" not in told
        asked = ("--only", "ERM", "--preset", "exact")
        told = unspur(path, *asked, "--smoke", "--jobs", 1, "--output", tmp_path, expect=1)
        assert "has no ERM under the preset 'exact'" in told


def test_a_killed_run_goes_on_where_it_was(mine, tmp_path):
    """kill -9 in the middle; then the same command finds what was stored, and ends as an undisturbed run does."""
    mine.write_text(MINE.replace("runs = 4", "runs = 12"), encoding="utf-8")
    arguments = ["reproduce", str(mine), "--jobs", "2", "--output", str(tmp_path / "r")]
    command = [sys.executable, "-m", "unspur_paper", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    records = tmp_path / "r" / "records"
    deadline = time.monotonic() + 60
    while (not records.exists() or len(list(records.glob("*.json"))) < 5) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    stored = len(list(records.glob("*.json")))
    assert 5 <= stored < 48
    assert f"{48 - stored} cells computed, {stored} found" in unspur(mine, "--jobs", 1, "--output", tmp_path / "r")
    unspur(mine, "--jobs", 1, "--output", tmp_path / "undisturbed")
    assert table(tmp_path / "r") == table(tmp_path / "undisturbed")


def test_processes_give_the_same_records(mine, tmp_path):
    experiment = read_experiment(mine)
    found = {}
    for name, where in {"one": {}, "joblib": {"jobs": 2}}.items():
        folder = tmp_path / name
        done = reproduce(experiment, "released", folder, runs=3, progress=False, **where)
        assert (done.report.computed, done.report.failures) == (12, ())
        found[name] = {p.name: json.loads(p.read_text(encoding="utf-8")) for p in (folder / "records").iterdir()}
    for name in ("joblib",):
        assert found[name].keys() == found["one"].keys()
        for key, record in found["one"].items():
            other = found[name][key]
            assert other["spec"] == record["spec"]
            for metric in ("average", "worst_group", "mse_main", "mse_spurious"):
                assert_allclose(METRICS[metric](other["result"]), METRICS[metric](record["result"]), rtol=1e-9)


def test_processes_that_end_at_the_same_time_lose_none_of_each_others_records(mine, tmp_path):
    """One has computed a method and is about to draw; another one computes the other method, packs and draws first."""
    experiment, both = read_experiment(mine), tmp_path / "both"
    reproduce(experiment, "released", tmp_path / "undisturbed", runs=2, progress=False)
    order, written, threads = [], threading.Event(), []

    def slowly(_):
        order.append("first")
        threads.append(threading.Thread(target=second))
        threads[0].start()
        assert not written.wait(1.0)  # it waits for us, instead of packing what it knew when it began
        return []

    def second():
        reproduce(experiment, "released", both, runs=2, only=["ERM"], progress=False, write=draw)

    def draw(summary):
        order.append("second")
        drawn.append(summary)
        written.set()
        return []

    drawn = []
    reproduce(experiment, "released", both, runs=2, only=["JSE"], progress=False, write=slowly)
    assert written.wait(30)
    threads[0].join()  # it has its lock until it has drawn
    assert order == ["first", "second"]
    assert drawn[0].missing == 0
    packs = [folder / "mine" / "released.jsonl.xz" for folder in (both, tmp_path / "undisturbed")]
    one, other = ({record.key: record.result for record in unpack(path)} for path in packs)
    assert one == other
    assert sorted(path.name for path in (both / "mine").iterdir()) == ["released.jsonl.xz"]
