"""Group-weighted ERM: every group counts the same."""

from __future__ import annotations

import numpy as np

from unspur.heads.base import TrainedHead
from unspur.heads.inputs import HeadData
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
    weight_decay : float, default=0.01
        Penalty λ in units of the mean variance of the rows that are trained on (absolute for SGD).
    solver : "exact", "sgd" or SGD, default="exact"
        Solve to `tol`, or train by the paper's minibatch SGD with early stopping on held-out rows.
    missing_concept : scalar or None, default=None
        Value of `concept` that means "not known", besides NaN and None.
    validation_fraction : float, default=0.2
        Share of every group that SGD holds out for early stopping when no X_val is passed.
    tol : float, default=1e-6
        Relative gradient norm at which the exact solver stops.
    max_iter : int, default=1000
        Most iterations of the exact solver.
    random_state : int, RandomState or None, default=None
        Draws what SGD holds out, and its minibatches.

    Attributes
    ----------
    coef_, intercept_ : arrays of shape (k, d) and (k,)
        k = 1 for two classes, else one line per class.
    classes_ : array
        Classes of y, in their order.
    outcome_ : FitOutcome
        Whether the solver converged, why it stopped, and what it cost.
    n_iter_ : int
        Evaluations of the objective, or epochs of SGD.
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
