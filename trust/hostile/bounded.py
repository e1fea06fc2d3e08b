"""A process with little memory and time in which bad files are read, and the one that watches it.

The watched process works in one folder of a tree that is listed before and after every trial. What a trial may end in:
the file is read and what comes of it is as promised, or it is refused by an error of this package that names it.
Everything else is a fault: another error, a signal, too much time or memory, a file made, changed or removed elsewhere.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from trust.hostile.trials import BrokenPromiseError, Reader, put, trials

#: Seconds that one trial may compute, and may wait without computing (after which it gets as many once more).
COMPUTING, WAITING = 10.0, 15.0
#: The latter while the process makes its imports and a sound file.
STARTING = 60.0
#: Bytes of address space beyond what the process has after its imports. One that asks for more gets a MemoryError.
ROOM = 2 << 30
#: Characters of a message: one that holds half of the file is not clear.
LONGEST = 1500
#: The folder of the watched tree that files are read in.
SCRATCH = "scratch"
#: What an attack makes in the watched tree if it gets to run code.
CANARY = "EXECUTED"
_HERE = Path(__file__).parents[2]


@dataclass
class Counts:
    """What became of the trials of a reader."""

    read: int = 0
    refused: int = 0
    #: Trial, and what was wrong.
    faults: list[tuple[str, str]] = field(default_factory=list)

    @property
    def tried(self) -> int:
        """All of them."""
        return self.read + self.refused + len(self.faults)

    @property
    def figure(self) -> str:
        """For a line of the table."""
        return f"{self.refused:,} refused in words, {self.read:,} read as promised"


class Bounded:
    """The watched process, started when it is needed and again after its death."""

    def __init__(self, computing: float = COMPUTING, waiting: float = WAITING) -> None:
        self.computing, self.waiting = computing, waiting
        self._tree = Path(tempfile.mkdtemp(prefix="bad-files-"))
        self._child: subprocess.Popen[bytes] | None = None
        self._heard = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        shutil.rmtree(self._tree, ignore_errors=True)

    def run(self, module: str, reader: str, seed: int, count: int) -> Counts:
        """Try `count` bad files on a reader of a module; after one that ends the process the next goes on."""
        counts, start = Counts(), 0
        asked = {"module": module, "reader": reader, "seed": seed, "count": count, "computing": self.computing}
        while True:
            self._ask({**asked, "start": start})
            while (told := self._told(STARTING)) is not None and "trial" in told:
                begun, start = told["trial"], told["number"] + 1
                told = self._told(self.waiting)
                if told is None:
                    counts.faults.append((begun, f"the process ended: {self._end()}"))
                    break
                if told["outcome"] == "fault":
                    counts.faults.append((begun, told["said"]))
                else:
                    setattr(counts, told["outcome"], getattr(counts, told["outcome"]) + 1)
            else:
                if told is None:
                    raise RuntimeError(f"The process for {reader} ended between two trials: {self._end()}")
                if "error" in told:
                    raise RuntimeError(f"{reader}: {told['error']}")
                return counts

    def _ask(self, request: dict[str, Any]) -> None:
        if self._child is None:
            one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_ARENA_MAX"), "1")
            one["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # others set gigabytes of addresses aside
            one |= dict.fromkeys(("TMPDIR", "HOME"), str(self._tree))
            self._child = subprocess.Popen(
                [sys.executable, "-m", __name__, str(self._tree)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=_HERE,
                env={**os.environ, **one},
            )
        assert self._child.stdin is not None
        self._child.stdin.write(f"{json.dumps(request)}\n".encode())
        self._child.stdin.flush()

    def _told(self, patience: float) -> dict[str, Any] | None:
        """The next line of the process; None if it is dead, or silent for too long."""
        assert self._child is not None
        assert self._child.stdout is not None
        computed = -1.0
        while b"\n" not in self._heard:
            if not select.select([self._child.stdout], [], [], patience)[0]:
                # On a busy machine a process may get little done in that time; one that waits gets nothing done.
                if (now := _computed(self._child.pid)) <= computed + 0.02:
                    return None
                computed = now
                continue
            if not (more := os.read(self._child.stdout.fileno(), 1 << 16)):
                return None
            self._heard += more
        line, _, self._heard = self._heard.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        return told

    def _end(self) -> str:
        """Be rid of the process; how it ended."""
        if self._child is None:
            return ""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with suppress(BrokenPipeError):
            self._child.stdin.close()
        try:
            code = self._child.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
            code = None
        self._child.stdout.close()
        self._child, self._heard = None, b""
        if code is None:
            return f"it said nothing for {self.waiting:g} s"
        if code == -signal.SIGPROF:
            return f"it computed for more than {self.computing:g} s"
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _work(tree: Path) -> None:
    """The watched process: requests on standard input, answers where standard output was."""
    answers = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nowhere, stream)

    def say(**told: Any) -> None:
        answers.write(json.dumps(told) + "\n")
        answers.flush()

    warnings.simplefilter("ignore")
    (tree / "cwd").mkdir(exist_ok=True)
    os.chdir(tree / "cwd")
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            _try_all(asked, tree, say)
        except BaseException as error:
            say(error=f"{type(error).__name__}: {error}")
            continue
        say(end=True)


def _try_all(asked: dict[str, Any], tree: Path, say: Any) -> None:
    reader: Reader = getattr(importlib.import_module(asked["module"]), asked["reader"])
    scratch = tree / SCRATCH
    _emptied(scratch)
    path = reader.make(scratch)
    kept = tree / "sound"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(scratch, kept, symlinks=True)
    sound = path.read_bytes()
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    reader.read(path)  # the control: sound files are read; and all that is imported on the way is
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + ROOM, resource.RLIM_INFINITY))
    for number, (what, bad) in enumerate(trials(reader, sound, asked["seed"], asked["count"])):
        if number < asked["start"]:
            continue
        _restored(scratch, kept)
        put(bad, path)
        before = _listing(tree)
        say(trial=what, number=number)
        memory = _Memory()
        outcome, said = _tried(reader, path, asked["computing"])
        if outcome != "fault" and (taken := memory.taken) > reader.most:
            outcome, said = "fault", f"it took {taken >> 20:,} MB"
        gc.collect(0)
        if outcome != "fault" and (changed := _listing(tree) ^ before):
            outcome, said = "fault", f"files elsewhere were made, changed or removed: {sorted(changed)[:3]}"
        say(outcome=outcome, said=said)
    _emptied(scratch)


def _tried(reader: Reader, path: Path, computing: float) -> tuple[str, str]:
    from unspur.exceptions import UnspurError

    signal.setitimer(signal.ITIMER_PROF, computing)
    try:
        reader.read(path)
    except UnspurError as error:
        message = str(error)
        if _without_memory(error):
            return "fault", f"it asked for too much memory: {message[:300]}"
        if path.name not in message and path.parent.name not in message:
            return "fault", f"the message does not name the file: {message[:300]}"
        if len(message) > LONGEST:
            return "fault", f"the message has {len(message)} characters: {message[:200]}"
        return "refused", message[:300]
    except BrokenPromiseError as error:
        return "fault", f"read, but {error}"
    except BaseException as error:
        return "fault", _where(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return "read", ""


class _Memory:
    """What is taken from now on. The peak of the address space has been there since the start and only grows."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak of memory in use begins anew
        self.before = _status()

    @property
    def taken(self) -> int:
        """Bytes, of memory or of address space, at the worst moment."""
        now = _status()
        asked = now["VmPeak"] - self.before["VmSize"] if now["VmPeak"] > self.before["VmPeak"] else 0
        return max(asked, now["VmHWM"] - self.before["VmRSS"])


