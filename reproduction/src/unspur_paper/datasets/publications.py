"""Where each dataset comes from, what its files should hash to, and how they lie on disk.

Addresses, sizes and checksums are as the publishers or well-known loaders state them. None could be compared with the
real file when this was written, so that a mismatch may be an error here; `--unverified` takes such a file all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True)
class Archive:
    """One published file: an archive to unpack into the folder `into` of the root, or a `.txt` to put there."""

    file: str
    into: str
    url: str | None = None  #: None: no address that a program may fetch
    size: int | None = None
    checksum: str | None = None  #: as ``sha256:…`` or ``md5:…``
    stated_by: str = ""  #: who says that this is the checksum

    @property
    def plain(self) -> bool:
        """Whether the file is used as it is."""
        return PurePosixPath(self.file).suffix == ".txt"


@dataclass(frozen=True)
class Part:
    """Files that must be there: a path or pattern below the root, and what they are."""

    pattern: str
    what: str
    published: int | None = None  #: how many the publisher has; fewer are used, but said


@dataclass(frozen=True)
class Publication:
    """A dataset as its publisher offers it."""

    name: str
    title: str
    page: str
    terms: str
    layout: tuple[Part, ...]
    archives: tuple[Archive, ...] = ()
    by_hand: str = ""  #: what a person has to do where a program may not or cannot


_CUB = "CUB_200_2011"
_BIRDS = "waterbird_complete95_forest2water2"
_TFDS = "TensorFlow Datasets, url_checksums"

_ALL = (
    Publication(
        name="waterbirds",
        title="Waterbirds: birds of CUB on backgrounds of Places, as published",
        page="https://github.com/kohpangwei/group_DRO",
        terms="Non-commercial research and education (as WILDS words it).",
        layout=(
            Part(f"{_BIRDS}/metadata.csv", "labels, backgrounds and split"),
            Part(f"{_BIRDS}/*/*.jpg", "images", 11_788),
        ),
        # Its publisher states neither size nor checksum, and no well-known loader does.
        archives=(Archive(f"{_BIRDS}.tar.gz", ".", f"https://nlp.stanford.edu/data/dro/{_BIRDS}.tar.gz"),),
    ),
    Publication(
        name="cub",
        title="CUB-200-2011: photographs of 200 kinds of birds",
        page="https://www.vision.caltech.edu/datasets/cub_200_2011/",
        terms="Photographs by others; read the terms on the page before use.",
        layout=(
            Part(f"{_CUB}/images.txt", "names of the images"),
            Part(f"{_CUB}/classes.txt", "names of the classes"),
            Part(f"{_CUB}/image_class_labels.txt", "class of each image"),
            Part(f"{_CUB}/bounding_boxes.txt", "where the birds are"),
            Part(f"{_CUB}/train_test_split.txt", "split"),
            Part(f"{_CUB}/images/*/*.jpg", "images", 11_788),
        ),
        archives=(
            Archive(
                f"{_CUB}.tgz",
                ".",
                f"https://data.caltech.edu/records/65de6-vp158/files/{_CUB}.tgz",
                1_150_585_339,
                # Loaders that follow the publisher state its MD5, 97eceeb196236b17998738112f37df78.
                "sha256:0c685df5597a8b24909f6a7c9db6d11e008733779a671760afef78feb49bf081",
                f"{_TFDS}/caltech_birds2011.txt",
            ),
        ),
    ),
    Publication(
        name="cub-segmentations",
        title="Outlines of the birds of CUB-200-2011",
        page="https://data.caltech.edu/records/w9d68-gec53",
        terms="As CUB-200-2011.",
        layout=(Part(f"{_CUB}/segmentations/*/*.png", "masks", 11_788),),
        archives=(
            Archive(
                "segmentations.tgz",
                _CUB,
                "https://data.caltech.edu/records/w9d68-gec53/files/segmentations.tgz",
                39_272_883,
                # Loaders that follow the publisher state its MD5, 4d47ba1228eae64f2fa547c47bc65255.
                "sha256:dc77f6cffea0cbe2e41d4201115c8f29a6320ecb04fffd2444f51b8066e4b84f",
                f"{_TFDS}/caltech_birds2011.txt",
            ),
        ),
    ),
    Publication(
        name="scenes",
        title="Photographs of land and water to put birds on",
        page="http://places2.csail.mit.edu/download.html",
        terms="Places has terms of its own; read them on the page before use.",
        layout=(Part("scenes/land/*/*.jpg", "land"), Part("scenes/water/*/*.jpg", "water")),
        by_hand=(
            "Places is large and has terms that a person must accept. Take from it the categories that the paper uses, "
            "or photographs of your own, and lay them out as scenes/land/<category>/*.jpg (bamboo forest, broadleaf "
            "forest) and scenes/water/<category>/*.jpg (lake, ocean)."
        ),
    ),
    Publication(
        name="celeba",
        title="CelebA: aligned and cropped faces with 40 attributes",
        page="http://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        terms="Non-commercial research only, by an agreement on the page.",
        layout=(
            Part("celeba/list_attr_celeba.txt", "40 attributes of each image"),
            Part("celeba/img_align_celeba/*.jpg", "images", 202_599),
        ),
        archives=(
            Archive(
                "img_align_celeba.zip",
                "celeba",
                size=1_443_490_838,
                # torchvision states its MD5, 00d2c5bc6d35e252742224ab0c1e8fcb.
                checksum="sha256:46fb89443c578308acf364d7d379fe1b9efb793042c0af734b6112e4fd3a8c74",
                stated_by=f"{_TFDS}/celeb_a.txt",
            ),
            Archive(
                "list_attr_celeba.txt",
                "celeba",
                size=26_721_026,
                # torchvision states its MD5, 75e246fa4810816ffd6ee81facbd244c.
                checksum="sha256:f0e5da289d5ccf75ffe8811132694922b60f2af59256ed362afa03fefba324d0",
                stated_by=f"{_TFDS}/celeb_a.txt",
            ),
        ),
        by_hand=(
            "Its publisher keeps it on Google Drive, which asks for a person. Open the page, accept its agreement, and "
            "download img_align_celeba.zip (folder Img) and list_attr_celeba.txt (folder Anno). Then pass both, each "
            "with --archive FILE; or lay them out as celeba/img_align_celeba/*.jpg and celeba/list_attr_celeba.txt."
        ),
    ),
    Publication(
        name="multinli",
        title="MultiNLI 1.0: pairs of sentences that agree, disagree or neither",
        page="https://cims.nyu.edu/~sbowman/multinli/",
        terms="Mostly that of the Open American National Corpus, parts CC BY and CC BY-SA; its paper says which.",
        layout=(
            Part("multinli_1.0/multinli_1.0_train.jsonl", "training pairs"),
            Part("multinli_1.0/multinli_1.0_dev_matched.jsonl", "validation pairs of the same genres"),
        ),
        archives=(
            Archive(
                "multinli_1.0.zip",
                ".",
                "https://cims.nyu.edu/~sbowman/multinli/multinli_1.0.zip",
                226_850_426,
                # torchtext states its MD5, 0f70aaf66293b3c088a864891db51353.
                "sha256:049f507b9e36b1fcb756cfd5aeb3b7a0cfcb84bf023793652987f7e7e0957822",
                f"{_TFDS}/multi_nli.txt",
            ),
        ),
    ),
)

#: Every dataset by name.
PUBLICATIONS = {dataset.name: dataset for dataset in _ALL}
