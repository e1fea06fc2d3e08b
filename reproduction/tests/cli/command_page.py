"""The page that describes `unspur-paper`: ``python -m reproduction.tests.cli.command_page`` writes its tables."""

from tests.cli.command_page import DOCS, CommandPage

from unspur_paper.cli import main

PAGE = CommandPage("unspur-paper", main, DOCS / "reproduction-commands.md")

if __name__ == "__main__":
    PAGE.write_tables()
