"""Every remover with every chosen head on one set of embeddings, and which combination to take.

Combinations are evaluated on rows that neither their removal nor their head was fitted to: validation rows, on which
the directions and penalties of all combinations were chosen as well, or each fold of the training rows in turn. Each is
compared row by row with the combination that has the smallest loss there, and those not clearly worse are tied with it.
Test rows are only used to report accuracies, not to choose.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import t as student

from unspur import JSE, removers
from unspur._arrays import renumbered
from unspur._data import LabelledData, decode_rows, require_same_features
from unspur._registry import REMOVER_POINTS, Registry
from unspur._text import brief
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.clusters import distinct_row_indices, has_continuous_columns, row_hashes
from unspur.exceptions import GroupSizeError, InputError, UnspurError
from unspur.heads import HEADS
from unspur.metrics import GroupAccuracy, Leakage, leakage
from unspur.removers.joint import PAPER_PENALTIES
from unspur.selection import (
    GRIDS,
    HEAD_PENALTIES,
    POOLED,
    Selection,
    ensure_decoded,
    fit_with_accepted_arguments,
    logit_differences,
    mean_over_groups,
    penalty_grid,
    pooled,
    refitted,
    temperature_scaled_losses,
    tune_head,
)
from unspur.solvers.held_out_losses import HeldOutClusters, average_error

#: The remover and the head that `RobustClassifier` has by default.
RECOMMENDED = ("JSE", "GroupWeighted")
#: Folds to evaluate on if there are no validation rows; from `SINGLE_FOLD_ROWS` training rows on, one fold is enough.
COMPARISON_FOLDS, SINGLE_FOLD_ROWS = 5, 5000
#: Most test rows that probes are trained on, here and in a report.
MAX_PROBED_ROWS = 5000
#: Differences of losses up to this size are rounding: two methods found the same removal.
ROUNDING = 1e-5
#: Removers that can be compared, by name. "none" is no removal.
REMOVERS = Registry(
    {
        "none": None,
        "JSE": JSE,
        "JSE (metric 0)": partial(JSE, metric=0.0),
        "JSE (metric 1)": partial(JSE, metric=1.0),
        **{name: kind for name, kind in removers.REMOVERS.own.items() if kind is not JSE},
    },
    REMOVER_POINTS,
    removers.Remover,
)
#: Other spellings, for the command line.
REMOVER_ALIASES = {"JSE-metric-0": "JSE (metric 0)", "JSE-metric-1": "JSE (metric 1)"}


@dataclass(frozen=True, slots=True)
class HeldOutLoss:
    """Loss of a combination on held-out rows, and its difference from the smallest of all, with an interval.

    Intervals have a Bonferroni correction for the number of combinations, so the one that is truly best is among those
    that are not clearly worse with a confidence of 95 %. They do not all hold at once: the smallest loss of many is
    small by chance too.
    """

    loss: float
    above_best: float
    low: float
    high: float

    @property
    def tied_with_best(self) -> bool:
        """Whether the combination is not clearly worse than the best."""
        return self.low <= ROUNDING


@dataclass(frozen=True, slots=True)
class Comparison:
    """One remover with one head: directions removed, chosen parameters, accuracy on test rows, seconds.

    Where one of the two could not be fitted, `problem` says why, and `accuracy` is None.
    """

    remover: str
    head: str
    n_removed: int
    accuracy: GroupAccuracy | None
    parameters: dict[str, Any]
    seconds: float
    problem: str = ""
    #: Loss of the head on the rows that its parameters were chosen on (`selection.temperature_scaled_loss`).
    validation_loss: float | None = None
    #: "largest" or "smallest" if the chosen penalty is at that end of the grid.
    grid_edge: str = ""
    notes: tuple[str, ...] = ()
    #: Loss on rows that neither removal nor head has seen; None if a fold could not be fitted.
    held_out: HeldOutLoss | None = None
    #: Why a fold could not be fitted; empty otherwise.
    held_out_problem: str = ""
    #: Accuracy of a fresh linear probe for each concept, by name, on the test rows after the removal.
    probes: Mapping[str, Leakage] = field(default_factory=dict)

    @property
    def recommended(self) -> bool:
        """Whether this is the combination of `RobustClassifier`, which we recommend."""
        return (self.remover, self.head) == RECOMMENDED

    @property
    def tied_with_best(self) -> bool:
        """Whether the combination is not clearly worse than the best on held-out rows."""
        return self.held_out is not None and self.held_out.tied_with_best

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, ready for JSON."""
        held_out = None
        if self.held_out is not None:
            held_out = asdict(self.held_out)
            held_out |= {"low95": held_out.pop("low"), "high95": held_out.pop("high")}
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            **plain,
            "accuracy": None if self.accuracy is None else self.accuracy.to_dict(),
            "penalty": self.parameters.get("penalty"),
            "notes": list(self.notes),
            "held_out": held_out,
            "recommended": self.recommended,
            "tied_with_best": self.tied_with_best,
            "probes": {name: found.to_dict() for name, found in self.probes.items()},
        }


