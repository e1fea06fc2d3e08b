"""Any vision or text model of Hugging Face as an encoder, by name or by folder.

::

    name ──▶ model_folder ──▶ folder ──▶ kind_of, settings_of, load_network ──▶ HubVision, HubText
             folder given? cached? else one download

Weights are read, never executed. Everything after `model_folder` reads local files only.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from unspur._extras import require
from unspur._reading import read_json, require_kinds
from unspur._text import brief
from unspur.exceptions import InputError, Parameter
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
_IMAGE_SETTINGS = ("image_size", "num_channels", "vision_config")
#: Libraries that a network of the hub needs.
HUB = ("torch", "transformers", "huggingface_hub")
Pooling = Literal["auto", "cls", "last", "mean", "pooler"]
#: Poolings of sentence-transformers by the names in its settings, new and old.
_SENTENCE_POOLING: dict[str, Literal["cls", "last", "mean"]] = {
    "cls": "cls",
    "mean": "mean",
    "lasttoken": "last",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}
#: Rows of one example that differ by a larger share are random; rounding in bfloat16 is far below.
RANDOM_DIFFERENCE = 0.05
#: No text is cut before this many tokens, unless the network takes fewer.
MAX_TOKENS = 512

#: Length of the text that shows whether a network sees padding.
PROBED_TOKENS = 64


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
        if revision is not None:
            raise InputError(f"{folder} is a folder, which has no revisions; leave out revision {revision!r}.")
        return folder
    with quietly():
        return _cached(name, revision) or _downloaded(name, revision)


def _cached(name: str, revision: str | None) -> Path | None:
    """The cached folder, or None if it is missing or incomplete."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    except HFValidationError:
        raise InputError(f"{name!r} is neither a folder here nor a model of the hub, which is owner/model.") from None
    needed = (("config.json",), _WEIGHTS, (*_IMAGE_FILES, *_TEXT_FILES))
    return folder if all(any((folder / file).is_file() for file in files) for files in needed) else None


def _downloaded(name: str, revision: str | None) -> Path:
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    what = name if revision is None else f"{name}@{revision}"
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=_WANTED))
    except GatedRepoError as error:
        raise InputError(f"{what} is shared only with those who asked for it: ask on its page, then log in.") from error
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise InputError(f"{constants.ENDPOINT} has no model {what}; see its list of models. {WITHOUT_HUB}") from error
    except Exception as error:  # whatever a network, a proxy or a full disk may raise
        raise InputError(
            f"{what} is not among the models cached here, and fetching it from {constants.ENDPOINT} failed "
            f"({first_line(error)}). Connect once, or pass a folder that holds the model. {WITHOUT_HUB}"
        ) from error


def kind_of(folder: Path, name: str) -> Kind:
    """Kind of examples: images if there are image settings, texts if there is a vocabulary."""
    settings = _settings(folder, name)
    if (folder / _IMAGE_FILES[0]).is_file() or any(key in settings for key in _IMAGE_SETTINGS):
        return "image"
    if any((folder / file).is_file() for file in _TEXT_FILES) or "vocab_size" in settings:
        return "text"
    raise InputError(f"The settings of {name} do not tell pictures from texts; pass kind='image' or kind='text'.")


def _settings(folder: Path, name: str) -> dict[str, Any]:
    try:
        settings = read_json(folder / "config.json")
    except (OSError, ValueError) as error:
        raise InputError(f"config.json of {name} cannot be read: {first_line(error)}.") from error
    if not isinstance(settings, dict):
        raise InputError(f"config.json of {name} holds no table of settings; is it damaged?")
    return settings


def settings_of(folder: Path, kind: Kind | None) -> str:
    """Digests of the files that decide how a network computes and, for a kind, how its inputs are prepared.

    Files are digested as published, not as objects made from them, so a newer transformers does not change them.
    """
    inputs = {"image": _IMAGE_FILES, "text": _TEXT_FILES, None: ()}[kind]
    present = [folder / file for file in ("config.json", *inputs) if (folder / file).is_file()]
    return "\n".join(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in present)


