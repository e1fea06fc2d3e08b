"""Errors of experiments."""

from unspur.exceptions import InputError, UnspurError


class DataMissingError(InputError):
    """Data that an experiment reads are not there; the message says how to make them."""


class RunStoppedError(UnspurError):
    """A run of experiments ended before its last cell; what it had finished is stored."""
