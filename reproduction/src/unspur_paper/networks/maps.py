"""Where in a picture a network's evidence lies: its last feature maps, reduced like its rows and kept beside them.

An embedding that is a mean over n positions u, x = mean_u A(u), is reduced to z = Pᵀ(x − μ), and a last layer with all
that comes before it folded in gives logit = w · z + b. Then Grad-CAM weighs channels by α = mean_u ∂logit/∂A(u), which
is P w / n, and its signed map is linear in w::

    M(u) = α · A(u) = w · B(u),    B(u) = Pᵀ A(u) / n,    Σ_u M(u) = logit − b + w · Pᵀ μ

So B is kept, once for all last layers, and no network is needed afterwards.

::

    maps.npy       B, float16 (m, k, h, w), opened as a memory map
    coverage.npy   float32 (m, h, w): share of each cell of the grid that lies in what is to be looked at
    maps.json      ids of the m pictures and how they were cut; written last: maps that have one are whole
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from unspur._files import atomic
from unspur._text import brief
from unspur._typing import Array
from unspur._version import __version__
from unspur.exceptions import ArtifactError, InputError
from unspur_paper.embedding.base import NetworkEncoder, Preparation, resize_and_crop
from unspur_paper.embedding.embedding import LOCK
from unspur_paper.embedding.examples import Examples, loaded_batches
from unspur_paper.embedding.store import MANIFEST, Reduction, read_manifest
from unspur_paper.files import DISK_FULL_ERRORS, NUMBER, disk_error, hold, load_npy, read_json, require_kinds

FORMAT = 1
MAPS, COVERAGE, DESCRIPTION = "maps.npy", "coverage.npy", "maps.json"
#: Maps that are not finished yet.
PART = "maps.part.npy"
#: Pictures that are read at a time.
BLOCK = 256
AGAIN = "Write the maps again."
#: What a description says.
_KINDS = {"format": int, "ids": [str], "shape": [int], "digest": str}
_PREPARATION = {"resize": int, "crop": int, "mean": [NUMBER], "scale": [NUMBER]}

#: Number of an example -> its mask as prepared, a 2-D array between 0 (outside) and 1 (inside).
Masks = Callable[[int], Array]


@dataclass(frozen=True, slots=True)
class Maps:
    """Reduced feature maps of m pictures, shape (m, k, h, w), and the share of each cell inside their masks."""

    ids: tuple[str, ...]
    values: Array
    coverage: NDArray[np.float32]
    description: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def digest(self) -> str:
        """Of maps, coverage and ids."""
        return str(self.description["digest"])

    @property
    def preparation(self) -> Preparation | None:
        """How pictures were cut and scaled; None where it is not known."""
        found = self.description.get("preparation")
        return None if found is None else Preparation(**{key: _frozen(value) for key, value in found.items()})

    def signed(self, weights: Array, pictures: Array | None = None) -> NDArray[np.float32]:
        """Grad-CAM of the logit w · z + b, shape (m, h, w): positive where a picture speaks for class 1.

        `weights` has shape (k,). Of all pictures, or of some by number.
        """
        m, k, h, w = self.values.shape
        if np.shape(weights) != (k,):
            raise InputError(f"A layer on these maps has {k} weights; got {np.shape(weights)}.")
        chosen = np.arange(m) if pictures is None else np.asarray(pictures)
        layer, found = np.asarray(weights, dtype=np.float32), np.empty((len(chosen), h * w), dtype=np.float32)
        for at in range(0, len(chosen), BLOCK):
            block = self.values[chosen[at : at + BLOCK]].astype(np.float32)
            found[at : at + BLOCK] = layer @ block.reshape(-1, k, h * w)
        return found.reshape(-1, h, w)

    def verify(self) -> None:
        """Read everything once and compare with the digest."""
        total = hashlib.sha256()
        for at in range(0, len(self), BLOCK):
            total.update(np.ascontiguousarray(self.values[at : at + BLOCK]).tobytes())
        found = _digest(total, self.coverage, self.ids)
        if found != self.digest:
            raise ArtifactError(f"The maps have changed since they were written: {found}, not {self.digest}. {AGAIN}")


def write_maps(
    examples: Examples,
    chosen: Sequence[int] | Array,
    encoder: NetworkEncoder,
    reduction: Reduction,
    masks: Masks,
    folder: str | Path,
    *,
    batch: int = 16,
    workers: int | None = None,
    progress: bool = True,
) -> Maps:
    """Keep B(u) of the examples numbered `chosen` in the folder of the store that `reduction` belongs to.

    Maps that are there are replaced. There are none without all three files, so a process that is killed leaves none.
    """
    folder, numbers = Path(folder), [int(i) for i in chosen]
    _check(examples, numbers, encoder, reduction, batch)
    folder.mkdir(parents=True, exist_ok=True)
    ids = tuple(examples.ids[i] for i in numbers)
    work = _Mapping(examples, numbers, encoder, reduction, masks)
    try:
        with hold(folder / LOCK):
            _write(work, folder, ids, batch, workers, progress)
    except OSError as error:
        if error.errno not in DISK_FULL_ERRORS:  # a picture that cannot be read, for one
            raise
        raise disk_error(error, folder, "Make room and give the same command again.") from error
    return _opened(folder)


def _write(work: _Mapping, folder: Path, ids: tuple[str, ...], batch: int, workers: int | None, progress: bool) -> None:
    """All three files, the description last."""
    part, encoder = folder / PART, work.encoder
    try:
        (folder / DESCRIPTION).unlink(missing_ok=True)  # first: from here on the other two belong to nothing
        with tqdm(total=len(ids), desc="maps", unit=work.examples.kind, disable=None if progress else True) as bar:
            shape, coverage, total = work.write(part, batch, workers, bar.update)
        part.replace(folder / MAPS)
        with atomic(folder / COVERAGE, overwrite=True) as temporary, temporary.open("wb") as file:
            np.save(file, coverage)
        preparation = getattr(encoder, "preparation", None)
        described = {
            "format": FORMAT,
            "unspur": __version__,
            "encoder": encoder.name,
            "ids": ids,
            "shape": shape,
            "digest": _digest(total, coverage, ids),
            "store": _store_digest(folder),
            "preparation": None if preparation is None else asdict(preparation),
        }
        with atomic(folder / DESCRIPTION, overwrite=True) as temporary:
            temporary.write_text(json.dumps(described, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    finally:
        part.unlink(missing_ok=True)


def read_maps(folder: str | Path) -> Maps | None:
    """The maps in a store's folder; None where there are none. Damaged ones, or those of other rows, are an error."""
    return _opened(Path(folder)) if (Path(folder) / DESCRIPTION).exists() else None


