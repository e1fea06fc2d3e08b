"""Choice of hyper-parameters by the loss on held-out rows, with equal weight for every group.

`tune_head` chooses the penalty of every head in commands, reports and tables. Its loss is invariant to the scale of
the logits, which are multiplied by the best factor (`temperature_scaled_loss`). The paper's rule takes unscaled logits
(`group_loss`). It over-penalises unweighted heads on correlated rows, which makes removals look better than they are:
such a head is confident and wrong in small groups, and a larger penalty only makes it less confident.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeVar

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logsumexp, softmax
from sklearn.base import BaseEstimator, clone

from unspur._arrays import renumbered, to_numpy
from unspur._data import LabelledData, decode_rows, require_same_features
from unspur._text import counted
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.clusters import row_hashes
from unspur.exceptions import (
    FewRowsWarning,
    GroupSizeError,
    InputError,
    LabelError,
    warn,
)
from unspur.heads.base import (
    Head,
    HeadData,
    decode_head_arguments,
    fit_decoded_path,
    fit_folds,
    fit_path,
    held_out_logits,
)
from unspur.labels import ClassLabel
from unspur.removers.joint import PAPER_PENALTIES
from unspur.rows import backend_of
from unspur.solvers.coordinates import RowSpan
from unspur.solvers.descent import quiet

R = TypeVar("R", bound=BaseEstimator)

#: Penalties that every head is tried with. On strongly correlated rows an unweighted head does best with the smallest
#: of the paper's, so smaller ones are tried as well.
HEAD_PENALTIES = (*PAPER_PENALTIES, 1e-5, 1e-6)
#: Ratio of the mean to the median variance of the columns up to which `HEAD_PENALTIES` are enough, and the smallest
#: penalty tried above it.
MAX_VARIANCE_RATIO, MIN_PENALTY = 100.0, 1e-12
#: Share of each group of the training rows that a penalty is chosen on without validation rows.
HELD_OUT_SHARE = 0.2
#: Decimals of losses that are compared, so that heads that differ only in scale count as equal.
LOSS_DECIMALS = 9
#: Tolerance for searches of large grids and for cross-validation. Held-out losses have converged to 2e-4 there, also
#: those of small penalties on separable rows, where the solver needs smaller gradients (`MAX_GRADIENT_TO_LOSS`).
ROUGH_TOL = 1e-5
#: Limit on doublings of the factor on the logits.
MAX_DOUBLINGS = 60
#: Share of a loss that is negligible.
NEGLIGIBLE_LOSS_SHARE = 0.01
#: Columns processed together, to bound temporary copies.
BLOCK_COLUMNS = 64
#: Note on a choice without groups.
CHOSEN_BY_CLASS = (
    "No concept is known, so parameters were chosen by the held-out loss of the classes of y, which tells nothing of "
    "the groups within a class. Label some validation rows to choose by groups."
)
#: Note on validation rows that have no groups where training rows have some.
VALIDATION_IGNORED = (
    "No validation row has a known concept, so parameters were not chosen on validation rows but on training rows that "
    "were held out, by groups. Label some validation rows to choose on them."
)
#: The paper's grids for heads.
GRIDS: dict[str, dict[str, Sequence[Any]]] = {
    "ERM": {"penalty": PAPER_PENALTIES},
    "GroupWeighted": {"penalty": PAPER_PENALTIES},
    "SUBG": {"penalty": PAPER_PENALTIES},
    "DFR": {"penalty": PAPER_PENALTIES},
    "GroupDRO": {"penalty": (1.0, 0.1, 0.01, 1e-3), "adjustment": (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)},
    "JTT": {"penalty": (1.0, 0.1, 0.01, 1e-3), "upweight": (2.0, 5.0, 10.0, 25.0)},
    "AFR": {"penalty": (1.0, 0.1, 0.01, 1e-3), "gamma": (0.0, 2.0, 4.0, 8.0, 16.0)},
}


@dataclass(frozen=True, slots=True)
class Selection:
    """The chosen head, fitted, with its parameters.

    `results` has the parameters and the loss of every combination tried. `notes` are for the reader.
    """

    head: Any
    parameters: dict[str, Any]
    results: tuple[tuple[dict[str, Any], float], ...]
    notes: tuple[str, ...] = ()

    @property
    def loss(self) -> float | None:
        """The smallest loss."""
        return min((loss for _, loss in self.results), default=None)

    @property
    def penalty(self) -> float:
        """Penalty of the chosen head."""
        return float(self.head.penalty)

    @property
    def grid_edge(self) -> str:
        """Whether the chosen penalty is the "largest" or the "smallest" of those tried; "" if neither.

        Also "" if the last step gained next to nothing, since a further one would not either.
        """
        losses: dict[float, float] = {}
        for parameters, loss in self.results:
            if "penalty" in parameters:
                penalty = float(parameters["penalty"])
                losses[penalty] = min(loss, losses.get(penalty, np.inf))
        tried = sorted(losses)
        if len(tried) < 2 or self.penalty not in (tried[0], tried[-1]):
            return ""
        largest = self.penalty == tried[-1]
        if losses[tried[-1 if largest else 0]] > (1.0 - NEGLIGIBLE_LOSS_SHARE) * losses[tried[-2 if largest else 1]]:
            return ""
        return "largest" if largest else "smallest"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {"parameters": self.parameters, "results": [{**tried, "loss": loss} for tried, loss in self.results]}


def tune_head(
    head: Any,
    grid: Mapping[str, Sequence[Any]],
    train: Any,
    validation: Any = None,
    *,
    seed: int = 0,
) -> Selection:
    """Choose the parameters of a head with the smallest `temperature_scaled_loss` on held-out rows.

    Every group has equal weight, and the loss is invariant to the scale of the logits. Ties are broken by accuracy,
    averaged over groups, then by `group_loss`. Groups are the combinations of task and concepts that have rows.
    Held-out rows are the validation rows. Without any, they are a fifth of each group of the training rows, and the
    chosen head is fitted again on all rows. Copies of a row are held out together, as clusters are. A group of one row,
    or in one cluster, stays in the training rows; a note says so. For ``GroupWeighted(unknown="infer")``, training rows
    without a concept are held out as well, and count for groups by their probabilities.

    For a head that needs no concept, either set may come without one. Validation rows without are not used if training
    rows have one, and a note says so. If neither set has one, groups are the classes of y, and a note says so.
    The loss is their mean: choosing by the worst class instead, by loss or accuracy, did not find better parameters,
    and it is noisier. Either way the choice knows nothing about groups within a class.

    Parameters
    ----------
    train, validation : tuples (Z, y, concept), with clusters a fourth.
        A concept may be missing in some rows (None, NaN), or be None for a head that needs none. Several are a mapping
        from their names to labels, or an array (n, m). Clusters are labels of the rows that belong together.
    """
    require_same_features({"training": train, "validation": validation})
    needs_concept = head._needs_concept
    train = ensure_decoded(train, needs_concept=needs_concept)
    validation = ensure_decoded(validation, "validation", needs_concept=needs_concept)
    if not needs_concept and not any(_has_groups(rows) for rows in (train, validation)):
        train, validation = train.without_concept(), validation and validation.without_concept()
        found = _choose(head, grid, train, validation, seed)
        return replace(found, notes=(*found.notes, CHOSEN_BY_CLASS))
    if validation is None or _has_groups(validation):
        return _choose(head, grid, train, validation, seed)
    found = _choose(head, grid, train, None, seed)
    return replace(found, notes=(*found.notes, VALIDATION_IGNORED))


def _has_groups(rows: LabelledData | None) -> bool:
    """Whether some row has a known concept."""
    return rows is not None and bool(rows.concepts) and bool(rows.concept_known.any())


def _choose(
    head: Any,
    grid: Mapping[str, Sequence[Any]],
    train: LabelledData,
    validation: LabelledData | None,
    seed: int,
) -> Selection:
    """`tune_head`, on decoded rows and by their groups."""
    # Large grids are searched at a rough tolerance, and the chosen head is fitted once more.
    rough = clone(head)
    if several_parameters := set(grid) != {"penalty"}:
        rough.set_params(tol=max(head.tol, ROUGH_TOL))
    if validation is not None:
        found = select_head(rough, grid, train, validation, rank=_rank)
        if not several_parameters:
            return found
        return replace(found, head=_path(head, [found.parameters], train)[0])
    train = train.with_duplicate_clusters(row_hashes(train.X))
    visible = _with_inferred_groups(head, train)
    held_out_mask = visible.held_out_mask(HELD_OUT_SHARE, np.random.default_rng(seed))
    notes = _notes_on_missing_groups(visible, held_out_mask)
    if not held_out_mask.any():
        reason = "No group has two rows" if train.clusters is None else "No group has clusters to hold out"
        note = f"{reason}, so no penalty could be chosen; it is {head.penalty:g}, the default."
        return Selection(_path(head, [{}], train)[0], {}, (), notes=(*notes, note))
    rest, chosen_on = train.select(~held_out_mask), visible.select(held_out_mask)
    found = select_head(rough, grid, rest, chosen_on, rank=_rank)
    return replace(found, head=_path(head, [found.parameters], train)[0], notes=notes)


def _with_inferred_groups(head: Any, rows: LabelledData) -> LabelledData:
    """The rows, with inferred groups if the head infers concepts and some are missing."""
    if not getattr(head, "_infers_concept", False) or rows.concept_known.all():
        return rows
    inferred, _ = head._with_inferred_concept(HeadData(rows, None, np.empty(0), None))  # the fits warn
    found: LabelledData = inferred.train.with_inferred_groups()
    return found


def cross_validate_penalty(
    head: Head,
    penalties: Sequence[float],
    data: HeadData,
    all_rows: LabelledData,
    features_from: BaseEstimator,
    folds: int,
    rng: np.random.Generator,
    *,
    validation_only: bool = False,
) -> Selection:
    """Choose a penalty by the rule of `tune_head`, on validation rows or by cross-validation.

    The loss is that of the held-out rows of all folds together. The chosen head is fitted on `all_rows`: the training
    rows, and the validation rows if there are any. `validation_only` is for a head that is trained on validation rows
    alone, as DFR is: `data.train` has the validation rows then, and the head gets them as such. If concepts were
    inferred, rows without one are held out in the folds too, and count for groups by their probabilities. Rows are
    visited where they live.
    """
    train, validation = data.train, data.validation
    visible = head._training_view(train)
    if train.inferred is not None:
        train = visible
    if head._is_single_regression:
        # Once, for all folds.
        visible.geometry(visible.source(), balanced=head._balance == "groups", metric=head.metric)

    def fit_all_rows(penalty: float) -> Head:
        rows = visible if all_rows is data.train else head._training_view(all_rows)
        held_out = rows if validation_only else None
        setting = [{"penalty": penalty}]
        return fit_decoded_path(head, setting, replace(data, train=rows, validation=held_out), features_from)[0]

    fold = None if validation is not None else train.folds(folds, rng)
    if fold is not None:
        # Heads fitted without the fold of a row must know its group, so one row or cluster of a group is not enough.
        trained = _groups_outside_folds(train, fold, folds)
        evaluated_on, evaluated = train, (fold >= 0) & trained[fold, train.group]
        notes = _notes_on_missing_groups(train, evaluated)
        classes = trained.reshape(folds, train.n_classes, -1).any(axis=2).sum(axis=1)
        if not evaluated.any() or classes.min() < 2:
            reason = f"{_too_few(train)} to hold some out"
            note = f"{reason}, so no penalty could be chosen; it is {head.penalty:g}, the default."
            return Selection(fit_all_rows(head.penalty), {}, (), notes=(*notes, note))
    else:
        assert validation is not None
        evaluated_on, evaluated, notes = validation, (validation.weight > 0) & validation.concept_known, ()
    differences = _held_out_differences(
        head, penalties, replace(data, train=visible), features_from, fold, folds, evaluated_on, validation_only
    )
    group, weight = renumbered(evaluated_on.group[evaluated]), evaluated_on.weight[evaluated]
    keys = [_ranking_key(one[evaluated], group, weight) for one in differences]
    best = min(range(len(penalties)), key=keys.__getitem__)
    last = fit_all_rows(penalties[best])
    table = tuple(({"penalty": penalty}, key[0]) for penalty, key in zip(penalties, keys, strict=True))
    return Selection(last, {"penalty": penalties[best]}, table, notes=notes)


def cross_fit(head: Head, rows: LabelledData, folds: int, rng: np.random.Generator) -> tuple[FloatArray, float]:
    """Logits of each row minus that of its own class, (n, K), by heads fitted without its fold; and their penalty.

    One penalty serves all folds, the best of `penalty_grid` by the rule of `tune_head`. Rows are in memory, their
    groups are the classes of the task, and clusters are kept together. GroupSizeError if a class is in one fold only.
    """
    features_from = clone(head)
    (X,) = RowSpan.of(rows.X)[1]
    arguments = {**replace(rows, X=X).arguments(), "concept": None}
    data = decode_head_arguments(features_from, arguments, {}, None, needs_concept=False)
    fold, penalties = data.train.folds(folds, rng), penalty_grid(rows.X)
    _require_classes_outside_folds(rows, _groups_outside_folds(data.train, fold, folds))
    differences = _held_out_differences(head, penalties, data, features_from, fold, folds, data.train)
    keys = [_ranking_key(one, data.train.group) for one in differences]
    best = min(range(len(penalties)), key=keys.__getitem__)
    return differences[best], penalties[best]


def _held_out_differences(
    head: Head,
    penalties: Sequence[float],
    data: HeadData,
    features_from: BaseEstimator,
    fold: IntArray | None,
    folds: int,
    rows: LabelledData,
    validation_only: bool = False,
) -> FloatArray:
    """Logits of `rows` minus that of each row's own class, (penalties, n, K), by heads fitted without its fold."""
    rough = clone(head).set_params(tol=max(head.tol, ROUGH_TOL))
    with quiet():  # fits that do not converge are candidates like others
        fitted = fit_folds(rough, penalties, data, features_from, fold, folds, validation_only=validation_only)
    logits = held_out_logits(fitted, rows, np.zeros(len(rows), dtype=np.intp) if fold is None else fold)
    if logits.shape[2] == 1:  # the first of two classes has logit zero
        logits = np.concatenate([np.zeros_like(logits), logits], axis=2)
    return np.asarray(logits - np.take_along_axis(logits, rows.main.codes[None, :, None], axis=2))