def _status() -> dict[str, int]:
    """Sizes in bytes from the system's account of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    sizes = (line.split() for line in lines if line.startswith(("VmPeak", "VmSize", "VmHWM", "VmRSS")))
    return {name.rstrip(":"): int(size) << 10 for name, size, _ in sizes}


def _without_memory(error: BaseException | None) -> bool:
    """Whether an error comes of memory that was asked for and not given."""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _where(error: BaseException) -> str:
    """An error with the lines of this package that it went through."""
    lines, trace = [], error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if f"{os.sep}unspur{os.sep}" in code.co_filename:
            lines.append(f"{Path(code.co_filename).name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return f"{type(error).__name__}: {str(error)[:200]} ({' '.join(lines[-6:])})"


def _emptied(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def _restored(scratch: Path, kept: Path) -> None:
    """The scratch folder as it was made."""
    shutil.rmtree(scratch)
    shutil.copytree(kept, scratch, symlinks=True)


def _listing(tree: Path) -> set[tuple[str, int, int]]:
    """Everything in the tree that is not in the scratch folder."""
    found = set()
    for folder, folders, files in os.walk(tree):
        if folder == str(tree):
            folders.remove(SCRATCH)
        for name in (*folders, *files):
            seen = os.lstat(os.path.join(folder, name))
            found.add((os.path.join(folder, name), seen.st_size, seen.st_mtime_ns))
    return found


def _computed(process: int) -> float:
    """Seconds of computing that a process has had."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    _work(Path(sys.argv[1]))
