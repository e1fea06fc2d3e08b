"""SUBG: ERM on groups cut to the size of the smallest."""

from __future__ import annotations

import numpy as np

from unspur.heads.base import HeadData, TrainedHead
from unspur.options import SGD
from unspur.solvers.softmax import LinearModel


class SUBG(TrainedHead):
    """Logistic regression on as many rows of every group (main, concept) as the smallest group has.

    Rows are drawn once, without replacement; groups without rows are left out. Sample weights count within what was
    drawn. SGD stops early on the mean held-out loss of the groups.

    Parameters
    ----------
    {shared_parameters}

    Attributes
    ----------
    {shared_attributes}
    concept_classes_ : tuple
        Classes of the concept, in their order.
    drawn_ : integer array
        The rows that were drawn, by position.
    """

    def _train(self, data: HeadData, rng: np.random.Generator) -> LinearModel:
        train, held_out = (data.train, None) if SGD.of(self.solver) is None else self._held_out(data, rng)
        self.drawn_ = train.subsample_groups(rng)
        subsample = train.only(self.drawn_)
        if held_out is None:
            return self._exact(subsample)
        return self._sgd(subsample, held_out, rng, watch="groups")
