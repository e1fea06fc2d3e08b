"""``python -m unspur``: the command line."""

from unspur.cli import main

main()
