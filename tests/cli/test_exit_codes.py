"""How the program ends: errors in words, documented exit codes, nothing half done."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.cli.command_page import PAGE
from tests.cli.terminal import FIT, SHORT, environment, with_rows
from unspur.cli import MOVED, main
from unspur.cli.program import EXIT_CODES


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return with_rows(tmp_path_factory.mktemp("rows"))


def test_mistyped_words_get_the_nearest():
    for words, meant in ((["fti"], "'fit'"), (["FIT"], "'fit'"), (["fit", "x.npz", "--concpt", "c"], "--concept")):
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 2
        assert meant in done.output.splitlines()[-1]
    assert "mean" not in CliRunner().invoke(main, ["xyzzy"]).output


@pytest.mark.parametrize("verb", MOVED)
def test_verbs_of_the_reproduction_say_where_they_went(verb):
    done = CliRunner().invoke(main, [verb, "--list"])
    assert done.exit_code == 2
    assert f"'{verb}' went to the reproduction: unspur-paper {verb}." in done.output
    assert "pip install -e reproduction" in done.output


def failing(monkeypatch, error, arguments=()):
    """A run in which reading the rows fails."""

    def fail(*_, **__):
        raise error

    monkeypatch.setattr("unspur.io.files.read_table", fail)
    words = [*arguments, "fit", "rows.npz", "--task", "y", "--concept", "c", "--output", "r.safetensors"]
    return CliRunner().invoke(main, words)


def test_a_fault_of_ours_is_called_one(monkeypatch):
    done = failing(monkeypatch, ZeroDivisionError("division by zero"))
    assert done.exit_code == 70
    assert "ZeroDivisionError: division by zero" in done.output
    assert "--debug" in done.output
    assert "Traceback" not in done.output
    assert len(done.output.splitlines()) == 2


def test_a_value_error_is_the_librarys_complaint_or_our_fault(monkeypatch):
    def library(*_, **__):
        np.linalg.solve(np.ones((2, 3)), np.ones(2))  # raised by a line of NumPy

    monkeypatch.setattr("unspur.io.files.read_table", library)
    words = ["fit", "rows.npz", "--task", "y", "--concept", "c", "--output", "r.safetensors"]
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, done.output[:6]) == (1, "Error:")
    ours = compile("def read(*_, **__):\n    a, b = 1, 2, 3", "made_up.py", "exec")
    space = {"__name__": "unspur.made_up"}
    exec(ours, space)
    monkeypatch.setattr("unspur.io.files.read_table", space["read"])
    assert CliRunner().invoke(main, words).exit_code == 70


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError("Unable to allocate 7 GiB"), "not enough memory (Unable to allocate 7 GiB)"),
        (OSError(28, "No space left on device", "rows.tmp"), "'rows.tmp' cannot be written: the disk is full"),
        (RuntimeError("I/O error: No space left (os error 28)"), "the disk is full"),
        (PermissionError(13, "Permission denied", "rows.npz"), "rows.npz: permission denied."),
        (RuntimeError("Symlink loop from '/rows.npz'"), "'/rows.npz': the symbolic link points to itself."),
        (ModuleNotFoundError("No module named 'pandas'", name="pandas"), "pandas is not installed"),
    ],
)
def test_what_the_machine_lacks_is_said_in_words(monkeypatch, error, words):
    done = failing(monkeypatch, error)
    assert done.exit_code == 1
    assert words in done.output
    assert "Errno" not in done.output


def test_debug_shows_the_traceback_before_and_after_the_verb(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = ["fit", "gone.npz", *SHORT, "--output", "x"]
    for words in (["--debug", *wrong], [*wrong, "--debug"]):
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 1
        assert "Traceback (most recent call last)" in done.stderr
        assert done.stderr.splitlines()[-1] == "Error: There is no file gone.npz."
    assert CliRunner().invoke(main, wrong).stderr == "Error: There is no file gone.npz.\n"


def stopped(*_, **__):
    raise KeyboardInterrupt


def halfway(_, path, **__):
    path.write_text("half")
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("during", "instead"),
    [("unspur.removers.jse.JSE.fit", stopped), ("safetensors.numpy.save_file", halfway)],
    ids=["the fit", "the writing"],
)
def test_an_interrupt_leaves_nothing_half_done(folder, tmp_path, monkeypatch, during, instead):
    monkeypatch.chdir(tmp_path)
    words = ["fit", str(folder / "rows.npz"), *SHORT, "--output", "r.safetensors"]
    with monkeypatch.context() as patch:
        patch.setattr(during, instead)
        done = CliRunner().invoke(main, words)
    assert (done.exit_code, done.stderr) == (130, "Interrupted.\n")
    assert list(tmp_path.iterdir()) == []
    assert CliRunner().invoke(main, words).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["r.safetensors"]  # where nobody stops it


def test_a_signal_is_such_an_interrupt(folder, tmp_path):
    code = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
import safetensors.numpy as m
m.save_file = lambda _, path, **__: (path.write_text("half"), os.kill(os.getpid(), signal.SIGINT))
from unspur.cli import MOVED, main
main()
"""
    words = ["fit", str(folder / "rows.npz"), *SHORT, "--output", "r.safetensors"]
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "unbuffered"), [(["--help"], ""), (["--help"], "1"), (FIT, "")], ids=["help", "help at once", "fit"]
)
def test_a_reader_that_stops_reading_is_no_error(folder, arguments, unbuffered):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "unspur", *arguments],
        cwd=folder,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(PYTHONUNBUFFERED=unbuffered),
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_under_the_output_is_said(folder):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "unspur", *FIT]
        held_back = environment(PYTHONUNBUFFERED="")  # what was not written is tried again at the end
        done = subprocess.run(command, cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True, env=held_back)
    assert done.returncode == 1
    assert done.stderr == (
        "Error: The output cannot be written: the disk is full. Make room, or write to another place.\n"
    )


