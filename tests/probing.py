"""Quick probes, for tests of what is done with the answers; the probes themselves are tested in tests/metrics."""

from contextlib import contextmanager

import numpy as np
import pytest

from unspur.metrics import probes


def _usual(Z, codes, n_classes, weight, fold):
    """Discriminant analysis with the usual shrinkage, in place of a choice by cross-validation."""
    return {probes._Candidate("discriminant", "unit", probes.USUAL_SHRINKAGE): 1.0}, np.zeros(n_classes)


@contextmanager
def quick_probes():
    """Real probes, but nothing is chosen for the linear one, and the network passes over the rows once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probes, "_select_candidates", _usual)
        patch.setattr(probes, "EPOCHS", 1)
        yield