def compare(
    train: Any,
    test: Any,
    validation: Any,
    removers: Sequence[str],
    heads: Sequence[str],
    seed: int = 0,
    balance: str = "group",
    callback: Callable[[str], object] = lambda name: None,  # noqa: ARG005
    *,
    missing_concept: Any = None,
) -> list[Comparison]:
    """Fit every remover on the training rows, every head on the transformed rows, and evaluate all combinations.

    Parameters of heads are chosen by `selection.tune_head`: on validation rows or, without any, on a fifth of each
    group of the training rows. Every combination is then evaluated with its chosen parameters on held-out rows
    (`Comparison.held_out`): on the validation rows, or on each fifth of the training rows by removals and heads that
    are fitted to the other four. Probes for the concepts are trained on test rows, once for each remover.

    Parameters
    ----------
    train, test, validation : tuples (X, y, concept), with clusters a fourth, of arrays, lists, DataFrames or tensors;
        `validation` may be None. Several concepts are a mapping from their names to labels, or an array (n, m). Test
        and validation rows have the features and the classes of the training rows. Rows whose concept is missing train
        heads that do not ask for it, and validation rows of which none has a known concept are left out.
    removers, heads : names, of `REMOVERS` and `HEADS`.
    balance : classes that get equal weight in every remover.
    callback : called with the name of each step.
    missing_concept : value of a concept that means "not known", besides NaN and None.

    Returns
    -------
    One result for each combination. If a method cannot be fitted, `problem` of the result says why.
    """
    removers, heads = known_names(removers, REMOVERS), known_names(heads, HEADS)
    require_same_features({"training": train, "test": test, "validation": validation})
    decode = partial(decode_rows, missing=missing_concept)
    train = decode(train)
    test = decode(test, "test", like=train)
    validation = None if validation is None else decode(validation, "validation", like=train)
    # Copies of a row must not be on both sides of a fold, and count once.
    train = train.with_duplicate_clusters(row_hashes(train.X))
    if validation is not None:
        validation = validation.with_duplicate_clusters(row_hashes(validation.X))
    notes = tuple(shared_rows(train.X, test.X, None if validation is None else validation.X).values())
    try:
        return _results(_Sets(train, validation, test, balance, seed), removers, heads, notes, callback)
    except _TooFewValidationRows as error:
        sets = _Sets(error.together, None, test, balance, seed)
        return _results(sets, removers, heads, (*notes, POOLED), callback)


class _TooFewValidationRows(Exception):  # noqa: N818 — never seen by users
    """Validation rows are too few for a remover, which can be fitted to all rows, as `RobustClassifier` does."""

    def __init__(self, together: LabelledData):
        super().__init__()
        self.together = together


class _Sets:
    """The rows of a comparison, the masks of the training rows that are held out in turn, and test rows for probes."""

    def __init__(
        self, train: LabelledData, validation: LabelledData | None, test: LabelledData, balance: str, seed: int
    ):
        self.train, self.validation, self.test, self.balance, self.seed = train, validation, test, balance, seed
        self.probed = probed_rows(test, seed)
        self.held: list[BoolArray] = []
        if validation is None or not validation.concept_known.any():
            fold = train.folds(COMPARISON_FOLDS, np.random.default_rng(seed).spawn(1)[0])
            if len(np.unique(fold[fold >= 0])) < 2:
                raise GroupSizeError(
                    "All training rows are in one cluster, so none can be held out to compare methods on. Pass rows "
                    "of more clusters, or validation rows."
                )
            held = [fold == k for k in range(COMPARISON_FOLDS if len(train) < SINGLE_FOLD_ROWS else 1)]
            self.held = [rows for rows in held if rows.any()]

    @property
    def held_out_rows(self) -> LabelledData:
        """Rows that combinations are evaluated on, in the order of their losses."""
        if not self.held:
            assert self.validation is not None
            return self.validation.with_known_concept()
        return self.train.select(np.concatenate([np.flatnonzero(rows) for rows in self.held]))

    def transformed(self, name: str, *sets: Any, validation: LabelledData | None = None) -> tuple[int, list[Any]]:
        """Directions that a remover fitted to the first set takes out, and all sets after it."""
        remover = make_remover(name, self.balance, self.seed)
        if remover is None:
            return 0, list(sets)
        with REMOVERS.named_errors(name):
            fit_remover(remover, sets[0], validation)
            return remover.spurious_.dim, [rows and replace(rows, X=remover._cleaned(rows.X)) for rows in sets]

    def clean(self, name: str) -> tuple[int, list[Any]]:
        """The same of all sets; raises `_TooFewValidationRows` if only more rows help."""
        try:
            return self.transformed(name, self.train, self.validation, self.test, validation=self.validation)
        except GroupSizeError as error:
            if self.validation is None:
                raise
            # Copies of a row are numbered in each set, and may be in both.
            together = pooled(self.train.without_duplicate_clusters(), self.validation.without_duplicate_clusters())
            assert together is not None  # rows are in memory
            together = together.with_duplicate_clusters(row_hashes(together.X))
            try:
                self.transformed(name, together)
            except UnspurError:
                raise error from None
            raise _TooFewValidationRows(together) from None

    def folds(self, name: str) -> list[list[LabelledData]]:
        """Training and held-out rows of each fold, after a remover that is fitted to the former."""
        return [self.transformed(name, self.train.select(~rows), self.train.select(rows))[1] for rows in self.held]


