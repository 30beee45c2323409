"""`python -m nhc`: the same command as the `nhc` executable."""

import sys

from nhc.cli import main

if __name__ == "__main__":
    sys.exit(main())