def ensure_decoded(rows: Any, what: str = "training", *, needs_concept: bool = True) -> Any:
    """Rows passed as a tuple, decoded; None and decoded rows are returned unchanged."""
    if rows is None or isinstance(rows, LabelledData):
        return rows
    least = 2 if what == "training" else 1  # others are only evaluated on
    return decode_rows(rows, what, min_classes=least, needs_concept=needs_concept)


def penalty_grid(Z: Array) -> tuple[float, ...]:
    """The penalties to try heads with: one grid for the rows before and after any removal.

    `HEAD_PENALTIES` are in units of the mean variance of the directions in which rows vary. If one column has a far
    larger scale, all of them are too large for the other columns: a head could use that column only, and any removal of
    it would look like a cure. So smaller ones are tried too, by tens, until the last is small for a column of median
    variance.
    """
    return penalty_grid_from_variances(column_variances(Z))


def penalty_grid_from_variances(variance: FloatArray) -> tuple[float, ...]:
    """The same from the variances of the columns, shape (d,)."""
    positive = variance[variance > 0]
    spread = float(positive.mean() / np.median(positive)) if len(positive) else 1.0
    if spread <= MAX_VARIANCE_RATIO:
        return HEAD_PENALTIES
    decades = int(np.ceil(np.log10(spread)))
    smallest = int(np.round(-np.log10(HEAD_PENALTIES[-1])))
    more = (float(f"1e-{k}") for k in range(smallest + 1, smallest + decades + 1))
    return (*HEAD_PENALTIES, *(penalty for penalty in more if penalty >= 0.5 * MIN_PENALTY))


