"""Every remover with every chosen head on one set of embeddings, and which combination to take.

Combinations are evaluated on rows that neither their removal nor their head was fitted to: validation rows, on which
the directions and penalties of all combinations were chosen as well, or each fold of the training rows in turn. Each is
compared row by row with the combination that has the smallest loss there, and those not clearly worse are tied with it.
Test rows are only used to report accuracies, not to choose.

Often there are fewer rows than features. Heads then act only in the span of the training rows. They are fitted in
coordinates of that span, which does not change them (`RowSpan`).
"""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import t as student
from sklearn.base import clone

from unspur import JSE, removers
from unspur._data import LabelledData, decode_rows, require_same_features
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.certificate import row_hashes
from unspur.clusters import has_continuous_columns
from unspur.exceptions import InputError, UnspurError
from unspur.heads import HEADS
from unspur.metrics import GroupAccuracy, Leakage, leakage
from unspur.selection import (
    GRIDS,
    PAPER_PENALTIES,
    PENALTIES,
    Selection,
    choose_layer,
    ensure_decoded,
    logit_differences,
    mean_over_groups,
    penalty_grid,
    temperature_scaled_losses,
)
from unspur.solvers.row_span import RowSpan

#: The remover and the head that `RobustClassifier` has by default.
RECOMMENDED = ("JSE", "GroupWeighted")
#: Folds to evaluate on if there are no validation rows; from `SINGLE_FOLD_ROWS` training rows on, one fold is enough.
FOLDS, SINGLE_FOLD_ROWS = 5, 5000
#: Most test rows that probes are trained on.
MAX_PROBED_ROWS = 2000
#: Rows that tell whether columns are continuous, so that equal rows are copies.
MAX_ROWS_CHECKED = 2000
#: Differences of losses up to this size are rounding: two methods found the same removal.
ROUNDING = 1e-5
#: Removers that can be compared, by name. "none" is no removal.
REMOVERS: dict[str, Callable[..., Any] | None] = {
    "none": None,
    "JSE": JSE,
    "JSE (metric 0)": partial(JSE, metric=0.0),
    "JSE (metric 1)": partial(JSE, metric=1.0),
    **{name: kind for name, kind in removers.REMOVERS.items() if kind is not JSE},
}
#: Other spellings: those of the command line, and those of version 0.1.
REMOVER_ALIASES = {
    "JSE-metric-0": "JSE (metric 0)",
    "JSE-metric-1": "JSE (metric 1)",
    "JSE-w": "JSE (metric 0)",
    "JSE-s": "JSE (metric 1)",
}


