"""
Choosing Δ and the significance level
=====================================

The second test, "specific", asks whether a direction predicts its own label better than the other. If one label is much
easier to predict, that comparison is unfair, and Δ shifts it. The significance level says how much evidence is needed.
"""

# %%
# An easy concept, a hard task
# ----------------------------
# In these Toy rows the concept label follows its feature closely (γ = 5), and the task label loosely (γ = 2).

import warnings

import matplotlib.pyplot as plt
import numpy as np

from unspur import ERM, JSE
from unspur.datasets import make_toy
from unspur.exceptions import NothingRemovedWarning, TaskLostWarning
from unspur.metrics import group_accuracy

warnings.simplefilter("ignore", TaskLostWarning)  # we are here to see it happen
warnings.simplefilter("ignore", NothingRemovedWarning)
DIFFICULTY = (5.0, 2.0)


def runs(rho, **parameters):
    """Fits on fresh draws: worst-group accuracy of each, and the dimensions of the two subspaces."""
    test = make_toy(20_000, rho=0.0, separability=DIFFICULTY, random_state=1000)
    found = []
    for seed in range(6):
        train = make_toy(4000, rho=rho, separability=DIFFICULTY, random_state=seed)
        jse = JSE(metric=0, random_state=0, penalty=0.1, **parameters).fit(train.Z, train.y, concept=train.concept)
        after = ERM().fit(jse.transform(train.Z), train.y).predict(jse.transform(test.Z))
        accuracy = group_accuracy(test.y, after, test.concept).worst
        found.append((accuracy, jse.spurious_.dim, jse.main_.dim))
    return np.array(found)


strengths = (0.7, 0.8, 0.9)
plain, shifted = ([runs(rho, delta=delta) for rho in strengths] for delta in (0.0, -0.2))

# %%
# With Δ = 0, every direction that contains a little of the concept predicts the concept better, so directions of the
# task are not recognised. With Δ = −0.2 nats, they may predict the concept better by that much.

for name, found in (("0", plain), ("−0.2", shifted)):
    for rho, values in zip(strengths, found, strict=True):
        accuracy, spurious, main = values.mean(axis=0)
        dimensions = f"{spurious:.1f} spurious and {main:.1f} main-task directions"
        print(f"Δ = {name:>4}, ρ = {rho}: {dimensions} on average, worst group {accuracy:.1%}")

# %%

fig, axes = plt.subplots(1, 2, figsize=(8, 3.6))
for found, name, colour, shift in ((plain, "Δ = 0", "#6E6E6E", -0.004), (shifted, "Δ = −0.2", "#00795A", 0.004)):
    for ax, column, scale in ((axes[0], 0, 100), (axes[1], 2, 1)):
        for rho, values in zip(strengths, found, strict=True):
            ax.plot(np.full(len(values), rho + shift), scale * values[:, column], "o", color=colour, ms=4, alpha=0.4)
        means = [scale * values[:, column].mean() for values in found]
        ax.plot(np.array(strengths) + shift, means, color=colour, label=name)
axes[0].set(title="Accuracy of the worst group, %", xlabel="ρ, correlation in training", xticks=strengths)
axes[1].set(title="Main-task directions found", xlabel="ρ, correlation in training", xticks=strengths, yticks=[0, 1])
axes[0].legend()

# %%
# The level
# ---------
# α bounds the probability that one test accepts a wrong direction. With few rows, a small α misses directions, and a
# large α may accept noise. This example has 300 rows with labels of equal difficulty. Concept labels are true, or
# shuffled so that there is nothing to find. A direction must pass two tests, and the first is conservative, so shuffled
# labels pass less often than α allows.

levels = (0.001, 0.01, 0.05, 0.2)
accepted = {"true concept": [], "shuffled concept": []}
for level in levels:
    found = dict.fromkeys(accepted, 0)
    for seed in range(20):
        train = make_toy(300, rho=0.9, random_state=seed)
        shuffled = np.random.default_rng(seed).permutation(train.concept)
        for name, concept in zip(accepted, (train.concept, shuffled), strict=True):
            jse = JSE(random_state=0, penalty=0.1, significance_level=level)
            found[name] += jse.fit(train.Z, train.y, concept=concept).spurious_.dim > 0
    for name, number in found.items():
        accepted[name].append(number / 20)

fig, ax = plt.subplots(figsize=(7, 3.4))
for (name, shares), colour, shift in zip(accepted.items(), ("#00795A", "#D55E00"), (-0.2, 0.2), strict=True):
    bars = ax.bar(np.arange(len(levels)) + shift, 100 * np.array(shares), 0.38, color=colour, label=name)
    ax.bar_label(bars, fmt="%.0f %%")
ax.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])
ax.set(xlabel="significance level", ylabel="share of fits, %", ylim=(0, 119), yticks=range(0, 101, 20))
ax.set_title("Fits that removed something, of 20 draws")
ax.legend(loc="upper left")
