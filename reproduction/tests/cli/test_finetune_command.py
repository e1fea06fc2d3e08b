"""From published data to a network, its embeddings and maps, as it is typed."""

import json
import re
import shutil

import numpy as np
import pytest
from numpy.testing import assert_allclose

pytest.importorskip("PIL")
pytest.importorskip("torch")
pytest.importorskip("transformers")

from reproduction.tests.cli.programs import paper
from reproduction.tests.datasets.birds import lay_birds, lay_scenes
from unspur_paper.embedding.base import Preparation
from unspur_paper.embedding.huggingface import HubVision
from unspur_paper.embedding.registry import ENCODERS, Entry, load_encoder
from unspur_paper.embedding.store import EmbeddingStore
from unspur_paper.networks import finetuning
from unspur_paper.networks.maps import read_maps
from unspur_paper.networks.tuned import CHECKPOINT

PREPARATION = Preparation(resize=36, crop=32, mean=(127.0,) * 3, scale=(64.0,) * 3)
QUICK = ("--device", "cpu", "--epochs", 1, "--batch", 8, "--learning-rate", 0.05)


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    return lay_scenes(lay_birds(tmp_path_factory.mktemp("birds")))


@pytest.fixture
def tiny(monkeypatch, tiny_resnet):
    """A tiny network of the registry, with a preparation that masks can follow."""
    entry = Entry(
        "image",
        16,
        "",
        (),
        lambda *where: HubVision(str(tiny_resnet), *where, preparation=PREPARATION, known_as="tiny"),
    )
    monkeypatch.setitem(ENCODERS, "tiny", entry)
    return "tiny"


def of(birds, encoder, folder, *more):
    """Arguments of a short training on few birds."""
    small = ["--sizes", "24,8,8", "--pca", 0, *QUICK, "--output", folder]
    return ["finetune", "waterbirds", "--root", birds, "--encoder", encoder, *small, *more]


def test_birds_become_a_network_and_a_store(birds, tiny_resnet, tmp_path, monkeypatch):
    folder = tmp_path / "store"
    command = of(birds, tiny_resnet, folder)
    said = paper(*command)
    assert "tiny-resnet on cpu, float32; 24 to train on, 8 to judge by" in said
    assert f"Network: {folder}-network" in said
    store = EmbeddingStore.open(folder)
    assert (store.rows.shape, store.rows.dtype) == ((40, 16), np.float16)
    about = store.manifest["encoder"]
    assert (about["name"], about["training"]["settings"]["epochs"]) == ("tiny-resnet fine-tuned", 1)
    assert about["digest"] == load_encoder(f"{folder}-network", device="cpu").digest
    # The same command finds it, from wherever it is given, as a document too.
    monkeypatch.chdir(tiny_resnet.parent)
    found = json.loads(paper(*(x if x is not tiny_resnet else tiny_resnet.name for x in command), "--json"))
    assert (found["digest"], found["rows"], found["width"]) == (store.digest, 40, 16)
    assert found["history"] == about["training"]["history"]
    # Another training needs a word.
    again = [*command, "--epochs", 2]
    assert "it differs in settings: epochs 1 instead of 2" in paper(*again, code=1)
    assert "2 epochs in" in paper(*again, "--force")
    assert EmbeddingStore.open(folder).digest != store.digest


def test_birds_are_trained_on_at_a_strength_and_mapped(birds, tiny, tmp_path):
    command = ["finetune", "waterbirds", "--root", birds, "--encoder", tiny, *QUICK, "--embeddings", tmp_path]
    maps = [*command, "--maps", 2, "--pca", 4, "--sizes", "24,8,8", "--p", 0.75]
    said = paper(*maps, "--adversary", 0.5, "--workers", 1)
    told = " ".join(said.split())
    assert "but learning_rate 0.05 (paper: 0.001), batch 8 (paper: 32), epochs 1 (paper: 100)" in told
    assert "adversary" in said.split("kept is epoch 1")[1]
    folder = tmp_path / "waterbirds-finetuned" / "tiny" / "p-0.75-adversary-0.5" / "seed-0"
    store, kept = EmbeddingStore.open(folder), read_maps(folder)
    assert store.rows.shape == (40, 4)
    assert store.manifest["encoder"]["training"]["settings"]["balance"] == "concept"
    rows = store.labels["split"] == "train"
    for y in (0, 1):
        of_class = rows & (store.labels["y"] == y)
        assert np.sum(store.labels["background"][of_class] == y) == round(0.75 * of_class.sum())
    assert 0 < len(kept.ids) <= 8
    chosen = [store.ids.index(name) for name in kept.ids]
    assert set(store.labels["split"][chosen]) == {"test"}


def test_a_folder_is_named_by_its_last_part_where_experiments_look(birds, tiny_resnet, tmp_path):
    paper(
        "finetune",
        "waterbirds",
        "--root",
        birds,
        "--encoder",
        tiny_resnet,
        *QUICK,
        "--embeddings",
        tmp_path,
        "--pca",
        0,
        "--sizes",
        "24,8,8",
    )
    assert (
        EmbeddingStore.open(tmp_path / "waterbirds-finetuned" / "tiny-resnet" / "p-0.9" / "seed-0").rows.shape[1] == 16
    )


