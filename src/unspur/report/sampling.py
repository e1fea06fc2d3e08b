"""Some rows of many, by group: what is drawn, and what is measured where all would take too long."""

from __future__ import annotations

import numpy as np

from unspur._typing import Array, IntArray


def stratified(group: Array, most: int, rng: np.random.Generator) -> IntArray:
    """At most `most` rows, sorted: of each group its share, but a tenth of an equal share (or all of it) at least.

    Without that floor a group of three rows in a thousand, often the one that matters, would hardly be seen.
    """
    if len(group) <= most:
        return np.arange(len(group))
    members = [np.flatnonzero(group == g) for g in np.unique(group)]
    if most < len(members):  # one row each of some groups
        some = rng.permutation(len(members))[:most]
        return np.sort(np.array([rng.choice(members[k]) for k in some], dtype=np.intp))
    sizes = np.array([len(part) for part in members])
    floor = np.minimum(sizes, max(1, most // (10 * len(sizes))))
    rest = sizes - floor
    wanted = floor + np.floor(rest * (most - int(floor.sum())) / rest.sum()).astype(int)
    kept = [rng.permutation(part)[:count] for part, count in zip(members, wanted, strict=True)]
    return np.sort(np.concatenate(kept))


def some_of_each(group: Array, groups: int, each: int, rng: np.random.Generator) -> IntArray:
    """`each` rows of every group (fewer where there are fewer), group by group; rows of no group are left out."""
    found = [rng.permutation(np.flatnonzero(group == g))[:each] for g in range(groups)]
    return np.concatenate(found) if found else np.empty(0, dtype=np.intp)
