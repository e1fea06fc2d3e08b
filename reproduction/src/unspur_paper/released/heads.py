"""Last layers as in the authors' program, on rows (n, d); each returns weights (d,) and a bias."""

from __future__ import annotations

import numpy as np

from unspur._typing import FloatArray, IntArray
from unspur.exceptions import InputError
from unspur_paper.released.schedule import (
    Objective,
    Schedule,
    first_parameters,
    logistic_objective,
    loss_and_probability,
    train_logistic,
)
from unspur_paper.rows import Rows

Model = tuple[FloatArray, float]


def erm(part: Rows, schedule: Schedule, rng: np.random.Generator) -> Model:
    """Plain logistic regression."""
    return train_logistic(part.Z, part.y, schedule, rng)


def group_weighted(part: Rows, schedule: Schedule, rng: np.random.Generator) -> Model:
    """Rows drawn with replacement so that groups have equal shares."""
    objective = logistic_objective(part.Z, part.y)
    theta = schedule.train(objective, first_parameters(part.Z.shape[1] + 1), len(part), rng, _equal_shares(part))
    return theta[:-1], float(theta[-1])


def subsampled(part: Rows, schedule: Schedule, rng: np.random.Generator) -> Model:
    """As many rows of each group as the smallest has, drawn with replacement.

    The program does this with its option for reduced sets only; the published values show that it was on.
    """
    group = _group(part)
    size = np.bincount(group, minlength=4).min()
    if size == 0:
        raise InputError(
            "A group (main, concept) has no row, so there is nothing to cut the others to; draw more rows."
        )
    rows = np.concatenate([rng.choice(np.flatnonzero(group == g), size) for g in range(4)])
    return train_logistic(part.Z[rows], part.y[rows], schedule, rng)


def just_train_twice(
    part: Rows, schedule: Schedule, identification: Schedule, upweight: float, rng: np.random.Generator
) -> Model:
    """Rows that a first model gets wrong count `upweight` times in the loss of the second."""
    weights, bias = train_logistic(part.Z, part.y, identification, rng)
    wrong = (part.Z @ weights + bias > 0) != part.y
    objective = logistic_objective(part.Z, part.y, np.where(wrong, upweight, 1.0))
    theta = schedule.train(objective, first_parameters(part.Z.shape[1] + 1), len(part), rng)
    return theta[:-1], float(theta[-1])


def group_dro(
    part: Rows,
    schedule: Schedule,
    start: Schedule,
    adjustment: float,
    step_size: float,
    rng: np.random.Generator,
    *,
    indexing_fault: bool,
) -> Model:
    """Group DRO from the ERM solution, on group-balanced batches; with the program's indexing fault, or done right."""
    weights, bias = train_logistic(part.Z, part.y, start, rng)
    make = faulty_group_objective if indexing_fault else group_objective
    objective = make(part, adjustment, step_size)
    theta = schedule.train(objective, np.append(weights, bias), len(part), rng, _equal_shares(part))
    return theta[:-1], float(theta[-1])


def group_objective(part: Rows, adjustment: float, step_size: float) -> Objective:
    """``Σ_g q_g (L_g + C/√n_g)``: L_g is the loss of group g in the batch; q_g is multiplied by exp(η ·) each time."""
    group = _group(part)
    size = np.bincount(group, minlength=4)
    adjustments = np.where(size > 0, adjustment / np.sqrt(np.maximum(size, 1)), 0.0)
    q = (size > 0) / np.sum(size > 0)

    def objective(theta: FloatArray, rows: IntArray) -> tuple[float, FloatArray]:
        batch, target = part.Z[rows], part.y[rows]
        losses, residual = loss_and_probability(batch @ theta[:-1] + theta[-1], target)
        nonlocal q
        count = np.maximum(np.bincount(group[rows], minlength=4), 1)
        mean = np.bincount(group[rows], weights=losses, minlength=4) / count
        raised = step_size * (mean + adjustments)
        q = q * np.exp(raised - raised.max())  # only ratios count
        q = q / q.sum()
        weight = (q / count)[group[rows]]
        pull = weight * (residual - target)
        return float(weight @ losses), np.append(pull @ batch, pull.sum())

    return objective


def faulty_group_objective(part: Rows, adjustment: float, step_size: float) -> Objective:
    """What the program minimises for group DRO: two rows of every batch carry the whole gradient.

    A 0/1 membership vector is used as row numbers, so the "loss of group g" is the mean over the batch of the loss of
    row 1 for members of g and of row 0 for all others. Weights ``q_g ∝ exp(η L_g)`` start afresh in every batch.
    """
    group = _group(part)

    def objective(theta: FloatArray, rows: IntArray) -> tuple[float, FloatArray]:
        first_two = rows[[0, min(1, len(rows) - 1)]]
        two, target = part.Z[first_two], part.y[first_two]
        losses, residual = loss_and_probability(two @ theta[:-1] + theta[-1], target)
        count = np.bincount(group[rows], minlength=4)
        count = count[count > 0]
        share = np.stack([1.0 - count / len(rows), count / len(rows)], axis=1)  # of row 0 and row 1 in each group
        group_loss = share @ losses
        q = np.exp(step_size * group_loss)
        q /= q.sum()
        adjusted = group_loss + adjustment / np.sqrt(count)
        # q moves with the losses: d(Σ q A)/dL_g = q_g (1 + η (A_g − Σ q A)), with A the adjusted losses
        pull = (q * (1.0 + step_size * (adjusted - q @ adjusted))) @ share * (residual - target)
        return float(q @ adjusted), np.append(pull @ two, pull.sum())

    return objective


def _equal_shares(part: Rows) -> FloatArray:
    """Probabilities of rows under which all groups are drawn alike."""
    group = _group(part)
    shares = (1.0 / np.bincount(group, minlength=4))[group]
    return np.asarray(shares / shares.sum())


def _group(part: Rows) -> IntArray:
    return np.asarray(2 * part.y + part.concept)
