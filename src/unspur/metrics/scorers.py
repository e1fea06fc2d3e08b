"""Scorers for scikit-learn's searches and cross-validation: accuracy of the worst group, and mean over groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sklearn.utils.metadata_routing import MetadataRequest

from unspur._typing import Array
from unspur.exceptions import ArgumentError, InputError
from unspur.metrics.groups import Empty, group_accuracy


@dataclass(frozen=True)
class GroupScorer:
    """Scorer by group, called as ``scorer(estimator, X, y, concept=concept)``; larger is better.

    Pass it as `scoring` to ``GridSearchCV``, ``cross_validate`` and the like, with
    ``sklearn.set_config(enable_metadata_routing=True)``. It requests `concept` by itself. The ready ones are
    ``worst_group_scorer`` and ``group_average_scorer``.

    Parameters
    ----------
    statistic : {"worst", "group_average"}, default="worst"
        Accuracy of the worst group, or the mean of the group accuracies.
    missing_concept : scalar or None, default=None
        Value of `concept` that means "not known", besides NaN and None. Such rows are in no group.
    empty : {"error", "nan"}, default="error"
        Whether a group without rows, such as in a small fold, is an error or left out.
    concept_classes : tuple, default=()
        All classes of the concept; for several concepts a tuple of classes for each. A fold of which no row has one of
        them has empty groups. A scorer sees one fold only, and does not miss a class that it is not told of. Classes of
        `y` are those of the estimator.

    Examples
    --------
    >>> from unspur import RobustClassifier
    >>> from unspur.datasets import make_toy
    >>> from unspur.metrics import worst_group_scorer
    >>> train, test = (make_toy(1000, rho=rho, random_state=0) for rho in (0.8, 0.0))
    >>> model = RobustClassifier(random_state=0).fit(train.Z, train.y, concept=train.concept)
    >>> bool(worst_group_scorer(model, test.Z, test.y, concept=test.concept) > 0.6)
    True
    """

    statistic: Literal["worst", "group_average"] = "worst"
    missing_concept: Any = None
    empty: Empty = "error"
    concept_classes: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if self.statistic not in ("worst", "group_average"):
            raise InputError(f"statistic is 'worst' or 'group_average'; got {self.statistic!r}.")

    def __call__(self, estimator: Any, X: Array, y: Array, *, concept: Array | None = None) -> float:
        """The score of a fitted estimator on these rows."""
        if concept is None:
            raise ArgumentError(
                "A score by group needs the concept of every row, and got none. Call "
                "sklearn.set_config(enable_metadata_routing=True), and pass concept= to `fit` of the search, or "
                "params={'concept': concept} to cross_validate."
            )
        found = group_accuracy(
            y,
            estimator.predict(X),
            concept,
            missing_concept=self.missing_concept,
            empty=self.empty,
            classes=getattr(estimator, "classes_", ()),
            concept_classes=self.concept_classes,
        )
        return float(getattr(found, self.statistic))

    def get_metadata_routing(self) -> MetadataRequest:
        """What scikit-learn passes on: `concept`, without a request by the user."""
        request = MetadataRequest(owner=type(self).__name__)
        request.score.add_request(param="concept", alias=True)
        return request


#: Accuracy of the worst group.
worst_group_scorer = GroupScorer("worst")
#: Mean of the accuracies of all groups.
group_average_scorer = GroupScorer("group_average")
