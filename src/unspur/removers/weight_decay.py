"""Weight decay by the paper's rule: what the first directions lose on held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

#: Values to choose from: the paper's grid, with its 0 replaced by a value at which separable classes still have a
#: solution.
WEIGHT_DECAYS = (1.0, 0.1, 0.01, 0.001, 0.0001)
#: Share of the gain over chance that is not worth less decay. Where classes are separable, standard errors vanish with
#: the loss, and less decay would go on buying millionths of a nat for ever.
NEGLIGIBLE = 0.01
#: Held-out loss and its standard error.
Score: TypeAlias = tuple[float, float]


def choose_weight_decay(score: Callable[[float], Score], chance: float) -> tuple[float, dict[float, Score]]:
    """The largest value that is as good as the best, and the table it was chosen from.

    As good: its loss is within one standard error of the smallest, or within `NEGLIGIBLE` of what that gains over
    `chance`. Losses fall, then rise; once they clearly have risen, less decay only costs more (separable classes: much
    more), and once next to nothing is left to gain, no smaller value is tried.
    """
    scores: dict[float, Score] = {}
    for value in WEIGHT_DECAYS:
        loss, _ = scores[value] = score(value)
        if loss > sum(min(scores.values())) or loss <= NEGLIGIBLE * chance:
            break
    best, error = min(scores.values())
    enough = best + max(error, NEGLIGIBLE * (chance - best))
    return max(value for value, (loss, _) in scores.items() if loss <= enough), scores
