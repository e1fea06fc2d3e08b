"""Hyper-parameters by group-weighted loss on held-out rows, with the table it was decided from.

`choose_layer` chooses the penalty of every last layer in commands, reports and tables, by that loss with the
logits scaled by the best temperature, `temperature_scaled_loss`. The paper's rule, used to repeat its experiments,
takes logits as they are, `group_loss`. It makes plain layers on correlated rows too weak, and so flatters removals:
such a layer is confident and wrong in small groups, and a larger penalty only makes it less confident.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp, softmax
from sklearn.base import BaseEstimator, clone

from unspur._data import LabelledData, labelled
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.exceptions import InputError, LabelError, NotConvergedWarning
from unspur.heads.base import Head, HeadData, fit_decoded_path, fit_path
from unspur.labels import ClassLabel
from unspur.removers import JSE
from unspur.rows import CONCEPT, MAIN, to_host

#: The paper's penalties, in units of the mean variance of rows, with its 0 replaced by a value that separable classes
#: can live with.
PAPER_PENALTIES = (1.0, 0.1, 0.01, 1e-3, 1e-4)
#: Penalties that every last layer is tried with. On rows with a strong correlation a plain layer does best with the
#: smallest of the paper's, so that smaller ones are tried as well.
PENALTIES = (*PAPER_PENALTIES, 1e-5, 1e-6)
#: How many times the median variance of the columns their mean may be for `PENALTIES` to be enough, and the smallest
#: penalty that is tried where it is more.
SPREAD, SMALLEST = 100.0, 1e-12
#: Share of each group of the training rows that a penalty is chosen on where there are no validation rows.
CHOOSING = 0.2
#: Decimals of losses that are compared: layers that a factor makes equally good, or equally useless, are equal.
DECIMALS = 9
#: Tolerance that is enough to choose a penalty by cross-validation.
ROUGH_TOL = 1e-3
#: How many times the factor on the logits is doubled at most.
DOUBLINGS = 60
#: Share of a loss that is next to nothing.
NEGLIGIBLE = 0.01
#: Columns that are looked at together: bounds the temporary copies.
BLOCK = 64
#: The grids of the paper.
GRIDS: dict[str, dict[str, Sequence[Any]]] = {
    "JSE": {"weight_decay": PAPER_PENALTIES},
    "JSE by SGD": {"learning_rate": (1e-1, 1e-2, 1e-3, 1e-4), "weight_decay": (0.0, 1e-3, 1e-2, 1e-1, 1.0)},
    "ERM": {"weight_decay": PAPER_PENALTIES},
    "GroupWeighted": {"weight_decay": PAPER_PENALTIES},
    "SUBG": {"weight_decay": PAPER_PENALTIES},
    "DFR": {"weight_decay": PAPER_PENALTIES},
    "GroupDRO": {"weight_decay": (1.0, 0.1, 0.01, 1e-3), "adjustment": (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)},
    "JTT": {"weight_decay": (1.0, 0.1, 0.01, 1e-3), "upweight": (2.0, 5.0, 10.0, 25.0)},
}


@dataclass(frozen=True, slots=True)
class Selection:
    """The fitted head that won, its parameters, and the loss of every combination that was tried.

    `fitted` are the heads by their penalty, where nothing else was varied; `notes` what a reader should know of the
    choice.
    """

    head: Any
    parameters: dict[str, Any]
    table: tuple[tuple[dict[str, Any], float], ...]
    fitted: Mapping[float, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def loss(self) -> float | None:
        """The least of the losses that were compared."""
        return min((loss for _, loss in self.table), default=None)

    @property
    def penalty(self) -> float:
        """Weight decay of the head that won."""
        return float(self.head.weight_decay)

    @property
    def edge(self) -> str:
        """On which side the penalty that won is the last of those tried: "largest", "smallest", or "".

        Also "" where the last step gained next to nothing: then a further one would not either.
        """
        losses: dict[float, float] = {}
        for parameters, loss in self.table:
            if "weight_decay" in parameters:
                penalty = float(parameters["weight_decay"])
                losses[penalty] = min(loss, losses.get(penalty, np.inf))
        tried = sorted(losses)
        if len(tried) < 2 or self.penalty not in (tried[0], tried[-1]):
            return ""
        largest = self.penalty == tried[-1]
        if losses[tried[-1 if largest else 0]] > (1.0 - NEGLIGIBLE) * losses[tried[-2 if largest else 1]]:
            return ""
        return "largest" if largest else "smallest"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {"parameters": self.parameters, "table": [{**tried, "loss": loss} for tried, loss in self.table]}


def choose_layer(
    head: Any,
    grid: Mapping[str, Sequence[Any]],
    train: Any,
    validation: Any = None,
    *,
    seed: int = 0,
    every: bool = False,
) -> Selection:
    """The one rule by which last layers are chosen: the least `temperature_scaled_loss` on held-out rows.

    It counts groups alike, and how sure a layer is does not count. Layers that are equal by it are chosen by their
    accuracy, averaged over groups, and then by `group_loss`. Groups are the combinations of main label and concepts
    that have rows. Held-out rows are the validation rows; without any, a fifth of each group of the training rows, and
    the head that won is then fitted again on all of them. A group of one row, or whose rows lie in one cluster, stays
    among the rows to train on; a note says so.

    Parameters
    ----------
    train, validation : tuples (Z, y, concept), with clusters a fourth.
        A concept may be missing in some rows (None, NaN). Several are a mapping from their names to labels, or an array
        (n, m). Clusters are labels of the rows that belong together.
    every : also fit the heads that did not win on all training rows (`Selection.fitted`).
    """
    train, validation = as_data(train), as_data(validation, "validation")
    # Large grids are searched at a rough tolerance, and what won is fitted once more.
    rough = clone(head)
    if search := set(grid) != {"weight_decay"}:
        rough.set_params(tol=max(head.tol, ROUGH_TOL))
    if validation is not None and validation.known.any():
        found = select_head(rough, grid, train, validation, rank=_ranking_key)
        if not search:
            return found
        return replace(found, head=_fitted(clone(head).set_params(**found.parameters), train))
    aside = train.held_out(CHOOSING, np.random.default_rng(seed))
    notes = _notes_on_missing_groups(train, aside)
    if not aside.any():
        few = "No group has two rows" if train.clusters is None else "No group has clusters to hold out"
        note = f"{few}, so no penalty could be chosen; it is {head.weight_decay:g}, the default."
        return Selection(_fitted(head, train), {}, (), notes=(*notes, note))
    found = select_head(rough, grid, train.select(~aside), train.select(aside), rank=_ranking_key)
    if every and found.fitted:
        again = _path(head, [{"weight_decay": penalty} for penalty in found.fitted], train)
        by_penalty = dict(zip(found.fitted, again, strict=True))
        return replace(found, head=by_penalty[found.penalty], fitted=by_penalty, notes=notes)
    best = _fitted(clone(head).set_params(**found.parameters), train)
    return replace(found, head=best, fitted={}, notes=notes)


def cross_validate_penalty(
    head: Head, penalties: Sequence[float], data: HeadData, checked: BaseEstimator, folds: int, rng: np.random.Generator
) -> Selection:
    """Choose a penalty by the rule of `choose_layer`: on validation rows, or on the rows of each fold left out.

    All rows left out are judged together, by layers that have not seen them. The head of the selection is fitted on
    all rows, those of the validation set included. Rows are visited where they live.
    """
    train, validation = data.train, data.validation
    train.geometry(train.source(), balanced=bool(head._balanced))  # once, for all folds

    rough = clone(head).set_params(tol=max(head.tol, ROUGH_TOL))

    def tried(part: LabelledData) -> list[Head]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConvergedWarning)  # a value that cannot be solved loses on its own
            settings = [{"weight_decay": penalty} for penalty in penalties]
            return fit_decoded_path(rough, settings, replace(data, train=part, validation=None), checked)

    if validation is not None:
        behind = _behind(tried(train), validation)
        judged = (validation.weight > 0) & validation.known
        keys = [_key_of(one[judged], _numbered(validation.group[judged])) for one in behind]
        everything = train.stacked(validation)
    else:
        fold = train.folds(folds, rng)
        behind = np.zeros((len(penalties), len(train), train.n_classes))
        for k in range(folds):
            held = fold == k
            behind[:, held] = _behind(tried(train.part((fold >= 0) & ~held)), train)[:, held]
        keys = [_key_of(one[fold >= 0], _numbered(train.group[fold >= 0])) for one in behind]
        everything = train
    best = min(range(len(penalties)), key=keys.__getitem__)
    chosen = replace(data, train=everything, validation=None)
    won = {"weight_decay": penalties[best]}
    (last,) = fit_decoded_path(head, [won], chosen, checked)
    table = tuple(({"weight_decay": penalty}, key[0]) for penalty, key in zip(penalties, keys, strict=True))
    return Selection(last, won, table)


def _behind(heads: Sequence[Head], rows: LabelledData) -> FloatArray:
    """By how much the logit of each row's own class lies behind those of all, (heads, n, K): one visit of the rows."""
    stack = copy(heads[0])
    stack.__dict__.pop("feature_names_in_", None)  # of rows that are decoded, and have none
    stack.coef_ = np.concatenate([head.coef_ for head in heads])
    stack.intercept_ = np.concatenate([head.intercept_ for head in heads])
    (logits,) = to_host(stack.decision_function(rows.X))
    logits = np.asarray(logits, dtype=np.float64).reshape(len(rows), len(heads), -1).transpose(1, 0, 2)
    if logits.shape[2] == 1:  # the first of two classes has logit zero
        logits = np.concatenate([np.zeros_like(logits), logits], axis=2)
    own = np.take_along_axis(logits, rows.main.codes[None, :, None], axis=2)
    return np.asarray(logits - own)


