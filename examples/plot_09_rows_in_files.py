"""
Rows in files, with a memory budget
===================================

Rows that do not fit into memory can stay in their files. :func:`unspur.open_rows` opens them with a memory budget, and
`fit` takes the result in place of an array.
"""

# %%
# Files to begin with
# -------------------
# Eight Parquet files with a column of embeddings and two labels. Here they are small; the budget will be smaller.

import tempfile
import tracemalloc
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import unspur
from unspur.datasets import make_toy

toy = make_toy(20_000, d=128, rho=0.8, random_state=0)
Z = toy.Z.astype(np.float32)
temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
for k, part in enumerate(np.array_split(np.arange(len(Z)), 8)):
    embedding = pa.FixedSizeListArray.from_arrays(pa.array(Z[part].ravel()), Z.shape[1])
    table = pa.table({"embedding": embedding, "bird": toy.y[part], "background": toy.concept[part]})
    pq.write_table(table, folder / f"part-{k}.parquet", row_group_size=2000)
print(f"{len(list(folder.iterdir()))} files; as an array the rows take {Z.nbytes / 1e6:.0f} MB")

# %%
# Open, and fit
# -------------

rows = unspur.open_rows(str(folder / "*.parquet"), memory="6MB")
bird, background = rows.column("bird"), rows.column("background")
print(f"{len(rows):,} rows of {rows.shape[1]} features")

# %%
# Peak memory, as measured by Python:


def peak(fit):
    """What `fit` returns, and the most bytes that were allocated at once meanwhile."""
    tracemalloc.start()
    result = fit()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return result, most


def fitted(where):
    """A JSE of those rows."""
    return unspur.JSE(random_state=0, cv=0.2, penalty=0.1).fit(where, bird, concept=background)


in_memory, most_in_memory = peak(lambda: fitted(np.array(Z)))
from_files, most_from_files = peak(lambda: fitted(rows))

fig, ax = plt.subplots(figsize=(6, 2.4))
ax.barh([1, 0], [most_in_memory / 1e6, most_from_files / 1e6], color=["#6E6E6E", "#00795A"])
ax.set_yticks([1, 0], ["from an array", "from files"])
ax.axvline(Z.nbytes / 1e6, color="black", ls=":", label="the rows")
ax.axvline(6, color="#D55E00", ls="--", label="the budget")
ax.set(xlabel="peak, MB", title="Memory of a fit")
ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))

# %%
# The result is the same up to single precision:

angle = from_files.spurious_.angles(in_memory.spurious_).max()
print(f"{from_files.spurious_} and {in_memory.spurious_}, {np.degrees(angle):.1e}° apart")

# %%
# Clean the files
# ---------------
# Blocks of rows come in order. On the command line, ``unspur apply`` writes cleaned Parquet files the same way.

total = 0.0
for _, block in rows.blocks():
    total += np.abs((from_files.transform(block) - from_files.removal_.centre) @ from_files.spurious_.basis).sum()
print(f"mean score along the background, after: {total / len(rows):.1e}")
temporary.cleanup()