@dataclass(frozen=True, slots=True)
class SentenceSettings:
    """How sentence-transformers makes rows with a model: its pooling, whether rows get length 1, and most tokens."""

    pooling: Literal["cls", "last", "mean"]
    normalised: bool
    max_tokens: int | None


def sentence_settings(folder: Path, name: str) -> SentenceSettings | None:
    """The settings of a model of sentence-transformers, or None of another; InputError if it does more than pool."""
    if not (folder / "modules.json").is_file():
        return None
    try:
        modules = read_json(folder / "modules.json", [{"type": str, "path": str}])
        kinds = [module["type"].rpartition(".")[2] for module in modules]
        if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
            raise _more_than_pooling(name, f"the modules {', '.join(kinds)}")
        modes = _sentence_pooling(read_json(folder / Path(modules[1]["path"]).name / "config.json", dict))
        if len(modes) != 1 or modes[0] not in _SENTENCE_POOLING:
            raise _more_than_pooling(name, f"the pooling {', '.join(modes)}")
        tokens = [read_json(path, dict) for path in sorted(folder.glob("sentence_*_config.json"))]
        if any(one.get("do_lower_case") for one in tokens):
            raise _more_than_pooling(name, "texts in lower case")
        limits = [one["max_seq_length"] for one in tokens if one.get("max_seq_length") is not None]
        require_kinds(limits, [int], "max_seq_length")
        together = folder / "config_sentence_transformers.json"
        prompt = read_json(together, dict).get("default_prompt_name") if together.is_file() else None
        if prompt is not None:
            raise _more_than_pooling(name, f"the prompt {brief(prompt, 40)!r} before each text")
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"The settings of {name} for sentence-transformers are damaged: {brief(error)}.") from error
    return SentenceSettings(_SENTENCE_POOLING[modes[0]], "Normalize" in kinds, min(limits, default=None))


def _sentence_pooling(settings: dict[str, Any]) -> list[str]:
    """Names of the poolings in the settings of a module, as newer or older versions write them."""
    if "pooling_mode" in settings:
        given = settings["pooling_mode"]
        return [str(mode) for mode in (given if isinstance(given, list) else [given])]
    return [key for key, chosen in settings.items() if key.startswith("pooling_mode_") and chosen is True]


def _more_than_pooling(name: str, what: str) -> InputError:
    return InputError(
        "{name} was trained with {what}, which is not done here. Encode with sentence-transformers and fit on its "
        "rows; or choose what to take from the network itself, such as {mean}.",
        name=name,
        what=what,
        mean=Parameter("pooling", "mean"),
    )


def load_network(folder: Path, name: str) -> Any:
    """The network without its head, in float32; refused if it needs remote code or lacks weights."""
    from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding
    from transformers.models.auto.modeling_auto import MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES

    if not any((folder / file).is_file() for file in _WEIGHTS):
        seen = ", ".join(sorted(path.name for path in folder.glob("*.bin"))) or "no weights that could be used"
        raise InputError(
            f"{name} has no model.safetensors ({seen} seen). Other formats can run code when they are read, so they "
            "are not. Use a revision that has one (owner/model@revision), or load the model once where you trust it "
            "and write a folder with save_pretrained."
        )
    options = {"use_safetensors": True, "output_loading_info": True}
    config = _from_folder(AutoConfig, folder, name, "cannot be loaded")
    # The whole of T5 and its kind has a decoder, which is not needed, and which their encoders are saved without.
    encoder = MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES.get(config.model_type, "").endswith("EncoderModel")
    kind = AutoModelForTextEncoding if encoder else AutoModel
    network, report = _from_folder(kind, folder, name, "cannot be loaded", **options)
    absent = sorted(report["missing_keys"])
    # Classifiers are often published without the pooler that the bare network has; it would be random, so it goes.
    if any(key.startswith("pooler.") for key in absent):
        network.pooler = None
    random = [key for key in absent if not key.startswith("pooler.")]
    if random:
        raise InputError(
            f"The weights of {name} lack {len(random)} of the network's tensors, such as {random[0]}; its features "
            "would be random. Are these the weights of another kind of network?"
        )
    return network.float().eval()


