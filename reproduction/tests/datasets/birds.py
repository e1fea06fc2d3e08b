"""A tiny CUB with scenes, in their publishers' layout: smooth pictures, for JPEG keeps those nearly as they are."""

import numpy as np
from tests.optional import Image

SPECIES = [
    "001.Black_footed_Albatross",
    "021.Eastern_Towhee",
    "094.White_breasted_Nuthatch",
    "103.Sayornis",
    "141.Artic_Tern",
    "193.Western_Meadowlark",
    "102.Western_Wood_Pewee",
]
WATER = {"001.Black_footed_Albatross", "141.Artic_Tern"}
#: Width and height of a bird's picture.
SIZE = (40, 30)


def plain(colour, size=SIZE):
    return Image.new("RGB", size, tuple(int(value) for value in colour))


def lay_birds(root, each=6, seed=0):
    """`each` birds of every species on green; the left half of each mask is bird."""
    rng = np.random.default_rng(seed)
    mask = Image.new("L", SIZE, 0)
    mask.paste(255, (0, 0, SIZE[0] // 2, SIZE[1]))
    lines = []
    for species in SPECIES:
        for kind in ("images", "segmentations"):
            (root / "CUB_200_2011" / kind / species).mkdir(parents=True)
        for i in range(each):
            name = f"{species}/{species.split('.')[1]}_{i:04}.jpg"
            plain(rng.integers(256, size=3)).save(root / "CUB_200_2011" / "images" / name, quality=95)
            mask.save((root / "CUB_200_2011" / "segmentations" / name).with_suffix(".png"))
            lines.append(f"{len(lines) + 1} {name}")
    (root / "CUB_200_2011" / "images.txt").write_text("\n".join(lines) + "\n")
    return root


def lay_scenes(root, each=8, seed=1):
    """`each` scenes of two categories of either background."""
    rng = np.random.default_rng(seed)
    for background, categories in {"land": ("bamboo", "forest"), "water": ("lake", "ocean")}.items():
        for category in categories:
            folder = root / "scenes" / background / category
            folder.mkdir(parents=True)
            for i in range(each // 2):
                plain(rng.integers(256, size=3), (50, 50)).save(folder / f"{i:08}.jpg", quality=95)
    return root


def lay_published(root, names, y, place, split):
    """The composed images in circulation, with all columns of their metadata."""
    lines = ["img_id,img_filename,y,split,place,place_filename"]
    for i, (name, *values) in enumerate(zip(names, y, split, place, strict=True)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        plain((10 * i, 0, 0)).save(root / name)
        lines.append(",".join(map(str, [i + 1, name, *values, "/o/ocean/00000123.jpg"])))
    (root / "metadata.csv").write_text("\n".join(lines) + "\n")
    return root
