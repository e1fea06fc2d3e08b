"""Pictures and texts with their labels, from tables, folders and data sets of Hugging Face."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np

from unspur._extras import require
from unspur._text import brief
from unspur.exceptions import InputError

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["image", "text"]
T = TypeVar("T")
#: How names of pictures end, and the formats that pillow may read.
PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
#: Names of folders that are parts of a data set and not classes.
SPLIT_NAMES = ("train", "training", "val", "valid", "validation", "dev", "test", "testing")
#: A JPEG with longer sides is decoded at a half, a quarter or an eighth of its size.
LARGE_SIDE = 2000
#: Most threads unless more are asked for, and examples that they load ahead.
MAX_THREADS, AHEAD = 4, 32


class Content(Protocol):
    """Pictures (`PIL.Image` in RGB) or texts in a fixed order, loaded one by one."""

    @property
    def kind(self) -> Kind:
        """Pictures or texts."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...


@dataclass(frozen=True, eq=False)
class Examples:
    """Pictures or texts in a fixed order, and a table with what is known of each.

    Attributes
    ----------
    kind : "image" or "text".
    items : a path, or the bytes of a file, for each picture; a string for each text.
    labels : one row for each example. All columns travel into the embeddings.
    """

    kind: Kind
    items: Sequence[Any]
    labels: pd.DataFrame

    def __post_init__(self) -> None:
        if not len(self.items) or len(self.items) != len(self.labels):
            raise InputError(f"There are {len(self.items)} examples with {len(self.labels)} labels. Pass one for each.")

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        """Load one picture, or return one text."""
        item = self.items[index]
        return item if self.kind == "text" else open_image(item, name=f"The picture of row {index + 1}")

    def digest(self, rows: range) -> str:
        """Hash of some examples and their labels."""
        total = hashlib.sha256(self.labels.iloc[rows.start : rows.stop].to_csv(index=False).encode())
        for row in rows:
            item = self.items[row]
            total.update(hashlib.sha256(item.encode() if self.kind == "text" else _bytes(item)).digest())
        return total.hexdigest()[:16]


def read_examples(
    source: str | Path, *, root: str | Path | None = None, image: str | None = None, text: str | None = None
) -> Examples:
    """Pictures or texts of a table, a folder or a data set of Hugging Face, with their labels.

    Parameters
    ----------
    source : a .csv or .parquet file with a column of paths or of texts; a folder of class folders, ``<class>/*.jpg`` or
        ``<split>/<class>/*.jpg``; a folder that the library `datasets` saved; or a data set that it loads, such as
        ``stanfordnlp/imdb`` or a folder of Parquet files. Its splits become the column ``split``.
    root : folder that paths are relative to and must lie in, by default that of the table.
    image, text : the column of the pictures or of the texts, by default the one that is called so.
    """
    path = Path(source)
    if path.is_dir() and not any(path.glob("**/*.parquet")) and not any(path.glob("*.json")):
        frame, image, root = _class_folders(path), "image", root or path
    elif path.suffix.lower() in (".csv", ".parquet") and path.is_file():
        frame = _read_table(path)
    elif path.is_dir() or (str(source).count("/") == 1 and not path.exists()):
        return _read_dataset(str(source), image, text)
    else:
        raise InputError(f"There is no table, folder or data set {source}. Pass a .csv or .parquet file, or a folder.")
    kind, column = _column(frame, source, image, text)
    items = frame[column].tolist()
    blank = [isinstance(item, str) and not item.strip() for item in items]
    empty = np.logical_or(frame[column].isna(), np.array(blank, dtype=bool))
    if empty.any():
        row = int(np.argmax(empty)) + 1
        raise InputError(f"{path}: row {row} has no {kind} in the column {column!r}. Fill it in, or drop the row.")
    if kind == "text":
        items = [str(item) for item in items]
    else:
        root = Path(root or path.parent)
        items = [inside_of(root, item, source) if isinstance(item, str) else item for item in items]
        if missing := [item for item in items if isinstance(item, Path) and not item.is_file()]:
            raise InputError(
                f"{len(missing)} of {len(items)} pictures of {source} do not exist, the first {missing[0]}. Name the "
                "folder that paths are relative to as root."
            )
    return Examples(kind, items, _plain(frame))


