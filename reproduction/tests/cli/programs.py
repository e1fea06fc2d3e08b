"""`unspur-paper`, run in this process."""

from click.testing import CliRunner

from unspur_paper.cli import main


def paper(*arguments, code=0):
    """Run `unspur-paper`; return all it said."""
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.output
