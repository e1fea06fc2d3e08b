"""Examples come from tables, folders and data sets with their labels, and pictures as viewers show them."""

from io import BytesIO

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.optional import datasets
from unspur.embed import Examples, read_examples
from unspur.embed.examples import open_image
from unspur.exceptions import InputError


def picture(value=100, size=(8, 6)):
    return Image.fromarray(np.full((size[1], size[0], 3), value, dtype=np.uint8))


def png(value=100):
    file = BytesIO()
    picture(value).save(file, "png")
    return file.getvalue()


@pytest.fixture
def table(tmp_path):
    """Four pictures and what is known of them."""
    names = [f"{number}.png" for number in range(4)]
    for number, name in enumerate(names):
        picture(40 * number).save(tmp_path / name)
    return pd.DataFrame({"image": names, "bird": ["gull", "tern", None, "gull"], "wet": [0, 1, 1, 0]})


def shades(examples):
    return [int(np.asarray(examples[i]).mean()) for i in range(len(examples))]


class TestTables:
    def test_pictures_of_a_csv_file(self, table, tmp_path):
        table.to_csv(tmp_path / "t.csv", index=False)
        examples = read_examples(tmp_path / "t.csv")
        assert (examples.kind, shades(examples)) == ("image", [0, 40, 80, 120])
        pd.testing.assert_frame_equal(examples.labels, table, check_dtype=False)

    def test_columns_may_have_other_names(self, table, tmp_path):
        table.rename(columns={"image": "path"}).assign(review=list("abcd")).to_csv(tmp_path / "t.csv", index=False)
        assert shades(read_examples(tmp_path / "t.csv", image="path")) == [0, 40, 80, 120]
        texts = read_examples(tmp_path / "t.csv", text="review")
        assert (texts.kind, [texts[i] for i in range(4)]) == ("text", list("abcd"))

    def test_pictures_may_lie_in_another_folder(self, table, tmp_path):
        (tmp_path / "tables").mkdir()
        table.to_csv(tmp_path / "tables" / "t.csv", index=False)
        assert shades(read_examples(tmp_path / "tables" / "t.csv", root=tmp_path)) == [0, 40, 80, 120]

    @pytest.mark.parametrize("stored", ["bytes", "struct"])
    def test_pictures_inside_of_a_parquet_file(self, stored, tmp_path):
        pytest.importorskip("pyarrow")
        files = [png(value) for value in (10, 20, 30)]
        column = files if stored == "bytes" else [{"bytes": file, "path": None} for file in files]
        pd.DataFrame({"image": column, "wet": [1, 0, 1]}).to_parquet(tmp_path / "t.parquet")
        examples = read_examples(tmp_path / "t.parquet")
        assert shades(examples) == [10, 20, 30]
        assert list(examples.labels) == ["wet"]

    @pytest.mark.parametrize(
        ("lines", "word"),
        [
            ("path,y\na.png,1\n", "no column"),
            ("image,y\nnone.png,1\n", "do not exist"),
            ("image,y\n../t.csv,1\n", "not inside"),
            ("image,y\n/etc/passwd,1\n", "not inside"),
            ("text,y\na,1\n,1\n", "row 2"),
            ("text,y\n", "0 examples"),
            ("", "cannot be read"),
        ],
    )
    def test_what_cannot_be_embedded(self, lines, word, tmp_path):
        (tmp_path / "t.csv").write_text(lines)
        with pytest.raises(InputError, match=word):
            read_examples(tmp_path / "t.csv")

    def test_links_that_lead_elsewhere_are_refused(self, table, tmp_path):
        (tmp_path / "inside").mkdir()
        (tmp_path / "inside" / "0.png").symlink_to(tmp_path / "1.png")
        table[:1].to_csv(tmp_path / "inside" / "t.csv", index=False)
        with pytest.raises(InputError, match="not inside"):
            read_examples(tmp_path / "inside" / "t.csv")
        table[:1].assign(image=str(tmp_path / "inside" / "0.png")).to_csv(tmp_path / "inside" / "t.csv", index=False)
        assert shades(read_examples(tmp_path / "inside" / "t.csv", root="/")) == [40]


