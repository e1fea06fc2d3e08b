"""Birds are pasted on scenes of their own split, and labelled by what they are."""

import shutil

import numpy as np
import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("PIL")

from reproduction.tests.datasets.birds import SIZE, SPECIES, WATER, lay_birds, lay_published, lay_scenes, plain
from unspur.exceptions import InputError
from unspur_paper.datasets.waterbirds import Birds, Composites, is_waterbird, read_published

BIRDS = 6 * len(SPECIES)
SIZES = {"train": 20, "validation": 8, "test": 12}


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    return lay_scenes(lay_birds(tmp_path_factory.mktemp("birds")))


@pytest.fixture
def root(untouched, tmp_path):
    """A copy to be damaged."""
    return shutil.copytree(untouched, tmp_path / "data")


def draw(root, seed=0, sizes=SIZES, rule="species"):
    return Composites.draw(root, root, seed, sizes, rule)


def test_the_circulated_rule_adds_exactly_three_landbirds():
    by_species = {name for name in SPECIES if is_waterbird(name)}
    assert by_species == WATER
    assert {name for name in SPECIES if is_waterbird(name, "circulated")} - by_species == {
        "021.Eastern_Towhee",
        "193.Western_Meadowlark",
        "102.Western_Wood_Pewee",
    }


def test_birds_are_labelled_by_the_rule_that_is_named(untouched):
    species, circulated = (Birds.read(untouched, rule) for rule in ("species", "circulated"))
    assert species.files == circulated.files
    assert (species.y.sum(), circulated.y.sum()) == (2 * 6, 5 * 6)
    assert draw(untouched, rule="circulated").settings["rule"] == "circulated"
    with pytest.raises(InputError, match="'species' or 'circulated'; got 'letters'"):
        Birds.read(untouched, "letters")


def test_every_bird_is_shown_once_on_land_and_once_on_water(untouched):
    birds = draw(untouched)
    assert len(birds) == len(set(birds.ids)) == 2 * sum(SIZES.values())
    assert_array_equal(birds.labels["background"], [0, 1] * 40)
    for column in ("y", "split", "bird"):
        assert_array_equal(birds.labels[column][::2], birds.labels[column][1::2])
    for on_land, on_water, land, water in zip(
        birds.ids[::2], birds.ids[1::2], birds.scenes[::2], birds.scenes[1::2], strict=True
    ):
        assert on_land.removesuffix("@land") == on_water.removesuffix("@water")
        assert land.startswith("land/")
        assert water.startswith("water/")
    assert_array_equal(birds.labels["y"], [name.split("/")[0] in WATER for name in birds.ids])


