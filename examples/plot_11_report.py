"""
The report: everything in one page
==================================

:func:`unspur.report.build` measures a fitted removal and writes one HTML file that opens offline. It contains a verdict
in words, accuracies with intervals, the tests, examples along the directions, and what is left of the concept. On the
command line this is ``unspur report``.
"""

# %%
# Digits on photographs once more
# -------------------------------

import tempfile
from pathlib import Path

from sklearn.decomposition import PCA

from unspur import JSE
from unspur.datasets import embed_images, make_photodigits
from unspur.report import build, figures, measure

train = make_photodigits("train", agreement=0.9, repeats=2, random_state=0)
test = make_photodigits("test", agreement=0.5, repeats=1, random_state=2)
pca = PCA(50, random_state=0).fit(embed_images(train.images))
Z, Z_test = (pca.transform(embed_images(split.images)) for split in (train, test))
digits, photographs = {0: "0–4", 1: "5–9"}, {0: "china", 1: "flower"}
rows = (Z, [digits[y] for y in train.y], [photographs[c] for c in train.concept])
judged = (Z_test, [digits[y] for y in test.y], [photographs[c] for c in test.concept])
jse = JSE(random_state=0).fit(rows[0], rows[1], concept=rows[2])

# %%
# The page
# --------
# Test rows should be rows that the fit has not seen. If you pass their pictures, the page shows the extremes of each
# direction, and the picture of the row under the pointer.

options = {"main": "digit", "concept": "photograph", "compare": ["LEACE"], "pictures": test.images}
folder = tempfile.TemporaryDirectory()
page = build(jse, rows, judged, Path(folder.name) / "digits-on-photographs.html", **options)
print(f"{page.name}: {page.stat().st_size / 1e6:.2f} MB")

# %%
# The same findings as figures for a paper
# ----------------------------------------
# :func:`unspur.report.measure` returns the content of the page as plain values. The functions in
# ``unspur.report.figures`` draw them in consistent colours.

findings = measure(jse, rows, judged, **options)
plane = figures.subspaces(findings)

# %%

bars = figures.group_bars(findings, width="page")

# %%

ladder = figures.ladder(findings, width="page")
folder.cleanup()
