"""What a person sees: lines that fit 80 columns, colour on a terminal only, a page that describes what there is."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from tests.cli.command_page import PAGE
from tests.cli.terminal import ESCAPE, FIT, NAMED, on_terminal, piped, widest, with_rows
from unspur import JSE
from unspur._text import display_width, lines_of
from unspur._version import __version__
from unspur.cli import main
from unspur.cli.console import colour_wanted, printable, say_command
from unspur.datasets import make_toy
from unspur.metrics import group_accuracy
from unspur.report.tables import group_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return with_rows(tmp_path_factory.mktemp("rows"))


@pytest.fixture(scope="module")
def on_screen(folder):
    """A fit on a terminal."""
    return on_terminal(FIT, folder)[0]


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "long.npz", *NAMED, "--force", "--output", "again.safetensors"],
        ["compare", "long.npz", *NAMED, "--remover", "LEACE", "--head", "ERM"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_no_line_is_wider_than_the_terminal_and_no_bar(folder, arguments):
    shown, code = on_terminal(arguments, folder)
    assert code == 0, shown
    assert "\r" in shown
    assert 60 < widest(shown) <= 80


def test_text_follows_a_narrower_terminal(folder):
    shown, code = on_terminal(["applly"], folder, wide=40)
    assert code == 2
    assert 30 < widest(shown) <= 40
    told = "Error: There is no command 'applly'. Did you mean 'apply'?"
    assert told in " ".join(ESCAPE.sub("", shown).split())
    assert len(told) > 40


@pytest.mark.parametrize("verb", ["", *PAGE.verbs])
def test_help_fits_and_says_how(verb):
    done = CliRunner().invoke(main, [*filter(None, [verb]), "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    assert widest(done.output) <= 80
    assert "--debug" in done.output
    assert f"unspur {verb or 'COMMAND'}" in done.output


@pytest.mark.parametrize("verb", PAGE.verbs)
def test_the_one_line_of_a_verb_is_its_own_and_is_not_cut(verb):
    line = main.summaries[verb]
    assert line in CliRunner().invoke(main, ["--help"], env={"COLUMNS": "80"}).output
    first = PAGE.command(verb).help.split("\n\n")[0].replace("\n", " ")
    assert line == first or len(first) > 62


def test_colour_is_for_terminals_and_can_be_refused(folder, on_screen):
    assert "\x1b[32m✓\x1b[0m" in on_screen
    assert "\x1b[31m" in on_terminal(["fti"], folder)[0]
    shown, code = on_terminal(FIT, folder, NO_COLOR="1", FORCE_COLOR="1")
    assert code == 0
    assert "✓" in shown
    assert "\x1b" not in shown
    assert "\x1b" in piped(FIT, folder, FORCE_COLOR="1").stdout


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"FORCE_COLOR": "1"}, True), ({}, None)],
)
def test_who_decides_about_colour(folder, environment, wanted):
    assert colour_wanted(environment) is wanted
    if wanted is False:
        assert "\x1b" not in on_terminal(["fti"], folder, **environment)[0]


def test_a_pipe_gets_plain_text_and_no_bars(folder, on_screen):
    off = piped(FIT, folder)
    assert "pairs/s" in on_screen
    assert off.stderr == ""
    assert "\x1b" not in off.stdout
    assert widest(off.stdout) <= 80
    json.loads(on_terminal([*FIT, "--json"], folder)[0])  # nothing but the document, on a terminal too


def test_names_cannot_command_the_terminal(tmp_path, monkeypatch):
    toy = make_toy(400, d=4, rho=0.6, random_state=0)
    np.savez(tmp_path / "rows.npz", Z=toy.Z, y=toy.y, **{"c\x1b]0;owned\x07\u202e": toy.concept})
    words = ["fit", "rows.npz", "--task", "y", "--concept", "c\x1b]0;owned\x07\u202e", "--output", "r.safetensors"]
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, words, color=True)
    assert done.exit_code == 0
    assert r"c\x1b]0;owned\x07\u202e" in done.output
    assert "\x1b]" not in done.output
    assert printable("two\nlines") == "two\nlines"


def test_version_and_bare_command(folder):
    assert piped(["--version"], folder).stdout == f"unspur {__version__}\n"
    bare = piped([], folder)
    assert (bare.returncode, bare.stderr) == (0, "")
    assert "Remove a concept:" in bare.stdout


def imported(words, folder, **environment):
    """The heavy libraries that a command imports, and what it prints."""
    code = """if True:
        import atexit, sys
        from unspur.cli import main
        heavy = {"numpy", "scipy", "sklearn", "torch", "pandas"}
        atexit.register(lambda: print(*heavy.intersection(sys.modules), file=sys.stderr))
        main(sys.argv[1:] or None, "unspur", standalone_mode=False)
    """
    environment = {**os.environ, **environment}
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split()), done.stdout


@pytest.mark.parametrize(
    ("line", "libraries", "offered"),
    [
        ("unspur comp", set(), "compare"),
        ("unspur fit --conc", set(), "--concept"),
        ("unspur compare rows.npz --balance ", set(), "group"),
        ("unspur fit rows.npz --task ", {"numpy"}, "bird"),
        ("unspur embed x.csv --encoder ", {"numpy"}, "grey-50"),
    ],
)
def test_a_shell_waits_for_no_heavy_library_to_complete_a_word(folder, line, libraries, offered):
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    found, shown = imported([], folder, _UNSPUR_COMPLETE="bash_complete", **words)
    assert f"plain,{offered}" in shown.splitlines()
    assert found <= libraries


@pytest.fixture(scope="module")
def judged():
    rng = np.random.default_rng(0)
    y, concept = rng.integers(2, size=(2, 400))
    names = np.array(["a class whose name is long enough, 1", "a class whose name is long enough, 2"])
    return [
        group_accuracy(names[y], names[np.where(rng.random(400) < p, y, 1 - y)], concept)
        for p in (0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
    ]


def test_many_methods_stand_below_each_other_and_no_number_is_lost(judged):
    results = {f"a method with a name of its own, {i}": result for i, result in enumerate(judged)}
    text = group_table(results, "bird", "background " * 8)
    assert widest(text) <= 80
    for result in judged:
        for value in (*result.accuracy.flat, result.worst, result.group_average, *result.worst_interval()):
            assert f"{100 * value:.1f}" in text
    one = group_table({"ERM": judged[0]}, "bird", "background")
    assert text.count("worst group") == 2
    assert one.count("worst group") == 1


def test_long_names_are_cut_in_the_middle_but_groups_stay_apart():
    assert lines_of("short", 20) == ["short"]
    assert lines_of("x" * 50, 10) == ["x" * 10, "…", "x" * 10, "x" * 10]
    assert all(display_width(line) <= 10 for line in lines_of("水の鳥と陸の鳥 and more", 10))
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
        {
            **certificate.to_dict(),
            "probe": {name: certificate.to_dict()["probe"]["concept"]},
            "covariance_left": {name: 0.5},
            "notes": [name * 3],
        }
    )
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


def test_every_command_and_option_on_the_page_exists():
    commands = PAGE.commands()
    assert {verb for verb, _ in commands} == set(PAGE.verbs)
    for verb, rest in commands:
        assert set(re.findall(r"(?<!\S)--[a-z][\w-]*", rest)) <= PAGE.options_of(verb), (verb, rest)
