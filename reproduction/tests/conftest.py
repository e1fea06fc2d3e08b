"""Tiny networks and real pictures, shared with the tests of unspur."""

from tests.embed.conftest import pictures, tiny_bert, tiny_resnet  # noqa: F401 — fixtures