def _loaded(name: str, device: str, precision: Precision, revision: str | None) -> tuple[Device, Path, Any]:
    where = Device.choose(device, precision)
    folder = model_folder(name, revision)
    return where, folder, load_network(folder, name)


def first_line(error: Exception) -> str:
    """The first line of an error message, or the type of the error."""
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


class HubVision(NetworkEncoder):
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
        require(f"{name} needs", *HUB, "PIL", extra="encoders")
        import torch
        from PIL import Image

        where, folder, network = _loaded(name, device, precision, revision)
        # Models of pictures and texts have two halves.
        network = getattr(network, "vision_model", network)
        if preparation is None:
            from transformers import AutoImageProcessor

            # PIL's resizing: the other backend needs torchvision and scales a little differently.
            what = "has no image processor that could be used"
            self._processor = _from_folder(AutoImageProcessor, folder, name, what, backend="pil")
            words = settings_of(folder, "image")
        else:
            words = f"{settings_of(folder, None)}\n{preparation}"
        if getattr(network.config, "mask_ratio", 0):  # ViT-MAE hides patches at random, even outside of training
            network.config.mask_ratio = 0.0
            words += "\nno masked patches"
        self.preparation = preparation
        self._stands_for_all = any(
            key.endswith(("cls_token", "class_embedding")) for key, _ in network.named_parameters()
        )
        network = network.to(where.device, memory_format=torch.channels_last)
        super().__init__(network, where, known_as or _short(name), words)
        self.width = _probed_width(self, Image.new("RGB", (64, 64), "grey"))

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
        shapes = sorted({picture.shape for picture in prepared})
        if len(shapes) > 1:
            raise InputError(
                "The image processor of {name} does not bring pictures to one shape: it made {one} and {other}, which "
                "cannot be in one batch. Crop them to one shape, or embed them with {batch}.",
                name=self.name,
                one=shapes[0],
                other=shapes[-1],
                batch=Parameter("batch", 1),
            )
        return stacked(prepared, self.where.device).contiguous(memory_format=torch.channels_last)

    def features(self, inputs: Any) -> Any:
        """Pooled features."""
        output = self.network(pixel_values=inputs)
        features = getattr(output, "pooler_output", None)
        if features is None:
            features = output.last_hidden_state.float()
            if features.ndim == 4:
                features = features.mean(dim=(2, 3))
            else:
                features = features[:, 0] if self._stands_for_all else features.mean(dim=1)
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
    """A text model up to the features of a whole text.

    A batch is padded to its longest text, and the padding is masked: no row depends on the others of its batch. A
    network that sees padding in spite of its mask (FNet, ConvBERT) embeds one text at a time.

    Parameters
    ----------
    name, revision, known_as : as for `HubVision`.
    pooling : "cls", the first token (the paper's, for BERT), "last", the last one, "mean", over all tokens of the
        text, or "pooler", the network's own pooled output. "auto" does what the model was trained with if it is one of
        sentence-transformers, whose settings say so, length 1 and most tokens included. Of others it takes the token
        that stands for the whole text: the last in causal networks (GPT, Llama, the texts of CLIP), where a token sees
        only those before it, and where the tokenizer puts [CLS] at the end (XLNet); else the first.
    max_length : tokens after which a text or pair is cut; by default what the network takes, at most 512.

    Attributes
    ----------
    pooling : what was chosen, never "auto".
    normalised : whether rows have length 1.
    """

    kind: Kind = "text"

    def __init__(
        self,
        name: str,
        device: str = "auto",
        precision: Precision = "auto",
        revision: str | None = None,
        *,
        pooling: Pooling = "auto",
        max_length: int | None = None,
        known_as: str | None = None,
    ) -> None:
        require_pooling(pooling)
        require(f"{name} needs", *HUB, extra="encoders")
        where, folder, network = _loaded(name, device, precision, revision)
        network = getattr(network, "text_model", network)
        from transformers import AutoTokenizer

        # Padding on the right, so that the first token is the text's first.
        trained = sentence_settings(folder, name) if pooling == "auto" else None
        what = "has no tokenizer that could be used"
        self._tokenizer = _from_folder(AutoTokenizer, folder, name, what, padding_side="right")
        if self._tokenizer.pad_token is None:  # as of GPT-2 and Llama; padding is masked, so that any token will do
            self._tokenizer.pad_token = self._tokenizer.eos_token or self._tokenizer.unk_token
        if self._tokenizer.pad_token is None:
            raise InputError(
                f"The tokenizer of {name} has no padding token, so texts cannot be batched. Set its pad_token and save "
                "it with the network (save_pretrained)."
            )
        self._one_at_a_time = Lock()  # a tokenizer keeps settings that threads must not change under each other
        taken = min(self._tokenizer.model_max_length, _positions(network), MAX_TOKENS)
        usual = taken if trained is None or trained.max_tokens is None else min(taken, trained.max_tokens)
        self.max_tokens = usual if max_length is None else max_length
        if not 3 <= self.max_tokens <= taken:
            raise InputError(f"max_length is a number of tokens from 3 to {taken} for {name}; got {max_length}.")
        network = network.to(where.device)
        with _probing("text"):
            tokens = self.prepare("grey is not white")
            causal = _is_causal(network, tokens, where.device)
            padding = {key: [self._padding(key)] * (min(self.max_tokens, PROBED_TOKENS) - 2) for key in tokens}
            self._sees_padding = _sees_padding(network, tokens, padding, where.device)
        if pooling == "cls" and causal:
            raise InputError(
                f"{name} is causal: its first token sees no other, so it says nothing of a text. Pass pooling='last', "
                "the last token, or 'mean'."
            )
        if pooling == "pooler" and getattr(_output(network, [tokens], where.device), "pooler_output", None) is None:
            raise InputError(
                f"{name} has no trained pooling of its own. Pass pooling='cls', the first token, or 'mean'."
            )
        if trained is not None:
            pooling = trained.pooling
        elif pooling == "auto":
            first, *_, last = tokens["input_ids"]
            pooling = "last" if causal or last == self._tokenizer.cls_token_id != first else "cls"
        self.pooling, self.normalised = pooling, trained is not None and trained.normalised
        words = f"{settings_of(folder, 'text')}\n{pooling}, {self.max_tokens} tokens"
        if self.normalised:
            words += ", length 1"
        if self._sees_padding:
            words += "\nno padding"
        super().__init__(network, where, known_as or _short(name), words)
        self.width = _probed_width(self, "grey")

    def prepare(self, example: Any) -> dict[str, list[int]]:
        """Tokens of a string, or of a pair of strings."""
        texts = example if isinstance(example, tuple) else (example,)
        if len(texts) not in (1, 2) or not all(isinstance(text, str) for text in texts):
            raise InputError(f"A text is a string or a pair of strings; got {example!r}.")
        options = {"truncation": True, "max_length": self.max_tokens, "return_attention_mask": True}
        with self._one_at_a_time:
            tokens = dict(self._tokenizer(*texts, **options))
        if not tokens["input_ids"]:
            raise InputError(f"The tokenizer finds no tokens in the text {example!r}. Leave it out, or fill it in.")
        return tokens

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
            table = np.full((len(prepared), longest), self._padding(key), dtype=np.int64)
            for line, tokens in zip(table, prepared, strict=True):
                line[: len(tokens[key])] = tokens[key]
            inputs[key] = torch.from_numpy(table).to(self.where.device)
        return inputs

    def _padding(self, key: str) -> int:
        if key == "input_ids":
            return int(self._tokenizer.pad_token_id)
        return int(self._tokenizer.pad_token_type_id) if key == "token_type_ids" else 0

    def rows(self, prepared: Sequence[dict[str, list[int]]]) -> NDArray[np.float32]:
        """Embed a batch of texts; one at a time if the network sees padding."""
        if self._sees_padding:
            return np.concatenate([super(HubText, self).rows([tokens]) for tokens in prepared])
        return super().rows(prepared)

    def features(self, inputs: Any) -> Any:
        """The first or the last token, the mean over the tokens of each text, or what the network pools itself."""
        import torch

        pooled = self._pooled(self.network(**inputs), inputs)
        return torch.nn.functional.normalize(pooled, dim=1) if self.normalised else pooled

    def _pooled(self, output: Any, inputs: Any) -> Any:
        import torch

        if self.pooling == "pooler":
            return output.pooler_output.float()
        states = output.last_hidden_state.float()
        if self.pooling == "cls":
            return states[:, 0]
        mask = inputs["attention_mask"][:, :, None]
        lengths = mask.sum(dim=1)
        if self.pooling == "last":
            return states[torch.arange(len(states), device=states.device), lengths[:, 0] - 1]
        return (states * mask).sum(dim=1) / lengths


