"""Libraries of the extras, for tests that need one here and there: imported when they are used.

``from tests.optional import torch``: a test that uses it where it is not installed is skipped, which costs its
neighbours nothing; using it while a module is imported is an error there, as all of the module would be lost. Modules
that are about an extra from beginning to end import it as usual (see `conftest.py`).
"""

from importlib import import_module

import pytest

#: Names that are not those of a module.
PLACES = {"Image": "PIL.Image", "parquet": "pyarrow.parquet"}


class _WhenUsed:
    """A module that is imported for the first attribute that is asked of it."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        if attribute.startswith(("_", "pytest")):  # what pytest asks of everything that it finds in a module
            raise AttributeError(attribute)
        try:
            return getattr(import_module(self._name), attribute)
        except ModuleNotFoundError as error:
            pytest.skip(str(error))


def __getattr__(name):
    if name.startswith("_"):
        raise AttributeError(name)
    return _WhenUsed(PLACES.get(name, name))
