"""The metric of the constraint and that of the penalty, one at a time: the evidence that they should go together.

    python reproduction/scripts/metric_penalty.py --embeddings unspur-embeddings --output unspur-results/metric-penalty.jsonl
    python reproduction/scripts/metric_penalty.py --page unspur-results/metric-penalty.jsonl

`JSE(metric=τ)` asks for ``w_sᵀ M(τ) w_y = 0`` and penalises ``wᵀ M(τ) w``. Here the two have metrics of their own. The
problem is then no longer diagonal in any coordinates, so it is solved by plain L-BFGS on ``w_y = u − P u`` with P the
projection onto w_s, from the solution of the usual problem. Everything else is the product's: weight decay, tests, loops,
and the group-weighted layer of the study in regret.py, whose runs these are.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from regret import Run, splits
from scipy.optimize import minimize

from unspur import JSE
from unspur.compare import fit_remover, tune_named_head
from unspur.metrics import group_accuracy
from unspur.removers.joint import ExactSolver
from unspur.selection import penalty_grid
from unspur.solvers.coordinates import Geometry, Metric
from unspur.solvers.descent import Outcome
from unspur.solvers.orthogonal_pair import Pair, PairSpace
from unspur.subspace import Subspace

#: Metric of the constraint and of the penalty.
PAIRS = ((0.0, 0.0), (0.25, 0.25), (0.25, 0.0), (0.0, 0.25), (1.0, 1.0), (1.0, 0.0))
RUNS = [
    *(Run(name, p, k) for name in ("birds-tuned", "pairs-tuned") for p in (0.9, 0.7) for k in range(2)),
    *(Run("toy", rho, k) for rho in (0.5, 0.9) for k in range(3)),
]


@dataclass(frozen=True, slots=True)
class MixedSolver:
    """Pairs with a quadratic penalty of its own, ``decay/2 · aᵀ P a`` in the coordinates of the exact solver."""

    exact: ExactSolver
    penalty: np.ndarray

    @property
    def space(self) -> PairSpace:
        return self.exact.space

    def __call__(self, excluded: Sequence[Subspace], near: Any = None) -> list[Pair]:
        starts = self.exact(excluded, near)
        spaces = [self.space.excluding(subspace) for subspace in excluded]
        return [self._solve(k, space, start) for k, (space, start) in enumerate(zip(spaces, starts, strict=True))]

    def _solve(self, k: int, space: PairSpace, start: Pair) -> Pair:
        decay, spectrum, r = self.space.decay, self.space.spectrum, len(self.penalty)
        scale = 1.0 / np.sqrt(0.25 * spectrum.variance + decay * np.diag(self.penalty))

        def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
            s, u = (space.project(scale * part) for part in (flat[:r], flat[r : 2 * r]))
            size = max(float(s @ s), 1e-300)
            share = float(s @ u) / size
            y = u - share * s
            x = np.concatenate([s, y, flat[-2:]])
            losses, gradient = self.exact.losses(x[None], [k])
            to_s, to_y = (
                gradient[0, :r] + decay * (self.penalty @ s),
                gradient[0, r : 2 * r] + decay * (self.penalty @ y),
            )
            along = float(s @ to_y)
            value = float(losses.sum()) + 0.5 * decay * float(s @ self.penalty @ s + y @ self.penalty @ y)
            back_s = to_s - share * to_y - along * (u - 2.0 * share * s) / size
            back_u = to_y - along * s / size
            parts = (scale * space.project(part) for part in (back_s, back_u))
            return value, np.concatenate([*parts, gradient[0, -2:]])

        begin = np.concatenate([*(space.coordinates(line) / scale for line in start.weights), start.intercepts])
        found = minimize(
            objective, begin, jac=True, method="L-BFGS-B", options={"maxiter": 500, "gtol": 1e-6, "ftol": 1e-10}
        )
        s, u = (space.project(scale * part) for part in (found.x[:r], found.x[r : 2 * r]))
        y = u - s * float(s @ u) / max(float(s @ s), 1e-300)
        outcome = Outcome(True, "L-BFGS", float(found.fun), 0.0, int(found.nfev))
        return Pair(spectrum.weights(np.stack([s, y])), found.x[-2:], outcome)


class MixedJSE(JSE):
    """JSE whose penalty has a metric of its own."""

    def __init__(self, *, metric: float = 0.25, penalty_metric: float = 0.25, random_state: Any = None):
        super().__init__(metric=metric, random_state=random_state)
        self.penalty_metric = penalty_metric

    def _solver_factory(self, data: Any, spectrum: Any, root: Any, rng: Any) -> Callable[[float, float], Any]:
        make = super()._solver_factory(data, spectrum, root, rng)
        counts = data.counts
        rows = Geometry.of_rows(data.rows, counts.weighting(counts.estimated_on, "none"))
        matrix = np.linalg.pinv(Metric.of(rows.centre, rows.second, self.penalty_metric, rows.rank).root)
        matrix = matrix @ matrix
        balanced = Geometry.of_rows(data.rows, counts.weighting(counts.estimated_on, self.balance))
        variance = float(np.trace(np.linalg.pinv(matrix) @ balanced.second)) / balanced.rank
        penalty = variance / spectrum.unit**2 * (spectrum.loadings.T @ matrix @ spectrum.loadings)
        return lambda value, tol: MixedSolver(make(value, tol), penalty)


def evaluate(run: Run, embeddings: Path) -> list[dict[str, Any]]:
    warnings.simplefilter("ignore")
    train, validation, test = splits(run, embeddings)
    penalties, lines = penalty_grid(train.Z), []
    for constraint, penalty in PAIRS:
        same = constraint == penalty
        jse = JSE(metric=constraint, random_state=run.number)
        if not same:
            jse = MixedJSE(metric=constraint, penalty_metric=penalty, random_state=run.number)
        fit_remover(jse, train.labelled(), validation.labelled())
        left = [replace(rows, Z=jse.transform(rows.Z)) for rows in (train, validation, test)]
        chosen = tune_named_head("GroupWeighted", left[0].labelled(), left[1].labelled(), run.number, penalties)
        found = group_accuracy(left[2].y, chosen.head.predict(left[2].Z), left[2].concept)
        lines.append(
            {
                **{"set": run.set, "strength": run.strength, "run": run.number},
                **{"constraint": constraint, "penalty": penalty, "removed": jse.spurious_.dim},
                **{"worst": round(float(found.worst), 5), "average": round(float(found.average), 5)},
            }
        )
        print(json.dumps(lines[-1]), flush=True)
    return lines


PAGE = Path(__file__).parents[1] / "docs" / "metric-penalty.md"
TEXT = """# Constraint and penalty, each in a metric of its own

