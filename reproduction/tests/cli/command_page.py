"""The page that describes `unspur-paper`: ``python -m reproduction.tests.cli.command_page`` writes its tables."""

from pathlib import Path

from tests.cli.command_page import CommandPage

from unspur_paper.cli import main

PAGE = CommandPage("unspur-paper", main, Path(__file__).parents[2] / "docs" / "reproduction-commands.md")

if __name__ == "__main__":
    PAGE.write_tables()