def as_data(rows: Any, what: str = "training") -> Any:
    """Rows that were passed as a tuple, decoded; None, and what is decoded already, as they are."""
    if rows is None or isinstance(rows, LabelledData):
        return rows
    return labelled(rows, what, least=2 if what == "training" else 1)  # others are only judged on


def penalties_for(Z: Array) -> tuple[float, ...]:
    """The penalties to try last layers with: one grid for the rows as they are and for all that is made of them.

    `PENALTIES` are in units of the mean variance of the columns. Where one column is of another scale than the rest,
    all of them are large for the rest: a layer could use that column only, and whatever removes it would look like a
    cure. So smaller ones are tried too, by tens, until the last is as small for a column of median variance.
    """
    return penalties_of(column_variances(Z))


def penalties_of(variance: FloatArray) -> tuple[float, ...]:
    """The same from the variances of the columns, shape (d,)."""
    positive = variance[variance > 0]
    spread = float(positive.mean() / np.median(positive)) if len(positive) else 1.0
    if spread <= SPREAD:
        return PENALTIES
    decades = int(np.ceil(np.log10(spread)))
    smallest = int(np.round(-np.log10(PENALTIES[-1])))
    more = (float(f"1e-{k}") for k in range(smallest + 1, smallest + decades + 1))
    return (*PENALTIES, *(penalty for penalty in more if penalty >= 0.5 * SMALLEST))


