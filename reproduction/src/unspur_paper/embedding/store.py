"""An embedding store: a folder with rows, labels and a manifest that says what they are rows of.

::

    rows.npy        float32 or float16 (n, d), opened as a memory map
    labels.csv      id and labels of each row
    manifest.json   dataset and encoder with their digests, device, seconds; written last: a store that has one is whole
    reduction.safetensors   mean and components, if rows were reduced

Rows that are not finished yet are called ``rows.part.npy``; ``progress.json`` says how many there are and of what.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save
from sklearn.decomposition import PCA

from unspur._files import atomic
from unspur._text import brief
from unspur._typing import Array, FloatArray
from unspur.exceptions import ArtifactError, InputError
from unspur_paper.files import load_npy, read_json, require_kinds, reserve_space

FORMAT = 1
ROWS, LABELS, MANIFEST, REDUCTION = "rows.npy", "labels.csv", "manifest.json", "reduction.safetensors"
#: Files of a store that is not finished.
PART, PROGRESS = "rows.part.npy", "progress.json"
#: Keys that a manifest must have.
_KINDS = {"digest": str}
#: What a manifest, and the progress of a store that is not finished, say of their rows.
_ORIGIN = {"dataset": {"digest": str}, "encoder": {"digest": str}}
EMBED_AGAIN = "Embed again with --force."
#: A whole number as str(int) writes it.
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
#: Largest component for which reduced rows stay finite.
MAX_COMPONENT = 1e100


@dataclass(frozen=True, slots=True)
class EmbeddingStore:
    """Rows of shape (n, d), their ids and label columns, and the manifest."""

    folder: Path
    rows: Array
    ids: tuple[str, ...]
    labels: Mapping[str, Array]
    manifest: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def digest(self) -> str:
        """Digest of the rows and labels themselves."""
        return str(self.manifest["digest"])

    @classmethod
    def open(cls, folder: str | Path) -> EmbeddingStore:
        """Open a store; one that is unfinished, damaged or foreign is an error."""
        folder = Path(folder)
        manifest = read_manifest(folder)
        try:
            rows = load_npy(folder / ROWS, mapped=True)
            ids, labels = read_labels(folder / LABELS)
        except (OSError, ValueError, EOFError) as error:
            raise ArtifactError(f"{folder} is damaged: {brief(error)}. {EMBED_AGAIN}") from error
        wanted = (manifest.get("rows"), manifest.get("width"))
        if rows.dtype not in (np.float32, np.float16) or rows.shape != wanted or len(ids) != len(rows):
            raise ArtifactError(
                f"{folder} is damaged: its manifest promises {brief(wanted, 60)} numbers, {ROWS} has {rows.shape} of "
                f"{rows.dtype} and {LABELS} {len(ids)} lines. {EMBED_AGAIN}"
            )
        # Labels are read anyway, so that they can be held against their digest; rows are not: `verify` reads them.
        if manifest.get("labels_digest", seen := file_digest(folder / LABELS)) != seen:
            raise ArtifactError(f"{folder / LABELS} was changed after it was written. Put it back, or embed again.")
        return cls(folder, rows, ids, labels, manifest)

    def verify(self) -> None:
        """Read everything once and compare with the digest of the manifest."""
        found = content_digest(self.rows, self.ids, self.labels)
        if found != self.digest:
            raise ArtifactError(f"{self.folder} has changed since it was written: {found} instead of {self.digest}.")

    def column(self, name: str) -> Array:
        """A label by name, (n,): integers or texts, with None (and dtype object) where the field is empty."""
        if name not in self.labels:
            raise InputError(f"{self.folder} has no label {name!r}; it has {', '.join(self.labels)}.")
        return self.labels[name]


def is_store(folder: Path) -> bool:
    """Whether a folder is a store, finished or not. Files of these names that other programs wrote do not make one."""
    there = [path for path in (folder / MANIFEST, folder / PROGRESS) if path.exists()]
    try:
        for path in there:
            read_json(path, _ORIGIN)
    except (OSError, ValueError):
        return False
    return bool(there)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a whole store."""
    path = folder / MANIFEST
    if not path.exists():
        if is_store(folder):
            raise InputError(f"{folder} is an embedding store that is not finished; give the same command again.")
        raise InputError(f"{folder} is not an embedding store: it has no {MANIFEST}. `unspur-paper embed` makes one.")
    try:
        manifest = read_json(path, {"format": int})
        if (version := manifest["format"]) == FORMAT:
            require_kinds(manifest, _KINDS)
            if "cut" in manifest:
                require_kinds(manifest["cut"], {"texts": int, "max_tokens": int}, "'cut'")
            require_kinds(encoder := manifest.get("encoder", {}), dict, "its encoder")
            if (training := encoder.get("training")) is not None:
                require_kinds(training, dict, "the training of its encoder")
                require_kinds(training.get("history", []), [dict], "'history' of the training of its encoder")
    except (OSError, ValueError) as error:
        if not is_store(folder):
            raise ArtifactError(
                f"{path} is damaged, or it is not a manifest of an embedding store ({brief(error)}). If {folder} was a "
                "store, delete it and embed again; else name another folder."
            ) from error
        raise ArtifactError(f"{path} is damaged ({brief(error)}). {EMBED_AGAIN}") from error
    if version != FORMAT:
        raise ArtifactError(f"{path} has format {version}; this version reads {FORMAT}. {EMBED_AGAIN}")
    return dict(manifest)


