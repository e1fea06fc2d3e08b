"""`unspur.exceptions.NotConvergedWarning`, apart from the others because importing its base takes a second."""

from sklearn.exceptions import ConvergenceWarning


class NotConvergedWarning(ConvergenceWarning):
    """A solver stopped before its tolerance; the message says why and what to do."""


NotConvergedWarning.__module__ = "unspur.exceptions"
