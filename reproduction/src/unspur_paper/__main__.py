"""``python -m unspur_paper``: the command line of the reproduction."""

from unspur_paper.cli import main

main()
