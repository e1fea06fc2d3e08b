"""Fits whose answers are compared: across threads, blocks, sources, processes, and with themselves under load.

``python -m trust.repeats out.npz`` fits all of them in a process of its own, under whatever surrounds it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from unspur.heads import ERM, GroupDRO
from unspur.removers import INLP, JSE, LEACE, RLACE, SAL, SPLINCE

FITS: dict[str, Callable[..., Any]] = {
    "JSE": lambda **given: JSE(random_state=0, **given),
    "JSE, scores": lambda **given: JSE(random_state=0, metric=1.0, **given),
    "INLP": lambda **given: INLP(random_state=0, penalty=0.01, max_directions=4, **given),
    "RLACE": lambda **_: RLACE(),
    "LEACE": lambda **_: LEACE(),
    "SAL": lambda **_: SAL(),
    "SPLINCE": lambda **_: SPLINCE(),
    "ERM": lambda **_: ERM(random_state=0),
    "GroupDRO": lambda **_: GroupDRO(random_state=0),
}
REMOVERS = tuple(name for name in FITS if name not in ("ERM", "GroupDRO"))


def rows(n: int = 900, d: int = 16, seed: int = 0, kind: Any = np.float64) -> tuple[Any, Any, Any]:
    """Rows with a concept of two directions and a task of one, turned, and away from zero."""
    rng = np.random.default_rng(seed)
    concept = (rng.random(n) < 0.5).astype(int)
    y = np.where(rng.random(n) < 0.8, concept, 1 - concept)
    Z = rng.normal(size=(n, d))
    Z[:, 0] += 1.5 * concept
    Z[:, 1] += concept * np.where(rng.random(n) < 0.5, 3.0, -1.0)
    Z[:, 2] += 1.5 * y
    Z = Z @ np.linalg.qr(rng.normal(size=(d, d)))[0] * 0.1 + 3.0
    return Z.astype(kind), y, concept


def answer(fitted: Any) -> Any:
    """What a fit found, as one matrix: the map of a remover, the weights of a last layer."""
    return (
        fitted.removal_.matrix() if hasattr(fitted, "removal_") else np.column_stack([fitted.coef_, fitted.intercept_])
    )


def story(fitted: Any) -> tuple[Any, ...]:
    """What was decided: dimensions, and the verdict of every step."""
    if not hasattr(fitted, "removal_"):
        return ()
    steps = getattr(fitted.trace_, "steps", ())
    return (fitted.spurious_.dim, fitted.main_.dim, *(step.verdict.proper for step in steps))


def fit(name: str, Z: Any, y: Any, concept: Any, **given: Any) -> tuple[Any, tuple[Any, ...]]:
    """The answer and the story of one fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = FITS[name](**given).fit(Z, y, concept=concept)
    return answer(fitted), story(fitted)


def digits(one: Any, other: Any) -> float:
    """Decimal digits to which two answers agree; infinite when they are the same to the bit."""
    apart = float(np.abs(one - other).max())
    return np.inf if apart == 0 else float(-np.log10(apart / np.abs(one).max()))


def said(worst: float) -> str:
    """A number of digits in words, rounded down."""
    return "bit for bit" if np.isinf(worst) else f"{int(worst)} digits"


def all_fits() -> dict[str, Any]:
    """Answers and stories of every fit, in both precisions, by name."""
    found: dict[str, Any] = {}
    for kind in (np.float64, np.float32):
        table = rows(kind=kind)
        for name in FITS:
            matrix, told = fit(name, *table)
            found[f"{name} {np.dtype(kind)}"] = matrix
            found[f"{name} {np.dtype(kind)} story"] = np.array(told, dtype=int)
    return found


def one_fit(job: tuple[str, int]) -> tuple[Any, tuple[Any, ...]]:
    """The fit of a name on the rows of a seed, for pools of threads and processes."""
    name, seed = job
    return fit(name, *rows(300, 8, seed))


if __name__ == "__main__":
    np.savez(sys.argv[1], **all_fits())
