"""What the tests of findings have in common."""

import pytest

from tests.probing import quick_probes


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Nearly all the time of `find` goes into probes."""
    with quick_probes():
        yield