def _results(
    sets: _Sets,
    removers: Sequence[str],
    heads: Sequence[str],
    notes: tuple[str, ...],
    callback: Callable[[str], object],
) -> list[Comparison]:
    """Results of all combinations."""
    penalties = penalty_grid(sets.train.X)
    results: list[Comparison] = []
    losses: list[FloatArray | None] = []
    for remover in removers:
        callback(remover)
        start, problem, fold_problem, folds = time.perf_counter(), "", "", []
        # Warnings of removers are not needed: the table has the directions removed and the accuracy.
        with warnings.catch_warnings(action="ignore"):
            try:
                n_removed, (train, validation, test) = sets.clean(remover)
            except UnspurError as error:
                problem = str(error)
            spent = time.perf_counter() - start
            if problem:
                for head in heads:
                    callback(f"{remover} + {head}")
                    results.append(Comparison(remover, head, 0, None, {}, spent, problem, notes=notes))
                    losses.append(None)
                continue
            try:
                folds = sets.folds(remover)
            except UnspurError as error:
                fold_problem = str(error)
        probes, _ = probe_concepts(test.X[sets.probed], sets.test.select(sets.probed), seed=sets.seed)
        for head in heads:
            callback(f"{remover} + {head}")
            start, result = time.perf_counter(), Comparison(remover, head, 0, None, {}, 0.0, probes=probes, notes=notes)
            loss = None
            try:
                with HEADS.named_errors(head):
                    chosen = tune_named_head(head, train, validation, sets.seed, penalties)
                    accuracy = accuracy_of(chosen.head.predict(test.X) == test.main.values, test)
                result = replace(
                    result,
                    n_removed=n_removed,
                    accuracy=accuracy,
                    parameters={"penalty": chosen.penalty, **chosen.parameters},
                    validation_loss=chosen.loss,
                    grid_edge=chosen.grid_edge,
                    notes=(*notes, *chosen.notes),
                )
            except UnspurError as error:
                result = replace(result, problem=str(error))
            spent_on_head = time.perf_counter() - start
            if not result.problem:
                why = fold_problem
                try:
                    loss = None if why else _held_out_losses(chosen, validation, folds)
                except UnspurError as error:
                    why = str(error)
                if why:
                    why = f"It cannot be fitted to the rows outside a fold: {why}"
                    result = replace(result, held_out_problem=why)
            results.append(replace(result, seconds=spent + spent_on_head))
            losses.append(loss)
    return _compared_with_best(results, losses, sets.held_out_rows) if results else []


def _held_out_losses(
    chosen: Selection, validation: LabelledData | None, folds: Sequence[Sequence[LabelledData]]
) -> FloatArray:
    """Loss of each held-out row, with temperature scaling of the logits."""
    if not folds:
        return temperature_scaled_losses(*logit_differences(chosen.head, validation))
    heads = [refitted(chosen.head, train) for train, _ in folds]
    differences = [logit_differences(head, held)[0] for head, (_, held) in zip(heads, folds, strict=True)]
    group = renumbered(np.concatenate([held.group for _, held in folds]))
    return temperature_scaled_losses(np.concatenate(differences), group)


