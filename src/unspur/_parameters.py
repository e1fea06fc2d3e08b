"""Shared by all estimators: constraints of parameters, random numbers, failed fits, keyword arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from numbers import Integral, Real
from typing import Any, TypeVar, cast

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, Options, StrOptions

from unspur.exceptions import ArgumentError
from unspur.options import SGD, SOLVER
from unspur.solvers.sgd import SGDSettings

F = TypeVar("F", bound=Callable[..., Any])

BALANCE: list[Any] = [StrOptions({"none", "concept", "main", "group"})]
MISSING: list[Any] = [None, str, Real, Options(bool, {True, False}), date, np.datetime64]
STRENGTH: list[Any] = [Interval(Real, 0, 1, closed="both")]
OPTIONAL_COUNT: list[Any] = [None, Interval(Integral, 0, None, closed="left")]

#: Constraints of methods that test directions on held-out rows.
TEST_CONSTRAINTS: dict[str, list[Any]] = {
    "significance_level": [Interval(Real, 0, 1, closed="neither")],
    "balance": BALANCE,
    "weight_decay": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
    "solver": SOLVER,
    "cv": ["cv_object", HasMethods("split"), Interval(Real, 0, 1, closed="neither")],
    "smallest_group": [Interval(Integral, 2, None, closed="left")],
    "missing_concept": MISSING,
    "strength": STRENGTH,
    "tol": [Interval(Real, 0, None, closed="neither")],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}
#: Arguments of their `fit` that pipelines and searches route without a request for each.
FIT_METADATA = {
    "concept": True,
    "sample_weight": True,
    "X_val": True,
    "y_val": True,
    "concept_val": True,
    "sample_weight_val": True,
    "clusters": True,
    "clusters_val": True,
}


def generator(random_state: Any) -> np.random.Generator:
    """The generator of a fit, from the `random_state` of an estimator."""
    return np.random.default_rng(check_random_state(random_state).randint(2**31 - 1, size=4))


@contextmanager
def restore_on_failure(estimator: BaseEstimator) -> Iterator[None]:
    """Undo every change of the estimator if the block fails: a failed fit leaves it as it was."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def sgd_settings(sgd: SGD, weight_decay: float, learning_rate: float = 1e-2) -> SGDSettings:
    """Settings of a run; `learning_rate` is the default of the method."""
    rate = learning_rate if sgd.learning_rate is None else sgd.learning_rate
    return SGDSettings(rate, sgd.momentum, weight_decay, sgd.batch_size, sgd.max_epochs, sgd.patience)


def keyword_only_after_y(method: F) -> F:
    """Decorate a method of X, y and keywords: a third positional argument raises an error that names its keyword."""
    named = [p.name for p in inspect.signature(method).parameters.values() if p.kind is p.KEYWORD_ONLY]
    third = named[0] if named else "concept"

    @functools.wraps(method)
    def checked(self: Any, *given: Any, **keywords: Any) -> Any:
        if len(given) > 2:
            call = f"{type(self).__name__}.{method.__name__}"
            raise ArgumentError(
                f"{call} takes X and y in order and all else by name; it got {len(given)} arguments in order. If the "
                f"third is the {third.replace('_', ' ')}, write {method.__name__}(X, y, {third}=...)."
            )
        return method(self, *given, **keywords)

    return cast(F, checked)
