"""Put the records of a run of `finetuned_networks.py` beside those that are there.

    python reproduction/scripts/merge_records.py paper-run.tar reproduction/results

A network that was trained again is another network, so its records replace those of the one before all together: of one
run at one setting, either all records are new or none is. Where the new ones lack a method that the old ones have (the
run was stopped), the old ones stay. Records of methods that the experiment no longer has are dropped. Afterwards draw tables with `unspur-paper reproduce … --draw --output
reproduction/results`, and pages with `result_pages.py`.
"""

from __future__ import annotations

import argparse
import json
import lzma
import tarfile
import tempfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from unspur_paper.experiments.records import Record, canonical, pack, unpack
from unspur_paper.experiments.registry import FINETUNED
from unspur_paper.experiments.reproduce import experiment_names, find_experiments
from unspur_paper.experiments.stores import place_of_tuned

NETWORKS = "finetuned-networks.json.xz"


def merged(old: Sequence[Record], new: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """All records to keep, and new ones that are not among them, as their network lacks a method."""
    before, after = _by_network(old), _by_network(new)
    kept, left = dict(before), []
    for network, records in after.items():
        if set(before.get(network, {})) <= set(records):
            kept[network] = records
        else:
            left += records.values()
    return [record for records in kept.values() for record in records.values()], left


def _by_network(records: Iterable[Record]) -> dict[str, dict[str, Record]]:
    """Data and run of a cell -> its method -> the record."""
    found: dict[str, dict[str, Record]] = {}
    for record in records:
        spec = dict(record.spec)
        network = canonical([spec.pop("dataset"), spec.pop("run")], "network")
        found.setdefault(network, {})[canonical(spec, "method")] = record
    return found


def still_wanted(records: Sequence[Record], experiment: str, preset: str) -> list[Record]:
    """Records of cells that the experiment still has; all of them if there is no experiment of that name."""
    if experiment not in experiment_names():
        return list(records)
    (found,) = find_experiments((experiment,))
    wanted = {canonical(dict(cell.spec), "spec") for cell in found.cells(preset)}
    return [record for record in records if canonical(record.spec, "spec") in wanted]


def merged_networks(
    old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]], left: Collection[str] = ()
) -> list[dict[str, Any]]:
    """How networks were trained, those that were trained again as they were then, but for some whose records were left."""
    found = {network["store"]: network for network in old}
    found |= {network["store"]: network for network in new if network["store"] not in left}
    return [
        {**found[store], "history": [_rounded(epoch) for epoch in found[store]["history"]]} for store in sorted(found)
    ]


def store_of(record: Record) -> str:
    """The store of the network that a record is of, as `finetuned_networks.py` names it; "" for other data."""
    data = record.spec["dataset"]
    return str(place_of_tuned(data, record.spec["run"], Path())[0]) if data.get("name") in FINETUNED else ""


def read_networks(path: Path) -> list[dict[str, Any]]:
    """How networks were trained."""
    found: list[dict[str, Any]] = json.loads(lzma.decompress(path.read_bytes()))
    return found


def write_networks(networks: Sequence[dict[str, Any]], path: Path) -> None:
    """One network a line, compressed."""
    lines = ",\n".join(json.dumps(network) for network in networks)
    path.write_bytes(lzma.compress(f"[\n{lines}\n]\n".encode(), preset=9))


def _rounded(epoch: dict[str, float]) -> dict[str, float]:
    """Losses and accuracies of an epoch to six digits after the point, which is more than pages show."""
    return {name: round(value, 6) for name, value in epoch.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("results", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(given.run) as tar:
            tar.extractall(place, filter="data")
        stores: set[str] = set()
        for path in sorted(Path(place).glob("*/*.jsonl.xz")):
            target = given.results / path.relative_to(place)
            name, preset = target.parent.name, target.name.partition(".")[0]
            old = still_wanted(unpack(target) if target.exists() else [], name, preset)
            new = still_wanted(unpack(path), name, preset)
            records, left = merged(old, new)
            target.parent.mkdir(parents=True, exist_ok=True)
            pack(records, target, overwrite=True)
            unfinished = f"; {len(left)} new ones of networks that lack a method are left out" if left else ""
            print(f"{target}: {len(records)} records, {len(new) - len(left)} of them new{unfinished}")
            stores |= {store_of(record) for record in left}
        told = Path(place) / "networks.json"
        if told.exists():
            target = given.results / NETWORKS
            old_networks = read_networks(target) if target.exists() else []
            networks = merged_networks(old_networks, json.loads(told.read_text(encoding="utf-8")), stores)
            write_networks(networks, target)
            print(f"{target}: {len(networks)} networks")


if __name__ == "__main__":
    main()