@dataclass(frozen=True, slots=True)
class HeldOutLoss:
    """Loss of a combination on held-out rows, and its difference from the smallest of all, with an interval.

    The intervals of all combinations hold together with a confidence of 95 % (multiple comparisons with the best, with
    a Bonferroni correction).
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
    removed: int
    accuracy: GroupAccuracy | None
    parameters: dict[str, Any]
    seconds: float
    problem: str = ""
    #: Loss of the head on the rows that its parameters were chosen on (`selection.temperature_scaled_loss`).
    validation_loss: float | None = None
    #: "largest" or "smallest" if the chosen penalty is at that end of the grid.
    edge: str = ""
    notes: tuple[str, ...] = ()
    #: Loss on rows that neither removal nor head has seen; None if a fold could not be fitted.
    held_out: HeldOutLoss | None = None
    #: Accuracy of a fresh linear probe for each concept, by name, on the test rows after the removal.
    probes: Mapping[str, Leakage] = field(default_factory=dict)
    #: Python code that fits this combination.
    python: str = ""

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
        measured = held_out_loss = None
        if (held_out := self.held_out) is not None:
            held_out_loss = {
                "loss": held_out.loss,
                "above_best": held_out.above_best,
                "low95": held_out.low,
                "high95": held_out.high,
            }
        if self.accuracy is not None:
            low, high = self.accuracy.worst_interval()
            measured = {**self.accuracy.to_dict(), "worst_low95": low, "worst_high95": high}
        return {
            "remover": self.remover,
            "head": self.head,
            "removed": self.removed,
            "parameters": self.parameters,
            "seconds": self.seconds,
            "accuracy": measured,
            "problem": self.problem,
            "validation_loss": self.validation_loss,
            "penalty": self.parameters.get("weight_decay"),
            "edge_of_grid": self.edge,
            "notes": list(self.notes),
            "held_out": held_out_loss,
            "recommended": self.recommended,
            "level": self.tied_with_best,
            "probes": {name: found.to_dict() for name, found in self.probes.items()},
            "python": self.python,
        }


def compare(
    train: Any,
    test: Any,
    validation: Any,
    removers: Sequence[str],
    heads: Sequence[str],
    seed: int = 0,
    balance: str = "group",
    report: Callable[[str], object] = lambda name: None,  # noqa: ARG005
    *,
    missing_concept: Any = None,
) -> list[Comparison]:
    """Fit every remover on the training rows, every head on the transformed rows, and evaluate all combinations.

    Parameters of heads are chosen by `selection.choose_layer`: on validation rows or, without any, on a fifth of each
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
    report : called with the name of each step.
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
    penalties = penalty_grid(train.X)
    shared = tuple(shared_rows(train.X, test.X, None if validation is None else validation.X).values())
    span, _ = RowSpan.of(train.X, None if validation is None else validation.X)
    sets = _Sets(train, validation, test, span, balance, seed)
    results, losses = [], []
    for remover_name in removers:
        report(remover_name)
        start = time.perf_counter()
        clean: _TransformedSets | None = None
        found: dict[str, Leakage] = {}
        problem = ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what they say is in the table: directions removed, and accuracy
                clean = sets.transform_sets(remover_name)
                found, _ = probes(clean.probed, test.select(sets.probed_rows), seed=seed)
        except UnspurError as error:
            problem = str(error)
        spent = time.perf_counter() - start
        folds = sets.transform_folds(remover_name) if clean is not None else ()
        for head_name in heads:
            report(f"{remover_name} + {head_name}")
            result = Comparison(remover_name, head_name, 0, None, {}, spent, problem, notes=shared, probes=found)
            loss = None
            if clean is not None:
                result, chosen = _with_head(replace(result, removed=clean.removed), clean, seed, penalties)
                result = replace(
                    result,
                    python=_python(
                        result,
                        balance,
                        seed,
                        missing_concept,
                        validation=validation is not None,
                        clusters=train.clusters is not None,
                    ),
                )
                loss = None if chosen is None else _held_out_losses(chosen, clean.validation, folds)
            results.append(result)
            losses.append(loss)
    return _compared_with_best(results, losses, sets.held_out_rows) if results else []


@dataclass(frozen=True, slots=True)
class _TransformedSets:
    """Rows after one remover, in the coordinates of heads; and test rows for probes, in those of the features."""

    removed: int
    train: LabelledData
    validation: LabelledData | None
    test: LabelledData
    probed: Array


