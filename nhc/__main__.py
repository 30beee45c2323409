"""`python -m nhc`: the same command as the `nhc` executable."""

from nhc.cli.main import entry

if __name__ == "__main__":
    entry()
