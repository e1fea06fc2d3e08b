"""A fine-tuned network is the same whatever happens on the way, and learns what it is told to learn."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("PIL")
pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("resource")

import torch
from tests.embed.conftest import tiny_vision

from reproduction.tests.networks.tuning import TRAININGS, N, coloured, labels, sentences, tune
from reproduction.tests.strips import Strips
from unspur.exceptions import ArtifactError, InputError, OutputExistsError
from unspur_paper.embedding.embedding import embed
from unspur_paper.embedding.registry import load_encoder
from unspur_paper.files import DiskError
from unspur_paper.networks import finetuning
from unspur_paper.networks.adversary import reverse
from unspur_paper.networks.checkpoint import load_checkpoint, save_checkpoint
from unspur_paper.networks.finetuning import finetune
from unspur_paper.networks.prepared import Prepared
from unspur_paper.networks.training import Training
from unspur_paper.networks.training_data import TrainingData
from unspur_paper.networks.tuned import CHECKPOINT, NETWORK, RECORD

REPOSITORY = Path(__file__).parents[3]
STEPS = 5
#: When it dies, and how many steps are left to do then: in the middle of an epoch, when an epoch is trained but not
#: judged, between epochs, while a checkpoint is written, while the network is, and when only the record is missing.
MOMENTS = {
    "image": {"_learn 3": 7, "_judge 0": 5, "_epoch 1": 5, "save 7": 4, "save 12": 0, "atomic 0": 0},
    "text": {"_learn 7": 3, "_judge 1": 0, "_epoch 1": 5},
}
CASES = [(kind, moment) for kind, moments in MOMENTS.items() for moment in moments]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Sums of several threads may be added in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def models(tiny_resnet, tiny_bert):
    return {"image": tiny_resnet, "text": tiny_bert}


@pytest.fixture(scope="module")
def undisturbed(models, tmp_path_factory):
    """Folders of networks that were trained in one go."""
    place = tmp_path_factory.mktemp("undisturbed")
    for kind, model in models.items():
        tune(kind, model, place / kind)
    return {kind: place / kind for kind in models}


@pytest.fixture(scope="module")
def killed(models, tmp_path_factory):
    """Folders of trainings that were killed, by kind and moment."""
    found = {}
    for kind, moments in MOMENTS.items():
        place = tmp_path_factory.mktemp("killed")
        command = [sys.executable, "-m", "reproduction.tests.networks.tuning", kind, models[kind], place, *moments]
        done = subprocess.run(list(map(str, command)), cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
        assert done.stdout.split() == [str(-signal.SIGKILL)] * len(moments), done.stderr
        found |= {(kind, moment): place / str(number) for number, moment in enumerate(moments)}
    return found


@pytest.fixture
def steps(monkeypatch):
    """The examples of every step that is done."""
    done, learn = [], finetuning._Run._learn

    def learning(run, batch, chunk):
        done.append(chunk)
        return learn(run, batch, chunk)

    monkeypatch.setattr(finetuning._Run, "_learn", learning)
    return done


def copy_of(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def record(folder):
    """What was noted of a training, but for the time it took."""
    found = json.loads((folder / RECORD).read_text())
    assert found.pop("seconds") >= 0
    return found


@pytest.mark.parametrize(("kind", "moment"), CASES)
def test_a_killed_training_goes_on_to_the_last_bit(models, undisturbed, killed, steps, kind, moment, tmp_path):
    folder = copy_of(killed[kind, moment], tmp_path)
    assert (folder / CHECKPOINT).exists()
    assert not (folder / RECORD).exists()
    with pytest.raises(InputError, match="not finished; give the same command again"):
        load_encoder(str(folder))
    encoder = tune(kind, models[kind], folder)
    assert len(steps) == MOMENTS[kind][moment]
    assert (folder / NETWORK).read_bytes() == (undisturbed[kind] / NETWORK).read_bytes()
    assert record(folder) == record(undisturbed[kind])
    assert encoder.digest == record(undisturbed[kind])["digest"]
    assert sorted(path.name for path in folder.iterdir()) == [NETWORK, RECORD]  # nor half a file


@pytest.mark.parametrize(("kind", "moment"), [("image", "_learn 3"), ("text", "_epoch 1")])
def test_what_the_optimiser_knows_and_the_seed_matter_to_it(
    models, undisturbed, killed, kind, moment, tmp_path, monkeypatch
):
    folder = copy_of(killed[kind, moment], tmp_path)
    with pytest.raises(OutputExistsError, match="differs in settings"):
        tune(kind, models[kind], folder, replace(TRAININGS[kind], seed=2))
    expected = record(undisturbed[kind])["history"]
    with monkeypatch.context() as other:
        other.setattr(finetuning, "require_same", lambda *_: None)
        tune(kind, models[kind], shutil.copytree(folder, tmp_path / "seed"), replace(TRAININGS[kind], seed=2))
    monkeypatch.setattr(finetuning, "restore_optimizer", lambda *_: None)
    tune(kind, models[kind], folder)
    for place in (folder, tmp_path / "seed"):
        assert record(place)["history"][-1] != expected[-1]


def test_the_adversary_sees_the_gradient_and_the_network_its_reverse():
    torch.manual_seed(0)
    x, y = torch.randn(20, 5, dtype=torch.float64), (torch.arange(20) % 2).double()
    weights = {"network": torch.randn(5, 3, dtype=torch.float64), "adversary": torch.randn(3, dtype=torch.float64)}

    def loss(network, adversary, turn=lambda z: z):
        logits = turn(torch.tanh(x @ network)) @ adversary
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, y)

    def slope(name):
        """Finite differences of the loss without any reversal."""
        found = torch.empty_like(weights[name])
        for i in range(found.numel()):
            sides = []
            for small in (1e-6, -1e-6):
                moved = {key: value.clone() for key, value in weights.items()}
                moved[name].view(-1)[i] += small
                sides.append(loss(**moved))
            found.view(-1)[i] = (sides[0] - sides[1]) / 2e-6
        return found

    for strength in (0.5, 1.0):
        leaves = {key: value.clone().requires_grad_() for key, value in weights.items()}
        turned = loss(**leaves, turn=lambda z, strength=strength: reverse(z, strength))
        assert turned.item() == loss(**weights).item()
        turned.backward()
        assert_allclose(leaves["adversary"].grad, slope("adversary"), atol=1e-8)
        assert_allclose(leaves["network"].grad, -strength * slope("network"), atol=1e-8)


def test_one_step_against_the_adversary_is_two_losses_by_hand(models, tmp_path):
    strength, rate, examples = 0.7, 0.1, coloured()
    training = Training(
        learning_rate=rate, momentum=0.0, weight_decay=0.0, batch=N, epochs=1, adversary=strength, seed=3
    )
    tune("image", models["image"], tmp_path / "net", training)
    found, _ = load_checkpoint(tmp_path / "net" / NETWORK)

    encoder = load_encoder(str(models["image"]), device="cpu")
    torch.manual_seed(3)
    head, adversary = (torch.nn.Linear(encoder.width, 1) for _ in range(2))
    encoder.network.train().requires_grad_(True)
    rows = np.flatnonzero(examples.labels["split"] == "train")
    z = encoder.features(encoder.batch([encoder.prepare(examples[i]) for i in rows]))

    def gradients(layer, name):
        sign = torch.from_numpy(1.0 - 2.0 * examples.labels[name][rows]).float()
        loss = torch.log1p(torch.exp(sign * layer(z)[:, 0])).mean()
        parameters = dict(encoder.network.named_parameters())
        of_network = torch.autograd.grad(loss, list(parameters.values()), retain_graph=True)
        return dict(zip(parameters, of_network, strict=True)), torch.autograd.grad(
            loss, [layer.weight, layer.bias], retain_graph=True
        )

    main, of_head = gradients(head, "y")
    other, of_adversary = gradients(adversary, "concept")
    assert max(float(g.abs().max()) for g in other.values()) > 1e-3
    for name, weight in encoder.network.named_parameters():
        expected = weight.detach() - rate * (main[name] - strength * other[name])
        assert_allclose(found["network"][name], expected, atol=1e-6)
    for part, layer, gradient in (("head", head, of_head), ("adversary", adversary, of_adversary)):
        for name, step in zip(("weight", "bias"), gradient, strict=True):
            assert_allclose(found[part][name], getattr(layer, name).detach() - rate * step, atol=1e-6)


def test_it_learns_what_can_be_seen_and_nothing_else(models, tmp_path):
    training = replace(TRAININGS["image"], epochs=8, adversary=0.0)
    tune("image", models["image"], tmp_path / "seen", training, coloured(120))
    shuffled = coloured(120)
    shuffled.labels["y"] = np.random.default_rng(5).permutation(shuffled.labels["y"])
    tune("image", models["image"], tmp_path / "shuffled", training, shuffled)
    last, control = (record(tmp_path / name)["history"][-1] for name in ("seen", "shuffled"))
    assert last["validation_accuracy"] > 0.9
    assert last["train_loss"] < 0.3
    assert abs(control["validation_balanced_accuracy"] - 0.5) < 0.2
    assert "adversary_accuracy" not in last


def test_every_epoch_says_what_the_adversary_sees(models, tmp_path):
    training, seen, shuffled = replace(TRAININGS["image"], epochs=5, adversary=0.001), coloured(p=1), coloured(p=1)
    shuffled.labels["concept"] = np.random.default_rng(5).permutation(shuffled.labels["concept"])
    for name, examples in (("seen", seen), ("shuffled", shuffled)):
        tune("image", models["image"], tmp_path / name, training, examples)
    history, control = (record(tmp_path / name)["history"] for name in ("seen", "shuffled"))
    assert [line["epoch"] for line in history] == [1, 2, 3, 4, 5]
    assert all({"adversary_loss", "adversary_accuracy", "adversary_balanced_accuracy"} <= set(line) for line in history)
    assert history[-1]["adversary_accuracy"] > 0.9
    assert history[-1]["adversary_loss"] < 0.5 * history[0]["adversary_loss"]
    assert abs(control[-1]["adversary_balanced_accuracy"] - 0.5) < 0.25


def test_scores_are_those_of_the_network_that_is_kept(models, undisturbed):
    examples, about = coloured(), record(undisturbed["image"])
    encoder = load_encoder(str(undisturbed["image"]), device="cpu")
    parts, note = load_checkpoint(undisturbed["image"] / NETWORK)
    rows = np.flatnonzero(examples.labels["split"] == "validation")
    z, line = encoder([examples[i] for i in rows]), about["history"][-1]
    assert note["epoch"] == about["kept_epoch"] == 2
    for part, label, name in (("head", "y", "validation"), ("adversary", "concept", "adversary")):
        logits, truth = z @ parts[part]["weight"][0] + parts[part]["bias"], examples.labels[label][rows]
        right = (logits > 0) == truth
        assert_allclose(line[f"{name}_loss"], np.mean(np.log1p(np.exp(np.where(truth, -logits, logits)))), rtol=1e-4)
        assert line[f"{name}_accuracy"] == right.mean()
        assert_allclose(line[f"{name}_balanced_accuracy"], (right[truth == 0].mean() + right[truth == 1].mean()) / 2)


def test_stopping_early_keeps_the_best_epoch(models, undisturbed, steps, tmp_path):
    about, training = record(undisturbed["text"]), TRAININGS["text"]
    assert (about["kept_epoch"], len(about["history"]), training.epochs) == (1, 2, 3)
    losses = [line["validation_loss"] for line in about["history"]]
    assert losses[1] > losses[0]
    stopped = tune("text", models["text"], tmp_path / "stopped", replace(training, epochs=1, patience=None))
    assert stopped.digest == about["digest"]
    ended = tune("text", models["text"], tmp_path / "ended", replace(training, patience=None))
    assert (record(tmp_path / "ended")["kept_epoch"], len(steps)) == (3, 4 * STEPS)
    assert ended.digest != about["digest"]
    assert record(tmp_path / "ended")["history"][:2] == about["history"]


def test_a_loss_that_is_not_lower_is_no_better(models, tmp_path, monkeypatch):
    monkeypatch.setattr(finetuning._Run, "_judge", lambda *_: {"validation_loss": 0.5})
    training = replace(TRAININGS["text"], epochs=9, patience=2)
    tune("text", models["text"], tmp_path / "net", training)
    about = record(tmp_path / "net")
    assert (about["kept_epoch"], len(about["history"])) == (1, 3)


def made_up(n=4000):
    """A quarter of the training examples has the main label and, independently, a fifth the concept."""
    number = np.arange(n)
    return TrainingData(number[::2], number[1::2], (number % 8 == 0).astype(int), (number % 10 == 2).astype(int))


@pytest.mark.parametrize("balance", ["main", "concept"])
def test_balanced_epochs_show_both_classes_equally_often(balance):
    data, training = made_up(), Training(balance=balance)
    other = "concept" if balance == "main" else "main"
    order = data.order(training, 0)
    assert len(order) == len(data.train)
    assert set(order.tolist()) <= set(data.train.tolist())
    shares = {name: getattr(data, name)[order].mean() for name in ("main", "concept")}
    natural = {name: getattr(data, name)[data.train].mean() for name in ("main", "concept")}
    assert natural == {"main": 0.25, "concept": 0.2}
    assert abs(shares[balance] - 0.5) < 4 * 0.5 / np.sqrt(len(order))
    assert abs(shares[other] - natural[other]) < 0.05
    assert not np.array_equal(order, data.order(training, 1))
    assert_array_equal(order, data.order(training, 0))


def test_a_class_without_examples_cannot_be_balanced(models, tmp_path):
    examples = coloured()
    examples.labels["concept"] = (examples.labels["split"] == "train").astype(int)
    with pytest.raises(InputError, match="same concept label; nothing can be balanced"):
        tune("image", models["image"], tmp_path / "net", Training(balance="concept", epochs=1), examples)


def test_plain_epochs_show_every_example_once_in_steps_of_nearly_equal_size(models, steps, tmp_path):
    tune("image", models["image"], tmp_path / "net", replace(TRAININGS["image"], batch=7))
    epochs = [np.concatenate(steps[:6]), np.concatenate(steps[6:])]
    sizes = [len(step) for step in steps]
    assert (len(sizes), min(sizes), max(sizes)) == (12, 6, 7)
    assert all(sorted(order.tolist()) == list(range(40)) for order in epochs)
    assert epochs[0].tolist() != epochs[1].tolist()


def test_the_seed_decides_and_nothing_else_does(models, undisturbed, tmp_path, monkeypatch):
    expected, state = record(undisturbed["image"])["digest"], torch.random.get_rng_state()
    examples = coloured()
    loaded = count_loads(examples)
    torch.manual_seed(99)
    before = torch.random.get_rng_state()
    assert tune("image", models["image"], tmp_path / "same", examples=examples, workers=1).digest == expected
    assert_array_equal(torch.random.get_rng_state(), before)
    torch.random.set_rng_state(state)
    assert len(loaded) == N
    monkeypatch.setattr(finetuning, "Prepared", partial(Prepared, budget=0))
    assert tune("image", models["image"], tmp_path / "unkept", examples=examples, workers=5).digest == expected
    assert len(loaded) == 3 * N
    other = tune("image", models["image"], tmp_path / "other", replace(TRAININGS["image"], seed=2))
    assert other.digest != expected


def test_every_step_has_random_numbers_of_its_own(models, tmp_path, monkeypatch):
    seeds, learn = [], finetuning._Run._learn
    monkeypatch.setattr(
        finetuning._Run, "_learn", lambda *given: (seeds.append(torch.initial_seed()), learn(*given))[1]
    )
    for seed in (1, 2):
        training = replace(TRAININGS["text"], seed=seed, epochs=2, patience=None)
        tune("text", models["text"], tmp_path / str(seed), training)
    assert len(set(seeds)) == len(seeds) == 4 * STEPS


def count_loads(examples):
    """Have the examples write down which of them are loaded."""
    numbers, images = [], examples.images

    class Counted(list):
        def __getitem__(self, index):
            numbers.append(index)
            return super().__getitem__(index)

    examples.images = Counted(images)
    return numbers


@pytest.mark.parametrize(("fit", "loads"), [(0, 16), (3, 11), (1000, 7)])
def test_prepared_examples_come_in_order_and_stay_if_they_fit(models, fit, loads):
    encoder, examples = load_encoder(str(models["image"]), device="cpu"), coloured(8)
    expected = [encoder.prepare(image) for image in examples.images]
    loaded = count_loads(examples)
    prepared = Prepared(examples, encoder, 2, fit * expected[0].nbytes)
    assert list(prepared.batches([])) == []
    for _ in range(2):
        for chunks in ([[3, 1], [0], [7, 6, 3]], [[2, 2]]):
            chunks = [np.array(chunk) for chunk in chunks]
            for chunk, batch in zip(chunks, prepared.batches(chunks), strict=True):
                assert_array_equal(np.stack(batch), np.stack([expected[i] for i in chunk]))
    prepared.close()
    assert len(loaded) == loads  # two that are asked for in one step are both loaded


def test_a_folder_with_another_training_is_kept_unless_told_otherwise(models, undisturbed, steps, tmp_path):
    folder = copy_of(undisturbed["image"], tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    fewer, changed = replace(TRAININGS["image"], epochs=1), coloured(seed=4)
    digests, given = [each.digest() for each in (coloured(), changed)], {"training": fewer, "main": "concept"}
    for wrong, what in (
        ({"training": fewer}, "settings: epochs 2 instead of 1"),
        ({"training": replace(fewer, patience=3)}, "settings: epochs 2 instead of 1, patience none instead of 3"),
        ({"examples": changed}, "dataset: digest {} instead of {}".format(*digests)),
        ({"main": "concept"}, "main: y instead of concept"),
        (given, "main: y instead of concept; in settings: epochs 2 instead of 1"),
        ({"precision": "bfloat16"}, "base: device cpu, float32 instead of cpu, bfloat16"),
    ):
        message = f"another training: it differs in {what}. Choose another folder, or pass --force."
        with pytest.raises(OutputExistsError, match=re.escape(message)):
            tune("image", models["image"], folder, **wrong)
    assert not steps
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    tune("image", models["image"], folder, fewer, overwrite=True)
    assert len(steps) == STEPS
    assert len(record(folder)["history"]) == 1


def test_a_base_that_has_changed_is_noticed(tmp_path):
    base = tiny_vision("ResNet", tmp_path / "base")
    folder = tmp_path / "net"
    tune("image", base, folder)
    processor = json.loads((base / "preprocessor_config.json").read_text())
    (base / "preprocessor_config.json").write_text(json.dumps({**processor, "image_mean": [0.4] * 3}))
    with pytest.raises(OutputExistsError, match="differs in base"):
        tune("image", base, folder)
    with pytest.raises(ArtifactError, match="from another version of the base"):
        load_encoder(str(folder), device="cpu")
    tiny_vision("ConvNext", base)
    with pytest.raises(ArtifactError, match=r"is of another network: .* does not fit"):
        load_encoder(str(folder), device="cpu")


def test_a_base_that_was_moved_is_named_and_can_be_told(tmp_path):
    base, folder = tiny_vision("ResNet", tmp_path / "base"), tmp_path / "net"
    made = tune("image", base, folder)
    moved = base.rename(tmp_path / "moved")
    message = (
        f"{folder} holds a network that was trained from {base}, which is needed and is not there any more. Put it"
    )
    with pytest.raises(InputError, match=re.escape(message)) as said:
        load_encoder(str(folder), device="cpu")
    assert f"write its new place into {folder / RECORD}, as the address of the base" in str(said.value)
    base.mkdir()
    with pytest.raises(
        InputError, match=re.escape(f"from {base}, which is needed and cannot be loaded: {base} has no")
    ):
        load_encoder(str(folder), device="cpu")
    with pytest.raises(InputError, match=r"^device is 'auto', 'cpu' or 'cuda'; got 'gpu'"):
        load_encoder(str(folder), device="gpu")
    about = json.loads((folder / RECORD).read_text())
    about["base"]["address"] = str(moved)
    (folder / RECORD).write_text(json.dumps(about))
    assert load_encoder(str(folder), device="cpu").digest == made.digest


def test_a_network_cannot_replace_the_one_it_begins_from(models, undisturbed, tmp_path):
    folder = copy_of(undisturbed["image"], tmp_path)
    with pytest.raises(InputError, match="choose another folder"):
        tune("image", folder, folder, overwrite=True)
    again = tune("image", folder, tmp_path / "again")
    assert again.name == f"{models['image'].name} fine-tuned fine-tuned"
    assert load_encoder(str(tmp_path / "again"), device="cpu").digest == again.digest


def test_a_finished_network_is_found_and_not_trained_again(models, undisturbed, steps, tmp_path):
    folder = copy_of(undisturbed["image"], tmp_path)
    (folder / CHECKPOINT).write_bytes(b"left by a process that was killed at the very end")
    before = (folder / NETWORK).stat().st_mtime_ns
    encoder = tune("image", models["image"], folder)
    assert (encoder.digest, (folder / NETWORK).stat().st_mtime_ns) == (record(folder)["digest"], before)
    assert not steps
    assert sorted(path.name for path in folder.iterdir()) == [NETWORK, RECORD]


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip(path):
    content = bytearray(path.read_bytes())
    content[-9] ^= 0xFF
    path.write_bytes(content)


def without(key):
    def forget(path):
        path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != key}))

    return forget


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (NETWORK, cut, "not a readable safetensors file"),
        (NETWORK, flip, "is not the network of training.json"),
        (NETWORK, Path.unlink, "There is no file"),
        (NETWORK, lambda path: save_checkpoint(path, {}, {}), "is of another network"),
        (RECORD, cut, "is damaged"),
        (RECORD, lambda path: path.write_text("[]"), "is damaged"),
        (RECORD, lambda path: path.write_text("[" * 100_000), "nested too deeply"),
        (RECORD, lambda path: path.write_text(path.read_text().replace('"history": [', '"history": [3,')), "'history'"),
        (RECORD, without("digest"), "is damaged"),
        (RECORD, without("kept_epoch"), "is damaged"),
        (RECORD, lambda path: path.write_text(path.read_text().replace('"format": 1', '"format": 9')), "has format 9"),
    ],
)
def test_a_damaged_network_is_refused_in_words(models, undisturbed, tmp_path, name, damage, message):
    folder = copy_of(undisturbed["image"], tmp_path)
    damage(folder / name)
    with pytest.raises(ArtifactError, match=message):
        load_encoder(str(folder), device="cpu")
    with pytest.raises(ArtifactError, match=message):
        tune("image", models["image"], folder)


def rewritten(change):
    """Change parts and note of a checkpoint."""

    def rewrite(path):
        parts, note = load_checkpoint(path)
        change(parts, note)
        tensors = {part: {k: torch.from_numpy(v) for k, v in found.items()} for part, found in parts.items()}
        save_checkpoint(path, tensors, note)

    return rewrite


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "not a readable safetensors file.*--force"),
        (rewritten(lambda _, note: note.clear()), "is damaged .*wanted.*--force"),
        (rewritten(lambda _, note: note.update(wanted=3)), "is damaged"),
        (rewritten(lambda _, note: note.update(epoch="two")), "is damaged"),
        (rewritten(lambda parts, _: parts.pop("now")), "is damaged"),
        (rewritten(lambda parts, _: parts["now"].popitem()), "is of another network"),
        (rewritten(lambda parts, _: parts["optimizer"].update({"999.momentum_buffer": np.zeros(1)})), "is damaged"),
        (rewritten(lambda parts, _: parts["optimizer"].update({"0.momentum_buffer": np.zeros(3)})), "is damaged"),
    ],
)
def test_a_damaged_checkpoint_is_refused_in_words(models, killed, tmp_path, damage, message):
    folder = copy_of(killed["image", "_learn 3"], tmp_path)
    damage(folder / CHECKPOINT)
    with pytest.raises(ArtifactError, match=message):
        tune("image", models["image"], folder)
    tune("image", models["image"], folder, replace(TRAININGS["image"], epochs=1), overwrite=True)


@pytest.mark.parametrize("noted", [60.0, -1.0])
def test_a_training_that_diverges_says_so_and_leaves_nothing(models, tmp_path, monkeypatch, noted):
    monkeypatch.setattr(finetuning, "NOTE_SECONDS", noted)
    wild, folder = replace(TRAININGS["image"], learning_rate=1e30), tmp_path / "net"
    for batch in (8, N):  # the second is one step an epoch, whose own loss is finite
        with pytest.raises(InputError, match=r"loss became (nan|inf) in epoch \d: training diverged. Try a smaller"):
            tune("image", models["image"], folder, replace(wild, batch=batch, epochs=1))
        assert not any(path.is_file() for path in folder.iterdir())
    tune("image", models["image"], folder)


def test_a_training_that_stops_leaves_no_encoder_that_passes_for_the_base(models, tmp_path, monkeypatch):
    encoder, learn = load_encoder(str(models["image"]), device="cpu"), finetuning._Run._learn
    before, done = encoder.digest, []

    def interrupted(run, batch, chunk):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(1)
        return learn(run, batch, chunk)

    monkeypatch.setattr(finetuning._Run, "_learn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        finetune(coloured(), encoder, tmp_path / "net", TRAININGS["image"], progress=False)
    assert encoder.digest != before
    assert not encoder.network.training
    assert not any(parameter.requires_grad for parameter in encoder.network.parameters())


@pytest.mark.parametrize("place", ["checkpoint", "record"])
def test_a_full_disk_is_said_and_the_same_command_goes_on(models, undisturbed, tmp_path, monkeypatch, place):
    import resource  # not on Windows

    folder = tmp_path / "net"

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        if place == "checkpoint":  # as the library of the format says it
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
        else:
            monkeypatch.setattr(finetuning, "atomic", full)
        with pytest.raises(DiskError, match=r"cannot be written: .*(larger|full).*give the same command again"):
            tune("image", models["image"], folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    monkeypatch.undo()
    tune("image", models["image"], folder)
    assert record(folder) == record(undisturbed["image"])


def test_only_a_full_disk_is_one(models, tmp_path):
    class Lost(list):
        def __getitem__(self, index):
            raise error

    examples = coloured()
    digest = examples.digest()
    examples.digest, examples.images = lambda: digest, Lost(examples.images)
    for error in (InputError("no such picture"), FileNotFoundError("no such file")):
        with pytest.raises(type(error), match="no such"):
            tune("image", models["image"], tmp_path / "net", examples=examples)


@pytest.mark.parametrize("kind", ["image", "text"])
def test_the_folder_of_a_tuned_network_is_an_encoder(models, undisturbed, kind, tmp_path):
    examples = {"image": coloured, "text": sentences}[kind]()
    made = tune(kind, models[kind], tmp_path / "net")
    found = load_encoder(str(undisturbed[kind]), device="cpu")
    assert (found.name, found.digest, found.kind) == (f"{models[kind].name} fine-tuned", made.digest, kind)
    assert_array_equal(found(examples.images[:9]), made(examples.images[:9]))
    base = load_encoder(str(models[kind]), device="cpu", kind=kind)
    assert np.abs(found(examples.images[:9]) - base(examples.images[:9])).max() > 0.01
    store = embed(examples, found, tmp_path / "store", progress=False)
    told = store.manifest["encoder"]["training"]
    assert told["settings"] == TRAININGS[kind].to_dict()
    assert told["history"] == record(undisturbed[kind])["history"]
    assert told["dataset"]["digest"] == examples.digest()
    assert str(models[kind].parent) not in json.dumps(store.manifest)


def test_in_half_precision_it_learns_nearly_the_same(models, undisturbed, tmp_path):
    encoder = tune("image", models["image"], tmp_path / "net", precision="bfloat16")
    lines, exact = record(tmp_path / "net")["history"], record(undisturbed["image"])["history"]
    assert encoder.digest != record(undisturbed["image"])["digest"]
    for line, expected in zip(lines, exact, strict=True):
        assert line["train_loss"] != expected["train_loss"]
        for name in ("train_loss", "validation_loss", "adversary_loss"):
            assert_allclose(line[name], expected[name], rtol=0.1)
    assert all(weight.dtype == torch.float32 for weight in encoder.network.parameters())


def test_what_cannot_be_trained_is_refused_before_anything_is_made(models, tmp_path):
    folder = tmp_path / "net"
    with pytest.raises(InputError, match="strips is no network that could be trained"):
        finetune(coloured(), Strips(), folder, Training())
    with pytest.raises(InputError, match="takes images; digits has texts"):
        tune("image", models["image"], folder, examples=sentences())
    for name, message in (
        ("split", "has no label split"),
        ("y", "has no label 'y'; it has"),
        ("concept", "has no label 'concept'"),
    ):
        examples = coloured()
        del examples.labels[name]
        with pytest.raises(InputError, match=message):
            tune("image", models["image"], folder, examples=examples)
    for column in (np.arange(N), np.full(N, 0.5), np.full(N, "bird"), np.full(N, -1)):
        examples = coloured()
        examples.labels["y"] = column
        with pytest.raises(InputError, match=r"y has .* class"):
            tune("image", models["image"], folder, examples=examples)
    for column in (np.full(N, "train"), np.full(N, "validation"), np.arange(N)):
        examples = coloured()
        examples.labels["split"] = column
        with pytest.raises(InputError, match=r"examples of split train and \d+ of validation; some of each"):
            tune("image", models["image"], folder, examples=examples)
    assert not folder.exists()


def test_labels_may_be_words_and_a_concept_that_is_not_needed_anything(models, tmp_path):
    examples = coloured()
    examples.labels["concept"] = np.where(labels(N, 0.5, 0)["concept"], "water", "land")
    training = replace(TRAININGS["image"], adversary=0.0, epochs=1)
    words = tune("image", models["image"], tmp_path / "words", replace(training, adversary=1.0), examples)
    examples.labels["concept"] = labels(N, 0.5, 0)["concept"]  # the same as numbers: "land" is the smaller word
    numbers = tune("image", models["image"], tmp_path / "numbers", replace(training, adversary=1.0), examples)
    assert words.digest == numbers.digest
    examples.labels["concept"] = np.arange(N) % 3
    tune("image", models["image"], tmp_path / "net", training, examples)
    with pytest.raises(InputError, match="concept has 3 classes"):
        tune("image", models["image"], tmp_path / "other", replace(training, adversary=1.0), examples)


def test_a_network_learns_three_classes_where_it_is_told_that_there_are_three(models, tmp_path):
    examples, training = coloured(120), replace(TRAININGS["image"], epochs=8, adversary=0.0)
    third = np.where(examples.labels["concept"] == 1, 2, examples.labels["y"])
    examples.labels["y"] = third
    with pytest.raises(InputError, match="y has 3 classes"):
        tune("image", models["image"], tmp_path / "two", training, examples)
    tune("image", models["image"], tmp_path / "three", training, examples, classes=3)
    parts, _ = load_checkpoint(tmp_path / "three" / NETWORK)
    assert parts["head"]["weight"].shape == (3, 16)
    encoder = load_encoder(str(tmp_path / "three"), device="cpu")
    rows = np.flatnonzero(examples.labels["split"] == "validation")
    logits = encoder([examples[i] for i in rows]) @ parts["head"]["weight"].T + parts["head"]["bias"]
    line = record(tmp_path / "three")["history"][-1]
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert line["validation_accuracy"] == np.mean(logits.argmax(axis=1) == third[rows]) > 0.6
    assert_allclose(line["validation_loss"], -np.log(chances[np.arange(len(rows)), third[rows]]).mean(), rtol=1e-4)