def column_variances(Z: Array) -> FloatArray:
    """Variance of each column, shape (d,), in units in which none can overflow."""
    largest = max(float(Z.max()), -float(Z.min()))
    if not largest > 0:
        return np.zeros(Z.shape[1])
    blocks = range(0, Z.shape[1], BLOCK_COLUMNS)
    return np.concatenate([np.var(Z[:, j : j + BLOCK_COLUMNS] / np.float64(largest), axis=0) for j in blocks])


def select_head(
    head: Any,
    grid: Mapping[str, Sequence[Any]],
    train: Any,
    validation: Any,
    *,
    rank: Callable[[Any, LabelledData], tuple[float, ...]] | None = None,
) -> Selection:
    """Fit a head with every combination of `grid` and keep the one with the least loss on the validation rows.

    Parameters
    ----------
    train, validation : tuples (Z, y, concept), as in `tune_head`.
    rank : sort key of a fitted head, whose first number is the loss of the table; by default `group_loss`, the
        paper's rule.
    """
    require_same_features({"training": train, "validation": validation})
    train, validation = ensure_decoded(train), ensure_decoded(validation, "validation")
    settings = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    if not settings:
        raise InputError("The grid is empty; there is nothing to choose from.")
    fitted = _path(head, settings, train)
    ranks = [(group_loss(one, validation),) if rank is None else rank(one, validation) for one in fitted]
    best = min(range(len(ranks)), key=ranks.__getitem__)
    table = tuple((parameters, found[0]) for parameters, found in zip(settings, ranks, strict=True))
    return Selection(fitted[best], settings[best], table)


