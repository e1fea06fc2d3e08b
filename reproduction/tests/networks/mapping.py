"""Photographs, and a mask for them, whose feature maps are kept.

Run as a program it writes their maps in a process of its own, which dies on the way: FOLDER WHEN.
"""

import json
import sys

from PIL import Image
from tests.embed.conftest import crops

from reproduction.tests.networks.tiny import PREPARATION, TinyConv
from reproduction.tests.strips import Pictures, die
from unspur_paper.embedding.store import Reduction
from unspur_paper.networks.maps import opacity, write_maps


def photographs(n=20):
    return Pictures(images=crops("china.jpg", n // 2) + crops("flower.jpg", n // 2))


def left_half(_):
    """A mask whose left half is inside, cut like a picture."""
    mask = Image.new("L", (40, 30), 0)
    mask.paste(255, (0, 0, 20, 30))
    return opacity(mask, PREPARATION)


def main(folder, at):
    """Write the maps of the tests, and die on the way."""
    tiny, shown = TinyConv(), photographs()
    reduction = Reduction.fit(tiny.rows(shown.images), 6)
    if at == "features":
        real, calls = tiny.feature_maps, []
        tiny.feature_maps = lambda inputs: die() if len(calls) == 2 else (calls.append(1), real(inputs))[1]
    else:
        json.dumps = lambda *_, **__: die()
    write_maps(shown, range(5, 20), tiny, reduction, left_half, folder, batch=4, progress=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
