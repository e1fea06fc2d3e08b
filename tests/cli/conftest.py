"""What the tests of the command line have in common."""

import pytest

from tests.probing import quick_probes


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Nearly all the time of reports and comparisons goes into probes."""
    with quick_probes():
        yield
