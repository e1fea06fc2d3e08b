"""A table of one's own becomes examples with labels, or says which line is wrong."""

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from unspur.embed.examples import TableExamples, open_image
from unspur.exceptions import InputError

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def photos(tmp_path):
    """Three pictures under photos/, and a table beside it."""
    for name, grey in (("a.png", 10), ("b.png", 20), ("sub/c ü.png", 30)):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (6, 4), grey).save(path)
    table = tmp_path / "birds.csv"
    table.write_text("image,bird,background,code\nb.png,gull,1,01\nsub/c ü.png,tern,0,02\na.png,gull,,03\n", "utf-8")
    return table


def test_images_are_read_in_the_order_of_the_table_with_its_other_columns_as_labels(photos):
    own = TableExamples.read(photos, photos.parent / "photos")
    assert (len(own), own.kind, own.name) == (3, "image", "birds")
    assert own.ids == ["b.png", "sub/c ü.png", "a.png"]
    assert [own[i].getpixel((0, 0)) for i in range(3)] == [(20,) * 3, (30,) * 3, (10,) * 3]
    assert list(own.labels) == ["bird", "background", "code"]
    assert list(own.labels["background"]) == ["1", "0", ""]
    assert list(own.labels["code"]) == ["01", "02", "03"]  # 1 and 01 may be two things


def test_whole_numbers_become_numbers_and_paths_start_at_the_table(photos):
    table = photos.parent / "photos" / "table.csv"
    table.write_text("\ufeffimage,y\na.png,-1\nb.png,1\n", encoding="utf-8")
    own = TableExamples.read(table)
    assert own.labels["y"].dtype == np.int64
    assert_array_equal(own.labels["y"], [-1, 1])


def test_texts_and_pairs_of_texts(tmp_path):
    table = tmp_path / "pairs.csv"
    table.write_text('text,y\n"one, and\ntwo",0\nthree,1\n', encoding="utf-8")
    own = TableExamples.read(table)
    assert (own.kind, [own[0], own[1]], own.ids) == ("text", ["one, and\ntwo", "three"], ["1", "2"])
    table.write_text("id,text,text_pair,y\np,one,uno,0\nq,two,,1\n", encoding="utf-8")
    own = TableExamples.read(table)
    assert ([own[0], own[1]], own.ids) == ([("one", "uno"), ("two", "")], ["p", "q"])
    assert list(own.labels) == ["y"]
    assert (own.name, TableExamples.read(table, name="translations").name) == ("pairs", "translations")


def test_the_digest_follows_table_and_files_and_not_their_place(photos, tmp_path):
    root = photos.parent / "photos"
    before = TableExamples.read(photos, root).digest()
    moved = root.rename(tmp_path / "elsewhere")
    assert TableExamples.read(photos, moved).digest() == before
    pixel = Image.open(moved / "a.png")
    pixel.putpixel((1, 1), 99)
    pixel.save(moved / "a.png")
    changed = TableExamples.read(photos, moved).digest()
    assert changed != before
    photos.write_text(photos.read_text("utf-8").replace("gull,1", "gull,0"), "utf-8")
    assert TableExamples.read(photos, moved).digest() not in (before, changed)


@pytest.mark.parametrize("name", ["../secret.png", "sub/../../secret.png", "/etc/secret.png"])
def test_paths_that_lead_out_of_the_folder_are_refused(photos, name):
    Image.new("L", (6, 4)).save(photos.parent / "secret.png")
    photos.write_text(f"image,y\na.png,1\n{name},0\n")
    with pytest.raises(InputError, match=r"names .*secret\.png'.*, which is not inside of \S*photos\. Give the folder"):
        TableExamples.read(photos, photos.parent / "photos")


def test_links_lead_nowhere_else_either_unless_that_is_allowed(photos):
    root = photos.parent / "photos"
    Image.new("L", (6, 4), 9).save(photos.parent / "secret.png")
    (root / "link.png").symlink_to(photos.parent / "secret.png")
    (root / "out").symlink_to(photos.parent)
    (root / "within.png").symlink_to(root / "a.png")
    for name in ("link.png", "out/secret.png", "../secret.png", str(photos.parent / "secret.png")):
        photos.write_text(f"image,y\na.png,1\n{name},0\n")
        with pytest.raises(InputError, match=r"which is not inside of .* pass allow_outside=True"):
            TableExamples.read(photos, root)
        assert TableExamples.read(photos, root, allow_outside=True)[1].getpixel((0, 0)) == (9, 9, 9)
    photos.write_text("image,y\na.png,1\nwithin.png,0\n")  # the control: a link that stays
    assert len(TableExamples.read(photos, root)) == 2


