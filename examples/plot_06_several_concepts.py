"""
Several concepts, and more than two classes
===========================================

There may be several concepts, with any number of classes. Pass them as the columns of a table, and all are removed. The
trace shows what was found for each.
"""

# %%
# Three colours, two places, one task
# -----------------------------------
# Synthetic rows: a bird (task) that is correlated with a colour (three classes) and a place (two). Each label shifts
# the rows along its own directions.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from unspur import ERM, JSE
from unspur.metrics import group_accuracy, leakage

COLOURS, PLACES = np.array(["red", "green", "blue"]), np.array(["land", "water"])


def make_rows(n, agreement, seed):
    """Rows (n, 20), the task, and a table of both concepts, which agree with the task with some probability."""
    rng = np.random.default_rng(seed)
    bird = rng.integers(2, size=n)
    likely = rng.random((2, n)) < agreement
    colour = np.where(likely[0], 2 * bird, rng.integers(3, size=n))
    place = np.where(likely[1], bird, rng.integers(2, size=n))
    Z = rng.standard_normal((n, 20))
    corners = 2.2 * np.array([[1.0, 0.0], [-0.5, 0.87], [-0.5, -0.87]])
    Z[:, :2] += corners[colour]
    Z[:, 2] += 2.5 * (place - 0.5)
    Z[:, 3] += 2.5 * (bird - 0.5)
    return Z, bird, pd.DataFrame({"colour": COLOURS[colour], "place": PLACES[place]})


Z, bird, concepts = make_rows(3000, 0.7, seed=0)
Z_test, bird_test, concepts_test = make_rows(4000, 0.0, seed=1)
pd.crosstab(bird, [concepts.colour, concepts.place])

# %%
# One fit for all
# ---------------
# Concepts are removed one after the other, and a concept with three classes one class against the rest. There are
# therefore several ladders of tests.

jse = JSE(random_state=0).fit(Z, bird, concept=concepts)
print(jse.spurious_, "concepts;", jse.main_, "task")
for name, trace in jse.trace_.parts.items():
    accepted = sum(step.verdict.proper and step.verdict.role == "spurious" for step in trace)
    print(f"{name}: {accepted} direction(s) accepted; {trace.stopped}")

# %%
# What is left of each
# --------------------
# A linear probe for every label, on rows that were not used in the fit.

clean = jse.transform(Z_test)
labels = {**concepts_test, "bird (the task)": bird_test}
found = {name: [leakage(rows, label, random_state=0) for rows in (Z_test, clean)] for name, label in labels.items()}
fig, ax = plt.subplots(figsize=(7, 3.4))
for k, (before, after) in enumerate(found.values()):
    for shift, probe, colour in ((-0.2, before, "#6E6E6E"), (0.2, after, "#00795A")):
        error = 100 * np.array([[probe.accuracy - probe.low], [probe.high - probe.accuracy]])
        name = "before" if probe is before else "after"
        ax.bar(k + shift, 100 * probe.accuracy, 0.38, yerr=error, color=colour, label=None if k else name)
    ax.hlines(100 * before.chance, k - 0.45, k + 0.45, color="black", ls=":", lw=1.5, label="chance" if not k else None)
ax.set_xticks(range(len(found)), found)
ax.legend(ncols=3, loc="upper center")
ax.set(ylabel="balanced accuracy, %", ylim=(0, 119), title="What a linear probe finds")

# %%
# The plane of the colours
# ------------------------

fig, axes = plt.subplots(1, 2, figsize=(8, 3.8), sharex=True, sharey=True)
for ax, title, rows in zip(axes, ("before", "after"), (Z_test, clean), strict=True):
    for name, colour in zip(COLOURS, ("#D55E00", "#009E73", "#0072B2"), strict=True):
        some = np.flatnonzero(concepts_test.colour == name)[:300]
        ax.scatter(rows[some, 0], rows[some, 1], s=7, color=colour, alpha=0.6, lw=0, label=name)
    ax.set(title=title, xlabel="first feature")
axes[0].set_ylabel("second feature")
axes[0].legend(markerscale=2)

# %%
# And the task? Groups are now all combinations of bird, colour and place.

for name, on, judged in (("no removal", Z, Z_test), ("JSE", jse.transform(Z), clean)):
    accuracy = group_accuracy(bird_test, ERM().fit(on, bird).predict(judged), concepts_test)
    print(f"{name:>11}: average {accuracy.average:.1%}, worst of {accuracy.rows.size} groups {accuracy.worst:.1%}")
