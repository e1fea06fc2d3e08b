"""Pictures a second of `unspur embed`: on the host alone, on the device alone, and whole.

    PYTHONPATH=src python benchmarks/embed_speed.py embed.json                             # 10,000 pictures of 256 pixels
    PYTHONPATH=src python benchmarks/embed_speed.py tiny.json --device cpu --pictures 200 --seconds 2

Pictures are JPEG files of noise with a texture, made in a temporary folder and removed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image

from unspur.embed import embed, load_encoder, read_examples
from unspur.embed.examples import load_ahead
from unspur.embed.parts import BATCH, GPU_BATCH


def draw(folder: Path, size: int, number: int) -> str:
    """Write one picture: coarse colours, and fine noise on top."""
    rng = np.random.default_rng([number, size])
    coarse = Image.fromarray(rng.integers(0, 256, (size // 8, size // 8, 3), dtype=np.uint8))
    pixels = np.asarray(coarse.resize((size, size), Image.Resampling.BICUBIC), dtype=np.int16)
    noisy = (pixels + rng.integers(-12, 13, pixels.shape, dtype=np.int16)).clip(0, 255).astype(np.uint8)
    name = f"{number}.jpg"
    Image.fromarray(noisy).save(folder / name, quality=90)
    return name


def rate(work, each: int, seconds: float) -> float:
    """Pictures a second of something that does `each` in a call."""
    work()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        work()
        count += each
    return count / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="where the figures go, as JSON")
    parser.add_argument("--pictures", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=256, help="pixels a side")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto", choices=("auto", "float32", "bfloat16"))
    parser.add_argument("--seconds", type=float, default=4.0, help="of a measurement")
    arguments = parser.parse_args()
    encoder = load_encoder("efficientnet-lite0", device=arguments.device, precision=arguments.precision)
    on_gpu = encoder.device != "cpu"
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor() as pool:
        folder = Path(temporary) / "pictures"
        folder.mkdir()
        names = list(pool.map(partial(draw, folder, arguments.size), range(arguments.pictures)))
        pd.DataFrame({"image": names}).to_csv(folder / "pictures.csv", index=False)
        examples = read_examples(folder / "pictures.csv")
        some = range(min(len(examples), 256))

        def load(threads: int) -> list:
            with closing(load_ahead(lambda i: encoder.prepare(examples[i]), some, threads)) as coming:
                return list(coming)

        prepared = load(4)[: GPU_BATCH if on_gpu else BATCH]
        found = {
            "encoder": encoder.name,
            "where": f"{encoder.device}, {encoder.options['precision']}",
            "device_name": torch.cuda.get_device_name() if on_gpu else platform.processor(),
            "cores": os.cpu_count(),
            "size": arguments.size,
            "bytes_per_picture": sum((folder / name).stat().st_size for name in names) / len(names),
            "host": {str(n): rate(partial(load, n), len(some), arguments.seconds) for n in (1, 2, 4, 8)},
            "device": {"copies and network": rate(lambda: encoder.rows(prepared), len(prepared), arguments.seconds)},
        }
        start = time.perf_counter()
        embed(examples, encoder, Path(temporary) / "embedded", progress=False)
        pictures_per_second = len(examples) / (time.perf_counter() - start)
        found["whole"] = {"pictures": len(examples), "pictures_per_second": pictures_per_second}
    arguments.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
