"""`python -m headrace` is the `headrace` command."""

from headrace.cli import main

main()
