"""Writes the files beside it: ``python -m tests.golden.artifacts.write``.

From the first published version on, every file must load with all later versions, and transform rows as it did when it
was written. Until then they are written anew when the format changes.
"""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from unspur import JSE, LEACE, RobustClassifier

HERE = Path(__file__).parent
rng = np.random.default_rng(67077)
n, d = 600, 6
y, concept = rng.integers(2, size=(2, n))
concept = np.where(rng.random(n) < 0.5, y, concept)
season = np.array(["winter", "spring", "summer"])[rng.integers(3, size=n)]
Z = rng.standard_normal((n, d))
Z[:, 0] += 1.5 * (2 * concept - 1)
Z[:, 1] += 1.5 * (2 * y - 1)
Z[:, 2] += 2.0 * (season == "winter")
train, test = slice(0, 400), slice(400, None)

MODELS = {
    "jse-several": (JSE(random_state=0), pd.DataFrame({"place": concept, "season": season})),
    "leace": (LEACE(balance="concept"), concept),
    "classifier": (RobustClassifier(random_state=0), concept),
}


def main() -> None:
    """Write the files, and what they must give."""
    expected = {"rows": Z[:4].tolist()}
    for name, (model, labels) in MODELS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(Z[train], y[train], concept=labels[train])
            certificate = model.certificate(Z[test], y[test], labels[test], random_state=0)
        model.save(HERE / f"{name}.safetensors", overwrite=True)
        removal = getattr(model, "remover_", model)
        expected[name] = {
            "transform": model.transform(Z[:4]).tolist(),
            "removed": removal.n_removed_,
            "rank": certificate.rank,
        }
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