@pytest.mark.parametrize("name", ["a" * 300 + ".png", "a/" * 1500 + "b.png", "a\0.png"])
def test_names_that_no_file_has_are_refused_in_few_words(photos, name):
    photos.write_text(f"image,y\na.png,1\n{name},0\n")
    with pytest.raises(InputError, match=r"which no file is called|line contains NUL") as error:
        TableExamples.read(photos, photos.parent / "photos")
    assert len(str(error.value)) < 400


def test_missing_files_are_counted_and_named(photos):
    root = photos.parent / "photos"
    photos.write_text("image,y\na.png,1\n" + "".join(f"gone{i}.png,0\n" for i in range(5)))
    with pytest.raises(InputError, match=r"5 of 6 images .*: gone0\.png, gone1\.png, gone2\.png and 2 more.*root="):
        TableExamples.read(photos, root)


@pytest.mark.parametrize("folder", [".", ".."])
def test_folders_that_are_called_by_dots_are_shown_by_their_path(photos, monkeypatch, folder):
    monkeypatch.chdir(photos.parent / "photos")
    place = re.escape(str(Path(folder).resolve()))
    for name, message in (("../../b.png", rf"not inside of {place}\. Give"), ("gone.png", rf"is not in {place}: gone")):
        photos.write_text(f"image,y\n{name},1\n")
        with pytest.raises(InputError, match=message):
            TableExamples.read(photos, folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no rows below a header"),
        (b"image,y\n", "has no rows below a header"),
        (b"file,y\na.png,1\n", "needs a column 'image' or a column 'text'; it has file, y"),
        (b"image,text\na.png,1\n", "it has both"),
        (b"image,text_pair\na.png,1\n", "a pair of texts needs both"),
        (b"image,y,y\na.png,1,2\n", "several columns named 'y'. Rename or drop"),
        (b"image,\na.png,1\n", "column 2 has no name"),
        (b"image,y\na.png,1\nb.png\n", "row 2 has 1 fields; the header has 2"),
        (b"image,y\na.png,1\n ,1\n", "row 2 has no image"),
        (b"image,y\na.png,1\nb.png,0\na.png,0\n", "rows 1 and 3 are both called 'a.png'"),
        (b"text,id\nx,1\ny,1\n", "rows 1 and 2 are both called '1'"),
        (b"text,y\n\xff,1\n", "not UTF-8"),
        (b'text,y\n"' + 200_000 * b"x" + b'",1\n', "cannot be read as CSV"),
    ],
)
def test_tables_that_cannot_be_used_say_why(photos, content, message):
    photos.write_bytes(content)
    with pytest.raises(InputError, match=message):
        TableExamples.read(photos, photos.parent / "photos")


def test_other_kinds_of_file_are_no_tables(photos):
    with pytest.raises(InputError, match=r"birds\.txt is not a table of examples; supported endings are \.csv, \.tsv"):
        TableExamples.read(photos.with_suffix(".txt"))
    with pytest.raises(InputError, match=r"There is no file \S*gone\.csv"):
        TableExamples.read(photos.parent / "gone.csv")


def test_fields_may_be_separated_by_semicolons(tmp_path):
    (tmp_path / "texts.csv").write_text("text;y\nA man, who sleeps.;1\nA bird.;0\n")
    own = TableExamples.read(tmp_path / "texts.csv")
    assert list(own.content) == ["A man, who sleeps.", "A bird."]
    assert own.labels["y"].tolist() == [1, 0]


def test_sixteen_bit_grey_is_scaled_and_not_cut_off(tmp_path):
    values = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    Image.fromarray(values).save(tmp_path / "deep.png")
    seen = np.asarray(open_image(tmp_path / "deep.png"))
    assert seen.shape == (8, 8, 3)
    assert np.abs(seen[..., 0].astype(int) - values // 256).max() <= 1
