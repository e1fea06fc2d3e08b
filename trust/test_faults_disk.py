"""A disk that is full, or that can only be read: said in words, nothing half-written, and a rerun once it is over."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trust.faults import SAID, chosen, commands, fresh, half_read, peace_of, rerun, snapshot
from trust.nursery import Fault

PART = "faults"
VERBS = ("fit", "apply npz", "apply csv", "apply parquet", "apply folder", "report", "embed", "reproduce")
PAGE, PLENTY = 4096, 2**26
#: How it is told.
FULL = ("the disk is full", "No space left on device", "larger than the file system", "File too large")
READ_ONLY = ("can only be read", "ead-only file system", "ermission denied")


@contextmanager
def disk(folder: Path, size: int) -> Iterator[None]:
    """A disk of its own for a folder, where this user may mount one."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a disk of a chosen size needs the right to mount one")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def changed(folder: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=True)


def complaint(end, words) -> str:
    """What is wrong with how a run told of its trouble; "" if it did so in words."""
    if end.code != 1:
        return f"it ended with {end.code}: {end.said[-300:]}"
    last = end.said.strip().splitlines()[-1]
    if not last.startswith("Error: ") or not any(word in end.said for word in words) or ".tmp" in last:
        return f"it said {last}"
    return ""


def test_a_full_disk_is_said_and_with_room_again_a_rerun_ends_as_ever(effort, tally, tmp_path):
    line, nursery, wrong = tally("full disk, in every verb that writes"), commands(), []
    for name in VERBS:
        peace = peace_of(name)
        sizes = chosen(range(1, 2 + peace.total // PAGE), effort.times(1, 25), seed=len(name))
        for size in sizes:
            folder = tmp_path / f"{name} {size}"
            with disk(folder, size * PAGE):
                peace.work.before(folder)
                first = commands().run(peace.work.job(folder))
                if first.code == 0:
                    continue  # it fits
                odd = complaint(first, FULL) or half_read(peace, folder)
                changed(folder, f"size={PLENTY}")
                odd = odd or rerun(nursery, peace, folder)
            line.trial(not odd)
            wrong += [f"{name} on {size} pages: {odd}"] if odd else []
    line.figure = f"disks of {line.tried} sizes in {len(VERBS)} verbs"
    assert line.all_survived, "\n".join(wrong)


def test_a_file_that_may_not_grow_is_told_like_a_full_disk(effort, tally, tmp_path):
    line, nursery, wrong = tally("limit on the size of files, likewise"), commands(), []
    for name in VERBS:
        peace = peace_of(name)
        for size in chosen(range(SAID, peace.largest), effort.times(1, 12), seed=len(name)):
            folder = fresh(tmp_path / f"{name} {size}", peace.work)
            first = nursery.run(peace.work.job(folder, Fault(most=size)))
            odd = complaint(first, FULL) or half_read(peace, folder) or rerun(nursery, peace, folder)
            line.trial(not odd)
            wrong += [f"{name}, {size} bytes: {odd}"] if odd else []
    line.figure = f"{line.tried} limits in {len(VERBS)} verbs"
    assert line.all_survived, "\n".join(wrong)


@pytest.mark.parametrize("kind", ["disk", "folder"])
def test_where_nothing_can_be_written_that_is_said_and_nothing_changes(kind, tally, tmp_path):
    line, nursery, wrong = tally(f"read-only {kind}, likewise"), commands(), []
    for name in VERBS:
        peace, folder = peace_of(name), tmp_path / name
        with disk(folder, PLENTY):
            peace.work.before(folder)
            before = snapshot(folder)
            if kind == "disk":
                changed(folder, "ro")
            else:
                folder.chmod(0o555)
            first = nursery.run(peace.work.job(folder, Fault(bound=kind == "folder")))
            odd = complaint(first, READ_ONLY) or ("" if snapshot(folder) == before else "something was changed")
            folder.chmod(0o755) if kind == "folder" else changed(folder, "rw")
            odd = odd or rerun(nursery, peace, folder)
        line.trial(not odd)
        wrong += [f"{name}: {odd}"] if odd else []
    line.figure = f"{len(VERBS)} verbs"
    assert line.all_survived, "\n".join(wrong)