def _positions(network: Any) -> int:
    """Number of tokens that a network has positions for; MAX_TOKENS if its settings set no limit."""
    for name, module in network.named_modules():
        # RoBERTa and its relatives count positions from the one after that of padding.
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return int(module.num_embeddings - module.padding_idx - 1)
    limit = getattr(network.config, "max_position_embeddings", None)
    return limit if limit and limit > 0 else MAX_TOKENS  # XLNet has -1


def require_pooling(pooling: str) -> None:
    """Raise InputError unless a pooling is known."""
    if pooling not in get_args(Pooling):
        raise InputError(f"pooling is 'auto', 'cls', 'last', 'mean' or 'pooler'; got {pooling!r}.")


def _is_causal(network: Any, tokens: dict[str, list[int]], device: str) -> bool:
    """Whether the first token of a text is the same whatever follows it."""
    first, *rest = tokens["input_ids"]
    other = {**tokens, "input_ids": [first, *(token - 1 if token else 1 for token in rest)]}
    one, two = _output(network, [tokens, other], device).last_hidden_state[:, 0]
    return bool((one - two).abs().max() <= 1e-5 * one.abs().max())


def _sees_padding(network: Any, tokens: dict[str, list[int]], padding: dict[str, list[int]], device: str) -> bool:
    """Whether the first two tokens of a text are others if padding follows them, although it is masked."""
    begun = {key: values[:2] for key, values in tokens.items()}
    padded = {key: values + padding[key] for key, values in begun.items()}
    alone, followed = (_output(network, [given], device).last_hidden_state[:, :2] for given in (begun, padded))
    return not bool((alone - followed).abs().max() <= 1e-4 * alone.abs().max())


def _output(network: Any, texts: Sequence[dict[str, list[int]]], device: str) -> Any:
    """Output for texts of one length, in float32, so that rounding is small."""
    import torch

    inputs = {key: torch.tensor([tokens[key] for tokens in texts], device=device) for key in texts[0]}
    return Device(device, "float32").run(network, **inputs)


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


def _probed_width(encoder: Callable[[Sequence[Any]], NDArray[np.float32]], example: Any) -> int:
    """Width of one embedded example, as settings have different names for it; InputError if the rows are random."""
    what = "text" if isinstance(example, str) else "picture"
    with _probing(what):
        one, other = encoder([example])[0], encoder([example])[0]
    if np.abs(one - other).max() > RANDOM_DIFFERENCE * np.abs(one).max():
        raise InputError(
            f"The network gives the same {what} other features each time: some of it is random, such as a mask. Use "
            "another network, or save this one without that part."
        )
    return len(one)


@contextmanager
def _probing(what: str) -> Iterator[None]:
    """Context that turns whatever a network of another make may raise into an InputError."""
    try:
        yield
    except Exception as error:
        raise InputError(f"The network cannot embed a {what} by itself: {first_line(error)}") from error
