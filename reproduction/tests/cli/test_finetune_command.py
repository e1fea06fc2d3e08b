"""From pictures to a network of one's own, its embeddings and a removal, as a user types it."""

import json
import re
import shutil

import numpy as np
import pytest
from numpy.testing import assert_allclose

pytest.importorskip("PIL")
pytest.importorskip("torch")
pytest.importorskip("transformers")

from reproduction.tests.cli.programs import paper, unspur
from reproduction.tests.datasets.birds import lay_birds, lay_scenes
from reproduction.tests.networks.tuning import coloured
from unspur_paper.embedding.base import Preparation
from unspur_paper.embedding.huggingface import HubVision
from unspur_paper.embedding.registry import ENCODERS, Entry, load_encoder
from unspur_paper.embedding.store import EmbeddingStore
from unspur_paper.networks import finetuning
from unspur_paper.networks.maps import read_maps
from unspur_paper.networks.tuned import CHECKPOINT

PREPARATION = Preparation(resize=36, crop=32, mean=(127.0,) * 3, scale=(64.0,) * 3)
LABELS = ("--task", "y", "--concept", "concept")
WORDS = ("--task", "colour", "--concept", "light")
QUICK = ("--device", "cpu", "--epochs", 1, "--batch", 8, "--learning-rate", 0.05)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table of pictures: main label and concept in columns of 0 and 1, the same in words, and their split.

    Other columns have three values, and one.
    """
    root, examples = tmp_path_factory.mktemp("pictures"), coloured(90)
    lines = ["image,y,concept,colour,light,third,camera,split"]
    for i, image in enumerate(examples.images):
        image.save(root / f"{i}.png")
        y, concept, split = (examples.labels[name][i] for name in ("y", "concept", "split"))
        words = f"{'red' if y else 'green'},{'lit' if concept else 'dim'},{i % 3},mine"
        lines.append(f"{i}.png,{y},{concept},{words},{split if i % 3 != 1 or i < 60 else 'test'}")
    (root / "pictures.csv").write_text("\n".join(lines) + "\n")
    return root / "pictures.csv"


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


def without_column(table, folder, name):
    """The same table without a column, in another place."""
    lines = [line.split(",") for line in table.read_text().split()]
    keep = [i for i, column in enumerate(lines[0]) if column != name]
    (folder / table.name).write_text("\n".join(",".join(line[i] for i in keep) for line in lines) + "\n")
    return folder / table.name


def test_a_table_of_pictures_becomes_a_network_a_store_and_a_removal(table, tiny_resnet, tmp_path, monkeypatch):
    folder = tmp_path / "store"
    command = ["finetune", table, "--encoder", tiny_resnet, *LABELS, *QUICK, "--output", folder, "--pca", 0]
    said = paper(*command)
    assert "tiny-resnet on cpu, float32; 60 to train on, 20 to judge by" in said
    assert "1 epoch in" in said
    assert f"Network: {folder}-network" in said
    store = EmbeddingStore.open(folder)
    assert (store.rows.shape, store.rows.dtype) == ((90, 16), np.float16)
    about = store.manifest["encoder"]
    assert (about["name"], about["training"]["settings"]["epochs"]) == ("tiny-resnet fine-tuned", 1)
    encoder = load_encoder(f"{folder}-network", device="cpu")
    assert about["digest"] == encoder.digest
    assert_allclose(store.rows[:5], encoder([coloured(90)[i] for i in range(5)]), rtol=2e-3, atol=1e-3)
    # The same command finds it, from wherever it is given, as a document too.
    monkeypatch.chdir(tiny_resnet.parent)
    found = json.loads(paper(*(x if x is not tiny_resnet else tiny_resnet.name for x in command), "--json"))
    assert (found["digest"], found["rows"], found["width"]) == (store.digest, 90, 16)
    assert found["history"] == about["training"]["history"]
    assert found["network"] == f"{folder}-network"
    # Another training needs a word.
    again = [*command[: command.index("--epochs")], "--epochs", 2, *command[command.index("--epochs") + 2 :]]
    said = paper(*again, code=1)
    assert "it differs in settings: epochs 1 instead of 2. Choose another folder, or pass --force" in said
    assert "2 epochs in" in paper(*again, "--force")
    assert EmbeddingStore.open(folder).digest != store.digest


def test_labels_may_be_words_from_the_table_to_the_comparison(table, tiny_resnet, tmp_path):
    """As in the README."""
    made = {}
    for name, labels in (("numbers", LABELS), ("words", WORDS)):
        command = ["finetune", table, "--encoder", tiny_resnet, *labels, *QUICK, "--output", tmp_path / name]
        made[name] = json.loads(paper(*command, "--adversary", 0.5, "--json"))
    assert made["words"]["digest"] == made["numbers"]["digest"]  # in both columns the smaller value is the same class
    rows = ["--where", "split=train", "--validation-where", "split=validation", "--test-where", "split=test"]
    found = json.loads(unspur("compare", tmp_path / "words", *rows, *WORDS, "--json"))
    assert {line["remover"] for line in found} >= {"none", "JSE", "INLP", "LEACE"}
    # Of ninety pictures a few are in the smallest group: methods that test directions say so, the others do their work.
    untested = {line["remover"] for line in found if line["problem"] and "Too few held-out rows" in line["problem"]}
    assert untested <= {"JSE", "JSE (metric 0)", "JSE (metric 1)", "INLP"}
    assert not any(line["problem"] for line in found if line["remover"] not in untested)
    groups = [(group["main"], group["concept"], group["rows"]) for group in found[0]["accuracy"]["groups"]]
    assert groups == [("green", "dim", 2), ("green", "lit", 4), ("red", "dim", 1), ("red", "lit", 3)]
    assert "JSE" in unspur("compare", tmp_path / "words", *rows, *WORDS, "--remover", "JSE", "--remover", "none")


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
        (["birds", "--encoder", "tiny"], "There is no source 'birds'. Known are waterbirds, celeba, multinli"),
        (["waterbirds"], "Missing option '--encoder'"),
        (["waterbirds", "--encoder", "tiny"], "waterbirds needs --root"),
        (["waterbirds", "--encoder", "tiny", "--root", ".", "--unmarked"], "--unmarked is for multinli only"),
        (["waterbirds", "--encoder", "tiny", "--root", ".", "--task", "y"], "--task and --concept are for celeba"),
        (["multinli", "--encoder", "tiny", "--root", ".", "--maps", 3], "--maps is for waterbirds and celeba"),
        (["waterbirds", "--encoder", "tiny", "--root", ".", "--negation"], "--negation is for all pairs of multinli"),
        (["multinli", "--encoder", "tiny", "--root", ".", "--negation", "--p", 0.9], "taken as they are"),
        (["multinli", "--encoder", "tiny", "--root", ".", "--squares", "s"], "--squares is for waterbirds and celeba"),
        (["mine.csv", "--encoder", "tiny", "--task", "y", "--concept", "c"], "mine.csv needs --output"),
        (["mine.csv", "--encoder", "tiny", "--output", "o", "--task", "y"], "and --task and --concept"),
        (
            ["mine.csv", "--encoder", "tiny", "--output", "o", *LABELS, "--concept", "light"],
            "passed 2 times (concept, light)",
        ),
        (["mine.csv", "--encoder", "tiny", "--output", "o", *LABELS, "--sizes", "4,4,4"], "--sizes is for known"),
        (["mine.csv", "--encoder", "tiny", "--output", "o", *LABELS, "--p", 0.9], "rows of mine.csv are taken as they"),
        (["waterbirds", "--encoder", "tiny", "--optimizer", "sdg"], "'sdg' is not one of 'sgd', 'adam'"),
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


def test_what_cannot_be_trained_is_said_in_a_line_before_anything_is_made(table, birds, tiny_resnet, tiny, tmp_path):
    out = ["--output", tmp_path / "store", "--device", "cpu"]
    own = [table, "--encoder", tiny_resnet, *out]
    assert "grey-50 is no network" in one_line(table, "--encoder", "grey-50", *LABELS, *out)
    assert "Did you mean resnet50" in one_line(table, "--encoder", "resnet5", *LABELS, *out)
    assert "third has 3 classes (0, 1, 2)" in one_line(*own, "--task", "third", "--concept", "concept")
    assert "camera has one class only (mine)" in one_line(*own, "--task", "camera", "--concept", "concept")
    for labels in (("--task", "kind", "--concept", "concept"), ("--task", "y", "--concept", "kind")):
        assert "has no label 'kind'; it has y, concept" in one_line(*own, *labels)
    for option, message in (
        (["--epochs", 0], "epochs is a whole number from 1"),
        (["--learning-rate", -1], "learning_rate is a positive"),
        (["--pca", 17], "have no 17 principal components; pass --pca with 16 at most"),
    ):
        assert message in one_line(*own, *LABELS, *option)
    cut = without_column(table, tmp_path, "split")
    for image in table.parent.glob("*.png"):
        shutil.copy(image, tmp_path)
    assert "pictures has no label split" in one_line(cut, *own[1:], *LABELS)
    mapped = ["waterbirds", "--root", birds, "--sizes", "24,8,8", *out, "--maps", 2]
    assert "prepares pictures in its own way" in one_line(*mapped, "--encoder", tiny_resnet, "--pca", 4)
    assert "leave out --pca 0" in paper("finetune", *mapped, "--encoder", tiny, "--pca", 0, code=2)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "thesis.txt").touch()
    assert "is not an embedding store and holds other files" in one_line(*own, *LABELS)
    assert not (tmp_path / "store-network").exists()


def test_a_picture_that_cannot_be_read_is_not_taken_for_a_full_disk(table, tiny_resnet, tmp_path):
    root = shutil.copytree(table.parent, tmp_path / "pictures")
    (root / "7.png").write_bytes(b"no picture")
    said = one_line(root / table.name, "--encoder", tiny_resnet, *LABELS, *QUICK, "--output", tmp_path / "store")
    assert "7.png cannot be read as an image" in said


@pytest.fixture
def untrained(monkeypatch):
    """Nothing may be trained."""

    def trains(*_, **__):
        raise AssertionError("It was trained.")

    monkeypatch.setattr(finetuning._Run, "train", trains)


def test_a_place_that_cannot_be_written_to_is_found_before_training(table, tiny_resnet, tmp_path, untrained):
    own = [table, "--encoder", tiny_resnet, *LABELS, *QUICK, "--output"]
    (tmp_path / "thesis").touch()
    (tmp_path / "store-network").touch()
    for output, message in (
        ("thesis", f"{tmp_path / 'thesis'} is a file; the store needs a folder {tmp_path / 'thesis'}. Choose another"),
        ("thesis/store", f"{tmp_path / 'thesis'} is a file; the store needs a folder {tmp_path / 'thesis/store'}"),
        ("store", f"{tmp_path / 'store-network'} is a file; the network needs a folder {tmp_path / 'store-network'}"),
    ):
        for force in ((), ("--force",)):
            assert message in one_line(*own, tmp_path / output, *force)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store-network", "thesis"]


@pytest.fixture(scope="module")
def trained(table, tiny_resnet, tmp_path_factory):
    """A store and, beside it, its network."""
    folder = tmp_path_factory.mktemp("trained") / "store"
    paper("finetune", table, "--encoder", tiny_resnet, *LABELS, *QUICK, "--output", folder)
    return folder


def copied(trained, tmp_path, *, network=True):
    if network:
        shutil.copytree(f"{trained}-network", tmp_path / "store-network")
    return shutil.copytree(trained, tmp_path / "store")


@pytest.mark.parametrize("other", [(), ("--epochs", 3)])
@pytest.mark.parametrize("finished", [True, False])
def test_rows_without_their_network_are_found_before_training(
    trained,
    table,
    tiny_resnet,
    tmp_path,
    untrained,
    other,
    finished,
):
    folder = copied(trained, tmp_path, network=False)
    if not finished:
        progress = {**json.loads((folder / "manifest.json").read_text()), "done": 20}
        (folder / "manifest.json").unlink()
        (folder / "progress.json").write_text(json.dumps(progress))
    own = [table, "--encoder", tiny_resnet, *LABELS, *QUICK, *other, "--output", folder]
    said = one_line(*own)
    assert f"{folder} holds embeddings, and {folder}-network holds no finished network that they could be of" in said
    assert "Put back their network, choose another --output, or pass --force to train and embed from the start." in said
    assert not (tmp_path / "store-network").exists()
    (tmp_path / "store-network").mkdir()
    (tmp_path / "store-network" / CHECKPOINT).touch()
    assert f"or delete {folder} to go on with the training that was begun." in one_line(*own)


def test_rows_of_another_network_are_told_from_those_of_the_one_that_is_there(
    trained,
    table,
    tiny_resnet,
    tmp_path,
    untrained,
):
    folder = copied(trained, tmp_path)
    own = [table, "--encoder", tiny_resnet, *LABELS, *QUICK, "--output", folder]
    assert json.loads(paper("finetune", *own, "--json"))["rows"] == 90
    manifest = json.loads((folder / "manifest.json").read_text())
    digest, manifest["encoder"]["digest"] = manifest["encoder"]["digest"], "0123456789abcdef"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    said = one_line(*own)
    assert f"{folder} holds embeddings of another network than the one in {folder}-network: tiny-resnet" in said
    assert f"0123456789abcdef instead of {digest}. Choose another --output, or pass --force." in said


def test_rows_without_their_network_are_replaced_if_told(trained, table, tiny_resnet, tmp_path):
    folder = copied(trained, tmp_path, network=False)
    paper("finetune", table, "--encoder", tiny_resnet, *LABELS, *QUICK, "--output", folder, "--force")
    assert (
        load_encoder(f"{folder}-network", device="cpu").digest
        == EmbeddingStore.open(folder).manifest["encoder"]["digest"]
    )


@pytest.mark.parametrize("output", [".", "..", "../here"])
def test_the_network_lies_beside_the_store_whatever_that_is_called(
    table,
    tiny_resnet,
    tmp_path,
    monkeypatch,
    output,
):
    (tmp_path / "here" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here" / "below" if output == ".." else tmp_path / "here")
    (tmp_path / "here" / "below").rename(tmp_path / "here" / ".below")  # is no file in the way
    paper("finetune", table, "--encoder", tiny_resnet, *LABELS, *QUICK, "--output", output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "here-network"]
    assert EmbeddingStore.open(tmp_path / "here").rows.shape == (90, 16)
    assert load_encoder(str(tmp_path / "here-network"), device="cpu").width == 16


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
