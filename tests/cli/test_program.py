"""The program: exit codes, help, pages that describe it, and output that fits a terminal."""

import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from tests.cli.command_page import PAGE
from unspur._version import __version__
from unspur.cli import main
from unspur.cli.console import say, say_command
from unspur.cli.program import EXIT_CODES
from unspur.datasets import make_toy

FIT = ["fit", "rows.npz", "--task", "bird", "--concept", "background", "--force", "--output", "r.safetensors"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    toy = make_toy(400, d=4, rho=0.6, random_state=0)
    np.savez(tmp_path / "rows.npz", Z=toy.Z, bird=toy.y, background=toy.concept)


def run(*words, **environment):
    return CliRunner().invoke(main, list(words), env={"COLUMNS": "80", **environment}, prog_name="unspur")


def in_shell(*words, **more):
    command = [sys.executable, "-m", "unspur", *words]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **more)


# Exit codes


def failing(monkeypatch, error):
    """A run in which reading the rows fails."""

    def fail(*_, **__):
        raise error

    monkeypatch.setattr("unspur.io.read_table", fail)
    return run(*FIT)


def test_the_page_and_the_help_have_every_exit_code():
    assert set(map(int, re.findall(r"(?m)^\| (\d+) \|", PAGE.text))) == set(EXIT_CODES)
    assert all(re.search(rf"\b{code}\b", run("--help").output) for code in EXIT_CODES)
    assert EXIT_CODES[signal.SIGINT + 128]


def test_success_is_0():
    done = run(*FIT)
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MemoryError("Unable to allocate 7 GiB"), "not enough memory (Unable to allocate 7 GiB)"),
        (OSError(28, "No space left on device", "rows.tmp"), "rows.tmp: no space left on device."),
        (PermissionError(13, "Permission denied", "rows.npz"), "rows.npz: permission denied."),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), r"pip install '.[torch]'"),
    ],
)
def test_what_the_machine_lacks_is_1(monkeypatch, error, says):
    done = failing(monkeypatch, error)
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: ")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1  # for grep


def test_a_complaint_of_a_library_is_1(monkeypatch):
    monkeypatch.setattr("unspur.io.read_table", lambda *_, **__: np.linalg.solve(np.ones((2, 3)), np.ones(2)))
    assert run(*FIT).exit_code == 1


@pytest.mark.parametrize("words", [["fti"], ["fit", "rows.npz", "--concpt", "c"], FIT[:2]])
def test_wrong_usage_is_2(words):
    done = run(*words)
    assert done.exit_code == 2
    assert "Usage: unspur" in done.stderr
    assert "Did you mean 'fit'?" in run("fti").stderr


@pytest.mark.parametrize("words", [[*FIT, "--debug"], ["--debug", *FIT], FIT])
def test_a_fault_is_70_and_debug_shows_where(monkeypatch, words):
    monkeypatch.setattr("unspur.io.read_table", lambda *_, **__: 1 // 0)
    done = run(*words)
    assert done.exit_code == 70
    assert "Fault: ZeroDivisionError" in done.stderr
    assert ("Traceback" in done.stderr) == ("--debug" in words)


def test_an_interrupt_is_130_and_leaves_nothing_half_done(monkeypatch, tmp_path):
    def halfway(path, _):
        path.write_text("half")
        raise KeyboardInterrupt

    before = set(tmp_path.iterdir())
    monkeypatch.setattr("pathlib.Path.write_bytes", halfway)
    done = run(*FIT)
    assert (done.exit_code, done.stderr) == (130, "Interrupted.\n")
    assert set(tmp_path.iterdir()) == before


@pytest.mark.skipif(os.name != "posix", reason="pipes of Unix")
def test_a_reader_that_stops_reading_is_141():
    reading, writing = os.pipe()
    os.close(reading)
    done = in_shell(*FIT, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


# Help and pages


@pytest.mark.parametrize("verb", ["", *PAGE.verbs])
def test_help_fits_and_says_how(verb):
    done = run(*filter(None, [verb]), "--help")
    assert done.exit_code == 0, done.output
    assert max(map(len, done.output.splitlines())) <= 80
    assert "--debug" in done.output
    assert f"unspur {verb or 'COMMAND'}" in done.output


def test_version_and_bare_command():
    assert run("--version").output == f"unspur {__version__}\n"
    bare = run()
    assert bare.exit_code == 0
    assert "Remove a concept:" in bare.output


def test_the_page_has_every_verb_with_all_its_options():
    """If this fails, write what is new by hand and then the tables: python -m tests.cli.command_page."""
    sections = PAGE.parts()
    assert list(sections) == PAGE.verbs
    for verb, text in sections.items():
        assert f"unspur {verb} " in text
        assert PAGE.table_of(verb) in text, verb


def test_every_command_and_option_on_the_page_exists():
    for verb, rest in PAGE.commands():
        assert set(re.findall(r"(?<!\S)--[a-z][\w-]*", rest)) <= PAGE.options_of(verb), (verb, rest)


def test_click_completes_commands_and_options():
    for line, offered in (("unspur rep", "report"), ("unspur fit --max-s", "--max-spurious")):
        count = str(len(line.split()) - 1)
        done = run(_UNSPUR_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=count)
        assert f"plain,{offered}" in done.stdout.splitlines()


def test_help_imports_nothing_heavy():
    code = "import sys; from unspur.cli import main; main(['--help'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "pandas", "sklearn", "rich", "torch"} & set(done.stdout.split())


# What is printed


def test_text_is_wrapped_and_names_cannot_command_the_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    say("word " * 30 + "\x1b]0;owned\x07")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[-1].endswith(r"\x1b]0;owned\x07")


def test_a_command_to_copy_works_when_it_is_pasted(capsys):
    words = ["unspur", "fit", "my rows.csv", "--task", "what it is", "--concept", "c" * 60, "--output", "m.safetensors"]
    say_command(words)
    text = capsys.readouterr().out
    assert text.count("\\\n") == 2
    pasted = text.removeprefix("Next: unspur").replace("\n    ", " ").replace("\\ ", " ")
    script = f"import sys; print(sys.argv[1:] == {words[1:]!r})"
    done = subprocess.run(f'{sys.executable} -c "{script}" {pasted}', shell=True, capture_output=True, text=True)
    assert done.stdout == "True\n"


@pytest.mark.skipif(os.name != "posix", reason="terminals of Unix")
def test_bars_are_for_terminals():
    import pty

    ours, its = pty.openpty()
    done = subprocess.run([sys.executable, "-m", "unspur", *FIT], stdout=its, stderr=its, check=True)
    os.close(its)
    assert done.returncode == 0
    off = in_shell(*FIT, stdout=subprocess.PIPE)
    assert (off.stderr, "\x1b" in off.stdout) == ("", False)
    os.close(ours)
