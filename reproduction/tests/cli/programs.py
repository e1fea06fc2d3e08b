"""Both programs, run in this process."""

from click.testing import CliRunner

from unspur.cli import main
from unspur_paper.cli import main as paper_main


def unspur(*arguments, code=0):
    """Run `unspur`; return all it said."""
    return _run(main, arguments, code)


def paper(*arguments, code=0):
    """Run `unspur-paper`; return all it said."""
    return _run(paper_main, arguments, code)


def _run(program, arguments, code):
    done = CliRunner().invoke(program, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.output
