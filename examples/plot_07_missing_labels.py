"""
When few rows have a known concept
==================================

All rows have a task label, but few have a concept label. Rows without one are left out of the fit of the removal. They
are transformed like all others and used to train the head.
"""

# %%
# Leave missing labels missing
# ----------------------------
# A missing label is ``NaN`` or ``None``, or the value of ``missing_concept``.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA

from unspur import ERM, JSE, SUBG
from unspur.datasets import embed_images, make_photodigits
from unspur.exceptions import TaskLostWarning
from unspur.metrics import group_accuracy

train = make_photodigits("train", agreement=0.85, random_state=0)
test = make_photodigits("test", agreement=0.5, random_state=2)
pca = PCA(40, random_state=0).fit(embed_images(train.images))
Z, Z_test = (pca.transform(embed_images(split.images)) for split in (train, test))


def with_gaps(concept, known, seed):
    """The concept of `known` rows, drawn at random, and NaN for all others."""
    rng = np.random.default_rng(seed)
    gaps = np.full(len(concept), np.nan)
    rows = rng.permutation(len(concept))[:known]
    gaps[rows] = concept[rows]
    return gaps


partly = with_gaps(train.concept, 300, seed=0)
print(f"{np.isfinite(partly).sum()} of {len(partly)} rows have a known concept")
jse = JSE(random_state=0).fit(Z, train.y, concept=partly)
print(jse.spurious_)

# %%
# How many are enough?
# --------------------
# For each number, the rows with a known concept are drawn three times. The removal is estimated from those rows, and
# the head is trained on all rows. SUBG, which subsamples every group to the size of the smallest, can only
# learn from rows whose group is known.

warnings.simplefilter("ignore", TaskLostWarning)  # said of some fits on few rows, and worth a look outside of a loop
numbers = (200, 400, 800, 1600)
worst = {"JSE": [], "SUBG": []}
for known in numbers:
    scores = {name: [] for name in worst}
    for seed in range(3):
        concept = with_gaps(train.concept, known, seed)
        remover = JSE(random_state=0).fit(Z, train.y, concept=concept)
        after = ERM().fit(remover.transform(Z), train.y)
        guesses = {
            "JSE": after.predict(remover.transform(Z_test)),
            "SUBG": SUBG(random_state=0).fit(Z, train.y, concept=concept).predict(Z_test),
        }
        for name, guess in guesses.items():
            scores[name].append(group_accuracy(test.y, guess, test.concept).worst)
    for name, values in scores.items():
        worst[name].append(values)
plain = group_accuracy(test.y, ERM().fit(Z, train.y).predict(Z_test), test.concept).worst

# %%

fig, ax = plt.subplots(figsize=(7, 4))
for (name, values), colour in zip(worst.items(), ("#00795A", "#E69F00"), strict=True):
    ax.plot(numbers, 100 * np.mean(values, axis=1), color=colour, label=name)
    for column in np.transpose(values):
        ax.plot(numbers, 100 * column, "o", color=colour, ms=4, alpha=0.6)
ax.axhline(100 * plain, color="#6E6E6E", ls="--", label="no removal")
ax.set_xscale("log")
ax.set_xticks(numbers, [f"{number:,}" for number in numbers])
ax.minorticks_off()
ax.set(xlabel=f"rows with a known concept, of {len(Z):,}", ylabel="accuracy of the worst group, %")
ax.set_title("Three draws (dots) and their mean (lines)")
ax.legend()

# %%
# Which of the two is better depends on the data. :doc:`/evidence/frozen-networks` has such figures for birds and faces.
