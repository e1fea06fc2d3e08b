"""
Methods compared on the same rows
=================================

:func:`unspur.compare.compare` fits removers and heads on the same rows and reports the accuracy of every
combination by group. On the command line this is ``unspur compare``.
"""

# %%
# The rows are :doc:`digits on photographs <plot_02_digits_on_photographs>` where the two agree in nine of ten training
# pictures.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA

from unspur.compare import compare
from unspur.datasets import embed_images, make_photodigits

pictures = {
    "train": make_photodigits("train", agreement=0.9, random_state=0),
    "validation": make_photodigits("validation", agreement=0.9, random_state=1),
    "test": make_photodigits("test", agreement=0.5, random_state=2),
}
features = {name: embed_images(split.images) for name, split in pictures.items()}
pca = PCA(100, random_state=0).fit(features["train"])
rows = {name: (pca.transform(features[name]), split.y, split.concept) for name, split in pictures.items()}

# %%
# Removers, each followed by an unweighted head
# ---------------------------------------------
# ``balance`` weights the rows when a removal is estimated. Either all rows have the same weight, as in the published
# closed forms, or the four groups (digit, photograph), which is the default of JSE. This can matter more than the
# method. If all rows have the same weight, much of the covariance with the photograph is covariance with the digit,
# because the two are correlated. Erasing it then erases the digit.
#
# "none" removes nothing. "JSE (metric 1)" is JSE with uncorrelated scores instead of orthogonal weights.

methods = ["none", "JSE", "JSE (metric 1)", "INLP", "LEACE", "SPLINCE"]
results = {
    balance: compare(rows["train"], rows["test"], rows["validation"], methods, ["ERM"], balance=balance)
    for balance in ("none", "group")
}
for balance, compared in results.items():
    print("all rows alike" if balance == "none" else "the four groups alike")
    for result in compared:
        accuracy = f"average {result.accuracy.average:.1%}, worst group {result.accuracy.worst:.1%}"
        print(f"{result.remover:>10}: directions removed: {result.n_removed:2d}, {accuracy}")

# %%
# Bars show the worst group, with an interval that holds for the worst of four. Circles show the average over test rows.


def draw(ax, compared, at, **look):
    """Worst group and average of each result."""
    worst = np.array([result.accuracy.worst for result in compared])
    bounds = np.array([result.accuracy.worst_interval() for result in compared])
    ax.bar(at, 100 * worst, yerr=100 * np.abs(bounds.T - worst), error_kw={"lw": 1}, **look)
    ax.plot(at, [100 * result.accuracy.average for result in compared], "o", mfc="white", mec="black", ms=5)


at = np.arange(len(methods))
fig, ax = plt.subplots(figsize=(8, 4))
draw(ax, results["none"], at - 0.2, width=0.38, color="#9EC5E8", label="all rows alike")
draw(ax, results["group"], at + 0.2, width=0.38, color="#00795A", label="the four groups alike")
ax.set_xticks(at, ["no removal", *methods[1:]])
ax.set(ylim=(0, 119), yticks=range(0, 101, 20), ylabel="accuracy, %", title="Worst group (bars) and average (circles)")
ax.legend(ncols=2, loc="upper center")

# %%
# Classifiers trained with concept labels
# ---------------------------------------
# These change the head and leave the rows alone. With one task, and concept labels for all training rows, they
# may do as well or better. The embedding still contains the concept.

heads = ["ERM", "GroupWeighted", "SUBG", "DFR"]
reweighted = compare(rows["train"], rows["test"], rows["validation"], ["none"], heads)
both = compare(rows["train"], rows["test"], rows["validation"], ["JSE"], heads)

at = np.arange(len(heads))
fig, ax = plt.subplots(figsize=(8, 4))
draw(ax, reweighted, at - 0.2, width=0.38, color="#6E6E6E", label="no removal")
draw(ax, both, at + 0.2, width=0.38, color="#00795A", label="after JSE")
ax.set_xticks(at, heads)
ax.set(ylim=(0, 119), yticks=range(0, 101, 20), ylabel="accuracy, %", title="Worst group (bars) and average (circles)")
ax.legend(ncols=2, loc="upper center")

# %%
# One draw of one small data set shows how a comparison is made, not which method is best.
# :doc:`/evidence/decision-tables` has the comparisons on real data, with their intervals.
