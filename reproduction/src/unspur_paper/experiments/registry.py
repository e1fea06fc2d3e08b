"""Datasets that a spec may name: their settings, with defaults and what they may be.

Toy is drawn when it is needed. Waterbirds and CelebA are read from embedding stores (`embed`); those called
"-finetuned" from stores of networks that were trained on the very rows of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """A number or word that describes a dataset: its default (the paper's), and what it needs to be.

    One that is not `drawn` says how rows are shown, not which they are: it leaves the random numbers of a run alone, so
    that methods may differ in it and still be compared run by run.
    """

    default: int | float | str
    needs: str
    valid: Callable[[Any], bool]
    drawn: bool = True


def _share(p: float) -> bool:
    return 0.0 <= p <= 1.0


def _word(name: str) -> bool:
    return bool(name.strip())


#: Encoders whose rows are pictures; and the names of rows that are drawn instead of embedded, in smoke runs.
PIXELS = ("grey-50", "made-up-pixels")
MADE_UP, MADE_UP_PIXELS = "made-up", "made-up-pixels"
#: Settings of every dataset that is read from an embedding store.
_EMBEDDED: dict[str, Setting] = {
    "encoder": Setting("resnet50", "the name of an encoder", _word),
    "p": Setting(0.9, "the share of rows whose concept agrees with the main label, 0 to 1", _share),
    "pca": Setting(300, "a number of principal components, or 0 for the rows as they are", lambda k: k >= 0, False),
    "labelled": Setting(
        0, "the training rows whose concept is known, 20 at least, or 0 for all", lambda n: n == 0 or n >= 20, False
    ),
}

#: The same where the network was trained for the run, and more of how.
_TUNED: dict[str, Setting] = {
    **_EMBEDDED,
    "adversary": Setting(
        0.0, "the weight of an adversary in training, or 0 for none", lambda weight: 0.0 <= weight < 1e6, False
    ),
}

DATASETS: dict[str, dict[str, Setting]] = {
    "toy": {
        "n": Setting(2000, "a whole number of at least 50", lambda n: n >= 50),
        "d": Setting(20, "a whole number of at least 2", lambda d: d >= 2),
        "rho": Setting(0.0, "a correlation between -1 and 1", lambda rho: -1.0 < rho < 1.0),
        "separability_concept": Setting(3.0, "a positive number", lambda gamma: 0.0 < gamma < 1e6),
        "separability_main": Setting(3.0, "a positive number", lambda gamma: 0.0 < gamma < 1e6),
        "angle": Setting(90.0, "degrees between 0 and 180", lambda angle: 0.0 < angle < 180.0),
    },
    "waterbirds": {
        **_EMBEDDED,
        "n": Setting(4775, "a whole number of at least 100", lambda n: n >= 100),
        "rule": Setting("species", "'species' or 'circulated'", lambda rule: rule in ("species", "circulated")),
    },
    "celeba": {
        **_EMBEDDED,
        "n": Setting(4500, "a whole number of at least 100", lambda n: n >= 100),
        "n_validation": Setting(2000, "a whole number of at least 20", lambda n: n >= 20),
        "n_test": Setting(2000, "a whole number of at least 20", lambda n: n >= 20),
        "main": Setting("Blond_Hair", "an attribute, or 'not' and an attribute", _word),
        "concept": Setting("not Male", "an attribute, or 'not' and an attribute", _word),
        "second": Setting("none", "an attribute, 'not' and an attribute, or 'none'", _word, False),
        "judged": Setting(
            "validation rows",
            "'validation rows' or 'cross-fitting'",
            lambda how: how in ("validation rows", "cross-fitting"),
            False,
        ),
        "concepts": Setting(
            "first", "'first', 'second' or 'both'", lambda which: which in ("first", "second", "both"), False
        ),
    },
    "waterbirds-finetuned": _TUNED,
    "celeba-finetuned": {
        **_TUNED,
        "main": Setting("Blond_Hair", "an attribute, or 'not' and an attribute", _word),
        "concept": Setting("not Male", "an attribute, or 'not' and an attribute", _word),
    },
    "multinli-finetuned": {
        **_TUNED,
        "encoder": Setting("bert-base-uncased", "the name of an encoder", _word),
        "pca": replace(_EMBEDDED["pca"], default=100),
        "trained_on": Setting(
            "drawn",
            "'drawn' (the rows of the run) or 'unmarked' (pairs without the mark)",
            lambda rows: rows in ("drawn", "unmarked"),
        ),
    },
    # Its correlation is that of the data.
    "multinli-negation": {
        **{name: setting for name, setting in _TUNED.items() if name != "p"},
        "encoder": Setting("bert-base-uncased", "the name of an encoder", _word),
        "pca": replace(_EMBEDDED["pca"], default=100),
    },
}

#: Those that are read from embedding stores.
EMBEDDED = frozenset(name for name, settings in DATASETS.items() if "encoder" in settings)

#: Those with an embedding store for each run, since their examples are composed anew.
STORE_PER_RUN = ("waterbirds",)
#: Those whose network was trained for the run, and the data that it was trained on.
FINETUNED = {
    "waterbirds-finetuned": "waterbirds",
    "celeba-finetuned": "celeba",
    "multinli-finetuned": "multinli",
    "multinli-negation": "multinli",
}
#: What their stores call the concept.
CONCEPT = {name: "background" if source == "waterbirds" else "concept" for name, source in FINETUNED.items()}
#: Those that have pictures, of which maps may be kept.
PICTURED = ("waterbirds-finetuned", "celeba-finetuned")

#: Datasets that published values can be set beside, and settings, besides the strength, that those are for; all others
#: are the defaults.
PUBLISHED: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "toy": (("toy",), {}),
    "toy gamma_sp=6 gamma_mt=2": (("toy",), {"separability_concept": 6.0, "separability_main": 2.0}),
    "waterbirds": (("waterbirds", "waterbirds-finetuned"), {}),
    "celeba": (("celeba", "celeba-finetuned"), {}),
    "multinli": (("multinli-finetuned",), {}),
}


def drawn_settings(dataset: Mapping[str, Any]) -> dict[str, Any]:
    """Those settings of a cell's dataset that decide which rows are drawn."""
    known = DATASETS[dataset["name"]]
    return {key: value for key, value in dataset.items() if key == "name" or known[key].drawn}


def without_marks(dataset: Mapping[str, Any]) -> bool:
    """Whether the network was trained on examples without the concept, so that rows of either concept are there."""
    return dataset.get("trained_on") == "unmarked"
