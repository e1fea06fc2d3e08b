"""From pictures and texts to a store, and from a store to a removal, as a user types it."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.testing import assert_allclose, assert_array_equal

from tests.optional import pandas as pd

pytest.importorskip("PIL")


from tests.embed.conftest import tiny_bert  # noqa: F401 — a fixture
from unspur.cli import main
from unspur.embed.registry import ENCODERS, load_encoder
from unspur.embed.store import EmbeddingStore

PICTURES = 240


def unspur(*arguments, code=0):
    """Run the program in this process; return all it said."""
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.output


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Squares, bright or dark, on bright or dark ground, of little contrast and much noise; and their table."""
    from PIL import Image

    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    lines = ["image,square,ground,split"]
    for i in range(PICTURES):
        square, ground = i % 2, (i // 2) % 2 if i % 5 else i % 2
        pixels = 90 + 40 * ground + rng.normal(0, 25, (8, 8))
        pixels[2:6, 2:6] = 90 + 40 * square + rng.normal(0, 25, (4, 4))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(root / f"{i}.png")
        lines.append(f"{i}.png,{'bright' if square else 'dark'},{ground},{'train' if i < 200 else 'test'}")
    (root / "squares.csv").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture(scope="module")
def squares(photos, tmp_path_factory):
    """A store of the pictures, in twenty numbers each, and what was said while it was made."""
    folder = tmp_path_factory.mktemp("stores") / "squares"
    said = unspur("embed", photos / "squares.csv", "--encoder", "grey-50", "--pca", 20, "--output", folder)
    return folder, said


def test_a_table_of_images_becomes_a_store(photos, squares):
    folder, said = squares
    store = EmbeddingStore.open(folder)
    store.verify()
    assert store.rows.shape == (PICTURES, 20)
    assert store.ids[:2] == ("0.png", "1.png")
    assert f"{PICTURES} images of squares by grey-50 (2500 numbers each) on cpu, float32" in said
    assert f"{PICTURES} rows × 20, digest {store.digest}" in said
    command = f"unspur fit {folder} --where split=train --task square --concept ground --output ground.safetensors"
    assert command in " ".join(said.replace("\\\n", "").split())


def test_what_comes_next_with_several_labels_is_an_audit_and_without_labels_a_prediction(photos, tmp_path):
    table = photos / "several.csv"
    lines = (photos / "squares.csv").read_text().splitlines()
    table.write_text("\n".join([f"{lines[0]},camera", *(f"{line},{i % 3}" for i, line in enumerate(lines[1:]))]))
    store = tmp_path / "store"
    told = json.loads(unspur("embed", table, "--encoder", "grey-50", "--output", store, "--json"))
    assert told["next"] == f"unspur audit {store} --where split=train --task LABEL"
    alone = tmp_path / "new"
    alone.mkdir()
    (alone / "0.png").write_bytes((photos / "0.png").read_bytes())
    said = unspur("embed", alone, "--encoder", "grey-50", "--output", tmp_path / "unlabelled")
    assert "Note: They lie in no class folders" in said
    assert f"unspur predict MODEL.safetensors {tmp_path / 'unlabelled'}" in " ".join(said.replace("\\\n", "").split())


def test_a_store_is_found_kept_and_replaced(photos, tmp_path):
    command = ["embed", photos / "squares.csv", "--encoder", "grey-50", "--output", tmp_path / "store"]
    first = json.loads(unspur(*command, "--json"))
    assert (first["found"], first["rows"], first["width"]) == (False, PICTURES, 2500)
    assert first["rows_per_second"] is None or first["rows_per_second"] > 0
    assert json.loads(unspur(*command, "--json"))["found"]
    assert "nothing was embedded" in unspur(*command)
    other = unspur(*command, "--pca", 3, code=1)
    assert "holds other embeddings" in other
    assert json.loads(unspur(*command, "--pca", 3, "--force", "--json"))["width"] == 3


def test_the_command_to_go_on_with_may_name_a_concept_with_gaps(photos, tmp_path):
    table = pd.read_csv(photos / "squares.csv", dtype=str).head(12)
    table.loc[:2, "square"] = ["", "NA", " "]
    table.to_csv(tmp_path / "gaps.csv", index=False)
    given = ("embed", tmp_path / "gaps.csv", "--root", photos, "--encoder", "grey-50", "--output", tmp_path / "store")
    assert " --task ground --concept square --output " in " ".join(unspur(*given).replace("\\\n", "").split())


def test_texts_that_were_cut_are_counted(tiny_bert, tmp_path):  # noqa: F811
    (tmp_path / "texts.csv").write_text(
        "text,y\na bird,0\n" + f"{'fish ' * 60},1\n{'fish ' * 46},0\n{'bird ' * 47},1\n"
    )
    command = ("embed", tmp_path / "texts.csv", "--encoder", tiny_bert, "--output", tmp_path / "store")
    note = "Note: 2 of 4 texts are longer than 48 tokens and were cut."
    assert note in unspur(*command)
    assert note in unspur(*command)  # also of a store that is there already
    assert EmbeddingStore.open(tmp_path / "store").manifest["cut"] == {"texts": 2, "max_tokens": 48}
    (tmp_path / "texts.csv").write_text("text,y\na bird,0\na fish,1\n")
    assert "longer than" not in unspur(*command, "--force")


def test_tables_of_texts_and_of_pairs(tiny_bert, tmp_path):  # noqa: F811
    encoder = load_encoder(str(tiny_bert), device="cpu")
    for pair, texts in {
        "": ["a bird", "the fish"],
        ",text_pair": [("a bird", "the bird"), ("a fish", "not a fish")],
    }.items():
        table = tmp_path / "texts.csv"
        rows = [text if pair == "" else ",".join(text) for text in texts]
        table.write_text(f"text{pair},y\n" + "".join(f"{row},{i}\n" for i, row in enumerate(rows)))
        folder = tmp_path / f"store{len(pair)}"
        unspur("embed", table, "--encoder", tiny_bert, "--output", folder, "--device", "cpu")
        store = EmbeddingStore.open(folder)
        assert_allclose(store.rows, encoder(texts), atol=1e-5)
        assert_array_equal(store.labels["y"], [0, 1])
    assert "embeds images; texts has texts" in unspur(
        "embed", table, "--encoder", "grey-50", "--output", tmp_path / "no", code=1
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Name a SOURCE and an --encoder"),
        (["mine.csv"], "Name a SOURCE and an --encoder"),
        (["mine", "--encoder", "grey-50"], "There is no source 'mine'. Give a table (.csv, .tsv"),
        (["mine.csv", "--encoder", "grey-50"], "mine.csv needs --output"),
    ],
)
def test_misuse_is_explained(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text("image,y\n")
    assert message in unspur("embed", *arguments, code=2)


def test_without_packages_that_bring_datasets_it_says_where_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr("unspur.embed.registry._points", lambda _: {})
    said = unspur("embed", "celeba", "--encoder", "grey-50", "--output", tmp_path / "store", code=2)
    assert "There is no source 'celeba'. Give a table (" in said
    assert "or a published dataset (none is installed" in said
    assert "pip install -e reproduction" in said


def test_a_mistyped_encoder_and_missing_pictures_are_said_before_anything_is_made(photos, tmp_path):
    command = ["embed", photos / "squares.csv", "--output", tmp_path / "store", "--encoder"]
    assert "Did you mean grey-50" in unspur(*command, "grey50", code=1)
    said = unspur(*command, "grey-50", "--root", tmp_path, code=1)
    assert f"{PICTURES} of {PICTURES} images" in said
    assert "0.png, 1.png, 2.png and 237 more" in said
    assert not (tmp_path / "store").exists()


def test_the_list_names_every_encoder_with_its_width_and_needs():
    shown, listed = unspur("embed", "--list"), json.loads(unspur("embed", "--list", "--json"))
    assert [entry["name"] for entry in listed] == list(ENCODERS)
    for entry in listed:
        assert f"{entry['name']} " in shown
        assert f"{entry['width']} numbers" in shown
        assert ", ".join(entry["needs"]) in " ".join(shown.split())
    assert "Example:" in unspur("embed", "--help")
