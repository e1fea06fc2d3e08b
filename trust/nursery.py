"""Processes that fail at a moment of our choosing. One process imports everything and forks a child for each job.

A *moment* is the instant before a file is opened for writing, renamed, removed or given a mode, or a folder made or
removed, below the folder that is watched; Python tells of each (audit events). So a command has as many moments as it
changes files, and can be killed at every one of them. What libraries write in one piece is cut by a limit on the size
of files, at any byte: the system ends the process, or refuses to write more.
"""

import contextlib
import ctypes
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import reduce
from importlib import import_module
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
#: What changes files: audit event -> where its path is among the arguments, and the folder it is relative to.
CHANGES = {
    "os.rename": (0, 2),
    "os.remove": (0, 1),
    "os.mkdir": (0, 2),
    "os.rmdir": (0, 1),
    "os.chmod": (0, 2),
    "os.link": (1, 3),
    "os.truncate": (0, None),
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
#: Seconds that a job may take before it counts as hanging.
PATIENCE = 120.0
#: Numbers of the system: the rights to pass over the modes of files, and how they are given up.
PASS_OVER_MODES, CAPABILITIES_3 = 0b1110, 0x20080522


@dataclass(frozen=True)
class Fault:
    """What goes wrong in a process; by default nothing."""

    #: kill -9 at this moment (1 is the first).
    kill_at: int | None = None
    #: The process is killed when a file would grow beyond so many bytes …
    cut_at: int | None = None
    #: … or is told that the file is too large.
    most: int | None = None
    #: Seconds that the clock jumps at every moment.
    clock: float = 0.0
    #: Waits of up to 20 ms at every moment, drawn from this seed, so that processes overtake each other.
    jitter: int | None = None
    #: Modes of files bind the process, as they do not bind root.
    bound: bool = False
    #: The process is killed after so many seconds, wherever it is.
    kill_after: float | None = None


@dataclass(frozen=True)
class Job:
    """A command line of either program, or "module:function" and its arguments, run below a folder that is watched."""

    command: tuple[str, ...]
    folder: Path
    fault: Fault = Fault()
    #: "module:NAME" -> another value, as for a test that should not take minutes.
    settings: dict = field(default_factory=dict)


@dataclass(frozen=True)
class End:
    """How a process ended (its exit code, or minus the signal), what it said, and the moments it had."""

    code: int
    said: str
    moments: tuple[str, ...]

    @property
    def killed(self) -> bool:
        return self.code in (-signal.SIGKILL, -signal.SIGXFSZ, -signal.SIGALRM)


class Nursery:
    """A process with everything imported, of which others are made: ``Nursery(place, *modules).run(job)``."""

    def __init__(self, place: Path, *modules: str) -> None:
        self.place = place
        command = [sys.executable, "-m", "trust.nursery", str(place), *modules]
        quiet = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "no_proxy": "127.0.0.1"}
        self.process = subprocess.Popen(
            command, cwd=REPOSITORY, env=quiet, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        self.process.communicate()

    def run(self, job: Job) -> End:
        return self.together(job)[0]

    def together(self, *jobs: Job) -> list[End]:
        """Run jobs at the same time; how each of them ended."""
        told = [{**asdict(job), "folder": str(job.folder)} for job in jobs]
        print(json.dumps(told), file=self.process.stdin, flush=True)
        codes = json.loads(self.process.stdout.readline())
        logs = [self.place / f"{number}.moments" for number in range(len(jobs))]
        said = [(self.place / f"{number}.said").read_text(errors="replace") for number in range(len(jobs))]
        return [
            End(code, text, tuple(log.read_text().splitlines()))
            for code, text, log in zip(codes, said, logs, strict=True)
        ]


def serve(place: Path, modules: list[str]) -> None:
    for name in modules:
        import_module(name)
    for line in sys.stdin:
        jobs = [
            Job(**{**told, "folder": Path(told["folder"]), "fault": Fault(**told["fault"])})
            for told in json.loads(line)
        ]
        children = []
        for number, job in enumerate(jobs):
            child = os.fork()
            if not child:
                become(job, place, number)
            children.append(child)
        print(json.dumps([_ended(child) for child in children]), flush=True)


def _ended(child: int) -> int:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 124  # it hung


def become(job: Job, place: Path, number: int) -> None:
    """Be the job, to its end."""
    code = 1
    try:
        said = os.open(place / f"{number}.said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        log = os.open(place / f"{number}.moments", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(job.folder)
        for name, value in job.settings.items():
            module, _, what = name.partition(":")
            *inside, last = what.split(".")
            setattr(reduce(getattr, inside, import_module(module)), last, value)
        suffer(job.fault, job.folder, log)
        code = work(job.command)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)  # first: there may be no room for the rest
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def work(command: tuple[str, ...]) -> int:
    if ":" in command[0]:
        module, _, name = command[0].partition(":")
        getattr(import_module(module), name)(*command[1:])
        return 0
    try:
        program_of(command[0])(list(command))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def program_of(verb: str) -> Callable[[list[str]], object]:
    """`unspur`, or `unspur-paper` for the verbs that are there."""
    from unspur.cli import MOVED, main
    from unspur_paper.cli import main as paper

    return paper if verb in MOVED else main


def suffer(fault: Fault, folder: Path, log: int) -> None:
    """Have the fault in this process, from now on."""
    count, jitter, below, now = 0, random.Random(fault.jitter), str(folder.resolve()), time.time

    def hook(event: str, arguments: tuple) -> None:
        nonlocal count
        path = _changed(event, arguments, below)
        if path is None:
            return
        count += 1
        os.write(log, f"{event} {path}\n".encode())
        if count == fault.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if fault.jitter is not None:
            time.sleep(0.02 * jitter.random() ** 2)

    sys.addaudithook(hook)
    if fault.clock:
        time.time = lambda: now() + fault.clock * count
    if fault.cut_at is not None or fault.most is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if fault.most is None else signal.SIG_IGN)
        size = fault.cut_at if fault.most is None else fault.most
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    if fault.kill_after is not None:
        signal.setitimer(signal.ITIMER_REAL, fault.kill_after)  # a signal that nobody handles ends the process
    if fault.bound:
        _give_up_rights()


def _give_up_rights() -> None:
    libc, header = ctypes.CDLL(None, use_errno=True), (ctypes.c_uint32 * 2)(CAPABILITIES_3, 0)
    rights = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable: the low halves, then the high ones
    for call in (libc.capget, libc.capset):
        if call(header, rights):
            raise OSError(ctypes.get_errno(), "rights cannot be given up")
        for number in range(3):
            rights[number] &= ~PASS_OVER_MODES


def _changed(event: str, arguments: tuple, below: str) -> str | None:
    """The path below the folder that is about to be changed."""
    if event == "open":
        path, _, flags = arguments
        if not isinstance(path, str | bytes | os.PathLike) or not flags & WRITING:
            return None
        relative_to = None
    elif event in CHANGES:
        at, place = CHANGES[event]
        path, relative_to = arguments[at], None if place is None or len(arguments) <= place else arguments[place]
        if not isinstance(path, str | bytes | os.PathLike):
            return None
    else:
        return None
    path = os.fsdecode(path)
    if relative_to not in (None, -1):  # an open folder, as `shutil.rmtree` has
        path = os.path.join(os.readlink(f"/proc/self/fd/{relative_to}"), path)
    path = os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path))
    return os.path.relpath(path, below) if path.startswith(below + os.sep) else None


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2:])
