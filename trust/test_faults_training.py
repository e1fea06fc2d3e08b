"""A training and the maps of its network, killed at any moment or out of disk: to the last bit as undisturbed."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from trust.faults import (
    SAID,
    Work,
    chosen,
    differences,
    disturbed,
    fresh,
    half_read,
    kills,
    nursery_of,
    place,
    rerun,
    snapshot,
    undisturbed,
)
from trust.nursery import Fault

PART = "faults"
NETWORKS = "reproduction.tests.networks"
MODULES = ("trust.test_faults_training", "tests.embed.tiny", f"{NETWORKS}.mapping", f"{NETWORKS}.tuning")
EVERY_STEP = {"unspur_paper.networks.finetuning:NOTE_SECONDS": -1.0}


def train(model, folder):
    """Two epochs of a tiny network, noted at every step."""
    import torch
    from reproduction.tests.networks.tuning import tune

    torch.set_num_threads(1)
    tune("image", model, folder)


def keep_maps(folder):
    """Maps of 15 pictures."""
    import torch
    from reproduction.tests.networks.mapping import left_half, photographs
    from tests.embed.tiny import TinyConv

    from unspur.embed.store import Reduction
    from unspur_paper.networks.maps import write_maps

    torch.set_num_threads(1)
    tiny, shown = TinyConv(), photographs()
    reduction = Reduction.fit(tiny.rows(shown.images), 6)
    write_maps(shown, range(5, 20), tiny, reduction, left_half, folder, batch=4, progress=False)


def model() -> Path:
    from tests.embed.conftest import tiny_vision

    folder = place() / "model"
    return folder if folder.exists() else tiny_vision("ResNet", folder)


def work(name: str) -> Work:
    if name == "maps":
        return Work(name, ("trust.test_faults_training:keep_maps", "maps"), seal="maps/maps.json")
    command = ("trust.test_faults_training:train", str(model()), "network")
    return Work(name, command, EVERY_STEP, seal="network/training.json")


EFFORT = {"finetune": ((2, 1), (40, 10)), "maps": ((4, 1), (99, 20))}


@pytest.mark.parametrize("name", EFFORT)
def test_killed_at_any_moment_a_rerun_ends_at_the_same_bits(name, effort, tally, tmp_path):
    line, nursery, wrong, moments = tally(f"kill -9: {name}"), nursery_of(*MODULES), [], 0
    peace = undisturbed(nursery, work(name))
    for number, fault in enumerate(kills(peace, *EFFORT[name][effort.full], seed=3)):
        first, odd = disturbed(nursery, peace, tmp_path / str(number), fault)
        if not first.killed and fault.cut_at is not None:
            continue
        odd = odd if first.killed else f"it was to be killed: {first.said}"
        moments += fault.kill_at is not None
        line.trial(not odd)
        wrong += [f"{fault}: {odd}"] if odd else []
    line.figure = f"at {moments} of {len(peace.moments)} moments, {line.tried - moments} inside a write"
    assert line.all_survived, "\n".join(wrong)


def test_out_of_disk_or_with_company_a_rerun_ends_at_the_same_bits(effort, tally, tmp_path):
    line, nursery, wrong = tally("finetune, maps: no room; two at once; clock back"), nursery_of(*MODULES), []
    for name in EFFORT:
        peace = undisturbed(nursery, work(name))
        for size in chosen(range(SAID, peace.largest), effort.times(1, 15), seed=4):
            folder = fresh(tmp_path / f"{name} {size}", peace.work)
            first = nursery.run(peace.work.job(folder, Fault(most=size)))
            odd = "" if "DiskError" in first.said else f"it said {first.said[-300:]}"
            odd = odd or half_read(peace, folder) or rerun(nursery, peace, folder)
            line.trial(not odd)
            wrong += [f"{name}, {size} bytes: {odd}"] if odd else []
        for seed in range(effort.times(1, 8)):
            folder = fresh(tmp_path / f"{name} twice {seed}", peace.work)
            faults = [Fault(jitter=seed, clock=-86400.0 * (seed % 2)), Fault(jitter=seed + 1)]
            ends = nursery.together(*(peace.work.job(folder, fault) for fault in faults))
            odd = [end.said[-300:] for end in ends if end.code and "BusyError" not in end.said]
            odd = "".join(odd) or differences(peace.result, snapshot(folder))
            line.trial(not odd)
            wrong += [f"{name} twice: {odd}"] if odd else []
    assert line.all_survived, "\n".join(wrong)