def _path(head: Any, settings: Sequence[Mapping[str, Any]], rows: LabelledData) -> list[Any]:
    with quiet():  # fits that do not converge are candidates like others
        return fit_path(head, settings, **rows.arguments())


def refitted(head: Any, rows: LabelledData) -> Any:
    """The head fitted to other rows."""
    return _path(head, [{}], rows)[0]


def _groups_outside_folds(rows: LabelledData, fold: IntArray, n_folds: int) -> BoolArray:
    """Which groups have rows outside each fold, shape (folds, groups); rows of negative folds do not count."""
    live, shape = fold >= 0, (n_folds, rows.n_groups)
    cell = fold[live] * rows.n_groups + rows.group[live]
    inside = np.bincount(cell, minlength=n_folds * rows.n_groups).reshape(shape)
    return np.asarray(inside.sum(axis=0) > inside)


def _require_classes_outside_folds(rows: LabelledData, outside: BoolArray) -> None:
    """Raise GroupSizeError unless every class of the task has rows `outside` each fold (folds, classes)."""
    if outside.all():
        return
    code = int(np.flatnonzero(~outside.all(axis=0))[0])
    own = rows.main.codes == code
    number = len(np.unique(rows.clusters[own])) if rows.clusters is not None else int(own.sum())
    if rows.clusters is not None and rows.clusters_are_duplicates:
        where, what = f"are duplicates of {counted(number, 'row')}", "more distinct rows"
    else:
        where, what = f"lie in {counted(number, 'cluster')}", "rows of more clusters"
    raise GroupSizeError(
        f"Rows with {rows.main.name} = {rows.main.classes[code]} {where}, and all of them are in one fold, so a head "
        f"fitted without that fold cannot know the class. Pass {what}, or leave the class out."
    )


