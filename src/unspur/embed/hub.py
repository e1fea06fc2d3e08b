"""Networks of Hugging Face, from a local folder, the local cache or the hub: weights are read, never executed.

::

    name ──▶ model_folder ──▶ folder ──▶ kind_of, settings_of, load_network
             folder given? cached? else one download

Everything after `model_folder` reads local files only.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unspur._reading import read_json
from unspur.embed.examples import Kind
from unspur.exceptions import InputError

WITHOUT_HUB = "Encoders that need no hub: efficientnet-lite0 (pictures), minilm (texts)."
#: Weights in the one format that cannot hold code, settings and vocabularies; nothing else is downloaded.
_WANTED = ["model*.safetensors", "*.json", "*.txt", "*.model"]
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
_IMAGE_FILES = ("preprocessor_config.json", "processor_config.json")
_TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "vocab.json",
               "merges.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model")  # fmt: skip
_IMAGE_SETTINGS = ("image_size", "num_channels", "vision_config")


@contextmanager
def quietly() -> Iterator[None]:
    """Hold back the progress bars and log lines of transformers and of the hub's client; exceptions still come."""
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
    """Folder of a model: the given one, the cached one, or one that is downloaded now."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise InputError(
                f"{folder} has no config.json, so it is no Hugging Face model; save_pretrained writes one."
            )
        if revision is not None:
            raise InputError(f"{folder} is a folder, which has no revisions; leave out revision {revision!r}.")
        return folder
    with quietly():
        return _cached(name, revision) or _downloaded(name, revision)


def _cached(name: str, revision: str | None) -> Path | None:
    """The cached folder, if it looks complete; a download that was cut short does not."""
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
    """Kind of examples: images if there is an image processor or image settings, else texts if a vocabulary."""
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

    Of files as published, not of objects made from them: a newer transformers must not change them.
    """
    inputs = {"image": _IMAGE_FILES, "text": _TEXT_FILES, None: ()}[kind]
    present = [folder / file for file in ("config.json", *inputs) if (folder / file).is_file()]
    return "\n".join(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in present)


def load_network(folder: Path, name: str) -> Any:
    """The network without its head, in float32, for inference; refused if that takes code or leaves random parts."""
    from transformers import AutoModel

    if not any((folder / file).is_file() for file in _WEIGHTS):
        seen = ", ".join(sorted(path.name for path in folder.glob("*.bin"))) or "no weights that could be used"
        raise InputError(
            f"{name} has no model.safetensors ({seen} seen). Other formats can run code when they are read, so they "
            "are not. Use a revision that has one (owner/model@revision), or load the model once where you trust it "
            "and write a folder with save_pretrained."
        )
    try:
        with quietly():
            network, report = AutoModel.from_pretrained(
                folder, use_safetensors=True, trust_remote_code=False, local_files_only=True, output_loading_info=True
            )
    except Exception as error:  # of a library that raises nearly every kind
        raise InputError(f"{name} cannot be loaded: {first_line(error)}") from error
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


def first_line(error: Exception) -> str:
    """The first line of what a library says, or the name of its error."""
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