def _compared_with_best(
    results: Sequence[Comparison], losses: Sequence[FloatArray | None], rows: LabelledData
) -> list[Comparison]:
    """The results with their losses on held-out rows (n,), each compared with the smallest."""
    group = renumbered(rows.group)
    single, notes = _groups_of_one_unit(rows, group)
    means = [np.inf if loss is None else mean_over_groups(loss, group) for loss in losses]
    best = losses[int(np.argmin(means))]
    evaluated = sum(loss is not None for loss in losses)
    tail = 0.025 / max(evaluated - 1, 1)
    found = []
    for result, loss, mean in zip(results, losses, means, strict=True):
        if loss is None or best is None:
            found.append(result)
            continue
        difference, error, degrees = _paired(loss - best, group, single, rows.clusters)
        margin = float(student.isf(tail, degrees)) * error
        held_out = HeldOutLoss(mean, difference, difference - margin, difference + margin)
        found.append(replace(result, held_out=held_out, notes=(*result.notes, *notes)))
    return found


def _groups_of_one_unit(rows: LabelledData, group: IntArray) -> tuple[BoolArray, tuple[str, ...]]:
    """Which groups, numbered as in `group` (n,), have a single row or cluster; and notes on them."""
    units = np.arange(len(rows)) if rows.clusters is None else renumbered(rows.clusters)
    pairs = np.unique(np.column_stack([group, units]), axis=0)
    single = np.bincount(pairs[:, 0]) < 2
    unit = "row" if rows.clusters is None else "cluster"
    names = [rows.group_name(int(g)) for g in np.unique(rows.group)[single]]
    return single, tuple(f"{name} has a single held-out {unit}, so its loss is uncertain." for name in names)


def _paired(
    difference: FloatArray, group: IntArray, single: BoolArray, clusters: Array | None
) -> tuple[float, float, float]:
    """Mean over groups of the means of differences (n,) in each, its standard error, and degrees of freedom.

    For independent rows, degrees of freedom are Satterthwaite's under equal variance in all groups. Clusters count as
    in the tests of directions (`solvers.held_out_losses`). A group of one row or cluster gets the variance of the
    others.
    """
    rows = np.bincount(group)
    centred = difference - (np.bincount(group, weights=difference) / rows)[group]
    others = ~single[group]
    freedom = int(others.sum()) - int((~single).sum())
    if clusters is None:
        share = 1.0 / rows[group] / len(rows)
        variance = float(np.sum((share * centred) ** 2 * (rows / np.maximum(rows - 1, 1))[group]))
        of_group = np.where(single, max(freedom, 1), np.maximum(rows - 1, 1))
        degrees = float(np.sum(1.0 / rows) ** 2 / np.sum(1.0 / rows**2 / of_group))
    else:
        code = renumbered(clusters)
        in_groups = HeldOutClusters.in_groups(code, group, len(rows), np.ones(len(group)))
        error, degrees = average_error(difference, in_groups)
        variance = error**2
    if single.any():
        pooled = np.sum(centred[others] ** 2) / freedom if freedom > 0 else np.inf
        variance += float(pooled) * int(single.sum()) / len(rows) ** 2
    return mean_over_groups(difference, group), float(np.sqrt(variance)), degrees


def recommended_result(results: Sequence[Comparison]) -> Comparison | None:
    """The recommended combination, or the one with the smallest held-out loss if the former is clearly worse."""
    evaluated = [result for result in results if result.held_out is not None]
    recommended = next((result for result in evaluated if result.recommended and result.tied_with_best), None)
    return recommended or best_held_out(evaluated)


def best_held_out(results: Sequence[Comparison]) -> Comparison | None:
    """The combination with the smallest loss on held-out rows."""
    return min(
        (result for result in results if result.held_out is not None),
        key=lambda result: np.inf if result.held_out is None else result.held_out.loss,
        default=None,
    )


def probed_rows(test: LabelledData, seed: int) -> IntArray:
    """Indices of the test rows that probes are trained on: at most `MAX_PROBED_ROWS`, of each group its share."""
    return stratified_sample(test.group, MAX_PROBED_ROWS, np.random.default_rng(seed).spawn(2)[1])


