"""Accuracy by group, leakage of a concept from rows, and comparison of subspaces."""

from unspur.metrics.description import DescriptionLength, description_length
from unspur.metrics.groups import GroupAccuracy, PairedDifference, group_accuracy, paired_difference, worst_difference
from unspur.metrics.leakage import Leakage, NumericLeakage, leakage
from unspur.metrics.recovery import explained_variance, principal_angles, reconstruction_error, shared_variance
from unspur.metrics.scorers import GroupScorer, group_average_scorer, worst_group_scorer

__all__ = [
    "DescriptionLength",
    "GroupAccuracy",
    "GroupScorer",
    "Leakage",
    "NumericLeakage",
    "PairedDifference",
    "description_length",
    "explained_variance",
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