def test_splits_share_no_bird_and_no_scene(untouched):
    birds = draw(untouched)
    split = birds.labels["split"]
    assert {name: int(np.sum(split == name)) // 2 for name in SIZES} == SIZES
    of = {name: np.flatnonzero(split == name) for name in SIZES}
    for column in (birds.scenes, [name.split("@")[0] for name in birds.ids]):
        used = {name: {column[i] for i in rows} for name, rows in of.items()}
        assert sum(map(len, used.values())) == len(set.union(*used.values()))
    # Control: the smallest split has fewer scenes than birds, so that within a split scenes do recur.
    assert len({birds.scenes[i] for i in of["validation"]}) < len(of["validation"])


def test_the_bird_is_where_its_mask_is_and_the_scene_elsewhere(untouched):
    birds = draw(untouched)
    seen = set()
    for index in range(0, len(birds), 7):
        picture = np.asarray(birds[index], dtype=int)
        bird = np.asarray(plain_of(birds.birds.image(index // 2)), dtype=int)
        scene = np.asarray(plain_of(birds.scenes_root / birds.scenes[index]), dtype=int)
        half = SIZE[0] // 2
        assert picture.shape == (SIZE[1], SIZE[0], 3)
        assert_array_equal(picture[:, :half], bird[:, :half])
        assert np.abs(picture[:, half:] - scene[0, 0]).max() <= 2  # scenes are plain, and scaled
        assert np.abs(picture[:, :half] - scene[0, 0]).max() > 2
        seen.add(tuple(picture[0, 0]))
    assert len(seen) > 5


def plain_of(path):
    from PIL import Image

    with Image.open(path) as image:
        return image.convert("RGB")


def test_masks_blend_by_the_share_of_their_annotators(root):
    birds = draw(root)
    path = birds.birds.mask(0)
    levels = np.zeros((SIZE[1], SIZE[0]), dtype=np.uint8)
    levels[:, 10:20], levels[:, 20:30], levels[:, 30:] = 126, 252, 255
    from PIL import Image

    Image.fromarray(levels).save(path)
    picture, bird = (np.asarray(image, dtype=int) for image in (birds[0], plain_of(birds.birds.image(0))))
    scene = np.asarray(plain_of(birds.scenes_root / birds.scenes[0]), dtype=int)[0, 0]
    assert np.abs(picture[5, 5] - scene).max() <= 2
    assert np.abs(picture[5, 15] - (bird[5, 15] + scene) / 2).max() <= 2
    assert_array_equal(picture[:, 20:], bird[:, 20:])  # copies with fewer levels end at 252


def test_a_seed_gives_the_same_draw_and_another_seed_another(untouched):
    first, again, other = draw(untouched), draw(untouched), draw(untouched, seed=1)
    assert (first.scenes, list(first.ids), first.digest()) == (again.scenes, list(again.ids), again.digest())
    assert_array_equal(first.labels["split"], again.labels["split"])
    assert first.scenes != other.scenes
    assert set(first.ids) != set(other.ids)  # two birds of 42 are left out
    assert first.digest() != other.digest()


def test_the_digest_follows_content_and_not_place(root, untouched):
    birds = draw(root)
    before = birds.digest()
    assert before == draw(untouched).digest()  # another folder
    scene = birds.scenes_root / birds.scenes[0]
    kept = scene.read_bytes()
    image = plain_of(scene)
    image.putpixel((3, 3), tuple(255 - value for value in image.getpixel((3, 3))))
    image.save(scene, quality=95)
    assert draw(root).digest() != before
    scene.write_bytes(kept)
    assert draw(root).digest() == before
    plain((1, 2, 3)).save(birds.birds.image(0))
    assert draw(root).digest() != before


def test_without_sizes_the_proportions_of_the_paper_hold(untouched):
    counts = draw(untouched, sizes=None).settings["sizes"]
    assert sum(counts.values()) <= BIRDS
    assert counts["test"] > counts["train"] > counts["validation"] >= 1


def test_scenes_may_lie_elsewhere_and_folders_may_be_named_directly(root, untouched, tmp_path):
    (root / "scenes").rename(tmp_path / "scenes")
    for cub, scenes in ((root, tmp_path), (root / "CUB_200_2011", tmp_path / "scenes")):
        assert Composites.draw(cub, scenes, 0, SIZES).digest() == draw(untouched).digest()


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"train": 40, "validation": 8, "test": 12}, "60 birds are asked for and 42 are there"),
        ({"train": 10, "validation": 0, "test": 12}, "one at least"),
        ({"train": 10, "test": 12}, "train, validation, test"),
    ],
)
def test_sizes_that_cannot_be_met_are_refused(untouched, sizes, message):
    with pytest.raises(InputError, match=message):
        draw(untouched, sizes=sizes)


def test_incomplete_folders_are_described(root):
    cub = root / "CUB_200_2011"
    (cub / "segmentations").rename(root / "elsewhere")
    with pytest.raises(InputError, match=r"segmentations does not exist.*an archive of their own"):
        draw(root)
    (root / "elsewhere").rename(cub / "segmentations")
    for path in (root / "scenes" / "water").glob("ocean/*.jpg"):
        path.unlink()
    draw(root)  # fewer will do
    shutil.rmtree(root / "scenes" / "water" / "lake")
    with pytest.raises(InputError, match=r"water holds no scenes; \.jpg files in folders by category"):
        draw(root)
    shutil.rmtree(root / "scenes" / "water")
    with pytest.raises(InputError, match=r"where scenes of water"):
        draw(root)
    (cub / "images.txt").unlink()
    with pytest.raises(InputError, match="where the list of CUB's birds is expected"):
        draw(root)


def test_every_split_needs_scenes_of_its_own(root):
    for path in sorted((root / "scenes" / "land").glob("*/*.jpg"))[2:]:
        path.unlink()
    with pytest.raises(InputError, match=r"2 scenes of one background are too few"):
        draw(root)


