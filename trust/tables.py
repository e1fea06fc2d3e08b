"""Tables that are hard on arithmetic: what hypothesis draws are a few numbers and names, from which a table is made.

A recipe prints on a line or two, shrinks to the hardships that matter, and makes the same table anywhere::

    Recipe(seed=3, n=40, d=5, hardships=("offset", "duplicate"), ...).table()
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

#: What is done to the columns, by name; several may be done to one table, in this order.
HARDSHIPS = (
    "low rank",
    "heavy tails",
    "concept separable",
    "task separable",
    "duplicate rows",
    "mixed scales",
    "one large",
    "one small",
    "offset",
    "constant",
    "large constant",
    "duplicate",
    "near duplicate",
)
#: How rows are held. The first shrinks best.
HELD = (
    "float64",
    "float32",
    "float16",
    "integers",
    "booleans",
    "fortran",
    "every second",
    "reversed",
    "read-only",
    "frame",
    "tensor",
    "tensor float32",
    "tensor bfloat16",
    "list",
)
#: How labels are held.
LABELS = ("integers", "strings", "booleans", "floats", "objects", "codes -1 and 1")
WEIGHTS = ("none", "uneven", "zeros", "a few", "huge ratio", "tiny", "huge", "one class")
#: Digits that rows of each kind keep, as the distance of one from the next number.
EPS = {"float16": 2.0**-10, "tensor bfloat16": 2.0**-7, "float32": 2.0**-23, "tensor float32": 2.0**-23}


@dataclass(frozen=True)
class Table:
    """Rows, labels and weights as they are passed to `fit`."""

    Z: Any
    y: Any
    concept: Any
    weight: Any

    @property
    def given(self) -> dict[str, Any]:
        """Keywords of `fit`."""
        return {"concept": self.concept} | ({} if self.weight is None else {"sample_weight": self.weight})


@dataclass(frozen=True)
class Recipe:
    """All that a table is made from."""

    seed: int
    n: int
    d: int
    hardships: tuple[str, ...] = ()
    scale: int = 0
    correlation: float = 0.5
    rare: float = 0.5
    gaps: float = 0.0
    held: str = "float64"
    labels: str = "integers"
    weights: str = "none"

    @property
    def eps(self) -> float:
        """Relative rounding of the rows."""
        return EPS.get(self.held, 2.0**-52)

    def table(self, factor: float = 1.0) -> Table:
        """The table; with a factor, the same with all rows that much larger."""
        rng = np.random.default_rng(self.seed)
        concept = (rng.random(self.n) < self.rare).astype(int)
        same = rng.random(self.n) < (1.0 + self.correlation) / 2.0
        y = np.where(same, concept, 1 - concept)
        Z = self._rows(rng, y, concept)
        weight = _weights(self.weights, rng, y)
        gap = rng.random(self.n) < self.gaps
        values: Any = _labels(self.labels, concept)
        if gap.any():
            values = values.astype(object)
            values[gap] = None
        return Table(hold(Z, self.held, factor), _labels(self.labels, y), values, weight)

    def _rows(self, rng: np.random.Generator, y: Any, concept: Any) -> Any:
        Z = rng.normal(size=(self.n, self.d))
        Z[:, 0] += 1.5 * concept
        Z[:, -1] += 1.5 * y
        for name in HARDSHIPS:
            if name in self.hardships:
                Z = _DONE[name](_Making(Z, y, concept, rng))
        return Z * 10.0 ** _within(self.scale, self.held)


def _within(scale: int, held: str) -> int:
    """Scale that the type of the rows can hold with digits left: a table of infinities is not what is tried."""
    if held in ("integers", "booleans"):
        return 0
    most = {"float16": (-3, 1), "tensor bfloat16": (-12, 12)}.get(held, (-12, 12))
    return int(np.clip(scale, *most))


@dataclass(frozen=True)
class _Making:
    """Rows on their way, with what a hardship may look at."""

    Z: Any
    y: Any
    concept: Any
    rng: np.random.Generator

    def with_column(self, share: float, values: Any) -> Any:
        """The rows with another column, at this share of the way from first to last."""
        Z = self.Z.copy()
        Z[:, int(share * (Z.shape[1] - 1))] = values
        return Z

    def scaled(self, share: float, factor: float) -> Any:
        return self.with_column(share, factor * self.Z[:, int(share * (self.Z.shape[1] - 1))])

    def of_low_rank(self) -> Any:
        rank = max(1, min(self.Z.shape) // 2)
        return self.Z @ self.rng.normal(size=(self.Z.shape[1], rank)) @ self.rng.normal(size=(rank, self.Z.shape[1]))


_DONE: dict[str, Callable[[_Making], Any]] = {
    "low rank": _Making.of_low_rank,
    "heavy tails": lambda on: on.Z * np.abs(on.rng.standard_t(1.5, size=(len(on.Z), 1))),
    "concept separable": lambda on: on.with_column(0.0, on.Z[:, 0] + 20.0 * on.concept),
    "task separable": lambda on: on.with_column(1.0, on.Z[:, -1] + 20.0 * on.y),
    "duplicate rows": lambda on: on.Z[on.rng.integers(max(1, len(on.Z) // 3), size=len(on.Z))],
    "mixed scales": lambda on: on.Z * 10.0 ** on.rng.uniform(-6.0, 6.0, size=on.Z.shape[1]),
    "one large": lambda on: on.scaled(0.5, 1e8),
    "one small": lambda on: on.scaled(0.5, 1e-8),
    "offset": lambda on: on.Z + 1e6 * on.rng.normal(size=on.Z.shape[1]) * np.abs(on.Z).max(),
    "constant": lambda on: on.with_column(0.3, 0.0),
    "large constant": lambda on: on.with_column(0.3, 1e6 / 3.0),
    "duplicate": lambda on: on.with_column(0.7, on.Z[:, 0]),
    "near duplicate": lambda on: on.with_column(0.7, on.Z[:, 0] * (1.0 + 1e-9 * on.rng.normal(size=len(on.Z)))),
}


def hold(Z: Any, held: str, factor: float = 1.0) -> Any:
    """The rows as an array, a view of one, a frame or a tensor, times `factor`."""
    with np.errstate(over="ignore"):
        if held == "booleans":
            return factor * (np.median(Z, axis=0) < Z) if factor != 1.0 else np.median(Z, axis=0) < Z
        if held == "integers":
            whole = np.clip(np.round(10.0 * Z), -(2**40), 2**40).astype(np.int64)
            return whole if factor == 1.0 else factor * whole
        if held in ("float32", "float16"):
            kind = np.dtype(held)
            most = float(np.finfo(kind).max) / 16.0
            return np.clip(Z, -most, most).astype(kind) * kind.type(factor)
        Z = Z * factor if not held.startswith("tensor ") else Z
    if held == "fortran":
        return np.asfortranarray(Z)
    if held == "every second":
        wide = np.zeros((2 * len(Z), 2 * Z.shape[1]))
        wide[::2, ::2] = Z
        return wide[::2, ::2]
    if held == "reversed":
        return Z[::-1, ::-1].copy()[::-1, ::-1]
    if held == "read-only":
        Z.setflags(write=False)
        return Z
    if held == "frame":
        import pandas as pd

        return pd.DataFrame(Z, columns=[f"z{j}" for j in range(Z.shape[1])])
    if held.startswith("tensor"):
        import torch

        tensor = torch.from_numpy(np.ascontiguousarray(Z))
        return tensor if held == "tensor" else tensor.to(getattr(torch, held.removeprefix("tensor "))) * factor
    return Z.tolist() if held == "list" else Z


def _labels(kind: str, codes: Any) -> Any:
    if kind == "strings":
        return np.array(["left", "right"])[codes]
    if kind == "booleans":
        return codes.astype(bool)
    if kind == "floats":
        return codes.astype(float)
    if kind == "objects":
        return np.array(["a", "b"], dtype=object)[codes]
    return 2 * codes - 1 if kind == "codes -1 and 1" else codes


def _weights(kind: str, rng: np.random.Generator, y: Any) -> Any:
    n = len(y)
    drawn = rng.uniform(0.5, 2.0, size=n)
    if kind == "none":
        return None
    if kind == "zeros":
        return drawn * (rng.random(n) < 0.7)
    if kind == "a few":
        return drawn * (rng.permutation(n) < 5)
    if kind == "huge ratio":
        return 10.0 ** rng.uniform(-11.0, 0.0, size=n)
    if kind == "one class":
        return drawn * y
    return drawn * {"uneven": 1.0, "tiny": 1e-12, "huge": 1e12}[kind]


def recipes(*, tested: bool = False, **fixed: Any) -> st.SearchStrategy[Recipe]:
    """Tables of 1 to 320 rows and 1 to 40 columns, mostly with some hardships; anything can be fixed.

    With `tested`, mostly tables on which tests by group are possible: more rows, and no group that is rare.
    """
    few, some = st.integers(1, 40), st.integers(160, 320) if tested else st.integers(40, 200)
    parts: dict[str, st.SearchStrategy[Any]] = {
        "seed": st.integers(0, 10_000),
        "n": _mostly(some, few, 8 if tested else 4),
        "d": st.one_of(st.integers(2, 12), st.integers(2, 40), st.integers(2, 12), st.integers(1, 40)),
        "hardships": st.lists(st.sampled_from(HARDSHIPS), max_size=3, unique=True).map(tuple),
        "scale": st.one_of(st.just(0), st.integers(-12, 12)),
        "correlation": st.sampled_from((0.5, 0.0, 0.3, -0.5) if tested else (0.5, 0.0, 0.8, 0.95, -0.6)),
        "rare": _mostly(st.sampled_from((0.5, 0.4)), st.just(0.03), 8 if tested else 4),
        "gaps": _mostly(st.just(0.0), st.just(0.2), 2),
        "held": st.sampled_from(HELD),
        "labels": st.sampled_from(LABELS),
        "weights": _mostly(st.just("none"), st.sampled_from(WEIGHTS), 1),
    }
    return st.builds(Recipe, **{**parts, **{name: st.just(value) for name, value in fixed.items()}})


def _mostly(this: st.SearchStrategy[Any], that: st.SearchStrategy[Any], times: int) -> st.SearchStrategy[Any]:
    """The first, so many times as often as the second."""
    return st.integers(0, times).flatmap(lambda drawn: that if drawn == times else this)