def test_the_page_and_the_help_have_every_exit_code():
    page, shown = PAGE.text, CliRunner().invoke(main, ["--help"]).output
    assert set(map(int, re.findall(r"(?m)^\| (\d+) \|", page))) == set(EXIT_CODES)
    assert all(re.search(rf"\b{code}\b", shown) for code in EXIT_CODES)
    assert EXIT_CODES[signal.SIGINT + 128]


@pytest.mark.skipif(os.name != "posix", reason="streams are closed in a shell of Unix")
@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_closed_streams_do_not_keep_a_verb_from_its_work(folder, tmp_path, closed):
    def run(*words):
        command = " ".join([sys.executable, "-m", "unspur", *words, closed])
        return subprocess.run(["sh", "-c", command], cwd=folder, env=environment(), check=False).returncode

    output = tmp_path / "clean.csv"
    labels = ["--label", "bird", "--label", "background"]
    assert run("apply", "r.safetensors", "rows.npz", *labels, "--output", str(output)) == 0
    again = tmp_path / "again.csv"
    done = CliRunner().invoke(
        main, ["apply", str(folder / "r.safetensors"), str(folder / "rows.npz"), *labels, "--output", str(again)]
    )
    assert done.exit_code == 0
    assert output.read_bytes() == again.read_bytes()  # and nothing that was said is in it
    assert run("nosuchverb") == 2


@pytest.mark.skipif(os.name != "posix", reason="streams are closed in a shell of Unix")
def test_a_fit_with_standard_error_closed_is_done_and_saved(folder):
    command = " ".join([sys.executable, "-m", "unspur", *FIT, "2>&-"])
    done = subprocess.run(["sh", "-c", command], cwd=folder, env=environment(), capture_output=True, check=False)
    assert done.returncode == 0
    assert (folder / "again.safetensors").read_bytes()
    assert b"again.safetensors" in done.stdout


def test_what_is_closed_is_opened_where_files_would_come_to_lie():
    """In a process of its own, in which standard error is closed as a shell does it."""
    code = (
        "import os, sys; from unspur.cli.program import open_closed_streams\n"
        "assert sys.stderr is None\n"
        "if sys.argv[1] == 'opened': open_closed_streams()\n"
        "file = open(os.devnull)\n"
        "sys.exit(file.fileno())"
    )
    if os.name != "posix":
        pytest.skip("streams are closed in a shell of Unix")
    for how, number in (("opened", False), ("left", True)):  # control: else a file gets its number
        command = ["sh", "-c", f'exec {sys.executable} -c "$0" {how} 2>&-', code]
        assert (subprocess.run(command, check=False).returncode == 2) == number