class TestFolders:
    def lay(self, root, *names):
        for number, name in enumerate(names):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            picture(10 * number).save(root / name)
        return root

    def test_folders_are_classes(self, tmp_path):
        root = self.lay(tmp_path / "birds", "gull/sea/1.png", "tern/land/2.png", "gull/land/3.png")
        (root / "readme.txt").write_text("x")
        examples = read_examples(root)
        assert examples.labels["class"].tolist() == ["gull", "gull", "tern"]
        assert examples.labels["subfolder"].tolist() == ["land", "sea", "land"]
        assert examples.labels["image"].tolist() == ["gull/land/3.png", "gull/sea/1.png", "tern/land/2.png"]
        assert shades(examples) == [20, 0, 10]

    def test_splits_are_no_classes(self, tmp_path):
        labels = read_examples(self.lay(tmp_path, "train/gull/1.png", "test/tern/2.png")).labels
        assert labels[["split", "class"]].values.tolist() == [["test", "tern"], ["train", "gull"]]

    def test_pictures_alone_have_no_labels(self, tmp_path):
        assert list(read_examples(self.lay(tmp_path, "1.png", "2.png")).labels) == ["image"]

    @pytest.mark.parametrize("names", [("train/gull/1.png", "tern/2.png"), ("gull/1.png", "2.png"), ()])
    def test_what_could_mean_several_things_is_refused(self, names, tmp_path):
        with pytest.raises(InputError):
            read_examples(self.lay(tmp_path, *names))


class TestDatasets:
    def made(self):
        features = datasets.Features(
            {
                "image": datasets.Image(),
                "wet": datasets.ClassLabel(names=["land", "water"]),
                "n": datasets.Value("int64"),
            }
        )
        rows = {"image": [picture(50), picture(60)], "wet": [1, 0], "n": [7, 8]}
        return datasets.Dataset.from_dict(rows, features=features)

    def test_saved_by_datasets(self, tmp_path):
        datasets.DatasetDict(train=self.made(), test=self.made()).save_to_disk(tmp_path / "saved")
        examples = read_examples(tmp_path / "saved")
        assert shades(examples) == [50, 60, 50, 60]
        assert examples.labels["wet"].tolist() == ["water", "land"] * 2
        assert examples.labels["split"].tolist() == ["train", "train", "test", "test"]

    def test_a_folder_of_parquet_files(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
        (tmp_path / "data").mkdir()
        for split in ("train", "test"):
            frame = pd.DataFrame({"text": [f"{split} {i}" for i in range(3)], "y": range(3)})
            frame.to_parquet(tmp_path / "data" / f"{split}.parquet")
        examples = read_examples(tmp_path / "data")
        assert sorted(examples[i] for i in range(6))[:2] == ["test 0", "test 1"]
        assert set(examples.labels["split"]) == {"train", "test"}

    def test_what_cannot_be_loaded(self, tmp_path):
        (tmp_path / "dataset_dict.json").write_text("{")
        with pytest.raises(InputError, match="cannot be loaded"):
            read_examples(tmp_path)
        with pytest.raises(InputError, match="no table"):
            read_examples("nowhere.txt")


class TestPictures:
    def test_they_are_upright(self, tmp_path):
        turned = Image.Exif()
        turned[0x0112] = 6  # viewers turn it by 90 degrees
        picture(size=(8, 6)).save(tmp_path / "a.jpg", exif=turned)
        assert open_image(tmp_path / "a.jpg").size == (6, 8)

    def test_sixteen_bits_are_scaled(self, tmp_path):
        Image.fromarray(np.full((4, 4), 40_000, dtype=np.uint16)).save(tmp_path / "a.png")
        assert np.asarray(open_image(tmp_path / "a.png")).mean() == 40_000 // 256

    def test_a_large_jpeg_is_decoded_small(self, tmp_path):
        picture(size=(9000, 8100)).save(tmp_path / "a.jpg")
        assert open_image(tmp_path / "a.jpg").size == (2250, 2025)

    @pytest.mark.parametrize("content", [b"", b"no picture", png()[:40], b"%!PS-Adobe-3.0 EPSF-3.0\n"])
    def test_one_that_cannot_be_read_is_named(self, content, tmp_path):
        (tmp_path / "a.png").write_bytes(content)
        with pytest.raises(InputError, match=r"a\.png cannot be read"):
            open_image(tmp_path / "a.png")
        labels = pd.DataFrame({"y": [0, 1]})
        with pytest.raises(InputError, match="row 2 cannot be read"):
            Examples("image", [png(), content], labels)[1]
