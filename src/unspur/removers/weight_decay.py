"""Weight decay by the paper's rule: what the first directions lose on held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

#: Values to choose from: the paper's grid, with its 0 replaced by a value at which separable classes still have a
#: solution.
WEIGHT_DECAYS = (1.0, 0.1, 0.01, 0.001, 0.0001)
#: Held-out loss and its standard error.
Score: TypeAlias = tuple[float, float]


def choose_weight_decay(score: Callable[[float], Score]) -> tuple[float, dict[float, Score]]:
    """The largest value whose loss is within one standard error of the smallest, and the table it was chosen from.

    Losses fall, then rise; once they clearly have risen, less decay only costs more (separable classes: much more).
    """
    scores: dict[float, Score] = {}
    for value in WEIGHT_DECAYS:
        scores[value] = score(value)
        if scores[value][0] > sum(min(scores.values())):
            break
    best, error = min(scores.values())
    return max(value for value, (loss, _) in scores.items() if loss <= best + error), scores