class _Sets:
    """The rows of a comparison, which removers transform."""

    def __init__(
        self,
        train: LabelledData,
        validation: LabelledData | None,
        test: LabelledData,
        span: RowSpan | None,
        balance: str,
        seed: int,
    ):
        self._train, self._validation, self._test = train, validation, test
        self._span, self._balance, self._seed = span, balance, seed
        rng, probing = np.random.default_rng(seed).spawn(2)
        self.probed_rows = np.sort(probing.permutation(len(test))[:MAX_PROBED_ROWS])
        self._held: list[BoolArray] = []
        if validation is None or not validation.concept_known.any():
            fold = train.folds(FOLDS, rng)
            held = [fold == k for k in range(FOLDS if len(train) < SINGLE_FOLD_ROWS else 1)]
            self._held = [rows for rows in held if rows.any()]

    @property
    def held_out_rows(self) -> LabelledData:
        """Rows that combinations are evaluated on, in the order of their losses."""
        if not self._held:
            assert self._validation is not None
            return self._validation.with_known_concept()
        return self._train.select(np.concatenate([np.flatnonzero(rows) for rows in self._held]))

    def transform_sets(self, name: str) -> _TransformedSets:
        """All sets after a remover that is fitted to the training rows, and tests directions on the validation rows."""
        sets = [self._train, self._validation, self._test]
        remover, (train, validation, test) = self._fit(name, sets, self._validation)
        probed = self._test.X[self.probed_rows]
        if remover is not None:
            probed = remover.transform(probed)
        return _TransformedSets(0 if remover is None else remover.spurious_.dim, train, validation, test, probed)

    def transform_folds(self, name: str) -> Sequence[tuple[LabelledData, LabelledData]] | None:
        """Training and held-out rows of each fold after a remover; None if it cannot be fitted to one of them."""
        found = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for rows in self._held:
                try:
                    _, (train, held) = self._fit(name, [self._train.select(~rows), self._train.select(rows)], None)
                except UnspurError:
                    return None
                found.append((train, held))
        return found

    def _fit(self, name: str, sets: Sequence[Any], validation: LabelledData | None) -> tuple[Any, list[Any]]:
        """A remover fitted to the first set, and all sets after it, in the coordinates of heads."""
        remover = make_remover(name, self._balance, self._seed)
        if remover is not None:
            fit_remover(remover, sets[0], validation)
            sets = [rows and replace(rows, X=remover.transform(rows.X)) for rows in sets]
        return remover, [_in_coordinates(rows, self._span) for rows in sets]


def _in_coordinates(rows: LabelledData | None, span: RowSpan | None) -> LabelledData | None:
    return rows if rows is None or span is None else replace(rows, X=span.coordinates(rows.X))


def _held_out_losses(
    chosen: Selection,
    validation: LabelledData | None,
    folds: Sequence[tuple[LabelledData, LabelledData]] | None,
) -> FloatArray | None:
    """Loss of each held-out row, with temperature scaling of the logits; None if a fold could not be fitted."""
    if folds is None:
        return None
    if not folds:
        return temperature_scaled_losses(*logit_differences(chosen.head, validation))
    differences, groups = [], []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for train, held in folds:
                head = clone(chosen.head).fit(**train.arguments())
                differences.append(logit_differences(head, held)[0])
                groups.append(held.group)
    except UnspurError:
        return None
    group = np.unique(np.concatenate(groups), return_inverse=True)[1].reshape(-1)
    return temperature_scaled_losses(np.concatenate(differences), group)


def _compared_with_best(
    results: Sequence[Comparison], losses: Sequence[FloatArray | None], rows: LabelledData
) -> list[Comparison]:
    """The results with their losses on held-out rows (n,), each compared with the smallest."""
    group = np.unique(rows.group, return_inverse=True)[1].reshape(-1)
    single, notes = _single_units(rows, group)
    means = [np.inf if loss is None else mean_over_groups(loss, group) for loss in losses]
    best = losses[int(np.argmin(means))]
    evaluated = sum(loss is not None for loss in losses)
    df = _degrees_of_freedom(group, single, rows.clusters)
    quantile = float(student.ppf(1.0 - 0.025 / max(evaluated - 1, 1), df))
    found = []
    for result, loss, mean in zip(results, losses, means, strict=True):
        if loss is None or best is None:
            found.append(result)
            continue
        difference, error = _paired(loss - best, group, single, rows.clusters)
        margin = quantile * error
        held_out = HeldOutLoss(mean, difference, difference - margin, difference + margin)
        found.append(replace(result, held_out=held_out, notes=(*result.notes, *notes)))
    return found


