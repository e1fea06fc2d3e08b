"""Any vision or text model of Hugging Face as an encoder, by name or by folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from unspur.exceptions import InputError
from unspur.lab.datasets.examples import Kind
from unspur.lab.encoders.base import Precision, Where, weights_digest
from unspur.lab.encoders.hub import first_line, load_network, model_folder, quietly, settings_of
from unspur.lab.encoders.images import Preparation, pixels

Pooling = Literal["cls", "mean"]
#: No text is cut before this many tokens, unless the network takes fewer.
LONGEST = 512


class HubVision:
    """A vision model up to its pooled features.

    The features are what the model itself pools (`pooler_output`). A model without trained pooling gives its first
    token if that stands for the whole picture (ViT), else the mean over positions.

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
        import torch
        from PIL import Image

        self._where = Where.choose(device, precision)
        folder = model_folder(name, revision)
        self.name = known_as or _short(name)
        network = load_network(folder, name)
        # Models of pictures and texts have two halves.
        network = getattr(network, "vision_model", network)
        if preparation is None:
            self._prepare, words = _own_preparation(folder, name), settings_of(folder, "image")
        else:
            self._prepare, words = _fixed_preparation(preparation), f"{settings_of(folder, None)}\n{preparation}"
        self.digest = weights_digest(network, words)
        self._stands_for_all = any(
            key.endswith(("cls_token", "class_embedding")) for key, _ in network.named_parameters()
        )
        self._network = network.to(self._where.device, memory_format=torch.channels_last)
        self.device = str(self._where)
        self.width = _probed_width(self, Image.new("RGB", (64, 64), "grey"))

    def __call__(self, examples: Sequence[Any]) -> NDArray[np.float32]:
        """Pooled features, shape (batch, width)."""
        import torch

        batch = self._prepare(examples).to(self._where.device, memory_format=torch.channels_last)
        output = self._where.run(self._network, pixel_values=batch)
        features = getattr(output, "pooler_output", None)
        if features is None:
            features = output.last_hidden_state.float()
            if features.ndim == 4:
                features = features.mean(dim=(2, 3))
            else:
                features = features[:, 0] if self._stands_for_all else features.mean(dim=1)
        return np.asarray(features.float().flatten(1).cpu().numpy())


class HubText:
    """A text model up to the features of a whole text.

    A batch is padded to its longest text, and the padding is masked: no row depends on the others of its batch.

    Parameters
    ----------
    name, revision, known_as : as for `HubVision`.
    pooling : "cls", the first token (the paper's, for BERT), or "mean", over all tokens of the text.
    max_length : tokens after which a text or pair is cut; by default what the network takes, at most 512.
    """

    kind: Kind = "text"

    def __init__(
        self,
        name: str,
        device: str = "auto",
        precision: Precision = "auto",
        revision: str | None = None,
        *,
        pooling: Pooling = "cls",
        max_length: int | None = None,
        known_as: str | None = None,
    ) -> None:
        if pooling not in get_args(Pooling):
            raise InputError(f"pooling is 'cls' or 'mean'; got {pooling!r}.")
        self._where = Where.choose(device, precision)
        folder = model_folder(name, revision)
        self.name = known_as or _short(name)
        network = load_network(folder, name)
        network = getattr(network, "text_model", network)
        self._tokenizer = _tokenizer(folder, name)
        taken = min(
            self._tokenizer.model_max_length, getattr(network.config, "max_position_embeddings", LONGEST), LONGEST
        )
        self._max_length = taken if max_length is None else max_length
        if not 3 <= self._max_length <= taken:
            raise InputError(f"max_length is a number of tokens from 3 to {taken} for {name}; got {max_length}.")
        self._pooling = pooling
        self.digest = weights_digest(network, f"{settings_of(folder, 'text')}\n{pooling}, {self._max_length} tokens")
        self._network = network.to(self._where.device)
        self.device = str(self._where)
        self.width = _probed_width(self, "grey")

    def __call__(self, examples: Sequence[Any]) -> NDArray[np.float32]:
        """Features of strings or of pairs of strings, shape (batch, width)."""
        tokens = self._tokenizer(
            *_columns(examples), padding=True, truncation=True, max_length=self._max_length, return_tensors="pt"
        ).to(self._where.device)
        states = self._where.run(self._network, **tokens).last_hidden_state.float()
        if self._pooling == "cls":
            features = states[:, 0]
        else:
            mask = tokens["attention_mask"][:, :, None]
            features = (states * mask).sum(dim=1) / mask.sum(dim=1)
        return np.asarray(features.cpu().numpy())


def _short(name: str) -> str:
    """A name for results: where a folder lies on this machine is nobody's business."""
    folder = Path(name).expanduser()
    return folder.resolve().name if folder.is_dir() else name


def _own_preparation(folder: Path, name: str) -> Callable[[Sequence[Any]], Any]:
    """What the model's own image processor does."""
    from transformers import AutoImageProcessor

    try:
        with quietly():
            # PIL's resizing: the other backend needs torchvision and scales a little differently.
            processor = AutoImageProcessor.from_pretrained(
                folder, backend="pil", trust_remote_code=False, local_files_only=True
            )
    except Exception as error:  # of a library that raises nearly every kind
        raise InputError(f"{name} has no image processor that could be used: {first_line(error)}") from error
    return lambda images: processor(images=list(images), return_tensors="pt")["pixel_values"]


def _fixed_preparation(preparation: Preparation) -> Callable[[Sequence[Any]], Any]:
    import torch

    return lambda images: torch.from_numpy(np.stack([pixels(image, preparation) for image in images]))


def _tokenizer(folder: Path, name: str) -> Any:
    """The model's own tokenizer, padding on the right so that the first token is the text's first."""
    from transformers import AutoTokenizer

    try:
        with quietly():
            tokenizer = AutoTokenizer.from_pretrained(
                folder, padding_side="right", trust_remote_code=False, local_files_only=True
            )
    except Exception as error:  # of a library that raises nearly every kind
        raise InputError(f"{name} has no tokenizer that could be used: {first_line(error)}") from error
    if tokenizer.pad_token is None:
        raise InputError(f"{name} has no padding token, so texts cannot be batched; use an encoder such as BERT.")
    return tokenizer


def _columns(examples: Sequence[Any]) -> list[list[str]]:
    """One column of strings, or two for pairs."""
    columns = list(zip(*(text if isinstance(text, tuple) else (text,) for text in examples), strict=False))
    alike = len({len(text) if isinstance(text, tuple) else 1 for text in examples}) == 1
    if not alike or len(columns) > 2 or not all(isinstance(text, str) for column in columns for text in column):
        raise InputError("A batch holds strings, or pairs of strings, but not both and nothing else.")
    return [list(column) for column in columns]


def _probed_width(encoder: Callable[[Sequence[Any]], NDArray[np.float32]], example: Any) -> int:
    """Width of one embedded example: settings name it differently from model to model."""
    try:
        return int(encoder([example]).shape[1])
    except Exception as error:  # whatever a network of another make may raise
        what = "text" if isinstance(example, str) else "picture"
        raise InputError(f"The network cannot embed a {what} by itself: {first_line(error)}") from error
