"""Quick probes, for tests of what is done with the answers; the probes themselves are tested in tests/metrics."""

from contextlib import contextmanager

import pytest

from unspur.metrics import probes


@contextmanager
def quick_probes():
    """Real probes, but nothing is chosen for the linear one, and the network passes over the rows once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probes, "CANDIDATES", (("discriminant", 1e-2),))
        patch.setattr(probes, "EPOCHS", 1)
        yield
