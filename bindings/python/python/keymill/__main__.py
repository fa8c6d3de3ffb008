"""`python -m keymill` is the command `keymill`."""

from ._command import main

if __name__ == "__main__":
    main()
