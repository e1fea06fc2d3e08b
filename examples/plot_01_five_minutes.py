"""
Five minutes: remove a concept, keep the task
=============================================

Two labels are correlated. A head trained for one of them relies on the other, and fails where they disagree.
Joint Subspace Estimation finds the directions of both and removes only those of the spurious one.
"""

# %%
# Rows with two labels
# --------------------
# :func:`~unspur.datasets.make_toy` draws the paper's Toy data: twenty features, of which the first carries the
# concept and the second the task. In training the two features are correlated; in the test rows they are not.

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np

from unspur import ERM, JSE
from unspur.datasets import make_toy
from unspur.metrics import group_accuracy
from unspur.report import figures

train = make_toy(2000, rho=0.9, random_state=4)
test = make_toy(20_000, rho=0.0, random_state=1)
print(f"train: {train.Z.shape}, task and concept agree in {np.mean(train.y == train.concept):.0%} of the rows")
print(f"test:  {test.Z.shape}, task and concept agree in {np.mean(test.y == test.concept):.0%} of the rows")

# %%
# Fit, and read the trace
# -----------------------
# Each line of the trace is a direction, tested on rows it was not estimated from. A direction is *proper* if it
# is informative about its own label, and more so than about the other label.

jse = JSE(random_state=0).fit(train.Z, train.y, concept=train.concept)
print(jse.spurious_, jse.main_)
print(jse.trace_)

# %%
# The same as a figure. A test is passed if its statistic lies beyond the threshold.

ladder = figures.ladder(jse.trace_, width="page")

# %%
# The data are synthetic, so we know the true axes and can compute how far off the estimates are:

for name, found, axis in (("concept", jse.spurious_, train.spurious_axis), ("task", jse.main_, train.main_axis)):
    cosine = np.linalg.norm(found.basis.T @ axis) / np.linalg.norm(axis)
    print(f"{name}: {np.degrees(np.arccos(min(1, cosine))):.1f}° between the true axis and the subspace that was found")

# %%
# Before and after
# ----------------
# `transform` keeps the shape of the rows. Nothing is left along the concept's direction, and
# nothing has changed along the task's direction.

clean = jse.transform(test.Z)
colours = {(0, 0): "#0072B2", (0, 1): "#56B4E9", (1, 0): "#E69F00", (1, 1): "#D55E00"}
directions = np.column_stack([jse.spurious_.basis[:, 0], jse.main_.basis[:, 0]])
fig, (left, right) = plt.subplots(1, 2, figsize=(8, 4), sharey=True, width_ratios=(3, 2))
before, after = ((Z - jse.removal_.centre) @ directions for Z in (test.Z, clean))
for (y, concept), colour in colours.items():
    rows = np.flatnonzero((test.y == y) & (test.concept == concept))
    name = f"task {y}, concept {concept}"
    left.scatter(*before[rows[:300]].T, s=8, color=colour, alpha=0.7, lw=0, label=name)
    right.hist(after[rows, 1], bins=40, density=True, histtype="step", lw=1.5, color=colour, orientation="horizontal")
left.set(title="before", xlabel="along the concept", ylabel="along the task")
right.set(title="after: nothing else is left to see", xlabel="share of each group", xticks=[])
print(
    f"largest score along the concept: {np.abs(before[:, 0]).max():.1f} before, {np.abs(after[:, 0]).max():.0e} after"
)
fig.legend(loc="outside lower center", ncols=4, markerscale=2)

# %%
# Effect on a head
# ----------------------
# One head is trained on the original rows and one on the cleaned rows. Concept and task are correlated in the
# training rows and independent in the test rows, where both layers are evaluated by group.

plain = ERM().fit(train.Z, train.y)
without = ERM().fit(jse.transform(train.Z), train.y)
judged = {
    "no removal": group_accuracy(test.y, plain.predict(test.Z), test.concept),
    "JSE": group_accuracy(test.y, without.predict(clean), test.concept),
}
for name, accuracy in judged.items():
    print(f"{name:>11}: average {accuracy.average:.1%}, worst group {accuracy.worst:.1%}")

# %%

bars = figures.group_bars(judged, width="page")

# %%
# Next: :doc:`the same on pictures <plot_02_digits_on_photographs>`, or your own embeddings with the
# :doc:`five-minute start </start>`.