def _single_units(rows: LabelledData, group: IntArray) -> tuple[BoolArray, tuple[str, ...]]:
    """Which groups, numbered as in `group` (n,), have a single row or cluster; and notes on them."""
    units = np.arange(len(rows)) if rows.clusters is None else np.unique(rows.clusters, return_inverse=True)[1]
    pairs = np.unique(np.column_stack([group, units.reshape(-1)]), axis=0)
    single = np.bincount(pairs[:, 0]) < 2
    unit = "row" if rows.clusters is None else "cluster"
    names = [rows.group_name(int(g)) for g in np.unique(rows.group)[single]]
    return single, tuple(f"{name} has a single held-out {unit}, so its loss is uncertain." for name in names)


def _paired(difference: FloatArray, group: IntArray, single: BoolArray, clusters: Array | None) -> tuple[float, float]:
    """Mean over groups of the means of differences (n,) in each, and its standard error; clusters count once.

    Groups of one row or cluster are taken to vary as rows of the other groups do.
    """
    rows = np.bincount(group)
    centred = difference - (np.bincount(group, weights=difference) / rows)[group]
    share = 1.0 / rows[group] / len(rows)
    if clusters is None:
        variance = float(np.sum((share * centred) ** 2 * (rows / np.maximum(rows - 1, 1))[group]))
    else:
        code = np.unique(clusters, return_inverse=True)[1].reshape(-1)
        number = int(code.max()) + 1
        variance = float(np.sum(np.bincount(code, weights=share * centred) ** 2)) * number / max(number - 1, 1)
    if single.any():
        others = ~single[group]
        freedom = int(others.sum()) - int((~single).sum())
        pooled = np.sum(centred[others] ** 2) / freedom if freedom > 0 else np.inf
        variance += float(pooled) * int(single.sum()) / len(rows) ** 2
    return mean_over_groups(difference, group), float(np.sqrt(variance))


def _degrees_of_freedom(group: IntArray, single: BoolArray, clusters: Array | None) -> float:
    """Those of the variance of `_paired`, if rows vary alike in all groups (Satterthwaite)."""
    if clusters is not None:
        return max(len(np.unique(clusters)) - 1, 1)
    rows = np.bincount(group)
    pooled = max(int(rows[~single].sum()) - int((~single).sum()), 1)
    freedom = np.where(single, pooled, np.maximum(rows - 1, 1))
    return float(np.sum(1.0 / rows) ** 2 / np.sum(1.0 / rows**2 / freedom))


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


def _python(
    result: Comparison,
    balance: str,
    seed: int,
    missing_concept: Any = None,
    *,
    validation: bool = False,
    clusters: bool = False,
) -> str:
    """Code that fits a combination to X, y and concept, with validation rows and clusters if there are any.

    The penalty of a head after a removal is chosen again.
    """
    rows = ["X", "y", "concept", *(["clusters"] if clusters else [])]
    shared = {} if missing_concept is None else {"missing_concept": missing_concept}
    shared["random_state"] = seed
    arguments = ["X", "y", *(f"{name}={name}" for name in rows[2:])]
    if result.remover == "none":
        model, names = f"{result.head}({_written(result.parameters | shared)})", [result.head]
    else:
        if validation:
            arguments += [f"{name}_val={name}_val" for name in rows]
        kind, options = class_and_options(result.remover)
        known = inspect.signature(removers.REMOVERS[kind]).parameters
        chosen: dict[str, Any] = {"balance": balance} if balance != known["balance"].default else {}
        chosen |= {**options, **({"random_state": seed} if "random_state" in known else {})}
        remover = f"{kind}({_written(chosen)})"
        given = {name: value for name, value in result.parameters.items() if name != "weight_decay"}
        head = "" if result.recommended else f"{result.head}({_written(given)}), "
        model = f"RobustClassifier({remover}, {head}{_written(shared)})"
        names = [*sorted({kind, result.head} if head else {kind}), "RobustClassifier"]
    return f"from unspur import {', '.join(names)}\n\nmodel = {model}\nmodel.fit({', '.join(arguments)})"


