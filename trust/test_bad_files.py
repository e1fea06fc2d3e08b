"""Every reader, on files that are damaged, foreign or made to hurt: read as promised, or refused in words.

What counts as a fault, and the limits on time and memory, are in `hostile.bounded`.
"""

from collections.abc import Iterator

import pytest

from trust.hostile.bounded import Bounded, Counts

PART = "bad files"
VERBS = "verbs of the command line"
#: For each line of the table: readers, by module, with how many bad files each is given.
LINES = {
    "rows and labels in .npy": {"arrays:npy_rows": 90, "arrays:npy_opened": 90, "arrays:npy_labels": 70},
    "rows and labels in .npz": {"arrays:npz": 240},
    "rows and labels in .csv": {"arrays:csv": 160},
    "rows and labels in Parquet": {
        "arrays:parquet": 70,
        "arrays:parquet_lists": 70,
        "arrays:parquet_opened": 70,
        "arrays:parquet_lists_opened": 70,
    },
    "saved removals (safetensors)": {
        "saved:jse": 120,
        "saved:scores": 50,
        "saved:onto_main": 50,
        "saved:inlp": 60,
        "saved:rlace": 50,
        "saved:leace": 100,
        "saved:splince": 50,
        "saved:classifier": 120,
    },
    "networks in training": {"saved:checkpoint": 80, "saved:reduction": 80, "saved:training": 80},
    "embedding stores and maps": {
        "saved:store_manifest": 90,
        "saved:store_labels": 60,
        "saved:store_rows": 60,
        "saved:maps_description": 90,
        "saved:maps_values": 60,
        "saved:maps_coverage": 60,
    },
    "specs of experiments (TOML)": {"experiments:spec": 200},
    "records of experiments, and packs": {"experiments:record": 120, "experiments:packs": 100},
    "archives of images (tar, zip)": {"datasets:tar": 180, "datasets:zips": 160},
    "images": {
        "datasets:jpeg": 120,
        "datasets:png": 40,
        "datasets:gif": 40,
        "datasets:tiff": 40,
        "datasets:deep_grey": 30,
    },
    "pairs of sentences (JSON lines)": {"datasets:pairs": 200},
    "tables and lists that name images": {
        "datasets:own": 90,
        "datasets:packed": 60,
        "datasets:published": 70,
        "datasets:birds": 60,
        "datasets:faces": 60,
    },
    "data sets with pictures in them (Parquet, Arrow)": {"datasets:stored": 90, "datasets:arrow": 90},
    "notes, locks, addresses, completion": {
        "notes:download": 60,
        "notes:progress": 60,
        "notes:scheduler": 60,
        "notes:config": 60,
        "notes:lock": 20,
        "notes:names_of_csv": 40,
        "notes:names_of_npz": 40,
        "notes:names_of_parquet": 40,
    },
    VERBS: {
        "commands:fit_csv": 20,
        "commands:fit_npz": 20,
        "commands:apply": 20,
        "commands:predict": 16,
        "commands:evaluate": 16,
        "commands:report": 10,
        "commands:report_removal": 16,
        "commands:data": 20,
        "commands:reproduce": 16,
    },
}
CONTROLS = {
    "takes_memory": "it took 150 MB",
    "asks_for_memory": "it took 300 MB",
    "hides_its_hunger": "asked for too much memory",
    "hangs": "computed for more than",
    "waits": "said nothing for",
    "crashes": "SIGSEGV",
    "eats_memory": "MemoryError",
    "runs_code": "EXECUTED",
    "writes_elsewhere": "evil",
    "has_another_error": "KeyError",
    "names_nothing": "does not name the file",
    "breaks_its_promise": "the answer is wrong",
}
SEED = 20240
#: Times as many in the full form; of verbs, which take longer, fewer.
FULL, FULL_OF_VERBS = 13, 4


@pytest.fixture(scope="module")
def bounded() -> Iterator[Bounded]:
    with Bounded() as process:
        yield process


@pytest.mark.parametrize("what", LINES)
def test_bad_files_are_refused_in_words_or_read_as_promised(what, bounded, tally, effort):
    line = tally(what)
    total = Counts()
    times = effort.times(1, FULL_OF_VERBS if what == VERBS else FULL)
    for name, count in LINES[what].items():
        module, reader = name.split(":")
        found = bounded.run(f"trust.hostile.{module}", reader, SEED, count * times)
        total.read += found.read
        total.refused += found.refused
        total.faults += [(f"{name}, {trial}", said) for trial, said in found.faults]
    line.trials(total.tried, total.read + total.refused)
    line.figure = total.figure
    line.data = {"refused": total.refused, "read": total.read, "faults": total.faults[:20]}
    assert line.all_survived, total.faults[:5]


def test_readers_that_misbehave_are_noticed(tally):
    line = tally("readers made bad on purpose, noticed")
    with Bounded(computing=0.5, waiting=2.0) as process:
        for name, said in CONTROLS.items():
            found = process.run("trust.hostile.controls", name, SEED, 1)
            line.trial(len(found.faults) == 1 and said in found.faults[0][1])
    line.figure = "hang, crash, memory, code, files elsewhere, other errors"
    assert line.all_survived