<!-- written by reproduction/scripts/metric_penalty.py; do not edit -->

`JSE(metric=τ)` uses M(τ) twice: the two directions are orthogonal in it, and the penalty is `wᵀ M(τ) w`. Which of the
two brings the gain? Here each has a metric of its own. Worst-group accuracy in percent after a group-weighted head, as
in [regret](regret.md), with the mean number of directions removed in brackets; two networks or three Toy draws a cell.

{table}

The constraint decides. With the constraint at τ = 0.25 the metric of the penalty makes no clear difference, and with
the constraint at τ = 0 a penalty at τ = 0.25 gains nothing on fine-tuned networks. At τ = 1 a Euclidean penalty is
sometimes better and sometimes worse. So both stay together, which needs no second parameter and keeps the problem
diagonal. The cells are few; differences of one or two points are within their noise.
"""


def page(path: Path) -> str:
    """The page, from the records."""
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    sets = sorted({(line["set"], line["strength"]) for line in lines})
    rows = ["| constraint τ, penalty τ | " + " | ".join(f"{name} {p:g}" for name, p in sets) + " |"]
    rows.append("| --- |" + " ---: |" * len(sets))
    for pair in PAIRS:
        cells = []
        for where in sets:
            own = [
                line
                for line in lines
                if (line["set"], line["strength"]) == where and (line["constraint"], line["penalty"]) == pair
            ]
            worst, removed = (np.mean([line[name] for line in own]) for name in ("worst", "removed"))
            cells.append(f"{100 * worst:.1f} ({removed:.1f})")
        rows.append(f"| {pair[0]:g}, {pair[1]:g} | " + " | ".join(cells) + " |")
    return TEXT.format(table="\n".join(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--embeddings", type=Path, default=Path("unspur-embeddings"))
    parser.add_argument("--output", type=Path, default=Path("unspur-results/metric-penalty.jsonl"))
    parser.add_argument("--page", type=Path, help="write the page from these records")
    given = parser.parse_args()
    if given.page is not None:
        PAGE.write_text(page(given.page), encoding="utf-8")
        return
    given.output.parent.mkdir(exist_ok=True)
    with given.output.open("a") as file:
        for run in RUNS:
            file.writelines(json.dumps(line) + "\n" for line in evaluate(run, given.embeddings))
            file.flush()


if __name__ == "__main__":
    main()
