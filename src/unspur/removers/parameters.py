"""What values parameters may take that several removers share, in the form scikit-learn checks them."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from sklearn.utils._param_validation import HasMethods, Interval, Options, StrOptions

BALANCE: list[Any] = [StrOptions({"none", "concept", "main", "group"})]
MISSING: list[Any] = [None, str, Real, Options(bool, {True, False})]
LIMIT: list[Any] = [None, Interval(Integral, 0, None, closed="left")]

#: Of methods that estimate directions one at a time and test them on held-out rows.
TESTED: dict[str, list[Any]] = {
    "significance_level": [Interval(Real, 0, 1, closed="neither")],
    "tests": [StrOptions({"group", "plain"})],
    "balance": BALANCE,
    "weight_decay": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
    "solver": [StrOptions({"exact", "sgd"})],
    "cv": ["cv_object", HasMethods("split")],
    "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    "smallest_group": [Interval(Integral, 2, None, closed="left")],
    "scalars": [StrOptions({"held_out", "training"})],
    "missing_concept": MISSING,
    "tol": [Interval(Real, 0, None, closed="neither")],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
    "learning_rate": [Interval(Real, 0, None, closed="neither")],
    "momentum": [Interval(Real, 0, 1, closed="left")],
    "batch_size": [Interval(Integral, 1, None, closed="left")],
    "max_epochs": [Interval(Integral, 1, None, closed="left")],
    "patience": [Interval(Integral, 1, None, closed="left")],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}
#: Arguments of `fit` of these methods, routed through pipelines and searches without being requested one by one.
REQUESTED = {
    "concept": True, "sample_weight": True,
    "X_val": True, "y_val": True, "concept_val": True, "sample_weight_val": True,
    "clusters": True, "clusters_val": True,
}  # fmt: skip
