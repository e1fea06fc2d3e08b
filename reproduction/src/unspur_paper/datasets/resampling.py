"""Any strength is a selection: which rows make splits in which the concept goes with the main label this often.

::

    strength  p = P(concept = y | main = y),  the same for y = 0 and y = 1        (the convention of Waterbirds)

Where the main label is balanced, this is also ``P(main = y | concept = y)``, up to the rounding to whole rows.
Every call draws afresh: two strengths from the same generator give independent draws, not one inside the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from unspur._typing import IntArray
from unspur.exceptions import GroupSizeError, InputError, LabelError

#: A split of four can hold every group (main, concept) once.
SMALLEST = 4


def agreeing(y: ArrayLike, p: float, rng: np.random.Generator) -> IntArray:
    """Concept of each example, shape (n,), for data in which every example exists with either concept.

    Within each class of `y`, exactly ``round(p · n_y)`` examples drawn at random get concept = y, the others 1 − y.
    """
    main = binary(y, "y")
    if np.any(main < 0):
        raise LabelError(f"{np.sum(main < 0)} of {len(main)} values of y are missing; leave those examples out.")
    _check_strength(p)
    concept = 1 - main
    for value in (0, 1):
        members = np.flatnonzero(main == value)
        concept[rng.permutation(members)[: round(p * len(members))]] = value
    return concept


def draw_splits(
    y: ArrayLike,
    concept: ArrayLike,
    sizes: Mapping[str, int],
    strengths: Mapping[str, float],
    rng: np.random.Generator,
    *,
    names: tuple[str, str] = ("main", "concept"),
) -> dict[str, IntArray]:
    """Rows of each split: drawn without replacement, no row in two splits, in random order.

    A split of n rows has ``n // 2`` of class 1 and the rest of class 0, and within each class exactly
    ``round(p · n_y)`` rows whose concept is the same.

    Parameters
    ----------
    y, concept : labels 0 and 1, shape (n,). Rows where either is missing (negative) are never drawn.
    sizes, strengths : rows and p of each split, under the same names.
    names : what messages call the two labels.
    """
    main, second = _pair(y, concept)
    check_plan(sizes, strengths)
    have, wanted = _have(main, second), {name: group_counts(size, strengths[name]) for name, size in sizes.items()}
    if not _fits(have, sizes, strengths):
        raise GroupSizeError(_too_few(have, wanted, sizes, strengths, names))
    parts: dict[str, list[IntArray]] = {name: [] for name in sizes}
    for group in np.ndindex(2, 2):
        rows = rng.permutation(np.flatnonzero((main == group[0]) & (second == group[1])))
        start = 0
        for name, counts in wanted.items():
            parts[name].append(rows[start : start + counts[group]])
            start += int(counts[group])
    return {name: rng.permutation(np.concatenate(rows)) for name, rows in parts.items()}


def largest_sizes(
    y: ArrayLike, concept: ArrayLike, sizes: Mapping[str, int], strengths: Mapping[str, float]
) -> dict[str, int]:
    """The sizes scaled down by one factor, as little as necessary for `draw_splits` to succeed; see `shrink`."""
    main, second = _pair(y, concept)
    check_plan(sizes, strengths)
    have = _have(main, second)
    found = shrink(sizes, lambda smaller: _fits(have, smaller, strengths))
    if found is None:
        wanted = {name: group_counts(size, strengths[name]) for name, size in sizes.items()}
        raise GroupSizeError(_too_few(have, wanted, sizes, strengths, ("main", "concept")))
    return found


def group_counts(n: int, p: float) -> IntArray:
    """Rows of each group (main, concept) in a split of n at strength p, shape (2, 2)."""
    of_class = (n - n // 2, n // 2)
    agree = [round(p * size) for size in of_class]
    return np.array([[agree[0], of_class[0] - agree[0]], [of_class[1] - agree[1], agree[1]]])


def shrink(sizes: Mapping[str, int], fits: Callable[[dict[str, int]], bool]) -> dict[str, int] | None:
    """The largest ``floor(t · size / largest size)``, t whole, that fits, each split 4 at least; None if none does.

    `fits` must be monotone: what fits still fits when every size is smaller.
    """
    largest = max(sizes.values())

    def scaled(t: int) -> dict[str, int]:
        return {name: int(size) * t // largest for name, size in sizes.items()}

    low, high = -(-SMALLEST * largest // min(sizes.values())), int(largest)
    if not fits(scaled(low)):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(scaled(middle)) else (low, middle - 1)
    return scaled(low)


def advice(sizes: Mapping[str, int], smaller: Mapping[str, int] | None) -> str:
    """What to do where the sizes do not fit; `smaller` are those that do."""
    if smaller is None:
        return f"No sizes in these proportions, {SMALLEST} or more each, would fit: more data are needed."
    largest = max(sizes, key=lambda name: sizes[name])
    return f"Sizes of {_slashes(smaller.values())} would fit (a factor of {smaller[largest] / sizes[largest]:.3g})."


def check_plan(sizes: Mapping[str, int], strengths: Mapping[str, float]) -> None:
    """Sizes are whole numbers from 4, strengths probabilities, and both are for the same splits."""
    if not sizes or set(sizes) != set(strengths):
        got = f"sizes for {', '.join(sizes) or 'none'} and strengths for {', '.join(strengths) or 'none'}"
        raise InputError(f"Each split needs a size and a strength; got {got}.")
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < SMALLEST:
            raise InputError(f"The size of a split is a whole number from {SMALLEST}; got {size!r} for {name}.")
    for p in strengths.values():
        _check_strength(p)


def binary(values: ArrayLike, name: str) -> IntArray:
    """A label column as whole numbers, shape (n,): 0, 1, or negative for missing."""
    column = np.asarray(values)
    if column.ndim != 1 or column.dtype.kind not in "biu":
        raise LabelError(f"{name} must be one column of whole numbers; got shape {column.shape} of {column.dtype}.")
    column = column.astype(np.int64)
    if np.any(column > 1):
        raise LabelError(f"{name} must be 0, 1 or negative for missing; got {column.max()}.")
    return column


def _pair(y: ArrayLike, concept: ArrayLike) -> tuple[IntArray, IntArray]:
    main, second = binary(y, "y"), binary(concept, "concept")
    if len(main) != len(second):
        raise LabelError(f"y has {len(main)} values and concept {len(second)}; each row needs both.")
    return main, second


def _check_strength(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise InputError(f"A strength is a probability between 0 and 1; got {p}.")


def _have(main: IntArray, concept: IntArray) -> IntArray:
    """Rows there in each group, shape (2, 2)."""
    return np.array([[np.sum((main == a) & (concept == b)) for b in (0, 1)] for a in (0, 1)])


def _fits(have: IntArray, sizes: Mapping[str, int], strengths: Mapping[str, float]) -> bool:
    return bool(np.all(sum(group_counts(size, strengths[name]) for name, size in sizes.items()) <= have))


def _too_few(
    have: IntArray,
    wanted: Mapping[str, IntArray],
    sizes: Mapping[str, int],
    strengths: Mapping[str, float],
    names: tuple[str, str],
) -> str:
    lines = [f"Too few rows for splits of {_slashes(sizes.values())} ({_slashes(sizes)})."]
    for group in np.ndindex(2, 2):
        each = [int(counts[group]) for counts in wanted.values()]
        if sum(each) > have[group]:
            who = f"({names[0]}={group[0]}, {names[1]}={group[1]})"
            lines.append(f"Group {who} has {have[group]}; {sum(each)} are wanted ({_slashes(each)}).")
    lines.append(advice(sizes, shrink(sizes, lambda smaller: _fits(have, smaller, strengths))))
    return " ".join(lines)


def _slashes(values: Any) -> str:
    return " / ".join(str(value) for value in values)
