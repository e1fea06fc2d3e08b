"""Records of a network that was trained again replace those of the one before all together."""

import json
import lzma
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from unspur_paper.experiments.records import Record, pack, record_key, unpack

SCRIPT = Path(__file__).parents[1] / "scripts" / "merge_records.py"
NETWORKS = "finetuned-networks.json.xz"


def record(method, run=0, p=0.9, data="old", adversary=0.0):
    spec = {"dataset": {"p": p, "adversary": adversary}, "remover": {"name": method}, "run": run}
    return Record(record_key(spec, data, "1"), spec, data, "1", {"right": [1]}, 0.5, ())


@pytest.fixture
def merge(tmp_path):
    """Merge packs of old and new records by the script; what is there afterwards, and what it says."""

    def merged(old, new, networks=None):
        results, run = tmp_path / "results", tmp_path / "run"
        for folder, records in ((results, old), (run, new)):
            (folder / "birds").mkdir(parents=True)
            if records:
                pack(records, folder / "birds" / "exact.jsonl.xz")
        with tarfile.open(tmp_path / "run.tar", "w") as tar:
            tar.add(run / "birds" / "exact.jsonl.xz", "birds/exact.jsonl.xz")
            if networks is not None:
                (run / "networks.json").write_text(json.dumps(networks[1]))
                (results / NETWORKS).write_bytes(lzma.compress(json.dumps(networks[0]).encode()))
                tar.add(run / "networks.json", "networks.json")
        command = [sys.executable, str(SCRIPT), str(tmp_path / "run.tar"), str(results)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return unpack(results / "birds" / "exact.jsonl.xz"), said

    return merged


def those(records):
    return {(r.spec["remover"]["name"], r.spec["run"], r.data) for r in records}


def test_new_networks_stand_beside_old_ones(merge):
    found, said = merge([record("JSE"), record("LEACE")], [record("JSE", 1, data="new"), record("INLP", 1, data="new")])
    assert those(found) == {("JSE", 0, "old"), ("LEACE", 0, "old"), ("JSE", 1, "new"), ("INLP", 1, "new")}
    assert "4 records, 2 of them new" in said


def test_a_network_that_was_trained_again_takes_the_place_of_its_forerunner(merge):
    old = [record("JSE"), record("LEACE"), record("JSE", 1), record("ADV", adversary=1.0)]
    new = [record(method, data="new") for method in ("JSE", "LEACE", "AFR")]
    found, _ = merge(old, new)
    # Another run and a network with an adversary are other networks.
    expected = {("JSE", 0, "new"), ("LEACE", 0, "new"), ("AFR", 0, "new"), ("JSE", 1, "old"), ("ADV", 0, "old")}
    assert those(found) == expected


def test_records_of_a_run_that_was_stopped_do_not_replace_more_than_they_have(merge):
    found, said = merge([record("JSE"), record("LEACE")], [record("JSE", data="new"), record("AFR", data="new")])
    assert those(found) == {("JSE", 0, "old"), ("LEACE", 0, "old")}
    assert "2 new ones of networks that lack a method are left out" in said


def test_a_network_whose_records_are_left_out_is_told_as_it_was(merge, tmp_path):
    def of_pairs(method, run, data):
        dataset = {"name": "multinli-finetuned", "encoder": "minilm", "p": 0.9, "adversary": 0.0}
        spec = {"dataset": {**dataset, "trained_on": "drawn"}, "remover": {"name": method}, "run": run}
        return Record(record_key(spec, data, "1"), spec, data, "1", {"right": [1]}, 0.5, ())

    def told(seconds):
        stores = [f"multinli-finetuned/minilm/p-0.9/seed-{seed}" for seed in (0, 1)]
        return [{"store": store, "seconds": seconds, "history": []} for store in stores]

    old = [of_pairs(method, run, "old") for method in ("JSE", "LEACE") for run in (0, 1)]
    new = [of_pairs("JSE", 0, "new"), of_pairs("JSE", 1, "new"), of_pairs("LEACE", 1, "new")]
    found, _ = merge(old, new, [told(1), told(2)])
    assert those(found) == {("JSE", 0, "old"), ("LEACE", 0, "old"), ("JSE", 1, "new"), ("LEACE", 1, "new")}
    networks = json.loads(lzma.decompress((tmp_path / "results" / NETWORKS).read_bytes()))
    assert [network["seconds"] for network in networks] == [1, 2]


def test_an_experiment_may_be_new_and_networks_are_told_anew(merge, tmp_path):
    once, again = ([{"epoch": 1.0, "validation_accuracy": accuracy}] for accuracy in (0.5, 2 / 3))
    networks = [
        [{"store": "a", "seconds": 1, "history": once}, {"store": "b", "seconds": 1, "history": once}],
        [{"store": "b", "seconds": 2, "history": again}],
    ]
    found, _ = merge([], [record("JSE", data="new")], networks)
    assert those(found) == {("JSE", 0, "new")}
    told = json.loads(lzma.decompress((tmp_path / "results" / NETWORKS).read_bytes()))
    assert [(network["store"], network["seconds"]) for network in told] == [("a", 1), ("b", 2)]
    assert [network["history"][0]["validation_accuracy"] for network in told] == [0.5, 0.666667]