def _opened(folder: Path) -> Maps:
    path = folder / DESCRIPTION
    try:
        described = read_json(path, _KINDS)
        version, ids, shape = described["format"], tuple(described["ids"]), tuple(described["shape"])
        if len(shape) != 4:
            raise ValueError(f"maps of four axes have no shape {brief(shape, 60)}")
        if (preparation := described.get("preparation")) is not None:
            require_kinds(preparation, _PREPARATION, "'preparation'")
            cut = Preparation(**preparation)
            if not (1 <= cut.crop <= cut.resize and len(cut.mean) == len(cut.scale) == 3):
                raise ValueError("no picture can be cut as its 'preparation' says")
        values, coverage = load_npy(folder / MAPS, mapped=True), load_npy(folder / COVERAGE)
    except (OSError, ValueError, TypeError) as error:
        raise ArtifactError(f"The maps of {folder} are damaged ({brief(error)}). {AGAIN}") from error
    if version != FORMAT:
        raise ArtifactError(f"{path} has format {version}; this version reads {FORMAT}. {AGAIN}")
    seen = (values.shape, values.dtype.name, coverage.shape, coverage.dtype.name, len(ids))
    wanted = (shape, "float16", (shape[0], *shape[2:]), "float32", shape[0])
    if seen != wanted or not (coverage.min() >= 0 and coverage.max() <= 1):  # also of NaN
        raise ArtifactError(
            f"The maps of {folder} are damaged: {path.name} promises {wanted} and coverage between 0 and 1; there is "
            f"{seen}. {AGAIN}"
        )
    if described.get("store") not in (None, _store_digest(folder)):
        raise ArtifactError(f"The maps of {folder} were written for other rows than those beside them. {AGAIN}")
    return Maps(ids, values, coverage, described)


