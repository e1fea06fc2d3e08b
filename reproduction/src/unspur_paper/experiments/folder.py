"""Where specs, hyper-parameters and published values are: beside the package when installed, in the repository else."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from unspur.exceptions import InputError


@cache
def experiments_folder() -> Path:
    """The folder `experiments`."""
    here = Path(__file__).resolve()
    for folder in (here.parent / "specs", here.parents[3] / "experiments"):
        if (folder / "published.csv").is_file():
            return folder
    raise InputError("The folder with the experiments is missing from this installation; install unspur again.")
