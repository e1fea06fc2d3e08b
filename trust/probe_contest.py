"""Hard rows for linear probes, drawn at random, and the linear probes of scikit-learn to compete with."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

#: What the features are before anything is done to them.
FEATURES = ("gaussian", "correlated", "heavy tails", "sparse", "binary", "nearly collinear")
#: What is done to them.
TROUBLES = (
    "none",
    "outliers, scaled",
    "outliers, anywhere",
    "outliers, one column",
    "one huge column",
    "mixed scales",
    "offset",
)
#: Rows that every probe is judged on.
FRESH = 20_000


@dataclass(frozen=True)
class Case:
    """One population: rows of it can be drawn again and again."""

    features: str
    trouble: str
    n: int
    d: int
    prevalence: tuple[float, ...]
    strength: float
    float32: bool
    removal: str
    seed: int

    @classmethod
    def drawn(cls, seed: int, **chosen: Any) -> Case:
        """The case of a number; `chosen` fixes some of its properties."""
        rng = np.random.default_rng([seed, 1])
        classes = int(rng.choice([2, 2, 2, 3, 5]))
        n = int(np.exp(rng.uniform(np.log(200), np.log(5000))))
        rare = float(rng.choice([1 / classes, 1 / classes, 0.1, 0.02]))
        rare = min(max(rare, 60 / n), 1 / classes)  # rows of it to learn from
        case = {
            "features": str(rng.choice(FEATURES)),
            "trouble": str(rng.choice(TROUBLES)),
            "n": n,
            "d": int(np.exp(rng.uniform(np.log(5), np.log(400)))),
            "prevalence": ((1 - rare) / (classes - 1),) * (classes - 1) + (rare,),
            "strength": float(rng.uniform(1.0, 5.0)),
            "float32": bool(rng.random() < 0.3),
            "removal": str(rng.choice(["none", "none", "LEACE", "JSE"])),
        }
        return cls(**{**case, **chosen}, seed=seed)

    def rows(self, n: int, draw: int, *, equal: bool = False) -> tuple[Any, Any, Any]:
        """Rows (n, d), their concept and a task that agrees with it in 70 % of them; `draw` numbers the sample.

        With `equal` all classes are equally frequent, so that a recall of a rare one is known as well as the others.
        """
        rng = np.random.default_rng([self.seed, 2])
        shape = self._population(rng)
        rng = np.random.default_rng([self.seed, 3, draw])
        k = len(self.prevalence)
        concept = rng.choice(k, size=n, p=None if equal else self.prevalence)
        concept[: 10 * k] = np.arange(10 * k) % k  # no class is left out, however rare
        y = np.where(rng.random(n) < 0.7, concept > 0, rng.random(n) < 0.5).astype(int)
        z = self._features(rng, concept, shape)
        z[:, -1] += 2.0 * y
        z = self._troubled(rng, z, shape)
        return (z.astype(np.float32) if self.float32 else z), concept, y

    def _population(self, rng: np.random.Generator) -> dict[str, Any]:
        """What all samples have in common."""
        d, k = self.d, len(self.prevalence)
        telling = rng.permutation(d) < rng.integers(1, d + 1)  # how many features differ between classes
        means = rng.standard_normal((k, d)) * telling
        means *= self.strength / np.sqrt(np.mean(np.sum((means - means.mean(axis=0)) ** 2, axis=1)) * 2 + 1e-12)
        mix = rng.standard_normal((d, d)) / np.sqrt(d)
        return {
            "means": means,
            "mix": mix * np.exp(rng.normal(0, 1, d)),
            "share": rng.uniform(0.02, 0.3, d),
            "column": int(rng.integers(d)),
            "power": float(rng.uniform(2, 6)),
            "scales": np.exp(rng.normal(0, 3, d)),
            "offset": 1e4 * rng.choice([-1.0, 1.0], d),
            "gap": 10.0 ** rng.uniform(-6, -2),
        }

    def _features(self, rng: np.random.Generator, concept: Any, shape: dict[str, Any]) -> Any:
        n, d = len(concept), self.d
        means = shape["means"][concept]
        if self.features == "heavy tails":
            return rng.standard_t(2.5, (n, d)) + means
        if self.features in ("sparse", "binary"):
            odds = np.log(shape["share"] / (1 - shape["share"])) + means
            on = rng.random((n, d)) < 1 / (1 + np.exp(-odds))
            return on * (rng.exponential(1.0, (n, d)) if self.features == "sparse" else 1.0)
        z = rng.standard_normal((n, d))
        if self.features == "correlated":
            return z @ shape["mix"] + means @ shape["mix"]
        if self.features == "nearly collinear":  # what tells the classes apart is the small difference of two columns
            half = d // 2
            z[:, half : 2 * half] = z[:, :half] + shape["gap"] * (z[:, half : 2 * half] + means[:, half : 2 * half])
            return z
        return z + means

    def _troubled(self, rng: np.random.Generator, z: Any, shape: dict[str, Any]) -> Any:
        n, d = z.shape
        far = rng.random(n) < 0.02
        size = 10.0 ** shape["power"]
        if self.trouble == "outliers, scaled":
            z[far] *= size
        elif self.trouble == "outliers, anywhere":
            z[far] = size * rng.standard_normal((int(far.sum()), d))
        elif self.trouble == "outliers, one column":
            z[far, shape["column"]] = size * rng.standard_normal(int(far.sum()))
        elif self.trouble == "one huge column":
            z[:, shape["column"]] *= size
        elif self.trouble == "mixed scales":
            z *= shape["scales"]
        elif self.trouble == "offset":
            z += shape["offset"]
        return z


def peers(z: Any, concept: Any, fresh: Any, truth: Any) -> dict[str, float]:
    """Balanced accuracy on fresh rows of scikit-learn's linear classifiers, trained for equal weight of all classes."""
    k = len(np.unique(concept))
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    equal = np.full(k, 1 / k)
    models = {
        "scaled logistic regression": make_pipeline(
            StandardScaler(),
            LogisticRegressionCV(
                Cs=(1e-4, 1e-2, 1.0, 1e2), cv=folds, class_weight="balanced", scoring="balanced_accuracy", max_iter=300
            ),
        ),
        "LDA": LinearDiscriminantAnalysis(priors=equal),
        "LDA, shrinkage": LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto", priors=equal),
    }
    found = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for name, model in models.items():
            try:
                found[name] = balanced_accuracy_score(truth, model.fit(z, concept).predict(fresh))
            except (ValueError, np.linalg.LinAlgError):  # a method that gives up has found nothing
                found[name] = 1 / k
    return found
