"""The script that wrote the files beside it, run once with the code of commit 67077c0.

Every file must load with all later versions, and transform rows as it did then. Do not run it again with newer code.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from unspur import INLP, JSE, LEACE, RLACE, SAL, SPLINCE

HERE = Path(sys.argv[1])
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

removers = {
    "jse": (JSE(random_state=0), concept),
    "jse-sgd": (
        JSE(
            solver="sgd",
            penalty=0.01,
            learning_rate=0.05,
            momentum=0.8,
            batch_size=64,
            max_epochs=5,
            patience=2,
            random_state=0,
        ),
        concept,
    ),
    "jse-paper": (
        JSE(
            inner="spurious",
            candidate="failing",
            scalars="training",
            tests="plain",
            balance="none",
            cv=None,
            validation_fraction=0.4,
            delta=0.01,
            penalty=0.1,
            random_state=0,
        ),
        concept,
    ),
    "jse-scores": (JSE(orthogonality="scores", correction="looks", output="onto_main", random_state=0), concept),
    "jse-several": (JSE(random_state=0), pd.DataFrame({"place": concept, "season": season})),
    "inlp": (INLP(random_state=0), concept),
    "inlp-sgd": (INLP(solver="sgd", penalty=0.01, max_epochs=5, random_state=0), concept),
    "rlace": (RLACE(random_state=0), concept),
    "rlace-sgd": (RLACE(solver="sgd", rank=1, max_iter=300, learning_rate=0.01, random_state=0), concept),
    "leace": (LEACE(balance="concept"), concept),
    "sal": (SAL(), season),
    "splince": (SPLINCE(), concept),
}

expected = {"rows": Z[:4].tolist()}
for name, (remover, labels) in removers.items():
    part, rest = labels[train], labels[test]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        remover.fit(Z[train], y[train], concept=part)
        certificate = remover.certificate(Z[test], y[test], rest, random_state=0)
    remover.save(HERE / f"{name}.safetensors")
    trace = remover.trace_.to_dict()
    expected[name] = {
        "transform": remover.transform(Z[:4]).tolist(),
        "parameters": {k: v for k, v in remover.get_params().items() if v is None or isinstance(v, int | float | str)},
        "trace": trace,
        "certificate": certificate.to_dict(),
        "classes": [str(c) for c in getattr(remover, "classes_", ())],
    }
(HERE / "expected.json").write_text(json.dumps(expected, indent=1, default=str) + "\n")
