"""Methods of the authors' program by name, as removals and last layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unspur import LEACE, Subspace
from unspur_paper.experiments.fitting import LinearHead, Removal
from unspur_paper.released import heads
from unspur_paper.released.inlp import released_inlp
from unspur_paper.released.joint import released_jse
from unspur_paper.released.rlace import released_rlace
from unspur_paper.released.schedule import Schedule
from unspur_paper.released.toy import Splits
from unspur_paper.rows import Rows

Settings = Mapping[str, Any]


def released_removal(named: Settings, splits: Splits, rng: np.random.Generator) -> Removal:
    """Fit a remover. The splits are centred, so projections go through zero."""
    name, options = named["name"], {key: value for key, value in named.items() if key not in ("name", "learning_rate")}
    train, d = splits.train, splits.train.Z.shape[1]
    main = np.zeros((d, 0))
    if name == "none":
        return Removal.none(d)
    if name == "LEACE":
        fitted = LEACE().fit(train.Z, concept=train.concept)
        return Removal(fitted.removal_, fitted.spurious_, fitted.main_)
    if name == "JSE":
        found, main = released_jse(splits, Schedule(named["learning_rate"]), rng, **options)
    elif name == "INLP":
        found = released_inlp(splits, Schedule(named["learning_rate"]), rng, **options)
    else:
        found = released_rlace(train, named["learning_rate"], rng, **options)
    return Removal.of(Subspace.spanned_by(found), Subspace.spanned_by(main), np.zeros(d))


def released_head(named: Settings, train: Rows, rng: np.random.Generator) -> LinearHead:
    """Train a last layer."""
    name, schedule = named["name"], Schedule(named["learning_rate"], named.get("batch_size", 128))
    if name == "ERM":
        model = heads.erm(train, schedule, rng)
    elif name == "GroupWeighted":
        model = heads.group_weighted(train, schedule, rng)
    elif name == "SUBG":
        model = heads.subsampled(train, schedule, rng)
    elif name == "JTT":
        first = Schedule(named["identification_learning_rate"])
        model = heads.just_train_twice(train, schedule, first, named["upweight"], rng)
    else:
        model = heads.group_dro(
            train,
            schedule,
            Schedule(named["start_learning_rate"]),
            named["adjustment"],
            named["step_size"],
            rng,
            indexing_fault=named.get("indexing_fault", False),
        )
    return LinearHead(*model)
