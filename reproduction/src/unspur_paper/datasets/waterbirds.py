"""Waterbirds: birds cut out of CUB-200-2011 and pasted on scenes of land or water.

Two ways to it. `read_published` reads the archive that is in circulation (``metadata.csv`` and composed images).
`Composites` pastes the birds itself: every bird once on a land scene and once on a water scene, so that any strength of
the correlation is a selection of rows, and every seed is a fresh draw of splits and scenes.

Main label: 1 for a waterbird. Concept, called `background`: 1 for water.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unspur._text import brief
from unspur._typing import Array, IntArray
from unspur.exceptions import InputError
from unspur_paper.datasets.published import inside, required, required_file
from unspur_paper.embedding.examples import Kind, digest_of, open_image

LabelRule = Literal["species", "circulated"]
#: A species of CUB is a waterbird if its name ends in one of these, seabirds and waterfowl, and a landbird else.
WATERBIRDS = (
    "Albatross",
    "Auklet",
    "Cormorant",
    "Frigatebird",
    "Fulmar",
    "Gadwall",
    "Grebe",
    "Guillemot",
    "Gull",
    "Jaeger",
    "Kittiwake",
    "Loon",
    "Mallard",
    "Merganser",
    "Pelican",
    "Puffin",
    "Tern",
)
#: Landbirds that the circulated metadata call waterbirds, for the letters "tern" in Eastern and Western.
MISLABELLED = ("Eastern_Towhee", "Western_Meadowlark", "Western_Wood_Pewee")
#: Of the paper.
SIZES = {"train": 4775, "validation": 1199, "test": 5796}
#: Folder that the archive in circulation unpacks to.
PUBLISHED = "waterbird_complete95_forest2water2"
#: How the published metadata number the splits.
PUBLISHED_SPLITS = ("train", "validation", "test")
BACKGROUNDS = ("land", "water")
#: Grey levels of a mask are shares of annotators, and become opacity; copies with fewer levels end here.
OPAQUE = 252


def is_waterbird(species: str, rule: LabelRule = "species") -> bool:
    """Main label of a CUB class such as ``141.Artic_Tern``.

    `species`: its last word is in `WATERBIRDS`. `circulated`: that, and the three of `MISLABELLED`.
    """
    name = species.split(".", 1)[-1]
    return name.rsplit("_", 1)[-1] in WATERBIRDS or (rule == "circulated" and name in MISLABELLED)


@dataclass(frozen=True, slots=True)
class Birds:
    """The birds of CUB: file of each, relative to the folder of images, and its main label."""

    root: Path
    files: tuple[str, ...]
    y: IntArray

    @classmethod
    def read(cls, root: Path, rule: LabelRule = "species") -> Birds:
        """From the folder that holds ``CUB_200_2011``, or that folder itself."""
        if rule not in ("species", "circulated"):
            raise InputError(f"The label rule is 'species' or 'circulated'; got {rule!r}.")
        folder = root / "CUB_200_2011" if (root / "CUB_200_2011").is_dir() else root
        listing = required_file(folder, "images.txt", what="the list of CUB's birds")
        required(folder, "images", what="CUB's images")
        required(folder, "segmentations", what="CUB's segmentations (an archive of their own)")
        try:
            lines = [line.split() for line in listing.read_text(encoding="utf-8").splitlines() if line.strip()]
        except ValueError as error:
            raise InputError(f"{listing} cannot be read: {error}. Is the dataset complete?") from error
        if not lines or any(len(line) != 2 or "/" not in line[1] for line in lines):
            raise InputError(f"{listing} needs lines of a number and a file, 'class/name.jpg'; some are different.")
        files = tuple(inside(line[1], listing) for line in lines)
        y = np.array([is_waterbird(name.split("/")[0], rule) for name in files], dtype=np.int64)
        return cls(folder, files, y)

    def image(self, bird: int) -> Path:
        """Photograph of a bird."""
        return self.root / "images" / self.files[bird]

    def mask(self, bird: int) -> Path:
        """Its segmentation."""
        return (self.root / "segmentations" / self.files[bird]).with_suffix(".png")


def read_scenes(root: Path) -> dict[str, tuple[str, ...]]:
    """Files of the scenes of either background, from ``scenes/land/<category>/*.jpg`` and ``scenes/water/…``."""
    folder = root / "scenes" if (root / "scenes").is_dir() else root
    found = {}
    for background in BACKGROUNDS:
        place = required(folder, background, what=f"scenes of {background}, in folders by category,")
        found[background] = tuple(sorted(path.relative_to(folder).as_posix() for path in place.glob("*/*.jpg")))
        if not found[background]:
            raise InputError(f"{place} holds no scenes; .jpg files in folders by category are expected.")
    return found


