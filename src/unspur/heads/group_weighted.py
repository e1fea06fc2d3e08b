"""Group-weighted ERM: every group counts the same."""

from __future__ import annotations

import numpy as np

from unspur.heads.base import HeadData, TrainedHead
from unspur.options import SGD
from unspur.solvers.softmax import LinearModel


class GroupWeighted(TrainedHead):
    """Logistic regression in which every group (main, concept) gets the same total weight.

    ::

        minimise    1/G Σ_g mean_g ℓ(z · w + b, y)  +  λ/2 ‖w‖²

    Groups without rows are left out. SGD draws its batches by these weights, and stops early on the mean held-out loss
    of the groups.

    Parameters
    ----------
    {shared_parameters}

    Attributes
    ----------
    {shared_attributes}
    concept_classes_ : tuple
        Classes of the concept, in their order.
    group_counts_ : array of shape (n_classes, n_concepts)
        Rows trained on in each group.
    """

    def _train(self, data: HeadData, rng: np.random.Generator) -> LinearModel:
        self.group_counts_ = data.train.counts.reshape(data.train.shape)
        if SGD.of(self.solver) is None:
            return self._exact(data.train, balanced=True)
        return self._sgd(*self._held_out(data, rng), rng, balanced=True, watch="groups")
