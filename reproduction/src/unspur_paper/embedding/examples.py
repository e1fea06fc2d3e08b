"""Examples (images or texts) with their labels, each loaded on demand.

::

    publisher's files, or a table ──▶ Examples ──(a network)──▶ embedding store

Labels are columns of 0 and 1 (or names, such as the split), known without loading anything. A table of one's own has a
line for each example::

    image,bird,background              text,text_pair,contradiction
    gulls/001.jpg,gull,water           A man sleeps.,A man is awake.,1

The column `image` holds paths inside of a folder; or `text`, and for pairs `text_pair`, holds what is to be read. A
column `id` names the examples. Every other column is a label. `tables.py` has the kinds of files and folders.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from io import BufferedReader, BytesIO, FileIO
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from tqdm import tqdm

from unspur._extras import require
from unspur._reading import first_names, require_regular, suffix_of
from unspur._text import brief, counted
from unspur._typing import Array
from unspur.exceptions import InputError, Parameter
from unspur_paper.embedding.tables import ID, IMAGE, PAIR, TEXT, StoredPictures, read_example_table

Kind = Literal["image", "text"]
T = TypeVar("T")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
#: Longest file name and path, and characters of a name that a message shows.
MAX_NAME_CHARACTERS, MAX_PATH_CHARACTERS, MAX_NAME_SHOWN = 255, 2000, 80
#: Most bytes of memory for reading one picture, and of its file.
MAX_PICTURE_MEMORY, MAX_PICTURE_BYTES = 200_000_000, 300_000_000
#: Files of pictures up to this size are read at once: decoders ask for a few bytes at a time.
MAX_BYTES_AT_ONCE = 2**20
#: Formats of pictures that are read, and the bytes that decoding and converting a pixel takes.
PIXEL_BYTES = {"JPEG": 8, "MPO": 8, "PNG": 8, "BMP": 8, "DIB": 8, "GIF": 8, "TIFF": 8, "PPM": 8, "WEBP": 16}
#: Tags of a TIFF.
BITS_PER_SAMPLE, PHOTOMETRIC, WHITE_IS_ZERO, TILE_WIDTH, TILE_LENGTH = 258, 262, 0, 322, 323
#: A JPEG can be decoded at one of these shares of its width and height.
REDUCTIONS = (1, 2, 4, 8)
_SMALLER_COPY_ADVICE = "Save a smaller copy and name that: 2,000 pixels a side are more than a network or a page shows."
#: Most threads unless more are asked for. Part of loading holds Python's lock: on 16 cores, 4 threads loaded 2,040
#: pictures a second, 8 threads 1,780 and 16 threads 1,570 (`benchmarks/embed_speed.py`).
MAX_THREADS = 4
#: Files that a thread hashes in one go.
FILES_PER_TASK = 32
#: Missing files that are named; more are counted.
MAX_FILES_NAMED = 3


class Content(Protocol):
    """Images or texts in a fixed order, loaded one by one.

    An image is a `PIL.Image` in RGB; a text is a string or, for sentence pairs, a tuple of two.
    """

    @property
    def kind(self) -> Kind:
        """Images or texts."""

    def __len__(self) -> int:
        """Number of examples."""

    def __getitem__(self, index: int) -> Any:
        """Load one example."""


class Examples(Content, Protocol):
    """A dataset of images or texts, with names and labels."""

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
    """``load(number)`` of all numbers in their order, in lists of `batch`.

    Pillow decodes and scales pictures without holding Python's lock, so a few threads use as many cores. While a list
    is in use, the next one is loaded, or two examples for each thread if those are more. An error is raised in its
    turn. Close the iterator to drop what was not begun.
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


def open_image(path: Path, mode: str = "RGB", *, upright: bool = False) -> Any:
    """Read an image file; a missing or damaged one, and one that takes too much memory, is an error with its name.

    A JPEG that is too large is decoded at a half, a quarter or an eighth of its width and height.
    `upright`: turned as its EXIF data say, as viewers show it.
    """

    def opened() -> Any:
        if (size := require_regular(path)) > MAX_PICTURE_BYTES:
            raise InputError(
                f"{path} has {size:,} bytes; pictures of up to {MAX_PICTURE_BYTES:,} are read. {_SMALLER_COPY_ADVICE}"
            )
        return BytesIO(path.read_bytes()) if size <= MAX_BYTES_AT_ONCE else _BoundedReader(FileIO(path))

    return _decoded(opened, path, mode, upright=upright)


