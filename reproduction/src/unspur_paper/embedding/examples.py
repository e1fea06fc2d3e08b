"""Examples (images or texts) with their labels, each loaded on demand.

Labels are columns of 0 and 1 (or names, such as the split), known without loading anything.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from tqdm import tqdm

from unspur._extras import require
from unspur._text import brief
from unspur._typing import Array
from unspur.exceptions import InputError

Kind = Literal["image", "text"]
T = TypeVar("T")
#: Most threads unless more are asked for. Part of loading holds Python's lock, so that more are slower.
MAX_THREADS = 4
#: Files that a thread hashes in one go.
FILES_PER_TASK = 32


class Examples(Protocol):
    """A dataset of images or texts in a fixed order, loaded one by one, with names and labels.

    An image is a `PIL.Image` in RGB; a text is a string or, for sentence pairs, a tuple of two.
    """

    @property
    def kind(self) -> Kind:
        """Images or texts."""

    def __len__(self) -> int:
        """Number of examples."""

    def __getitem__(self, index: int) -> Any:
        """Load one example."""

    @property
    def name(self) -> str:
        """Name of the dataset."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What it was made with: plain numbers and words."""

    @property
    def ids(self) -> Sequence[str]:
        """One name for each example, all different."""

    @property
    def labels(self) -> Mapping[str, Array]:
        """Column -> values, each of shape (n,)."""

    def digest(self) -> str:
        """16 hexadecimal digits of everything that decides the examples: settings, ids, labels, content of files."""


def thread_count(workers: int | None = None) -> int:
    """Number of threads: what was asked for, or one for each core that the process may use, up to 4."""
    if workers is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(cores, MAX_THREADS)
    return max(1, workers)


def loaded_batches(
    load: Callable[[int], T], numbers: Sequence[int], batch: int, workers: int | None = None
) -> Generator[list[T], None, None]:
    """``load(number)`` of all numbers in their order, in lists of `batch`; the next list is loaded meanwhile.

    An error is raised in its turn. Close the iterator to drop what was not begun.
    """
    threads = thread_count(workers)
    ahead = max(batch, 2 * threads)
    pool = ThreadPoolExecutor(threads)
    loading: deque[Future[T]] = deque()
    coming = iter(numbers)
    try:
        for start in range(0, len(numbers), batch):
            loading.extend(pool.submit(load, number) for number in islice(coming, batch + ahead - len(loading)))
            yield [loading.popleft().result() for _ in numbers[start : start + batch]]
    finally:
        pool.shutdown(cancel_futures=True)


def digest_of(name: str, settings: Mapping[str, Any], labels: Mapping[str, Array], files: Iterable[Path]) -> str:
    """Hash of a dataset of files, by their content in the given order and not by their paths."""
    total = hashlib.sha256(json.dumps([name, settings], sort_keys=True, default=str).encode())
    for column in sorted(labels):
        total.update(f"{column}:{','.join(map(str, labels[column].tolist()))}\n".encode())
    paths, each = list(files), FILES_PER_TASK
    hashes = loaded_batches(lambda at: list(map(_file_hash, paths[at : at + each])), range(0, len(paths), each), 1)
    shown = tqdm(total=len(paths), desc="reading", unit=" files", delay=2, leave=False, disable=None)
    with closing(hashes), shown as bar:
        for (some,) in hashes:
            total.update(b"".join(some))
            bar.update(len(some))
    return total.hexdigest()[:16]


def _file_hash(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}. Is the dataset complete?") from error


def open_image(path: Path, mode: str = "RGB") -> Any:
    """Read an image file; a missing or damaged one is an error with its name."""
    require("Pictures need", "PIL")
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.convert(mode)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist. Is the dataset complete?") from None
    except (OSError, SyntaxError, ValueError, TypeError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} cannot be read as an image: {brief(error)}.") from error


def as_rgb(example: Any) -> Any:
    """A picture as a PIL image in RGB: one already, or an array of bytes of shape (height, width, 3)."""
    from PIL import Image

    if isinstance(example, np.ndarray) and example.dtype == np.uint8 and example.ndim == 3 and example.shape[2] == 3:
        return Image.fromarray(example)
    if not isinstance(example, Image.Image):
        raise InputError(f"A picture is a PIL image, or bytes of shape (height, width, 3); got {type(example)}.")
    return example if example.mode == "RGB" else example.convert("RGB")
