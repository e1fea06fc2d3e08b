"""What a report shows of rows: their pictures or texts, and their scores along directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from unspur._extras import require
from unspur._typing import Array, FloatArray
from unspur.embed.examples import Content, Kind, open_image
from unspur.exceptions import InputError
from unspur.heads import Head
from unspur.metrics import principal_angles, shared_variance
from unspur.removers import Remover
from unspur.report.results import Axis, Boundary, Extremes, Role, View
from unspur.subspace import Subspace


@dataclass(frozen=True, slots=True)
class Pictures:
    """Arrays, PIL images or paths, loaded as PIL images in RGB."""

    items: Any
    kind: Kind = "image"

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        """Load one picture."""
        item = self.items[index]
        if isinstance(item, str | PathLike):
            return open_image(Path(item))
        if isinstance(item, np.ndarray):
            return _to_pil(item)
        return item.convert("RGB")

    @property
    def ids(self) -> list[str] | None:
        """Names of the files, if every row has a file of its own."""
        if not all(isinstance(item, str | PathLike) for item in self.items):
            return None
        names = [str(item) for item in self.items]
        return names if len(set(names)) == len(names) else None


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts, or pairs of them."""

    items: Sequence[Any]
    kind: Kind = "text"

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        """One text, or a tuple of two."""
        return self.items[index]


def content_of(pictures: Any, texts: Any, n: int) -> Content | None:
    """Pictures or texts of n test rows, after the checks that are quick; None without either."""
    if pictures is not None and texts is not None:
        raise InputError("Rows are pictures or texts; got both. Pass one of the two.")
    if pictures is None and texts is None:
        return None
    given, name = (pictures, "pictures") if texts is None else (texts, "texts")
    found = _pictures(given) if texts is None else _texts(given)
    if len(found) != n:
        raise InputError(f"There are {len(found)} {name} for {n} test rows. Each row needs one, in the same order.")
    return found


def _as_content(given: Any, wanted: Kind) -> Content | None:
    """The argument, if it is content of the wanted kind already."""
    kind = getattr(given, "kind", None)
    if kind is None or isinstance(given, np.ndarray):
        return None
    if kind != wanted:
        right, wrong = ("pictures", "texts") if kind == "image" else ("texts", "pictures")
        raise InputError(f"{wrong} are a {type(given).__name__} of kind {kind!r}; pass it as {right}.")
    content: Content = given
    return content


def _pictures(given: Any) -> Content:
    if (ready := _as_content(given, "image")) is not None:
        return ready
    if isinstance(given, np.ndarray) or hasattr(given, "__array__"):
        array = np.asarray(given)
        if array.dtype.kind not in "OU":
            return Pictures(_checked(array))
        given = array.tolist()
    found = Pictures(list(given))
    for item in found.items:
        if not isinstance(item, str | PathLike | np.ndarray) and not hasattr(item, "convert"):
            raise InputError(f"A picture is an array, a path or a PIL image; got a {type(item).__name__}.")
        if isinstance(item, np.ndarray):
            _checked(item[None])
    paths = [Path(item) for item in found.items if isinstance(item, str | PathLike)]
    if missing := [str(path) for path in paths if not path.is_file()]:
        raise InputError(f"{len(missing)} of {len(found)} pictures do not exist; the first is {missing[0]}.")
    return found


def _checked(array: Array) -> Array:
    """Pictures, if their shape is (n, h, w) or (n, h, w, 3), and values are integers to 255 or shares to 1."""
    if array.ndim not in (3, 4) or (array.ndim == 4 and array.shape[3] not in (1, 3)):
        raise InputError(f"Pictures have shape (n, h, w) or (n, h, w, 3); got {array.shape}.")
    if not array.size:
        raise InputError(f"Pictures of shape {array.shape} have no pixels.")
    low, high = (float(bound) for bound in (array.min(), array.max()))
    top = 1.0 if array.dtype.kind in "bf" else 255.0
    if not (low >= 0 and high <= top):  # also of NaN
        raise InputError(
            f"Pictures are whole numbers from 0 to 255 or numbers from 0 to 1; these are {array.dtype} from {low:g} to "
            f"{high:g}."
        )
    return array


def _to_pil(array: Array) -> Any:
    require("Pictures need", "PIL")
    from PIL import Image

    if array.dtype.kind in "bf":
        array = np.round(np.asarray(array, dtype=np.float64) * 255.0)
    array = array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array
    return Image.fromarray(array.astype(np.uint8)).convert("RGB")


def _texts(given: Any) -> Content:
    if (ready := _as_content(given, "text")) is not None:
        return ready
    if isinstance(given, str):
        raise InputError("texts are one for each test row; got a single string.")
    items = [tuple(item) if isinstance(item, list | tuple | np.ndarray) else item for item in given]
    for item in items:
        words = item if isinstance(item, tuple) else (item,)
        if len(words) not in (1, 2) or not all(isinstance(word, str) for word in words):
            raise InputError(f"A text is a string or a pair of strings; got {item!r:.60}.")
    return Texts(items)


#: Directions of each subspace that get an axis.
MAX_AXES = 6
#: Rows that are shown at either end of an axis.
EXTREME_ROWS = 6
#: Directions with a larger cosine are one axis.
SAME_DIRECTION_COSINE = 1.0 - 1e-9


@dataclass(frozen=True, slots=True)
class Directions:
    """Axes, and their directions as unit columns of shape (d, m)."""

    axes: tuple[Axis, ...]
    columns: FloatArray

    def of(self, *roles: Role) -> list[int]:
        """Numbers of the axes with one of these roles."""
        return [i for i, axis in enumerate(self.axes) if axis.role in roles]


