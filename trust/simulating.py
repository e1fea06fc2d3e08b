"""Many fits to simulated sets, and what may be concluded from how many of them went wrong."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import beta, binom

from trust.worlds import World
from unspur import JSE
from unspur.exceptions import GroupSizeError, NothingRemovedWarning, TaskLostWarning

#: Level of the tests.
LEVEL = 0.05
#: Chance that a cell of a table is called wrong though its rate is the stated one.
DOUBT = 1e-3
#: How directions are judged: on a fifth of the rows, or cross-fitted in five folds.
DESIGNS: dict[str, Any] = {"held out": 0.2, "cross-fitted": 5}


@dataclass(frozen=True, slots=True)
class Fit:
    """What one fit found, or in which words it was refused because a group is too small to test."""

    spurious: int = 0
    main: int = 0
    refused: str = ""


def fit_sets(world: World, sets: int, *, design: str, **options: Any) -> list[Fit]:
    """Fit `sets` draws of a world; set k is the same for every design and whatever else is fitted."""
    return [_fit(world, k, cv=DESIGNS[design], **options) for k in range(sets)]


def fitted(world: World, seed: int, **options: Any) -> tuple[JSE, Any]:
    """A fit to one draw, and the draw; that nothing was found is what many sets are made for."""
    drawn = world.draw(np.random.default_rng([seed, world.n]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NothingRemovedWarning)
        warnings.simplefilter("ignore", TaskLostWarning)
        return JSE(random_state=seed, **options).fit(drawn.Z, drawn.y, concept=drawn.concept), drawn


def _fit(world: World, seed: int, **options: Any) -> Fit:
    try:
        jse, _ = fitted(world, seed, **options)
    except GroupSizeError as error:
        return Fit(refused=str(error))
    return Fit(jse.spurious_.dim, jse.main_.dim)


def smallest_held_out(world: World, design: str) -> int:
    """Held-out rows of the smallest group."""
    share = min(DESIGNS[design], 1.0)  # a share, or folds in which every row is held out once
    return int(np.round(share * world.counts).min())


def upper_bound(count: int, sets: int, confidence: float = 0.95) -> float:
    """Largest rate that `count` of `sets` does not rule out (one-sided, Clopper and Pearson)."""
    return 1.0 if count == sets else float(beta.ppf(confidence, count + 1, sets - count))


def at_most(count: int, sets: int, rate: float = LEVEL) -> bool:
    """Whether so many are compatible with a rate of at most `rate`."""
    return count <= binom.ppf(1.0 - DOUBT, sets, rate)


def compatible(count: int, sets: int, rate: float = LEVEL) -> bool:
    """Whether a count lies inside the binomial interval of a rate."""
    return bool(binom.ppf(DOUBT / 2, sets, rate) <= count <= binom.ppf(1.0 - DOUBT / 2, sets, rate))


def percent(count: int, sets: int) -> str:
    """A rate with its upper bound, in words."""
    return f"{100 * count / sets:.1f} % (up to {100 * upper_bound(count, sets):.1f})"


def cell(world: World, design: str, sets: int, **counts: int) -> dict[str, Any]:
    """One line of a table of the page, as plain numbers and words."""
    return {
        "groups": world.groups,
        "n": world.n,
        "rows": "heavy" if world.heavy else "Gaussian",
        "design": design,
        "sets": sets,
        **counts,
    }


def total(cells: Sequence[dict[str, Any]], what: str) -> int:
    """Sum of a count over cells."""
    return sum(one[what] for one in cells)
