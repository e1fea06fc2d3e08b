"""
Digits on photographs: from pictures to a cleaned embedding
===========================================================

Handwritten digits on patches of two photographs. The task is the digit, 0–4 or 5–9; the concept is the photograph
behind it. In training they agree nine times out of ten.
"""

# %%
# The pictures
# ------------
# Digits and photographs come with scikit-learn, so nothing is downloaded. No digit is in two of the splits.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA

from unspur import ERM, JSE
from unspur.datasets import embed_images, make_photodigits
from unspur.metrics import group_accuracy, leakage
from unspur.report import figures

train = make_photodigits("train", agreement=0.9, random_state=0)
validation = make_photodigits("validation", agreement=0.9, random_state=1)
test = make_photodigits("test", agreement=0.5, random_state=2)

names = {(0, 0): "0–4 on china", (0, 1): "0–4 on flower", (1, 0): "5–9 on china", (1, 1): "5–9 on flower"}


def show(ax, images, title):
    """A line of pictures."""
    gap = ((0, 0), (0, 0), (0, 4), (0, 0))
    ax.imshow(np.hstack(np.pad(images, gap, constant_values=1.0)))
    ax.set_title(title)
    ax.set_axis_off()


fig, axes = plt.subplots(4, figsize=(8, 5))
for ax, ((y, concept), name) in zip(axes, names.items(), strict=True):
    rows = np.flatnonzero((train.y == y) & (train.concept == concept))
    show(ax, train.images[rows[:: len(rows) // 12][:12]], f"{name}: {len(rows)} pictures")

# %%
# From pictures to rows
# ---------------------
# An untrained small network computes 512 features of each picture, and 100 principal components are kept. Any encoder
# would do, because the rest only sees the rows.

pca = PCA(100, random_state=0).fit(embed_images(train.images))
Z, Z_val, Z_test = (pca.transform(embed_images(split.images)) for split in (train, validation, test))

# %%
# Find the photograph, remove it
# ------------------------------
# Validation pictures are used to test which directions belong to the photograph and which to the digit.

jse = JSE(random_state=0)
jse.fit(Z, train.y, concept=train.concept, X_val=Z_val, y_val=validation.y, concept_val=validation.concept)
print(f"{jse.spurious_.dim} of {jse.n_features_in_} directions show the photograph, {jse.main_.dim} show the digit")

# %%
# Did it work?
# ------------
# Heads on the rows before and after, evaluated on test pictures where digit and photograph are independent:

judged = {
    "no removal": group_accuracy(test.y, ERM().fit(Z, train.y).predict(Z_test), test.concept),
    "JSE": group_accuracy(test.y, ERM().fit(jse.transform(Z), train.y).predict(jse.transform(Z_test)), test.concept),
}
bars = figures.group_bars(judged, groups=list(names.values()), width="page")

# %%
# Is the photograph gone? Fresh linear probes are trained to find it, and evaluated on rows they have not seen. Chance
# is 50 %. What they still find does not help a head for the digit, but it is not nothing
# (:doc:`plot_10_what_is_not_guaranteed`).

for name, rows in (("before", Z_test), ("after", jse.transform(Z_test))):
    print(f"{name:>6}: {leakage(rows, test.concept, random_state=0)}")

# %%
# What a direction means
# ----------------------
# The most extreme pictures along the first spurious direction differ in their photograph. Those along the first
# direction of the task differ in their digit.

fig, axes = plt.subplots(4, figsize=(8, 5))
ends = iter(axes)
for subspace, what in ((jse.spurious_, "the photograph"), (jse.main_, "the digit")):
    order = np.argsort((Z_test - jse.removal_.centre) @ subspace.basis[:, 0])
    show(next(ends), test.images[order[:12]], f"first direction of {what}: low end")
    show(next(ends), test.images[order[::-1][:12]], f"first direction of {what}: high end")
