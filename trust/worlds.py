"""Simulated sets whose truth is known: what is in the rows, what is not, and which group is rare.

Rows are ``z = x + ε`` with noise ε of unit variance, Gaussian or heavy-tailed (Student's t with three degrees of
freedom, scaled), and a signal x on the first axes::

    empty         nothing: both labels are independent of the rows
    task          z₀ = β (2y − 1): the concept says nothing beyond what it shares with y
    equal         z₀ = β (2y − 1) + β (2s − 1): one direction that is as good for either label
    both          z₀ = β (2y − 1), z₁ = κ (2s − 1): each label has a direction of its own
    oblique       z₀ = β (2y − 1), and κ (2s − 1) at thirty degrees to that axis
    shared        z₀ = β (2y − 1) + κ (2s − 1): one direction for both, more of it the concept's

Group sizes are fixed numbers, not draws, so that every set of a cell has the same smallest group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Signal = Literal["empty", "task", "equal", "both", "oblique", "shared"]
Groups = Literal["balanced", "rare", "correlated", "slightly correlated", "nearly the same"]
#: Shares of the groups (y, s) = 00, 01, 10, 11.
SHARES: dict[Groups, tuple[float, float, float, float]] = {
    "balanced": (0.25, 0.25, 0.25, 0.25),
    "rare": (0.475, 0.025, 0.475, 0.025),  # the concept is rare, and independent of y
    "correlated": (0.475, 0.025, 0.025, 0.475),
    "slightly correlated": (0.375, 0.125, 0.125, 0.375),
    "nearly the same": (0.49, 0.01, 0.01, 0.49),
}


@dataclass(frozen=True, slots=True)
class Drawn:
    """One simulated set."""

    Z: np.ndarray
    y: np.ndarray
    concept: np.ndarray


@dataclass(frozen=True, slots=True)
class World:
    """A distribution to draw sets from."""

    signal: Signal
    groups: Groups
    n: int
    heavy: bool = False
    d: int = 10
    task: float = 1.0
    concept: float = 1.0
    #: How many times as large as the smallest the largest axis of the rows is made, by a map that is always the same.
    stretched: float = 1.0

    @property
    def counts(self) -> np.ndarray:
        """Rows of each group, shape (4,)."""
        return np.round(np.array(SHARES[self.groups]) * self.n).astype(int)

    def draw(self, rng: np.random.Generator, counts: np.ndarray | None = None) -> Drawn:
        """One set, rows in random order; `counts` are other numbers of rows than the world's."""
        group = rng.permutation(np.repeat(np.arange(4), self.counts if counts is None else counts))
        y, s = group >> 1, group & 1
        noise = (
            rng.standard_t(3, (len(group), self.d)) / np.sqrt(3)
            if self.heavy
            else rng.normal(size=(len(group), self.d))
        )
        Z = noise
        task, concept = self.task * (2 * y - 1), self.concept * (2 * s - 1)
        if self.signal != "empty":
            Z[:, 0] += task
        if self.signal == "equal":
            Z[:, 0] += self.task * (2 * s - 1)
        if self.signal == "both":
            Z[:, 1] += concept
        if self.signal == "oblique":
            Z[:, 0] += np.cos(np.pi / 6) * concept
            Z[:, 1] += np.sin(np.pi / 6) * concept
        if self.signal == "shared":
            Z[:, 0] += concept
        if self.stretched != 1.0:
            turn = np.linalg.qr(np.random.default_rng(0).normal(size=(self.d, self.d)))[0]
            Z = Z @ (turn * np.geomspace(1.0, self.stretched, self.d))
        return Drawn(Z, y, s)