def stratified_sample(group: Array, most: int, rng: np.random.Generator) -> IntArray:
    """At most `most` rows, sorted: of each group its share, and at least a tenth of an equal share (or all of it).

    Without that floor a group of three rows in a thousand, often the one that matters, would hardly be visible.
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


def probe_concepts(
    z: Array, rows: LabelledData, kind: Any = "linear", seed: int = 0
) -> tuple[dict[str, Leakage], tuple[str, ...]]:
    """Results of a fresh probe for each concept in rows `z`, by name; and why a concept could not be probed.

    `rows` are the same rows before the removal. Their copies are a cluster, as in a certificate.
    """
    found, problems = {}, []
    known = rows.concept_known
    rows = rows.with_duplicate_clusters(row_hashes(rows.X)).select(known)
    for label in rows.concepts:
        try:
            found[label.name] = leakage(z[known], label, probe=kind, clusters=rows.clusters, random_state=seed)
        except InputError as error:
            problems.append(f"{label.name}: not probed. {error}")
    return found, tuple(problems)


def accuracy_of(right: BoolArray, test: LabelledData) -> GroupAccuracy:
    """Accuracy by group; rows whose group is not known count only in the average over rows."""
    known = test.concept_known
    if not known.any():
        raise InputError(
            f"No test row has a known {' and '.join(test.concept_names)}, so accuracy by group cannot be computed."
        )
    return GroupAccuracy.of(
        right[known],
        test.main.codes[known],
        np.column_stack([label.codes[known] for label in test.concepts]),
        classes=test.main.classes,
        concept_classes=tuple(label.classes for label in test.concepts),
        names=(test.main.name, *test.concept_names),
        empty="nan",
        ungrouped=(right[~known], test.main.codes[~known]),
    )


def tune_named_head(
    name: str,
    train: Any,
    validation: Any,
    seed: int,
    penalties: Sequence[float] = HEAD_PENALTIES,
) -> Selection:
    """A head by name, its parameters chosen by `selection.tune_head` with these penalties among them."""
    grid = dict(GRIDS.get(name, {"penalty": PAPER_PENALTIES}))
    smaller = (penalty for penalty in penalties if penalty < min(grid["penalty"]))
    grid["penalty"] = (*grid["penalty"], *smaller)
    with warnings.catch_warnings(action="ignore"):
        head = _with_known(HEADS[name](), random_state=seed)
        return tune_head(head, grid, train, validation, seed=seed)


def shared_rows(train: Array, test: Array, validation: Array | None = None) -> dict[tuple[str, str], str]:
    """A sentence for each pair of sets that share rows, by their names; rows equal by chance do not count."""
    sets = {"training": train, "test": test} | ({} if validation is None else {"validation": validation})
    hashes = {name: row_hashes(rows) for name, rows in sets.items()}
    sentences = {}
    for one, other, what in (
        ("test", "training", "results on them are too optimistic"),
        ("validation", "test", "results on the test rows are too optimistic"),
        ("validation", "training", "penalties chosen on them overfit the training rows"),
    ):
        shared = int(np.isin(hashes[one], hashes[other]).sum()) if one in sets else 0
        if shared and has_continuous_columns(sets[one][distinct_row_indices(hashes[one])]):
            sentences[one, other] = (
                f"{shared:,} of {len(sets[one]):,} {one} rows are {other} rows as well; {what}. Hold rows out."
            )
    return sentences


def known_names(names: Sequence[str], *registries: Mapping[str, Any]) -> list[str]:
    """The names as the registries spell them; raise InputError for an unknown one."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        given = names if isinstance(names, str) else next(name for name in names if not isinstance(name, str))
        raise InputError(f"Methods are a list of names, such as ['JSE', 'none']; got {brief(repr(given), 80)}.")
    names = [REMOVER_ALIASES.get(name, name) for name in names]
    unknown = [name for name in names if not any(name in registry for registry in registries)]
    if unknown:
        there = "; ".join(", ".join(registry) for registry in registries)
        what = "method" if len(unknown) == 1 else "methods"
        raise InputError(f"Unknown {what} {', '.join(unknown)}. Choose from {there}.")
    return names


def class_and_options(name: str) -> tuple[str, dict[str, Any]]:
    """The class behind the name of a remover, and the parameters that the name stands for."""
    kind = REMOVERS[name]
    return (kind.func.__name__, kind.keywords) if isinstance(kind, partial) else (name, {})


def make_remover(name: str, balance: str, seed: int) -> Any:
    """A remover by name, not fitted yet; None for "none"."""
    kind = REMOVERS[name]
    if kind is None:
        return None
    return _with_known(kind(), balance=balance, random_state=seed)


def _with_known(estimator: Any, **parameters: Any) -> Any:
    """The estimator with those of the parameters that it has."""
    known = estimator.get_params()
    return estimator.set_params(**{name: value for name, value in parameters.items() if name in known})


def fit_remover(remover: Any, train: Any, validation: Any) -> None:
    """Fit a remover on rows with a known concept, and with validation rows if it tests directions on them."""
    require_same_features({"training": train, "validation": validation})
    validation = ensure_decoded(validation, "validation")
    if validation is not None:
        validation = validation.with_known_concept() if validation.concept_known.any() else None
    fit_with_accepted_arguments(remover, ensure_decoded(train).with_known_concept(), validation)
