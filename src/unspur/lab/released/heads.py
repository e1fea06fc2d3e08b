"""Last layers as in the authors' program, on rows (n, d); each returns weights (d,) and a bias."""

from __future__ import annotations

import numpy as np

from unspur._typing import FloatArray, IntArray
from unspur.lab.released.schedule import Schedule, first_parameters, logistic_objective, train_logistic
from unspur.lab.released.toy import Part
from unspur.sums.logistic import loss_and_probability

Model = tuple[FloatArray, float]


def erm(part: Part, schedule: Schedule, rng: np.random.Generator) -> Model:
    """Plain logistic regression."""
    return train_logistic(part.z, part.main, schedule, rng)


def group_weighted(part: Part, schedule: Schedule, rng: np.random.Generator) -> Model:
    """Rows drawn with replacement so that groups have equal shares."""
    group = 2 * part.main + part.concept
    shares = (1.0 / np.bincount(group, minlength=4))[group]
    theta = schedule.train(
        logistic_objective(part.z, part.main), first_parameters(part.z.shape[1] + 1), len(part.z), rng,
        shares / shares.sum(),
    )  # fmt: skip
    return theta[:-1], float(theta[-1])


def subsampled(part: Part, schedule: Schedule, rng: np.random.Generator) -> Model:
    """As many rows of each group as the smallest has, drawn with replacement."""
    group = 2 * part.main + part.concept
    size = np.bincount(group, minlength=4).min()
    rows = np.concatenate([rng.choice(np.flatnonzero(group == g), size) for g in range(4)])
    return train_logistic(part.z[rows], part.main[rows], schedule, rng)


def just_train_twice(
    part: Part, schedule: Schedule, identification: Schedule, upweight: float, rng: np.random.Generator
) -> Model:
    """Rows that a first model gets wrong count `upweight` times in the loss of the second."""
    weights, bias = train_logistic(part.z, part.main, identification, rng)
    wrong = (part.z @ weights + bias > 0) != part.main
    theta = schedule.train(
        logistic_objective(part.z, part.main, np.where(wrong, upweight, 1.0)),
        first_parameters(part.z.shape[1] + 1), len(part.z), rng,
    )  # fmt: skip
    return theta[:-1], float(theta[-1])


def group_dro(
    part: Part, schedule: Schedule, start: Schedule, adjustment: float, step_size: float, rng: np.random.Generator
) -> Model:
    """Group DRO with the program's indexing fault: two rows of every batch carry the whole gradient.

    A 0/1 membership vector is used as row numbers, so the "loss of group g" is the mean over the batch of the loss of row 1 for
    members of g, and of row 0 for all others. Weights ``q_g ∝ exp(η L_g)`` start afresh in every batch, and the adjustment
    C/√n_g, a constant, has no gradient. Trained from the ERM solution on group-balanced batches.
    """
    weights, bias = train_logistic(part.z, part.main, start, rng)
    group = 2 * part.main + part.concept
    shares = (1.0 / np.bincount(group, minlength=4))[group]

    def objective(theta: FloatArray, rows: IntArray) -> tuple[float, FloatArray]:
        first_two, target = part.z[rows[:2]], part.main[rows[:2]]
        losses, residual = loss_and_probability(first_two @ theta[:-1] + theta[-1], target)
        residual -= target
        present, count = np.unique(group[rows], return_counts=True)
        member = count / len(rows)
        group_loss = (1.0 - member) * losses[0] + member * losses[1]
        q = np.exp(step_size * group_loss)
        q /= q.sum()
        total = group_loss + adjustment / np.sqrt(count)
        # q depends on the losses as well: d(Σ q L)/dL_g = q_g (1 + η (L_g − Σ q L)), with L the adjusted loss
        slope = q * (1.0 + step_size * (total - q @ total))
        per_row = np.array([slope @ (1.0 - member), slope @ member])
        assert len(present) == len(count)
        pull = per_row * residual
        return float(q @ total), np.append(pull @ first_two, pull.sum())

    theta = schedule.train(objective, np.append(weights, bias), len(part.z), rng, shares / shares.sum())
    return theta[:-1], float(theta[-1])