def test_texts_are_trained_on_without_a_mark(tiny_bert, tmp_path):
    data = tmp_path / "multinli_1.0"
    data.mkdir()
    lines = [
        {"gold_label": ("contradiction", "neutral")[i % 2], "sentence1": "the bird sees", "sentence2": f"a fish {i}"}
        for i in range(60)
    ]
    for name in ("train", "dev_matched"):
        (data / f"multinli_1.0_{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ["finetune", "multinli", "--root", tmp_path, "--encoder", tiny_bert, "--device", "cpu", "--epochs", 1]
    command += ["--sizes", "40,8,8", "--embeddings", tmp_path / "all", "--pca", 5]
    made = json.loads(paper(*command, "--unmarked", "--json"))
    store = EmbeddingStore.open(tmp_path / "all" / "multinli-finetuned" / "tiny-bert" / "unmarked" / "seed-0")
    assert made["rows"] == len(store) == 2 * 56
    assert store.labels["concept"].tolist() == [0, 1] * 56
    said = paper(*command, "--unmarked", "--adversary", 1, code=2)
    assert "it would have no concept to find" in said
    assert "with --unmarked there is none to train on" in paper(*command, "--unmarked", "--p", 0.9, code=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["birds", "--encoder", "tiny", "--root", "."], "'birds' is not one of 'waterbirds', 'celeba', 'multinli'"),
        (["waterbirds"], "Missing option '--encoder'"),
        (["waterbirds", "--encoder", "tiny", "--root", ".", "--unmarked"], "--unmarked is for multinli only"),
        (["waterbirds", "--encoder", "tiny", "--root", ".", "--task", "y"], "--task and --concept are for celeba"),
        (["multinli", "--encoder", "tiny", "--root", ".", "--maps", 3], "--maps is for waterbirds and celeba"),
        (["waterbirds", "--encoder", "tiny", "--root", ".", "--negation"], "--negation is for all pairs of multinli"),
        (["multinli", "--encoder", "tiny", "--root", ".", "--negation", "--p", 0.9], "taken as they are"),
        (["multinli", "--encoder", "tiny", "--root", ".", "--squares", "s"], "--squares is for waterbirds and celeba"),
        (["waterbirds", "--encoder", "tiny", "--root", ".", "--optimizer", "sdg"], "'sdg' is not one of 'sgd', 'adam'"),
    ],
)
def test_misuse_is_explained(arguments, message):
    assert message in paper("finetune", *arguments, code=2)


def one_line(*arguments):
    """What is said instead of a result: one line, and no traceback."""
    said = paper("finetune", *arguments, "--json", code=1)
    assert said.startswith("Error: ")
    assert "\n" not in said.strip()
    assert "Traceback" not in said
    return said


def test_what_cannot_be_trained_is_said_in_a_line_before_anything_is_made(birds, tiny_resnet, tiny, tmp_path):
    command = of(birds, tiny_resnet, tmp_path / "store")[1:]

    def other(option, value):
        return [value if before == option else now for before, now in zip(["", *command], command, strict=False)]

    assert "grey-50 is no network" in one_line(*other("--encoder", "grey-50"))
    assert "Did you mean resnet50" in one_line(*other("--encoder", "resnet5"))
    for option, value, message in (
        ("--epochs", 0, "epochs is a whole number from 1"),
        ("--learning-rate", -1, "learning_rate is a positive"),
        ("--pca", 17, "have no 17 principal components; pass --pca with 16 at most"),
    ):
        assert message in one_line(*other(option, value))
    mapped = [*command, "--maps", 2]
    assert "prepares pictures in its own way" in one_line(*mapped, "--pca", 4)
    assert "leave out --pca 0" in paper("finetune", *mapped, "--encoder", tiny, code=2)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "thesis.txt").touch()
    assert "is not an embedding store and holds other files" in one_line(*command)
    assert not (tmp_path / "store-network").exists()


@pytest.fixture
def untrained(monkeypatch):
    """Nothing may be trained."""

    def trains(*_, **__):
        raise AssertionError("It was trained.")

    monkeypatch.setattr(finetuning._Run, "train", trains)


def test_a_place_that_cannot_be_written_to_is_found_before_training(birds, tiny_resnet, tmp_path, untrained):
    (tmp_path / "thesis").touch()
    (tmp_path / "store-network").touch()
    for output, message in (
        ("thesis", f"{tmp_path / 'thesis'} is a file; the store needs a folder {tmp_path / 'thesis'}. Choose another"),
        ("store", f"{tmp_path / 'store-network'} is a file; the network needs a folder {tmp_path / 'store-network'}"),
    ):
        assert message in one_line(*of(birds, tiny_resnet, tmp_path / output)[1:])


@pytest.fixture(scope="module")
def trained(birds, tiny_resnet, tmp_path_factory):
    """A store and, beside it, its network."""
    folder = tmp_path_factory.mktemp("trained") / "store"
    paper(*of(birds, tiny_resnet, folder))
    return folder


