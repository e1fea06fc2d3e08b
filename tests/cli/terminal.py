"""The program on a terminal and in a pipe, for tests of what a person sees."""

import os
import re
import struct
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from unspur._text import display_width
from unspur.cli import main
from unspur.datasets import make_toy

fcntl, pty, termios = (
    pytest.importorskip(name, reason="terminals are a thing of Unix") for name in ("fcntl", "pty", "termios")
)

LONG = ("which bird it is, as the people wrote who looked", "what is to be seen behind the bird, as far as can be told")
SHORT = ["--task", "bird", "--concept", "background"]
NAMED = ["--task", LONG[0], "--concept", LONG[1]]
FIT = ["fit", "rows.npz", *SHORT, "--force", "--output", "again.safetensors"]
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def with_rows(folder):
    """A folder with rows in files, with short and long names of labels, and a removal of each."""
    toy = make_toy(800, d=6, rho=0.6, random_state=0)
    bird = np.array(["a bird that lives on land mostly", "a bird that lives on water"])[toy.y]
    where = np.array(["land without any water", "water"])[toy.concept]
    np.savez(folder / "rows.npz", Z=toy.Z, bird=toy.y, background=toy.concept)
    np.savez(folder / "long.npz", Z=toy.Z, **dict(zip(LONG, (bird, where), strict=True)))
    for rows, labels, removal in (("rows.npz", SHORT, "r.safetensors"), ("long.npz", NAMED, "long.safetensors")):
        done = CliRunner().invoke(main, ["fit", str(folder / rows), *labels, "--output", str(folder / removal)])
        assert done.exit_code == 0, done.output
    return folder


def environment(**changes):
    """An environment in which nothing has been decided about colour."""
    known = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS")}
    return {**known, "TERM": "xterm-256color", **changes}


def on_terminal(arguments, cwd, wide=80, **changes):
    """Run the program on a terminal of its own; what it shows, and its exit code."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, wide, 0, 0))
    command = [sys.executable, "-m", "unspur", *arguments]
    process = subprocess.Popen(command, cwd=cwd, stdin=its, stdout=its, stderr=its, env=environment(**changes))
    os.close(its)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    return shown.decode(), process.wait()


def piped(arguments, cwd, **changes):
    """Run the program with its output into pipes."""
    command = [sys.executable, "-m", "unspur", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment(**changes))


def widest(text):
    """Columns of the longest line; a bar starts its line anew each time."""
    return max(display_width(line) for line in re.split(r"[\r\n]+", ESCAPE.sub("", text)))
