"""What a person sees: lines that fit 80 columns, colour on a terminal only, errors in words, documented exit codes."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.lab.command_page import PAGE, VERBS, command, parts, table_of
from unspur import JSE
from unspur._text import columns, lines_of
from unspur._version import __version__
from unspur.lab.cli import SECTIONS, main
from unspur.lab.cli.errors import EXIT_CODES
from unspur.lab.cli.words import colour_wanted, printable, say_command
from unspur.lab.datasets import make_toy
from unspur.lab.report.tables import group_table
from unspur.metrics import group_accuracy

LONG = ("which bird it is, as the people wrote who looked", "what is to be seen behind the bird, as far as can be told")
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows in files, with short and long names of labels, and a removal."""
    folder = tmp_path_factory.mktemp("rows")
    toy = make_toy(800, d=6, rho=0.6, random_state=0)
    bird = np.array(["a bird that lives on land mostly", "a bird that lives on water"])[toy.y]
    where = np.array(["land without any water", "water"])[toy.concept]
    np.savez(folder / "rows.npz", Z=toy.Z, bird=toy.y, background=toy.concept)
    np.savez(folder / "long.npz", Z=toy.Z, **dict(zip(LONG, (bird, where), strict=True)))
    done = CliRunner().invoke(
        main, ["fit", str(folder / "rows.npz"), *SHORT, "--output", str(folder / "r.safetensors")]
    )
    assert done.exit_code == 0, done.output
    return folder


SHORT = ["--main", "bird", "--concept", "background"]
NAMED = ["--main", LONG[0], "--concept", LONG[1]]
FIT = ["fit", "rows.npz", *SHORT, "--force", "--output", "again.safetensors"]


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
    return max(columns(line) for line in re.split(r"[\r\n]+", ESCAPE.sub("", text)))


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "long.npz", *NAMED, "--force", "--output", "again.safetensors"],
        ["evaluate", "r.safetensors", "long.npz", *NAMED],
        ["compare", "long.npz", *NAMED, "--head", "ERM"],
        ["fit", "long.npz", "--main", "an unknown label", "--concept", LONG[1], "--output", "none.safetensors"],
        ["reproduce", "--list"],
        ["embed", "--list"],
        ["data", "--list"],
    ],
    ids=lambda arguments: "-".join(arguments[:2]),
)
def test_no_line_is_wider_than_the_terminal(folder, arguments):
    shown, code = on_terminal(arguments, folder)
    assert code == (1 if "an unknown label" in arguments else 0), shown
    assert 60 < widest(shown) <= 80
    if "evaluate" in arguments:  # nothing of the names is lost
        words = " ".join(shown.split())
        assert all(name in words for name in ("a bird that lives on land mostly", *LONG))


def test_text_follows_a_narrower_terminal(folder):
    shown, _ = on_terminal(["fit", "gone.npz", *NAMED, "--output", "x" * 30], folder, wide=40)
    assert widest(shown) <= 40
    assert "There is no file gone.npz" in shown


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_fits_and_says_how(verb):
    done = CliRunner().invoke(main, [*filter(None, [verb]), "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    assert widest(done.output) <= 80
    assert "--debug" in done.output
    assert f"unspur {verb or 'VERB'}" in done.output


@pytest.mark.parametrize("verb", VERBS)
def test_the_one_line_of_a_verb_is_its_own_and_is_not_cut(verb):
    line = next(verbs[verb] for verbs in SECTIONS.values() if verb in verbs)
    assert line in CliRunner().invoke(main, ["--help"], env={"COLUMNS": "80"}).output
    first = command(verb).help.split("\n\n")[0].replace("\n", " ")
    assert line == first or len(first) > 62


def test_colour_is_for_terminals_and_can_be_refused(folder):
    shown, _ = on_terminal(FIT, folder)
    assert "\x1b[32m✓\x1b[0m" in shown
    assert "\x1b[31m" in on_terminal(["fit", "gone.npz", *SHORT, "--output", "x"], folder)[0]
    for refused in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}):
        shown, code = on_terminal(FIT, folder, **refused)
        assert code == 0
        assert "✓" in shown
        assert "\x1b" not in shown
    assert "\x1b" in piped(FIT, folder, FORCE_COLOR="1").stdout
    assert colour_wanted({}) is None


def test_a_pipe_gets_plain_text_and_no_bars(folder):
    on, off = on_terminal(FIT, folder)[0], piped(FIT, folder)
    assert "pairs/s" in on
    assert off.stderr == ""
    assert "\x1b" not in off.stdout
    assert widest(off.stdout) <= 80
    json.loads(on_terminal([*FIT, "--json"], folder)[0])  # nothing but the document, on a terminal too