def test_masks_and_pictures_that_cannot_be_used_are_named(root):
    birds = draw(root)
    plain((0, 0, 0), (7, 5)).save(birds.birds.mask(0))
    with pytest.raises(InputError, match=r"png is 7 × 5 pixels, its bird 40 × 30"):
        birds[0]
    birds.birds.mask(0).unlink()
    for use in (lambda: birds[0], birds.digest):
        with pytest.raises(InputError, match=r"png.*Is the dataset complete"):
            use()
    birds.birds.image(1).write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"jpg cannot be read as an image"):
        birds[2]


@pytest.mark.parametrize(
    "line",
    ["1 ../../secret.jpg", "1 /etc/x.jpg", "1", "1 x.jpg", "1 a/b.jpg c", "1 a/b\0.jpg", "1 a/b\xe4.jpg"],
)
def test_a_list_of_birds_with_odd_lines_is_refused(root, line):
    (root / "CUB_200_2011" / "images.txt").write_text(line + "\n", "latin-1")  # most of them also UTF-8
    with pytest.raises(InputError, match=r"images\.txt"):
        draw(root)


@pytest.fixture
def published(tmp_path):
    names = [f"{species}/{i}.jpg" for i, species in enumerate(SPECIES)]
    y = [int(is_waterbird(name.split("/")[0], "circulated")) for name in names]
    return lay_published(tmp_path / "archive", names, y, place=[0, 1, 0, 1, 0, 1, 0], split=[0, 0, 0, 1, 1, 2, 2])


def test_the_published_images_are_read_with_their_labels_and_splits(published):
    birds = read_published(published)
    assert len(birds) == len(SPECIES)
    assert_array_equal(birds.labels["y"], [1, 1, 0, 0, 1, 1, 1])
    assert_array_equal(birds.labels["background"], [0, 1, 0, 1, 0, 1, 0])
    assert list(birds.labels["split"]) == ["train"] * 3 + ["validation"] * 2 + ["test"] * 2
    assert abs(birds[2].getpixel((0, 0))[0] - 20) <= 3


def test_the_rule_corrects_published_labels_and_is_part_of_the_digest(published):
    as_is, corrected, circulated = (read_published(published, rule) for rule in (None, "species", "circulated"))
    assert_array_equal(circulated.labels["y"], as_is.labels["y"])
    assert_array_equal(corrected.labels["y"], [name.split("/")[0] in WATER for name in as_is.ids])
    assert_array_equal(corrected.labels["background"], as_is.labels["background"])
    assert corrected.digest() != as_is.digest()
    with pytest.raises(InputError, match="got 'letters'"):
        read_published(published, "letters")


def test_the_archive_may_be_left_in_the_folder_it_unpacks_to(published, tmp_path):
    digest = read_published(published).digest()
    published.rename(tmp_path / "waterbird_complete95_forest2water2")
    assert read_published(tmp_path).digest() == digest


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("001.Black_footed_Albatross/0.jpg", "../../outside.jpg", "inside of its folder"),
        ("001.Black_footed_Albatross/0.jpg", "/etc/passwd", "inside of its folder"),
        ("001.Black_footed_Albatross/0.jpg", "", "inside of its folder"),
        ("place,", "land,", "needs the columns"),
        ("1,001.Black_footed_Albatross/0.jpg,1", "1,001.Black_footed_Albatross/0.jpg,one", "must be whole numbers"),
        ("1,001.Black_footed_Albatross/0.jpg,1", "1,001.Black_footed_Albatross/0.jpg,3", "other values than 0 and 1"),
    ],
)
def test_metadata_that_lead_elsewhere_or_are_no_labels_are_refused(published, old, new, message):
    metadata = published / "metadata.csv"
    text = metadata.read_text()
    assert old in text
    metadata.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        read_published(published)


def test_an_empty_list_and_a_foreign_folder_are_refused(published, tmp_path):
    (published / "metadata.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read as a table"):
        read_published(published)
    (published / "metadata.csv").write_text("img_filename,y,split,place\n")
    with pytest.raises(InputError, match="and lines"):
        read_published(published)
    with pytest.raises(InputError, match=r"where the list of Waterbirds' images is expected"):
        read_published(tmp_path)