def _too_few(rows: LabelledData) -> str:
    if rows.clusters is None:
        return "There are too few rows"
    return "The rows lie in too few clusters" if not rows.clusters_are_duplicates else "Too few rows are distinct"


def _notes_on_missing_groups(train: LabelledData, held_out_mask: BoolArray) -> tuple[str, ...]:
    """Notes on groups of the training rows that have no held-out rows."""
    group = np.where(train.weight > 0, train.group, -1)
    missing_groups = np.setdiff1d(group[group >= 0], group[held_out_mask])
    rows, notes = np.bincount(group[group >= 0], minlength=1), []
    if single := int(np.sum(rows[missing_groups] == 1)):
        have = "1 group has" if single == 1 else f"{single} groups have"
        notes.append(f"{have} one training row only; it is used for training but not for choosing the penalty.")
    if unsplittable := [f"{train.group_name(g)} ({rows[g]} rows)" for g in missing_groups.tolist() if rows[g] > 1]:
        number = len(unsplittable)
        named = "; ".join(unsplittable[:4]) + (f"; and {number - 4} more" if number > 4 else "")
        notes.append(
            f"{number} group{' is' if number == 1 else 's are'} used for training but not for choosing the penalty, "
            f"since the rows lie in too few clusters to hold one of them out: {named}. Pass validation rows that have "
            "them."
        )
    return tuple(notes)


