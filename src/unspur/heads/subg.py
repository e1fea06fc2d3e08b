"""SUBG: ERM on groups cut to the size of the smallest."""

from __future__ import annotations

import numpy as np

from unspur.heads.base import TrainedHead
from unspur.heads.inputs import HeadData
from unspur.options import SGD
from unspur.solvers.softmax import LinearModel


class SUBG(TrainedHead):
    """Logistic regression on as many rows of every group (main, concept) as the smallest group has.

    Rows are drawn once, without replacement; groups without rows are left out. Sample weights count within what was
    drawn. SGD stops early on the mean held-out loss of the groups.

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
        Draws the rows, what SGD holds out, and its minibatches.

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
    drawn_ : integer array
        The rows that were drawn, by position.
    """

    def _train(self, data: HeadData, rng: np.random.Generator) -> LinearModel:
        train, held_out = (data.train, None) if SGD.of(self.solver) is None else self._held_out(data, rng)
        self.drawn_ = train.equal_groups(rng)
        subsample = train.only(self.drawn_)
        if held_out is None:
            return self._exact(subsample)
        return self._sgd(subsample, held_out, rng, watch="groups")
