"""Names that a spec may use."""

from __future__ import annotations

from typing import Any

#: Settings of each dataset and their defaults (the paper's).
DATASETS: dict[str, dict[str, Any]] = {
    "toy": {
        "n": 2000, "d": 20, "rho": 0.0, "separability_concept": 3.0, "separability_main": 3.0, "angle": 90.0,
    },
}  # fmt: skip

#: How a cell is evaluated.
PRESETS: dict[str, str] = {
    "exact": "the library's solvers and defaults; an independent test set of 20,000 rows",
    "paper": "SGD as the paper describes it; an independent test set as large as the training pool",
    "released": "the authors' program: its early stopping, start and tests, and its test set",
    "released-fresh": "the same with an independent test set",
}
REMOVERS = ("none", "JSE", "INLP", "RLACE", "LEACE", "SAL", "SPLINCE", "true axis")
HEADS = ("ERM", "GroupWeighted", "SUBG", "GroupDRO", "JTT", "DFR")
