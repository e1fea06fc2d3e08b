"""Every remover with every chosen last layer on one set of embeddings."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from unspur import DFR, ERM, INLP, JSE, JTT, LEACE, RLACE, SAL, SPLINCE, SUBG, GroupDRO, GroupWeighted
from unspur.exceptions import InputError, UnspurError
from unspur.lab.selection import GRIDS, Rows, Selection, select_head
from unspur.metrics import GroupAccuracy, group_accuracy

#: What can be compared, by name. "none" leaves the rows as they are; "JSE-s" has orthogonal scores.
REMOVERS: dict[str, Callable[..., Any] | None] = {
    "none": None, "JSE": JSE, "JSE-s": partial(JSE, orthogonality="scores"), "INLP": INLP, "RLACE": RLACE,
    "LEACE": LEACE, "SAL": SAL, "SPLINCE": SPLINCE,
}  # fmt: skip
HEADS: dict[str, type[Any]] = {
    "ERM": ERM, "GroupWeighted": GroupWeighted, "SUBG": SUBG, "GroupDRO": GroupDRO, "JTT": JTT, "DFR": DFR,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """One remover with one head: accuracy on test rows, directions removed, seconds, what was chosen; or why not."""

    remover: str
    head: str
    removed: int
    accuracy: GroupAccuracy | None
    parameters: dict[str, Any]
    seconds: float
    problem: str = ""
    #: Of the head on validation rows, with groups of equal weight: what a choice between methods may go by.
    validation_loss: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, ready for JSON."""
        measured = None
        if self.accuracy is not None:
            low, high = self.accuracy.worst_interval()
            measured = {**self.accuracy.to_dict(), "worst_low95": low, "worst_high95": high}
        return {
            "remover": self.remover, "head": self.head, "removed": self.removed, "parameters": self.parameters,
            "seconds": self.seconds, "accuracy": measured, "problem": self.problem,
            "validation_loss": self.validation_loss,
        }  # fmt: skip


def compare(
    train: Rows,
    test: Rows,
    validation: Rows | None,
    removers: Sequence[str],
    heads: Sequence[str],
    seed: int = 0,
    balance: str = "group",
    report: Callable[[str], object] = lambda name: None,  # noqa: ARG005 — a progress bar that is not there
) -> list[Comparison]:
    """Fit removers on the training rows (and validation rows, where they take them) and heads on what is left.

    All removers give the same classes equal weight, those of `balance`; else they would not be compared like with like.
    Heads choose their parameters on validation rows; without any, on a fifth of each group of the training rows. A
    method that cannot be fitted is a line with its reason, not an end of the comparison.
    """
    require_known(removers, REMOVERS)
    require_known(heads, HEADS)
    fit_heads_on, choose_on = (train, validation) if validation is not None else train.split(0.2, seed)
    results = []
    for remover_name in removers:
        report(remover_name)
        start = time.perf_counter()
        remover = make_remover(remover_name, balance, seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what they say is in the table: directions removed, and accuracy
                if remover is not None:
                    fit_remover(remover, train, validation)
                clean = [_cleaned(remover, rows) for rows in (fit_heads_on, choose_on, test)]
            problem = ""
        except UnspurError as error:
            problem, clean = str(error), []
        spent = time.perf_counter() - start
        for head_name in heads:
            report(f"{remover_name} + {head_name}")
            results.append(_with_head(remover_name, remover, head_name, clean, problem, spent, seed))
    return results


def _with_head(
    remover_name: str, remover: Any, head_name: str, clean: list[Rows], problem: str, spent: float, seed: int
) -> Comparison:
    start, accuracy, parameters, loss = time.perf_counter(), None, {}, None
    if not problem:
        try:
            chosen = choose_head(head_name, clean[0], clean[1], seed)
            parameters, loss = chosen.parameters, min(tried for _, tried in chosen.table)
            accuracy = group_accuracy(clean[2].y, chosen.head.predict(clean[2].Z), clean[2].concept, empty="nan")
        except UnspurError as error:
            problem = str(error)
    removed = 0 if remover is None or problem else remover.spurious_.dim
    return Comparison(
        remover_name, head_name, removed, accuracy, parameters, spent + time.perf_counter() - start, problem, loss
    )


def choose_head(name: str, train: Rows, validation: Rows, seed: int) -> Selection:
    """A last layer by name, its parameters chosen on validation rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return select_head(HEADS[name](random_state=seed), GRIDS[name], train, validation)


def require_known(names: Sequence[str], *kinds: Mapping[str, Any]) -> None:
    """Names that are in none of `kinds` are an error that says what there is."""
    unknown = [name for name in names if not any(name in kind for kind in kinds)]
    if unknown:
        there = "; and ".join(", ".join(kind) for kind in kinds)
        raise InputError(f"Unknown: {', '.join(unknown)}. There are {there}.")


def make_remover(name: str, balance: str, seed: int) -> Any:
    """A remover by name, not fitted yet; None for "none"."""
    kind = REMOVERS[name]
    if kind is None:
        return None
    remover = kind(balance=balance)
    return remover.set_params(random_state=seed) if "random_state" in remover.get_params() else remover


def fit_remover(remover: Any, train: Rows, validation: Rows | None) -> None:
    """Fit a remover; validation rows go to those that judge directions on them."""
    more = train.together() if isinstance(remover, JSE | INLP) else {}
    if validation is not None and isinstance(remover, JSE | INLP):
        more |= {**validation.held_out(), **validation.together("_val")}
    remover.fit(train.Z, train.y, concept=train.concept, **more)


def _cleaned(remover: Any, rows: Rows) -> Rows:
    return rows if remover is None else replace(rows, Z=remover.transform(rows.Z))
