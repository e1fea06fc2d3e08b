"""
Rows that are larger than memory
================================

A memory map is an array whose rows stay in a file, and a Dask array is one in chunks. `fit` takes both in place of an
array, and visits them block by block.
"""

# %%
# Files to begin with
# -------------------
# A ``.npy`` file, and a folder of Parquet files with a column for each feature. Here they are small.

import tempfile
import tracemalloc
from pathlib import Path

import dask.dataframe as dd
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import unspur
from unspur.datasets import make_toy

toy = make_toy(20_000, d=128, rho=0.8, random_state=0)
temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
table = pd.DataFrame(toy.Z.astype(np.float32)).add_prefix("feature ")
np.save(folder / "rows.npy", table.to_numpy())
for k, part in enumerate(np.array_split(np.arange(len(table)), 8)):
    labels = {"bird": toy.y[part], "background": toy.concept[part]}
    table.iloc[part].assign(**labels).to_parquet(folder / f"part-{k}.parquet")

# %%
# A memory map
# ------------
# Peak memory, as measured by Python:


def fitted(Z):
    """A JSE of these rows, and the most bytes that were allocated at once meanwhile."""
    tracemalloc.start()
    jse = unspur.JSE(random_state=0, cv=0.2, penalty=0.1).fit(Z, toy.y, concept=toy.concept)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return jse, most


mapped, most_mapped = fitted(np.load(folder / "rows.npy", mmap_mode="r"))
in_memory, most_in_memory = fitted(np.load(folder / "rows.npy"))
print(f"largest difference: {np.abs(mapped.removal_.matrix() - in_memory.removal_.matrix()).max()}")

fig, ax = plt.subplots(figsize=(6, 2))
rows = (folder / "rows.npy").stat().st_size
ax.barh([1, 0], [(most_in_memory + rows) / 1e6, most_mapped / 1e6], color=["#6E6E6E", "#00795A"])
ax.set_yticks([1, 0], ["array", "memory map"])
ax.axvline(rows / 1e6, color="black", ls=":", label="the rows")
ax.set(xlabel="peak, MB", title="Memory of a fit")
ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))

# %%
# A Dask array
# ------------
# Labels are columns of the same files.

files = dd.read_parquet(folder)
Z = files.drop(columns=["bird", "background"]).to_dask_array().compute_chunk_sizes()
jse = unspur.JSE(random_state=0, cv=0.2, penalty=0.1).fit(Z, files["bird"], concept=files["background"])
print(f"largest difference: {np.abs(jse.removal_.matrix() - in_memory.removal_.matrix()).max():.0e}")

# %%
# `transform` returns a lazy Dask array, which is computed when it is written.

clean = jse.transform(Z)
np.save(folder / "clean.npy", clean.compute())
print(clean)
temporary.cleanup()
