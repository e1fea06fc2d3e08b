"""Published datasets as stores, where experiments look for them."""

import json

import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("PIL")

from reproduction.tests.cli.programs import paper
from reproduction.tests.datasets.birds import SPECIES, lay_birds, lay_published, lay_scenes
from unspur_paper.embedding.store import EmbeddingStore


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    return lay_scenes(lay_birds(tmp_path_factory.mktemp("birds")))


def test_waterbirds_go_where_experiments_look_for_them(birds, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["embed", "waterbirds", "--root", birds, "--encoder", "grey-50"]
    said = paper(*command)
    following = "Next: unspur-paper reproduce waterbirds-ood --runs 1 --embeddings unspur-embeddings"
    assert following in " ".join(said.replace("\\\n", "").split())
    paper(*command, "--seed", 1)
    folder = tmp_path / "unspur-embeddings" / "waterbirds" / "grey-50"
    first, other = (EmbeddingStore.open(folder / f"seed-{seed}") for seed in (0, 1))
    assert first.digest != other.digest
    assert first.manifest["dataset"]["settings"]["rule"] == "species"


def test_some_of_the_birds_go_where_they_are_told(birds, tmp_path):
    command = ["embed", "waterbirds", "--root", birds, "--encoder", "grey-50", "--sizes", "26,5,8", "--pca", 9]
    paper(*command, "--output", tmp_path / "first")
    paper(*command, "--rule", "circulated", "--output", tmp_path / "circulated", "--scenes", birds / "scenes")
    first, circulated = (EmbeddingStore.open(tmp_path / name) for name in ("first", "circulated"))
    assert first.manifest["dataset"]["settings"]["sizes"] == {"train": 26, "validation": 5, "test": 8}
    assert first.rows.shape == (78, 9)
    assert circulated.labels["y"].sum() > first.labels["y"].sum()
    assert_array_equal(circulated.rows, first.rows)
    for option in (["--pca", 9], ["--sizes", "26,5,8"]):
        said = paper("embed", "waterbirds", "--root", birds, "--encoder", "grey-50", *option, code=2)
        assert f"{option[0]} needs --output" in said


def test_published_waterbirds_faces_and_sentences(tmp_path):
    names = [f"{species}/x.jpg" for species in SPECIES]
    published = lay_published(tmp_path / "w", names, [1] * 7, [0, 1] * 3 + [0], [0, 0, 0, 1, 1, 2, 2])
    out = ["--embeddings", tmp_path / "all", "--json"]
    made = json.loads(
        paper("embed", "waterbirds-published", "--root", published, "--encoder", "grey-50", "--rule", "species", *out)
    )
    store = EmbeddingStore.open(tmp_path / "all" / "waterbirds-published" / "grey-50")
    assert (made["rows"], store.labels["y"].sum()) == (7, 2)
    said = paper("embed", "celeba", "--root", tmp_path, "--encoder", "grey-50", *out, code=1)
    assert "img_align_celeba does not exist" in said
    said = paper("embed", "multinli", "--root", tmp_path, "--encoder", "grey-50", *out, code=1)
    assert "multinli_1.0_train.jsonl does not exist" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Name a SOURCE and an --encoder"),
        (["celeba"], "Name a SOURCE and an --encoder"),
        (["celeb", "--encoder", "grey-50"], "'celeb' is not one of '"),
        (["mine.csv", "--encoder", "grey-50"], "'mine.csv' is not one of '"),
        (["celeba", "--encoder", "grey-50", "--root", ".", "--sizes", "1,2,3"], "--sizes is for waterbirds only"),
        (["celeba", "--encoder", "grey-50", "--rule", "species"], "--rule is for waterbirds and waterbirds-published"),
        (["waterbirds", "--encoder", "grey-50", "--limit", "3"], "--limit is for celeba only"),
        (["waterbirds", "--encoder", "grey-50", "--root", ".", "--sizes", "1,2"], "three whole numbers"),
    ],
)
def test_misuse_is_explained(arguments, message):
    assert message in paper("embed", *arguments, code=2)


def test_a_dataset_in_a_folder_needs_that_folder():
    assert "celeba needs --root, the folder of its data" in paper("embed", "celeba", "--encoder", "grey-50", code=1)
