"""Unfinished files: whoever is alive keeps theirs, the dead lose them, and the clock is not asked."""

import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from unspur._files import host_id, remove_abandoned, staging_dir, temporary_name, write_artifact

HERE = host_id()
KILLED = """
import os, signal, sys
from pathlib import Path
from unspur._files import write_artifact
import numpy as np
if sys.argv[2] == "library":  # in the middle of what the library writes
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (900, 900))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
else:
    Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
write_artifact(sys.argv[1], {"a": np.ones(1000)}, {})
"""


@pytest.fixture
def dead():
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize("when", ["library", "rename"])
def test_what_a_killed_process_wrote_is_gone_after_the_next_write(tmp_path, when):
    path = tmp_path / "a.safetensors"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path), when], check=False)
    assert killed.returncode in (-signal.SIGKILL, -signal.SIGXFSZ)
    left = list(tmp_path.iterdir())
    assert left  # control: something is there,
    assert not path.exists()  # and not under the name of the result
    write_artifact(path, {"a": np.ones(1000)}, {})
    assert list(tmp_path.iterdir()) == [path]


def test_processes_of_a_container_are_not_those_of_its_host(tmp_path, dead, monkeypatch):
    """A container may be called like its host, or like another one, and sees no processes but its own."""
    monkeypatch.setattr(os, "readlink", lambda _: "pid:[4026532999]")
    host_id.cache_clear()
    try:
        names = [f".unspur-{dead}-00-{HERE}.tmp", f".unspur-{dead}-00-{host_id()}.tmp"]
        for name in names:
            (tmp_path / name).touch()
        remove_abandoned(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == names[:1]
    finally:
        host_id.cache_clear()


def test_age_does_not_tell_the_living_from_the_dead(tmp_path, dead):
    alive = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        kept = [f".unspur-{alive.pid}-00-{HERE}.tmp", f".unspur-{dead}-00-elsewhere.tmp", temporary_name(), ".mine.tmp"]
        gone = [
            f".unspur-{dead}-00-{HERE}.tmp",
            f".unspur-{os.getpid()}-00-{HERE}.tmp",
            f".unspur-{dead}-01-{HERE}.tmp",
        ]
        for name in (*kept, *gone[:2]):
            (tmp_path / name).touch()
        (tmp_path / gone[2]).mkdir()
        (tmp_path / gone[2] / "half").touch()
        for name, then in ((kept[0], 0.0), (kept[1], time.time() + 1e7), (kept[2], 0.0), (gone[0], time.time() + 1e7)):
            os.utime(tmp_path / name, (then, then))
        remove_abandoned(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == set(kept)
    finally:
        alive.communicate(b"\n")


def test_a_folder_that_cannot_be_written_is_told_by_the_name_of_the_result(tmp_path):
    missing = tmp_path / "not there" / "rows.npy"
    with pytest.raises(FileNotFoundError) as told, staging_dir(missing):
        pass
    assert told.value.filename == str(missing)


@pytest.fixture
def small_files():
    """No file may grow beyond 2,000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
