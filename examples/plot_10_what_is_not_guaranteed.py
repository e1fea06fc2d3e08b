"""
What removal does not guarantee
===============================

A concept that a linear layer cannot find may still be found by a network. A concept that is correlated with the task
can be guessed from the task. Both can be measured.
"""

# %%
# A concept encoded twice
# -----------------------
# The concept shifts the first feature, which is linear. It also widens the third feature without changing its mean,
# which is not linear.

# sphinx_gallery_thumbnail_number = 1
import matplotlib.pyplot as plt
import numpy as np

from unspur import JSE, LEACE
from unspur.metrics import leakage


def make_rows(n, agreement, widening, seed):
    """Rows (n, 12), the task, and a concept that agrees with it with some probability."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    concept = np.where(rng.random(n) < agreement, y, 1 - y)
    Z = rng.standard_normal((n, 12))
    Z[:, 0] += 2.5 * (concept - 0.5)
    Z[:, 1] += 2.5 * (y - 0.5)
    Z[:, 2] *= 1 + widening * concept
    return Z, y, concept


Z, y, concept = make_rows(4000, agreement=0.5, widening=2.0, seed=0)
Z_test, y_test, concept_test = make_rows(3000, agreement=0.5, widening=2.0, seed=1)
jse = JSE(random_state=0).fit(Z, y, concept=concept)
clean = jse.transform(Z_test)

fig, axes = plt.subplots(1, 2, figsize=(8, 3.6), sharex=True, sharey=True)
for ax, title, rows in zip(axes, ("before", "after"), (Z_test, clean), strict=True):
    for value, colour in ((1, "#D55E00"), (0, "#0072B2")):
        some = np.flatnonzero(concept_test == value)[:400]
        ax.scatter(rows[some, 0], rows[some, 2], s=7, alpha=0.6, lw=0, color=colour, label=f"concept {value}")
    ax.set(title=title, xlabel="first feature: shifted")
axes[0].set_ylabel("third feature: widened")
axes[0].legend(markerscale=2)

# %%
# A linear probe and a small network look for the concept:

probes = {
    (when, kind): leakage(rows, concept_test, probe=kind, cv=3, random_state=0)
    for when, rows in (("before", Z_test), ("after", clean))
    for kind in ("linear", "mlp")
}
for (when, _), probe in probes.items():
    print(f"{when:>6}: {probe}")

# %%
# The removal is linear. A linear layer cannot use what is left, but a nonlinear model can. If a network follows,
# measure with a network.

fig, ax = plt.subplots(figsize=(6, 3.2))
for k, ((when, _), probe) in enumerate(probes.items()):
    error = 100 * np.array([[probe.accuracy - probe.low], [probe.high - probe.accuracy]])
    colour = "#6E6E6E" if when == "before" else "#00795A"
    ax.bar(k, 100 * probe.accuracy, yerr=error, color=colour)
ax.axhline(50, color="black", ls=":", label="chance")
ax.set_xticks(range(len(probes)), [f"{when},\n{'line' if kind == 'linear' else 'network'}" for when, kind in probes])
ax.set(ylim=(40, 100), ylabel="balanced accuracy, %", title="Who still finds the concept (95 % intervals)")
ax.legend()

# %%
# A concept correlated with the task
# ----------------------------------
# Now the concept agrees with the task in nine of ten rows and is encoded linearly only. The task predicts the concept
# in nine of ten cases, so any removal that keeps the task leaves that much. The certificate reports a plain probe,
# and a probe under weights that make concept and task independent ("task held fixed").

Z, y, concept = make_rows(4000, agreement=0.9, widening=0.0, seed=2)
Z_test, y_test, concept_test = make_rows(4000, agreement=0.9, widening=0.0, seed=3)
jse = JSE(random_state=0).fit(Z, y, concept=concept)
print(jse.certificate(Z_test, y_test, concept_test))

# %%
# A method that erases all covariance with the concept can bring the plain probe to chance, at the cost of the task:

leace = LEACE().fit(Z, concept=concept)
print(leace.certificate(Z_test, y_test, concept_test))

# %%
# Which of the two you want depends on the question. To stop a layer from *using* the background, remove it with the
# task kept. To stop anyone from *telling* the background, erase all covariance; if concept and task are correlated,
# this costs accuracy. See :doc:`/limits`.
