"""Vision and text models of Hugging Face as encoders, by name or by folder. Weights are read, never executed."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from unspur._extras import require
from unspur.exceptions import InputError
from unspur_paper.embedding.base import (
    Device,
    NetworkEncoder,
    Precision,
    Preparation,
    batch_tensor,
    resize_and_crop,
    stacked,
)
from unspur_paper.embedding.examples import Kind, as_rgb

WITHOUT_HUB = "Encoders that need no hub: efficientnet-lite0 (pictures), minilm (texts)."
#: Weights in the one format that cannot hold code, settings and vocabularies; nothing else is downloaded.
_WANTED = ["model*.safetensors", "*.json", "*.txt", "*.model"]
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
_IMAGE_FILES = ("preprocessor_config.json", "processor_config.json")
_TEXT_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)
#: Libraries that a network of the hub needs.
HUB = ("torch", "transformers", "huggingface_hub")
#: No text is cut before this many tokens, unless the network takes fewer.
MAX_TOKENS = 512


@contextmanager
def quietly() -> Iterator[None]:
    """Context without progress bars and log lines of transformers and of the hub's client."""
    from transformers.utils import logging as chatter

    loggers = [logging.getLogger(name) for name in ("transformers", "huggingface_hub")]
    levels, bars = [logger.level for logger in loggers], chatter.is_progress_bar_enabled()
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    chatter.disable_progress_bar()
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if bars:
            chatter.enable_progress_bar()


def model_folder(name: str, revision: str | None = None) -> Path:
    """Folder of a model: given, cached, or downloaded now."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise InputError(
                f"{folder} has no config.json, so it is not a Hugging Face model (save_pretrained writes this file)."
            )
        return folder
    from huggingface_hub import snapshot_download

    with quietly():
        try:
            return Path(snapshot_download(name, revision=revision, allow_patterns=_WANTED))
        except Exception as error:  # whatever a network, a proxy or a full disk may raise
            raise InputError(
                f"{name} is not among the models cached here, and fetching it failed ({first_line(error)}). Connect "
                f"once, or pass a folder that holds the model. {WITHOUT_HUB}"
            ) from error


def kind_of(folder: Path, name: str) -> Kind:
    """Kind of examples: images if there are image settings, texts if there is a vocabulary."""
    try:
        settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"config.json of {name} cannot be read: {first_line(error)}.") from error
    if (folder / _IMAGE_FILES[0]).is_file() or any(
        key in settings for key in ("image_size", "num_channels", "vision_config")
    ):
        return "image"
    return "text"


def settings_of(folder: Path, kind: Kind | None) -> str:
    """Digests of the files that decide how a network computes and, for a kind, how its inputs are prepared.

    Files are digested as published, not as objects made from them, so a newer transformers does not change them.
    """
    inputs = {"image": _IMAGE_FILES, "text": _TEXT_FILES, None: ()}[kind]
    present = [folder / file for file in ("config.json", *inputs) if (folder / file).is_file()]
    return "\n".join(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in present)


def load_network(folder: Path, name: str) -> Any:
    """The network without its head, in float32; refused if it needs remote code or lacks weights."""
    from transformers import AutoModel

    if not any((folder / file).is_file() for file in _WEIGHTS):
        raise InputError(
            f"{name} has no model.safetensors. Other formats can run code when they are read, so they are not."
        )
    network, report = _from_folder(
        AutoModel, folder, name, "cannot be loaded", use_safetensors=True, output_loading_info=True
    )
    absent = sorted(report["missing_keys"])
    # Classifiers are often published without the pooler that the bare network has; it would be random, so it goes.
    if any(key.startswith("pooler.") for key in absent):
        network.pooler = None
    random = [key for key in absent if not key.startswith("pooler.")]
    if random:
        raise InputError(f"The weights of {name} lack {len(random)} of the network's tensors, such as {random[0]}.")
    return network.float().eval()


def first_line(error: Exception) -> str:
    """The first line of an error message, or the type of the error."""
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


class HubVision(NetworkEncoder):
    """A vision model up to its pooled features, or the mean over positions if it pools none.

    Parameters
    ----------
    name : owner/model of the hub, or a folder written by `save_pretrained`.
    revision : branch, tag or commit of the hub.
    preparation : how pictures are prepared; by default as the model's own image processor does.
    known_as : name in results; by default `name`, of a folder its last part.
    """

    kind: Kind = "image"

    def __init__(
        self,
        name: str,
        device: str = "auto",
        precision: Precision = "auto",
        revision: str | None = None,
        *,
        preparation: Preparation | None = None,
        known_as: str | None = None,
    ) -> None:
        require(f"{name} needs", *HUB, "PIL", extra="encoders")
        import torch
        from PIL import Image

        where, folder = Device.choose(device, precision), model_folder(name, revision)
        network = load_network(folder, name)
        if preparation is None:
            from transformers import AutoImageProcessor

            # PIL's resizing: the other backend needs torchvision and scales a little differently.
            what = "has no image processor that could be used"
            self._processor = _from_folder(AutoImageProcessor, folder, name, what, backend="pil")
            words = settings_of(folder, "image")
        else:
            words = f"{settings_of(folder, None)}\n{preparation}"
        self.preparation = preparation
        network = network.to(where.device, memory_format=torch.channels_last)
        super().__init__(network, where, known_as or _short(name), words)
        self.width = len(self([Image.new("RGB", (64, 64), "grey")])[0])

    def prepare(self, example: Any) -> Any:
        """As the model's own image processor does, or as was asked."""
        example = as_rgb(example)
        if self.preparation is not None:
            return resize_and_crop(example, self.preparation)
        return self._processor(images=[example], return_tensors="np")["pixel_values"][0]

    def batch(self, prepared: Sequence[Any]) -> Any:
        """Pictures on the device."""
        import torch

        if self.preparation is not None:
            return batch_tensor(prepared, self.preparation, self.where.device)
        return stacked(prepared, self.where.device).contiguous(memory_format=torch.channels_last)

    def features(self, inputs: Any) -> Any:
        """Pooled features."""
        output = self.network(pixel_values=inputs)
        features = getattr(output, "pooler_output", None)
        if features is None:
            features = output.last_hidden_state.float()
            features = features.mean(dim=(2, 3) if features.ndim == 4 else 1)
        return features.float().flatten(1)

    def feature_maps(self, inputs: Any) -> Any:
        """The last feature map of a convolutional network that pools by averaging, such as ResNet."""
        output = self.network(pixel_values=inputs)
        maps, pooled = output.last_hidden_state, getattr(output, "pooler_output", None)
        if maps.ndim == 4:
            maps = maps.float()
            mean = maps.mean(dim=(2, 3))
            # Equal up to rounding in bfloat16.
            if pooled is None or (pooled.float().flatten(1) - mean).norm() <= 0.02 * mean.norm():
                return maps
        return super().feature_maps(inputs)