def test_names_cannot_command_the_terminal(tmp_path):
    toy = make_toy(400, d=4, rho=0.6, random_state=0)
    np.savez(tmp_path / "rows.npz", Z=toy.Z, y=toy.y, **{"c\x1b]0;owned\x07\u202e": toy.concept})
    shown, code = on_terminal(["fit", "rows.npz", "--main", "y", "--concept", "c\x1b]0;owned\x07\u202e", "--output",
                               "r.safetensors"], tmp_path)  # fmt: skip
    assert code == 0
    assert r"c\x1b]0;owned\x07\u202e" in shown
    assert "\x1b]" not in shown
    assert printable("two\nlines") == "two\nlines"


def test_mistyped_words_get_the_nearest():
    for words, meant in ((["fti"], "'fit'"), (["FIT"], "'fit'"), (["fit", "x.npz", "--concpt", "c"], "--concept")):
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 2
        assert meant in done.output.splitlines()[-1]
    assert "mean" not in CliRunner().invoke(main, ["xyzzy"]).output


def test_version_and_bare_command(folder):
    assert piped(["--version"], folder).stdout == f"unspur {__version__}\n"
    bare = piped([], folder)
    assert (bare.returncode, bare.stderr) == (0, "")
    assert "Remove a concept:" in bare.stdout


def failing(monkeypatch, error, arguments=()):
    """A run in which reading the rows fails."""

    def fail(*_, **__):
        raise error

    monkeypatch.setattr("unspur.lab.files.read_table", fail)
    words = [*arguments, "fit", "rows.npz", "--main", "y", "--concept", "c", "--output", "r.safetensors"]
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

    monkeypatch.setattr("unspur.lab.files.read_table", library)
    words = ["fit", "rows.npz", "--main", "y", "--concept", "c", "--output", "r.safetensors"]
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, done.output[:6]) == (1, "Error:")
    ours = compile("def read(*_, **__):\n    a, b = 1, 2, 3", "made_up.py", "exec")
    space = {"__name__": "unspur.made_up"}
    exec(ours, space)
    monkeypatch.setattr("unspur.lab.files.read_table", space["read"])
    assert CliRunner().invoke(main, words).exit_code == 70


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError("Unable to allocate 7 GiB"), "not enough memory (Unable to allocate 7 GiB)"),
        (OSError(28, "No space left on device", "rows.tmp"), "'rows.tmp' cannot be written: the disk is full"),
        (RuntimeError("I/O error: No space left (os error 28)"), "the disk is full"),
        (PermissionError(13, "Permission denied", "rows.npz"), "rows.npz: permission denied."),
        (ModuleNotFoundError("No module named 'pandas'", name="pandas"), "pandas is not installed"),
    ],
)
def test_what_the_machine_lacks_is_said_in_words(monkeypatch, error, words):
    done = failing(monkeypatch, error)
    assert done.exit_code == 1
    assert words in done.output
    assert "Errno" not in done.output


def test_debug_shows_the_traceback_before_and_after_the_verb(folder):
    wrong = ["fit", "gone.npz", *SHORT, "--output", "x"]
    for words in (["--debug", *wrong], [*wrong, "--debug"]):
        done = piped(words, folder)
        assert done.returncode == 1
        assert "Traceback (most recent call last)" in done.stderr
        assert done.stderr.splitlines()[-1] == "Error: There is no file gone.npz."
    assert piped(wrong, folder).stderr == "Error: There is no file gone.npz.\n"


def _half_written(stop):
    """A writer that is stopped in the middle."""
    return f"import safetensors.numpy as m; m.save_file = lambda _, path, **__: (path.write_text('half'), {stop})"


@pytest.mark.parametrize(
    ("during", "left"),
    [
        ("import unspur.removers.jse as m; m.JSE.fit = stop", []),
        (_half_written("stop()"), []),
        (_half_written("None"), ["r.safetensors"]),  # nobody stops it
    ],
    ids=["the fit", "the writing", "neither"],
)
def test_an_interrupt_leaves_nothing_half_done(folder, tmp_path, during, left):
    code = f"""
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
def stop(*_, **__):
    os.kill(os.getpid(), signal.SIGINT)
{during}
from unspur.lab.cli import main
main()
"""
    words = ["fit", str(folder / "rows.npz"), *SHORT, "--output", "r.safetensors"]
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == ((0, "") if left else (130, "Interrupted.\n"))
    assert [path.name for path in tmp_path.iterdir()] == left


@pytest.mark.parametrize("arguments", [["--help"], FIT], ids=["help", "fit"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_stops_reading_is_no_error(folder, arguments, unbuffered):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "unspur", *arguments], cwd=folder, stdout=writing, stderr=subprocess.PIPE, text=True,
        env=environment(PYTHONUNBUFFERED=unbuffered),
    )  # fmt: skip
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