def column_variances(Z: Array) -> FloatArray:
    """Variance of each column, shape (d,), in units in which none can overflow."""
    largest = max(float(Z.max()), -float(Z.min()))
    if not largest > 0:
        return np.zeros(Z.shape[1])
    blocks = range(0, Z.shape[1], BLOCK)
    return np.concatenate([np.var(Z[:, j : j + BLOCK] / np.float64(largest), axis=0) for j in blocks])


def select_head(
    head: Any,
    grid: Mapping[str, Sequence[Any]],
    train: Any,
    validation: Any,
    *,
    held_out: Any = None,
    rank: Callable[[Any, LabelledData], tuple[float, ...]] | None = None,
) -> Selection:
    """Fit a head with every combination of `grid` and keep the one with the least loss on the validation rows.

    Parameters
    ----------
    train, validation : tuples (Z, y, concept), as in `choose_layer`.
    held_out : rows that go to the fit itself, for heads that train on such.
    rank : what the least of is kept, its first number being the loss of the table; by default the paper's,
        `group_loss`.
    """
    train, validation = as_data(train), as_data(validation, "validation")
    more = {} if held_out is None else as_data(held_out, "held-out").arguments("_val", clusters=False)
    settings = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    if more:
        fitted = [_fitted(clone(head).set_params(**parameters), train, **more) for parameters in settings]
    else:
        fitted = _path(head, settings, train)
    tried: list[tuple[dict[str, Any], float]] = []
    best: tuple[tuple[float, ...], Any, dict[str, Any]] | None = None
    for parameters, one in zip(settings, fitted, strict=True):
        found = (group_loss(one, validation),) if rank is None else rank(one, validation)
        tried.append((parameters, found[0]))
        if best is None or found < best[0]:
            best = (found, one, parameters)
    if best is None:
        raise InputError("The grid is empty; there is nothing to choose from.")
    path = not more and set(grid) == {"weight_decay"}
    by_penalty = {one.weight_decay: one for one in fitted} if path else {}
    return Selection(best[1], best[2], tuple(tried), by_penalty)