def fit_with_accepted_arguments(model: Any, train: LabelledData, validation: LabelledData | None = None) -> None:
    """Fit a remover or a classifier with those arguments that its `fit` accepts."""
    given = train.arguments(duplicate_clusters=False)
    if validation is not None:
        given |= validation.arguments("_val", duplicate_clusters=False)
    accepted = inspect.signature(model.fit).parameters
    model.fit(**{name: value for name, value in given.items() if name in accepted})


#: What is said if validation rows are too few.
POOLED = "There are too few rows to test directions on, so training and validation rows were pooled and cross-fitted."


def fit_or_pool(
    remover: R,
    train: LabelledData,
    validation: LabelledData | None,
) -> tuple[R, LabelledData, LabelledData | None, tuple[str, ...]]:
    """A fitted remover, the two sets of rows, and notes; if validation rows are too few, all rows are one set.

    The remover is then a clone, and a FewRowsWarning says so.
    """
    try:
        fit_with_accepted_arguments(remover, train, validation)
    except GroupSizeError as error:
        together = None if validation is None else pooled(train, validation)
        if together is None:
            raise
        note = f"{POOLED} ({error})"
        warn(note, FewRowsWarning)
        remover = clone(remover)
        fit_with_accepted_arguments(remover, together)
        return remover, together, None, (note,)
    return remover, train, validation, ()


def pooled(train: LabelledData, validation: LabelledData) -> LabelledData | None:
    """Both sets as one; None if only one of them is a Dask array.

    If one is a tensor and the other an array, the result is an array.
    """
    both = (train.X, validation.X)
    kinds = {backend_of(X) for X in both}
    if kinds == {"dask"}:
        import dask.array

        X = dask.array.concatenate(both)
    elif kinds == {"torch"}:
        import torch

        X = torch.cat(both)
    elif "dask" in kinds:
        return None
    else:
        arrays = [to_numpy(X) for X in both]
        X = np.concatenate(arrays)
    return replace(train.stacked(validation), X=X, stacked_sets=())


def group_loss(head: Any, rows: Any) -> float:
    """Mean over groups (main, concepts) of their mean log losses; rows with a missing concept are left out."""
    rows = _rows_for(head, rows)
    code = _class_codes(head, rows.main)
    probabilities: FloatArray = head.predict_proba(rows.X)
    losses = -np.log(np.maximum(probabilities[np.arange(len(code)), code], 1e-300))
    return mean_over_groups(losses, rows.group)


def _rows_for(head: Any, rows: Any) -> LabelledData:
    """The rows with a known concept, decoded, if their features are those of the head."""
    require_same_features({"validation": rows}, head)
    decoded: LabelledData = ensure_decoded(rows, "validation")
    return decoded.with_known_concept()


