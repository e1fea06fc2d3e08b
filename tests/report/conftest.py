"""What the tests of reports have in common."""

import pytest

from tests.probing import quick_probes


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Nearly all the time of `measure` goes into probes."""
    with quick_probes():
        yield