def paste(bird: Path, mask: Path, scene: Path) -> Any:
    """The bird on the scene, whose middle is cut out and scaled to the size of the bird's photograph."""
    from PIL import Image, ImageOps

    photograph, cut = open_image(bird), open_image(mask, "L")
    if cut.size != photograph.size:
        raise InputError(
            f"{mask} is {cut.width} × {cut.height} pixels, its bird {photograph.width} × {photograph.height}; they "
            "must match."
        )
    behind = ImageOps.fit(open_image(scene), photograph.size, Image.Resampling.BICUBIC)
    return Image.composite(photograph, behind, _opacity(cut))


def _opacity(mask: Any) -> Any:
    """A segmentation (PIL, L) as it is pasted: 255 where nothing of the scene is seen."""
    return mask.point([min(255, value * 255 // OPAQUE) for value in range(256)])


@dataclass(frozen=True, slots=True)
class Composites:
    """Every bird on land and on water: example 2i is bird i on land, 2i + 1 the same bird on water.

    Labels: `y`, `background`, `split` ("train", "validation", "test"; "" for birds beyond the sizes) and `bird`. Splits
    share neither birds nor scenes.
    """

    birds: Birds
    scenes_root: Path
    #: Scene of each example, relative to `scenes_root`.
    scenes: tuple[str, ...]
    ids: Sequence[str]
    labels: Mapping[str, Array]
    settings: Mapping[str, Any]
    name: str = "waterbirds"
    kind: Kind = "image"

    @classmethod
    def draw(
        cls,
        cub: Path,
        scenes: Path,
        seed: int,
        sizes: Mapping[str, int] | None = None,
        rule: LabelRule = "species",
    ) -> Composites:
        """Assign birds to splits at random, divide the scenes between the splits, and give each bird two scenes.

        `sizes` are birds per split, or None for the paper's where there are as many, and else in its proportions.
        """
        birds, found = Birds.read(cub, rule), read_scenes(scenes)
        rng = np.random.default_rng([seed, 0xB17D])
        counts = _checked(sizes, len(birds.files))
        order, start = rng.permutation(len(birds.files)), 0
        split = np.full(len(birds.files), "", dtype="U10")
        for name, count in counts.items():
            split[order[start : start + count]] = name
            start += count
        chosen = np.empty((len(birds.files), 2), dtype=object)
        for column, background in enumerate(BACKGROUNDS):
            for name, pool in _pools(found[background], counts, rng).items():
                members = np.flatnonzero(split == name)
                chosen[members, column] = rng.choice(np.array(pool, dtype=object), size=len(members))
        used = np.flatnonzero(split != "")
        folder = scenes / "scenes" if (scenes / "scenes").is_dir() else scenes
        names = [birds.files[i].removesuffix(".jpg") for i in used]
        return cls(
            birds=Birds(birds.root, tuple(birds.files[i] for i in used), birds.y[used]),
            scenes_root=folder,
            scenes=tuple(str(scene) for scene in chosen[used].ravel()),
            ids=[f"{name}@{background}" for name in names for background in BACKGROUNDS],
            labels={
                "y": np.repeat(birds.y[used], 2),
                "background": np.tile(np.arange(2), len(used)),
                "split": np.repeat(split[used], 2),
                "bird": np.repeat(np.arange(len(used)), 2),
            },
            settings={"seed": seed, "sizes": counts, "rule": rule},
        )

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, index: int) -> Any:
        """Compose one picture."""
        bird = index // 2
        return paste(self.birds.image(bird), self.birds.mask(bird), self.scenes_root / self.scenes[index])

    def mask(self, index: int) -> Any:
        """How much of each pixel of a picture is bird: PIL, L, of the picture's size, from 0 to 255."""
        return _opacity(open_image(self.birds.mask(index // 2), "L"))

    def digest(self) -> str:
        """Of birds, masks and scenes."""
        scenes = (self.scenes_root / scene for scene in sorted(set(self.scenes)))
        which = {**self.labels, "scene": np.array(self.scenes)}
        birds = (path for i in range(len(self.birds.files)) for path in (self.birds.image(i), self.birds.mask(i)))
        return digest_of(self.name, self.settings, which, (*birds, *scenes))


def _checked(sizes: Mapping[str, int] | None, available: int) -> dict[str, int]:
    wanted = dict(SIZES if sizes is None else sizes)
    total = sum(wanted.values())
    if sizes is None and total > available:
        wanted = {name: size * available // total for name, size in wanted.items()}
    if set(wanted) != set(SIZES) or min(wanted.values()) < 1:
        raise InputError(f"Sizes are birds for each of {', '.join(SIZES)}, one at least; got {wanted}.")
    if sum(wanted.values()) > available:
        raise InputError(f"{sum(wanted.values())} birds are asked for and {available} are there; ask for fewer.")
    return {name: wanted[name] for name in SIZES}  # in one order: the draw depends on it, and manifests are sorted


def _pools(scenes: Sequence[str], sizes: Mapping[str, int], rng: np.random.Generator) -> dict[str, list[str]]:
    """Scenes divided between the splits in proportion to their sizes, one at least for each."""
    if len(scenes) < len(sizes):
        raise InputError(f"{len(scenes)} scenes of one background are too few: every split needs some of its own.")
    order = [scenes[i] for i in rng.permutation(len(scenes))]
    shares = np.cumsum([0, *sizes.values()]) / sum(sizes.values())
    ends = np.round(shares * len(order)).astype(int)
    for k in range(1, len(ends)):  # a split too small for its share still gets one
        ends[k] = min(max(ends[k], ends[k - 1] + 1), len(order) - (len(ends) - 1 - k))
    return {name: order[ends[k] : ends[k + 1]] for k, name in enumerate(sizes)}


@dataclass(frozen=True, slots=True)
class Published:
    """The composed images in circulation, with the labels and splits of their metadata."""

    root: Path
    ids: Sequence[str]
    labels: Mapping[str, Array]
    settings: Mapping[str, Any]
    name: str = "waterbirds-published"
    kind: Kind = "image"

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Any:
        """Load one picture."""
        return open_image(self.root / self.ids[index])

    def digest(self) -> str:
        """Of metadata and images."""
        files = (self.root / name for name in ("metadata.csv", *self.ids))
        return digest_of(self.name, self.settings, self.labels, files)


def read_published(root: Path, rule: LabelRule | None = None) -> Published:
    """The archive in circulation: a folder with ``metadata.csv`` and the images it names, or what holds that folder.

    `rule` replaces the labels of the metadata, which count three landbirds as waterbirds ("circulated"); "species"
    corrects them. The composed backgrounds stay as they are.
    """
    if rule not in (None, "species", "circulated"):
        raise InputError(f"The label rule is 'species' or 'circulated'; got {rule!r}.")
    root = root / PUBLISHED if (root / PUBLISHED).is_dir() else root
    metadata = required_file(root, "metadata.csv", what="the list of Waterbirds' images")
    try:
        with metadata.open(encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{metadata} cannot be read as a table: {brief(error)}. Is the dataset complete?") from error
    needed = {"img_filename", "y", "split", "place"}
    if not lines or not needed <= set(lines[0]):
        raise InputError(f"{metadata} needs the columns {', '.join(sorted(needed))}, and lines.")
    try:
        y, place, split = (np.array([int(line[key]) for line in lines]) for key in ("y", "place", "split"))
    except (TypeError, ValueError):
        raise InputError(f"y, place and split of {metadata} must be whole numbers; some are not.") from None
    if not (np.isin(y, (0, 1)).all() and np.isin(place, (0, 1)).all() and np.isin(split, (0, 1, 2)).all()):
        raise InputError(f"{metadata} has other values than 0 and 1 for y and place, and 0, 1, 2 for split.")
    ids = [inside(line["img_filename"] or "", metadata) for line in lines]
    if rule is not None:
        y = np.array([is_waterbird(name.split("/")[0], rule) for name in ids], dtype=np.int64)
    labels = {"y": y, "background": place, "split": np.array([PUBLISHED_SPLITS[s] for s in split])}
    return Published(root, ids, labels, {"rule": rule or "metadata"})