@dataclass(frozen=True, slots=True)
class _Mapping:
    """One pass over the chosen pictures."""

    examples: Examples
    numbers: Sequence[int]
    encoder: NetworkEncoder
    reduction: Reduction
    masks: Masks

    def write(
        self, path: Path, batch: int, workers: int | None, done: Callable[[int], Any]
    ) -> tuple[tuple[int, ...], NDArray[np.float32], Any]:
        """Fill `path` batch by batch; return the shape, the coverage, and the hash of what was written."""
        shape: tuple[int, ...] = ()
        coverage, total = [], hashlib.sha256()
        # Not through a memory map: a disk that becomes full would end the process instead of raising an error.
        batches = loaded_batches(self._load, self.numbers, batch, workers)
        with closing(batches), path.open("wb") as file:
            for loaded in batches:
                block = self._reduced([picture for picture, _ in loaded])
                if not shape:
                    shape = (len(self.numbers), *block.shape[1:])
                    header = {"descr": "<f2", "fortran_order": False, "shape": shape}
                    np.lib.format.write_array_header_1_0(file, header)
                if block.shape[1:] != shape[1:]:
                    raise InputError(f"{self.encoder.name} made maps of {shape[1:]} and then of {block.shape[1:]}.")
                content = block.astype("<f2").tobytes()
                file.write(content)
                total.update(content)
                coverage += [onto_cells(mask, (shape[2], shape[3])) for _, mask in loaded]
                done(len(block))
        return shape, np.stack(coverage), total

    def _load(self, number: int) -> tuple[Any, Array]:
        return self.encoder.prepare(self.examples[number]), self.masks(number)

    def _reduced(self, pictures: list[Any]) -> Array:
        """B(u) of a batch, float32 of shape (batch, k, h, w)."""
        import torch

        encoder = self.encoder
        with torch.inference_mode():
            maps = encoder.where.run(encoder.feature_maps, encoder.batch(pictures)).float()
            if maps.ndim != 4 or maps.shape[:2] != (len(pictures), encoder.width):
                raise InputError(
                    f"{encoder.name} made maps of shape {tuple(maps.shape)} of {len(pictures)} pictures; it promises "
                    f"({len(pictures)}, {encoder.width}, h, w)."
                )
            components = torch.as_tensor(self.reduction.components, dtype=torch.float32, device=maps.device)
            reduced = torch.einsum("bdhw,dk->bkhw", maps, components) / (maps.shape[2] * maps.shape[3])
        found = np.asarray(reduced.cpu().numpy())
        if not np.abs(found).max() <= np.finfo(np.float16).max:  # also of NaN
            raise InputError(f"{encoder.name} made maps that are not finite, or too large for float16.")
        return found


def opacity(mask: Any, preparation: Preparation) -> NDArray[np.float32]:
    """A mask (PIL, L) cut and scaled like its picture, shape (crop, crop): 0 outside, 1 inside."""
    return np.asarray(resize_and_crop(mask, preparation) / 255.0, dtype=np.float32)


def onto_cells(mask: Array, grid: tuple[int, int]) -> NDArray[np.float32]:
    """Mean of a 2-D array over each cell of a grid laid over it, shape `grid`; pixels on a border count in parts."""
    mask = np.asarray(mask, dtype=np.float64)
    if mask.ndim != 2 or not (mask.min() >= 0 and mask.max() <= 1):  # also of NaN
        raise InputError(f"A mask is a 2-D array between 0 and 1; got one of shape {mask.shape}.")
    down, across = (_overlap(cells, pixels) for cells, pixels in zip(grid, mask.shape, strict=True))
    # Sums of many parts end a rounding error above one.
    return np.asarray(np.clip(down @ mask @ across.T, 0.0, 1.0), dtype=np.float32)


def _overlap(cells: int, pixels: int) -> Array:
    """Part of each cell that each pixel covers along one side, shape (cells, pixels); rows add up to one."""
    cell, pixel = np.arange(cells + 1)[:, None] / cells, np.arange(pixels + 1) / pixels
    shared = np.minimum(cell[1:], pixel[1:]) - np.maximum(cell[:-1], pixel[:-1])
    return np.maximum(shared, 0.0) * cells


def _check(
    examples: Examples, numbers: Sequence[int], encoder: NetworkEncoder, reduction: Reduction, batch: int
) -> None:
    if not numbers or len(set(numbers)) < len(numbers) or not 0 <= min(numbers) <= max(numbers) < len(examples):
        raise InputError(
            f"Maps are of pictures numbered 0 to {len(examples) - 1}, each once and one at least; the {len(numbers)} "
            "numbers given are not."
        )
    if len(reduction.components) != encoder.width:
        raise InputError(
            f"{encoder.name} makes {encoder.width} features; the reduction is of {len(reduction.components)}. Use that "
            "of the store which the network filled."
        )
    if batch < 1:
        raise InputError(f"batch is a number of pictures, 1 at least; got {batch}.")


def _digest(maps: Any, coverage: Array, ids: Sequence[str]) -> str:
    """16 hexadecimal digits, from the hash of the maps on."""
    maps.update(np.ascontiguousarray(coverage, dtype="<f4").tobytes())
    maps.update("\n".join(ids).encode())
    return str(maps.hexdigest()[:16])


def _store_digest(folder: Path) -> str | None:
    return str(read_manifest(folder)["digest"]) if (folder / MANIFEST).exists() else None


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
