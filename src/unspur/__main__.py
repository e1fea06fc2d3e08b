"""``python -m unspur``: the command line."""

from unspur.lab.cli import main

main()
