"""`unspur-paper` as a program: its help, its page, and what it has in common with `unspur`."""

import re

import pytest
from click.testing import CliRunner
from tests.cli.terminal import widest

from reproduction.tests.cli.command_page import PAGE
from unspur._version import __version__
from unspur.cli import MOVED
from unspur_paper.cli import main


def invoke(*arguments, **environment):
    return CliRunner().invoke(main, list(arguments), env={"COLUMNS": "80", **environment}, prog_name="unspur-paper")


@pytest.mark.parametrize("verb", ["", *PAGE.verbs])
def test_help_fits_and_says_how(verb):
    done = invoke(*filter(None, [verb]), "--help")
    assert done.exit_code == 0, done.output
    assert widest(done.output) <= 80
    assert "--debug" in done.output
    assert f"unspur-paper {verb or 'COMMAND'}" in done.output


@pytest.mark.parametrize("verb", PAGE.verbs)
def test_the_one_line_of_a_verb_is_its_own_and_is_not_cut(verb):
    line = main.summaries[verb]
    assert line in invoke("--help").output
    first = PAGE.command(verb).help.split("\n\n")[0].replace("\n", " ")
    assert line == first or len(first) > 62


@pytest.mark.parametrize("verb", ["reproduce", "embed", "data"])
def test_no_line_of_a_list_is_wider_than_80_columns(verb):
    done = invoke(verb, "--list")
    assert done.exit_code == 0, done.output
    assert 60 < widest(done.output) <= 80


def test_the_page_has_every_verb_with_all_its_options():
    """If this fails, write what is new by hand and then the tables: python -m reproduction.tests.cli.command_page."""
    sections = PAGE.parts()
    assert list(sections) == PAGE.verbs
    for verb, text in sections.items():
        assert f"unspur-paper {verb} " in text
        assert PAGE.table_of(verb) in text, verb


def test_every_command_and_option_on_the_page_exists():
    commands = PAGE.commands()
    assert {verb for verb, _ in commands} == set(PAGE.verbs)
    for verb, rest in commands:
        assert set(re.findall(r"(?<!\S)--[a-z][\w-]*", rest)) <= PAGE.options_of(verb), (verb, rest)


def test_it_has_every_verb_that_unspur_says_it_has():
    assert set(MOVED) <= set(PAGE.verbs)
    assert invoke("--version").output == f"unspur-paper {__version__}\n"
    done = invoke("reproduse")
    assert done.exit_code == 2
    assert "Did you mean 'reproduce'?" in done.output


@pytest.mark.parametrize(
    "arguments", [["finetune", "s3://bucket/table.csv"], ["data", "waterbirds", "--root", "s3://bucket/data"]]
)
def test_urls_are_not_taken_for_local_paths(arguments):
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert "is a URL; the command line reads and writes local paths" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("unspur-paper re", ["reproduce"]),
        ("unspur-paper embed waterbirds-", ["waterbirds-published"]),
        ("unspur-paper finetune waterb", ["waterbirds"]),
        ("unspur-paper reproduce toy-re", ["toy-reconstruction", "toy-reweighting"]),
    ],
)
def test_the_next_word(line, offered):
    environment = {"_UNSPUR_PAPER_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = invoke(**environment)
    assert (done.exit_code, done.stderr) == (0, "")
    assert [word.removeprefix("plain,") for word in done.stdout.splitlines()] == offered