def _fitted(head: Any, rows: LabelledData, **more: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)  # a value that cannot be solved loses on its own
        return head.fit(**rows.arguments(), **more)


def _path(head: Any, settings: Sequence[Mapping[str, Any]], rows: LabelledData) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        return fit_path(head, settings, **rows.arguments())


def _notes_on_missing_groups(train: LabelledData, aside: BoolArray) -> tuple[str, ...]:
    """Sentences about groups of the training rows that have no rows among those set aside."""
    group = train.group
    unheard = np.setdiff1d(group[group >= 0], group[aside])
    rows, notes = np.bincount(group[group >= 0], minlength=1), []
    if single := int(np.sum(rows[unheard] == 1)):
        have = "1 group has" if single == 1 else f"{single} groups have"
        notes.append(f"{have} one training row only; it trains, and has no say in the choice of penalties.")
    if torn := [f"{train.group_name(g)} ({rows[g]} rows)" for g in unheard.tolist() if rows[g] > 1]:
        named = "; ".join(torn[:4]) + (f"; and {len(torn) - 4} more" if len(torn) > 4 else "")
        notes.append(
            f"{len(torn)} group{' has' if len(torn) == 1 else 's have'} no say in the choice of penalties, since the "
            f"rows lie in too few clusters to hold one of them out: {named}. Pass validation rows that have them."
        )
    return tuple(notes)


@dataclass(frozen=True, slots=True)
class FirstPairSelection:
    """Parameters of JSE that won, the strength they were chosen at, and the loss of every combination tried there."""

    parameters: dict[str, Any]
    strength: float
    table: tuple[tuple[dict[str, Any], float], ...]