def image_of(content: bytes, name: str, mode: str = "RGB", *, upright: bool = False) -> Any:
    """The picture in the bytes of a file, as `open_image` reads it; messages call it `name`."""
    return _decoded(lambda: BytesIO(content), name, mode, upright=upright)


def _decoded(opened: Callable[[], Any], name: object, mode: str, *, upright: bool) -> Any:
    require("Pictures need", "PIL")
    from PIL import Image, UnidentifiedImageError

    try:
        with (
            opened() as file,
            Image.open(file, formats=[kind for kind in PIXEL_BYTES if kind != "MPO"]) as image,
        ):  # a kind of JPEG
            _limit_memory(image, name)
            image.load()
            decoded = _converted(image, mode, name)
            turn = _exif_transposition(image) if upright else None
        del image  # a picture, and one made of it, are all that there is room for
        return decoded if turn is None else decoded.transpose(turn)
    except FileNotFoundError:
        raise InputError(f"{name} does not exist. Is the dataset complete?") from None
    except Image.DecompressionBombError as error:
        raise InputError(f"{name} is not read: {brief(error)}. {_SMALLER_COPY_ADVICE}") from error
    except UnidentifiedImageError as error:
        kinds = ", ".join(kind for kind in PIXEL_BYTES if kind not in ("MPO", "DIB"))
        raise InputError(f"{name} cannot be read as an image: it is none of {kinds}. Convert it to one.") from error
    except InputError:
        raise
    except (OSError, SyntaxError, ValueError, TypeError) as error:
        raise InputError(f"{name} cannot be read as an image: {brief(error)}.") from error


def as_rgb(example: Any) -> Any:
    """A picture that was passed as an object, as a PIL image in RGB.

    Parameters
    ----------
    example : a PIL image, or an array of shape (height, width, 3) of uint8 or of fractions between 0 and 1.
    """
    from PIL import Image

    if isinstance(example, Image.Image):
        return _converted(example, "RGB", "A picture")
    got = f"{type(example).__name__} {brief(repr(example), MAX_NAME_SHOWN)}"
    if isinstance(example, np.ndarray):
        if example.ndim == 3 and example.shape[2] == 3 and example.size:
            if example.dtype == np.uint8:
                return Image.fromarray(example)
            if example.dtype.kind == "f" and example.min() >= 0 and example.max() <= 1:
                return Image.fromarray(np.round(255 * example).astype(np.uint8))
        numeric = example.dtype.kind in "fiu" and example.size
        values = f", with values from {example.min():g} to {example.max():g}" if numeric else ""
        got = f"an array of {example.dtype} of shape {example.shape}{values}"
    raise InputError(
        "A picture is a PIL image, or an array of shape (height, width, 3) of uint8 or of fractions between 0 and 1; "
        f"got {got}. Convert it, for example by PIL.Image.fromarray."
    )


def _converted(image: Any, mode: str, what: object) -> Any:
    """A PIL image in another mode; `what` names it in messages."""
    from PIL import Image

    if image.mode == mode:
        return image
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PPM", "PNG")):
        # Pillow cuts 16-bit grey off at 255 instead of scaling it, and leaves to others what the tags of a TIFF say.
        tags = getattr(image, "tag_v2", {})
        grey = (np.asarray(image) >> (tags.get(BITS_PER_SAMPLE, (16,))[0] - 8)).astype(np.uint8)
        image = Image.fromarray(255 - grey if tags.get(PHOTOMETRIC) == WHITE_IS_ZERO else grey)
    elif image.mode in ("I", "F"):
        raise InputError(
            f"{what} has signed, 32-bit or fractional pixels (mode {image.mode}), which do not say what black and "
            "white are. Scale them, and save the picture with 8 or 16 bits."
        )
    elif "transparency" in image.info:  # of no effect on colours, but Pillow warns of it
        image = image.copy()
        del image.info["transparency"]
    return image if image.mode == mode else image.convert(mode)