def test_what_only_looks_at_words_imports_nothing_heavy(folder):
    code = "import sys; from unspur.lab.cli import main; main(sys.argv[1:], standalone_mode=False); print(HEAVY)"
    code = code.replace("HEAVY", "[m for m in ('numpy', 'scipy', 'sklearn') if m in sys.modules]")
    for words in (["--help"], ["fit", "--help"], ["completion", "zsh"], ["--version"]):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]", words
    done = subprocess.run([sys.executable, "-c", code, *FIT], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['numpy', 'scipy', 'sklearn']"


@pytest.fixture(scope="module")
def judged():
    rng = np.random.default_rng(0)
    y, concept = rng.integers(2, size=(2, 400))
    names = np.array(["a class whose name is long enough, 1", "a class whose name is long enough, 2"])
    return [group_accuracy(names[y], names[np.where(rng.random(400) < p, y, 1 - y)], concept) for p in (0.6, 0.7, 0.8,
            0.9, 0.95, 0.99)]  # fmt: skip


def test_many_methods_stand_below_each_other_and_no_number_is_lost(judged):
    results = {f"a method with a name of its own, {i}": result for i, result in enumerate(judged)}
    text = group_table(results, "bird", "background " * 8)
    assert widest(text) <= 80
    for result in judged:
        for value in (*result.accuracy.flat, result.worst, result.group_average, *result.worst_interval()):
            assert f"{100 * value:.1f}" in text
    one = group_table({"ERM": judged[0]}, "bird", "background")
    assert text.count("worst group") == 3
    assert one.count("worst group") == 1


def test_long_names_are_cut_in_the_middle_but_groups_stay_apart():
    assert lines_of("short", 20) == ["short"]
    assert lines_of("x" * 50, 10) == ["x" * 10, "…", "x" * 10, "x" * 10]
    assert all(columns(line) <= 10 for line in lines_of("水の鳥と陸の鳥 and more", 10))
    names = np.array([f"{'same ' * 60}{middle}{' same' * 60}" for middle in "ab"])
    y, concept = np.arange(80) % 2, np.arange(80) // 2 % 2
    table = group_table({"ERM": group_accuracy(names[y], names[y], concept)}, "y", "c")
    assert len(re.findall(r"\ba\b", table)) == len(re.findall(r"\bb\b", table)) == 2
    assert widest(table) <= 80


def test_trace_and_certificate_fit():
    toy, new = (make_toy(600, d=6, rho=0.7, random_state=seed) for seed in (0, 1))
    name = "a concept with a name that does not fit into one line of any table"
    jse = JSE().fit(toy.Z, toy.y, concept=toy.concept)
    certificate = jse.certificate(new.Z, new.y, new.concept)
    renamed = type(certificate).from_dict(
        {**certificate.to_dict(), "probe": {name: certificate.to_dict()["probe"]["concept"]},
         "covariance_left": {name: 0.5}, "notes": [name * 3]}
    )  # fmt: skip
    for text in (str(jse.trace_), str(certificate), str(renamed)):
        assert 60 < widest(text) <= 80
        assert "\x1b" not in text
    before, after = certificate.probe["concept"]
    for value in (before.accuracy, after.accuracy, after.low, after.high):
        assert f"{100 * value:.1f}" in str(renamed)


def test_a_command_to_copy_works_when_it_is_pasted(capsys):
    words = ["echo", *(f"--option-{i} 'value number {i}'" for i in range(8))]
    say_command("Next:", words)
    shown = capsys.readouterr().out
    assert widest(shown) <= 80
    assert shown.count("\\\n") >= 2
    pasted = subprocess.run(["bash", "-c", shown.removeprefix("Next:")], capture_output=True, text=True, check=True)
    assert pasted.stdout == " ".join(words[1:]).replace("'", "") + "\n"


def options_of(verb):
    return {name for parameter in command(verb).params for name in parameter.opts if name.startswith("--")}


def test_the_page_has_every_verb_with_all_its_options():
    """If this fails, write what is new by hand and then the tables: python -m tests.lab.command_page."""
    sections = parts(PAGE.read_text(encoding="utf-8"))
    assert list(sections) == VERBS
    for verb, text in sections.items():
        assert f"unspur {verb} " in text
        assert (table_of(verb) in text) == (verb != "completion"), verb


def test_every_command_and_option_on_the_page_exists():
    page = PAGE.read_text(encoding="utf-8")
    commands = re.findall(r"(?m)^unspur (\w+)\b(.*)", page)
    assert {verb for verb, _ in commands} >= set(VERBS)
    for verb, rest in commands:
        assert verb in VERBS
        assert set(re.findall(r"(?<!\S)--[a-z][\w-]*", rest)) <= options_of(verb), (verb, rest)


def test_the_page_and_the_help_have_every_exit_code():
    page, shown = PAGE.read_text(encoding="utf-8"), CliRunner().invoke(main, ["--help"]).output
    assert set(map(int, re.findall(r"(?m)^\| (\d+) \|", page))) == set(EXIT_CODES)
    assert all(re.search(rf"\b{code}\b", shown) for code in EXIT_CODES)
    assert EXIT_CODES[signal.SIGINT + 128]
