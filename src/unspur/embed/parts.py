"""Embeddings on the disk: a folder of Parquet parts that say what they were made of.

A part has the columns of the labels and a column ``embedding`` of lists of float32. Its metadata hold the encoder, its
options, the number of all rows, and a hash of its own inputs. A part gets its name when it is whole, so that a stopped
run goes on behind the last one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from unspur._extras import require
from unspur._files import atomic
from unspur._text import brief
from unspur.embed.examples import Examples, load_ahead
from unspur.exceptions import InputError, OutputExistsError

if TYPE_CHECKING:
    import pandas as pd

    from unspur.embed.encoders import Encoder

#: Rows of a part, and examples at a time on a CPU and on a GPU.
PART_ROWS, BATCH, GPU_BATCH = 2048, 16, 256
#: Column of the embeddings, and key of the metadata.
EMBEDDING, KEY = "embedding", b"unspur.embed"


def embed(
    examples: Examples,
    encoder: Encoder,
    folder: str | Path,
    *,
    batch: int | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> Path:
    """Embed all examples into a folder of Parquet parts; parts that are there and match are kept.

    Parameters
    ----------
    examples : from `read_examples`, or `Examples` of one's own.
    encoder : from `load_encoder`, or an `Encoder` of one's own.
    folder : where the parts go. Parts of another encoder or of other examples are an error.
    batch : examples at a time, by default 16, on a GPU 256.
    workers : threads that load examples, by default one for each core, up to 4.
    overwrite : whether parts that do not match are removed first.
    progress : whether a bar is shown, if the output is a terminal.
    """
    folder = Path(folder)
    if examples.kind != encoder.kind:
        raise InputError(f"{encoder.name} embeds {encoder.kind}s, and the examples are {examples.kind}s.")
    if EMBEDDING in examples.labels:
        raise InputError(f"A label cannot be called {EMBEDDING!r}, as that is the column of the rows. Rename it.")
    if batch is not None and batch < 1:
        raise InputError(f"batch is a number of examples, 1 or more; got {batch}.")
    batch = batch or (GPU_BATCH if encoder.device.startswith("cuda") else BATCH)
    made = {"encoder": encoder.name, "options": dict(encoder.options), "rows": len(examples)}
    parts = {
        folder / f"part-{start // PART_ROWS:05d}.parquet": range(start, min(start + PART_ROWS, len(examples)))
        for start in range(0, len(examples), PART_ROWS)
    }
    if folder.is_file():
        raise OutputExistsError(f"{folder} is a file, and embeddings become a folder. Choose another name.")
    there = _parts(folder)
    other = [path.name for path in folder.glob("[!.]*") if path not in there]
    if other:
        raise OutputExistsError(f"{folder} holds other files, such as {other[0]}. Name a folder of its own.")
    for path in there:
        found = _metadata(path)
        if path in parts and found == {**made, "inputs": examples.digest(parts[path])}:
            continue
        if not overwrite:
            what = "other examples" if _encoding(found) == _encoding(made) else f"embeddings by {_shown(found)}"
            raise OutputExistsError(f"{folder} holds {what}. Choose another folder, or pass overwrite (--force).")
        path.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    with tqdm(total=len(examples), unit=examples.kind, disable=None if progress else True) as bar:
        for path, rows in parts.items():
            if path.exists():
                bar.update(len(rows))
                continue
            Z = np.concatenate(list(_embedded(examples, encoder, rows, batch, workers, bar)))
            if not (finite := np.isfinite(Z).all(axis=1)).all():
                row = rows[int(np.argmin(finite))] + 1
                raise InputError(
                    f"{encoder.name} made NaN or infinity of row {row}. Look at it, or pass precision float32."
                )
            _write(path, Z, examples.labels.iloc[rows.start : rows.stop], {**made, "inputs": examples.digest(rows)})
    return folder


def _embedded(
    examples: Examples, encoder: Encoder, rows: range, batch: int, workers: int | None, bar: Any
) -> Iterator[NDArray[np.float32]]:
    with closing(load_ahead(lambda row: encoder.prepare(examples[row]), rows, workers)) as coming:
        while prepared := list(islice(coming, batch)):
            yield np.asarray(encoder.rows(prepared), dtype=np.float32)
            bar.update(len(prepared))


def _write(path: Path, Z: NDArray[np.float32], labels: pd.DataFrame, made: Mapping[str, Any]) -> None:
    require("Embeddings need", "pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(labels, preserve_index=False)
    metadata = {**(table.schema.metadata or {}), KEY: json.dumps(made)}
    table = table.append_column(EMBEDDING, pa.FixedSizeListArray.from_arrays(pa.array(Z.ravel()), Z.shape[1]))
    with atomic(path, overwrite=True) as temporary:
        pq.write_table(table.replace_schema_metadata(metadata), temporary)


def read_embeddings(folder: str | Path) -> tuple[NDArray[np.float32], pd.DataFrame]:
    """Rows of shape (n, d) and a table of their labels, from the parts that `embed` wrote."""
    parts = _parts(Path(folder))
    if not parts:
        raise InputError(f"{folder} holds no embeddings. `unspur embed` makes them.")
    about = [_metadata(path) for path in parts]
    import pandas as pd
    import pyarrow.parquet as pq

    tables = [pq.read_table(path) for path in parts]
    n = sum(map(len, tables))
    if any(_encoding(one) != _encoding(about[0]) or one.get("rows") != n for one in about):
        raise InputError(
            f"{folder} is not complete. Give the command that made it again, which embeds what is missing."
        )
    Z = [table[EMBEDDING].combine_chunks().flatten().to_numpy().reshape(len(table), -1) for table in tables]
    return np.concatenate(Z), pd.concat(
        [table.drop_columns(EMBEDDING).to_pandas() for table in tables], ignore_index=True
    )


def _encoding(made: Mapping[str, Any]) -> dict[str, Any]:
    return {key: made.get(key) for key in ("encoder", "options")}


def _shown(made: Mapping[str, Any]) -> str:
    options = ", ".join(f"{name} {value}" for name, value in (made.get("options") or {}).items())
    return f"{made.get('encoder', 'another program')} ({options})"


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.parquet"))


def _metadata(part: Path) -> dict[str, Any]:
    """What a part was made of; {} of a Parquet file of another program."""
    require("Embeddings need", "pyarrow")
    import pyarrow.parquet as pq

    try:
        return dict(json.loads((pq.read_schema(part).metadata or {}).get(KEY, b"{}")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{part} is damaged: {brief(error)}. Delete it and embed again.") from error
