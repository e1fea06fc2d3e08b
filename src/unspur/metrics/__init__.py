"""Accuracy by group, leakage of a concept from rows, and comparison of subspaces."""

from unspur.metrics.groups import (
    GroupAccuracy,
    GroupScorer,
    PairedDifference,
    group_accuracy,
    group_average_scorer,
    paired_difference,
    worst_difference,
    worst_group_scorer,
)
from unspur.metrics.leakage import Leakage, NumericLeakage, leakage
from unspur.metrics.probes import reconstruction_error
from unspur.subspace import principal_angles, shared_variance

__all__ = [
    "GroupAccuracy",
    "GroupScorer",
    "Leakage",
    "NumericLeakage",
    "PairedDifference",
    "group_accuracy",
    "group_average_scorer",
    "leakage",
    "paired_difference",
    "principal_angles",
    "reconstruction_error",
    "shared_variance",
    "worst_difference",
    "worst_group_scorer",
]