def select_first_pair(
    jse: JSE, grid: Mapping[str, Sequence[Any]], sets: Mapping[float, tuple[Any, Any]]
) -> FirstPairSelection:
    """The paper's rule: chosen once, at the strongest correlation, by what the first pair loses on validation rows.

    `sets` maps the strength of the correlation to training and validation rows. The loss is the group-weighted one of
    both labels, each along its own direction.
    """
    strength = max(sets)
    train, validation = (as_data(rows) for rows in sets[strength])
    arguments = {**train.arguments(clusters=False), **validation.arguments("_val", clusters=False)}

    def loss(parameters: dict[str, Any]) -> float:
        total = 0.0
        # A limit of one for one role and none for the other leaves a single test: that of the first pair's direction.
        for limits, label in (
            ({"max_spurious": 0, "max_main": 1}, MAIN),
            ({"max_spurious": 1, "max_main": 0}, CONCEPT),
        ):
            tried = clone(jse).set_params(**parameters, **limits)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tried.fit(**arguments)
            total += float(next(iter(tried.trace_)).verdict.losses[label].mean())
        return total

    table = [
        (parameters, loss(parameters))
        for parameters in (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
    ]
    if not table:
        raise InputError("The grid is empty; there is nothing to choose from.")
    return FirstPairSelection(min(table, key=lambda line: line[1])[0], strength, tuple(table))


def fit_rows(model: Any, train: LabelledData, validation: LabelledData | None = None) -> None:
    """Fit a remover or a classifier with what of the rows its `fit` takes."""
    given = train.arguments() | ({} if validation is None else validation.arguments("_val"))
    takes = inspect.signature(model.fit).parameters
    model.fit(**{name: value for name, value in given.items() if name in takes})


def group_loss(head: Any, rows: Any) -> float:
    """Mean over groups (main, concepts) of the mean log loss in each; rows whose concept is missing are left out."""
    rows = as_data(rows, "validation").with_known_concept()
    code = _class_codes(head, rows.main)
    probabilities: FloatArray = head.predict_proba(rows.X)
    losses = -np.log(np.maximum(probabilities[np.arange(len(code)), code], 1e-300))
    return mean_over_groups(losses, rows.group)


def temperature_scaled_loss(head: Any, rows: Any) -> float:
    """`group_loss` with the logits times a factor t ≥ 0, the one for which it is least on these rows.

    That loss is convex in t. It is log K for K classes where no factor is better than 0, and 0 where every row is
    right by a margin.
    """
    return _scaled_loss(*logit_differences(head, rows))


def _scaled_loss(behind: FloatArray, group: IntArray) -> float:
    """`temperature_scaled_loss` of logit differences (n, K) of rows in groups (n,)."""
    return mean_over_groups(temperature_scaled_losses(behind, group), group)


def temperature_scaled_losses(behind: FloatArray, group: IntArray) -> FloatArray:
    """The losses (n,) whose mean over groups is `temperature_scaled_loss`, of logit differences (n, K)."""
    share = (1.0 / np.bincount(group))[group] / (group.max() + 1)

    def slope(t: float) -> float:
        return float(share @ np.sum(softmax(t * behind, axis=1) * behind, axis=1))

    factor = 0.0
    if slope(0.0) < 0:
        high = 1.0 / float(share @ np.abs(behind).max(axis=1))
        for _ in range(DOUBLINGS):
            if slope(high) >= 0:
                break
            high *= 2.0
        factor = float(brentq(slope, 0.0, high)) if slope(high) >= 0 else high
    return np.asarray(logsumexp(factor * behind, axis=1))


def _ranking_key(head: Any, rows: LabelledData) -> tuple[float, float, float]:
    """What `choose_layer` keeps the least of."""
    return _key_of(*logit_differences(head, rows))


def _key_of(behind: FloatArray, group: IntArray) -> tuple[float, float, float]:
    """The same from logit differences (n, K) of rows in groups (n,)."""
    wrong = mean_over_groups((behind.max(axis=1) > 0).astype(np.float64), group)
    plain = mean_over_groups(logsumexp(behind, axis=1), group)
    return round(_scaled_loss(behind, group), DECIMALS), round(wrong, DECIMALS), plain


def logit_differences(head: Any, rows: Any) -> tuple[FloatArray, IntArray]:
    """By how much the logit of each row's own class lies behind those of all, (n, K), and groups, of rows in one.

    Groups are numbered without those that have no rows.
    """
    rows = as_data(rows, "validation").with_known_concept()
    logits = np.asarray(head.predict_log_proba(rows.X), dtype=np.float64)
    code = _class_codes(head, rows.main)
    return logits - logits[np.arange(len(code)), code][:, None], _numbered(rows.group)


def _numbered(group: IntArray) -> IntArray:
    """Groups numbered without those that have no rows."""
    return np.asarray(np.unique(group, return_inverse=True)[1].reshape(-1))


def _class_codes(head: Any, y: ClassLabel) -> IntArray:
    """Which of the head's classes each label is, shape (n,)."""
    known = head.classes_.tolist()
    if strange := [value for value in y.occurring_classes if value not in known]:
        raise LabelError(
            f"y of the validation rows has the class {strange[0]!r}, which the training rows do not have "
            f"({list(head.classes_)}). Leave such rows out, or train on some."
        )
    return np.array([known.index(value) if value in known else -1 for value in y.classes])[y.codes]


def mean_over_groups(values: FloatArray, group: IntArray) -> float:
    """Mean over groups of the means of the values (n,) in each; groups without rows are left out."""
    rows = np.bincount(group)
    return float(np.mean(np.bincount(group, weights=values)[rows > 0] / rows[rows > 0]))
