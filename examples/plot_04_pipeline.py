"""
In a scikit-learn pipeline
==========================

A remover is a transformer, so it works in pipelines, cross-validation and parameter searches. scikit-learn's metadata
routing passes the concept labels along.
"""

# %%
# Route the concept
# -----------------
# With routing enabled, `concept` is passed to every step that requests it. Removers and heads of unspur request
# it by themselves. Other steps do not see it.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import sklearn
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline

from unspur import JSE, LEACE
from unspur.datasets import embed_images, make_photodigits
from unspur.metrics import group_accuracy

sklearn.set_config(enable_metadata_routing=True)
train = make_photodigits("train", agreement=0.85, repeats=2, random_state=0)
Z, y, photograph = embed_images(train.images, filters=8), train.y, train.concept

pipe = make_pipeline(PCA(40, random_state=0), JSE(random_state=0), LogisticRegression(max_iter=2000))
pipe.fit(Z, y, concept=photograph)

# %%
# Score what matters
# ------------------
# The folds have the correlation of the training rows, so plain accuracy rewards relying on the photograph. The accuracy
# of the worst group does not. The scorer requests the concept too.


def worst_group(y_true, y_predicted, concept):
    """Accuracy in the group (task, concept) where it is lowest."""
    return group_accuracy(y_true, y_predicted, concept).worst


scoring = {
    "average": "accuracy",
    "worst group": make_scorer(worst_group).set_score_request(concept=True),
}

# %%
# Cross-validate
# --------------
# Folds are stratified by group, so that each contains rows of the rare groups.

group = 2 * y + photograph
folds = list(StratifiedKFold(3, shuffle=True, random_state=0).split(Z, group))
steps = {"no removal": "passthrough", "LEACE": LEACE(), "JSE": JSE(random_state=0)}
scores = {}
for name, remover in steps.items():
    pipe = make_pipeline(PCA(40, random_state=0), remover, LogisticRegression(max_iter=2000))
    scores[name] = cross_validate(pipe, Z, y, params={"concept": photograph}, cv=folds, scoring=scoring)
table = pd.DataFrame({name: {what: score[f"test_{what}"].mean() for what in scoring} for name, score in scores.items()})
table.T.round(3)

# %%

fig, ax = plt.subplots(figsize=(7, 3.4))
for k, (name, colour) in enumerate(zip(steps, ("#6E6E6E", "#0072B2", "#00795A"), strict=True)):
    for at, what in enumerate(scoring):
        values = 100 * scores[name][f"test_{what}"]
        ax.plot(at + (k - 1) * 0.2 + np.linspace(-0.04, 0.04, len(values)), values, "o", color=colour, ms=5, alpha=0.7)
        ax.hlines(values.mean(), at + (k - 1) * 0.2 - 0.08, at + (k - 1) * 0.2 + 0.08, color=colour, lw=2)
    ax.plot([], [], "o-", color=colour, label=name)
ax.set_xticks(range(len(scoring)), scoring)
ax.set(ylabel="accuracy, %", title="Three folds (dots) and their mean (lines)", xlim=(-0.5, 1.5))
ax.legend(loc="lower left")

# %%
# Search
# ------
# Parameters of any step can be searched as usual, here the penalties of JSE and of the head.

search = GridSearchCV(
    make_pipeline(PCA(40, random_state=0), JSE(random_state=0), LogisticRegression(max_iter=2000)),
    {"jse__penalty": [0.1, 0.01], "logisticregression__C": [0.1, 10.0]},
    scoring=scoring["worst group"],
    cv=folds,
)
search.fit(Z, y, concept=photograph)
found = pd.DataFrame(search.cv_results_)
found[["param_jse__penalty", "param_logisticregression__C", "mean_test_score", "std_test_score"]].round(3)

# %%
# On test pictures, where photograph and digit are independent:

test = make_photodigits("test", agreement=0.5, random_state=2)
accuracy = group_accuracy(test.y, search.predict(embed_images(test.images, filters=8)), test.concept)
print(f"chosen: {search.best_params_}; average {accuracy.average:.1%}, worst group {accuracy.worst:.1%}")
