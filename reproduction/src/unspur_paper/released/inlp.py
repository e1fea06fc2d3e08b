"""INLP as in the authors' program: stops at an unweighted test against the training prevalence of the concept."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from unspur._typing import FloatArray
from unspur_paper.released.schedule import Schedule, loss_and_probability, train_logistic
from unspur_paper.released.toy import Splits


def released_inlp(
    splits: Splits, schedule: Schedule, rng: np.random.Generator, *, significance_level: float = 0.05
) -> FloatArray:
    """Orthonormal directions (d, k)."""
    train, validation = splits.train, splits.validation
    share = train.concept.mean()
    chance = np.where(validation.concept == 1, -np.log(share), -np.log1p(-share))
    found = np.zeros((train.Z.shape[1], 0))
    for _ in range(train.Z.shape[1]):
        z, z_val = (rows - (rows @ found) @ found.T for rows in (train.Z, validation.Z))
        weights, bias = train_logistic(z, train.concept, schedule, rng)
        over = loss_and_probability(z_val @ weights + bias, validation.concept)[0] - chance
        if not over.mean() / (over.std(ddof=1) / np.sqrt(len(over))) < -ndtri(1.0 - significance_level):
            break
        rest = weights - found @ (found.T @ weights)
        found = np.column_stack([found, rest / np.linalg.norm(rest)])
    return found
