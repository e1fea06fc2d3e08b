"""Where specs, hyper-parameters and published values are: beside the package when installed, in the repository else."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from unspur.exceptions import InputError


@cache
def experiments_folder() -> Path:
    """The folder `experiments`."""
    here = Path(__file__).resolve()
    for folder in (here.parent / "specs", here.parents[4] / "experiments"):
        if (folder / "published.csv").is_file():
            return folder
    raise InputError("The folder with the experiments is missing from this installation; install unspur again.")


@cache
def _hyperparameters() -> dict[str, Any]:
    return tomllib.loads((experiments_folder() / "hyperparameters.toml").read_text(encoding="utf-8"))


def hyperparameters(preset: str, dataset: str, method: str) -> dict[str, Any]:
    """Selected values of a method, as the paper or the authors' program has them; empty where it has none."""
    return dict(_hyperparameters()[preset][dataset].get(method, {}))