def file_digest(path: Path) -> str:
    """Hash of the bytes of a file, 16 hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def content_digest(rows: Array, ids: Sequence[str], labels: Mapping[str, Array]) -> str:
    """Hash of rows, ids and labels, 16 hexadecimal digits."""
    total = hashlib.sha256(repr(rows.shape).encode())
    for start in range(0, len(rows), 4096):
        total.update(np.ascontiguousarray(rows[start : start + 4096], dtype="<f4").tobytes())
    total.update("\n".join(ids).encode())
    for name in sorted(labels):
        fields = ("" if value is None else str(value) for value in labels[name].tolist())
        total.update(f"{name}:{','.join(fields)}".encode())
    return total.hexdigest()[:16]


def new_rows(path: Path, shape: tuple[int, ...], *, half: bool = False) -> Array:
    """Rows of zeros in a new file, open for writing, with its disk space reserved."""
    rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16 if half else np.float32, shape=shape)
    try:
        reserve_space(path)
    except OSError:
        path.unlink()
        raise
    return rows


def write_labels(path: Path, ids: Sequence[str], labels: Mapping[str, Array]) -> None:
    """Ids and labels as one table."""
    with atomic(path, overwrite=True) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *labels])
        writer.writerows(zip(ids, *(column.tolist() for column in labels.values()), strict=True))


def read_labels(path: Path) -> tuple[tuple[str, ...], dict[str, Array]]:
    """Ids and label columns, as integers if all values of a column are, else as texts; None for empty fields."""
    with path.open(encoding="utf-8", newline="") as file:
        names, *lines = csv.reader(file)
    if names[:1] != ["id"] or any(len(line) != len(names) for line in lines):
        raise ValueError(f"{path.name} is not a table that starts with the column id")
    ids, *columns = zip(*lines, strict=True) if lines else [() for _ in names]
    return tuple(ids), {name: _column(fields) for name, fields in zip(names[1:], columns, strict=True)}


def _column(fields: Sequence[str]) -> Array:
    known = [field for field in fields if field]
    whole = bool(known) and all(_INTEGER.fullmatch(field) for field in set(known))  # 01 and 1 may be two classes
    values = [int(field) if whole and field else field or None for field in fields]
    return np.array(values, dtype=object if len(known) < len(fields) else np.int64 if whole else str)


@dataclass(frozen=True, slots=True)
class Reduction:
    """z = (x - mean) @ components, with orthonormal components of shape (d, k); not whitened."""

    mean: FloatArray
    components: FloatArray

    @classmethod
    def fit(cls, rows: Array, k: int) -> Reduction:
        """The k directions of largest variance of rows of shape (n, d), exactly and always with the same signs."""
        if not 1 <= k <= min(rows.shape):
            raise InputError(f"{len(rows)} rows of {rows.shape[1]} features have no {k} principal components.")
        # Through the covariance where there are more rows than features; both ways are exact.
        solver = "covariance_eigh" if len(rows) > rows.shape[1] else "full"
        fitted = PCA(k, svd_solver=solver).fit(np.asarray(rows, dtype=np.float64))
        return cls(fitted.mean_, fitted.components_.T.copy())

    def write(self, path: Path) -> None:
        """Write to a safetensors file."""
        with atomic(path, overwrite=True) as temporary:
            temporary.write_bytes(save({"mean": self.mean, "components": self.components}))

    @classmethod
    def read(cls, path: Path) -> Reduction:
        """From a file that `write` made."""
        try:
            found = load_file(path)
            mean, components = found["mean"], found["components"]
            if components.ndim != 2 or mean.shape != components.shape[:1]:
                raise ValueError(f"a mean of shape {mean.shape} does not go with components of {components.shape}")
            if not all(np.abs(array).max(initial=0.0) <= MAX_COMPONENT for array in (mean, components)):  # also of NaN
                raise ValueError("it holds NaN, infinity or numbers as large")
        except (OSError, KeyError, ValueError, TypeError, AttributeError, SafetensorError) as error:
            raise ArtifactError(
                f"{path} cannot be read as a reduction ({brief(repr(error))}). {EMBED_AGAIN}"
            ) from error
        return cls(mean, components)

    def __call__(self, rows: Array) -> FloatArray:
        """Reduced rows, shape (n, k)."""
        return np.asarray((rows - self.mean) @ self.components)

    def back(self, rows: Array) -> FloatArray:
        """Reconstructed rows of the original width."""
        return np.asarray(rows @ self.components.T + self.mean)