def _written(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


def probes(
    z: Array, rows: LabelledData, kind: Any = "linear", seed: int = 0
) -> tuple[dict[str, Leakage], tuple[str, ...]]:
    """Results of a fresh probe for each concept in rows `z`, by name; and why a concept could not be probed."""
    found, problems = {}, []
    clusters = None if rows.clusters is None else rows.clusters[rows.concept_known]
    for label in rows.concepts:
        try:
            found[label.name] = leakage(
                z[rows.concept_known],
                label.select(rows.concept_known),
                probe=kind,
                clusters=clusters,
                random_state=seed,
            )
        except InputError as error:
            problems.append(f"{label.name}: not probed. {error}")
    return found, tuple(problems)


def _with_head(
    result: Comparison, clean: _TransformedSets, seed: int, penalties: Sequence[float]
) -> tuple[Comparison, Selection | None]:
    """The result with its head, fitted and evaluated on the transformed rows; and the chosen head."""
    start, train, validation, test = time.perf_counter(), clean.train, clean.validation, clean.test
    try:
        chosen = choose_head(result.head, train, validation, seed, penalties)
        accuracy = accuracy_of(chosen.head.predict(test.X) == test.main.values, test)
    except UnspurError as error:
        problem = replace(result, removed=0, problem=str(error), seconds=result.seconds + time.perf_counter() - start)
        return problem, None
    result = replace(
        result,
        accuracy=accuracy,
        parameters={"weight_decay": chosen.penalty, **chosen.parameters},
        seconds=result.seconds + time.perf_counter() - start,
        validation_loss=chosen.loss,
        edge=chosen.edge,
        notes=(*result.notes, *chosen.notes),
    )
    return result, chosen


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


def choose_head(
    name: str,
    train: Any,
    validation: Any,
    seed: int,
    penalties: Sequence[float] = PENALTIES,
    *,
    refit_all: bool = False,
) -> Selection:
    """A head by name, its parameters chosen by `selection.choose_layer` with these penalties among them."""
    grid = dict(GRIDS.get(name, {"weight_decay": PAPER_PENALTIES}))
    smaller = (penalty for penalty in penalties if penalty < min(grid["weight_decay"]))
    grid["weight_decay"] = (*grid["weight_decay"], *smaller)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return choose_layer(HEADS[name](random_state=seed), grid, train, validation, seed=seed, refit_all=refit_all)


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
        if shared and has_continuous_columns(sets[one][:MAX_ROWS_CHECKED]):
            sentences[one, other] = (
                f"{shared:,} of {len(sets[one]):,} {one} rows are {other} rows as well; {what}. Hold rows out."
            )
    return sentences


def known_names(names: Sequence[str], *registries: Mapping[str, Any]) -> list[str]:
    """The names as the registries spell them; raise InputError for an unknown one."""
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
    remover = kind(balance=balance)
    return remover.set_params(random_state=seed) if "random_state" in remover.get_params() else remover


def accepts_validation(remover: Any) -> bool:
    """Whether a remover tests its directions on held-out rows, and therefore accepts validation rows and clusters."""
    return "X_val" in inspect.signature(remover.fit).parameters


def fit_remover(remover: Any, train: Any, validation: Any) -> None:
    """Fit a remover on rows with a known concept, and with validation rows if it tests directions on them."""
    require_same_features({"training": train, "validation": validation})
    tests_directions = accepts_validation(remover)
    arguments = ensure_decoded(train).with_known_concept().arguments(clusters=tests_directions)
    validation = ensure_decoded(validation, "validation")
    if tests_directions and validation is not None and validation.concept_known.any():
        arguments |= validation.with_known_concept().arguments("_val")
    remover.fit(**arguments)