def directions_of(
    remover: Remover, names: tuple[Sequence[str], str], heads: tuple[Head, Head], rows: Array
) -> Directions:
    """The spurious and the main-task directions, then those of the heads before and after.

    `names` are those of the spurious directions, and of the task. A head in the direction of an earlier
    axis is left out, since the two would not span a plane. If that leaves a single axis, the second one is the
    direction of the largest remaining variance in `rows`.
    """
    spurious, main = names
    found = [
        (Axis(name, "spurious"), np.asarray(direction))
        for name, direction in zip(spurious[:MAX_AXES], score_directions(remover).T, strict=False)
    ]
    found += [
        (Axis(f"{main} {i + 1}", "main"), np.asarray(direction))
        for i, direction in enumerate(remover.main_.basis.T[:MAX_AXES])
    ]
    for name, head in zip(("before", "after"), heads, strict=True):
        direction = head_direction(head)
        if direction is not None and not any(
            abs(direction @ other) > SAME_DIRECTION_COSINE * np.linalg.norm(other) for _, other in found
        ):
            found.append((Axis(f"head, {name}", "head"), direction))
    if len(found) < 2 and rows.shape[1] > 1:
        found.append((Axis("largest variance", "head"), _largest_variance(rows, [one for _, one in found])))
    return Directions(tuple(axis for axis, _ in found), np.column_stack([direction for _, direction in found]))


def score_directions(remover: Remover) -> FloatArray:
    """Directions (d, k) along which all rows have the same score after a removal.

    Those of an orthogonal removal span `spurious_`. An oblique one, x ↦ x − (x − c) R Lᵀ, takes out scores along R and
    subtracts multiples of L, which `spurious_` of LEACE and SPLINCE spans.
    """
    removal, spurious = remover.removal_, remover.spurious_
    if removal.form == "keep" or not removal.right.shape[1]:
        return spurious.basis
    outside = removal.right - spurious.basis @ (spurious.basis.T @ removal.right)
    if np.linalg.norm(outside) <= 1e-8 * np.linalg.norm(removal.right):
        return spurious.basis
    return Subspace.spanned_by(removal.right).basis


def head_direction(head: Head) -> FloatArray | None:
    """Unit direction (d,) along which the logits of a head change most; None if they are constant.

    With two classes, it is that of the weights; with more, the first right singular vector of the weights, turned so
    that later classes lie higher.
    """
    weights = head.coef_
    if len(weights) == 1:
        direction = weights[0]
    else:
        centred = weights - weights.mean(axis=0)
        direction = np.linalg.svd(centred, full_matrices=False)[2][0]
        order = np.arange(len(weights)) - (len(weights) - 1) / 2
        direction = direction * (1.0 if order @ (centred @ direction) >= 0 else -1.0)
    length = float(np.linalg.norm(direction))
    return np.asarray(direction / length) if length > 0 else None


def view_of(directions: Directions, remover: Remover, before: Array, after: Array, heads: tuple[Head, Head]) -> View:
    """Scores of rows before and after, from the centre of the removal, and the boundaries of the heads."""
    centre, columns = remover.removal_.centre, directions.columns
    scores = [np.asarray((rows - centre) @ columns) for rows in (before, after)]
    decided = [_boundary(head, centre, columns) for head in heads]
    return View(directions.axes, scores[0], scores[1], columns.T @ columns, decided[0], decided[1])


def _boundary(head: Head, centre: FloatArray, columns: FloatArray) -> Boundary | None:
    weights, bias = head.coef_, head.intercept_
    if len(weights) > 1:
        return None
    return Boundary(float(weights[0] @ centre + bias[0]), np.asarray(columns.T @ weights[0]))


def extremes_of(directions: Directions, scores: FloatArray) -> tuple[Extremes, ...]:
    """Rows farthest out along every spurious and main-task axis, of `scores` (n, m)."""
    found = []
    for axis in directions.of("spurious", "main"):
        # Stable, so that ties are always broken in the same way.
        order = np.argsort(scores[:, axis], kind="stable")
        backwards = np.argsort(-scores[:, axis], kind="stable")
        number = min(EXTREME_ROWS, len(order) // 2)
        found.append(Extremes(axis, order[:number], backwards[:number]))
    return tuple(found)


def angles_and_shared_variance(
    spurious: FloatArray, main: FloatArray, rows: Array
) -> tuple[tuple[float, ...], float | None]:
    """Principal angles in degrees, and the share of variance that scores of `rows` along the two have in common.

    `spurious` (`score_directions`) and `main` are orthonormal columns, so that angles are those between the drawn axes.
    """
    k = spurious.shape[1]
    if not k or not main.shape[1]:
        return (), None
    angles = tuple(float(angle) for angle in principal_angles(Subspace(spurious), Subspace(main)))
    both = np.column_stack([spurious, main])
    scores = (rows - rows.mean(axis=0, dtype=np.float64)) @ both
    covariance = scores.T @ scores / len(scores)
    # The same number from the covariance of the scores as from that of the rows, which has d² entries.
    unit = np.eye(both.shape[1])
    if not all(np.trace(block) > 0 for block in (covariance[:k, :k], covariance[k:, k:])):
        return angles, None
    return angles, shared_variance(Subspace(unit[:, :k]), Subspace(unit[:, k:]), covariance)


def _largest_variance(rows: Array, besides: list[FloatArray]) -> FloatArray:
    """First principal direction (d,) of rows orthogonal to given directions, its largest entry positive."""
    centred = np.asarray(rows - rows.mean(axis=0, dtype=np.float64))
    for direction in besides:
        centred = centred - np.outer(centred @ direction, direction)
    direction = np.linalg.svd(centred, full_matrices=False)[2][0]
    return np.asarray(direction * np.sign(direction[np.argmax(np.abs(direction))]))
