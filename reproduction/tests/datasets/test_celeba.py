"""Faces are read as published, and attributes are found by name."""

import shutil

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from unspur.exceptions import GroupSizeError, InputError
from unspur_paper.datasets.celeba import EYES, MOUTH, PRESETS, SIZES, CelebA, box_mask, draw, label
from unspur_paper.embedding.registry import grey_pixels

Image = pytest.importorskip("PIL.Image")

N = 12
NAMES = [*(f"Attribute_{i:02}" for i in range(36)), "Blond_Hair", "Eyeglasses", "Male", "Smiling"]
VALUES = np.random.default_rng(0).choice([-1, 1], size=(N, 40))


def write_list(folder, values=VALUES, names=NAMES, stated=None, csv=False):
    files = [f"{i + 1:06}.jpg" for i in range(len(values))]
    if csv:
        lines = [",".join(["image_id", *names])]
        lines += [",".join([file, *map(str, row)]) for file, row in zip(files, values, strict=True)]
        (folder / "list_attr_celeba.csv").write_text("\n".join(lines) + "\n")
    else:
        lines = [str(len(values) if stated is None else stated), " ".join(names) + " "]
        lines += [f"{file} " + " ".join(f"{v:2}" for v in row) for file, row in zip(files, values, strict=True)]
        (folder / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture
def root(tmp_path):
    images = tmp_path / "data" / "celeba" / "img_align_celeba"
    images.mkdir(parents=True)
    rng = np.random.default_rng(1)
    for i in range(N):
        Image.fromarray(rng.integers(256, size=(22, 18, 3), dtype=np.uint8)).save(images / f"{i + 1:06}.jpg")
    write_list(images.parent)
    return tmp_path / "data"


def test_images_and_attributes_are_read_in_the_order_of_the_list(root):
    faces = CelebA.read(root)
    assert (len(faces), faces.kind, faces.name) == (N, "image", "celeba")
    assert list(faces.ids) == [f"{i + 1:06}.jpg" for i in range(N)]
    assert list(faces.labels) == NAMES
    assert_array_equal(np.stack(list(faces.labels.values()), axis=1), VALUES == 1)
    image = faces[3]
    assert (image.mode, image.size) == ("RGB", (18, 22))
    with Image.open(root / "celeba" / "img_align_celeba" / "000004.jpg") as expected:
        assert_array_equal(np.asarray(image), np.asarray(expected))


def test_the_folder_itself_the_csv_and_the_doubled_folder_do_as_well(root):
    published = CelebA.read(root)
    assert CelebA.read(root / "celeba").digest() == published.digest()
    (root / "celeba" / "list_attr_celeba.txt").unlink()
    write_list(root / "celeba", csv=True)
    inner = root / "celeba" / "img_align_celeba"
    inner.rename(root / "moved")
    inner.mkdir()
    (root / "moved").rename(inner / "img_align_celeba")
    again = CelebA.read(root)
    assert list(again.ids) == list(published.ids)
    for name in NAMES:
        assert_array_equal(again.labels[name], published.labels[name])
    assert again[0].size == (18, 22)


def test_the_digest_follows_content_and_not_place(root, tmp_path):
    before = CelebA.read(root).digest()
    assert len(before) == 16
    shutil.copytree(root, tmp_path / "elsewhere")
    assert CelebA.read(tmp_path / "elsewhere").digest() == before
    path = tmp_path / "elsewhere" / "celeba" / "img_align_celeba" / "000007.jpg"
    pixels = np.asarray(Image.open(path)).copy()
    pixels[5, 5] = 255 - pixels[5, 5]
    Image.fromarray(pixels).save(path)
    assert CelebA.read(tmp_path / "elsewhere").digest() != before
    changed = VALUES.copy()
    changed[2, 38] *= -1
    write_list(root / "celeba", changed)
    assert CelebA.read(root).digest() != before


@pytest.mark.parametrize("stated", ["²", "9" * 5000, "-1"])
def test_a_number_of_images_that_is_none_is_refused(root, stated):
    write_list(root / "celeba", stated=stated)
    with pytest.raises(InputError, match="must be the number of images"):
        CelebA.read(root)


def test_missing_images_are_counted_and_a_limit_reads_those_before_them(root):
    full = CelebA.read(root, limit=N).digest()
    assert full == CelebA.read(root).digest()  # the same examples
    for i in (9, 11):
        (root / "celeba" / "img_align_celeba" / f"{i:06}.jpg").unlink()
    with pytest.raises(
        InputError, match=rf"2 of {N} images .* such as 000009.jpg. Complete the folder, or pass --limit"
    ):
        CelebA.read(root)
    few = CelebA.read(root, limit=8)
    assert len(few) == len(few.labels["Male"]) == 8
    assert few.digest() != full
    with pytest.raises(InputError, match="1 of 10 images"):
        CelebA.read(root, limit=10)
    with pytest.raises(InputError, match="1 at least"):
        CelebA.read(root, limit=0)


@pytest.mark.parametrize("csv", [False, True])
def test_a_damaged_list_is_refused_with_what_is_wrong(root, csv):
    folder = root / "celeba"
    (folder / "list_attr_celeba.txt").unlink()
    with pytest.raises(InputError, match=r"neither list_attr_celeba\.txt nor list_attr_celeba\.csv"):
        CelebA.read(root)
    write_list(folder, VALUES * 2, csv=csv)
    with pytest.raises(InputError, match=f"Line {2 if csv else 3} of .* 40 values −1 or 1; got '000001.jpg"):
        CelebA.read(root)
    write_list(folder, VALUES[:, :39], csv=csv)
    with pytest.raises(InputError, match="40 values"):
        CelebA.read(root)
    write_list(folder, VALUES, ["Male", *NAMES[1:]], csv=csv)
    with pytest.raises(InputError, match="40 attributes, all different"):
        CelebA.read(root)
    write_list(folder, np.empty((0, 40), dtype=int), csv=csv)
    with pytest.raises(InputError, match="must list images"):
        CelebA.read(root)
    path = folder / f"list_attr_celeba.{'csv' if csv else 'txt'}"
    write_list(folder, csv=csv, stated=N + 1)
    lines = path.read_text()
    path.write_text(lines + lines.splitlines()[-1] + "\n")
    with pytest.raises(InputError, match=f"{N + 1} lines of {N} images"):
        CelebA.read(root)
    path.write_bytes(lines.encode() + b"\xff\xfe")
    with pytest.raises(InputError, match="not text in UTF-8"):
        CelebA.read(root)


def test_the_number_of_images_stated_must_be_listed(root):
    write_list(root / "celeba", stated=N + 1)
    with pytest.raises(InputError, match=f"says {N + 1} images and lists {N}"):
        CelebA.read(root)
    (root / "celeba" / "list_attr_celeba.txt").write_text(" ".join(NAMES))
    with pytest.raises(InputError, match=r"first line .* must be the number of images"):
        CelebA.read(root)


def test_a_name_that_points_outside_of_the_folder_is_a_missing_image(root):
    path = root / "celeba" / "list_attr_celeba.txt"
    path.write_text(path.read_text().replace("000001.jpg", "../img_align_celeba/000001.jpg"))
    with pytest.raises(InputError, match=f"1 of {N} images"):
        CelebA.read(root)


def test_labels_are_found_by_name_and_negated():
    labels = {"Male": np.array([0, 1, 1, -1]), "Smiling": np.array([1, 0, 1, 1])}
    assert_array_equal(label(labels, "Male"), [0, 1, 1, -1])
    assert_array_equal(label(labels, "not Male"), [1, 0, 0, -1])
    with pytest.raises(InputError, match=r"no attribute 'smilling'. Did you mean Smiling\?"):
        label(labels, "not smilling")
    with pytest.raises(InputError, match="Known are Male, Smiling"):
        label(labels, "qqq")


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_name_attributes(root, preset):
    labels = CelebA.read(root).labels
    main, concepts = PRESETS[preset]
    assert {len(label(labels, name)) for name in (main, *concepts)} == {N}
    assert SIZES["train"] == 4500


def test_grey_pixels_are_row_by_row_between_0_and_1():
    pixels = np.zeros((218, 178, 3), dtype=np.uint8)
    pixels[:109] = 255
    grey = grey_pixels(Image.fromarray(pixels))
    assert (grey.shape, grey.dtype) == ((2500,), np.float32)
    assert (grey.reshape(50, 50)[:20] == 1).all()  # white above
    assert (grey.reshape(50, 50)[30:] == 0).all()
    assert grey_pixels(Image.fromarray(pixels), side=8).shape == (64,)


def test_boxes_are_disjoint_and_lie_where_eyes_and_mouth_are():
    for side in (10, 50, 224):
        eyes, mouth = box_mask(EYES, side), box_mask(MOUTH, side)
        assert eyes.shape == mouth.shape == (side, side)
        assert not (eyes & mouth).any()

        def inside(mask, y, x, side=side):
            return mask[int(y * side), int(x * side)]

        # Landmarks of the aligned faces.
        assert all(inside(eyes, 0.51, x) and not inside(mouth, 0.51, x) for x in (0.39, 0.61))
        assert all(inside(mouth, 0.70, x) and not inside(eyes, 0.70, x) for x in (0.41, 0.59))
    assert box_mask((0.0, 0.0, 1.0, 1.0), 7).all()
    assert_array_equal(np.argwhere(box_mask((0.5, 0.25, 1.0, 0.5), 4)), [[2, 1], [3, 1]])


@pytest.mark.parametrize("box", [(0.5, 0.1, 0.4, 0.9), (0.1, 0.1, 0.4, 1.2), (0.1, 0.5, 0.4, 0.5)])
def test_boxes_that_are_none_are_refused(box):
    with pytest.raises(InputError, match="top, left, bottom, right"):
        box_mask(box, 50)


def test_a_preset_is_drawn_balanced_at_its_strength():
    rng = np.random.default_rng(0)
    labels = {name: rng.integers(2, size=4000) for name in ("Blond_Hair", "Male", "Smiling", "Eyeglasses")}
    main, (concept,) = PRESETS["blond-sex"]
    drawn = draw(labels, main, concept, rng, p=0.9, sizes={"train": 400, "validation": 100, "test": 200})
    y, other = label(labels, main), label(labels, concept)
    for split, p in (("train", 0.9), ("validation", 0.9), ("test", 0.5)):
        rows = drawn[split]
        assert y[rows].mean() == 0.5
        assert (y[rows] == other[rows]).mean() == pytest.approx(p)
    with pytest.raises(GroupSizeError, match=r"4500 / 2000 / 2000 .* would fit"):
        draw(labels, main, concept, rng)