class HubText(NetworkEncoder):
    """A text model up to the first token of a text, which is what the paper takes.

    A batch is padded to its longest text, and the padding is masked: no row depends on the others of its batch.

    Parameters
    ----------
    name, revision, known_as : as for `HubVision`.
    """

    kind: Kind = "text"

    def __init__(
        self,
        name: str,
        device: str = "auto",
        precision: Precision = "auto",
        revision: str | None = None,
        *,
        known_as: str | None = None,
    ) -> None:
        require(f"{name} needs", *HUB, extra="encoders")
        where, folder = Device.choose(device, precision), model_folder(name, revision)
        network = load_network(folder, name)
        from transformers import AutoTokenizer

        # Padding on the right, so that the first token is the text's first.
        what = "has no tokenizer that could be used"
        self._tokenizer = _from_folder(AutoTokenizer, folder, name, what, padding_side="right")
        if self._tokenizer.pad_token is None:
            raise InputError(f"The tokenizer of {name} has no padding token, so texts cannot be batched.")
        self._one_at_a_time = Lock()  # a tokenizer keeps settings that threads must not change under each other
        self.max_tokens = min(self._tokenizer.model_max_length, _positions(network), MAX_TOKENS)
        words = f"{settings_of(folder, 'text')}\ncls, {self.max_tokens} tokens"
        super().__init__(network.to(where.device), where, known_as or _short(name), words)
        self.width = len(self(["grey"])[0])

    def prepare(self, example: Any) -> dict[str, list[int]]:
        """Tokens of a string, or of a pair of strings."""
        texts = example if isinstance(example, tuple) else (example,)
        if len(texts) not in (1, 2) or not all(isinstance(text, str) for text in texts):
            raise InputError(f"A text is a string or a pair of strings; got {example!r}.")
        options = {"truncation": True, "max_length": self.max_tokens, "return_attention_mask": True}
        with self._one_at_a_time:
            return dict(self._tokenizer(*texts, **options))

    def is_cut(self, example: Any, prepared: dict[str, list[int]]) -> bool:
        """Whether a text or pair has more tokens than the network is shown."""
        if self.max_tokens is None or len(prepared["input_ids"]) < self.max_tokens:
            return False
        texts = example if isinstance(example, tuple) else (example,)
        with self._one_at_a_time:
            return len(self._tokenizer(*texts, verbose=False)["input_ids"]) > self.max_tokens

    def batch(self, prepared: Sequence[dict[str, list[int]]]) -> Any:
        """Tokens on the device, padded on the right to the longest text."""
        import torch

        longest = max(len(tokens["input_ids"]) for tokens in prepared)
        inputs = {}
        for key in prepared[0]:
            padding = {"input_ids": self._tokenizer.pad_token_id, "token_type_ids": self._tokenizer.pad_token_type_id}
            table = np.full((len(prepared), longest), padding.get(key, 0), dtype=np.int64)
            for line, tokens in zip(table, prepared, strict=True):
                line[: len(tokens[key])] = tokens[key]
            inputs[key] = torch.from_numpy(table).to(self.where.device)
        return inputs

    def features(self, inputs: Any) -> Any:
        """The first token."""
        return self.network(**inputs).last_hidden_state.float()[:, 0]


def _positions(network: Any) -> int:
    """Number of tokens that a network has positions for; MAX_TOKENS if its settings set no limit."""
    for name, module in network.named_modules():
        # RoBERTa and its relatives count positions from the one after that of padding.
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return int(module.num_embeddings - module.padding_idx - 1)
    limit = getattr(network.config, "max_position_embeddings", None)
    return limit if limit and limit > 0 else MAX_TOKENS


def _short(name: str) -> str:
    """A name for results, without the path of a folder on this machine."""
    folder = Path(name).expanduser()
    return folder.resolve().name if folder.is_dir() else name


def _from_folder(loader: Any, folder: Path, name: str, what: str, **options: Any) -> Any:
    """What a class of transformers loads from a folder, without running code from it."""
    try:
        with quietly():
            return loader.from_pretrained(folder, trust_remote_code=False, local_files_only=True, **options)
    except Exception as error:  # of a library that raises nearly every kind
        raise InputError(f"{name} {what}: {first_line(error)}") from error