def temperature_scaled_loss(head: Any, rows: Any) -> float:
    """The smallest `group_loss` on these rows over all factors t ≥ 0 on the logits.

    That loss is convex in t. It is log K for K classes if no factor is better than 0, and 0 if every row is
    right by a margin.
    """
    differences, group = logit_differences(head, rows)
    return mean_over_groups(temperature_scaled_losses(differences, group), group)


def temperature_scaled_losses(differences: FloatArray, group: IntArray, weight: FloatArray | None = None) -> FloatArray:
    """The losses (n,) whose mean over groups is `temperature_scaled_loss`, of logit differences (n, K)."""
    weight = np.ones(len(group)) if weight is None else weight
    share = (weight / np.bincount(group, weights=weight)[group]) / (group.max() + 1)

    # Of two classes, one difference is zero.
    other = differences.sum(axis=1) if differences.shape[1] == 2 else None

    def slope(t: float) -> float:
        if other is not None:
            return float(share @ (expit(t * other) * other))
        return float(share @ np.sum(softmax(t * differences, axis=1) * differences, axis=1))

    factor = 0.0
    if slope(0.0) < 0:
        high = 1.0 / float(share @ np.abs(differences).max(axis=1))
        for _ in range(MAX_DOUBLINGS):
            if slope(high) >= 0:
                break
            high *= 2.0
        factor = float(brentq(slope, 0.0, high)) if slope(high) >= 0 else high
    return _log_losses(differences, factor)


def _log_losses(differences: FloatArray, factor: float = 1.0) -> FloatArray:
    """Log losses (n,) of logit differences (n, K) times a factor."""
    if differences.shape[1] == 2:
        return np.asarray(np.logaddexp(0.0, factor * differences.sum(axis=1)))
    return np.asarray(logsumexp(factor * differences, axis=1))


def _ranking_key(
    differences: FloatArray, group: IntArray, weight: FloatArray | None = None
) -> tuple[float, float, float]:
    """Sort key of `tune_head`, from logit differences (n, K) of rows in groups (n,)."""
    scaled = mean_over_groups(temperature_scaled_losses(differences, group, weight), group, weight)
    wrong = mean_over_groups((differences.max(axis=1) > 0).astype(np.float64), group, weight)
    plain = mean_over_groups(_log_losses(differences), group, weight)
    return round(scaled, LOSS_DECIMALS), round(wrong, LOSS_DECIMALS), plain


def _rank(head: Any, rows: LabelledData) -> tuple[float, float, float]:
    return _ranking_key(*logit_differences(head, rows), None if rows.expected_counts is None else rows.weight)


def logit_differences(head: Any, rows: Any) -> tuple[FloatArray, IntArray]:
    """Logits minus that of each row's own class, (n, K), and groups (n,), of the rows with a known concept.

    Groups are numbered without empty ones.
    """
    rows = _rows_for(head, rows)
    logits = np.asarray(head.predict_log_proba(rows.X), dtype=np.float64)
    code = _class_codes(head, rows.main)
    return logits - logits[np.arange(len(code)), code][:, None], renumbered(rows.group)


def _class_codes(head: Any, y: ClassLabel) -> IntArray:
    """Index of each row's class among those of the head, shape (n,)."""
    known = head.classes_.tolist()
    if unknown := [value for value in y.occurring_classes if value not in known]:
        raise LabelError(
            f"y of the validation rows has the class {unknown[0]!r}, which the training rows do not have "
            f"({head.classes_.tolist()}). Leave such rows out, or train on some."
        )
    return np.array([known.index(value) if value in known else -1 for value in y.classes])[y.codes]


def mean_over_groups(values: FloatArray, group: IntArray, weight: FloatArray | None = None) -> float:
    """Mean over groups of the (weighted) mean of the values (n,) in each; empty groups are left out."""
    weight = np.ones(len(group)) if weight is None else weight
    total = np.bincount(group, weights=weight)
    return float(np.mean(np.bincount(group, weights=weight * values)[total > 0] / total[total > 0]))
