"""`python -m keymill` is the command `keymill`."""

from ._command import main

main()
