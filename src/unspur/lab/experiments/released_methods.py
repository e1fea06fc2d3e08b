"""Methods of the authors' program by name, as removals and last layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unspur import LEACE, Subspace
from unspur.exceptions import InputError
from unspur.lab.experiments.fitting import LastLayer, Removal, fit_last_layer
from unspur.lab.released import heads
from unspur.lab.released.inlp import released_inlp
from unspur.lab.released.joint import released_jse
from unspur.lab.released.rlace import released_rlace
from unspur.lab.released.schedule import Schedule
from unspur.lab.released.toy import Splits
from unspur.lab.selection import Rows

Settings = Mapping[str, Any]


def released_removal(named: Settings, splits: Splits, selected: Settings, rng: np.random.Generator) -> Removal:
    """Fit a remover with the selected hyper-parameters. The splits are centred, so projections go through zero."""
    name, options = named["name"], {key: value for key, value in named.items() if key != "name"}
    d = splits.train.Z.shape[1]
    if name == "none":
        return Removal.none(d)
    if name == "LEACE":
        fitted = LEACE(**options).fit(splits.train.Z, concept=splits.train.concept)
        return Removal(fitted.removal_, fitted.spurious_, fitted.main_)
    found, main = np.zeros((d, 0)), np.zeros((d, 0))
    if name == "JSE":
        found, main = released_jse(splits, _schedule(selected), rng, **options)
    elif name == "INLP":
        found = released_inlp(splits, _schedule(selected), rng, **options)
    elif name == "RLACE":
        found = released_rlace(splits.train, selected["learning_rate"], rng, **options)
    else:
        raise InputError(f"The authors' program has no {name}; it has JSE, INLP, RLACE, LEACE and none.")
    return Removal.of(Subspace.spanned_by(found), Subspace.spanned_by(main), np.zeros(d))


def released_head(
    named: Settings, train: Rows, validation: Rows, selected: Settings, erm: Settings, rng: np.random.Generator
) -> LastLayer:
    """Train a last layer with the selected hyper-parameters, and those of ERM where it starts or ends with that."""
    name, schedule = named["name"], _schedule(selected)
    if name == "ERM":
        model = heads.erm(train, schedule, rng)
    elif name == "GroupWeighted":
        model = heads.group_weighted(train, schedule, rng)
    elif name == "SUBG":
        model = heads.subsampled(train, schedule, rng)
    elif name == "JTT":
        model = heads.just_train_twice(train, _schedule(erm), schedule, selected["upweight"], rng)
    elif name == "GroupDRO" and named.get("indexing_fault", False):
        model = heads.group_dro(train, schedule, _schedule(erm), selected["adjustment"], selected["step_size"], rng)
    elif name == "GroupDRO":  # done right: the library's, with the program's hyper-parameters
        right = {"name": name, "solver": "sgd", "weight_decay": 0.0, **selected}
        return fit_last_layer(right, train, validation, rng)
    else:
        raise InputError(f"The authors' program has no last layer {name}.")
    return LastLayer(*model)


def _schedule(selected: Settings) -> Schedule:
    return Schedule(selected["learning_rate"], selected.get("batch_size", 128))