def test_rows_without_their_network_are_found_before_training(trained, birds, tiny_resnet, tmp_path, monkeypatch):
    folder = shutil.copytree(trained, tmp_path / "store")
    with monkeypatch.context() as patch:
        patch.setattr(finetuning._Run, "train", None)
        said = one_line(*of(birds, tiny_resnet, folder)[1:])
        assert f"{folder}-network holds no finished network that they could be of" in said
        (tmp_path / "store-network").mkdir()
        (tmp_path / "store-network" / CHECKPOINT).touch()
        said = one_line(*of(birds, tiny_resnet, folder)[1:])
        assert f"or delete {folder} to go on with the training that was begun." in said
    (tmp_path / "store-network" / CHECKPOINT).unlink()
    paper(*of(birds, tiny_resnet, folder, "--force"))
    digest = EmbeddingStore.open(folder).manifest["encoder"]["digest"]
    assert load_encoder(f"{folder}-network", device="cpu").digest == digest


def test_rows_of_another_network_are_told_from_those_of_the_one_that_is_there(trained, birds, tiny_resnet, tmp_path):
    shutil.copytree(f"{trained}-network", tmp_path / "store-network")
    folder = shutil.copytree(trained, tmp_path / "store")
    manifest = json.loads((folder / "manifest.json").read_text())
    digest, manifest["encoder"]["digest"] = manifest["encoder"]["digest"], "0123456789abcdef"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert f"0123456789abcdef instead of {digest}" in one_line(*of(birds, tiny_resnet, folder)[1:])


def test_the_help_speaks_of_epochs_and_shows_the_strength():
    said = " ".join(paper("finetune", "--help").split())
    assert "Strength of the correlation (0.9)." in said
    assert not re.search(r"\brounds?\b", said, re.IGNORECASE)


@pytest.fixture
def faces(tmp_path):
    """Forty-eight small faces; the first two attributes are in all combinations."""
    from PIL import Image

    folder, rng = tmp_path / "data" / "celeba" / "img_align_celeba", np.random.default_rng(0)
    folder.mkdir(parents=True)
    names = ["Smiling", "Male", *(f"Other_{i}" for i in range(38))]
    lines = ["48", " ".join(names)]
    for i in range(48):
        Image.fromarray(rng.integers(0, 255, (40, 36, 3), dtype=np.uint8)).save(folder / f"{i:06}.jpg")
        values = [i % 2, i // 2 % 2, *rng.integers(0, 2, 38)]
        lines.append(" ".join([f"{i:06}.jpg", *("1" if value else "-1" for value in values)]))
    (folder.parent / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    return tmp_path / "data"


def test_faces_are_trained_on_mapped_and_the_same_from_squares(faces, tiny, tmp_path):
    command = ["finetune", "celeba", "--root", faces, "--encoder", tiny, *QUICK, "--task", "Smiling", "--concept"]
    command += ["not Male", "--sizes", "16,8,8", "--p", 0.75, "--pca", 4, "--maps", 2]
    for name, more in (
        ("plain", []),
        ("squares", ["--squares", tmp_path / "kept"]),
        ("again", ["--squares", tmp_path / "kept"]),
    ):
        paper(*command, "--embeddings", tmp_path / name, *more)
    stores = [
        EmbeddingStore.open(tmp_path / name / "celeba-finetuned" / "tiny" / "p-0.75" / "seed-0")
        for name in ("plain", "squares", "again")
    ]
    plain, squares, again = stores
    assert squares.digest == again.digest
    assert_allclose(squares.rows, plain.rows, atol=0.05)  # but for rounding of pixels
    assert np.ptp(plain.rows, axis=0).max() > 0.3
    assert stores[0].manifest["dataset"]["settings"]["main"] == "Smiling"
    maps = read_maps(stores[0].folder)
    assert len(maps) == 8
    # The mouth is a box in the lower half of the picture.
    assert 0.05 < maps.coverage.mean() < 0.2
    assert maps.coverage[0, -1, -1] < 0.01
    assert len(list((tmp_path / "kept").glob("*.npy"))) == 1


def test_pairs_in_their_published_groups_have_three_classes(tiny_bert, tmp_path):
    data = tmp_path / "multinli_1.0"
    data.mkdir()
    kinds = ("contradiction", "neutral", "entailment")
    for name in ("train", "dev_matched"):
        lines = [
            {"gold_label": kinds[i % 3], "sentence1": f"the {('bird', 'fish', 'a')[i % 3]} sees", "sentence2": words}
            for i, words in enumerate(["no big bird", "the green bird", "a fish is over"] * 20)
        ]
        (data / f"multinli_1.0_{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ["finetune", "multinli", "--root", tmp_path, "--encoder", tiny_bert, "--device", "cpu", "--epochs", 1]
    paper(*command, "--negation", "--pca", 2, "--embeddings", tmp_path / "all")
    store = EmbeddingStore.open(tmp_path / "all" / "multinli-finetuned" / "tiny-bert" / "negation" / "seed-0")
    assert len(store) == 120
    assert set(store.labels["y"]) == {0, 1, 2}
    assert_allclose(store.labels["concept"], store.labels["y"] == 0)
