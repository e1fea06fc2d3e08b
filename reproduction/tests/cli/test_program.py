"""`unspur-paper` as a program: its help, and how it is misused."""

import pytest
from click.testing import CliRunner

from unspur._version import __version__
from unspur_paper.cli import main


def invoke(*arguments, **environment):
    return CliRunner().invoke(main, list(arguments), env={"COLUMNS": "80", **environment}, prog_name="unspur-paper")


@pytest.mark.parametrize("verb", ["", *main.summaries])
def test_help_fits_and_says_how(verb):
    done = invoke(*filter(None, [verb]), "--help")
    assert done.exit_code == 0, done.output
    assert max(map(len, done.output.splitlines())) <= 80
    assert f"unspur-paper {verb or 'COMMAND'}" in done.output


@pytest.mark.parametrize("verb", ["reproduce", "embed", "data"])
def test_no_line_of_a_list_is_wider_than_80_columns(verb):
    done = invoke(verb, "--list")
    assert done.exit_code == 0, done.output
    assert 60 < max(map(len, done.output.splitlines())) <= 80


def test_version_and_an_unknown_command():
    assert invoke("--version").output == f"unspur-paper {__version__}\n"
    done = invoke("reproduse")
    assert done.exit_code == 2
    assert "Did you mean 'reproduce'?" in done.output


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