def _read_table(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        if path.suffix.lower() == ".csv":
            return pd.read_csv(path)
        require("Parquet files need", "pyarrow")
        frame = pd.read_parquet(path)
        return frame.reset_index() if frame.index.name else frame
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {brief(error)}.") from error


def _read_dataset(source: str, image: str | None, text: str | None) -> Examples:
    require("Data sets of Hugging Face need", "datasets")
    import datasets

    try:
        saved = any((Path(source) / name).is_file() for name in ("dataset_dict.json", "state.json"))
        found = datasets.load_from_disk(source) if saved else datasets.load_dataset(source)
    except Exception as error:  # whatever the hub, a proxy or a damaged file may raise
        raise InputError(f"The data set {source} cannot be loaded: {brief(error)}.") from error
    if isinstance(found, dict):
        parts = [part.add_column("split", [name] * len(part)) for name, part in found.items()]
        found = datasets.concatenate_datasets(parts)
    kind, column = _column(found.features, source, image, text)
    if kind == "image":
        found = found.cast_column(column, datasets.Image(decode=False))
    labels = found if kind == "text" else found.remove_columns(column)
    frame = labels.to_pandas()
    for name, feature in labels.features.items():
        if isinstance(feature, datasets.ClassLabel):
            frame[name] = frame[name].map(dict(enumerate(feature.names)))
    return Examples(kind, found[column], _plain(frame))


def _column(columns: Any, source: Any, image: str | None, text: str | None) -> tuple[Kind, str]:
    """Kind of the examples, and the column that holds them."""
    kind: Kind = "image" if image is not None or (text is None and "image" in columns) else "text"
    name = image or text or kind
    if name not in columns:
        has = brief(", ".join(map(str, columns)), 200)
        raise InputError(f"{source} has no column {name!r}; it has {has}. Name the column as image or as text.")
    return kind, name


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns of a table but pictures and lists."""
    first = {name: next(iter(frame[name].dropna()), None) for name in frame}
    return frame[[name for name, one in first.items() if not isinstance(one, bytes | dict | list | np.ndarray)]]


def _class_folders(root: Path) -> pd.DataFrame:
    """A row for each picture below a folder: its path, class, subfolder and split, as far as there are such folders."""
    import pandas as pd

    found = (path for path in root.rglob("*") if path.suffix.lower() in PICTURE_SUFFIXES and path.is_file())
    names = sorted(path.relative_to(root) for path in found)
    if not names:
        raise InputError(f"{root} holds no pictures. Pass a folder of class folders, or a table.")
    columns = {"image": [name.as_posix() for name in names]}
    parts = [name.parts[:-1] for name in names]
    if all(part and part[0].lower() in SPLIT_NAMES for part in parts):
        columns["split"] = [part[0] for part in parts]
        parts = [part[1:] for part in parts]
    elif any(part and part[0].lower() in SPLIT_NAMES for part in parts):
        raise InputError(f"{root} mixes parts of a data set, such as train, with class folders. Keep one of the two.")
    depths = {len(part) for part in parts}
    if min(depths) == 0 and max(depths) > 0:
        raise InputError(f"{root} has pictures outside of its class folders. Put each into the folder of its class.")
    for level, name in enumerate(("class", "subfolder")[: min(depths)]):
        columns[name] = [part[level] for part in parts]
    return pd.DataFrame(columns)


def inside_of(folder: Path, name: str, listing: Any) -> Path:
    """The path that a table names in a folder; InputError if it, or a link it leads through, points elsewhere."""
    if "\0" in name or not (folder / name).resolve().is_relative_to(folder.resolve()):
        raise InputError(
            f"{listing} names {brief(name, 80)!r}, which is not inside of {folder}. Name the folder of all pictures as "
            "root; if you trust the table, that may be /."
        )
    return folder / name


def _bytes(item: Any) -> bytes:
    """The bytes of a picture file: given, of a path, or either as `datasets` writes them."""
    if isinstance(item, dict):
        item = item.get("bytes") or item["path"]
    return item if isinstance(item, bytes) else Path(item).read_bytes()


def open_image(item: Any, mode: str = "RGB", *, name: str = "The picture") -> Any:
    """A picture as a PIL image, upright; InputError names one that cannot be read.

    Parameters
    ----------
    item : a path, or the bytes of a file.
    name : what a message calls a picture without a path.
    """
    require("Pictures need", "PIL")
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(BytesIO(_bytes(item)), formats=FORMATS) as image:
            image.draft(mode, (LARGE_SIDE, LARGE_SIDE))
            picture = ImageOps.exif_transpose(image)
            if picture.mode.startswith("I;16"):  # pillow would cut off at 255
                picture = Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
            return picture.convert(mode)
    except (OSError, SyntaxError, ValueError, TypeError, Image.DecompressionBombError) as error:
        name = str(item) if isinstance(item, str | Path) else name
        said = "it is damaged, or of another kind" if isinstance(error, UnidentifiedImageError) else brief(error)
        raise InputError(f"{name} cannot be read as an image: {said}.") from error


def load_ahead(load: Callable[[int], T], rows: range, workers: int | None = None) -> Generator[T]:
    """``load(row)`` of all rows in their order, by threads that are some rows ahead."""
    loading: deque[Future[T]] = deque()
    with ThreadPoolExecutor(workers or min(os.cpu_count() or 1, MAX_THREADS)) as pool:
        for row in rows:
            loading.append(pool.submit(load, row))
            if len(loading) > AHEAD:
                yield loading.popleft().result()
        while loading:
            yield loading.popleft().result()