def _exif_transposition(image: Any) -> Any:
    """The transposition that the EXIF data of a picture ask for, or None."""
    from PIL import ExifTags, Image

    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # of a library that raises nearly every kind
        return None
    turns = Image.Transpose
    return {
        2: turns.FLIP_LEFT_RIGHT,
        3: turns.ROTATE_180,
        4: turns.FLIP_TOP_BOTTOM,
        5: turns.TRANSPOSE,
        6: turns.ROTATE_270,
        7: turns.TRANSVERSE,
        8: turns.ROTATE_90,
    }.get(orientation)


class _BoundedReader(BufferedReader):
    """A file that limits reads to its size: a damaged chunk may claim a gigabyte, which would be allocated."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to `size` bytes."""
        if size is None or size < 0:
            return super().read()
        return super().read(min(size, max(0, os.fstat(self.fileno()).st_size - self.tell())))


def _limit_memory(image: Any, name: object) -> None:
    """Refuse an image that would take too much memory to decode; have a JPEG decoded at a smaller scale."""
    width, height = image.size
    each, fixed, tiles = PIXEL_BYTES[image.format] * (2 if image.mode == "I" else 1), _coefficient_bytes(image), ""
    if image.format == "TIFF" and TILE_WIDTH in image.tag_v2:  # a tile is decoded whole, however little of it is shown
        across, down = (int(image.tag_v2.get(tag, 0)) for tag in (TILE_WIDTH, TILE_LENGTH))
        fixed, tiles = each * across * down, f" in tiles of {across} × {down}"
    takes = [fixed + each * -(-width // share) * -(-height // share) for share in REDUCTIONS]
    if takes[0] <= MAX_PICTURE_MEMORY:
        return
    fitting = [share for share, memory in zip(REDUCTIONS, takes, strict=True) if memory <= MAX_PICTURE_MEMORY]
    if image.format not in ("JPEG", "MPO") or not fitting:
        raise InputError(
            f"{name} has {width} × {height} pixels{tiles}; to read it would take some {takes[0] / 1e6:,.0f} MB of "
            f"memory, and one picture gets {MAX_PICTURE_MEMORY / 1e6:.0f} MB. {_SMALLER_COPY_ADVICE}"
        )
    image.draft(None, (width // fitting[0], height // fitting[0]))


def _coefficient_bytes(image: Any) -> int:
    """Bytes that a JPEG decoder keeps besides the pixels: all coefficients, if there are several scans."""
    layers = getattr(image, "layer", None)
    if not layers:
        return 0
    # Pillow stops behind the header of the first scan, which has two bytes of length, and the number of its layers.
    length, behind = 6 + 2 * len(layers), image.fp.tell()
    image.fp.seek(max(0, behind - length))
    start = image.fp.read(3)
    image.fp.seek(behind)
    if not image.info.get("progressive") and start == bytes([0, length, len(layers)]):
        return 0
    across, down = (max(max(layer[k] for layer in layers), 1) for k in (1, 2))
    share = sum(layer[1] * layer[2] for layer in layers) / (across * down)
    return int(2 * share * image.width * image.height)


def inside_of(folder: Path, name: str, listing: Path, *, allow_outside: bool = False) -> Path:
    """The path that a list names in a folder; InputError if it, or a link it leads through, points elsewhere.

    With `allow_outside` it may be anywhere.
    """
    path = folder / possible(name, listing)
    if allow_outside:
        return path
    try:
        real, place = path.resolve(), folder.resolve()
    except (RuntimeError, OSError) as error:  # links in a circle
        raise InputError(
            f"{listing} names {brief(name, MAX_NAME_SHOWN)!r}, and the links that it leads through end nowhere: "
            f"{brief(error, 2 * MAX_NAME_SHOWN)}. Put the file there, or leave the row out."
        ) from error
    if Path(name).anchor or ".." in Path(name).parts or not real.is_relative_to(place):
        where = "" if path == real else f" ({brief(real, MAX_NAME_SHOWN)})"
        raise InputError(
            "{listing} names {name!r}{where}, which is not inside of {folder}. Give the folder of the pictures with "
            "{root}; or, if you trust the table with all files that you can read, pass {allow_outside}.",
            listing=listing,
            name=brief(name, MAX_NAME_SHOWN),
            where=where,
            folder=_shown(folder),
            root=Parameter("root"),
            allow_outside=Parameter("allow_outside", True),
        )
    return path


def possible(name: str, listing: Path) -> str:
    """A name that a list of files has, if a file can be called so."""
    parts = Path(name).parts
    if not parts or "\0" in name or max(map(len, parts)) > MAX_NAME_CHARACTERS or len(name) > MAX_PATH_CHARACTERS:
        raise InputError(f"{listing} names {brief(name, MAX_NAME_SHOWN)!r}, which no file is called.")
    return name


def label_column(fields: Sequence[str]) -> Array:
    """A label that was read as text, as integers if all values are, else as texts."""
    # Only what is written as str(int) would write it: 01 and 1 may be two classes, and so may 2**53 and 2**53 + 1.
    texts = set(fields)  # few values, many rows
    whole = texts and all(_INTEGER.fullmatch(text) and -(2**63) <= int(text) < 2**63 for text in texts)
    return np.array(fields, dtype=np.int64 if whole else str)


def column_with_missing(fields: Sequence[str]) -> Array:
    """A label that was read as text, with None for empty fields."""
    known = label_column([field for field in fields if field])
    if len(known) == len(fields):
        return known
    column = np.full(len(fields), None, dtype=object)
    column[[field != "" for field in fields]] = known.tolist()
    return column


@dataclass(frozen=True, slots=True)
class TableExamples:
    """Examples of a table, a saved data set or a folder of class folders, in its order.

    Attributes
    ----------
    table : what was read, a file or a folder.
    content : of images a path relative to `root` or the bytes of a file each; of texts a text each, or a tuple of two.
    labels : column -> values. Class folders have `class`, and `split` and `subfolder` where there are such folders.
    files : files that hold the table, whose content is part of the digest.
    notes : what was left out, in words.
    """

    table: Path
    root: Path
    content: Sequence[Any]
    ids: Sequence[str]
    labels: Mapping[str, Array]
    settings: Mapping[str, Any]
    name: str
    kind: Kind
    files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def read(
        cls,
        table: str | Path,
        root: str | Path | None = None,
        *,
        allow_outside: bool = False,
        name: str | None = None,
        text: str | None = None,
    ) -> TableExamples:
        """Read a table of texts or pictures.

        Parameters
        ----------
        table : a .csv, .tsv, .csv.gz, .parquet or .arrow file; a folder of Parquet files; a folder that `datasets`
            saved (``save_to_disk``); a folder of class folders, ``<class>/*.jpg`` or ``<split>/<class>/*.jpg``; or a
            folder of pictures alone, which then have no labels.
        root : folder that paths of images are relative to, by default that of the table.
        allow_outside : whether paths, and links in class folders, may lead out of `root`.
        name : what manifests call the examples, by default the name of the file or folder.
        text : column of the texts, if it is not called "text".
        """
        table = Path(table)
        is_folder = table.is_dir()
        root = (table if is_folder else table.parent) if root is None else Path(root)
        read = read_example_table(table, allow_outside=allow_outside)
        columns = dict(read.columns)
        if text is not None:
            if text not in columns:
                raise InputError(f"{table} has no column {text!r}; it has {first_names(columns)}. Name one of these.")
            if text != TEXT and TEXT in columns:
                raise InputError(f"{table} has a column {TEXT!r} besides {text!r}. Rename or drop one of the two.")
            columns[TEXT] = columns.pop(text)
        kind = _kind(columns, table)
        rows = len(next(iter(columns.values())))
        content: Sequence[Any] = columns.pop(kind)
        stored = isinstance(content, StoredPictures)
        for number, field in enumerate(() if stored else content, 1):
            if not field.strip():
                raise InputError(f"{table}: row {number} has no {kind}. Every row needs one; drop it, or fill it in.")
        if kind == "image" and not stored and read.files:
            _require_files(root, content, table, allow_outside=allow_outside)
        elif PAIR in columns:
            content = list(zip(content, columns.pop(PAIR), strict=True))
        numbers = kind == "text" or stored
        ids = columns.pop(ID, None) or ([str(number + 1) for number in range(rows)] if numbers else content)
        _require_distinct(ids, table)
        labels = {name: label_column(fields) for name, fields in columns.items()}
        called = name or (table.resolve().name if is_folder else table.name[: -len(suffix_of(table))])
        about: dict[str, Any] = {f"{kind}s": rows, **({} if text in (None, TEXT) else {"text": text})}
        return cls(table, root, content, ids, labels, about, called, kind, read.files, read.notes)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Any:
        """Load one image, or return one text."""
        found = self.content[index]
        if self.kind == "text":
            return found
        if isinstance(found, bytes):
            return image_of(found, f"{self.table}: picture {self.ids[index]}", upright=True)
        return open_image(self.root / found, upright=True)

    @property
    def named_by_path(self) -> bool:
        """Whether ids are the paths of images, which say what to show even if the table was changed."""
        return not isinstance(self.content, StoredPictures) and list(self.ids) == list(self.content)

    def digest(self) -> str:
        """Hash of the table and the images."""
        if self.kind == "text":
            return digest_of(self.name, self.settings, self.labels, self.files)
        # Earlier versions showed networks pictures as they are stored, not upright.
        settings = {**self.settings, "upright": True}
        if not self.files:  # of class folders the names are all there is besides the images
            settings["names"] = hashlib.sha256("\n".join(self.ids).encode()).hexdigest()[:16]
        stored = isinstance(self.content, StoredPictures)
        images = () if stored else (self.root / name for name in self.content)
        return digest_of(self.name, settings, self.labels, (*self.files, *images))


def _kind(columns: Mapping[str, Any], table: Path) -> Kind:
    if (IMAGE in columns) == (TEXT in columns):
        found = "both" if IMAGE in columns else first_names(columns)
        raise InputError(
            "{table} needs a column {image!r} or a column {text!r}; it has {found}. Rename one, or name the column of "
            "the texts with {option}.",
            table=table,
            image=IMAGE,
            text=TEXT,
            found=found,
            option=Parameter("text"),
        )
    if PAIR in columns and TEXT not in columns:
        raise InputError(f"{table} has a column {PAIR!r} without {TEXT!r}; a pair of texts needs both.")
    return "image" if IMAGE in columns else "text"


def _shown(folder: Path) -> Path:
    """A folder as messages name it: in full if it is called by dots, which would end the sentence."""
    return folder.resolve() if folder.name in ("", "..") else folder


def _require_files(root: Path, names: Sequence[str], table: Path, *, allow_outside: bool) -> None:
    missing = [name for name in names if not inside_of(root, name, table, allow_outside=allow_outside).is_file()]
    if missing:
        more = f" and {len(missing) - MAX_FILES_NAMED} more" if len(missing) > MAX_FILES_NAMED else ""
        named = ", ".join(brief(name, MAX_NAME_SHOWN) for name in missing[:MAX_FILES_NAMED])
        raise InputError(
            "{missing} of {listed} that {table} names {are} not in {folder}: {names}. Paths are relative to the folder "
            "that is given with {root}.",
            missing=len(missing),
            listed=counted(len(names), "image"),
            table=table,
            are="is" if len(missing) == 1 else "are",
            folder=_shown(root),
            names=named + more,
            root=Parameter("root"),
        )


def _require_distinct(ids: Sequence[str], table: Path) -> None:
    seen: dict[str, int] = {}
    for number, name in enumerate(ids, 1):
        if name in seen:
            raise InputError(
                f"{table}: rows {seen[name]} and {number} are both called {brief(name, MAX_NAME_SHOWN)!r}. Drop one, "
                f"or give every row a name of its own in a column {ID!r}."
            )
        seen[name] = number
